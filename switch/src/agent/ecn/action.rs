//! The thresholds among which networks choose.

use crate::config::{EcnConfig, MarkAt};
use crate::units::Prob;
use spanwire_base::{Dur, Rate};

/// One of the 45 settings of thresholds, by its place in the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Action(u8);

impl Action {
    /// The number of actions.
    pub(crate) const COUNT: usize = KMINS * KMAX_FACTORS.len() * PMAX_PPM.len();
    /// The one at first: 80 KB, 320 KB and 0.2 at 25 Gbit/s.
    pub(crate) const INITIAL: Self = Self(22);

    /// The action of a place; `None` beyond the list.
    pub(crate) fn new(place: usize) -> Option<Self> {
        u8::try_from(place).ok().filter(|_| place < Self::COUNT).map(Self)
    }

    /// Its place.
    pub(crate) fn place(self) -> u8 {
        self.0
    }

    /// The places of `Kmin`, `Kmax` and `Pmax` in their lists.
    pub(crate) fn parts(self) -> [u8; 3] {
        [self.0 / 9, self.0 / 3 % 3, self.0 % 3]
    }

    /// The thresholds at a port with these [`unit_bytes`].
    pub(crate) fn thresholds(self, unit_bytes: u64) -> EcnConfig {
        let [kmin, factor, pmax] = self.parts();
        let kmin_bytes = unit_bytes << kmin;
        EcnConfig {
            kmin_bytes,
            kmax_bytes: kmin_bytes * KMAX_FACTORS[usize::from(factor)],
            pmax: Prob::from_ppm(PMAX_PPM[usize::from(pmax)]),
            at: MarkAt::default(),
        }
    }

    /// Its description, at 25 Gbit/s.
    pub(crate) fn text(self) -> String {
        let EcnConfig { kmin_bytes, kmax_bytes, pmax, .. } = self.thresholds(UNIT_BYTES);
        format!("{} {} {}", kmin_bytes / 1000, kmax_bytes / 1000, pmax.ppb() / 1000)
    }

    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).filter_map(Self::new)
    }
}

/// The least of all thresholds at a port: 20 KB at 25 Gbit/s and a round trip of 8 us, and in
/// proportion to the product of both. Others are multiples of it.
pub(crate) fn unit_bytes(rate: Rate, rtt: Dur) -> u64 {
    let product = u128::from(rate.as_bps()) * u128::from(rtt.as_ps());
    let unit = u128::from(UNIT_BYTES) * product / (UNIT_BPS * UNIT_PS);
    u64::try_from(unit.clamp(1, u128::from(UNIT_MAX))).unwrap_or(UNIT_MAX)
}

const UNIT_BYTES: u64 = 20_000;
const UNIT_BPS: u128 = 25_000_000_000;
const UNIT_PS: u128 = 8_000_000;
/// Of which all multiples are valid thresholds.
const UNIT_MAX: u64 = 500_000_000;
/// `Kmin`: the unit and its doubles.
const KMINS: usize = 5;
/// `Kmax` over `Kmin`.
const KMAX_FACTORS: [u64; 3] = [2, 4, 8];
/// `Pmax`.
const PMAX_PPM: [u32; 3] = [50_000, 200_000, 1_000_000];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds__in_the_order_of_the_list_and_scaled() {
        assert_eq!((Action::COUNT, Action::all().count()), (45, 45));
        assert_eq!(Action::new(45), None);
        let of = |place, gbps, us| {
            let unit = unit_bytes(Rate::from_gbps(gbps), Dur::from_us(us));
            let ecn = Action::new(place).unwrap().thresholds(unit);
            ecn.validate().unwrap();
            (ecn.kmin_bytes, ecn.kmax_bytes, ecn.pmax.ppb() / 1000)
        };
        assert_eq!(of(0, 25, 8), (20_000, 40_000, 50_000));
        assert_eq!(of(1, 25, 8), (20_000, 40_000, 200_000));
        assert_eq!(of(3, 25, 8), (20_000, 80_000, 50_000));
        assert_eq!(of(9, 25, 8), (40_000, 80_000, 50_000));
        assert_eq!(of(22, 25, 8), (80_000, 320_000, 200_000));
        assert_eq!(of(44, 100, 8), (1_280_000, 10_240_000, 1_000_000));
        assert_eq!(of(22, 25, 800), (8_000_000, 32_000_000, 200_000));
        assert_eq!(unit_bytes(Rate::from_bps(1), Dur::from_us(1)), 1);
        let longest = Action::new(44).unwrap().thresholds(UNIT_MAX);
        assert!(longest.validate().is_ok(), "{longest:?}");
        assert_eq!(Action::INITIAL.text(), "80 320 200000");
    }
}
