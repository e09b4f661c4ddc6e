//! Processes that were forked from the one that opened something.
//!
//! After fork(2) both processes have the same sockets, and rings that the kernel shares with both,
//! but the child has none of the threads, and a copy of the state of its own. Whatever it does with
//! them destroys the parent's connections, so an owner records its [`Origin`], and leaves
//! everything alone in another process.

use std::io;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The process in which something was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin(u64);

impl Origin {
    /// The calling process.
    #[must_use]
    pub fn here() -> Self {
        Self(generation())
    }

    /// True in the process of [`Origin::here`], false in those that were forked from it. It costs
    /// one load.
    #[must_use]
    pub fn is_here(self) -> bool {
        generation() == self.0
    }
}

impl Default for Origin {
    fn default() -> Self {
        Self::here()
    }
}

/// A value that is not dropped in a process forked from the one that made it: what it owns is that
/// process'.
#[derive(Debug)]
pub struct HereOnly<T> {
    /// `None` after [`HereOnly::into_inner`].
    value: Option<T>,
    origin: Origin,
}

impl<T> HereOnly<T> {
    /// A value of the calling process.
    pub fn new(value: T) -> Self {
        Self { value: Some(value), origin: Origin::here() }
    }

    /// The value.
    pub fn into_inner(mut self) -> T {
        self.value.take().expect(IS_THERE)
    }
}

impl<T> Deref for HereOnly<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect(IS_THERE)
    }
}

impl<T> DerefMut for HereOnly<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect(IS_THERE)
    }
}

impl<T> Drop for HereOnly<T> {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            std::mem::forget(self.value.take());
        }
    }
}

const IS_THERE: &str = "only into_inner takes it, and consumes self";

/// A number that this process has in common with no process that it was forked from.
fn generation() -> u64 {
    static PAGE: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
    match PAGE.get_or_init(wiped_word) {
        Some(word) => match word.load(Ordering::Relaxed) {
            0 => next_generation(word),
            known => known,
        },
        // Before Linux 4.14: a system call each time. A process id may be used again, but not while
        // the parent is there.
        None => u64::from(std::process::id()),
    }
}

/// The number of a process that was just forked, or the first.
#[cold]
fn next_generation(word: &AtomicU64) -> u64 {
    /// Of the process that this one was forked from, until it has its own.
    static LAST: AtomicU64 = AtomicU64::new(0);
    let next = LAST.load(Ordering::Relaxed) + 1;
    match word.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {
            LAST.store(next, Ordering::Relaxed);
            next
        }
        // Another thread was first.
        Err(known) => known,
    }
}

/// A word that is zero after each fork; `None` if the kernel has no such memory.
fn wiped_word() -> Option<&'static AtomicU64> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let len = size_of::<AtomicU64>();
    // SAFETY: a new mapping at an address that the kernel selects affects no existing one.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the pages of the mapping just made, which nothing refers to yet.
    if unsafe { libc::madvise(base, len, libc::MADV_WIPEONFORK) } != 0 {
        return None;
    }
    // SAFETY: at the start of a page, so aligned; zeroed, readable and writable; never unmapped.
    Some(unsafe { &*base.cast::<AtomicU64>() })
}

/// Runs `work` in a process forked from this one, which then ends; returns its result there. For
/// tests of what is left alone in such a process.
///
/// A lock that another thread holds is never released in the child.
///
/// # Errors
/// The system has no processes left, or the child was killed by a signal.
#[doc(hidden)]
pub fn in_child(work: impl FnOnce() -> bool) -> io::Result<bool> {
    // SAFETY: no pointers. The child has a copy of all memory, and only this thread: what others
    // were changing may be locked or half changed there, as after the end of a thread that holds a
    // lock. The C library keeps its own heap usable.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if pid == 0 {
        let is_right = catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
        // SAFETY: no pointers; it does not return, so no destructor of the parent's state runs.
        unsafe { libc::_exit(i32::from(!is_right)) }
    }
    let mut status = 0;
    // SAFETY: the kernel writes one int to `status`.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    match libc::WIFEXITED(status) {
        true => Ok(libc::WEXITSTATUS(status) == 0),
        false => Err(io::Error::other(format!("the child ended with status {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_here__in_the_same_process_only() {
        let parent = Origin::here();
        assert!(parent.is_here());
        let is_right = in_child(|| {
            let child = Origin::here();
            let grandchild = || child.is_here() || parent.is_here();
            !parent.is_here()
                && child.is_here()
                && in_child(|| !grandchild() && Origin::here().is_here()).is_ok_and(|is| is)
                && child.is_here()
        });
        assert!(is_right.expect("processes are left"));
        assert!(parent.is_here() && Origin::here() == parent);
    }

    #[test]
    fn drop__of_a_value_of_another_process_has_no_effect() {
        struct Counted<'a>(&'a AtomicU64);
        impl Drop for Counted<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let drops = AtomicU64::new(0);
        let mut value = Some(HereOnly::new(Counted(&drops)));
        let child = in_child(|| {
            drop(HereOnly::new(Counted(&drops)));
            drop(value.take());
            drops.load(Ordering::Relaxed) == 1
        });
        assert!(child.expect("processes are left"));
        drop(value);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn in_child__returns_the_result() {
        assert!(in_child(|| true).expect("processes are left"));
        assert!(!in_child(|| false).expect("processes are left"));
    }
}
