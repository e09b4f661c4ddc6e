//! Draws of congestion control.

use super::draw::Draw;
use crate::setup::Setup;
use crate::topology::{Cable, Topology};
use spanwire_base::Dur;
use spanwire_cc::Algorithm;
use spanwire_switch::{PhantomConfig, Prob, Ratio};
use spanwire_transport::Preset;
use spanwire_wire::IntFormat;

impl Draw {
    /// Congestion control in half of the seeds, with or without its congestion signal from
    /// switches.
    pub(super) fn congestion(&mut self, setup: &mut Setup, topology: &Topology) {
        if self.one_in(2) {
            return;
        }
        let mut any = || {
            // MLCC has a draw of its own, so that seeds keep their algorithms.
            let mut names = Algorithm::known();
            names.retain(|name| *name != "mlcc");
            Algorithm::named(self.pick(&names)).expect("the names come from the list of algorithms")
        };
        let (near, far) = (any(), any());
        setup.congestion.algorithm = Some(near);
        setup.congestion.far = self.one_in(3).then_some((Dur::from_us(30), far));
        // If paths differ, the path that ECMP selects is unknown. Swift configured with a shorter
        // base RTT would measure permanent queueing and nearly stop.
        let is_like = |a: &Cable, b: &Cable| (a.rate_bps, a.delay_ps) == (b.rate_bps, b.delay_ps);
        let ways_differ = topology.links.windows(2).any(|pair| !is_like(&pair[0], &pair[1]));
        let preset = if self.one_in(2) { Preset::Paper } else { Preset::Calibrated };
        setup.congestion.preset = preset;
        setup.congestion.measures_rtt = self.one_in(3) || ways_differ;
        setup.port.int = self.one_in(2);
        if self.one_in(3) {
            let [first, ..] = &mut setup.port.queues[..] else { return };
            first.phantom = Some(PhantomConfig {
                drain: Ratio::new(9, 10).expect("a ratio"),
                size_bytes: 100_000,
                kmin_bytes: 2_000,
                kmax_bytes: 60_000,
                pmax: Prob::ONE,
                with_physical: self.one_in(2),
            });
        }
    }

    /// Format and number of the telemetry records that packets request, and whether they come on
    /// top of full packets: in half of the seeds compact and any number.
    pub(super) fn telemetry(&mut self, setup: &mut Setup) {
        if self.one_in(2) {
            setup.int.format = IntFormat::Compact;
            setup.int.hops = self.pick(&[1, 2, 5, 16]);
        }
        setup.int.on_top = self.one_in(3);
    }
}
