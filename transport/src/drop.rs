//! Why a packet had no effect.

use spanwire_wire as wire;

/// Why the engine dropped a packet that may have been well-formed. Every drop has one reason and
/// every reason a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DropReason {
    /// It is not a RoCEv2 packet, or a broken one.
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
    /// An acknowledgement or response for what was acknowledged long ago.
    StaleResponse,
    /// An acknowledgement or response for a PSN that was never sent: forged, or the peer is broken.
    ResponseBeyondSent,
    /// A READ response or an atomic's acknowledgement for a PSN that asked for no such thing.
    ResponseToNothing,
    /// A READ response whose payload is not as long as its place in the message demands.
    BadResponseLength,
    /// An acknowledgement with a reserved syndrome or NAK code.
    BadSyndrome,
    /// A NAK or an RNR NAK that says again what recovery has already begun for.
    RepeatedNak,
    /// A READ response after a gap that recovery has already begun for.
    AfterResponseGap,
    /// A request beyond the expected PSN, after the one NAK that a gap gets.
    AfterSequenceGap,
    /// A duplicate READ that is not part of any READ still remembered.
    DuplicateReadForgotten,
    /// A duplicate atomic that is not remembered as it comes: carrying it out again is no option.
    DuplicateAtomicForgotten,
    /// SR: a packet at or above the advertised PSN limit. RC: a request further ahead of the
    /// expected PSN than our widest send window.
    BeyondPsnLimit,
    /// SR: a packet from before everything that its sender may still doubt.
    OldPacket,
    /// SR: something that is refused once everything before it has arrived, which it has not.
    RefusedAhead,
    /// A CNP: each in SR, whose ACKs carry the ECN counts; in RC one within a round trip of the
    /// last one that counted.
    IgnoredCnp,
}

impl DropReason {
    /// The reasons that are the engine's own, in the order of their counters.
    pub const OWN: [Self; 20] = [
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
        }
    }

    /// Place among [`DropReason::OWN`]; `None` for the wire's reasons.
    pub(crate) fn own_index(self) -> Option<usize> {
        Self::OWN.iter().position(|r| *r == self)
    }
}
