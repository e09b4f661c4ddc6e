//! The data of a transfer: generated from a seed, compared by hash.

use sha2::{Digest, Sha256};
use spanwire_base::Rng;
use spanwire_mem::Region;

/// Writes the seed's random bytes over the whole region.
pub(super) fn fill(region: &Region, seed: u64) {
    let mut rng = Rng::new(seed);
    for_each_chunk(region.len(), |at, len| {
        let mut chunk = [0; CHUNK_BYTES];
        rng.fill(&mut chunk[..len]);
        region.copy_in(at, &chunk[..len]).expect("the chunk lies in the region");
    });
}

/// SHA-256 of the whole region, in hex.
pub(super) fn sha256(region: &Region) -> String {
    let mut hash = Sha256::new();
    for_each_chunk(region.len(), |at, len| {
        let mut chunk = [0; CHUNK_BYTES];
        region.copy_out(at, &mut chunk[..len]).expect("the chunk lies in the region");
        hash.update(&chunk[..len]);
    });
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// The sum, modulo 2^64, of the region's words of 8 bytes in the order of this machine.
pub(super) fn sum_of_words(region: &Region) -> u64 {
    let mut sum = 0u64;
    for_each_chunk(region.len(), |at, len| {
        let mut chunk = [0; CHUNK_BYTES];
        region.copy_out(at, &mut chunk[..len]).expect("the chunk lies in the region");
        let (words, _) = chunk[..len].as_chunks();
        sum = words.iter().fold(sum, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)));
    });
    sum
}

fn for_each_chunk(len: usize, mut each: impl FnMut(usize, usize)) {
    for at in (0..len).step_by(CHUNK_BYTES) {
        each(at, CHUNK_BYTES.min(len - at));
    }
}

const CHUNK_BYTES: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha256__does_not_depend_on_chunk_borders() {
        let region = Region::zeroed(3);
        region.copy_in(0, b"abc").unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&region), abc);
        let long = Region::zeroed(CHUNK_BYTES * 2 + 5);
        fill(&long, 9);
        let mut flat = vec![0; long.len()];
        long.copy_out(0, &mut flat).unwrap();
        let whole: String = Sha256::digest(&flat).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(sha256(&long), whole);
    }

    #[test]
    fn sum_of_words__includes_every_whole_word() {
        let region = Region::zeroed(CHUNK_BYTES + 20);
        for (at, word) in [(0, 5u64), (CHUNK_BYTES - 8, 7), (CHUNK_BYTES + 8, u64::MAX)] {
            region.copy_in(at, &word.to_ne_bytes()).unwrap();
        }
        region.copy_in(CHUNK_BYTES + 16, &[9; 4]).unwrap();
        assert_eq!(sum_of_words(&region), 11);
    }

    #[test]
    fn fill__depends_on_the_seed_only() {
        let [a, b, c] = [1, 1, 2].map(|seed| {
            let region = Region::zeroed(100_000);
            fill(&region, seed);
            sha256(&region)
        });
        assert_eq!(a, b);
        assert_ne!(a, c);
    }
}
