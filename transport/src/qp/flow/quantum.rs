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

    /// Applies the pacing rate and the least round trip; `Dur::MAX` before the first.
    pub(super) fn update(&mut self, rate: Option<Rate>, least_rtt: Dur) {
        let bps = rate.map_or(0, Rate::as_bps);
        let fills_port = |port: Rate| bps / 3 >= port.as_bps() / 4;
        self.time = match self.port_rate.is_some_and(fills_port) {
            true => self.max,
            false if least_rtt == Dur::MAX => Dur::ZERO,
            false => self.max.min(least_rtt / PART),
        };
        let bytes = (bps / 8).saturating_mul(self.time.as_us()) / 1_000_000;
        self.bytes = bytes.min(u64::from(QUANTUM_BYTES));
    }
}

/// The part of the least round trip.
const PART: u64 = 10;
