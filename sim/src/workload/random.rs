//! Random times without floating point, because `ln` differs between machines and integer
//! multiplication does not.

use spanwire_base::{Dur, Rng};

/// A time from the exponential distribution of this mean, at least 1 ps.
///
/// Inversion: `-ln(u)` times the mean. Its resolution is 2^-32 of the mean.
pub fn exponential(mean: Dur, rng: &mut Rng) -> Dur {
    let u = rng.next_u64().max(1);
    let wide = u128::from(mean.as_ps()) * u128::from(minus_log2(u)) * LN_2;
    let ps = wide >> (FRACTION_BITS + 32);
    Dur::from_ps(u64::try_from(ps).unwrap_or(u64::MAX).max(1))
}

/// `-log2(u / 2^64)` with [`FRACTION_BITS`] bits behind the point, for u above 0.
///
/// The bits of the logarithm are computed one by one: squaring a number doubles its logarithm. If
/// the square of a number in [1, 2) is 2 or more, the next bit is one.
/// square of a number in [1, 2) is 2 or more, the next bit is one.
fn minus_log2(u: u64) -> u64 {
    let zeros = u.leading_zeros();
    // A number in [1, 2), as 2^63 times itself.
    let mut x = u << zeros;
    let mut log = 0u64;
    for _ in 0..FRACTION_BITS {
        let square = u128::from(x) * u128::from(x);
        let carry = square >> 127 != 0;
        let top = square >> if carry { 64 } else { 63 };
        x = u64::try_from(top).expect("a number below 2, times 2^63");
        log = (log << 1) | u64::from(carry);
    }
    ((u64::from(zeros) + 1) << FRACTION_BITS) - log
}

const FRACTION_BITS: u32 = 32;
/// ln 2 times 2^32.
const LN_2: u128 = 2_977_044_472;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minus_log2__agrees_with_floating_point() {
        let mut rng = Rng::new(1);
        for shift in 0..64 {
            let u = (rng.next_u64() >> shift).max(1);
            #[expect(clippy::cast_precision_loss, reason = "an oracle of 53 bits is enough")]
            let want = 64.0 - (u as f64).log2();
            #[expect(clippy::cast_precision_loss, reason = "as above")]
            let got = minus_log2(u) as f64 / 2f64.powi(32);
            assert!((want - got).abs() < 1e-8, "{u}: {want} {got}");
        }
        assert_eq!(minus_log2(1), 64 << 32);
        assert_eq!(minus_log2(1 << 63), 1 << 32);
    }

    #[test]
    fn exponential__has_its_mean_and_its_tail() {
        let (mean, mut rng) = (Dur::from_us(1), Rng::new(5));
        let draws: Vec<u64> = (0..100_000).map(|_| exponential(mean, &mut rng).as_ps()).collect();
        let sum: u64 = draws.iter().sum();
        assert!((990_000..1_010_000).contains(&(sum / 100_000)), "{}", sum / 100_000);
        let beyond = draws.iter().filter(|ps| **ps > 3_000_000).count();
        // e^-3 of all.
        assert!((4_779..5_179).contains(&beyond), "{beyond}");
    }
}
