//! How a request of either side ended: an engine returns it, the queue pair's completion queues
//! report it.

use crate::verbs::WrOp;
use crate::wc::WcOpcode;

/// A request taken from the send queue, as its completion reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Completed {
    pub(crate) wr_id: u64,
    pub(crate) op: WrOp,
    pub(crate) len: u32,
}

/// A message of the peer that is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    /// The receive request it consumed: number and kind of completion.
    pub(crate) recv: Option<(u64, WcOpcode)>,
    pub(crate) len: u32,
    pub(crate) imm: Option<u32>,
    pub(crate) invalidated_rkey: Option<u32>,
    pub(crate) solicited: bool,
}
