//! What an acknowledgement changes: what has arrived, what is lost, what may be sent, which
//! requests are over.

use super::paths::Echo;
use super::sender::Sender;
use super::{Part, Selective};
use crate::counters::Counters;
use crate::drop::DropReason;
use crate::qp::flow::{Flow, Progress};
use crate::qp::{QueuePair, Shared};
use crate::stream::margin::Arrivals;
use crate::stream::received::unwrap;
use crate::stream::sent::{Acked, Told};
use crate::wc::WcStatus;
use spanwire_base::{Dur, Time};
use spanwire_cc::LossKind;
use spanwire_loadbalance as lb;
use spanwire_wire::{AckReason, NakCode, Packet, SrAckRepr};

impl QueuePair {
    pub(super) fn on_sr_ack(
        &mut self,
        now: Time,
        p: &Packet<'_>,
        sh: &mut Shared<'_>,
    ) -> Result<(), DropReason> {
        let ack = SrAckRepr::parse(p.bth.psn.get(), p.payload).map_err(DropReason::Wire)?;
        let sr = self.selective.as_deref_mut().ok_or(DropReason::WrongService)?;
        let refused = match ack.refusal {
            None => None,
            // Looked up first: what is acknowledged is forgotten.
            Some(r) => Some((sr.message_of(r.psn), status_of(r.code)?)),
        };
        let gives_up = sr.on_ack(now, &ack, sh.counters, self.flow.as_deref_mut())?;
        let lag = sr.lag();
        match refused {
            Some((Some(message), status)) => {
                self.finish_requests(Some(message), sh);
                self.fail_message(message, status, sh);
            }
            Some((None, _)) => {
                // The answer that the peer cannot give again is here: it only has not heard so.
                sr.feedback.ask_again(now, lag);
                self.finish_requests(None, sh);
            }
            None => self.finish_requests(None, sh),
        }
        if gives_up {
            self.fail_oldest(WcStatus::RnrRetryExcErr, sh);
        }
        Ok(())
    }

    /// Completes requests that are done, from the oldest on, up to the message `before`.
    pub(super) fn finish_requests(&mut self, before: Option<u32>, sh: &mut Shared<'_>) {
        while let Some(sr) = self.selective.as_deref_mut() {
            if before.is_some() && sr.sender.oldest() == before {
                break;
            }
            let Some((over, signaled)) = sr.sender.pop_done(sr.sent.due()) else {
                break;
            };
            if signaled {
                let wc = self.send_wc(&over, WcStatus::Success);
                self.complete(self.send_cq, wc, sh);
            }
        }
        self.tell_if_drained(sh);
    }

    /// Fails a message with its own status, and the queue pair. Requests before it that are not
    /// done are flushed rather than waited for.
    pub(super) fn fail_message(&mut self, message: u32, status: WcStatus, sh: &mut Shared<'_>) {
        loop {
            let oldest = self.selective.as_ref().and_then(|sr| sr.sender.oldest());
            if oldest.is_none_or(|oldest| oldest == message) {
                break;
            }
            self.flush_one(sh);
        }
        self.fail_oldest(status, sh);
    }
}

impl Selective {
    /// Applies an acknowledgement. True when the peer has had no receive request once too often.
    fn on_ack(
        &mut self,
        now: Time,
        ack: &SrAckRepr<'_>,
        counters: &mut Counters,
        mut flow: Option<&mut Flow>,
    ) -> Result<bool, DropReason> {
        let echo = Time::from_ps(ack.echo_ps);
        if echo > now {
            return Err(DropReason::ResponseBeyondSent);
        }
        let (words, blocks) = (ack.words.as_slice(), ack.blocks.as_slice());
        let marks = self.marks(ack);
        let (next, newest) = (ack.next, ack.newest);
        let patience = self.sent.patience(&self.rtt).filter(|_| !blocks.is_empty());
        let overdue = patience.map_or(Time::ZERO, |patience| now - patience);
        let audible = now - self.rtt.smallest();
        let told = Told { next, words, newest, echo, blocks, overdue, audible, marks };
        let before = *self.sent.counters();
        let inflight_bytes = self.sent.in_flight_bytes();
        let acked = self.sent.on_ack(&told).map_err(|_| DropReason::ResponseBeyondSent)?;
        if ack.hold_ns != u32::MAX {
            let (trip, hold) = (now.since(echo), Dur::from_ns(ack.hold_ns.into()));
            // What comes once more has others as its witness: without a newer count it is this
            // acknowledgement that is late.
            if acked.late && (!acked.again || self.credit.is_news(ack.rx_pkts)) {
                let late_by = Dur::from_ps(trip.as_ps().saturating_sub(hold.as_ps()));
                let fastest = self.rtt.smallest().as_ps();
                self.sent.widen_to(Dur::from_ps(late_by.as_ps().saturating_sub(fastest)));
            }
            // One that tells nothing new may have been held for any length of time.
            if acked.pkts > 0 {
                self.rtt.sample(trip, hold);
            }
        }
        if let Some(flow) = flow.as_deref_mut().filter(|_| acked.pkts > 0) {
            self.tell_flow(now, ack, &acked, inflight_bytes, flow);
        }
        if !blocks.is_empty() {
            self.tell_of_blocks(now, &acked, counters, flow.as_deref_mut());
        }
        let gives_up = self.take_limits(ack, echo, counters);
        let arrivals = Arrivals {
            echo,
            transmissions: self.sent.transmissions(),
            received: ack.rx_pkts,
            is_last: acked.pkts > 0 && self.sent.in_flight_pkts() == 0,
        };
        self.timers.margin.on_ack(now, &self.rtt, &arrivals);
        if self.timers.on_heard(now, echo, true) {
            self.sent.find_all();
            counters.spurious_timeouts += 1;
        }
        let found = *self.sent.counters();
        counters.presumed_lost_packets += found.presumed_lost - before.presumed_lost;
        counters.spurious_lost_packets += found.spurious_lost - before.spurious_lost;
        counters.spurious_retransmits += found.spurious - before.spurious;
        if !self.waits_for_peer() || self.timers_may_rest() {
            self.timers.stop();
        }
        self.find_lost(now, counters, flow);
        self.tell_paths(now, Some(Echo::of(now, ack)), lb::LossKind::Overdue);
        if self.recovery.is_some_and(|end| self.sent.una() >= end) {
            self.recovery = None;
            self.sent.recovered();
        }
        Ok(gives_up)
    }

    /// Finds what is lost by time.
    pub(super) fn find_lost(
        &mut self,
        now: Time,
        counters: &mut Counters,
        mut flow: Option<&mut Flow>,
    ) {
        let found = self.sent.detect(now, &self.rtt);
        self.look_at = found.look_at;
        counters.presumed_lost_packets += found.pkts;
        self.on_coded_loss(now, found.coded_pkts, found.coded_bytes, flow.as_deref_mut());
        if found.pkts > found.coded_pkts && self.recovery.is_none() {
            self.recovery = Some(self.sent.next());
            if let Some(flow) = flow {
                let inflight_bytes = self.sent.in_flight_bytes();
                flow.on_loss(now, LossKind::Recovery, found.bytes, inflight_bytes);
            }
        }
    }

    /// Packets of blocks were lost, which nobody waits for.
    fn on_coded_loss(&mut self, now: Time, pkts: u64, bytes: u64, flow: Option<&mut Flow>) {
        if pkts == 0 {
            return;
        }
        if let Some(coder) = &mut self.coder {
            coder.on_lost(pkts);
        }
        if let Some(flow) = flow {
            flow.on_loss(now, LossKind::Block, bytes, self.sent.in_flight_bytes());
        }
    }

    /// Which packets came marked, if somebody chooses paths: bit i is the newest less i.
    #[inline]
    fn marks(&mut self, ack: &SrAckRepr<'_>) -> u64 {
        self.paths.as_mut().map_or(0, |paths| paths.marks(ack))
    }

    /// Counts, and tells congestion control, what reports of blocks say.
    #[inline(never)]
    fn tell_of_blocks(
        &mut self,
        now: Time,
        acked: &Acked,
        counters: &mut Counters,
        flow: Option<&mut Flow>,
    ) {
        let (short, settled) = (acked.short, acked.settled);
        counters.ec_settled_packets += settled.pkts;
        counters.ec_short_packets += short.pkts;
        let (pkts, bytes) = (short.pkts + settled.pkts, short.bytes + settled.bytes);
        self.on_coded_loss(now, pkts, bytes, flow);
    }

    /// Tells congestion control what an acknowledgement says. The peer counts whole packets: of
    /// what is new the same part is marked as of what it has counted since.
    #[inline(never)]
    fn tell_flow(
        &mut self,
        now: Time,
        ack: &SrAckRepr<'_>,
        acked: &Acked,
        inflight_bytes: u64,
        flow: &mut Flow,
    ) {
        let (rx, ce) = std::mem::replace(&mut self.counted, (ack.rx_bytes, ack.ce_bytes));
        let (rx, ce) = (ack.rx_bytes.wrapping_sub(rx), ack.ce_bytes.wrapping_sub(ce));
        // An older one than the last counts backwards, and a liar as it likes.
        let marked = if ce <= rx && rx > 0 && rx < 1 << 63 {
            u128::from(acked.bytes) * u128::from(ce) / u128::from(rx)
        } else {
            0
        };
        let echo = Time::from_ps(ack.echo_ps);
        let progress = Progress {
            acked_bytes: acked.bytes,
            acked_pkts: acked.pkts,
            marked_bytes: u64::try_from(marked).unwrap_or(acked.bytes),
            rtt: (ack.hold_ns != u32::MAX).then(|| now.since(echo)),
            remote_hold: Dur::from_ns(ack.hold_ns.into()),
            sent_at: echo,
            number: acked.newest,
            una: self.sent.una(),
            next: self.sent.next(),
            again: acked.was_lost,
            inflight_bytes,
            path: ack.path,
            at_send: acked.at_send,
            hops: match ack.hop_limit {
                0 => None,
                left => self.hop_limit.checked_sub(left),
            },
            // What nobody asked for has not been agreed to.
            int: if self.int_hops > 0 { ack.int } else { &[] },
        };
        flow.on_ack(now, &progress);
    }

    /// What is lost waits for a receive request: the silence that follows is nobody's fault.
    fn timers_may_rest(&mut self) -> bool {
        if !self.has_nothing_out() {
            return false;
        }
        let (sender, limit) = (&self.sender, self.credit.receive_limit());
        let may_leave = self.sent.next_lost(|part| may_leave(sender, part, limit)).is_some();
        // Once more: what waited may have arrived, and what is left to parity is the peer's.
        !may_leave && self.has_nothing_out()
    }

    /// Takes note of what the peer takes, and of what it did not take.
    fn take_limits(&mut self, ack: &SrAckRepr<'_>, echo: Time, counters: &mut Counters) -> bool {
        let limit = unwrap(self.sent.una(), ack.psn_limit);
        self.psn_limit = self.psn_limit.max(Some(limit));
        self.credit.on_told(ack.receive_limit, ack.rx_pkts);
        let is_it = |part: Part| match part {
            Part::Request(segment) => self.sender.uses_receive(&segment),
            Part::Read(_) | Part::Atomic { .. } | Part::Parity => false,
        };
        let turned_away = ack.reason == AckReason::NoReceive;
        if !turned_away || !self.sent.missing(ack.newest).is_some_and(is_it) {
            return false;
        }
        let since = self.credit.judge_until(echo);
        let (sender, limit) = (&self.sender, self.credit.receive_limit());
        self.sent.turned_away(ack.newest, echo, since, |part| !may_leave(sender, part, limit));
        counters.rnr_nak_retry_err += u64::from(self.credit.is_new_round(echo));
        let number = unwrap(self.sent.una(), ack.newest);
        self.credit.on_refused(echo, number, self.sent.due())
    }

    /// The request that was sent as the packet `psn`, if it is not over.
    fn message_of(&self, psn: u32) -> Option<u32> {
        match self.sent.what(psn) {
            Some(Part::Request(segment)) => Some(segment.message),
            _ => None,
        }
        .or_else(|| self.sender.asked_by(psn))
        .filter(|message| self.sender.has(*message))
    }
}

/// The peer has a receive request for this packet, or it needs none.
pub(super) fn may_leave(sender: &Sender, part: &Part, receive_limit: Option<u32>) -> bool {
    match part {
        Part::Request(segment) => sender.finds_receive(segment, receive_limit),
        Part::Read(_) | Part::Atomic { .. } | Part::Parity => true,
    }
}

fn status_of(code: NakCode) -> Result<WcStatus, DropReason> {
    match code {
        NakCode::InvalidRequest => Ok(WcStatus::RemInvReqErr),
        NakCode::RemoteAccess => Ok(WcStatus::RemAccessErr),
        NakCode::RemoteOperational => Ok(WcStatus::RemOpErr),
        NakCode::SequenceError | NakCode::InvalidRd => Err(DropReason::BadSyndrome),
    }
}
