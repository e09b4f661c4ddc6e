//! ECMP: one path, drawn once for the whole flow.
//!
//! The baseline: two flows on one link stay there, and a flow never leaves a dead link.

use crate::params::params;
use crate::{Entropy, Flow, LoadBalancer, Outgoing, PathState, Pick};
use spanwire_base::{Rng, Time};

params! {
    /// No parameters.
    struct Params of u64;
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Ecmp {
    path: Entropy,
}

impl Ecmp {
    /// The policy of one flow.
    #[must_use]
    pub fn new(_params: &Params, flow: &Flow) -> Self {
        Self { path: Entropy::new(crate::pool::below(&mut Rng::new(flow.seed), Entropy::COUNT)) }
    }
}

impl LoadBalancer for Ecmp {
    fn pick(&mut self, _out: &Outgoing) -> Pick {
        self.path.into()
    }

    fn is_single_path(&self) -> bool {
        true
    }

    fn state(&self, _now: Time, path: Entropy) -> Option<PathState> {
        (path != self.path).then_some(PathState::Retired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, data, flow, lost, retransmission};

    #[test]
    fn pick__never_changes() {
        let mut ecmp = Ecmp::new(&Params::default(), &flow(1));
        let path = ecmp.pick(&data(at(0), 0)).entropy;
        ecmp.on_loss(at(200), &lost(path, 50, at(10)));
        ecmp.on_timeout(at(300));
        assert_eq!(ecmp.pick(&retransmission(at(300), 0, path)), Pick::from(path));
    }

    #[test]
    fn new__another_seed_is_another_path() {
        let of = |seed| Ecmp::new(&Params::default(), &flow(seed)).path;
        let mut paths: Vec<Entropy> = (0..100).map(of).collect();
        paths.sort_unstable();
        paths.dedup();
        assert!(paths.len() > 95, "{} of 100 differ", paths.len());
    }
}
