//! Agents of switches, by role, and scaled by the rate of each port.

use super::Setup;
use crate::topology::Role;
use spanwire_base::Rate;
use spanwire_switch::{AgentConfig, EcnAgentConfig, MlccConfig, NdtConfig, NsfConfig, PaccConfig};

/// An agent of switches.
#[derive(Clone, PartialEq, Debug)]
pub enum AgentSetup {
    /// PACC at every port of every switch. Its thresholds are those of a port of this rate, and in
    /// proportion to the rate of others: the reference queue is half a period of the line. Its
    /// `ports` do not count.
    Pacc(PaccConfig, Rate),
    /// NSF at the borders of datacenters, of which it has the ports to other borders `outside`. Its
    /// `outside` does not count.
    Nsf(NsfConfig),
    /// NDT at the borders of datacenters, of which it has all other ports `inside`. Its `inside`
    /// does not count.
    Ndt(NdtConfig),
    /// Thresholds by LAECN's networks at every port of every switch. Its `ports` do not count.
    Ecn(EcnAgentConfig),
    /// MLCC at the borders of datacenters, of which it has the ports to other borders `outside`.
    /// Its `outside` does not count.
    Mlcc(MlccConfig),
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
        let of = |agent: &AgentSetup| match agent {
            AgentSetup::Pacc(pacc, at) => pacc_of(pacc, *at, ports),
            AgentSetup::Nsf(nsf) => {
                let outside = numbers(ports, |port| port.peer == Role::Border);
                let has = role == Role::Border && !outside.is_empty();
                has.then(|| AgentConfig::Nsf(NsfConfig { outside, ..nsf.clone() }))
                    .into_iter()
                    .collect()
            }
            AgentSetup::Ndt(ndt) => {
                let inside = numbers(ports, |port| port.peer != Role::Border);
                let has = role == Role::Border && !inside.is_empty();
                has.then(|| AgentConfig::Ndt(NdtConfig { inside, ..ndt.clone() }))
                    .into_iter()
                    .collect()
            }
            AgentSetup::Ecn(ecn) => {
                let ports = numbers(ports, |_| true);
                vec![AgentConfig::Ecn(EcnAgentConfig { ports, ..ecn.clone() })]
            }
            AgentSetup::Mlcc(mlcc) => {
                let outside = numbers(ports, |port| port.peer == Role::Border);
                // A border between borders alone has no inside.
                let is_between = (1..ports.len()).contains(&outside.len());
                let has = role == Role::Border && is_between;
                has.then(|| AgentConfig::Mlcc(MlccConfig { outside, ..mlcc.clone() }))
                    .into_iter()
                    .collect()
            }
        };
        self.agents.iter().flat_map(of).collect()
    }
}

/// PACC at these ports: an agent for each rate.
fn pacc_of(pacc: &PaccConfig, at: Rate, ports: &[PortKind]) -> Vec<AgentConfig> {
    let mut rates: Vec<Rate> = ports.iter().map(|port| port.rate).collect();
    rates.sort_unstable_by_key(|rate| rate.as_bps());
    rates.dedup();
    let one = |rate: Rate| {
        let scaled = |bytes: u64| {
            let product = u128::from(bytes) * u128::from(rate.as_bps());
            u64::try_from(product / u128::from(at.as_bps())).unwrap_or(u64::MAX)
        };
        AgentConfig::Pacc(PaccConfig {
            ports: numbers(ports, |port| port.rate == rate),
            threshold_bytes: scaled(pacc.threshold_bytes),
            burst_bytes: scaled(pacc.burst_bytes),
            flow_bytes: scaled(pacc.flow_bytes),
            ..pacc.clone()
        })
    };
    rates.into_iter().map(one).collect()
}

/// The numbers of the ports that are chosen.
fn numbers(ports: &[PortKind], is_chosen: impl Fn(&PortKind) -> bool) -> Vec<u8> {
    (0..).zip(ports).filter(|(_, port)| is_chosen(port)).map(|(n, _)| n).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(gbps: u64, peer: Role) -> PortKind {
        PortKind { rate: Rate::from_gbps(gbps), peer }
    }

    #[test]
    fn agents_of__one_for_each_rate_with_its_thresholds() {
        let slow = Rate::from_gbps(25);
        let pacc = AgentSetup::Pacc(PaccConfig::default(), slow);
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
        let agents =
            vec![AgentSetup::Nsf(NsfConfig::default()), AgentSetup::Ndt(NdtConfig::default())];
        let setup = Setup { agents, ..Setup::default() };
        let ports = [Role::Spine, Role::Border, Role::Spine].map(|peer| port(100, peer));
        let all = setup.agents_of(Role::Border, &ports);
        assert_eq!(all.iter().map(AgentConfig::ports).collect::<Vec<_>>(), [vec![1], vec![0, 2]]);
        assert!(setup.agents_of(Role::Spine, &ports).is_empty());
        assert_eq!(setup.agents_of(Role::Border, &ports[..1]).len(), 1, "it borders on nothing");
    }
}
