//! A fixed ring indexed by a serial number that wraps.

/// A fixed number of slots addressed by serial number: slot `serial mod capacity`.
///
/// The owner keeps its live serials within one capacity of each other (a window), so no two of
/// them share a slot; the ring itself stores no serials. Nothing is allocated after [`new`].
///
/// [`new`]: SerialRing::new
#[derive(Clone, Debug)]
pub struct SerialRing<T> {
    slots: Box<[T]>,
    mask: u32,
}

impl<T: Clone + Default> SerialRing<T> {
    /// A ring for a window of at least `window` serials (1..=2^24), rounded up to a power of two so
    /// that a 24-bit or 32-bit serial keeps its slot when it wraps.
    ///
    /// # Panics
    /// If `window` is zero or above 2^24.
    #[must_use]
    pub fn new(window: u32) -> Self {
        assert!(window > 0, "a ring without slots holds nothing");
        assert!(window <= 1 << 24, "no protocol here has a window above 2^24");
        let capacity = window.next_power_of_two();
        let slots = vec![T::default(); capacity as usize].into_boxed_slice();
        Self { slots, mask: capacity - 1 }
    }

    /// Number of slots, a power of two.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.mask + 1
    }

    /// The slot of `serial`.
    #[must_use]
    pub fn at(&self, serial: u32) -> &T {
        &self.slots[(serial & self.mask) as usize]
    }

    /// The slot of `serial`, to change.
    pub fn at_mut(&mut self, serial: u32) -> &mut T {
        &mut self.slots[(serial & self.mask) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at__keeps_slots_apart_within_a_window_across_the_24_bit_wrap() {
        let mut ring = SerialRing::<u32>::new(100);
        assert_eq!(ring.capacity(), 128);
        let start = (1 << 24) - 50;
        for i in 0..100u32 {
            *ring.at_mut((start + i) & 0xff_ffff) = i;
        }
        for i in 0..100u32 {
            assert_eq!(*ring.at((start + i) & 0xff_ffff), i);
        }
    }

    #[test]
    #[should_panic(expected = "without slots")]
    fn new__refuses_an_empty_window() {
        let _ = SerialRing::<u8>::new(0);
    }
}
