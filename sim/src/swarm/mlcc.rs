//! Draws of MLCC.

use super::bounds::longest_rtt;
use super::draw::Draw;
use crate::setup::{AgentSetup, Setup};
use crate::topology::{Role, Topology};
use spanwire_base::{Dur, Rate};
use spanwire_cc::Algorithm;
use spanwire_switch::{FlowsConfig, MlccConfig};

/// Separates these draws from all others, so that a seed keeps its network.
pub(super) const SEED: u64 = 0x6d6c_6363_5f61_6765;

impl Draw {
    /// MLCC in a quarter of the seeds that speak SR and have no agent: at all hosts, or those far
    /// apart, with or without the agent at switches that are drawn as borders.
    pub(super) fn mlcc(&mut self, setup: &mut Setup, topology: &mut Topology) {
        let speaks_sr = setup.offer.sr.is_some();
        if !speaks_sr || !setup.agents.is_empty() || topology.switches.is_empty() {
            return;
        }
        if !self.one_in(4) {
            return;
        }
        let before = longest_rtt(topology, setup);
        let algorithm = self.mlcc_of_hosts();
        if self.one_in(3) {
            setup.congestion.far = Some((Dur::from_us(30), algorithm));
        } else {
            setup.congestion.algorithm = Some(algorithm);
        }
        setup.port.int = true;
        if !self.one_in(4) {
            let role = |draw: &mut Self| if draw.one_in(2) { Role::Border } else { Role::Other };
            topology.roles = topology.switches.iter().map(|_| role(self)).collect();
            let queue = usize::from(setup.port.class_to_queue[0]);
            let flows = FlowsConfig {
                max_flows: self.count(&[8, 64]),
                rate: None,
                limit_bytes: None,
                quantum_bytes: 2048,
            };
            setup.port.queues[queue].flows.get_or_insert(flows);
            setup.agents.push(AgentSetup::from(MlccConfig {
                rtt_d: Dur::from_us(self.pick(&[1, 22, 500])),
                initial: self.one_in(2).then(|| Rate::from_gbps(self.pick(&[1, 10, 100]))),
                flows: self.count(&[1, 64]),
                ..MlccConfig::default()
            }));
        }
        // A flow may be let in slowly.
        setup.timeout = setup.timeout + (longest_rtt(topology, setup) - before);
    }

    fn mlcc_of_hosts(&mut self) -> Algorithm {
        let mut algorithm = Algorithm::named("mlcc").expect("it is known");
        let forms = ["smoothed", "smoothed", "smoothed", "credit", "printed", "off"];
        for (name, value) in [
            ("rtt_c_us", self.pick(&["50", "500", "6044"])),
            // At most MLCC_RTT_D_MAX.
            ("rtt_d_us", self.pick(&["2", "22"])),
            ("theta_ms", self.pick(&["0.1", "2", "18"])),
            ("target_us", self.pick(&["5", "100", "1000"])),
            ("law", self.pick(&["hpcc", "powertcp"])),
            ("dqm", self.pick(&forms)),
            ("near_loop", self.pick(&["true", "true", "false"])),
            ("credit_loop", self.pick(&["true", "true", "false"])),
        ] {
            algorithm.set(name, value).expect("in the range of each");
        }
        algorithm
    }
}
