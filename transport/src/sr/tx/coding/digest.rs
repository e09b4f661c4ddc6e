//! Digests of payloads: whether a retransmission has the bytes of the first transmission.

use std::num::NonZeroU64;

/// The digest of a payload. Payloads of one length that differ have one digest with a probability
/// of 2^-64, if they are not chosen for it. It is no defence against someone who chooses payloads
/// of one digest: only the sender's own memory would suffer.
pub(super) fn digest(payload: &[u8]) -> NonZeroU64 {
    // Lanes, since each multiplication waits for the one before it.
    let (chunks, rest) = payload.as_chunks::<{ 8 * LANES }>();
    let mut lanes = [SEED; LANES];
    for chunk in chunks {
        for (lane, word) in lanes.iter_mut().zip(chunk.as_chunks::<8>().0) {
            *lane = step(*lane, u64::from_le_bytes(*word));
        }
    }
    let (words, tail) = rest.as_chunks::<8>();
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    let mut all = lanes.into_iter().fold(SEED, step);
    for word in words {
        all = step(all, u64::from_le_bytes(*word));
    }
    all = step(all, u64::from_le_bytes(last));
    NonZeroU64::new(all).unwrap_or(NonZeroU64::MIN)
}

/// A bijection of each of its arguments.
#[inline]
fn step(state: u64, word: u64) -> u64 {
    (state ^ word).wrapping_mul(FACTOR).rotate_left(29)
}

const LANES: usize = 4;
/// Any odd words.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const FACTOR: u64 = 0xbf58_476d_1ce4_e5b9;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn digest__differs_if_a_byte_does(
            mut bytes in prop::collection::vec(any::<u8>(), 1..300),
            at in any::<prop::sample::Index>(),
            change in 1_u8..,
        ) {
            let before = digest(&bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            prop_assert_ne!(digest(&bytes), before);
        }
    }
}
