//! Paced packets that leave together.

use crate::config::Config;
use spanwire_base::{Dur, Rate};
use spanwire_pacer::QUANTUM_BYTES;

/// The quantum of a flow: what leaves at once, so that a worker that sleeps wakes up once for it.
///
/// It builds a queue of its own length where the rate is that of the bottleneck. So it is at most a
/// tenth of the least round trip, less than the delays of packets of any path differ. If the
/// bottleneck is the rate of the port itself, the packets wait here, and there is no such limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantum {
    max: Dur,
    port_rate: Option<Rate>,
    time: Dur,
    bytes: u64,
}

impl Quantum {
    pub(super) fn new(config: &Config) -> Self {
        let (max, port_rate) = (config.pacing_quantum, config.port_rate);
        Self { max, port_rate, time: Dur::ZERO, bytes: 0 }
    }

    /// Packets may leave together.
    #[inline]
    pub(super) fn is_allowed(&self) -> bool {
        self.max > Dur::ZERO
    }

    /// Its time at present.
    pub(super) fn time(&self) -> Dur {
        self.time
    }

    /// Its bytes at present. They may be in flight beside the window, which else would end it.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Applies the pacing rate and the least round trip; `Dur::MAX` before the first. True if its
    /// time has changed.
    pub(super) fn update(&mut self, rate: Option<Rate>, least_rtt: Dur) -> bool {
        let bps = rate.map_or(0, Rate::as_bps);
        let fills_port = |port: Rate| bps / 3 >= port.as_bps() / 4;
        let time = match self.port_rate.is_some_and(fills_port) {
            true => self.max,
            false if least_rtt == Dur::MAX => Dur::ZERO,
            false => self.max.min(least_rtt / PART),
        };
        let bytes = (bps / 8).saturating_mul(time.as_us()) / 1_000_000;
        self.bytes = bytes.min(u64::from(QUANTUM_BYTES));
        std::mem::replace(&mut self.time, time) != time
    }
}

/// The part of the least round trip.
const PART: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const MBPS: u64 = 1_000_000;

    fn quantum(port_mbps: Option<u64>, mbps: u64, least_rtt: Dur) -> (Dur, u64) {
        let port_rate = port_mbps.map(|mbps| Rate::from_bps(mbps * MBPS));
        let pacing_quantum = Dur::from_ms(1);
        let mut quantum = Quantum::new(&Config { pacing_quantum, port_rate, ..Config::default() });
        let changed = quantum.update(Some(Rate::from_bps(mbps * MBPS)), least_rtt);
        assert_eq!(changed, quantum.time() > Dur::ZERO);
        assert!(!quantum.update(Some(Rate::from_bps(mbps * MBPS)), least_rtt));
        (quantum.time(), quantum.bytes())
    }

    #[test]
    fn update__is_a_millisecond_or_a_tenth_of_the_round_trip() {
        let (ms, us) = (Dur::from_ms, Dur::from_us);
        assert_eq!(quantum(None, 200, ms(10)), (ms(1), 25_000));
        assert_eq!(quantum(None, 200, ms(1)), (us(100), 2_500));
        assert_eq!(quantum(None, 10_000, ms(100)), (ms(1), 65_536), "64 KiB at most");
        assert_eq!(quantum(None, 200, Dur::MAX), (Dur::ZERO, 0), "no round trip yet");
    }

    #[test]
    fn update__of_a_flow_that_fills_its_port_the_round_trip_does_not_count() {
        let (ms, us) = (Dur::from_ms, Dur::from_us);
        assert_eq!(quantum(Some(200), 200, us(10)), (ms(1), 25_000));
        assert_eq!(quantum(Some(200), 150, us(10)).0, ms(1));
        assert_eq!(quantum(Some(200), 140, us(10)).0, us(1), "another bottleneck");
    }

    #[test]
    fn update__is_nothing_without_a_rate_or_permission() {
        let mut none = Quantum::new(&Config::default());
        assert!(!none.is_allowed());
        assert!(!none.update(Some(Rate::from_bps(MBPS)), Dur::from_ms(10)));
        let allowed = Config { pacing_quantum: Dur::from_ms(1), ..Config::default() };
        let mut quantum = Quantum::new(&allowed);
        quantum.update(None, Dur::from_ms(10));
        assert_eq!(quantum.bytes(), 0);
    }
}
