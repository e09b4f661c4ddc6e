//! Configuration of one port.

use super::pfc::{CLASSES, PfcConfig};
use super::queue::QueueConfig;
use crate::error::{ConfigError, check_range};
use crate::units;
use serde::{Deserialize, Serialize};
use spanwire_base::Rate;
use spanwire_wire::MacAddr;

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

/// Maximum queues of a port.
pub const MAX_QUEUES: usize = 8;

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
        priority(FEEDBACK_CLASS) <= priority(0)
    }

    /// Queues that are added for feedback.
    pub(crate) fn feedback_queues(&self) -> usize {
        usize::from(self.lacks_feedback_queue())
    }

    pub(super) fn check_feedback_queue(&self) -> Result<(), ConfigError> {
        if self.queues.len() + self.feedback_queues() <= MAX_QUEUES {
            return Ok(());
        }
        let what = format!(
            "has {MAX_QUEUES} entries, but feedback of agents needs one more; choose at most {}, \
             or map class {} to one of higher priority than that of class 0",
            MAX_QUEUES - 1,
            FEEDBACK_CLASS
        );
        Err(ConfigError::new("queues", what))
    }

    /// Adds a queue for flows that NDT throttles, beside the queue `normal` for the others, which
    /// gets `weight`; returns its number.
    pub(super) fn add_controlled_queue(&mut self, normal: u8, weight: u32) -> u8 {
        let normal = &mut self.queues[usize::from(normal)];
        normal.weight = weight;
        let controlled = QueueConfig { weight: 1, ..*normal };
        self.queues.push(controlled);
        self.share = Share::Packets;
        u8::try_from(self.queues.len() - 1).expect("at most eight queues")
    }

    /// Adds a queue for feedback, of the highest priority, unless there is one.
    pub(super) fn add_feedback_queue(&mut self) {
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
        self.class_to_queue[usize::from(FEEDBACK_CLASS)] = index;
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

/// The class of agents' feedback: network control (RFC 4594), as adapters send CNPs.
pub(crate) const FEEDBACK_CLASS: u8 = 6;
/// A thousand frames of feedback.
const FEEDBACK_QUEUE_BYTES: u64 = 64_000;
