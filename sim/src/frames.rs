//! Frames on their way: buffers that are used again and again.

/// A buffer of [`Frames`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameId(u32);

/// Buffers of one size. A frame stays in its buffer from the moment it is written until it has
/// arrived: nothing is allocated once as many buffers exist as frames were ever on their way.
#[derive(Debug)]
pub(crate) struct Frames {
    buffers: Vec<Box<[u8]>>,
    free: Vec<FrameId>,
    bytes: usize,
}

impl Frames {
    /// No buffers yet; each will have `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { buffers: Vec::new(), free: Vec::new(), bytes }
    }

    /// A buffer that nobody uses. What is in it is what its last frame left.
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

    /// Gives a buffer back.
    pub(crate) fn give_back(&mut self, id: FrameId) {
        debug_assert!(self.free.len() < self.buffers.len(), "only what was taken is given back");
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
    fn take__uses_again_what_was_given_back() {
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
