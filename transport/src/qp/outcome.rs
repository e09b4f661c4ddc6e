//! What a request packet led to: the responder says it, the queue pair applies it.

use super::ack::Owed;
use super::requester::Wqe;
use crate::drop::DropReason;
use crate::verbs::WrOp;
use crate::wc::{WcOpcode, WcStatus};

/// What a request packet led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestOutcome {
    /// Carried out. `message` is the message that it completed, if it did.
    Done { reply: Option<Owed>, message: Option<Message> },
    /// A READ is being answered: earlier acknowledgements are said by its responses.
    ReadBegun,
    /// An atomic operation was carried out: its response says earlier acknowledgements as well.
    AtomicDone,
    /// Seen before and not carried out again.
    Duplicate { reply: Option<Owed> },
    /// The first packet after a gap.
    Gap { reply: Owed },
    /// No receive request.
    NotReady { reply: Owed },
    /// The request breaks a rule: the queue pair fails after saying so. With a status, the receive
    /// request at the head fails with it.
    Refused { reply: Owed, recv: Option<(u64, WcStatus)> },
    /// No effect.
    Drop(DropReason),
}

/// A send request that is over, as its completion tells of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Over {
    pub(crate) wr_id: u64,
    pub(crate) op: WrOp,
    pub(crate) len: u32,
}

impl From<&Wqe> for Over {
    fn from(wqe: &Wqe) -> Self {
        Self { wr_id: wqe.wr_id, op: wqe.op, len: wqe.len }
    }
}

/// A message that is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    /// The receive request it consumed: number and kind of completion.
    pub(crate) recv: Option<(u64, WcOpcode)>,
    pub(crate) len: u32,
    pub(crate) imm: Option<u32>,
    pub(crate) invalidated_rkey: Option<u32>,
    pub(crate) solicited: bool,
}
