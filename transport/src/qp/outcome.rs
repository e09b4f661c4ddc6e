//! Outcomes of requests, which an engine returns and the completion queues report.

use crate::wc::WcOpcode;

/// A request removed from the send queue, with the fields of its completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Completed {
    pub(crate) wr_id: u64,
    pub(crate) opcode: WcOpcode,
    pub(crate) len: u32,
}

/// A complete message of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    /// The receive request that it consumed: number and completion opcode.
    pub(crate) recv: Option<(u64, WcOpcode)>,
    pub(crate) len: u32,
    pub(crate) imm: Option<u32>,
    pub(crate) invalidated_rkey: Option<u32>,
    pub(crate) solicited: bool,
}
