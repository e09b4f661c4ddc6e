//! The completer: evaluates ACKs and responses against the requester, without changing it.

use super::request::Request;
use super::requester::{Requester, Unwrapped};
use crate::attr::Mtu;
use crate::drop::DropReason;
use crate::verbs::WrOp;
use crate::wc::WcStatus;
use spanwire_wire::{AethRepr, NakCode, Psn, Syndrome};

/// The outcome of an ACK or NAK. `upto` is one past the last unwrapped PSN that it acknowledges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AckOutcome {
    /// No effect.
    Drop(DropReason),
    /// Everything before `upto` has arrived. `lost_response`: the ACK is of a later packet than a
    /// READ or atomic whose responses are missing from that number on, so they were lost.
    Acked { upto: u64, lost_response: Option<u64> },
    /// Everything before `upto` has arrived, `upto` has not.
    SequenceError { upto: u64 },
    /// Everything before `upto` has arrived; `upto` found no receive request (RNR). `timer` is the
    /// 5-bit code of the time to wait.
    ReceiverNotReady { upto: u64, timer: u8 },
    /// Everything before `upto` has arrived; `upto` was refused with a fatal NAK.
    Refused { upto: u64, status: WcStatus },
}

/// The outcome of a READ response or an atomic's ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ResponseOutcome {
    /// No effect.
    Drop(DropReason),
    /// The responses from number `from` up to this one were lost.
    Gap { from: u64 },
    /// The payload belongs at byte `offset` of the request `wqe`; everything before `upto` has
    /// arrived.
    Place { wqe: usize, offset: u32, upto: u64 },
}

/// Checks an ACK or NAK.
///
/// A plain ACK never completes a READ or an atomic: rxe acknowledges duplicates with the newest
/// PSN, which may be an atomic's (capture 78). Responses leave in PSN order. An ACK of a later
/// packet therefore shows that the missing responses were lost.
pub(crate) fn check_ack(requester: &Requester, psn: Psn, aeth: &AethRepr) -> AckOutcome {
    let number = match requester.unwrap(psn) {
        Unwrapped::Outstanding(number) => number,
        Unwrapped::Stale => return AckOutcome::Drop(DropReason::StaleResponse),
        Unwrapped::BeyondSent => return check_beyond(requester, psn, aeth.syndrome),
    };
    let missing = requester.first_missing_response().filter(|m| *m <= number);
    match (aeth.syndrome, missing) {
        (Syndrome::Reserved(_), _) => AckOutcome::Drop(DropReason::BadSyndrome),
        (Syndrome::Ack { .. }, None) => AckOutcome::Acked { upto: number + 1, lost_response: None },
        (Syndrome::Ack { .. }, Some(m)) => AckOutcome::Acked { upto: m, lost_response: Some(m) },
        // A NAK is of `number` itself, so a READ that starts there has lost no response.
        (_, Some(m)) if m < number => AckOutcome::Acked { upto: m, lost_response: Some(m) },
        (Syndrome::RnrNak { timer }, _) => AckOutcome::ReceiverNotReady { upto: number, timer },
        (Syndrome::Nak(code), _) => check_nak(number, code),
    }
}

/// Checks an ACK or NAK of a PSN that was not sent. Only one case has an effect: a sequence NAK of
/// the next PSN acknowledges everything. A peer that has received everything sends it on a forged
/// packet further ahead, and it may have replaced an ACK.
fn check_beyond(requester: &Requester, psn: Psn, syndrome: Syndrome) -> AckOutcome {
    let sequence_error = syndrome == Syndrome::Nak(NakCode::SequenceError);
    match requester.next_unsent(psn).filter(|_| sequence_error) {
        None => AckOutcome::Drop(DropReason::ResponseBeyondSent),
        Some(next) => {
            let lost_response = requester.first_missing_response().filter(|m| *m < next);
            AckOutcome::Acked { upto: lost_response.unwrap_or(next), lost_response }
        }
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

/// Checks a READ response of `payload_len` bytes.
///
/// First, Middle, Last or Only in the opcode are ignored. rxe responds to a duplicate READ of a
/// tail with Middle or Last first, the specification with First. The position in the message
/// determines the payload's length.
pub(crate) fn check_response(
    requester: &Requester,
    psn: Psn,
    payload_len: u32,
    mtu: Mtu,
) -> ResponseOutcome {
    let (number, wqe, request) =
        match next_response(requester, psn, |op| matches!(op, WrOp::Read { .. })) {
            Err(outcome) => return outcome,
            Ok(found) => found,
        };
    let offset = request.offset_of(number, mtu);
    if payload_len != (request.wqe.len - offset).min(mtu.bytes()) {
        return ResponseOutcome::Drop(DropReason::BadResponseLength);
    }
    ResponseOutcome::Place { wqe, offset, upto: number + 1 }
}

/// Checks an atomic operation's ACK.
pub(crate) fn check_atomic_ack(
    requester: &Requester,
    psn: Psn,
    syndrome: Syndrome,
) -> ResponseOutcome {
    match next_response(requester, psn, WrOp::is_atomic) {
        Err(outcome) => outcome,
        Ok(_) if !matches!(syndrome, Syndrome::Ack { .. }) => {
            ResponseOutcome::Drop(DropReason::BadSyndrome)
        }
        Ok((number, wqe, _)) => ResponseOutcome::Place { wqe, offset: 0, upto: number + 1 },
    }
}

/// The request whose response is missing next, if `psn` belongs to that response: number, index,
/// request.
fn next_response(
    requester: &Requester,
    psn: Psn,
    is_kind: fn(WrOp) -> bool,
) -> Result<(u64, usize, &Request), ResponseOutcome> {
    let drop = |reason| Err(ResponseOutcome::Drop(reason));
    let number = match requester.unwrap(psn) {
        Unwrapped::Outstanding(number) => number,
        Unwrapped::Stale => return drop(DropReason::StaleResponse),
        Unwrapped::BeyondSent => return drop(DropReason::ResponseBeyondSent),
    };
    match (requester.first_missing_response(), requester.wqe_of(number)) {
        (Some(missing), Some((_, request))) if number < missing || !is_kind(request.wqe.op) => {
            drop(DropReason::ResponseToNothing)
        }
        (Some(missing), Some(_)) if number > missing => Err(ResponseOutcome::Gap { from: missing }),
        (Some(_), Some((wqe, request))) => Ok((number, wqe, request)),
        _ => drop(DropReason::ResponseToNothing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rc::requester::{Allowance, Next};
    use crate::verbs::{RemoteAddr, WorkRequest};

    const MTU: Mtu = Mtu::B256;
    const ACK: Syndrome = Syndrome::Ack { credits: 31 };

    /// Sent from PSN 10: a SEND of 2 packets, a READ of 3 (12, 13, 14), a SEND of 1 (15).
    /// PSN 16 is posted but was not sent.
    fn sent() -> Requester {
        let mut r = Requester::new(8, 1, 0);
        r.start(Psn::new(10), 4);
        let remote = RemoteAddr::default();
        for (op, len) in [(WrOp::Send, 512), (WrOp::Read { remote }, 600), (WrOp::Send, 1)] {
            r.post(&WorkRequest::new(0, op, &[]), len, MTU);
        }
        send_posted(&mut r);
        r.post(&WorkRequest::new(0, WrOp::Send, &[]), 1, MTU);
        r
    }

    /// Sends everything posted.
    fn send_posted(r: &mut Requester) {
        while let Next::Segment(s) = r.next(&Allowance::wide()) {
            r.advance(&s);
        }
    }

    fn ack(psn: u32, syndrome: Syndrome) -> AckOutcome {
        check_ack(&sent(), Psn::new(psn), &AethRepr { syndrome, msn: 0 })
    }

    fn acked(upto: u64, lost_response: Option<u64>) -> AckOutcome {
        AckOutcome::Acked { upto, lost_response }
    }

    #[test]
    fn check_ack__acknowledges_up_to_a_read_and_never_completes_it() {
        assert_eq!(ack(10, ACK), acked(1, None));
        assert_eq!(ack(11, ACK), acked(2, None));
        for psn in [12, 14, 15] {
            assert_eq!(ack(psn, ACK), acked(2, Some(2)), "{psn}");
        }
    }

    #[test]
    fn check_ack__drops_psns_not_outstanding_and_undefined_syndromes() {
        let drop = AckOutcome::Drop;
        assert_eq!(ack(9, ACK), drop(DropReason::StaleResponse));
        assert_eq!(ack(16, ACK), drop(DropReason::ResponseBeyondSent));
        let odd = [Syndrome::Reserved(0x40), Syndrome::Nak(NakCode::InvalidRd)];
        for syndrome in odd {
            assert_eq!(ack(10, syndrome), drop(DropReason::BadSyndrome));
        }
    }

    #[test]
    fn check_ack__a_nak_of_the_next_psn_acknowledges_everything_sent() {
        let nak = |code| Syndrome::Nak(code);
        assert_eq!(ack(16, nak(NakCode::SequenceError)), acked(2, Some(2)), "up to a READ");
        let mut r = sent();
        r.acknowledge(5);
        while r.pop_acked().is_some() {}
        let at = |r: &Requester, psn, syndrome| {
            check_ack(r, Psn::new(psn), &AethRepr { syndrome, msn: 0 })
        };
        assert_eq!(at(&r, 16, nak(NakCode::SequenceError)), acked(6, None));
        let drop = AckOutcome::Drop(DropReason::ResponseBeyondSent);
        for refusal in [nak(NakCode::RemoteAccess), Syndrome::RnrNak { timer: 1 }] {
            assert_eq!(at(&r, 16, refusal), drop, "nothing was refused yet");
        }
        assert_eq!(at(&r, 17, nak(NakCode::SequenceError)), drop);
        r.acknowledge(6);
        assert_eq!(at(&r, 16, nak(NakCode::SequenceError)), drop, "nothing is outstanding");
    }

    #[test]
    fn check_ack__a_nak_acknowledges_everything_before_its_psn() {
        let nak = |psn, code| ack(psn, Syndrome::Nak(code));
        let upto = 1;
        assert_eq!(nak(11, NakCode::SequenceError), AckOutcome::SequenceError { upto });
        let upto = 2;
        assert_eq!(nak(12, NakCode::SequenceError), AckOutcome::SequenceError { upto });
        assert_eq!(
            nak(13, NakCode::SequenceError),
            acked(2, Some(2)),
            "behind a READ without its responses"
        );
        let cases = [
            (NakCode::InvalidRequest, WcStatus::RemInvReqErr),
            (NakCode::RemoteAccess, WcStatus::RemAccessErr),
            (NakCode::RemoteOperational, WcStatus::RemOpErr),
        ];
        for (code, status) in cases {
            let upto = 1;
            assert_eq!(nak(11, code), AckOutcome::Refused { upto, status });
        }
        let (upto, timer) = (1, 9);
        assert_eq!(
            ack(11, Syndrome::RnrNak { timer }),
            AckOutcome::ReceiverNotReady { upto, timer }
        );
    }

    #[test]
    fn check_atomic_ack__completes_only_the_next_atomic() {
        use ResponseOutcome::{Drop, Gap, Place};
        let mut r = sent();
        let remote = RemoteAddr::default();
        // PSN 16 is the SEND that `sent` left unsent; then 17 and 18.
        for op in [WrOp::FetchAdd { remote, add: 1 }, WrOp::Read { remote }] {
            r.post(&WorkRequest::new(0, op, &[]), 8, MTU);
        }
        send_posted(&mut r);
        let at = |r: &Requester, psn| check_atomic_ack(r, Psn::new(psn), ACK);
        assert_eq!(at(&r, 17), Gap { from: 2 }, "the READ before it comes first");
        r.acknowledge(5);
        while r.pop_acked().is_some() {}
        let (wqe, offset, upto) = (2, 0, 8);
        assert_eq!(at(&r, 17), Place { wqe, offset, upto });
        assert_eq!(at(&r, 16), Drop(DropReason::ResponseToNothing));
        assert_eq!(at(&r, 18), Drop(DropReason::ResponseToNothing), "a READ is not an atomic");
        assert_eq!(at(&r, 19), Drop(DropReason::ResponseBeyondSent));
        let nak = check_atomic_ack(&r, Psn::new(17), Syndrome::Nak(NakCode::RemoteAccess));
        assert_eq!(nak, Drop(DropReason::BadSyndrome));
        let read = check_response(&r, Psn::new(17), 8, MTU);
        assert_eq!(read, Drop(DropReason::ResponseToNothing), "an atomic is not a READ");
        let plain = check_ack(&r, Psn::new(18), &AethRepr { syndrome: ACK, msn: 0 });
        assert_eq!(plain, acked(7, Some(7)), "a plain ACK never completes an atomic");
    }

    #[test]
    fn check_response__places_gaps_and_drops() {
        use ResponseOutcome::{Drop, Gap, Place};
        let r = sent();
        let at = |psn, len| check_response(&r, Psn::new(psn), len, MTU);
        let (wqe, offset, upto) = (1, 0, 3);
        assert_eq!(at(12, 256), Place { wqe, offset, upto });
        assert_eq!(at(12, 255), Drop(DropReason::BadResponseLength));
        assert_eq!(at(13, 256), Gap { from: 2 });
        assert_eq!(at(11, 256), Drop(DropReason::ResponseToNothing));
        assert_eq!(at(15, 256), Drop(DropReason::ResponseToNothing));
        assert_eq!(at(9, 256), Drop(DropReason::StaleResponse));
        assert_eq!(at(16, 256), Drop(DropReason::ResponseBeyondSent));
        let mut r = sent();
        r.acknowledge(4);
        let (wqe, offset, upto) = (1, 512, 5);
        assert_eq!(check_response(&r, Psn::new(14), 88, MTU), Place { wqe, offset, upto });
    }
}
