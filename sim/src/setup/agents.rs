//! Agents of switches, by role, and scaled by the rate of each port.

use super::Setup;
use crate::topology::Role;
use spanwire_base::Rate;
use spanwire_switch::{AgentConfig, AgentPorts};

/// An agent of switches: at the ports that its configuration is about, at every port of every
/// switch, or at the borders of datacenters, whose ports to other borders lead outside.
#[derive(Clone, PartialEq, Debug)]
pub struct AgentSetup {
    /// Its parameters. Its ports do not count.
    pub config: AgentConfig,
    /// Its thresholds are those of a port of this rate, and scaled to the rate of others; none:
    /// they are the same at all.
    pub at: Option<Rate>,
}

impl<T: Into<AgentConfig>> From<T> for AgentSetup {
    fn from(config: T) -> Self {
        Self { config: config.into(), at: None }
    }
}

/// A port of a switch, as far as agents differ by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortKind {
    /// The rate of its link.
    pub rate: Rate,
    /// The role of the switch at the other end.
    pub peer: Role,
}

impl Setup {
    /// The agents of a switch of this role with these ports.
    #[must_use]
    pub fn agents_of(&self, role: Role, ports: &[PortKind]) -> Vec<AgentConfig> {
        self.agents.iter().flat_map(|agent| agent.of(role, ports)).collect()
    }
}

impl AgentSetup {
    /// Those of a switch: one for each rate if its thresholds depend on it.
    fn of(&self, role: Role, ports: &[PortKind]) -> Vec<AgentConfig> {
        let side = self.config.side();
        let is_outside = |port: &PortKind| port.peer == Role::Border;
        let outside = ports.iter().filter(|port| is_outside(port)).count();
        let is_here = match side {
            AgentPorts::Any => true,
            AgentPorts::Outside | AgentPorts::Inside => role == Role::Border,
            // A border between borders alone has no inside.
            AgentPorts::OutsideOfSome => role == Role::Border && outside < ports.len(),
        };
        let is_chosen = |port: &PortKind| match side {
            AgentPorts::Any => true,
            AgentPorts::Outside | AgentPorts::OutsideOfSome => is_outside(port),
            AgentPorts::Inside => !is_outside(port),
        };
        let mut rates: Vec<Rate> = ports.iter().map(|port| port.rate).collect();
        rates.sort_unstable_by_key(|rate| rate.as_bps());
        rates.dedup();
        let all = match self.at {
            None => vec![(self.config.clone(), numbers(ports, is_chosen))],
            Some(at) => rates
                .into_iter()
                .map(|rate| {
                    let is_it = |port: &PortKind| is_chosen(port) && port.rate == rate;
                    (self.config.clone().scaled(at, rate), numbers(ports, is_it))
                })
                .collect(),
        };
        let chosen = all.into_iter().filter(|(_, numbers)| is_here && !numbers.is_empty());
        chosen.map(|(config, numbers)| config.with_ports(numbers)).collect()
    }
}

/// The numbers of the ports that are chosen.
fn numbers(ports: &[PortKind], is_chosen: impl Fn(&PortKind) -> bool) -> Vec<u8> {
    (0..).zip(ports).filter(|(_, port)| is_chosen(port)).map(|(n, _)| n).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_switch::{NdtConfig, NsfConfig, PaccConfig};

    fn port(gbps: u64, peer: Role) -> PortKind {
        PortKind { rate: Rate::from_gbps(gbps), peer }
    }

    #[test]
    fn agents_of__one_for_each_rate_with_its_thresholds() {
        let slow = Rate::from_gbps(25);
        let pacc = AgentSetup { config: PaccConfig::default().into(), at: Some(slow) };
        let setup = Setup { agents: vec![pacc], ..Setup::default() };
        let ports = [25, 100, 25].map(|gbps| port(gbps, Role::Other));
        let of = |agent: &AgentConfig| match agent {
            AgentConfig::Pacc(pacc) => (pacc.ports.clone(), pacc.threshold_bytes),
            other => panic!("{other:?}"),
        };
        let all: Vec<_> = setup.agents_of(Role::Edge, &ports).iter().map(of).collect();
        assert_eq!(all, [(vec![0, 2], 125_000), (vec![1], 500_000)]);
        assert!(Setup::default().agents_of(Role::Edge, &ports).is_empty());
    }

    #[test]
    fn agents_of__those_of_reflex_are_at_the_borders() {
        let agents = vec![AgentSetup::from(NsfConfig::default()), NdtConfig::default().into()];
        let setup = Setup { agents, ..Setup::default() };
        let ports = [Role::Spine, Role::Border, Role::Spine].map(|peer| port(100, peer));
        let all = setup.agents_of(Role::Border, &ports);
        assert_eq!(all.iter().map(AgentConfig::ports).collect::<Vec<_>>(), [vec![1], vec![0, 2]]);
        assert!(setup.agents_of(Role::Spine, &ports).is_empty());
        assert_eq!(setup.agents_of(Role::Border, &ports[..1]).len(), 1, "it borders on nothing");
    }
}
