//! The responder's outcome of a request packet, which `on_request.rs` applies.

use super::ack::PendingAck;
use crate::drop::DropReason;
use crate::qp::outcome::Message;
use crate::wc::WcStatus;

/// The effect of a request packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestOutcome {
    /// Executed. `message` is the message that it completed, if any.
    Done { reply: Option<PendingAck>, message: Option<Message> },
    /// The response to a READ has begun; it acknowledges everything before it.
    ReadBegun,
    /// An atomic was executed; its response acknowledges everything before it.
    AtomicDone,
    /// A duplicate, not executed again.
    Duplicate { reply: Option<PendingAck> },
    /// The first packet after a gap: a sequence NAK.
    Gap { reply: PendingAck },
    /// No receive request: an RNR NAK.
    NotReady { reply: PendingAck },
    /// The request is refused: after a fatal NAK the queue pair fails. With a status, the receive
    /// request in use fails with it.
    Refused { reply: PendingAck, recv: Option<(u64, WcStatus)> },
    /// No effect.
    Drop(DropReason),
}
