//! Work completions.

use spanwire_wire::Qpn;

/// What became of one work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wc {
    /// The application's number of the request.
    pub wr_id: u64,
    /// Success, or what went wrong.
    pub status: WcStatus,
    /// What was done. Meaningful whatever the status.
    pub opcode: WcOpcode,
    /// The local queue pair.
    pub qpn: Qpn,
    /// Bytes received (receive side) or read (READ); the message's length on the send side.
    pub byte_len: u32,
    /// Immediate data that came with a received message, in host order.
    pub imm: Option<u32>,
    /// The rkey of ours that a received SEND with invalidate took away.
    pub invalidated_rkey: Option<u32>,
    /// The sender asked for a solicited event.
    pub solicited: bool,
}

/// Status of a completion, with the names verbs give them (`IBV_WC_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WcStatus {
    /// Done.
    Success,
    /// A received message was longer than its receive request.
    LocLenErr,
    /// The queue pair could not do this (internal inconsistency).
    LocQpOpErr,
    /// A local SGE was not valid any more when it was used.
    LocProtErr,
    /// The queue pair went to the error state before this request was done.
    WrFlushErr,
    /// The peer sent a response that makes no sense. Never given: such a response is dropped and
    /// counted, since anybody can forge one.
    BadRespErr,
    /// Access to local memory was refused while receiving. Never given: as with rxe, a receive
    /// request whose memory is gone has [`WcStatus::LocProtErr`].
    LocAccessErr,
    /// The peer found the request invalid (NAK 0x61).
    RemInvReqErr,
    /// The peer refused access to its memory (NAK 0x62).
    RemAccessErr,
    /// The peer could not carry the request out (NAK 0x63).
    RemOpErr,
    /// The peer did not answer within the timeout, retry count times over.
    RetryExcErr,
    /// The peer had no receive request posted, RNR retry count times over.
    RnrRetryExcErr,
}

/// What kind of request a completion is of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WcOpcode {
    /// A SEND, with or without immediate.
    Send,
    /// An RDMA WRITE, with or without immediate.
    RdmaWrite,
    /// An RDMA READ.
    RdmaRead,
    /// An atomic fetch-and-add.
    FetchAdd,
    /// An atomic compare-and-swap.
    CompSwap,
    /// A received SEND.
    Recv,
    /// A received WRITE with immediate.
    RecvRdmaWithImm,
}

impl WcStatus {
    /// The standard name without its `IBV_WC_` prefix, e.g. `RETRY_EXC_ERR`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "SUCCESS",
            Self::LocLenErr => "LOC_LEN_ERR",
            Self::LocQpOpErr => "LOC_QP_OP_ERR",
            Self::LocProtErr => "LOC_PROT_ERR",
            Self::WrFlushErr => "WR_FLUSH_ERR",
            Self::BadRespErr => "BAD_RESP_ERR",
            Self::LocAccessErr => "LOC_ACCESS_ERR",
            Self::RemInvReqErr => "REM_INV_REQ_ERR",
            Self::RemAccessErr => "REM_ACCESS_ERR",
            Self::RemOpErr => "REM_OP_ERR",
            Self::RetryExcErr => "RETRY_EXC_ERR",
            Self::RnrRetryExcErr => "RNR_RETRY_EXC_ERR",
        }
    }

    /// The number verbs give this status (`enum ibv_wc_status`).
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::LocLenErr => 1,
            Self::LocQpOpErr => 2,
            Self::LocProtErr => 4,
            Self::WrFlushErr => 5,
            Self::BadRespErr => 7,
            Self::LocAccessErr => 8,
            Self::RemInvReqErr => 9,
            Self::RemAccessErr => 10,
            Self::RemOpErr => 11,
            Self::RetryExcErr => 12,
            Self::RnrRetryExcErr => 13,
        }
    }
}
