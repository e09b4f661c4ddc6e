//! What a seed draws of congestion control.

use super::Draw;
use crate::setup::Setup;
use spanwire_base::Dur;
use spanwire_cc::Algorithm;
use spanwire_switch::{PhantomConfig, Prob, Ratio};

impl Draw {
    /// Congestion control in half of the seeds, told by switches of what it listens to, or not.
    pub(super) fn congestion(&mut self, setup: &mut Setup) {
        if self.one_in(2) {
            return;
        }
        let mut any = || {
            let names = Algorithm::known();
            Algorithm::named(self.pick(&names)).expect("they are all known")
        };
        let (near, far) = (any(), any());
        setup.congestion.algorithm = Some(near);
        setup.congestion.far = self.one_in(3).then_some((Dur::from_us(30), far));
        setup.congestion.measures_rtt = self.one_in(3);
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
}
