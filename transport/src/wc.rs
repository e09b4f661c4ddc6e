//! Work completions.

use spanwire_wire::Qpn;

/// A work completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wc {
    /// The application's identifier of the request.
    pub wr_id: u64,
    /// Success or the error.
    pub status: WcStatus,
    /// The operation, valid for every status.
    pub opcode: WcOpcode,
    /// The local queue pair.
    pub qpn: Qpn,
    /// Bytes received (receive side) or read (READ); the message's length on the send side.
    pub byte_len: u32,
    /// Immediate data of a received message, in host order.
    pub imm: Option<u32>,
    /// The local rkey that a received SEND with invalidate invalidated.
    pub invalidated_rkey: Option<u32>,
    /// The message requested a solicited event.
    pub solicited: bool,
}

/// Status of a completion, named as in verbs (`IBV_WC_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WcStatus {
    /// Success.
    Success,
    /// A received message was longer than its receive request.
    LocLenErr,
    /// Internal inconsistency of the queue pair.
    LocQpOpErr,
    /// A local SGE was no longer valid when it was used.
    LocProtErr,
    /// Flushed: the queue pair failed before this request completed.
    WrFlushErr,
    /// An invalid response. Never used: such a response is dropped and counted, since it may be
    /// forged.
    BadRespErr,
    /// Access to local memory was refused on reception. Never used: as in rxe, a receive request
    /// whose memory is no longer registered has [`WcStatus::LocProtErr`].
    LocAccessErr,
    /// The peer found the request invalid (NAK 0x61).
    RemInvReqErr,
    /// The peer refused access to its memory (NAK 0x62).
    RemAccessErr,
    /// The peer could not execute the request (NAK 0x63).
    RemOpErr,
    /// The timeout expired more often than the retry count allows.
    RetryExcErr,
    /// The peer sent more RNR NAKs than the RNR retry count allows.
    RnrRetryExcErr,
}

/// The operation of a completion.
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

    /// The value of `enum ibv_wc_status`.
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
