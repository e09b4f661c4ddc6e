//! The content of requests and replies: a reply is derived from all bytes of its request.
//!
//! It costs about as much as a copy, at both ends and for every transport alike.

/// Fills request `number`. No two requests of a run are equal.
pub(super) fn fill_request(number: u64, request: &mut [u8]) {
    fill(number.wrapping_add(1).wrapping_mul(ODD), request);
}

/// A digest of all bytes of a request and of their positions.
pub(super) fn digest(request: &[u8]) -> u64 {
    // Eight independent sums, which the processor computes side by side.
    let mut lanes = [0_u64; LANES];
    let (blocks, rest) = request.as_chunks::<{ LANES * WORD }>();
    for block in blocks {
        let (words, _) = block.as_chunks::<WORD>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = lane.rotate_left(9) ^ u64::from_le_bytes(*word);
        }
    }
    let mix = |sum: u64, word: u64| (sum.rotate_left(27) ^ word).wrapping_mul(ODD);
    let sum = lanes.into_iter().fold(request.len() as u64, mix);
    rest.iter().fold(sum, |sum, byte| mix(sum, u64::from(*byte)))
}

/// Fills the reply to the request of this digest.
pub(super) fn fill_reply(digest: u64, reply: &mut [u8]) {
    fill(digest, reply);
}

/// True if it is the reply to the request of this digest.
pub(super) fn is_reply(digest: u64, reply: &[u8]) -> bool {
    let (words, rest) = reply.as_chunks::<WORD>();
    // Without an early exit, so that the words are compared side by side.
    let differing = (0..).zip(words).fold(0, |differing, (n, word)| {
        differing | (u64::from_le_bytes(*word) ^ nth_word(digest, n))
    });
    let last = nth_word(digest, words.len() as u64).to_le_bytes();
    differing == 0 && rest == &last[..rest.len()]
}

fn fill(seed: u64, bytes: &mut [u8]) {
    let (words, rest) = bytes.as_chunks_mut::<WORD>();
    let whole = words.len() as u64;
    for (n, word) in (0..).zip(words) {
        *word = nth_word(seed, n).to_le_bytes();
    }
    let last = nth_word(seed, whole).to_le_bytes();
    rest.copy_from_slice(&last[..rest.len()]);
}

fn nth_word(seed: u64, n: u64) -> u64 {
    seed.wrapping_add(n.wrapping_mul(ODD))
}

const WORD: usize = 8;
const LANES: usize = 8;
/// 2^64 over the golden ratio.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    fn request(number: u64, bytes: usize) -> Vec<u8> {
        let mut request = vec![0; bytes];
        fill_request(number, &mut request);
        request
    }

    #[test]
    fn digest__depends_on_every_byte_and_its_position() {
        for bytes in [64, 100, 4096] {
            let original = request(7, bytes);
            let expected = digest(&original);
            for n in 0..bytes {
                let mut changed = original.clone();
                changed[n] ^= 1;
                assert_ne!(digest(&changed), expected, "byte {n} of {bytes}");
            }
            let mut moved = original.clone();
            moved.rotate_left(8);
            assert_ne!(digest(&moved), expected, "{bytes}");
        }
        assert_ne!(digest(&request(1, 64)), digest(&request(2, 64)));
    }

    #[test]
    fn is_reply__finds_every_wrong_byte() {
        for bytes in [8, 64, 100, 4096] {
            let mut reply = vec![0; bytes];
            fill_reply(99, &mut reply);
            assert!(is_reply(99, &reply) && !is_reply(98, &reply), "{bytes}");
            for n in 0..bytes {
                reply[n] ^= 0x80;
                assert!(!is_reply(99, &reply), "byte {n} of {bytes}");
                reply[n] ^= 0x80;
            }
        }
    }
}
