//! One queue: its limit, its marks, its shapers.

use crate::error::{ConfigError, check_range};
use crate::units::{self, Prob, Ratio};
use serde::{Deserialize, Serialize};
use spanwire_base::Rate;

/// One queue of a port.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueConfig {
    /// Bytes it holds at most, 64..=64 GB. Default 1 MiB: 84 us at 100 Gbit/s.
    #[serde(with = "units")]
    pub limit_bytes: u64,
    /// Bytes it holds at most as a fraction of what is free of the shared buffer: a dynamic
    /// threshold, beside `limit_bytes`. Default none. (Choudhury and Hahne, ToN 1998.) It does not
    /// bind lossless frames, whose ingress is held instead.
    pub alpha: Option<Ratio>,
    /// Higher goes first, always. Queues of equal priority share. Default 0.
    pub priority: u8,
    /// Its share among queues of its priority, 1..=1000. Default 1.
    pub weight: u32,
    /// Marks by its length. Default none.
    pub ecn: Option<EcnConfig>,
    /// Marks by the length of a queue that is not there. Default none.
    pub phantom: Option<PhantomConfig>,
    /// What has no room is cut to its headers. Default none: it is dropped.
    pub trim: Option<TrimConfig>,
    /// A queue of its own, with a shaper, for each flow. Default none: one FIFO.
    pub flows: Option<FlowsConfig>,
}

/// Marking by queue length (RED without an average): never up to `kmin_bytes`, always above
/// `kmax_bytes`, between them with a probability that grows from 0 to `pmax`. Equal thresholds are
/// a step. Packets whose sender does not react to marks pass.
///
/// # Source
/// DCQCN (SIGCOMM'15), figure 5; the step is DCTCP's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EcnConfig {
    /// Bytes up to which nothing is marked.
    #[serde(with = "units")]
    pub kmin_bytes: u64,
    /// Bytes above which everything is marked; at least `kmin_bytes`.
    #[serde(with = "units")]
    pub kmax_bytes: u64,
    /// The probability at `kmax_bytes`. Default 1.
    #[serde(default = "always")]
    pub pmax: Prob,
    /// When the length counts. Default when the frame leaves.
    #[serde(default)]
    pub at: MarkAt,
}

/// When the length of a queue decides about a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkAt {
    /// When the frame comes, its own bytes counted.
    Enqueue,
    /// When it leaves, what stays behind it counted: the news is younger by the time in the queue.
    #[default]
    Dequeue,
}

/// A counter of bytes that grows with each frame, dropped ones too, drains at a fraction of the
/// port's rate and marks by its length: marks begin before the real queue does.
///
/// # Source
/// HULL (NSDI'12); with these parameters Uno (SC'25), whose artifact has size 22,400,515,
/// thresholds 2 % and 60 % of it and drain 10/11 or 20/21, and replaces the marks of the real
/// queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhantomConfig {
    /// Its drain as a fraction of the port's rate, at most 1. Default 9/10.
    #[serde(default = "nine_tenths")]
    pub drain: Ratio,
    /// Bytes it grows to at most.
    #[serde(with = "units")]
    pub size_bytes: u64,
    /// Bytes up to which nothing is marked.
    #[serde(with = "units")]
    pub kmin_bytes: u64,
    /// Bytes above which everything is marked; at least `kmin_bytes`, at most `size_bytes`.
    #[serde(with = "units")]
    pub kmax_bytes: u64,
    /// The probability at `kmax_bytes`. Default 1.
    #[serde(default = "always")]
    pub pmax: Prob,
    /// Whether `ecn` marks as well. Default false: the phantom queue alone does.
    #[serde(default)]
    pub with_physical: bool,
}

/// Cutting what has no room to its headers, so that the receiver learns at once what is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrimConfig {
    /// The DSCP that says so, 0..=63.
    pub dscp: u8,
    /// The queue that the headers go to, best of higher priority; another one than this.
    pub queue: u8,
}

/// A queue of its own for each flow, each with a shaper; among those that may send, round robin by
/// bytes.
///
/// A flow is a 5-tuple. It takes one of the eight places that its hash names and keeps it while it
/// has frames and until another flow needs it. When eight others hold theirs, it shares one of
/// them, counted in `flow_collisions`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowsConfig {
    /// Places for flows, 8..=65536, rounded up to a power of two. Default 1024.
    #[serde(default = "default_max_flows")]
    pub max_flows: u32,
    /// The rate of a new flow's shaper; none: unshaped. Default none. Overhead on the wire is not
    /// counted.
    #[serde(with = "units", default)]
    pub rate: Option<Rate>,
    /// Bytes that one flow may have waiting. Default the limit of the whole queue.
    #[serde(with = "units", default)]
    pub limit_bytes: Option<u64>,
    /// What a flow may send in a turn, 256..=1 MB. Default 2048.
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
    /// Linear marking as the frame leaves.
    #[must_use]
    pub const fn red(kmin_bytes: u64, kmax_bytes: u64, pmax: Prob) -> Self {
        Self { kmin_bytes, kmax_bytes, pmax, at: MarkAt::Dequeue }
    }

    /// Marks everything above `k_bytes`, as the frame comes.
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
