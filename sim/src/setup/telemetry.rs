//! Telemetry that SR queue pairs request.

use super::Setup;
use spanwire_base::u32_from;
use spanwire_cc::Algorithm;
use spanwire_transport::{Config, CongestionControl, Wire};
use spanwire_wire::{INT_HEADER_LEN, IntFormat};

/// The telemetry that SR queue pairs request if their congestion control uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Telemetry {
    /// Switches on the longest path, 1..=16. Default as in [`Config`].
    pub hops: u8,
    /// The format of records. Default as in [`Config`].
    pub format: IntFormat,
    /// Full packets have the same payload as without telemetry, and their frames are longer by its
    /// room, as in simulators that compare algorithms. Default false: frames have the same length,
    /// as on a real port.
    pub on_top: bool,
}

impl Default for Telemetry {
    fn default() -> Self {
        let Config { int_hops, int_format, .. } = Config::default();
        Self { hops: int_hops, format: int_format, on_top: false }
    }
}

impl Telemetry {
    /// The longest stack, in bytes.
    #[must_use]
    pub fn room_bytes(&self) -> u32 {
        u32_from(INT_HEADER_LEN + usize::from(self.hops) * self.format.record_len())
    }
}

impl Setup {
    /// The wire protocol of a queue pair whose full packets have the payload in `wire` also if this
    /// congestion control requests telemetry on top.
    pub(crate) fn with_telemetry(&self, mut wire: Wire, congestion: &CongestionControl) -> Wire {
        if let Some(bytes) = wire.sr_mut().and_then(|sr| sr.segment_bytes.as_mut()) {
            *bytes += self.telemetry_on_top(congestion.algorithm);
        }
        wire
    }

    /// The bytes of telemetry on top of a full packet between two hosts, at most.
    pub(super) fn telemetry_bytes(&self, hosts: [u32; 2]) -> u64 {
        match self.sr_segment(hosts) {
            Some(_) => self.telemetry_on_top(self.congestion.algorithm).into(),
            None => 0,
        }
    }

    /// The same between any two hosts.
    pub(super) fn telemetry_bytes_max(&self) -> u32 {
        let far = self.congestion.far.map(|(_, algorithm)| algorithm);
        self.telemetry_on_top(self.congestion.algorithm).max(self.telemetry_on_top(far))
    }

    fn telemetry_on_top(&self, algorithm: Option<Algorithm>) -> u32 {
        let Some(algorithm) = algorithm.filter(|own| self.int.on_top && own.wants_int()) else {
            return 0;
        };
        let credit = if algorithm.wants_credit() { CREDIT_BYTES } else { 0 };
        self.int.room_bytes() + credit
    }
}

/// Further bytes of packets that ask for credit: two words of telemetry, and the sender's QPN.
const CREDIT_BYTES: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Watch;
    use crate::scenario::Scenario;

    /// Mean payload rate in Gbit/s and mean length of the longest queue in bytes, of flows that
    /// share a link, with telemetry of this format.
    fn shared(name: &str, set: &[(&str, &str)], format: IntFormat) -> (f64, f64) {
        let scenario = Scenario::find(name).unwrap();
        let mut plan = scenario.plan(1, set.iter().copied()).unwrap();
        assert!(plan.setup.port.int, "switches write telemetry");
        plan.setup.int = Telemetry { hops: 5, format, on_top: true };
        let report = plan.run(Watch::default(), &mut ()).unwrap();
        assert!(report.checkers_ok, "{:?}", report.violations);
        let bits = f64::from(u32::try_from(report.engine["rx_payload_bytes"]).unwrap()) * 8.0;
        let queues = report.queues.iter().map(|queue| queue.mean_bytes);
        (bits / report.simulated_us / 1e3, queues.fold(0.0, f64::max))
    }

    #[test]
    fn compact_records__control_rates_and_queues_as_full_ones_do() {
        let steady = [("scheme", "hpcc"), ("time", "5ms"), ("sample", "1us")];
        let incast = |cc| [("cc", cc), ("time", "3ms"), ("senders", "8"), ("sample", "1us")];
        let [hpcc, powertcp] = ["hpcc", "powertcp"].map(incast);
        for (name, set, tolerance) in [
            ("pacc-steady", &steady[..], 0.03),
            ("cc-incast", &hpcc, 0.03),
            ("cc-incast", &powertcp, 0.1),
        ] {
            let [full, compact] =
                [IntFormat::Full, IntFormat::Compact].map(|format| shared(name, set, format));
            let text = format!("{name} {set:?}: {full:?} {compact:?}");
            assert!((compact.0 / full.0 - 1.0).abs() < 0.02, "rates of {text}");
            // Packets of the first scenario have 1178 bytes, and its queue is mostly empty.
            let most = (tolerance * full.1).max(200.0);
            assert!((compact.1 - full.1).abs() < most, "queues of {text}");
        }
    }

    #[test]
    fn room_bytes__of_five_hops_is_48_or_128() {
        let room = |format| Telemetry { hops: 5, format, on_top: false }.room_bytes();
        assert_eq!((room(IntFormat::Compact), room(IntFormat::Full)), (48, 128));
        assert_eq!(Telemetry::default().room_bytes(), 200);
    }
}
