//! Conversions between the integers of the interface and the floating point of the formulas.
//!
//! Inside, a window is bytes, a time nanoseconds and a rate bytes per nanosecond, all `f64`. With
//! windows of whole bytes, truncation would lose the additive increase of every algorithm here.
//! Only `+ - * /` and `sqrt` are used, which IEEE 754 defines to the bit, so that a run is
//! reproducible on any machine.

use spanwire_base::{Dur, Rate};

/// A count or a number of bytes. Exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "what flows count is far below 2^53")]
pub(crate) fn float(n: u64) -> f64 {
    n as f64
}

/// The whole part; 0 for a negative number or NaN.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates at both ends, as Rust defines it"
)]
pub(crate) fn whole(x: f64) -> u64 {
    x as u64
}

/// Nanoseconds.
pub(crate) fn ns(d: Dur) -> f64 {
    float(d.as_ps()) / 1e3
}

/// Nanoseconds as a time, to the picosecond.
pub(crate) fn dur(ns: f64) -> Dur {
    Dur::from_ps(whole(ns * 1e3 + 0.5))
}

/// Bytes per nanosecond.
pub(crate) fn bytes_per_ns(rate: Rate) -> f64 {
    float(rate.as_bps()) / 8e9
}

/// Bytes per nanosecond as a rate, at least one bit per second.
pub(crate) fn rate(bytes_per_ns: f64) -> Rate {
    Rate::from_bps(whole(bytes_per_ns * 8e9 + 0.5).max(1))
}

/// `base` to the power of `n`, by squaring: a decay over `n` periods, in at most 64 steps.
pub(crate) fn power(mut base: f64, mut n: u64) -> f64 {
    let mut product = 1.0;
    while n > 0 {
        if n & 1 == 1 {
            product *= base;
        }
        base *= base;
        n >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power__is_the_product() {
        let by_hand = (0..1000).fold(1.0, |product, _| product * 0.999);
        assert!((power(0.999, 1000) / by_hand - 1.0).abs() < 1e-12);
        assert_eq!([power(0.5, 0), power(0.5, 3), power(0.5, u64::MAX)], [1.0, 0.125, 0.0]);
    }

    #[test]
    fn whole__saturates() {
        assert_eq!((whole(-1.0), whole(f64::NAN), whole(1.9), whole(1e30)), (0, 0, 1, u64::MAX));
    }

    #[test]
    fn rate__round_trips() {
        let r = Rate::from_gbps(100);
        assert!((bytes_per_ns(r) - 12.5).abs() < 1e-12);
        assert_eq!(rate(bytes_per_ns(r)), r);
        assert_eq!(rate(0.0), Rate::from_bps(1));
    }

    #[test]
    fn dur__round_trips() {
        assert_eq!(dur(ns(Dur::from_us(14))), Dur::from_us(14));
        assert_eq!(dur(1.5), Dur::from_ps(1500));
    }
}
