//! Flows that were isolated near their destination.

use crate::network::Network;
use serde::{Deserialize, Serialize};

/// Flows that NDT has ever put into a controlled queue (Reflex, figure 8).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IsolatedReport {
    /// The sum over all switches; a flow counts once at each.
    pub isolated_flows: u64,
}

impl IsolatedReport {
    pub(super) fn of(network: &Network) -> Self {
        let all = network.switches().flat_map(|(_, switch)| switch.agents(network.world.now()));
        let of_each = all.flat_map(|agent| agent.counters);
        let isolated = of_each.filter(|(name, _)| *name == "flows_isolated");
        Self { isolated_flows: isolated.map(|(_, flows)| flows).sum() }
    }
}
