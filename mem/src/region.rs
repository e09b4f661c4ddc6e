//! A range of bytes with checked copies in and out.

use crate::mapping::{Mapping, OutOfMemory};
use crate::shared;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// A range of memory shared with other parties. Cloning shares the same bytes.
///
/// All access is by copy and every copy is bounds-checked. The memory is released when the last
/// clone is dropped.
#[derive(Clone)]
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    /// The region has bounds but no bytes: accesses discard writes and read zeros.
    is_blank: bool,
    /// Keeps the memory alive and frees it; not accessed otherwise.
    _owner: Arc<dyn Owner>,
}

/// A copy that would exceed the region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfBounds {
    /// First byte of the rejected copy, relative to the region.
    pub offset: usize,
    /// Bytes of the rejected copy.
    pub len: usize,
    /// Bytes of the region.
    pub region_len: usize,
}

/// The owner that keeps the bytes of a region alive until it is dropped.
trait Owner: Send + Sync {}

impl<T: Send + Sync> Owner for T {}

// SAFETY: a Region is a pointer to bytes that live as long as `_owner` (which is Send + Sync). It
// gives access by copying only, so moving it to another thread moves no borrow.
unsafe impl Send for Region {}

// SAFETY: see Send. Racing accesses are defined: `shared` makes all of them, and explains why.
unsafe impl Sync for Region {}

impl Region {
    /// A region of `len` zeroed bytes, aligned to a page. Zero bytes are a valid, empty region. A
    /// page takes memory from its first write on: an untouched region costs address space only.
    ///
    /// # Errors
    /// [`OutOfMemory`]. A mapped region does not guarantee memory for all of its pages at once,
    /// because by default Linux overcommits.
    pub fn try_zeroed(len: usize) -> Result<Self, OutOfMemory> {
        let owned = Mapping::zeroed(len)?;
        Ok(Self { base: owned.base(), len, is_blank: false, _owner: Arc::new(owned) })
    }

    /// As [`Region::try_zeroed`], for a length that was not chosen by a peer.
    ///
    /// # Panics
    /// If the allocation fails.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self::try_zeroed(len).unwrap_or_else(|e| panic!("{e}"))
    }

    /// A region over memory owned elsewhere.
    ///
    /// `owner` is dropped with the last clone. It keeps the memory mapped (an `Arc` of a mapping, a
    /// guard), or is `()` for memory that outlives the process.
    ///
    /// # Safety
    /// The aligned 8-byte words that hold the `len` bytes from `base` must stay valid for reads and
    /// writes, from any thread, until `owner` is dropped. For that time they must not be accessed
    /// in any other way than by regions over them while a copy of one may run.
    pub unsafe fn from_raw<T: Send + Sync + 'static>(
        base: NonNull<u8>,
        len: usize,
        owner: T,
    ) -> Self {
        Self { base, len, is_blank: false, _owner: Arc::new(owner) }
    }

    /// No other clone of the region exists: memory that foreign code owns is its own again when
    /// this one is dropped.
    #[must_use]
    pub fn is_sole(&self) -> bool {
        Arc::strong_count(&self._owner) == 1
    }

    /// A region of `len` bytes without memory, for simulations that do not read payload. It
    /// has bounds like any other; writes are discarded and reads return zero. Its address is
    /// not that of any memory, and the same for all: register it with a virtual address.
    #[must_use]
    pub fn blank(len: usize) -> Self {
        Self { base: NonNull::dangling(), len, is_blank: true, _owner: Arc::new(()) }
    }

    /// Bytes in the region.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for a region without bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first byte, the default virtual address of a memory region in verbs. It
    /// is a number without access rights.
    #[must_use]
    pub fn addr(&self) -> u64 {
        // Lossless: no supported target has wider addresses.
        self.base.as_ptr().addr() as u64
    }

    /// Copies `src` into the region from `offset` on.
    ///
    /// The last bytes become visible last, as applications of RDMA expect that poll them: a thread
    /// that sees the last aligned word of the copy, up to 8 bytes, and then executes an acquire
    /// fence sees all bytes before it. A copy of at most 64 bytes must not cross a cache line for
    /// that.
    ///
    /// # Errors
    /// [`OutOfBounds`] if a byte would fall outside; then nothing is copied.
    pub fn copy_in(&self, offset: usize, src: &[u8]) -> Result<(), OutOfBounds> {
        let Some(at) = self.checked(offset, src.len())? else {
            return Ok(());
        };
        // SAFETY: `checked` proved that src.len() bytes from `at` lie inside the region, which
        // lives while `self` does. `src` is a borrow of ordinary memory; the region's bytes are
        // never borrowed (from_raw's contract), so the two cannot overlap.
        unsafe { shared::store(at, src) };
        Ok(())
    }

    /// Copies from `offset` on out of the region, filling `dst`.
    ///
    /// # Errors
    /// [`OutOfBounds`] if a byte would come from outside; then nothing is copied.
    pub fn copy_out(&self, offset: usize, dst: &mut [u8]) -> Result<(), OutOfBounds> {
        let Some(at) = self.checked(offset, dst.len())? else {
            dst.fill(0);
            return Ok(());
        };
        // SAFETY: as in copy_in, with the roles of source and destination swapped.
        unsafe { shared::load(at, dst) };
        Ok(())
    }

    /// Adds `add` to the 64-bit word at `offset`, wrapping, and returns its old value. The
    /// word is in this machine's byte order, as in verbs.
    ///
    /// If the word's real address is a multiple of 8, the operation is atomic to all accesses,
    /// including those of this machine's other threads. Otherwise it is atomic only to callers on
    /// the same thread: the region's virtual and real address have different alignments.
    ///
    /// # Errors
    /// [`OutOfBounds`] if a byte of the word is outside; then nothing is changed.
    pub fn fetch_add(&self, offset: usize, add: u64) -> Result<u64, OutOfBounds> {
        // SAFETY: `update` gives a word inside the region, aligned.
        let atomic = |word| unsafe { shared::fetch_add(word, add) };
        self.update(offset, atomic, |old| old.wrapping_add(add))
    }

    /// Writes `swap` into the 64-bit word at `offset` if it equals `compare`, and returns its old
    /// value. Byte order and atomicity as [`Region::fetch_add`].
    ///
    /// # Errors
    /// [`OutOfBounds`] if a byte of the word is outside; then nothing is changed.
    pub fn compare_swap(&self, offset: usize, compare: u64, swap: u64) -> Result<u64, OutOfBounds> {
        // SAFETY: `update` gives a word inside the region, aligned.
        let atomic = |word| unsafe { shared::compare_swap(word, compare, swap) };
        self.update(offset, atomic, |old| if old == compare { swap } else { old })
    }

    /// Changes the word at `offset`: by `atomic`, which takes its address, if it is aligned, else
    /// by `plain`.
    fn update(
        &self,
        offset: usize,
        atomic: impl FnOnce(*mut u64) -> u64,
        plain: impl FnOnce(u64) -> u64,
    ) -> Result<u64, OutOfBounds> {
        let Some(at) = self.checked(offset, size_of::<u64>())? else {
            return Ok(0);
        };
        let at = at.cast::<u64>();
        if at.is_aligned() {
            return Ok(atomic(at));
        }
        let mut bytes = [0; size_of::<u64>()];
        self.copy_out(offset, &mut bytes)?;
        let old = u64::from_ne_bytes(bytes);
        self.copy_in(offset, &plain(old).to_ne_bytes())?;
        Ok(old)
    }

    /// The pointer to `offset`, if `len` bytes from there lie in the region; none for a blank
    /// region.
    pub(crate) fn checked(
        &self,
        offset: usize,
        len: usize,
    ) -> Result<Option<*mut u8>, OutOfBounds> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len && self.is_blank => Ok(None),
            Some(end) if end <= self.len => {
                // SAFETY: offset <= end <= self.len, so the result stays inside (or one past the
                // end of) the one allocation that `base` points to.
                Ok(Some(unsafe { self.base.as_ptr().add(offset) }))
            }
            _ => Err(OutOfBounds { offset, len, region_len: self.len }),
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes at {:#x})", self.len, self.addr())
    }
}

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, len, region_len } = self;
        write!(f, "{len} bytes at offset {offset} exceed a region of {region_len} bytes")
    }
}

impl std::error::Error for OutOfBounds {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    #[cfg_attr(spanwire_words, ignore = "regions are on the heap")]
    fn zeroed__is_zero_and_page_aligned() {
        let r = Region::zeroed(10_000);
        let mut out = vec![1u8; 10_000];
        r.copy_out(0, &mut out).unwrap();
        assert!(out.iter().all(|b| *b == 0));
        assert_eq!(r.addr() % 4096, 0);
    }

    #[test]
    #[cfg_attr(spanwire_words, ignore = "regions are on the heap")]
    fn try_zeroed__costs_no_memory_until_it_is_written() {
        let before = resident_bytes();
        let regions: Vec<Region> = (0..64).map(|_| Region::try_zeroed(16 << 20).unwrap()).collect();
        for r in &regions {
            r.copy_in(r.len() - 1, &[7]).unwrap();
        }
        let grown = resident_bytes().saturating_sub(before);
        assert!(grown < 256 << 20, "1 GiB of regions, a byte of each written: {grown} bytes more");
    }

    #[test]
    fn try_zeroed__reports_excessive_lengths() {
        for bytes in [1 << 50, usize::MAX / 2, usize::MAX] {
            assert_eq!(Region::try_zeroed(bytes).unwrap_err(), OutOfMemory { bytes });
        }
    }

    #[test]
    fn drop__unmaps_the_memory() {
        let address_space = || status("VmSize:");
        let before = address_space();
        for _ in 0..64 {
            drop(Region::zeroed(256 << 20));
        }
        let grown = address_space().saturating_sub(before);
        assert!(grown < 4 << 30, "64 regions of 256 MiB in turn: {grown} bytes of address space");
    }

    /// The resident set size of this process in bytes.
    fn resident_bytes() -> usize {
        status("VmRSS:")
    }

    /// A line of /proc/self/status, in bytes.
    fn status(field: &str) -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    #[test]
    fn blank__has_bounds_and_no_bytes() {
        let r = Region::blank(1 << 40);
        let mut out = [9; 4];
        assert_eq!(r.copy_in((1 << 40) - 4, &[1, 2, 3, 4]), Ok(()));
        assert_eq!(r.copy_out((1 << 40) - 4, &mut out), Ok(()));
        assert_eq!(out, [0; 4]);
        assert_eq!((r.fetch_add(8, 5), r.compare_swap(8, 0, 7)), (Ok(0), Ok(0)));
        assert!(r.copy_in((1 << 40) - 3, &[0; 4]).is_err());
        assert!(r.fetch_add(usize::MAX, 1).is_err());
    }

    #[test]
    fn zeroed__may_be_empty() {
        let r = Region::zeroed(0);
        assert!(r.is_empty());
        assert_eq!(r.copy_in(0, &[]), Ok(()));
        assert!(r.copy_in(0, &[1]).is_err());
    }

    #[test]
    fn from_raw__drops_the_owner_with_the_last_clone() {
        static DROPPED: AtomicBool = AtomicBool::new(false);
        struct Guard(#[expect(dead_code, reason = "held for its drop")] Box<[u64; 1]>);
        impl Drop for Guard {
            fn drop(&mut self) {
                DROPPED.store(true, Ordering::SeqCst);
            }
        }
        let mut bytes = Box::new([u64::from_ne_bytes([7; 8])]);
        let base = NonNull::new(bytes.as_mut_ptr().cast()).unwrap();
        // SAFETY: the box is moved into the owner and not touched again, its heap bytes stay put.
        let r = unsafe { Region::from_raw(base, 8, Guard(bytes)) };
        let clone = r.clone();
        drop(r);
        assert!(!DROPPED.load(Ordering::SeqCst));
        let mut out = [0u8; 8];
        clone.copy_out(0, &mut out).unwrap();
        assert_eq!(out, [7u8; 8]);
        drop(clone);
        assert!(DROPPED.load(Ordering::SeqCst));
    }

    #[test]
    fn copy_in__then_out_at_every_edge() {
        let r = Region::zeroed(64);
        r.copy_in(60, &[1, 2, 3, 4]).unwrap();
        let mut out = [0u8; 5];
        r.copy_out(59, &mut out).unwrap();
        assert_eq!(out, [0, 1, 2, 3, 4]);
        assert_eq!(r.copy_in(61, &[0; 4]), Err(OutOfBounds { offset: 61, len: 4, region_len: 64 }));
    }

    #[test]
    fn copy_out__rejects_an_offset_that_wraps() {
        let r = Region::zeroed(64);
        let mut out = [9u8; 4];
        assert!(r.copy_out(usize::MAX - 1, &mut out).is_err());
        assert!(r.copy_out(usize::MAX, &mut []).is_err());
        assert_eq!(out, [9; 4], "a rejected copy changes nothing");
        assert!(r.copy_out(64, &mut []).is_ok(), "an empty copy at the end is valid");
    }

    #[test]
    fn fetch_add__wraps_at_every_alignment() {
        let r = Region::zeroed(24);
        for offset in 0..=16 {
            r.copy_in(offset, &u64::MAX.to_ne_bytes()).unwrap();
            assert_eq!(r.fetch_add(offset, 3), Ok(u64::MAX));
            assert_eq!(r.fetch_add(offset, 0), Ok(2));
        }
        assert!(r.fetch_add(17, 1).is_err());
        assert!(r.fetch_add(usize::MAX, 1).is_err());
    }

    #[test]
    fn fetch_add__loses_nothing_between_threads() {
        let r = Region::zeroed(8);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..10_000).for_each(|_| assert!(r.fetch_add(0, 1).is_ok())));
            }
        });
        assert_eq!(r.fetch_add(0, 0), Ok(40_000));
    }

    #[test]
    fn compare_swap__swaps_only_what_it_expects() {
        let r = Region::zeroed(24);
        for offset in 0..=16 {
            r.copy_in(offset, &7u64.to_ne_bytes()).unwrap();
            assert_eq!(r.compare_swap(offset, 8, 9), Ok(7));
            assert_eq!(r.compare_swap(offset, 7, 9), Ok(7));
            assert_eq!(r.compare_swap(offset, 9, 9), Ok(9));
        }
        assert!(r.compare_swap(17, 9, 1).is_err());
    }

    #[test]
    fn region__may_be_written_by_one_thread_and_read_by_another() {
        let r = Region::zeroed(1 << 16);
        let w = r.clone();
        std::thread::scope(|s| {
            s.spawn(move || (0..200u8).for_each(|v| w.copy_in(0, &[v; 1 << 16]).unwrap()));
            let mut out = vec![0u8; 1 << 16];
            (0..200).for_each(|_| r.copy_out(0, &mut out).unwrap());
        });
        let mut out = [0u8; 1];
        r.copy_out(0, &mut out).unwrap();
        assert_eq!(out, [199]);
    }
}
