//! The packet memory, and the tokens that grant access to its chunks.
//!
//! A UMEM is an area of equal chunks. Each chunk has exactly one [`Frame`], created with the UMEM.
//! The program owns the chunks whose tokens it holds: pushing a token to the fill or TX ring
//! transfers the chunk to the kernel, and the RX or completion ring returns it. Bytes are reached
//! only through a token, so there is never a reference to memory that the kernel may write.

use crate::error::{Error, Place, Step};
use crate::layout::UmemReg;
use crate::sys::{self, Map};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// A registered packet area. Clones are handles to the same area.
///
/// ```
/// let (umem, mut frames) = af_xdp::Umem::with_frames(64, 4096)?;
/// let mut frame = frames.pop().expect("64 of them");
/// umem.bytes_mut(&mut frame)[..5].copy_from_slice(b"hello");
/// assert_eq!(&umem.bytes(&frame)[..5], b"hello");
/// # Ok::<(), af_xdp::Error>(())
/// ```
#[derive(Clone)]
pub struct Umem(Arc<Inner>);

/// The token of one chunk: its holder has exclusive access to the chunk.
///
/// It cannot be copied or constructed, and passing it on ends access to the bytes:
///
/// ```compile_fail
/// fn give(socket: &mut af_xdp::Socket, frame: af_xdp::Frame) {
///     let _ = socket.fill.push(frame);
///     let _ = socket.umem().bytes(&frame);
/// }
/// ```
///
/// A dropped token makes its chunk unusable for as long as the UMEM lives.
#[must_use = "a dropped frame takes its chunk out of use"]
#[derive(PartialEq, Eq, Debug)]
pub struct Frame {
    chunk: u32,
    umem: u32,
}

/// Memory for a UMEM.
///
/// # Safety
/// For as long as the value lives:
/// - `base` and `len` return the same values, and `base..base + len` is one readable and writable
///   mapping whose bytes are initialised;
/// - no other references to any of it exist. Another party may read it through raw pointers if it
///   tolerates torn values;
/// - the mapping is not removed. The kernel may still finish writing after the last socket is
///   closed. It keeps the pages, so freeing the mapping then is harmless, but reusing it is not.
pub unsafe trait UmemMemory: Send + Sync + 'static {
    /// The first byte.
    fn base(&self) -> NonNull<u8>;

    /// The length in bytes.
    fn len(&self) -> usize;

    /// True if there is no memory.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The ring through which the kernel owns a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Holder {
    /// In a fill ring; returns through an RX ring.
    Receive = 1,
    /// In a TX ring; returns through a completion ring.
    Transmit = 2,
}

struct Inner {
    base: NonNull<u8>,
    len: usize,
    chunk_shift: u32,
    id: u32,
    /// For each chunk `WITH_PROGRAM` or a [`Holder`].
    holders: Box<[AtomicU8]>,
    memory: Box<dyn UmemMemory>,
}

// SAFETY: `base` leads into `memory`, which is `Send`; bytes are reached only through a `Frame`,
// of which there is one per chunk.
unsafe impl Send for Inner {}
// SAFETY: as above: two threads with two frames reach disjoint bytes; the rest is atomic.
unsafe impl Sync for Inner {}

impl Umem {
    /// A UMEM in its own memory: `frames` chunks of `chunk_size` bytes of zeroed pages.
    ///
    /// # Errors
    /// [`Error::Config`] as for [`Umem::new`]; [`Error::Os`] if the memory cannot be mapped.
    pub fn with_frames(frames: u32, chunk_size: u32) -> Result<(Self, Vec<Frame>), Error> {
        let len = frames as usize * chunk_size as usize;
        if len == 0 {
            return Err(Error::config("frames", "a UMEM has at least one frame"));
        }
        let map = Map::anonymous(len)
            .map_err(|error| Error::os(Step::MapMemory, Place::default(), error))?;
        Self::new(map, chunk_size)
    }

    /// A UMEM in the caller's memory, and the tokens of its chunks, lowest address first.
    ///
    /// # Errors
    /// [`Error::Config`] if `chunk_size` is not a power of two from 2048 to the page size (the
    /// kernel's range for aligned chunks), or if `memory` does not start at a page or is not a
    /// whole number of chunks, at least one and fewer than 2^32.
    pub fn new(memory: impl UmemMemory, chunk_size: u32) -> Result<(Self, Vec<Frame>), Error> {
        let (base, len) = (memory.base(), memory.len());
        let page = sys::page_size();
        let chunk = chunk_size as usize;
        if !chunk_size.is_power_of_two() || chunk < CHUNK_MIN || chunk > page {
            let rule = format!("{chunk_size} is not a power of two in {CHUNK_MIN}..={page}");
            return Err(Error::config("chunk_size", rule));
        }
        if base.addr().get() % page != 0 {
            return Err(Error::config("memory", "does not start at a page"));
        }
        if len == 0 || len % chunk != 0 {
            let rule = format!("{len} bytes are not a whole number of {chunk}-byte chunks");
            return Err(Error::config("memory", rule));
        }
        let chunks = u32::try_from(len / chunk)
            .map_err(|_| Error::config("memory", "more than 2^32 chunks"))?;
        let id = NEXT_ID
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| id.checked_add(1))
            .map_err(|_| Error::config("memory", "2^32 UMEMs have been made"))?;
        let umem = Self(Arc::new(Inner {
            base,
            len,
            chunk_shift: chunk_size.trailing_zeros(),
            id,
            holders: (0..chunks).map(|_| AtomicU8::new(WITH_PROGRAM)).collect(),
            memory: Box::new(memory),
        }));
        let frames = (0..chunks).map(|chunk| Frame { chunk, umem: id }).collect();
        Ok((umem, frames))
    }

    /// The chunk of a frame.
    ///
    /// # Panics
    /// If the frame belongs to another UMEM.
    #[must_use]
    pub fn bytes<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        let start = self.start_of(frame);
        // SAFETY: a whole chunk inside the area, initialised and alive while `self` is (contract of
        // `UmemMemory`). The token is borrowed, so the program owns the chunk: the kernel does not
        // write it, and there is no `&mut` to it.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.chunk_len()) }
    }

    /// The chunk of a frame, for writing.
    ///
    /// # Panics
    /// If the frame belongs to another UMEM.
    #[must_use]
    pub fn bytes_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        let start = self.start_of(frame);
        // SAFETY: as in `bytes`; the only token of the chunk is borrowed mutably, so no other
        // reference to it exists.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), self.chunk_len()) }
    }

    /// Length of a chunk: 2048 or, with 4 KiB pages, 4096.
    #[must_use]
    pub fn chunk_len(&self) -> usize {
        1 << self.0.chunk_shift
    }

    /// Number of chunks.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.0.holders.len()
    }

    /// Number of chunks that the kernel owns: in rings, or in its stack.
    ///
    /// Cost: a pass over all chunks. For tests and diagnosis.
    #[must_use]
    pub fn with_kernel(&self) -> usize {
        let holders = self.0.holders.iter();
        holders.filter(|holder| holder.load(Ordering::Relaxed) != WITH_PROGRAM).count()
    }

    /// Transfers a chunk to the kernel: consumes the token and returns the chunk's address.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the token ends here: its holder is the kernel now"
    )]
    pub(crate) fn give(&self, frame: Frame, to: Holder) -> u64 {
        let index = self.index_of(&frame);
        self.0.holders[index].store(to as u8, Ordering::Release);
        u64::from(frame.chunk) << self.0.chunk_shift
    }

    /// Takes a chunk back at any address inside it that the kernel reports, with the offset of that
    /// address. `None` if `holder` does not own that chunk: the address is invalid or repeated.
    ///
    /// A compare-exchange, because sockets of one UMEM may be on several threads. If the kernel
    /// returns one chunk to two of them simultaneously, only one gets the token. A second token
    /// would be a second `&mut` to the same bytes.
    pub(crate) fn take(&self, address: u64, holder: Holder) -> Option<(Frame, u32)> {
        let chunk = u32::try_from(address >> self.0.chunk_shift).ok()?;
        let slot = self.0.holders.get(chunk as usize)?;
        // Acquire pairs with the release of `give`: accesses by the thread that gave the chunk
        // happen before those of the thread that takes it back.
        slot.compare_exchange(holder as u8, WITH_PROGRAM, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        let offset = u32::try_from(address & ((1 << self.0.chunk_shift) - 1)).ok()?;
        let umem = self.0.id;
        Some((Frame { chunk, umem }, offset))
    }

    pub(crate) fn registration(&self) -> UmemReg {
        UmemReg {
            addr: sys::u64_from(self.0.base.addr().get()),
            len: sys::u64_from(self.0.len),
            chunk_size: 1 << self.0.chunk_shift,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        }
    }

    fn start_of(&self, frame: &Frame) -> NonNull<u8> {
        let offset = self.index_of(frame) << self.0.chunk_shift;
        debug_assert!(offset + self.chunk_len() <= self.0.len);
        // SAFETY: inside the area: a frame of this UMEM has one of its chunk numbers.
        unsafe { self.0.base.add(offset) }
    }

    fn index_of(&self, frame: &Frame) -> usize {
        assert_eq!(frame.umem, self.0.id, "a frame of another UMEM");
        frame.chunk as usize
    }
}

impl Frame {
    /// The number of the chunk in its UMEM, `0..Umem::chunks()`: an index for the owner's own
    /// tables.
    #[must_use]
    pub fn index(&self) -> usize {
        self.chunk as usize
    }
}

impl fmt::Debug for Umem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Umem")
            .field("chunks", &self.chunks())
            .field("chunk_len", &self.chunk_len())
            .field("memory_len", &self.0.memory.len())
            .finish()
    }
}

// SAFETY: a private mapping that only `Map`'s owner, the UMEM, can reach; anonymous pages are
// zeroed; it lives until dropped.
unsafe impl UmemMemory for Map {
    fn base(&self) -> NonNull<u8> {
        self.base()
    }

    fn len(&self) -> usize {
        self.len()
    }
}

/// The kernel's minimum chunk size (`XDP_UMEM_MIN_CHUNK_SIZE`).
const CHUNK_MIN: usize = 2048;
const WITH_PROGRAM: u8 = 0;
static NEXT_ID: AtomicU32 = AtomicU32::new(0);

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Memory with chosen, possibly invalid, bounds; never accessed.
    struct Claim(usize, usize);

    // SAFETY: the tests that use it fail before any byte is accessed.
    unsafe impl UmemMemory for Claim {
        fn base(&self) -> NonNull<u8> {
            NonNull::without_provenance(self.0.try_into().expect("not zero"))
        }

        fn len(&self) -> usize {
            self.1
        }
    }

    fn error_of(memory: Claim, chunk_size: u32) -> String {
        Umem::new(memory, chunk_size).expect_err("refused").to_string()
    }

    #[test]
    fn with_frames__every_chunk_has_one_token_and_its_own_bytes() {
        let (umem, mut frames) = Umem::with_frames(16, 2048).expect("32 KiB");
        assert_eq!((umem.chunks(), umem.chunk_len()), (16, 2048));
        for (n, frame) in (0u8..).zip(&mut frames) {
            assert_eq!(frame.index(), usize::from(n));
            assert!(umem.bytes(frame).iter().all(|&byte| byte == 0));
            umem.bytes_mut(frame).fill(n + 1);
        }
        for (n, frame) in (0u8..).zip(&frames) {
            assert!(umem.bytes(frame).iter().all(|&byte| byte == n + 1));
        }
    }

    #[test]
    fn new__rejects_what_the_kernel_would() {
        for chunk_size in [0, 1, 1024, 3000, 8192, u32::MAX] {
            let text = error_of(Claim(0x10000, 1 << 20), chunk_size);
            assert!(text.starts_with("chunk_size: "), "{text}");
        }
        assert!(error_of(Claim(0x10010, 1 << 20), 2048).contains("page"));
        assert!(error_of(Claim(0x10000, 5000), 4096).contains("whole number"));
        assert!(error_of(Claim(0x10000, 0), 4096).contains("whole number"));
        assert!(error_of(Claim(0x10000, 4096 << 32), 4096).contains("2^32"));
        assert!(Umem::with_frames(0, 4096).is_err());
    }

    #[test]
    #[should_panic(expected = "a frame of another UMEM")]
    fn bytes__a_frame_of_another_umem_panics() {
        let (umem, _frames) = Umem::with_frames(1, 4096).expect("4 KiB");
        let (_other, frames) = Umem::with_frames(1, 4096).expect("4 KiB");
        let _ = umem.bytes(&frames[0]);
    }

    #[test]
    fn take__returns_a_chunk_once_and_only_from_its_holder() {
        let (umem, mut frames) = Umem::with_frames(4, 4096).expect("16 KiB");
        let frame = frames.remove(2);
        assert!(umem.take(2 << 12, Holder::Receive).is_none());
        let address = umem.give(frame, Holder::Receive);
        assert_eq!(address, 2 << 12);
        assert_eq!(umem.with_kernel(), 1);
        assert!(umem.take(address, Holder::Transmit).is_none());
        let (frame, offset) = umem.take(address + 256, Holder::Receive).expect("given");
        assert_eq!((frame.index(), offset), (2, 256));
        assert!(umem.take(address, Holder::Receive).is_none());
        assert_eq!(umem.with_kernel(), 0);
    }

    #[test]
    fn take__two_threads_get_one_token_of_one_chunk() {
        const CHUNKS: u32 = 4096;
        let (umem, frames) = Umem::with_frames(CHUNKS, 2048).expect("8 MiB, never touched");
        let mut frames = Some(frames);
        for round in 0..40 {
            for frame in frames.take().expect("those of the round before") {
                umem.give(frame, Holder::Receive);
            }
            let reached = [AtomicU32::new(0), AtomicU32::new(0)];
            let race = |me: usize| {
                let take = |n: u32| {
                    // Simultaneous, but without waiting for the other thread if its core is busy.
                    reached[me].store(n, Ordering::SeqCst);
                    let is_behind = || reached[1 - me].load(Ordering::SeqCst) < n;
                    (0..500).take_while(|_| is_behind()).for_each(|_| std::hint::spin_loop());
                    umem.take(u64::from(n) << 11, Holder::Receive).map(|(frame, _)| frame)
                };
                (0..CHUNKS).filter_map(take).collect::<Vec<_>>()
            };
            let mut taken = thread::scope(|scope| {
                let other = scope.spawn(|| race(0));
                let mut taken = race(1);
                taken.append(&mut other.join().expect("no panic"));
                taken
            });
            taken.sort_unstable_by_key(Frame::index);
            let indices = taken.iter().map(Frame::index);
            assert!(indices.eq(0..umem.chunks()), "round {round}: {} tokens", taken.len());
            frames = Some(taken);
        }
    }

    #[test]
    fn take__addresses_outside_the_area_are_rejected() {
        let (umem, frames) = Umem::with_frames(4, 4096).expect("16 KiB");
        for frame in frames {
            umem.give(frame, Holder::Receive);
        }
        for address in [4 << 12, u64::from(u32::MAX) << 12, u64::MAX] {
            assert!(umem.take(address, Holder::Receive).is_none(), "{address:#x}");
        }
        assert_eq!(umem.with_kernel(), 4);
    }
}
