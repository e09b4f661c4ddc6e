//! PACC's control law: how many CNPs a queue causes in a period, and who gets them.

use super::config::PaccConfig;
use crate::units::Ratio;
use spanwire_base::Dur;

/// Numbers in units of 2^-16.
pub(super) const ONE: i64 = 1 << 16;

/// The control law of one queue: proportional to its length above the threshold, and to its growth
/// since the last computation.
///
/// # Source
/// PACC III-B: equations 2 and 3. The unit of the queue is open there: kilobytes of 1000
/// bytes, since with bytes each computation would allot the maximum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Law {
    /// Gains per kilobyte, and the weight of a new sample of the mean, in 2^-16.
    beta1: i64,
    beta2: i64,
    weight: i64,
    /// Thresholds in bytes.
    threshold: i64,
    burst: i64,
    /// The queue at the last computation, and its mean, in bytes.
    old: i64,
    mean: i64,
}

/// The most CNPs of a flow in a period.
pub(super) fn share_max(period: Dur, spacing: Dur) -> u32 {
    u32::try_from(period.as_ps() / spacing.as_ps().max(1)).unwrap_or(u32::MAX)
}

impl Law {
    pub(super) fn new(config: &PaccConfig) -> Self {
        Self {
            beta1: scaled(config.beta1),
            beta2: scaled(config.beta2),
            weight: scaled(config.weight),
            threshold: bytes(config.threshold_bytes),
            burst: bytes(config.burst_bytes),
            old: 0,
            mean: 0,
        }
    }

    /// Adds a sample of the queue to its mean.
    pub(super) fn on_sample(&mut self, queue_bytes: u64) {
        let sample = bytes(queue_bytes);
        self.mean += (sample - self.mean) * self.weight / ONE;
    }

    /// The CNPs of all flows until the next computation, in 2^-16; 0 or less if none are due. The
    /// queue is that of the last computation from now on.
    pub(super) fn compute(&mut self, queue_bytes: u64) -> i64 {
        let queue = bytes(queue_bytes);
        let sum = self.beta1 * (queue - self.threshold) + self.beta2 * (queue - self.old);
        self.old = queue;
        if self.mean > self.burst { sum / 1000 } else { 0 }
    }

    /// The queue was empty for a period or longer.
    pub(super) fn reset(&mut self) {
        (self.old, self.mean) = (0, 0);
    }

    /// The mean of the queue, bytes.
    pub(super) fn mean_bytes(&self) -> u64 {
        u64::try_from(self.mean).unwrap_or(0)
    }
}

/// The share of a flow with `counted` packets of `sum` in `all` CNPs (in 2^-16), plus `carried`:
/// whole CNPs, at most `most`, and the fraction for the next period. The rest above `most` is
/// forgotten.
pub(super) fn share(all: i64, counted: u32, sum: u64, carried: u16, most: u32) -> (u32, u16) {
    let product = i128::from(all) * i128::from(counted);
    let Some(own) = product.checked_div(i128::from(sum)) else { return (0, carried) };
    let own = own + i128::from(carried);
    let whole = u32::try_from(own >> 16).unwrap_or(u32::MAX);
    let fraction = u16::try_from(own & 0xffff).unwrap_or(0);
    if whole > most { (most, 0) } else { (whole, fraction) }
}

/// A factor in units of 2^-16, rounded.
fn scaled(ratio: Ratio) -> i64 {
    // The product is exact: numerators are at most 10^6.
    i64::try_from(ratio.of(1 << 17).div_ceil(2)).unwrap_or(i64::MAX)
}

/// Bytes as a signed number: queues have at most 64 GB.
fn bytes(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX >> 24)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: u32 = 20;

    fn law() -> Law {
        Law::new(&PaccConfig { threshold_bytes: 125_000, ..PaccConfig::default() })
    }

    /// The result of the law for a queue, after another, both in kilobytes.
    fn of(old: u64, queue: u64) -> f64 {
        let mut law = law();
        law.on_sample(queue * 1000);
        law.compute(old * 1000);
        law.compute(queue * 1000) as f64 / ONE as f64
    }

    #[test]
    fn compute__follows_length_and_growth() {
        let close = |got: f64, want: f64| assert!((got - want).abs() < 0.01, "{got} of {want}");
        close(of(100, 200), 13.75);
        close(of(125, 800), 101.25);
        close(of(0, 100), 8.75);
        close(of(200, 100), -11.25);
    }

    #[test]
    fn compute__a_short_burst_causes_none() {
        let mut law = law();
        assert_eq!(law.compute(200_000), 0, "its mean is 0");
        law.on_sample(200_000);
        assert!((179_000..=180_000).contains(&law.mean_bytes()), "{law:?}");
        law.reset();
        assert!(law.compute(200_000) == 0 && law.mean_bytes() == 0);
    }

    #[test]
    fn share__is_in_proportion_and_carries_the_fraction() {
        let all = ONE * 55 / 4;
        assert_eq!(share(all, 60, 100, 0, MOST), (8, 1 << 14));
        assert_eq!(share(all, 40, 100, 0, MOST), (5, 1 << 15));
        assert_eq!(share(all, 60, 100, 1 << 14, MOST), (8, 1 << 15));
        assert_eq!(share(all, 40, 100, 1 << 15, MOST), (6, 0));
        assert_eq!(share(ONE * 405 / 4, 7, 7, 0, MOST), (20, 0), "the rest is forgotten");
        assert_eq!(share(all, 0, 0, 77, MOST), (0, 77), "nothing was counted");
    }

    #[test]
    fn share_max__fills_the_period() {
        assert_eq!(share_max(Dur::from_us(80), Dur::from_us(4)), 20);
    }

    proptest! {
        #[test]
        fn compute__agrees_with_real_numbers(
            queues in prop::collection::vec(0u64..4_000_000, 1..100),
        ) {
            let mut law = law();
            let (mut old, mut mean) = (0.0, 0.0);
            for bytes in queues {
                let queue = bytes as f64 / 1000.0;
                law.on_sample(bytes);
                mean += (queue - mean) * 0.9;
                let want = 0.05 * (queue - 125.0) + 0.1 * (queue - old);
                let got = law.compute(bytes) as f64 / ONE as f64;
                old = queue;
                // Near the threshold the mean decides by rounding.
                if (mean - 4.0_f64).abs() > 0.02 {
                    let want = if mean > 4.0 { want } else { 0.0 };
                    // Gains have an error of at most 2^-17.
                    let margin = 0.03 + 2e-4 * want.abs();
                    prop_assert!((got - want).abs() < margin, "{got} of {want} at {queue}");
                }
            }
        }

        #[test]
        fn share__allots_no_more_than_there_are(
            all in 0i64..ONE * 1000,
            counted in prop::collection::vec(1u32..10_000, 1..50),
            most in 1u32..1000,
        ) {
            let sum: u64 = counted.iter().copied().map(u64::from).sum();
            let shares = counted.iter().map(|n| share(all, *n, sum, 0, most));
            let total: i64 = shares.map(|(n, part)| i64::from(n) * ONE + i64::from(part)).sum();
            prop_assert!(total <= all, "{total} of {all}");
        }
    }
}
