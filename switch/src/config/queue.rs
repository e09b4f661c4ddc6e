//! Configuration of a queue: limits, marking, shapers.

use crate::error::{ConfigError, check_range};
use crate::units::{self, Prob, Ratio};
use serde::{Deserialize, Serialize};
use spanwire_base::Rate;

/// Configuration of one queue of a port.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueConfig {
    /// Maximum bytes in it, 64..=64 GB. Default 1 MiB: 84 us at 100 Gbit/s.
    #[serde(with = "units")]
    pub limit_bytes: u64,
    /// Dynamic threshold: maximum bytes as a fraction of the free shared buffer, in addition to
    /// `limit_bytes`. Default none. (Choudhury and Hahne, ToN 1998.) It does not apply to lossless
    /// frames, which are limited at their ingress.
    pub alpha: Option<Ratio>,
    /// Strict priority; higher first. Queues of equal priority share by weight. Default 0.
    pub priority: u8,
    /// Its weight among queues of its priority, 1..=1000. Default 1.
    pub weight: u32,
    /// ECN marking by queue length. Default none.
    pub ecn: Option<EcnConfig>,
    /// ECN marking by the length of a phantom queue. Default none.
    pub phantom: Option<PhantomConfig>,
    /// Packet trimming: frames without room are cut to their headers. Default none: they are
    /// dropped.
    pub trim: Option<TrimConfig>,
    /// Per-flow queues with shapers. Default none: one FIFO.
    pub flows: Option<FlowsConfig>,
}

/// ECN marking by queue length (RED without averaging): never up to `kmin_bytes`, always above
/// `kmax_bytes`, and with a probability from 0 to `pmax` in between. Equal thresholds make a step.
/// Not-ECT packets pass unmarked.
///
/// # Source
/// DCQCN (SIGCOMM'15), figure 5; the step is DCTCP's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EcnConfig {
    /// Queue length up to which no packet is marked.
    #[serde(with = "units")]
    pub kmin_bytes: u64,
    /// Queue length above which every packet is marked; at least `kmin_bytes`.
    #[serde(with = "units")]
    pub kmax_bytes: u64,
    /// The marking probability at `kmax_bytes`. Default 1.
    #[serde(default = "always")]
    pub pmax: Prob,
    /// When the queue length is compared. Default at dequeue.
    #[serde(default)]
    pub at: MarkAt,
}

/// When the queue length is compared with the thresholds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkAt {
    /// At enqueue, including the frame itself.
    Enqueue,
    /// At dequeue, by the bytes behind the frame: the signal is newer by the queueing time.
    #[default]
    Dequeue,
}

/// A phantom queue: a counter of bytes that grows with each frame, including dropped ones, drains
/// at a fraction of the port's rate and marks by its length. Marking thus begins before the real
/// queue builds up.
///
/// # Source
/// HULL (NSDI'12); with these parameters Uno (SC'25). Uno's artifact has size 22,400,515,
/// thresholds 2 % and 60 % of it and drain 10/11 or 20/21, and replaces the marks of the real
/// queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhantomConfig {
    /// Its drain rate as a fraction of the port's rate, at most 1. Default 9/10.
    #[serde(default = "nine_tenths")]
    pub drain: Ratio,
    /// Its maximum length in bytes.
    #[serde(with = "units")]
    pub size_bytes: u64,
    /// Length up to which no packet is marked.
    #[serde(with = "units")]
    pub kmin_bytes: u64,
    /// Length above which every packet is marked; at least `kmin_bytes`, at most `size_bytes`.
    #[serde(with = "units")]
    pub kmax_bytes: u64,
    /// The marking probability at `kmax_bytes`. Default 1.
    #[serde(default = "always")]
    pub pmax: Prob,
    /// Whether `ecn` marks as well. Default false: only the phantom queue marks.
    #[serde(default)]
    pub with_physical: bool,
}

/// Packet trimming: frames without room are cut to their headers, so that the receiver immediately
/// detects the loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrimConfig {
    /// The DSCP of trimmed packets, 0..=63.
    pub dscp: u8,
    /// The queue of trimmed packets, preferably of higher priority; not this one.
    pub queue: u8,
}

/// Per-flow queues, each with a shaper, served by deficit round robin.
///
/// A flow is a 5-tuple. Its hash selects a set of eight places, of which it takes one. It keeps the
/// place while it has frames, and afterwards until another flow needs it. If eight other flows
/// occupy the set, it shares one of their places, counted in `flow_collisions`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowsConfig {
    /// Places for flows, 8..=65536, rounded up to a power of two. Default 1024.
    #[serde(default = "default_max_flows")]
    pub max_flows: u32,
    /// The shaping rate of a new flow, without overhead on the wire; none: unshaped. Default none.
    #[serde(with = "units", default)]
    pub rate: Option<Rate>,
    /// Maximum bytes queued of one flow. Default the limit of the whole queue.
    #[serde(with = "units", default)]
    pub limit_bytes: Option<u64>,
    /// Quantum of a flow per turn, 256..=1 MB. Default 2048.
    #[serde(default = "default_quantum")]
    pub quantum_bytes: u32,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            limit_bytes: 1 << 20,
            alpha: None,
            priority: 0,
            weight: 1,
            ecn: None,
            phantom: None,
            trim: None,
            flows: None,
        }
    }
}

impl QueueConfig {
    pub(super) fn validate(&self, has_rate: bool, queues: usize) -> Result<(), ConfigError> {
        check_range("limit_bytes", self.limit_bytes, 64..=64_000_000_000)?;
        check_range("weight", self.weight, 1..=1000)?;
        if let Some(ecn) = &self.ecn {
            ecn.validate().map_err(|e| e.within("ecn"))?;
        }
        if let Some(phantom) = &self.phantom {
            if !has_rate {
                return Err(ConfigError::new(
                    "phantom",
                    "needs the port's rate, which it drains at",
                ));
            }
            phantom.validate().map_err(|e| e.within("phantom"))?;
        }
        if let Some(trim) = &self.trim {
            check_range("trim.dscp", trim.dscp, 0..=63)?;
            if usize::from(trim.queue) >= queues {
                let what = format!("is {}, but the port has {queues} queues", trim.queue);
                return Err(ConfigError::new("trim.queue", what));
            }
        }
        if let Some(flows) = &self.flows {
            check_range("flows.max_flows", flows.max_flows, 8..=65_536)?;
            check_range("flows.quantum_bytes", flows.quantum_bytes, 256..=1_000_000)?;
        }
        Ok(())
    }
}

impl EcnConfig {
    /// Linear marking at dequeue.
    #[must_use]
    pub const fn red(kmin_bytes: u64, kmax_bytes: u64, pmax: Prob) -> Self {
        Self { kmin_bytes, kmax_bytes, pmax, at: MarkAt::Dequeue }
    }

    /// Marks every packet above `k_bytes`, at enqueue.
    #[must_use]
    pub const fn step(k_bytes: u64) -> Self {
        Self { kmin_bytes: k_bytes, kmax_bytes: k_bytes, pmax: Prob::ONE, at: MarkAt::Enqueue }
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        check_thresholds(self.kmin_bytes, self.kmax_bytes)
    }
}

impl PhantomConfig {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        if self.drain.num() > self.drain.den() {
            return Err(ConfigError::new("drain", "is above 1; at 1 it marks as the real queue"));
        }
        check_range("size_bytes", self.size_bytes, 64..=64_000_000_000)?;
        check_thresholds(self.kmin_bytes, self.kmax_bytes)?;
        if self.kmax_bytes > self.size_bytes {
            let what = "is above size_bytes, which the phantom queue never passes; lower it";
            return Err(ConfigError::new("kmax_bytes", what));
        }
        Ok(())
    }
}

fn check_thresholds(kmin_bytes: u64, kmax_bytes: u64) -> Result<(), ConfigError> {
    check_range("kmax_bytes", kmax_bytes, 0..=64_000_000_000)?;
    if kmin_bytes > kmax_bytes {
        let what = format!("is {kmin_bytes}, above kmax_bytes {kmax_bytes}; swap or lower it");
        return Err(ConfigError::new("kmin_bytes", what));
    }
    Ok(())
}

fn always() -> Prob {
    Prob::ONE
}

fn nine_tenths() -> Ratio {
    Ratio::new(9, 10).expect("both are small and positive")
}

fn default_max_flows() -> u32 {
    1024
}

fn default_quantum() -> u32 {
    2048
}
