//! The values that cross between the two directions of SR.

use crate::qp::remote::ReadRequest;
use spanwire_base::Dur;

/// The limits of delaying an acknowledgement: the receiver applies them, the sender knows the round
/// trip that they follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckDelay {
    /// Packets.
    pub(crate) pkts: u32,
    /// Time since the first packet that is not acknowledged.
    pub(crate) time: Dur,
}

/// A READ of the peer that is to be responded to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadToRespond {
    /// The requester's number of the message.
    pub(crate) message: u32,
    /// The wire's number of the request's packet.
    pub(crate) request_psn: u32,
    pub(crate) request: ReadRequest,
}

/// An atomic of the peer that was executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AtomicToRespond {
    /// The requester's number of the message.
    pub(crate) message: u32,
    /// The word before the operation.
    pub(crate) original: u64,
}
