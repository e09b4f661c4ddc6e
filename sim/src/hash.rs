//! A hash of all events in order.

use spanwire_base::{Time, u64_from};

/// The event hash. Two runs with equal hashes had the same events at the same times.
///
/// It detects accidental differences; it is not collision-resistant against an adversary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventHash(u64);

impl EventHash {
    /// The hash of no events.
    #[must_use]
    pub const fn new() -> Self {
        Self(SEED)
    }

    /// The hash value.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }

    /// Adds a frame that arrived at a port. Its last eight bytes stand for all, because they
    /// contain the ICRC, which covers what the sender wrote.
    pub fn on_frame(&mut self, now: Time, node: u32, port: usize, frame: &[u8]) {
        let mut tail = [0; 8];
        let from = frame.len().saturating_sub(tail.len());
        tail[..frame.len() - from].copy_from_slice(&frame[from..]);
        self.mix(now.as_ps());
        self.mix((u64::from(node) << 32) | (u64_from(port) << 24) | u64_from(frame.len()));
        self.mix(u64::from_le_bytes(tail));
    }

    /// Adds a timer that expired.
    pub fn on_timer(&mut self, now: Time, node: u32) {
        self.mix(now.as_ps());
        self.mix((u64::from(node) << 32) | TIMER);
    }

    /// Multiplies to 128 bits and folds them, so that every input bit affects the whole state.
    fn mix(&mut self, word: u64) {
        let wide = u128::from(self.0 ^ word ^ PATTERN) * u128::from(FACTOR);
        let [low, high] = [wide & u128::from(u64::MAX), wide >> 64];
        let half = |n: u128| u64::try_from(n).expect("half of 128 bits");
        self.0 = (half(low) ^ half(high)).wrapping_add(word.rotate_left(32));
    }
}

impl Default for EventHash {
    fn default() -> Self {
        Self::new()
    }
}

/// Odd numbers with about as many ones as zeros: the golden ratio and pi.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const PATTERN: u64 = 0x2439_85a3_0885_a308;
const SEED: u64 = 0x1319_8a2e_0370_7344;
/// Replaces port and length; no frame has this length.
const TIMER: u64 = 0xffff_ffff;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(frames: &[(u64, u32, &[u8])]) -> u64 {
        let mut h = EventHash::new();
        for (at, node, frame) in frames {
            h.on_frame(Time::from_ps(*at), *node, 0, frame);
        }
        h.value()
    }

    #[test]
    fn on_frame__time_node_length_tail_and_order_all_count() {
        let base = of(&[(5, 1, b"0123456789"), (6, 1, b"abc")]);
        for other in [
            of(&[(4, 1, b"0123456789"), (6, 1, b"abc")]),
            of(&[(5, 2, b"0123456789"), (6, 1, b"abc")]),
            of(&[(5, 1, b"x0123456789"), (6, 1, b"abc")]),
            of(&[(5, 1, b"0123456788"), (6, 1, b"abc")]),
            of(&[(6, 1, b"abc"), (5, 1, b"0123456789")]),
            of(&[(5, 1, b"0123456789")]),
        ] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn on_timer__is_not_a_frame() {
        let (mut a, mut b) = (EventHash::new(), EventHash::new());
        a.on_timer(Time::from_ps(5), 1);
        b.on_frame(Time::from_ps(5), 1, 0, &[]);
        assert_ne!(a, b);
    }

    #[test]
    fn value__never_changes_between_versions() {
        assert_eq!(of(&[(1, 2, b"frame"), (3, 4, b"")]), 12_633_814_395_332_118_276);
    }
}
