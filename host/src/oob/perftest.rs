//! The TCP exchange of perftest (`ib_write_bw` and its siblings), so that they run against us.
//!
//! The exchange identifies neither the tool at the other end nor the length or number of its
//! messages: both ends must be started with equal parameters ([`Test`]). Every step is a message of
//! known length in each direction; the client writes first, the server reads and then writes. The
//! steps, and the versions they were checked against: docs/protocol/side-connection.md, "perftest's
//! exchange".

mod exchange;
mod keys;
mod sizes;

pub use exchange::{Exchange, PerftestError};
pub use keys::{KEYS_BYTES, KEYS_BYTES_WITHOUT_GID, Keys, gid_of};
pub use sizes::{
    Report, VERSION, VERSION_BYTES, cycle_buffer_from, cycle_buffer_to_bytes, mtu_from,
    mtu_to_bytes, version_from, version_to_bytes,
};

use super::Op;
use spanwire_transport::Mtu;

/// The TCP port that perftest's servers listen on.
pub const DEFAULT_PORT: u16 = 18_515;

/// Parameters of a perftest run that both ends must set equally, and the client's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Test {
    /// The operation; with [`Test::latency`] it selects the tool.
    pub op: Op,
    /// The `_lat` tool instead of the `_bw` one.
    pub latency: bool,
    /// Both ends send (`-b`). Bandwidth only.
    pub bidirectional: bool,
    /// Bytes of a message (`-s`), 1 to 2^30; 8 for atomics.
    pub size: u32,
    /// Messages on each queue pair (`-n`), 1 or more.
    pub iterations: u64,
    /// Queue pairs (`-q`), 1 to 1024; 1 for latency.
    pub qps: u32,
    /// Messages outstanding on each queue pair (`-t`). Each end has its own.
    pub depth: u32,
    /// Largest path MTU (`-m`); `None` for that of the interface. The smaller of both ends' is
    /// used.
    pub path_mtu: Option<u32>,
    /// IPv4 TOS or IPv6 traffic class of our packets (`--tclass`).
    pub traffic_class: u8,
    /// Local ACK timeout exponent (4.096 us * 2^n).
    pub timeout: u8,
    /// Retransmissions without progress before giving up.
    pub retry_cnt: u8,
}

/// One exchange of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Round {
    /// One message for each queue pair.
    All,
    /// One message, as a barrier.
    One,
}

impl Test {
    /// Checks that a tool for this test exists.
    ///
    /// # Errors
    /// None does; the text says why.
    pub fn check(&self) -> Result<(), &'static str> {
        match self {
            Self { iterations: 0, .. } => Err("a test has at least one iteration"),
            Self { latency: true, qps: 2.., .. } => Err("latency is of one queue pair"),
            Self { latency: true, bidirectional: true, .. } => {
                Err("latency has no bidirectional mode: a ping-pong is one")
            }
            Self { path_mtu: Some(bytes), .. } if Mtu::from_bytes(*bytes).is_none() => {
                Err("--mtu is no path MTU (256, 512, 1024, 2048, 4096)")
            }
            _ => Ok(()),
        }
    }

    /// True if the client, or the server, posts messages on its own initiative.
    #[must_use]
    pub fn is_active(&self, is_client: bool) -> bool {
        let ping_pong_by_write = self.latency && self.op == Op::Write;
        is_client || self.bidirectional || ping_pong_by_write
    }

    /// The exchanges of keys before traffic starts. The queue pairs are connected after the first
    /// of [`Round::All`], and receives are posted before the last.
    #[must_use]
    pub fn rounds(&self) -> &'static [Round] {
        match (self.op, self.latency) {
            (Op::Send, _) => &[Round::All, Round::One, Round::All, Round::One],
            (_, true) => &[Round::One, Round::All, Round::All, Round::One],
            (_, false) if self.bidirectional => &[Round::All, Round::All, Round::One, Round::One],
            (_, false) => &[Round::All, Round::All, Round::One],
        }
    }

    /// True if the ends have a barrier after the run, before the reports.
    #[must_use]
    pub fn has_barrier_after_run(&self) -> bool {
        self.op != Op::Send && !self.latency && !self.bidirectional
    }

    /// True if the ends exchange reports after the run.
    #[must_use]
    pub fn has_reports(&self) -> bool {
        !self.latency && (self.op != Op::Send || self.bidirectional)
    }

    /// True if the ends exchange keys and send "done" before they close. `ib_write_lat` closes at
    /// once.
    #[must_use]
    pub fn has_farewell(&self) -> bool {
        !(self.latency && self.op == Op::Write)
    }

    /// The name of the tool for this test, e.g. `ib_write_bw`.
    #[must_use]
    pub fn tool(&self) -> &'static str {
        match (self.op, self.latency) {
            (Op::Send, false) => "ib_send_bw",
            (Op::Write, false) => "ib_write_bw",
            (Op::Read, false) => "ib_read_bw",
            (Op::FetchAdd | Op::CmpSwap, false) => "ib_atomic_bw",
            (Op::Send, true) => "ib_send_lat",
            (Op::Write, true) => "ib_write_lat",
            (Op::Read, true) => "ib_read_lat",
            (Op::FetchAdd | Op::CmpSwap, true) => "ib_atomic_lat",
        }
    }
}

#[cfg(test)]
mod tests;
