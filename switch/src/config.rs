//! Configuration of a switch: every limit with its unit, its default and its reason.
//!
//! Quantities are text with a unit in files (see [`Human`](crate::Human)) and typed in code.

mod forwarding;
mod pfc;
mod port;
mod queue;

pub use forwarding::{ForwardingConfig, Hop, Route, Spread, StaticMac};
pub use pfc::{CLASSES, PfcConfig};
pub(crate) use port::FEEDBACK_CLASS;
pub use port::{MAX_QUEUES, PortConfig, Share};
pub use queue::{EcnConfig, FlowsConfig, MarkAt, PhantomConfig, QueueConfig, TrimConfig};

use crate::agent::kind::AgentConfig;
use crate::error::{ConfigError, check_range};
use crate::units;
use crate::units::Human;
use serde::{Deserialize, Serialize};
use spanwire_base::{PortMask, u64_from};

/// Configuration of a switch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchConfig {
    /// 1..=128 ports; port n of the switch is `ports[n]`.
    pub ports: Vec<PortConfig>,
    /// Packet memory that all ports share, including elided bytes, 64 kB..=64 GB. Default 32 MB, as
    /// in a common 32-port 100G chip (and in HPCC's simulations).
    #[serde(with = "units", default = "default_buffer_bytes")]
    pub buffer_bytes: u64,
    /// Frames longer than this, including elided bytes, are dropped as `drop_too_long`. 64..=65549
    /// (the longest IPv4 packet after an Ethernet header). Default 9216: jumbo frames.
    #[serde(default = "default_max_frame_bytes")]
    pub max_frame_bytes: u32,
    /// Forwarding. Default: learning and flooding, like an unconfigured Ethernet switch.
    #[serde(default)]
    pub forwarding: ForwardingConfig,
    /// Seed of hashes and random choices. Default 0. Switches of one network need different seeds;
    /// otherwise all stages select alike.
    #[serde(default)]
    pub seed: u64,
    /// Agents, at most eight. Default none. With agents that originate feedback, each port has a
    /// queue of higher priority for it (class 6), one more than `queues` unless there is one.
    #[serde(default)]
    pub agents: Vec<AgentConfig>,
    /// Flows whose senders' QPNs are known, for feedback, 8..=2^20. Default 4096.
    #[serde(default = "default_feedback_flows")]
    pub feedback_flows: u32,
}

impl SwitchConfig {
    /// A switch of these ports that learns and floods.
    #[must_use]
    pub fn new(ports: Vec<PortConfig>) -> Self {
        Self {
            ports,
            buffer_bytes: default_buffer_bytes(),
            max_frame_bytes: default_max_frame_bytes(),
            forwarding: ForwardingConfig::default(),
            seed: 0,
            agents: Vec::new(),
            feedback_flows: default_feedback_flows(),
        }
    }

    /// With the queues that agents need: a controlled one beside a normal one, and one of higher
    /// priority for feedback at every port.
    ///
    /// # Returns
    /// Also the normal and the controlled queue of each port, if it has both.
    pub(crate) fn with_agent_queues(mut self) -> (Self, Vec<Option<(u8, u8)>>) {
        let mut controlled = vec![None; self.ports.len()];
        for agent in &self.agents {
            let Some((ports, queue, weight)) = agent.controlled() else { continue };
            for port in ports.iter().map(|port| usize::from(*port)) {
                let added = self.ports[port].add_controlled_queue(queue, weight);
                controlled[port] = Some((queue, added));
            }
        }
        if self.agents.iter().any(AgentConfig::has_feedback) {
            self.ports.iter_mut().for_each(PortConfig::add_feedback_queue);
        }
        (self, controlled)
    }

    /// Validates every range and every relation between fields.
    ///
    /// # Errors
    /// The first error: field, problem, and valid values.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let most_ports = usize::try_from(PortMask::BITS).unwrap_or(usize::MAX);
        if !(1..=most_ports).contains(&self.ports.len()) {
            let what = format!("has {} entries; choose 1 to {most_ports}", self.ports.len());
            return Err(ConfigError::new("ports", what));
        }
        check_range("buffer_bytes", self.buffer_bytes, 64_000..=64_000_000_000)?;
        check_range("max_frame_bytes", self.max_frame_bytes, 64..=MAX_FRAME_BYTES)?;
        for (n, port) in self.ports.iter().enumerate() {
            port.validate().map_err(|e| e.within(&format!("ports[{n}]")))?;
        }
        let set_aside = self.set_aside_bytes();
        if set_aside >= self.buffer_bytes {
            let what = format!(
                "is {}, but the ports' pfc.reserve_bytes and pfc.headroom_bytes set aside {} of \
                 it: raise it or lower those",
                self.buffer_bytes.show(),
                set_aside.show()
            );
            return Err(ConfigError::new("buffer_bytes", what));
        }
        if !self.agents.is_empty() {
            AgentConfig::validate_all(&self.agents, &self.ports)?;
            check_range("feedback_flows", self.feedback_flows, 8..=1 << 20)?;
            let has_feedback = self.agents.iter().any(AgentConfig::has_feedback);
            for (n, port) in self.ports.iter().enumerate().filter(|_| has_feedback) {
                port.check_feedback_queue().map_err(|e| e.within(&format!("ports[{n}]")))?;
            }
        }
        self.forwarding.validate(self.ports.len()).map_err(|e| e.within("forwarding"))
    }

    /// Bytes of the buffer that are not shared: reserves and headroom.
    #[must_use]
    pub fn set_aside_bytes(&self) -> u64 {
        let of = |pfc: &PfcConfig| {
            pfc.reserve_bytes
                .saturating_add(pfc.headroom_bytes)
                .saturating_mul(u64_from(pfc.priorities.len()))
        };
        self.ports.iter().filter_map(|p| p.pfc.as_ref()).map(of).fold(0, u64::saturating_add)
    }
}

fn default_buffer_bytes() -> u64 {
    32_000_000
}

fn default_feedback_flows() -> u32 {
    4_096
}

fn default_max_frame_bytes() -> u32 {
    9_216
}

/// 65535 bytes of IPv4 after an Ethernet header.
const MAX_FRAME_BYTES: u32 = 65_549;

#[cfg(test)]
mod tests;
