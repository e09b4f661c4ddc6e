//! A seeded random number generator whose stream never changes between versions.

/// Xoshiro256** seeded through SplitMix64.
///
/// For simulations, faults and spraying: fast and reproducible, **not** for keys (rkeys come from
/// a cryptographic generator in `transport`).
///
/// # Source
/// Blackman and Vigna, "Scrambled Linear Pseudorandom Number Generators", ACM TOMS 2021, figure 1;
/// SplitMix64 as their recommended seeding. Vectors in the tests pin the stream.
#[derive(Clone, Debug)]
pub struct Rng {
    s: [u64; 4],
}

impl Rng {
    /// A generator whose stream is determined by `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut z = seed;
        let mut next = || {
            z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut x = z;
            x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ (x >> 31)
        };
        Self { s: [next(), next(), next(), next()] }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.s;
        let out = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (c2, d2) = (c ^ a, d ^ b);
        self.s = [a ^ d2, b ^ c2, c2 ^ (b << 17), d2.rotate_left(45)];
        out
    }

    /// A number below `n`, without modulo bias (Lemire's multiplication with rejection).
    ///
    /// # Panics
    /// If `n` is zero.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "there is no number below zero");
        let threshold = n.wrapping_neg() % n;
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(n);
            let [lo, hi] = split(wide);
            if lo >= threshold {
                return hi;
            }
        }
    }

    /// True with probability `parts` in a million; `parts` above a million is always true.
    pub fn per_million(&mut self, parts: u32) -> bool {
        parts > 0 && self.below(1_000_000) < u64::from(parts)
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// A new generator, whose stream is independent of the further use of this one.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }
}

/// The low and the high half of a 128-bit product.
fn split(wide: u128) -> [u64; 2] {
    let b = wide.to_le_bytes();
    let half = |at: usize| {
        let mut word = [0u8; 8];
        word.copy_from_slice(&b[at..at + 8]);
        u64::from_le_bytes(word)
    };
    [half(0), half(8)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new__splitmix_seeding_matches_the_published_stream() {
        // SplitMix64 from 1234567: the first outputs of the reference implementation.
        assert_eq!(Rng::new(1_234_567).s[0], 6_457_827_717_110_365_317);
        assert_eq!(Rng::new(1_234_567).s[1], 3_203_168_211_198_807_973);
    }

    #[test]
    fn next_u64__matches_xoshiro256_starstar() {
        // State 1, 2, 3, 4: 2*5 = 10, rotl 7 = 1280, *9 = 11520; then 0 (the second word became 0).
        let mut r = Rng { s: [1, 2, 3, 4] };
        assert_eq!(r.next_u64(), 11_520);
        assert_eq!(r.next_u64(), 0);
        assert_eq!(r.next_u64(), 1_509_978_240);
    }

    #[test]
    fn below__stays_below_and_reaches_all() {
        let mut r = Rng::new(7);
        let mut seen = [false; 10];
        for _ in 0..1_000 {
            let v = r.below(10);
            assert!(v < 10);
            seen[usize::try_from(v).unwrap()] = true;
        }
        assert!(seen.iter().all(|s| *s));
    }

    #[test]
    fn per_million__is_near_its_rate() {
        let mut r = Rng::new(1);
        let hits = (0..1_000_000).filter(|_| r.per_million(10_000)).count();
        assert!((9_500..10_500).contains(&hits), "{hits} of a million at 1 %");
        assert!(!r.per_million(0));
        assert!(r.per_million(1_000_000));
    }
}
