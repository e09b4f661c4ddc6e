//! The completer: what a response means for what was sent. Reads the requester, changes nothing.

use crate::attr::Mtu;
use crate::drop::DropReason;
use crate::qp::requester::{Requester, Unwrapped};
use crate::wc::WcStatus;
use spanwire_wire::{AethRepr, NakCode, Psn, Syndrome};

/// What an acknowledgement packet says. `upto` is one past the last unwrapped PSN it acknowledges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AckOutcome {
    /// Nothing.
    Drop(DropReason),
    /// All before `upto` arrived. With `lost_response`, it jumped over a READ whose responses must
    /// therefore have been lost from that number on.
    Acked {
        upto: u64,
        lost_response: Option<u64>,
    },
    /// All before `upto` arrived, `upto` itself did not.
    SequenceError { upto: u64 },
    /// All before `upto` arrived; `upto` found no receive request. Try again after the time that
    /// the 5-bit code says.
    ReceiverNotReady { upto: u64, timer: u8 },
    /// All before `upto` arrived; `upto` was refused for good.
    Refused { upto: u64, status: WcStatus },
}

/// What a READ response says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ResponseOutcome {
    /// Nothing.
    Drop(DropReason),
    /// Responses from number `from` up to this one were lost.
    Gap { from: u64 },
    /// Its payload belongs at byte `offset` of the request `wqe`; all before `upto` arrived.
    Place { wqe: usize, offset: u32, upto: u64 },
}

/// Judges an ACK or NAK.
///
/// A plain ACK never completes a READ: rxe acknowledges duplicates with the newest PSN, which may
/// be a READ's (capture 78). When it reaches past one, the READ's responses were lost, since
/// responses leave in the order of their PSNs.
pub(crate) fn check_ack(requester: &Requester, psn: Psn, aeth: &AethRepr) -> AckOutcome {
    let number = match requester.unwrap(psn) {
        Unwrapped::Outstanding(number) => number,
        Unwrapped::Stale => return AckOutcome::Drop(DropReason::StaleResponse),
        Unwrapped::BeyondSent => return AckOutcome::Drop(DropReason::ResponseBeyondSent),
    };
    let missing = requester.first_missing_response().filter(|m| *m <= number);
    match (aeth.syndrome, missing) {
        (Syndrome::Reserved(_), _) => AckOutcome::Drop(DropReason::BadSyndrome),
        (Syndrome::Ack { .. }, None) => AckOutcome::Acked {
            upto: number + 1,
            lost_response: None,
        },
        (Syndrome::Ack { .. }, Some(m)) => AckOutcome::Acked {
            upto: m,
            lost_response: Some(m),
        },
        // A NAK speaks for `number` itself, so a READ that starts right there is not jumped over.
        (_, Some(m)) if m < number => AckOutcome::Acked {
            upto: m,
            lost_response: Some(m),
        },
        (Syndrome::RnrNak { timer }, _) => AckOutcome::ReceiverNotReady {
            upto: number,
            timer,
        },
        (Syndrome::Nak(code), _) => check_nak(number, code),
    }
}

fn check_nak(upto: u64, code: NakCode) -> AckOutcome {
    let refused = |status| AckOutcome::Refused { upto, status };
    match code {
        NakCode::SequenceError => AckOutcome::SequenceError { upto },
        NakCode::InvalidRequest => refused(WcStatus::RemInvReqErr),
        NakCode::RemoteAccess => refused(WcStatus::RemAccessErr),
        NakCode::RemoteOperational => refused(WcStatus::RemOpErr),
        NakCode::InvalidRd => AckOutcome::Drop(DropReason::BadSyndrome),
    }
}

/// Judges a READ response of `payload_len` bytes.
///
/// The opcode's First, Middle, Last or Only is not looked at: rxe answers a repeated tail with
/// Middle or Last first, the specification with First; the place in the message decides how long
/// the payload must be.
pub(crate) fn check_response(
    requester: &Requester,
    psn: Psn,
    payload_len: u32,
    mtu: Mtu,
) -> ResponseOutcome {
    let number = match requester.unwrap(psn) {
        Unwrapped::Outstanding(number) => number,
        Unwrapped::Stale => return ResponseOutcome::Drop(DropReason::StaleResponse),
        Unwrapped::BeyondSent => return ResponseOutcome::Drop(DropReason::ResponseBeyondSent),
    };
    let nothing = ResponseOutcome::Drop(DropReason::ResponseToNothing);
    let Some(missing) = requester.first_missing_response() else {
        return nothing;
    };
    let Some((wqe, request)) = requester.wqe_of(number) else {
        return nothing;
    };
    if number < missing || !request.op.is_read() {
        return nothing;
    }
    if number > missing {
        return ResponseOutcome::Gap { from: missing };
    }
    let offset = request.offset_of(number, mtu);
    if payload_len != (request.len - offset).min(mtu.bytes()) {
        return ResponseOutcome::Drop(DropReason::BadResponseLength);
    }
    ResponseOutcome::Place {
        wqe,
        offset,
        upto: number + 1,
    }
}
