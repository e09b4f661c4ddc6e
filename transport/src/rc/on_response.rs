//! Applies the completer's outcome of a response: acknowledged requests complete, lost ones are
//! retransmitted, refused ones fail.

use super::Rc;
use super::completer::{AckOutcome, ResponseOutcome, check_ack, check_atomic_ack, check_response};
use super::loss::TimerEvent;
use crate::drop::DropReason;
use crate::payload::Payload;
use crate::qp::common::{Common, Shared};
use crate::qp::fail::Fail;
use crate::wc::WcStatus;
use spanwire_base::Time;
use spanwire_cc::LossKind;
use spanwire_wire::Packet;

impl Rc {
    pub(super) fn on_ack(
        &mut self,
        qp: &mut Common,
        now: Time,
        p: &Packet<'_>,
        sh: &mut Shared,
    ) -> Result<(), DropReason> {
        let Some(aeth) = p.ext.aeth else {
            return Err(DropReason::BadSyndrome);
        };
        match check_ack(&self.requester, p.bth.psn, &aeth) {
            AckOutcome::Drop(reason) => return Err(reason),
            AckOutcome::Acked { upto, lost_response } => {
                self.acknowledge(qp, now, upto, sh);
                if let Some(from) = lost_response {
                    return self.recover_response(qp, now, from, sh);
                }
            }
            AckOutcome::SequenceError { upto } => {
                self.acknowledge(qp, now, upto, sh);
                if !self.loss.begin_recovery(upto) {
                    return Err(DropReason::RepeatedNak);
                }
                sh.counters.packet_seq_err += 1;
                self.report_loss(qp, now, upto, LossKind::Recovery);
                self.rewind(upto);
            }
            AckOutcome::ReceiverNotReady { upto, timer } => {
                self.acknowledge(qp, now, upto, sh);
                if upto >= self.requester.snd_nxt() {
                    // Not retransmitted since the rewind, so this RNR NAK is of an earlier
                    // transmission.
                    return Err(DropReason::RepeatedNak);
                }
                match self.loss.on_rnr(now, upto, timer) {
                    TimerEvent::Exhausted => self.fail_oldest(qp, WcStatus::RnrRetryExcErr, sh),
                    TimerEvent::Retransmit => {
                        sh.counters.rnr_nak_retry_err += 1;
                        self.rewind(upto);
                    }
                    TimerEvent::Nothing | TimerEvent::Resume => {
                        return Err(DropReason::RepeatedNak);
                    }
                }
            }
            AckOutcome::Refused { upto, status } => {
                self.acknowledge(qp, now, upto, sh);
                self.fail_oldest(qp, status, sh);
            }
        }
        Ok(())
    }

    pub(super) fn on_read_response(
        &mut self,
        qp: &mut Common,
        now: Time,
        p: &Packet<'_>,
        sh: &mut Shared,
    ) -> Result<(), DropReason> {
        let data = Payload::of(p);
        let outcome = check_response(&self.requester, p.bth.psn, data.len(), qp.mtu);
        self.on_response(qp, now, outcome, data, sh)
    }

    pub(super) fn on_atomic_ack(
        &mut self,
        qp: &mut Common,
        now: Time,
        p: &Packet<'_>,
        sh: &mut Shared,
    ) -> Result<(), DropReason> {
        let (Some(aeth), Some(found)) = (p.ext.aeth, p.ext.atomic_ack) else {
            return Err(DropReason::BadSyndrome);
        };
        let outcome = check_atomic_ack(&self.requester, p.bth.psn, aeth.syndrome);
        // In verbs, the word has this machine's byte order.
        let word = found.original.to_ne_bytes();
        self.on_response(qp, now, outcome, Payload::Bytes(&word), sh)
    }

    /// Places the data of a response into the SGEs of its request.
    pub(super) fn on_response(
        &mut self,
        qp: &mut Common,
        now: Time,
        outcome: ResponseOutcome,
        data: Payload<'_>,
        sh: &mut Shared,
    ) -> Result<(), DropReason> {
        match outcome {
            ResponseOutcome::Drop(reason) => Err(reason),
            ResponseOutcome::Gap { from } => {
                // A response acknowledges everything before the first missing one.
                self.acknowledge(qp, now, from, sh);
                self.recover_response(qp, now, from, sh)
            }
            ResponseOutcome::Place { wqe, offset, upto } => {
                if !self.requester.scatter(wqe, offset, data, (qp.pd, &sh.mrs)) {
                    self.acknowledge(qp, now, upto - 1, sh);
                    self.fail_oldest(qp, WcStatus::LocProtErr, sh);
                    return Ok(());
                }
                self.acknowledge(qp, now, upto, sh);
                Ok(())
            }
        }
    }

    /// The responses from `from` on are lost: requests them again, once.
    fn recover_response(
        &mut self,
        qp: &mut Common,
        now: Time,
        from: u64,
        sh: &mut Shared,
    ) -> Result<(), DropReason> {
        if !self.loss.begin_recovery(from) {
            return Err(DropReason::AfterResponseGap);
        }
        sh.counters.implied_nak_seq_err += 1;
        self.report_loss(qp, now, from, LossKind::Recovery);
        self.rewind(from);
        Ok(())
    }

    /// Applies an acknowledgement of everything before `upto`.
    pub(super) fn acknowledge(&mut self, qp: &mut Common, now: Time, upto: u64, sh: &mut Shared) {
        if upto <= self.requester.snd_una() {
            return;
        }
        let (before, una) = (self.requester.in_flight_pkts(), self.requester.snd_una());
        self.requester.acknowledge(upto);
        self.loss.on_progress(now, self.requester.has_outstanding());
        qp.on_path_acked(now, upto, None, &mut sh.counters);
        let arrival = qp.arrival;
        let timed = self.rtt.on_acked(arrival.at, upto);
        if let Some(flow) = qp.flow.as_deref_mut() {
            let of = (qp.mtu, &*sh.config);
            self.report_ack(flow, of, (now, arrival), (una, upto), before, timed);
        }
        while let Some(request) = self.requester.pop_acked() {
            if request.wqe.signaled {
                let status = WcStatus::Success;
                let completed = qp.complete_send(&request.wqe.completed(), status, sh);
                self.fail_if_overrun(qp, completed, sh);
            }
        }
        self.report_drained(qp, sh);
    }

    pub(super) fn rewind(&mut self, to: u64) {
        self.requester.rewind(to);
        self.rtt.on_rewind();
    }
}
