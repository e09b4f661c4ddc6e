//! The effects of an ACK on the sending direction: arrived and lost packets, limits, RTT,
//! congestion control.

use super::Tx;
use super::margin::Arrivals;
use super::paths::Echo;
use super::plan::Contents;
use super::sent::ack_info::{AckInfo, Acked};
use super::timers::Outstanding;
use crate::counters::Counters;
use crate::drop::DropReason;
use crate::qp::flow::Flow;
use crate::sr::number::unwrap;
use spanwire_base::{Dur, RxMeta, Time};
use spanwire_cc::{Ack, LossKind};
use spanwire_loadbalance as lb;
use spanwire_wire::{AckReason, IntRecords, SrAckRepr};

impl Tx {
    /// Applies an ACK that is processed at `times.0` and arrived as `times.1` says. True if
    /// `rnr_retry` is exceeded.
    // One caller.
    #[inline(always)]
    pub(in crate::sr) fn on_ack(
        &mut self,
        times: (Time, RxMeta),
        ack: &SrAckRepr<'_>,
        counters: &mut Counters,
        mut flow: Option<&mut Flow>,
    ) -> Result<bool, DropReason> {
        let (now, arrival) = times;
        let echo = Time::from_ps(ack.echo_ps);
        if echo > now {
            return Err(DropReason::ResponseBeyondSent);
        }
        let times_sent = (self.lost_send_time(now, ack), now - self.rtt.min_rtt());
        let info = AckInfo::of(ack, times_sent, self.marks(ack));
        let before = *self.sent.counters();
        let inflight_bytes = self.sent.in_flight_bytes();
        let acked = self.sent.on_ack(&info).map_err(|_| DropReason::ResponseBeyondSent)?;
        if ack.ack_delay_ns != u32::MAX {
            let (rtt, ack_delay) = (arrival.at.since(echo), Dur::from_ns(ack.ack_delay_ns.into()));
            // Ignore the lateness of a duplicate unless the ACK's received-packet count advanced:
            // otherwise the ACK itself is late.
            if acked.is_reordered && (!acked.is_duplicate || self.credit.is_newer(ack.rx_pkts)) {
                let late_by = Dur::from_ps(rtt.as_ps().saturating_sub(ack_delay.as_ps()));
                let fastest = self.rtt.min_rtt().as_ps();
                self.sent.on_reordering(Dur::from_ps(late_by.as_ps().saturating_sub(fastest)));
            }
            // An ACK of nothing new may have been held for any time, so it gives no RTT sample.
            if acked.pkts > 0 {
                self.rtt.sample(rtt, ack_delay);
            }
        }
        if let Some(flow) = flow.as_deref_mut().filter(|_| acked.pkts > 0) {
            self.report_to_flow(times, ack, &acked, inflight_bytes, flow);
        }
        if let Some(coding) = &mut self.coding {
            coding.on_reports(now, &acked, &self.sent, counters, flow.as_deref_mut());
        }
        let is_rnr_exhausted = self.update_limits(ack, echo, counters);
        let arrivals = Arrivals {
            echo,
            transmissions: self.sent.transmissions(),
            received: ack.rx_pkts,
            is_last: acked.pkts > 0 && self.sent.in_flight_pkts() == 0,
        };
        self.timers.margin.on_ack(now, &self.rtt, &arrivals);
        if self.timers.on_feedback(now, echo, self.outstanding(acked.pkts > 0)) {
            self.sent.undo_timeout();
            if let Some(flow) = flow.as_deref_mut() {
                flow.on_spurious_timeout(now);
            }
            counters.spurious_timeouts += 1;
        }
        self.sent.counters().add_since(&before, counters);
        if !self.waits_for_peer() || self.is_only_credit_limited() {
            self.timers.stop();
        }
        self.detect_lost(now, counters, flow);
        self.report_to_balancer(now, Some(Echo::of(times, ack)), lb::LossKind::Rack);
        if self.recovery_end.is_some_and(|end| self.sent.una() >= end) {
            self.recovery_end = None;
            self.sent.on_recovery_end();
        }
        if let Some(coding) = &mut self.coding {
            coding.on_acked(self.sent.una());
        }
        Ok(is_rnr_exhausted)
    }

    /// The packets and responses outstanding after an ACK; `is_progress`: it acknowledged a packet.
    fn outstanding(&self, is_progress: bool) -> Outstanding {
        let has_only_responses = self.sent.is_empty() && self.requester.awaits_response();
        match has_only_responses && !is_progress {
            true => Outstanding::ResponsesAsBefore,
            false => Outstanding::Something,
        }
    }

    /// Detects losses by time.
    pub(super) fn detect_lost(
        &mut self,
        now: Time,
        counters: &mut Counters,
        mut flow: Option<&mut Flow>,
    ) {
        let found = self.sent.detect(now, &self.rtt);
        self.loss_timer = found.loss_timer;
        counters.presumed_lost_packets += found.plain.pkts + found.recoverable.pkts;
        if let Some(flow) = flow.as_deref_mut().filter(|_| found.plain.bytes > 0) {
            flow.count_lost(found.plain.bytes);
        }
        if let Some(coding) = &mut self.coding {
            coding.on_lost(now, found.recoverable, &self.sent, flow.as_deref_mut());
        }
        if found.plain.pkts > 0 && self.recovery_end.is_none() {
            self.recovery_end = Some(self.sent.next());
            if let Some(flow) = flow {
                let inflight_bytes = self.sent.in_flight_bytes();
                flow.on_loss(now, LossKind::Recovery, found.plain.bytes, inflight_bytes);
            }
        }
    }

    /// The CE marks of recent packets, if a load balancer uses them: bit i is the newest packet's
    /// number minus i.
    #[inline]
    fn marks(&mut self, ack: &SrAckRepr<'_>) -> u64 {
        self.paths.as_mut().map_or(0, |paths| paths.marks(ack))
    }

    /// Passes an ACK to congestion control. The peer counts all its received bytes, so the marked
    /// part of the newly acknowledged bytes is estimated by the marked part of its count.
    #[inline(never)]
    fn report_to_flow(
        &mut self,
        times: (Time, RxMeta),
        ack: &SrAckRepr<'_>,
        acked: &Acked,
        inflight_bytes: u64,
        flow: &mut Flow,
    ) {
        let (now, arrival) = times;
        let (rx, ce) = std::mem::replace(&mut self.peer_counts, (ack.rx_bytes, ack.ce_bytes));
        let (rx, ce) = (ack.rx_bytes.wrapping_sub(rx), ack.ce_bytes.wrapping_sub(ce));
        // A stale ACK counts backwards, and a misbehaving peer may send any counts.
        let marked = if ce <= rx && rx > 0 && rx < 1 << 63 {
            u128::from(acked.bytes) * u128::from(ce) / u128::from(rx)
        } else {
            0
        };
        let echo = Time::from_ps(ack.echo_ps);
        let sample = Ack {
            acked_bytes: acked.bytes,
            acked_pkts: acked.pkts,
            marked_bytes: u64::try_from(marked).unwrap_or(acked.bytes),
            rtt: (ack.ack_delay_ns != u32::MAX).then(|| arrival.at.since(echo)),
            ack_delay: Dur::from_ns(ack.ack_delay_ns.into()),
            rx_delay: now.since(arrival.at),
            rtt_slack: Dur::from_ns(ack.rx_delay_ns.into()) + arrival.at.since(arrival.earliest),
            sent_at: echo,
            number: acked.newest,
            una: self.sent.una(),
            next: self.sent.next(),
            is_retransmission: acked.was_lost,
            inflight_bytes,
            path: ack.path,
            hops: match ack.hop_limit {
                0 => None,
                left => self.hop_limit.checked_sub(left),
            },
            ..Ack::default()
        };
        // Telemetry that was not requested has not been agreed on.
        let int = if self.int.allows_echo(ack.int.format()) { ack.int } else { IntRecords::NONE };
        flow.on_ack(now, sample, acked.send_state.map(|state| (state, echo)), int);
    }

    /// All lost packets lack receive credit, so the timers must not run: the peer is not
    /// unresponsive.
    fn is_only_credit_limited(&mut self) -> bool {
        if !self.has_nothing_in_flight() {
            return false;
        }
        let (requester, limit) = (&self.requester, self.credit.receive_limit());
        let is_sendable =
            self.sent.next_lost(|contents| requester.has_credit_for(contents, limit)).is_some();
        // Checked again, since `next_lost` drops packets that have arrived. If only losses left to
        // recovery remain, the timers run: the peer has to acknowledge or NACK them.
        !is_sendable && self.has_nothing_in_flight()
    }

    /// Updates the PSN and receive limits, and handles a packet rejected for lack of a receive
    /// request. True if `rnr_retry` is exceeded.
    fn update_limits(&mut self, ack: &SrAckRepr<'_>, echo: Time, counters: &mut Counters) -> bool {
        let limit = unwrap(self.sent.una(), ack.psn_limit);
        self.psn_limit = self.psn_limit.max(Some(limit));
        self.credit.on_limit(ack.receive_limit, ack.rx_pkts);
        let uses_receive = |contents: Contents| match contents {
            Contents::Request(segment) => self.requester.uses_receive(&segment),
            _ => false,
        };
        let is_no_receive = ack.reason == AckReason::NoReceive;
        if !is_no_receive || !self.sent.unacked_contents(ack.newest).is_some_and(uses_receive) {
            return false;
        }
        let since = self.credit.extend_checked(echo);
        let (requester, limit) = (&self.requester, self.credit.receive_limit());
        self.sent.on_no_receive(ack.newest, echo, since, |contents| {
            !requester.has_credit_for(contents, limit)
        });
        counters.rnr_nak_retry_err += u64::from(self.credit.is_new_round(echo));
        let number = unwrap(self.sent.una(), ack.newest);
        self.credit.on_rnr(echo, number, self.sent.data_una())
    }

    /// The message of the request that was sent as the packet `psn`, if it is not complete.
    pub(in crate::sr) fn message_of(&self, psn: u32) -> Option<u32> {
        match self.sent.contents(psn) {
            Some(Contents::Request(segment)) => Some(segment.message),
            _ => None,
        }
        .or_else(|| self.requester.outstanding_rd_atomic(psn))
        .filter(|message| self.requester.contains(*message))
    }
}
