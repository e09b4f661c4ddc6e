//! What an application posts, and what can be wrong with it at once.

use crate::wc::WcOpcode;
use spanwire_wire::AtomicEthRepr;
use std::fmt;

/// One piece of local memory: `len` bytes at virtual address `addr` of the region named by `lkey`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    /// Virtual address of the first byte, in the region's own addresses (its iova).
    pub addr: u64,
    /// Bytes. Zero is allowed and contributes nothing.
    pub len: u32,
    /// Local key of the memory region.
    pub lkey: u32,
}

/// Memory of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteAddr {
    /// Virtual address of the first byte, in the peer's region's own addresses.
    pub va: u64,
    /// Remote key the peer handed out.
    pub rkey: u32,
}

/// What a send work request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WrOp {
    /// Sends the SGEs' bytes into the peer's next receive request.
    Send,
    /// As [`WrOp::Send`], and gives the peer 32 bits with the completion.
    SendImm {
        /// The immediate data, in host order; big-endian on the wire.
        imm: u32,
    },
    /// As [`WrOp::Send`], and takes one of the peer's rkeys away when the message is complete. The
    /// peer refuses a key whose region it did not register for that.
    SendInv {
        /// The peer's rkey.
        rkey: u32,
    },
    /// Writes the SGEs' bytes to the peer's memory; the peer's application does not notice.
    Write {
        /// Where to.
        remote: RemoteAddr,
    },
    /// As [`WrOp::Write`], and consumes a receive request to give the peer 32 bits.
    WriteImm {
        /// Where to.
        remote: RemoteAddr,
        /// The immediate data, in host order; big-endian on the wire.
        imm: u32,
    },
    /// Reads the peer's memory into the SGEs.
    Read {
        /// Where from.
        remote: RemoteAddr,
    },
    /// Adds to a 64-bit word of the peer, wrapping, exactly once. What the word was before lands
    /// in the SGEs, 8 bytes in this machine's order.
    FetchAdd {
        /// The word; the peer refuses an address that is no multiple of 8.
        remote: RemoteAddr,
        /// What is added.
        add: u64,
    },
    /// Replaces a 64-bit word of the peer if it is what is expected, exactly once. What the word
    /// was before lands in the SGEs, 8 bytes in this machine's order.
    CmpSwap {
        /// The word; the peer refuses an address that is no multiple of 8.
        remote: RemoteAddr,
        /// The value that the word must have.
        compare: u64,
        /// The value that it gets.
        swap: u64,
    },
}

/// A work request for the send queue.
#[derive(Clone, Copy, Debug)]
pub struct WorkRequest<'a> {
    /// The application's own number, given back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: WrOp,
    /// Local memory, gathered from (or for a READ or an atomic scattered to) in order. At most the
    /// queue pair's `max_send_sge`; together at most `Config::max_msg_bytes`, for an atomic 8.
    pub sges: &'a [Sge],
    /// Bytes sent instead of the SGEs', copied before the post returns: the memory may be used
    /// again at once and need not be registered. SENDs and WRITEs only, at most the queue pair's
    /// `max_inline_data`; `sges` must be empty then.
    pub inline: Option<&'a [u8]>,
    /// Give a completion on success. A failure always gives one.
    pub signaled: bool,
    /// Ask the peer to raise a solicited event (SEND, and WRITE with immediate).
    pub solicited: bool,
    /// Do not start before all earlier READs and atomics of this queue pair are complete.
    pub fence: bool,
}

impl<'a> WorkRequest<'a> {
    /// A signaled work request without further flags.
    #[must_use]
    pub fn new(wr_id: u64, op: WrOp, sges: &'a [Sge]) -> Self {
        let (signaled, solicited, fence) = (true, false, false);
        Self { wr_id, op, sges, inline: None, signaled, solicited, fence }
    }

    /// A signaled work request whose bytes are copied when it is posted.
    #[must_use]
    pub fn inline(wr_id: u64, op: WrOp, bytes: &'a [u8]) -> Self {
        Self { inline: Some(bytes), ..Self::new(wr_id, op, &[]) }
    }
}

/// A request for the receive queue: where the next SEND goes.
#[derive(Clone, Copy, Debug)]
pub struct RecvRequest<'a> {
    /// The application's own number, given back in the completion.
    pub wr_id: u64,
    /// Local memory, filled in order. At most the queue pair's `max_recv_sge`.
    pub sges: &'a [Sge],
}

/// Why a work request was not taken. Nothing was queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// No queue pair has this number (`EINVAL`).
    UnknownQp,
    /// The queue pair's state does not take this kind of request (`EINVAL`).
    BadState,
    /// The queue holds as many requests as it may (`ENOMEM`).
    QueueFull,
    /// More SGEs than the queue pair was created for (`EINVAL`).
    TooManySges,
    /// The message is longer than the device sends (`EINVAL`).
    TooLong,
    /// The SGEs of an atomic operation are not 8 bytes together (`EINVAL`).
    NotEightBytes,
    /// Inline data beside SGEs, for an operation that brings data back, or more of them than the
    /// queue pair was created for (`EINVAL`).
    BadInline,
    /// The queue pair takes its receive requests from a shared queue (`EINVAL`).
    UsesSrq,
    /// No shared receive queue has this number (`EINVAL`).
    UnknownSrq,
    /// An SGE is not inside a region of the queue pair's protection domain, or the region does not
    /// allow the access (`EINVAL`).
    BadSge,
}

/// Why an object could not be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateError {
    /// The configured number of such objects exists already; the field of
    /// [`Config`](crate::Config) that says so.
    Limit(&'static str),
    /// The protection domain does not exist.
    UnknownPd,
    /// The completion queue does not exist.
    UnknownCq,
    /// The shared receive queue does not exist.
    UnknownSrq,
    /// A requested capacity is zero where it may not be, or above its limit; the field.
    BadCapacity(&'static str),
    /// Remote write or atomic access needs local write access, as verbs demand.
    AccessWithoutLocalWrite,
    /// The region's addresses would wrap around the end of the address space.
    AddressWraps,
}

impl WrOp {
    /// The memory of the peer this names.
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

    /// The kind its completion names.
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

    /// True for what uses up a receive request of the peer's: what can be solicited.
    pub(crate) fn completes_a_receive(self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendImm { .. } | Self::SendInv { .. } | Self::WriteImm { .. }
        )
    }

    /// True for what only a response of its own completes, and what `max_rd_atomic` limits: READs
    /// and atomics.
    pub(crate) fn is_rd_atomic(self) -> bool {
        self.is_atomic() || matches!(self, Self::Read { .. })
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
            Self::BadSge => "a scatter-gather element is outside its memory region",
        })
    }
}

impl std::error::Error for PostError {}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(field) => write!(f, "no more than {field} may exist: raise it in Config"),
            Self::UnknownPd => f.write_str("no such protection domain"),
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
