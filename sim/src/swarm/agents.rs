//! Draws of agents of switches.

use super::bounds::longest_rtt;
use super::draw::Draw;
use crate::setup::{AgentSetup, Setup};
use crate::topology::{Role, Topology};
use spanwire_base::{Dur, Rate};
use spanwire_cc::Algorithm;
use spanwire_switch::{
    EcnAgentConfig, EcnCpu, NdtConfig, NsfClock, NsfConfig, PaccConfig, PauseRound, PauseScope,
    Ratio,
};

/// Separates the draws of agents from all others, so that a seed keeps its network.
pub(super) const SEED: u64 = 0x6167_656e_7473_5f6f;
/// Likewise, of the agent that chooses thresholds.
pub(super) const ECN_SEED: u64 = 0x6563_6e5f_6167_656e;

impl Draw {
    /// Agents in a third of the seeds: PACC at every port, or NSF, NDT or both at switches that are
    /// drawn as borders.
    pub(super) fn agents(&mut self, setup: &mut Setup, topology: &mut Topology) {
        if topology.switches.is_empty() || !self.one_in(3) {
            return;
        }
        let before = longest_rtt(topology, setup);
        setup.qpns_known = self.one_in(2);
        let flows = self.count(&[1, 8, 64, 4096]);
        if self.one_in(2) {
            setup.agents = vec![self.pacc(setup, topology, flows)];
            // All CNPs count for an algorithm that limits its own reactions.
            if let Some(Algorithm::DcqcnRnic(_)) = setup.congestion.algorithm {
                setup.congestion.cnp_spacing = Some(Dur::from_us(3));
            }
        } else {
            let role = |draw: &mut Self| if draw.one_in(2) { Role::Border } else { Role::Other };
            topology.roles = topology.switches.iter().map(|_| role(self)).collect();
            let (has_nsf, has_ndt) = (!self.one_in(3), !self.one_in(3));
            if has_nsf {
                setup.agents.push(self.nsf(flows));
                self.follow_pseudo_acks(setup);
            }
            let is_alone = |priority: u8| {
                setup.port.queues.iter().filter(|queue| queue.priority == priority).count() == 1
            };
            let [first, ..] = &setup.port.queues[..] else { return };
            if has_ndt && first.flows.is_none() && is_alone(first.priority) {
                setup.agents.push(self.ndt(before, flows));
            }
        }
        // A flow may wait for the others, and for pauses.
        setup.timeout = setup.timeout + (longest_rtt(topology, setup) - before);
    }

    fn pacc(&mut self, setup: &Setup, topology: &Topology, flows: u32) -> AgentSetup {
        let fastest = topology.links.iter().map(|link| link.rate_bps).max().unwrap_or(1);
        let limit = setup.port.queues.first().map_or(0, |queue| queue.limit_bytes);
        let config = PaccConfig {
            period: Dur::from_us(self.pick(&[4, 80, 500])),
            spacing: Dur::from_us(self.pick(&[1, 4])),
            threshold_bytes: limit / self.pick(&[2, 10, 100]),
            burst_bytes: self.pick(&[0, 4_000]),
            flow_bytes: self.pick(&[0, 4_000, 100_000]),
            edge: self.one_in(2),
            every: self.one_in(3),
            carry: self.one_in(2),
            flows,
            ..PaccConfig::default()
        };
        AgentSetup { config: config.into(), at: Some(Rate::from_bps(fastest)) }
    }

    fn nsf(&mut self, flows: u32) -> AgentSetup {
        let us = |draw: &mut Self, of: &[u64]| Dur::from_us(draw.pick(of));
        AgentSetup::from(NsfConfig {
            threshold: us(self, &[1, 5, 100]),
            interval: us(self, &[1, 5, 50]),
            cool: self.count(&[0, 1, 5]),
            clock: if self.one_in(2) { NsfClock::Relative } else { NsfClock::Synced },
            flows,
            ..NsfConfig::default()
        })
    }

    /// Thresholds by LAECN's networks, in a third of the seeds that mark and have no other agent.
    pub(super) fn ecn(&mut self, setup: &mut Setup, topology: &Topology) {
        let marks = setup.port.queues.first().is_some_and(|queue| queue.ecn.is_some());
        if !marks || !setup.agents.is_empty() || topology.switches.is_empty() || !self.one_in(3) {
            return;
        }
        let interval = self.pick(&[0, 1, 7, 50]);
        setup.agents.push(AgentSetup::from(EcnAgentConfig {
            rtt: Dur::from_us(self.pick(&[1, 8, 100])),
            interval: Some(Dur::from_us(interval)).filter(|_| interval > 0),
            cpu: if self.one_in(2) { EcnCpu::Delay } else { EcnCpu::Zero },
            flows: self.count(&[1, 8, 256]),
            hold: self.one_in(8),
            ..EcnAgentConfig::default()
        }));
    }

    /// `longest` is the longest round trip of the network.
    fn ndt(&mut self, longest: Dur, flows: u32) -> AgentSetup {
        AgentSetup::from(NdtConfig {
            threshold: longest / self.pick(&[4, 100]),
            weight: self.count(&[1, 8]),
            ratio: Ratio::new(self.count(&[1, 5, 10]), 10).expect("a ratio"),
            active: Dur::from_us(self.pick(&[10, 100, 10_000])),
            max_pause: Dur::from_us(self.pick(&[1, 10, 50])),
            flows,
            pause_scope: if self.one_in(2) { PauseScope::Port } else { PauseScope::Switch },
            pause_round: if self.one_in(2) { PauseRound::Held } else { PauseRound::Packet },
            pause_probe: self.one_in(2),
            ..NdtConfig::default()
        })
    }

    /// TIMELY and Swift ask for pseudo-ACKs in most seeds.
    fn follow_pseudo_acks(&mut self, setup: &mut Setup) {
        let base = self.pick(&["0", "1", "20", "20"]);
        let far = setup.congestion.far.as_mut().map(|(_, algorithm)| algorithm);
        for algorithm in setup.congestion.algorithm.iter_mut().chain(far) {
            if matches!(algorithm, Algorithm::Timely(_) | Algorithm::Swift(_)) {
                algorithm.set("near_base_us", base).expect("both have it");
            }
        }
    }
}
