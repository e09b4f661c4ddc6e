//! Draws of faults.

use super::draw::Draw;
use spanwire_base::Dur;

use spanwire_switch::{BlockLoss, BurstLoss, Flap, Impairments, Interval, Prob, Reorder};

/// The kinds of faults of a seed, each enabled or disabled.
pub(super) type Kinds = [bool; 9];

impl Draw {
    pub(super) fn kinds(&mut self) -> Kinds {
        [(); 9].map(|()| self.one_in(2))
    }

    pub(super) fn impairments(&mut self, kinds: Kinds, faults_end: Dur) -> Impairments {
        let [loss, burst, block, reorder, duplicate, corrupt, jitter, blackhole, flap] = kinds;
        let per_cent = |n: u32| Prob::from_ppm(n * 10_000);
        let mut i = Impairments::default();
        if loss {
            i.loss = per_cent(self.count(&[1, 5, 20, 60]));
        }
        if burst {
            let (enter, leave) = (per_cent(1), per_cent(self.count(&[5, 30])));
            let (loss_good, loss_bad) = (Prob::ZERO, per_cent(self.count(&[50, 100])));
            i.burst_loss = Some(BurstLoss { enter, leave, loss_good, loss_bad });
        }
        if block {
            let losses = vec![per_cent(5), per_cent(2), per_cent(1)];
            i.block_loss = Some(BlockLoss { block_pkts: 10, losses });
        }
        if reorder {
            let extra_delay = Dur::from_us(self.pick(&[1, 10, 200]));
            let probability = per_cent(self.count(&[1, 10, 40]));
            i.reorder = Some(Reorder { probability, extra_delay });
        }
        if duplicate {
            i.duplicate = per_cent(self.count(&[1, 20]));
        }
        if corrupt {
            i.corrupt = per_cent(self.count(&[1, 10]));
        }
        if jitter {
            i.jitter = Dur::from_us(self.pick(&[1, 30]));
        }
        if blackhole {
            let from = Dur::from_ps(self.below(faults_end.as_ps()));
            let to = from + Dur::from_us(self.pick(&[10, 100, 1_000]));
            i.blackhole = vec![Interval { from, to }];
        }
        if flap {
            let (period, down) = (Dur::from_us(300), Dur::from_us(self.pick(&[5, 100])));
            i.flap = Some(Flap { period, down, from: Dur::ZERO });
        }
        i
    }
}
