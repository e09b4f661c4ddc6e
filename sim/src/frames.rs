//! A pool of frame buffers for frames in flight.

/// A buffer of [`Frames`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameId(u32);

/// Buffers of one size. A frame occupies its buffer from transmission to arrival. Nothing is
/// allocated unless more frames are in flight than ever before.
#[derive(Debug)]
pub(crate) struct Frames {
    buffers: Vec<Box<[u8]>>,
    free: Vec<FrameId>,
    bytes: usize,
}

impl Frames {
    /// An empty pool whose buffers have `bytes` each.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { buffers: Vec::new(), free: Vec::new(), bytes }
    }

    /// A free buffer. Its content is that of its last frame.
    pub(crate) fn take(&mut self) -> FrameId {
        self.free.pop().unwrap_or_else(|| {
            let id = FrameId(spanwire_base::u32_from(self.buffers.len()));
            self.buffers.push(vec![0; self.bytes].into_boxed_slice());
            id
        })
    }

    /// A buffer with the same first `len` bytes.
    pub(crate) fn copy(&mut self, of: FrameId, len: usize) -> FrameId {
        let id = self.take();
        let [from, to] = self
            .buffers
            .get_disjoint_mut([of.0 as usize, id.0 as usize])
            .expect("a buffer just taken is not one in use");
        to[..len].copy_from_slice(&from[..len]);
        id
    }

    /// Returns a buffer to the pool.
    pub(crate) fn give_back(&mut self, id: FrameId) {
        debug_assert!(self.free.len() < self.buffers.len(), "only a taken buffer can be returned");
        self.free.push(id);
    }

    pub(crate) fn at(&self, id: FrameId) -> &[u8] {
        &self.buffers[id.0 as usize]
    }

    pub(crate) fn at_mut(&mut self, id: FrameId) -> &mut [u8] {
        &mut self.buffers[id.0 as usize]
    }

    /// Buffers in use.
    pub(crate) fn in_use(&self) -> usize {
        self.buffers.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take__reuses_returned_buffers() {
        let mut f = Frames::new(4);
        let [a, b] = [f.take(), f.take()];
        assert_ne!(a, b);
        f.give_back(a);
        assert_eq!((f.take(), f.in_use()), (a, 2));
    }

    #[test]
    fn copy__is_another_buffer_with_the_same_bytes() {
        let mut f = Frames::new(4);
        let a = f.take();
        f.at_mut(a).copy_from_slice(&[1, 2, 3, 4]);
        let b = f.copy(a, 3);
        f.at_mut(a)[0] = 9;
        assert_eq!(f.at(b), [1, 2, 3, 0]);
    }
}
