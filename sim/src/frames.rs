//! A pool of frame buffers for frames in flight.

/// The number of a frame's buffer in a [`Frames`]: a chunk's, or that of a block plus [`BLOCKS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameId(u32);

/// Frames from transmission to arrival, and the buffer into which a node writes its next one.
///
/// Frames up to [`CHUNK_BYTES`], all of a simulation without payload, are in contiguous chunks, so
/// that the thousands on a long link are in few pages and cache lines; longer ones in blocks of the
/// longest frame's size. Nothing is allocated unless more frames are in flight than ever before.
#[derive(Debug)]
pub(crate) struct Frames {
    chunks: Pool<[u8; CHUNK_BYTES]>,
    blocks: Pool<Box<[u8]>>,
    written: Box<[u8]>,
}

/// Buffers of one size, some of them free.
#[derive(Debug)]
struct Pool<B> {
    buffers: Vec<B>,
    free: Vec<u32>,
}

impl<B> Default for Pool<B> {
    fn default() -> Self {
        Self { buffers: Vec::new(), free: Vec::new() }
    }
}

impl<B> Pool<B> {
    /// A free buffer; a new one is `make`'s.
    fn take(&mut self, make: impl FnOnce() -> B) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.buffers.push(make());
            spanwire_base::u32_from(self.buffers.len() - 1)
        })
    }

    fn give_back(&mut self, number: u32) {
        debug_assert!(self.free.len() < self.buffers.len(), "only a taken buffer can be returned");
        self.free.push(number);
    }

    fn in_use(&self) -> usize {
        self.buffers.len() - self.free.len()
    }
}

impl Frames {
    /// An empty pool for frames of at most `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        let written = vec![0; bytes].into_boxed_slice();
        Self { chunks: Pool::default(), blocks: Pool::default(), written }
    }

    /// The buffer that a node writes its next frame to. Its content is that of an earlier frame.
    pub(crate) fn written(&mut self) -> &mut [u8] {
        &mut self.written
    }

    /// Keeps the first `len` bytes of the buffer that was written, which remain there.
    pub(crate) fn keep(&mut self, len: usize) -> FrameId {
        let written = &self.written[..len];
        if len <= CHUNK_BYTES {
            let number = self.chunks.take(|| [0; CHUNK_BYTES]);
            self.chunks.buffers[number as usize][..len].copy_from_slice(written);
            return FrameId(number);
        }
        let number = self.blocks.take(|| vec![0; self.written.len()].into_boxed_slice());
        self.blocks.buffers[number as usize][..len].copy_from_slice(written);
        FrameId(number + BLOCKS)
    }

    /// Returns a frame's buffer to the pool.
    pub(crate) fn give_back(&mut self, id: FrameId) {
        match id.0.checked_sub(BLOCKS) {
            None => self.chunks.give_back(id.0),
            Some(block) => self.blocks.give_back(block),
        }
    }

    /// The buffer of a frame; the frame is at its start.
    pub(crate) fn at(&self, id: FrameId) -> &[u8] {
        match id.0.checked_sub(BLOCKS) {
            None => &self.chunks.buffers[id.0 as usize],
            Some(block) => &self.blocks.buffers[block as usize],
        }
    }

    /// Frames in flight.
    pub(crate) fn in_use(&self) -> usize {
        self.chunks.in_use() + self.blocks.in_use()
    }
}

/// As in the store of a switch: the headers of any RoCE packet over IPv6 with a telemetry stack of
/// five hops.
const CHUNK_BYTES: usize = 256;
/// Chunks are fewer: as many would take 512 GiB.
const BLOCKS: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep__reuses_returned_buffers() {
        for len in [CHUNK_BYTES, CHUNK_BYTES + 1] {
            let mut f = Frames::new(400);
            let [a, b] = [f.keep(len), f.keep(len)];
            assert_ne!(a, b);
            f.give_back(a);
            assert_eq!((f.keep(len), f.in_use()), (a, 2));
        }
    }

    #[test]
    fn keep__copies_what_was_written() {
        let mut f = Frames::new(300);
        let frames = [1, CHUNK_BYTES, CHUNK_BYTES + 1, 300].map(|len| {
            f.written()[..len].fill(u8::try_from(len % 251).unwrap());
            (len, f.keep(len))
        });
        f.written().fill(0);
        for (len, id) in frames {
            assert!(f.at(id)[..len].iter().all(|byte| usize::from(*byte) == len % 251), "{len}");
        }
        assert_eq!(f.in_use(), 4);
        for (_, id) in frames {
            f.give_back(id);
        }
        assert_eq!(f.in_use(), 0);
    }
}
