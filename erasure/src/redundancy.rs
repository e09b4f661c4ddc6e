//! The redundancy of a code for a loss rate.

/// The fewest parity packets, `least..=most`, with which at most one in 10,000 blocks of `x` data
/// packets cannot be recovered if `loss_ppm` of the packets are lost independently. Returns `most`
/// if none suffices.
///
/// Losses come in bursts, which arrive before this can adapt: `least` protects a clean path. The
/// result is the same on every machine: integers only.
#[must_use]
pub fn parity_for(x: usize, loss_ppm: u32, least: u8, most: u8) -> u8 {
    let enough = |y: &u8| broken_ppm(x, usize::from(*y), loss_ppm) <= BROKEN_PPM;
    (least..=most).find(enough).unwrap_or(most)
}

/// The number of blocks in a million, of `x` data and `y` parity packets, that lose more than `y`
/// packets: the tail of a binomial distribution, rounded down.
fn broken_ppm(x: usize, y: usize, loss_ppm: u32) -> u64 {
    let parts = u128::from(loss_ppm.min(MILLION)) * u128::from(ONE) / u128::from(MILLION);
    let loss = u64::try_from(parts).expect("a chance is at most one, which is 2^60");
    let kept = ONE - loss;
    let n = x + y;
    // chance[k]: exactly k of the packets so far are lost; more than y + 1 count as y + 1.
    let mut chance = vec![0; y + 2];
    chance[0] = ONE;
    for _ in 0..n {
        for k in (0..chance.len()).rev() {
            let came = if k > y { chance[k] } else { times(chance[k], kept) };
            let lost = if k > 0 { times(chance[k - 1], loss) } else { 0 };
            chance[k] = came + lost;
        }
    }
    times(chance[y + 1], u64::from(MILLION))
}

/// `a * b / 2^60`.
fn times(a: u64, b: u64) -> u64 {
    let product = (u128::from(a) * u128::from(b)) >> 60;
    u64::try_from(product).expect("a chance is at most one, which is 2^60")
}

/// 1 in units of 2^-60.
const ONE: u64 = 1 << 60;
const MILLION: u32 = 1_000_000;
/// One block in ten thousand: below the rate of damaged blocks that Uno's (8,2) leaves (Table 1).
const BROKEN_PPM: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_ppm__is_the_tail_of_the_binomial() {
        // 1 - 0.99^10 - 10 * 0.01 * 0.99^9 - 45 * 0.01^2 * 0.99^8, by hand.
        assert_eq!(broken_ppm(8, 2, 10_000), 113);
        assert_eq!(broken_ppm(1, 1, 500_000), 250_000);
        assert_eq!(broken_ppm(8, 2, 0), 0);
        assert_eq!(broken_ppm(8, 2, MILLION), 1_000_000);
        assert_eq!(broken_ppm(8, 2, u32::MAX), 1_000_000);
    }

    #[test]
    fn parity_for__grows_with_loss_within_its_bounds() {
        let at = |loss_ppm| parity_for(8, loss_ppm, 1, 8);
        assert_eq!([0, 1_000, 10_000, 50_000, 100_000].map(at), [1, 1, 3, 5, 7]);
        assert_eq!(at(MILLION), 8);
        assert_eq!(parity_for(8, 0, 2, 8), 2);
        let all: Vec<u8> = (0..1000).map(|i| parity_for(8, i * 500, 1, 16)).collect();
        assert!(all.is_sorted(), "more loss is never less parity");
    }
}
