//! Access by aligned atomic words of one size.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Copies the bytes from `at` on into all of `dst`.
///
/// # Safety
/// The aligned words that hold `dst.len()` bytes from `at` must be readable and accessed by this
/// module only.
pub(crate) unsafe fn load(at: *const u8, dst: &mut [u8]) {
    let (mut word, mut skip) = word_of(at.cast_mut());
    let mut left = dst;
    while !left.is_empty() {
        // SAFETY: `word` is aligned and holds requested bytes, by the caller's guarantee.
        let bytes = unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Relaxed).to_ne_bytes();
        let (part, rest) = left.split_at_mut(left.len().min(WORD - skip));
        part.copy_from_slice(&bytes[skip..skip + part.len()]);
        (left, skip, word) = (rest, 0, word.wrapping_add(1));
    }
}

/// Copies `src` to `at` and the bytes after it, the last word last. Other bytes of the same words
/// do not change.
///
/// # Safety
/// As [`load`], and the words must be writable.
pub(crate) unsafe fn store(at: *mut u8, src: &[u8]) {
    let (mut word, mut skip) = word_of(at);
    let mut left = src;
    while !left.is_empty() {
        // SAFETY: as in `load`.
        let atomic = unsafe { AtomicU64::from_ptr(word) };
        let (part, rest) = left.split_at(left.len().min(WORD - skip));
        if rest.is_empty() {
            // A thread that sees the last word sees those before it.
            fence(Ordering::Release);
        }
        match part.try_into() {
            Ok(whole) => atomic.store(u64::from_ne_bytes(whole), Ordering::Relaxed),
            Err(_) => merge(atomic, skip, part),
        }
        (left, skip, word) = (rest, 0, word.wrapping_add(1));
    }
}

/// Adds `add` to the word at `at`, wrapping; returns the old value. Atomic to every other access.
///
/// # Safety
/// As [`store`], and `at` must be aligned.
pub(crate) unsafe fn fetch_add(at: *mut u64, add: u64) -> u64 {
    // SAFETY: an aligned word, by the caller's guarantee.
    unsafe { AtomicU64::from_ptr(at) }.fetch_add(add, Ordering::SeqCst)
}

/// Writes `swap` to the word at `at` if it equals `compare`; returns the old value. Atomic to
/// every other access.
///
/// # Safety
/// As [`fetch_add`].
pub(crate) unsafe fn compare_swap(at: *mut u64, compare: u64, swap: u64) -> u64 {
    let (ok, no) = (Ordering::SeqCst, Ordering::SeqCst);
    // SAFETY: an aligned word, by the caller's guarantee.
    unsafe { AtomicU64::from_ptr(at) }
        .compare_exchange(compare, swap, ok, no)
        .unwrap_or_else(|old| old)
}

/// Writes `bytes` into `word` from its byte `skip` on.
fn merge(word: &AtomicU64, skip: usize, bytes: &[u8]) {
    let mut old = word.load(Ordering::Relaxed);
    loop {
        let mut merged = old.to_ne_bytes();
        merged[skip..skip + bytes.len()].copy_from_slice(bytes);
        let new = u64::from_ne_bytes(merged);
        match word.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => old = now,
        }
    }
}

/// The aligned word that holds the byte at `at`, and the byte's offset in it.
fn word_of(at: *mut u8) -> (*mut u64, usize) {
    let skip = at.addr() % WORD;
    // Aligned by construction.
    (at.wrapping_sub(skip).cast::<u64>(), skip)
}

const WORD: usize = size_of::<u64>();
