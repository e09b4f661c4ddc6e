//! Values passed between the two directions of SR.

use crate::qp::remote::ReadRequest;
use spanwire_base::Dur;

/// The limits of delayed ACKs. The receiving direction applies them; the sending direction computes
/// them from the round trip that it measures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckDelay {
    /// Packets.
    pub(crate) pkts: u32,
    /// Time since the first unacknowledged packet.
    pub(crate) time: Dur,
}

/// A READ of the peer whose response is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadToRespond {
    /// The requester's number of the message.
    pub(crate) message: u32,
    /// The wire number of the request's packet.
    pub(crate) request_psn: u32,
    pub(crate) request: ReadRequest,
}

/// An executed atomic of the peer, whose response is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AtomicToRespond {
    /// The requester's number of the message.
    pub(crate) message: u32,
    /// The value of the word before the operation.
    pub(crate) original: u64,
}
