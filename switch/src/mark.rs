//! ECN marking by the length of a real or phantom queue.

use crate::config::{EcnConfig, PhantomConfig};
use crate::units::Prob;
use spanwire_base::{Rate, Rng, Time};

/// Marking thresholds in integer form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marker {
    kmin: u64,
    kmax: u64,
    /// The probability at `kmax`, times 2^32.
    pmax: u64,
}

/// A byte counter that drains at a fraction of a rate.
///
/// It stores the time at which it is empty, as a fraction of picoseconds: a byte takes `ps_num /
/// ps_den` of them. Adding a byte is thus an addition, draining is free, and there is no rounding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phantom {
    marker: Marker,
    /// A byte drains in `ps_num / ps_den` picoseconds.
    ps_num: u128,
    ps_den: u128,
    /// The time at which it is empty, times `ps_den`.
    empty_at: u128,
    size_bytes: u64,
}

impl Marker {
    pub(crate) fn new(kmin_bytes: u64, kmax_bytes: u64, pmax: Prob) -> Self {
        let pmax = (u64::from(pmax.ppb()) << 32) / u64::from(Prob::ONE.ppb());
        Self { kmin: kmin_bytes, kmax: kmax_bytes, pmax }
    }

    pub(crate) fn of(ecn: &EcnConfig) -> Self {
        Self::new(ecn.kmin_bytes, ecn.kmax_bytes, ecn.pmax)
    }

    /// True if a frame at a queue of `bytes` is marked. Draws only between the thresholds.
    #[inline]
    pub(crate) fn marks(&self, bytes: u64, rng: &mut Rng) -> bool {
        if bytes <= self.kmin {
            return false;
        }
        if bytes > self.kmax {
            return true;
        }
        // draw / 2^32 < pmax / 2^32 * above / span, without the divisions.
        let (above, span) = (bytes - self.kmin, self.kmax - self.kmin);
        let draw = rng.next_u64() >> 32;
        u128::from(draw) * u128::from(span) < u128::from(self.pmax) * u128::from(above)
    }
}

impl Phantom {
    /// An empty phantom queue at a port of this rate.
    pub(crate) fn new(config: &PhantomConfig, rate: Rate) -> Self {
        let num = 8 * PS_PER_S * u128::from(config.drain.den());
        let den = u128::from(rate.as_bps()) * u128::from(config.drain.num());
        let common = gcd(num, den);
        Self {
            marker: Marker::new(config.kmin_bytes, config.kmax_bytes, config.pmax),
            ps_num: num / common,
            ps_den: den / common,
            empty_at: 0,
            size_bytes: config.size_bytes,
        }
    }

    /// Changes thresholds or rate and keeps its level, rounded to whole bytes.
    pub(crate) fn set(&mut self, now: Time, config: &PhantomConfig, rate: Rate) {
        let bytes = self.bytes(now);
        *self = Self::new(config, rate);
        self.fill(now, bytes.min(self.size_bytes));
    }

    /// Adds a frame and returns whether to mark it.
    #[inline]
    pub(crate) fn add(&mut self, now: Time, bytes: u64, rng: &mut Rng) -> bool {
        let level = self.fill(now, bytes);
        if level <= u128::from(self.marker.kmin) * self.ps_num {
            return false;
        }
        self.marker.marks(to_bytes(level, self.ps_num), rng)
    }

    /// Its level in bytes, rounded up.
    pub(crate) fn bytes(&self, now: Time) -> u64 {
        let level = self.empty_at.saturating_sub(u128::from(now.as_ps()) * self.ps_den);
        to_bytes(level, self.ps_num)
    }

    /// Adds bytes up to its size and returns the level, in bytes times `ps_num`.
    #[inline]
    fn fill(&mut self, now: Time, bytes: u64) -> u128 {
        let now = u128::from(now.as_ps()) * self.ps_den;
        let level = self.empty_at.saturating_sub(now) + u128::from(bytes) * self.ps_num;
        let level = level.min(u128::from(self.size_bytes) * self.ps_num);
        self.empty_at = now + level;
        level
    }
}

fn to_bytes(level: u128, ps_num: u128) -> u64 {
    u64::try_from(level.div_ceil(ps_num)).unwrap_or(u64::MAX)
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

const PS_PER_S: u128 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Ratio;
    use spanwire_base::Dur;

    #[test]
    fn marks__probability_grows_from_0_to_pmax_then_1() {
        let marker = Marker::new(100_000, 400_000, Prob::from_ppm(200_000));
        let mut rng = Rng::new(1);
        let n = 100_000;
        let mut share = |bytes| {
            let hits = (0..n).filter(|_| marker.marks(bytes, &mut rng)).count();
            f64::from(u32::try_from(hits).unwrap()) / f64::from(n)
        };
        assert!(share(0) == 0.0 && share(100_000) == 0.0);
        for bytes in [130_000_u32, 250_000, 370_000, 400_000] {
            let want = 0.2 * (f64::from(bytes) - 1.0e5) / 3.0e5;
            let got = share(u64::from(bytes));
            let sigma = (want * (1.0 - want) / f64::from(n)).sqrt();
            assert!((got - want).abs() < 4.0 * sigma, "{bytes}: {got}, not {want}");
        }
        assert!(share(400_001) == 1.0);
    }

    #[test]
    fn marks__a_step_draws_nothing() {
        let marker = Marker::of(&EcnConfig::step(1_000));
        let mut rng = Rng::new(1);
        assert!(!marker.marks(1_000, &mut rng));
        assert!(marker.marks(1_001, &mut rng));
        assert_eq!(rng.next_u64(), Rng::new(1).next_u64());
    }

    fn config(drain: Ratio) -> PhantomConfig {
        PhantomConfig {
            drain,
            size_bytes: 1_000_000,
            kmin_bytes: 20_000,
            kmax_bytes: 600_000,
            pmax: Prob::ONE,
            with_physical: false,
        }
    }

    #[test]
    fn add__drains_exactly_at_its_fraction() {
        // 10/11 of 100 Gbit/s: a byte in 88 ps; 20/21 of 3 bit/s does not divide evenly.
        let cases = [(10, 11, 100_000_000_000, 88.0), (20, 21, 3, 8.0e12 * 21.0 / 60.0)];
        for (num, den, bps, ps_per_byte) in cases {
            let mut phantom =
                Phantom::new(&config(Ratio::new(num, den).unwrap()), Rate::from_bps(bps));
            let mut rng = Rng::new(6);
            let mut now = Time::ZERO;
            let mut model = 0.0f64;
            for step in 0..20_000 {
                let gap = Dur::from_ps(rng.below(if bps == 3 { 1 << 48 } else { 300_000 }));
                now += gap;
                model = (model - gap.as_ps() as f64 / ps_per_byte).max(0.0);
                let bytes = if bps == 3 { 1 + rng.below(100) } else { 64 + rng.below(4_096) };
                phantom.add(now, bytes, &mut rng);
                model = (model + bytes as f64).min(1.0e6);
                let got = phantom.bytes(now) as f64;
                assert!((got - model).abs() < 1.5, "step {step}: {got}, not {model}");
            }
        }
    }

    #[test]
    fn add__marks_by_its_own_length_and_stops_at_its_size() {
        let mut phantom = Phantom::new(&config(Ratio::new(9, 10).unwrap()), Rate::from_gbps(100));
        let mut rng = Rng::new(6);
        let marks: Vec<bool> = (0..300).map(|_| phantom.add(Time::ZERO, 4_160, &mut rng)).collect();
        assert!(marks[..4].iter().all(|m| !m), "up to 20 kB");
        let between = marks[5..144].iter().filter(|m| **m).count();
        assert!((40..100).contains(&between), "{between}");
        assert!(marks[144..].iter().all(|m| *m), "above 600 kB");
        assert_eq!(phantom.bytes(Time::ZERO), 1_000_000);
        // 90 Gbit/s drain a million bytes in 88.9 us.
        assert!(phantom.bytes(Time::from_ns(88_888)) > 0);
        assert_eq!(phantom.bytes(Time::from_ns(88_889)), 0);
    }

    #[test]
    fn set__keeps_the_level() {
        let mut phantom = Phantom::new(&config(Ratio::new(9, 10).unwrap()), Rate::from_gbps(100));
        phantom.add(Time::ZERO, 500_000, &mut Rng::new(1));
        let now = Time::from_ns(10_000);
        let before = phantom.bytes(now);
        phantom.set(now, &config(Ratio::new(1, 2).unwrap()), Rate::from_gbps(10));
        assert_eq!(phantom.bytes(now), before);
        assert_eq!(phantom.bytes(now + Dur::from_us(8)), before - 5_000);
        let small = PhantomConfig { size_bytes: 1_000, ..config(Ratio::new(1, 2).unwrap()) };
        phantom.set(now, &small, Rate::from_gbps(10));
        assert_eq!(phantom.bytes(now), 1_000);
    }
}
