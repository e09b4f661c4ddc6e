//! Configuration of a switch: every limit with its unit, its default and its reason.
//!
//! Quantities are text with a unit in files (see [`Human`](crate::Human)) and typed in code.

mod forwarding;
mod pfc;
mod queue;

pub use forwarding::{ForwardingConfig, Hop, Route, Spread, StaticMac};
pub use pfc::PfcConfig;
pub use queue::{EcnConfig, FlowsConfig, MarkAt, PhantomConfig, QueueConfig, TrimConfig};

use crate::agent::config::AgentConfig;
use crate::agent::feedback;
use crate::agent::ndt::config::NdtConfig;
use crate::error::{ConfigError, check_range};
use crate::units;
use crate::units::Human;
use serde::{Deserialize, Serialize};
use spanwire_base::{PortMask, Rate, u64_from};
use spanwire_wire::MacAddr;

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
    /// Agents, at most eight. Default none. With agents, each port has a queue of higher priority
    /// for their feedback (class 6), one more than `queues` unless there is one.
    #[serde(default)]
    pub agents: Vec<AgentConfig>,
    /// Flows whose senders' QPNs are known, for feedback, 8..=2^20. Default 4096.
    #[serde(default = "default_feedback_flows")]
    pub feedback_flows: u32,
}

/// One port with its queues.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PortConfig {
    /// The rate of the link at the port, for pause times, phantom queues and telemetry. The port
    /// itself sends whenever it is polled. Default none.
    #[serde(with = "units")]
    pub rate: Option<Rate>,
    /// The port's MAC address: source of pause frames and of routed frames. Default
    /// 02:5a:00:00:00:00; routing ports of one network need different ones.
    #[serde(with = "units")]
    pub mac: MacAddr,
    /// 1..=8 queues. Default one.
    pub queues: Vec<QueueConfig>,
    /// The queue of each class, DSCP / 8; non-IP frames have class 0. Default all 0.
    pub class_to_queue: [u8; CLASSES],
    /// Unit of the weighted shares of queues with equal priority: bytes or frames. Default bytes.
    pub share: Share,
    /// Quantum of a queue of weight 1 per round when sharing bytes, 256..=1 MB. Default 2048: above
    /// an MTU of 1500, so that a round serves every queue.
    pub quantum_bytes: u32,
    /// PFC: pause frames are sent for frames received on this port and obeyed for frames sent on
    /// it. Default none: lossy, and pause frames are ignored.
    pub pfc: Option<PfcConfig>,
    /// Adds an in-band telemetry record to frames that request one. Default false.
    pub int: bool,
}

/// The resource that queues of equal priority share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// Deficit round robin: each queue gets bytes in proportion to its weight.
    #[default]
    Bytes,
    /// Weighted round robin: each queue sends as many frames in turn as its weight.
    Packets,
}

/// Traffic classes, and priorities of PFC.
pub const CLASSES: usize = 8;

/// Maximum queues of a port.
pub const MAX_QUEUES: usize = 8;

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

    /// With the queues that agents need: a controlled one at each port of NDT, and one of higher
    /// priority for feedback at every port.
    ///
    /// # Returns
    /// Also the normal and the controlled queue of each port, if it has both.
    pub(crate) fn with_agent_queues(mut self) -> (Self, Vec<Option<(u8, u8)>>) {
        let mut controlled = vec![None; self.ports.len()];
        for agent in &self.agents {
            let AgentConfig::Ndt(ndt) = agent else { continue };
            for port in ndt.inside.iter().map(|port| usize::from(*port)) {
                controlled[port] = Some((ndt.queue, self.ports[port].add_controlled_queue(ndt)));
            }
        }
        if !self.agents.is_empty() {
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
            AgentConfig::validate_all(self)?;
            for (n, port) in self.ports.iter().enumerate() {
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

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            rate: None,
            mac: MacAddr([2, 0x5a, 0, 0, 0, 0]),
            queues: vec![QueueConfig::default()],
            class_to_queue: [0; CLASSES],
            share: Share::default(),
            quantum_bytes: 2048,
            pfc: None,
            int: false,
        }
    }
}

impl PortConfig {
    /// A port with one queue before a link of this rate.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self { rate: Some(rate), ..Self::default() }
    }

    /// Feedback of agents would share a queue with data.
    fn lacks_feedback_queue(&self) -> bool {
        let priority = |class: u8| {
            let queue = self.class_to_queue[usize::from(class)];
            self.queues.get(usize::from(queue)).map_or(0, |queue| queue.priority)
        };
        priority(feedback::CLASS) <= priority(0)
    }

    /// Queues that are added for feedback.
    pub(crate) fn feedback_queues(&self) -> usize {
        usize::from(self.lacks_feedback_queue())
    }

    fn check_feedback_queue(&self) -> Result<(), ConfigError> {
        if self.queues.len() + self.feedback_queues() <= MAX_QUEUES {
            return Ok(());
        }
        let what = format!(
            "has {MAX_QUEUES} entries, but feedback of agents needs one more; choose at most {}, \
             or map class {} to one of higher priority than that of class 0",
            MAX_QUEUES - 1,
            feedback::CLASS
        );
        Err(ConfigError::new("queues", what))
    }

    /// Adds a queue for flows that NDT throttles, beside that for the others; returns its number.
    fn add_controlled_queue(&mut self, ndt: &NdtConfig) -> u8 {
        let normal = &mut self.queues[usize::from(ndt.queue)];
        normal.weight = ndt.weight;
        let controlled = QueueConfig { weight: 1, ..*normal };
        self.queues.push(controlled);
        self.share = Share::Packets;
        u8::try_from(self.queues.len() - 1).expect("at most eight queues")
    }

    /// Adds a queue for feedback, of the highest priority, unless there is one.
    fn add_feedback_queue(&mut self) {
        if !self.lacks_feedback_queue() {
            return;
        }
        let highest = self.queues.iter().map(|queue| queue.priority).max().unwrap_or(0);
        let index = u8::try_from(self.queues.len()).expect("at most eight queues");
        self.queues.push(QueueConfig {
            limit_bytes: FEEDBACK_QUEUE_BYTES,
            priority: highest.saturating_add(1),
            ..QueueConfig::default()
        });
        self.class_to_queue[usize::from(feedback::CLASS)] = index;
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        if !(1..=MAX_QUEUES).contains(&self.queues.len()) {
            let what = format!("has {} entries; choose 1 to {MAX_QUEUES}", self.queues.len());
            return Err(ConfigError::new("queues", what));
        }
        for (class, queue) in self.class_to_queue.iter().enumerate() {
            if usize::from(*queue) >= self.queues.len() {
                let what = format!(
                    "is {queue}, but the port has {} queues, counted from 0",
                    self.queues.len()
                );
                return Err(ConfigError::new(format!("class_to_queue[{class}]"), what));
            }
        }
        check_range("quantum_bytes", self.quantum_bytes, 256..=1_000_000)?;
        for (n, queue) in self.queues.iter().enumerate() {
            let checked = queue.validate(self.rate.is_some(), self.queues.len());
            checked.map_err(|e| e.within(&format!("queues[{n}]")))?;
        }
        match &self.pfc {
            Some(_) if self.rate.is_none() => Err(ConfigError::new(
                "pfc",
                "needs the port's rate: pauses are counted in bit times",
            )),
            Some(pfc) => pfc.validate().map_err(|e| e.within("pfc")),
            None => Ok(()),
        }
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

/// A thousand frames of feedback.
const FEEDBACK_QUEUE_BYTES: u64 = 64_000;

/// 65535 bytes of IPv4 after an Ethernet header.
const MAX_FRAME_BYTES: u32 = 65_549;

#[cfg(test)]
mod tests;
