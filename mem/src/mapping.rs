//! Anonymous private mappings.

use std::alloc::Layout;
use std::fmt;
use std::ptr::NonNull;

/// An anonymous private mapping, unmapped when dropped. Its pages are zero, and take memory only
/// from their first write on.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

/// The kernel has no memory or address space left for a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfMemory {
    /// The requested bytes.
    pub bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and is unmapped once, by the thread
// that drops it.
unsafe impl Send for Mapping {}

// SAFETY: no method gives access to the memory through `&self`; `base` is a number until the
// region that owns the mapping makes a copy.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least `len` zeroed bytes, aligned to a page.
    ///
    /// # Errors
    /// [`OutOfMemory`]: the commit limit is exceeded, or no address space or mappings are left.
    pub(crate) fn zeroed(len: usize) -> Result<Self, OutOfMemory> {
        // The kernel maps no empty range: an empty region owns a page that is never accessed.
        let mapped = len.max(1);
        if cfg!(spanwire_words) {
            return Self::on_heap(mapped);
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address that the kernel selects affects no existing one.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), mapped, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(OutOfMemory { bytes: len });
        }
        let base = NonNull::new(base.cast()).ok_or(OutOfMemory { bytes: len })?;
        Ok(Self { base, len: mapped })
    }

    /// Allocates whole words on the heap, which AddressSanitizer guards at both ends.
    fn on_heap(len: usize) -> Result<Self, OutOfMemory> {
        let layout = Self::heap_layout(len).ok_or(OutOfMemory { bytes: len })?;
        // SAFETY: the layout is not empty.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        Ok(Self { base: NonNull::new(base).ok_or(OutOfMemory { bytes: len })?, len })
    }

    fn heap_layout(len: usize) -> Option<Layout> {
        Layout::from_size_align(len.checked_next_multiple_of(8)?, 64).ok()
    }

    /// The first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if cfg!(spanwire_words) {
            if let Some(layout) = Self::heap_layout(self.len) {
                // SAFETY: allocated in `on_heap` with this layout; no copy can run any more.
                unsafe { std::alloc::dealloc(self.base.as_ptr(), layout) };
            }
            return;
        }
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
