//! Work requests, and the errors of posting and creation.

use crate::wc::WcOpcode;
use spanwire_wire::AtomicEthRepr;
use std::fmt;

/// A scatter-gather element: `len` bytes at virtual address `addr` of the local region `lkey`. If
/// they are not inside that region when they are accessed, or it belongs to another protection
/// domain or does not allow the access, the request completes with
/// [`WcStatus::LocProtErr`](crate::WcStatus::LocProtErr) and the queue pair fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    /// Virtual address of the first byte, in the address space of the region (its iova).
    pub addr: u64,
    /// Bytes. Zero is allowed and contributes nothing; its key is not checked.
    pub len: u32,
    /// Local key of the memory region.
    pub lkey: u32,
}

/// An address in a memory region of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteAddr {
    /// Virtual address of the first byte, in the address space of the peer's region.
    pub va: u64,
    /// Remote key (rkey) of the region.
    pub rkey: u32,
}

/// The operation of a send work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WrOp {
    /// Sends the data of the SGEs to the peer's next receive request.
    Send,
    /// As [`WrOp::Send`], with 32 bits of immediate data in the peer's completion.
    SendImm {
        /// The immediate data, in host order; big-endian on the wire.
        imm: u32,
    },
    /// As [`WrOp::Send`], and invalidates one of the peer's rkeys when the message is complete. The
    /// peer refuses the key of a region without that access right.
    SendInv {
        /// The peer's rkey.
        rkey: u32,
    },
    /// Writes the data of the SGEs to the peer's memory, without a completion at the peer.
    Write {
        /// Destination.
        remote: RemoteAddr,
    },
    /// As [`WrOp::Write`], and consumes a receive request of the peer: its completion has the
    /// immediate data.
    WriteImm {
        /// Destination.
        remote: RemoteAddr,
        /// The immediate data, in host order; big-endian on the wire.
        imm: u32,
    },
    /// Reads the peer's memory into the SGEs.
    Read {
        /// Source.
        remote: RemoteAddr,
    },
    /// Adds to a 64-bit word of the peer, wrapping, exactly once. The original value is written to
    /// the SGEs, 8 bytes in this machine's byte order.
    FetchAdd {
        /// The word; the peer refuses an address that is no multiple of 8.
        remote: RemoteAddr,
        /// The addend.
        add: u64,
    },
    /// Replaces a 64-bit word of the peer if it has the expected value, exactly once. The original
    /// value is written to the SGEs, 8 bytes in this machine's byte order.
    CmpSwap {
        /// The word; the peer refuses an address that is no multiple of 8.
        remote: RemoteAddr,
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
}

/// A work request for the send queue.
#[derive(Clone, Copy, Debug)]
pub struct WorkRequest<'a> {
    /// The application's identifier, returned in the completion.
    pub wr_id: u64,
    /// The operation.
    pub op: WrOp,
    /// Local memory, gathered from (for a READ or an atomic, scattered to) in order. At most the
    /// queue pair's `max_send_sge`; together at most `Config::max_msg_bytes`, for an atomic 8.
    pub sges: &'a [Sge],
    /// Inline data in place of the SGEs', copied before the post returns: the memory may be reused
    /// at once and need not be registered. SENDs and WRITEs only, at most the queue pair's
    /// `max_inline_data`; `sges` must be empty then.
    pub inline: Option<&'a [u8]>,
    /// Completes on success; a failure always completes.
    pub signaled: bool,
    /// Requests a solicited event at the peer (SEND, and WRITE with immediate).
    pub solicited: bool,
    /// Starts after all earlier READs and atomics of this queue pair are complete.
    pub fence: bool,
}

impl<'a> WorkRequest<'a> {
    /// A signaled work request without further flags.
    #[must_use]
    pub fn new(wr_id: u64, op: WrOp, sges: &'a [Sge]) -> Self {
        let (signaled, solicited, fence) = (true, false, false);
        Self { wr_id, op, sges, inline: None, signaled, solicited, fence }
    }

    /// A signaled work request with inline data.
    #[must_use]
    pub fn inline(wr_id: u64, op: WrOp, bytes: &'a [u8]) -> Self {
        Self { inline: Some(bytes), ..Self::new(wr_id, op, &[]) }
    }
}

/// A receive request: the buffer of the next SEND.
#[derive(Clone, Copy, Debug)]
pub struct RecvRequest<'a> {
    /// The application's identifier, returned in the completion.
    pub wr_id: u64,
    /// Local memory, filled in order. At most the queue pair's `max_recv_sge`.
    pub sges: &'a [Sge],
}

/// The reason why a work request was refused; nothing was queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// No queue pair has this number (`EINVAL`).
    UnknownQp,
    /// The queue pair's state does not allow this request (`EINVAL`).
    BadState,
    /// The queue is full, as one of no requests always is (`ENOMEM`).
    QueueFull,
    /// More SGEs than the queue pair was created for (`EINVAL`).
    TooManySges,
    /// The message is longer than `Config::max_msg_bytes` (`EINVAL`).
    TooLong,
    /// The SGEs of an atomic operation are not 8 bytes together (`EINVAL`).
    NotEightBytes,
    /// Inline data together with SGEs, for a READ or an atomic, or longer than `max_inline_data`
    /// (`EINVAL`).
    BadInline,
    /// The queue pair uses a shared receive queue (`EINVAL`).
    UsesSrq,
    /// No shared receive queue has this number (`EINVAL`).
    UnknownSrq,
}

/// The reason why an object could not be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateError {
    /// The configured number of such objects exists; the field of [`Config`](crate::Config) with
    /// that limit.
    Limit(&'static str),
    /// The protection domain does not exist.
    UnknownPd,
    /// The completion queue does not exist.
    UnknownCq,
    /// The shared receive queue does not exist.
    UnknownSrq,
    /// The completion queue or shared receive queue is that of another worker: a queue pair has one
    /// worker, and so have its queues.
    OtherWorker,
    /// A capacity is zero where that is not allowed, or above its limit; its field.
    BadCapacity(&'static str),
    /// Remote write or atomic access requires local write access, as in verbs.
    AccessWithoutLocalWrite,
    /// The region's addresses wrap around the end of the address space.
    AddressWraps,
}

impl WrOp {
    /// The peer's memory that the operation accesses.
    pub(crate) fn remote(self) -> Option<RemoteAddr> {
        match self {
            Self::Send | Self::SendImm { .. } | Self::SendInv { .. } => None,
            Self::Write { remote }
            | Self::WriteImm { remote, .. }
            | Self::Read { remote }
            | Self::FetchAdd { remote, .. }
            | Self::CmpSwap { remote, .. } => Some(remote),
        }
    }

    /// The immediate data.
    pub(crate) fn imm(self) -> Option<u32> {
        match self {
            Self::SendImm { imm } | Self::WriteImm { imm, .. } => Some(imm),
            _ => None,
        }
    }

    /// The AtomicETH of an atomic operation.
    pub(crate) fn operands(self) -> Option<AtomicEthRepr> {
        let (remote, swap_or_add, compare) = match self {
            Self::FetchAdd { remote, add } => (remote, add, 0),
            Self::CmpSwap { remote, compare, swap } => (remote, swap, compare),
            _ => return None,
        };
        Some(AtomicEthRepr { va: remote.va, rkey: remote.rkey, swap_or_add, compare })
    }

    /// The opcode of its completion.
    pub(crate) fn wc_opcode(self) -> WcOpcode {
        match self {
            Self::Send | Self::SendImm { .. } | Self::SendInv { .. } => WcOpcode::Send,
            Self::Write { .. } | Self::WriteImm { .. } => WcOpcode::RdmaWrite,
            Self::Read { .. } => WcOpcode::RdmaRead,
            Self::FetchAdd { .. } => WcOpcode::FetchAdd,
            Self::CmpSwap { .. } => WcOpcode::CompSwap,
        }
    }

    /// True for FETCH_ADD and CMP_SWAP.
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd { .. } | Self::CmpSwap { .. })
    }

    /// True for operations that consume a receive request of the peer: those that can be solicited.
    pub(crate) fn completes_a_receive(self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendImm { .. } | Self::SendInv { .. } | Self::WriteImm { .. }
        )
    }

    /// True for READs.
    pub(crate) fn is_read(self) -> bool {
        matches!(self, Self::Read { .. })
    }

    /// True for READs and atomics, which only their own response completes and `max_rd_atomic`
    /// limits.
    pub(crate) fn is_rd_atomic(self) -> bool {
        self.is_atomic() || self.is_read()
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownQp => "no queue pair has this number",
            Self::BadState => "the queue pair is not in a state that takes this request",
            Self::QueueFull => "the queue is full: poll completions first",
            Self::TooManySges => "more scatter-gather elements than the queue pair was made for",
            Self::TooLong => "the message is longer than max_msg_bytes",
            Self::BadInline => {
                "inline data must be a SEND's or WRITE's only data, and not too long"
            }
            Self::UsesSrq => {
                "the queue pair takes its receives from a shared queue: post them there"
            }
            Self::UnknownSrq => "no such shared receive queue",
            Self::NotEightBytes => "an atomic operation needs scatter-gather elements of 8 bytes",
        })
    }
}

impl std::error::Error for PostError {}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(field) => write!(f, "no more than {field} may exist: raise it in Config"),
            Self::UnknownPd => f.write_str("no such protection domain"),
            Self::OtherWorker => f.write_str("the queue belongs to another worker of the process"),
            Self::UnknownSrq => f.write_str("no such shared receive queue"),
            Self::UnknownCq => f.write_str("no such completion queue"),
            Self::BadCapacity(field) => write!(f, "{field} is zero or above its limit"),
            Self::AccessWithoutLocalWrite => {
                f.write_str("remote write access needs local write access as well")
            }
            Self::AddressWraps => f.write_str("the region wraps around the address space"),
        }
    }
}

impl std::error::Error for CreateError {}
