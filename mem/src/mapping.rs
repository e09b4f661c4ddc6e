//! Memory from the kernel: anonymous private mappings.

use std::fmt;
use std::ptr::NonNull;

/// An anonymous private mapping, unmapped when dropped. Its pages are zero, and take memory only
/// from their first write on.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

/// The kernel has no memory or address space for a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory {
    /// Bytes that were asked for.
    pub bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and is unmapped once, by the thread
// that drops it.
unsafe impl Send for Mapping {}

// SAFETY: no method gives access to the memory through `&self`; `base` is a number until the
// region that owns the mapping makes a copy.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// At least `len` zeroed bytes, aligned to a page.
    ///
    /// # Errors
    /// [`OutOfMemory`]: above what the kernel commits to, or no address space or mappings left.
    pub(crate) fn zeroed(len: usize) -> Result<Self, OutOfMemory> {
        // The kernel maps no empty range: an empty region owns a page that is never touched.
        let mapped = len.max(1);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), mapped, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(OutOfMemory { bytes: len });
        }
        let base = NonNull::new(base.cast()).ok_or(OutOfMemory { bytes: len })?;
        Ok(Self { base, len: mapped })
    }

    /// The first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range mapped in `zeroed`. The region that owns the mapping drops it
        // with its last clone, after which no copy of it can run.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no memory for a region of {} bytes", self.bytes)
    }
}

impl std::error::Error for OutOfMemory {}
