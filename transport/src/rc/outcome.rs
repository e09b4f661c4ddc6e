//! The responder's outcome of a request packet, which `on_request.rs` applies.

use super::ack::PendingAck;
use crate::drop::DropReason;
use crate::qp::outcome::Message;
use crate::wc::WcStatus;

/// The effect of a request packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestOutcome {
    /// Carried out. `message` is the message that it completed, if it did.
    Done { reply: Option<PendingAck>, message: Option<Message> },
    /// A READ is being answered: its responses acknowledge what came before it.
    ReadBegun,
    /// An atomic operation was carried out: its response acknowledges what came before it.
    AtomicDone,
    /// Seen before and not carried out again.
    Duplicate { reply: Option<PendingAck> },
    /// The first packet after a gap.
    Gap { reply: PendingAck },
    /// No receive request.
    NotReady { reply: PendingAck },
    /// The request breaks a rule: the queue pair fails after the NAK. With a status, the receive
    /// request at the head fails with it.
    Refused { reply: PendingAck, recv: Option<(u64, WcStatus)> },
    /// No effect.
    Drop(DropReason),
}
