//! Time series of agents of switches.

use crate::network::Network;
use serde::Serialize;
use spanwire_base::{Time, u32_from};
use spanwire_switch::AgentCounters;
use std::collections::BTreeMap;

/// Time series of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct AgentSeries {
    /// Its switch.
    pub switch: String,
    /// Its kind, as in the configuration of a switch.
    pub kind: &'static str,
    /// Its port, the first of several.
    pub port: u8,
    /// Totals by name.
    pub counters: BTreeMap<&'static str, Vec<u64>>,
    /// Values at each sample, by name.
    pub gauges: BTreeMap<&'static str, Vec<u64>>,
}

impl AgentSeries {
    /// One for each agent of a network, without samples.
    pub(super) fn all(network: &Network) -> Vec<Self> {
        let of_switch = network.switches().flat_map(|(node, switch)| {
            let name = network.topology().name(u32_from(node.index())).to_owned();
            switch.agents(Time::ZERO).into_iter().map(
                move |AgentCounters { kind, port, .. }| Self {
                    switch: name.clone(),
                    kind,
                    port,
                    ..Self::default()
                },
            )
        });
        of_switch.collect()
    }

    pub(super) fn push(&mut self, now: &AgentCounters) {
        for (name, value) in &now.counters {
            self.counters.entry(name).or_default().push(*value);
        }
        for (name, value) in &now.gauges {
            self.gauges.entry(name).or_default().push(*value);
        }
    }

    /// Drops the series that are always zero; false if there is none left.
    pub(super) fn retain_used(&mut self) -> bool {
        for of in [&mut self.counters, &mut self.gauges] {
            of.retain(|_, values| values.iter().any(|value| *value > 0));
        }
        !self.counters.is_empty() || !self.gauges.is_empty()
    }
}
