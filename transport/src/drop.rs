//! Reasons for dropping a packet.

use spanwire_wire as wire;

/// The reason why the engine dropped a packet. Every drop has one reason and every reason a
/// counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DropReason {
    /// The frame is not a valid RoCEv2 packet.
    Wire(wire::DropReason),
    /// No queue pair has the destination QPN.
    UnknownQpn,
    /// The addresses are not those of the queue pair's peer and its own (rxe checks the same).
    WrongPeer,
    /// The partition key is neither 0xFFFF nor 0x7FFF.
    BadPkey,
    /// The opcode belongs to another transport service (UC, UD) than the queue pair's.
    WrongService,
    /// A request arrived before the queue pair was ready to receive, or after it failed.
    QpNotReceiving,
    /// A response arrived while the queue pair is not sending.
    QpNotSending,
    /// An ACK or response for packets acknowledged before.
    StaleResponse,
    /// An ACK or response for a PSN that was never sent: forged, or the peer is faulty.
    ResponseBeyondSent,
    /// A READ response or an atomic's ACK for a PSN of another type of request.
    ResponseToNothing,
    /// A READ response whose payload length does not match its position in the message.
    BadResponseLength,
    /// An acknowledgement with a reserved syndrome or NAK code.
    BadSyndrome,
    /// A repeated NAK or RNR NAK: loss recovery of that PSN has already begun.
    RepeatedNak,
    /// A READ response after a gap whose loss recovery has already begun.
    AfterResponseGap,
    /// A request beyond the expected PSN, after the one NAK of its gap.
    AfterSequenceGap,
    /// A duplicate READ that no responder resource covers.
    DuplicateReadForgotten,
    /// A duplicate atomic that no responder resource holds: it must not be executed again.
    DuplicateAtomicForgotten,
    /// SR: a packet at or above the advertised PSN limit. RC: a request further ahead of the
    /// expected PSN than our widest send window.
    BeyondPsnLimit,
    /// SR: a packet older than any that its sender may still retransmit.
    OldPacket,
    /// SR: an invalid packet after a gap: it is refused in order, once everything before it has
    /// arrived. A response whose local memory may not be accessed, while earlier requests are
    /// incomplete.
    RefusedAhead,
    /// An ignored CNP: all in SR, whose ACKs carry ECN counts; in RC those within a round trip, or
    /// the spacing of the congestion control, of the last accepted one.
    IgnoredCnp,
    /// SR: feedback of a switch that was not requested, about a packet that is not in flight, or
    /// with another time than that of its latest transmission.
    NearStale,
}

impl DropReason {
    /// The engine's own reasons, in the order of their counters.
    pub const OWN: [Self; 21] = [
        Self::UnknownQpn,
        Self::WrongPeer,
        Self::BadPkey,
        Self::WrongService,
        Self::QpNotReceiving,
        Self::QpNotSending,
        Self::StaleResponse,
        Self::ResponseBeyondSent,
        Self::ResponseToNothing,
        Self::BadResponseLength,
        Self::BadSyndrome,
        Self::RepeatedNak,
        Self::AfterResponseGap,
        Self::AfterSequenceGap,
        Self::DuplicateReadForgotten,
        Self::DuplicateAtomicForgotten,
        Self::BeyondPsnLimit,
        Self::OldPacket,
        Self::RefusedAhead,
        Self::IgnoredCnp,
        Self::NearStale,
    ];

    /// Name of the counter, in snake case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Wire(reason) => reason.name(),
            Self::UnknownQpn => "unknown_qpn",
            Self::WrongPeer => "wrong_peer",
            Self::BadPkey => "bad_pkey",
            Self::WrongService => "wrong_service",
            Self::QpNotReceiving => "qp_not_receiving",
            Self::QpNotSending => "qp_not_sending",
            Self::StaleResponse => "stale_response",
            Self::ResponseBeyondSent => "response_beyond_sent",
            Self::ResponseToNothing => "response_to_nothing",
            Self::BadResponseLength => "bad_response_length",
            Self::BadSyndrome => "bad_syndrome",
            Self::RepeatedNak => "repeated_nak",
            Self::AfterResponseGap => "after_response_gap",
            Self::AfterSequenceGap => "after_sequence_gap",
            Self::DuplicateReadForgotten => "duplicate_read_forgotten",
            Self::DuplicateAtomicForgotten => "duplicate_atomic_forgotten",
            Self::BeyondPsnLimit => "beyond_psn_limit",
            Self::OldPacket => "old_packet",
            Self::RefusedAhead => "refused_ahead",
            Self::IgnoredCnp => "ignored_cnp",
            Self::NearStale => "near_stale",
        }
    }

    /// Index in [`DropReason::OWN`]; `None` for reasons of the wire crate.
    pub(crate) fn own_index(self) -> Option<usize> {
        Self::OWN.iter().position(|r| *r == self)
    }
}
