//! A job of two ends: one transfer or measurement.

use serde::{Deserialize, Serialize};

/// The operation that transfers the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// SEND into posted receives.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// The atomic FETCH_ADD, of 8 bytes.
    FetchAdd,
    /// The atomic CMP_SWAP, of 8 bytes.
    CmpSwap,
}

impl Op {
    /// True for atomic operations, whose messages have 8 bytes.
    #[must_use]
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CmpSwap)
    }

    /// True for READs and atomics, which need responder resources at the peer while outstanding.
    #[must_use]
    pub fn is_rd_atomic(self) -> bool {
        self == Self::Read || self.is_atomic()
    }
}

/// The kind of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum JobKind {
    /// Transfers `bytes` of seeded random data once. Both ends hash their memory afterwards.
    Transfer {
        /// Bytes in all.
        bytes: u64,
        /// Seed of the data.
        seed: u64,
    },
    /// Sends as many messages as possible for `duration_ms`.
    Bandwidth {
        /// How long, in milliseconds.
        duration_ms: u64,
    },
    /// Sends one message at a time for `duration_ms`. A SEND is answered with a SEND (ping-pong).
    Latency {
        /// How long, in milliseconds.
        duration_ms: u64,
    },
}

/// A job: one transfer or measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The kind of the job.
    #[serde(flatten)]
    pub kind: JobKind,
    /// The operation.
    pub op: Op,
    /// Bytes of a message, 1 or more.
    pub size: u32,
    /// Queue pairs, 1 or more.
    pub qps: u32,
    /// Messages outstanding on each queue pair.
    pub depth: u32,
    /// Path MTU in payload bytes.
    pub path_mtu: u32,
    /// Local ACK timeout exponent (4.096 us * 2^n).
    pub timeout: u8,
    /// Retransmissions without progress before giving up.
    pub retry_cnt: u8,
}

#[cfg(test)]
impl Job {
    /// A job of WRITEs on one queue pair.
    pub(crate) fn of(kind: JobKind) -> Self {
        let (path_mtu, timeout, retry_cnt) = (1024, 14, 7);
        Self { kind, op: Op::Write, size: 64, qps: 1, depth: 1, path_mtu, timeout, retry_cnt }
    }
}
