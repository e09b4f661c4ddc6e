//! The signals of RC to congestion control and pacer: whole packets, the RTT of one packet at a
//! time, and CNPs in place of ECN counts.

use super::Rc;
use super::requester::Allowance;
use super::segment::Segment;
use crate::attr::Mtu;
use crate::config::Config;
use crate::drop::DropReason;
use crate::qp::common::{Common, Shared, Transmit};
use crate::qp::congestion::ack_interval;
use crate::qp::flow::{Flow, FlowLimit};
use crate::qp::state::QpState;
use crate::schedule::WindowSpace;
use spanwire_base::{RxMeta, Time, TxMeta};
use spanwire_cc::{Ack, LossKind};
use spanwire_wire::{IntRecords, OpClass};

impl Rc {
    /// The attempt to send ended without a packet, because of `limit`.
    #[inline]
    pub(super) fn limited(
        &self,
        qp: &mut Common,
        now: Time,
        limit: FlowLimit,
        outcome: Transmit,
    ) -> Transmit {
        if let Some(flow) = qp.flow.as_deref_mut() {
            flow.on_limit(now, limit, self.in_flight_bytes(qp.mtu));
        }
        outcome
    }

    /// Bytes in flight, as if all packets were full.
    #[inline]
    pub(super) fn in_flight_bytes(&self, mtu: Mtu) -> u64 {
        self.requester.in_flight_pkts() * u64::from(mtu.bytes())
    }

    /// The attempt to send ended without a packet because the window is full.
    #[inline]
    pub(super) fn window_full(&self, qp: &mut Common, now: Time, config: &Config) -> Transmit {
        let own_pkts = if self.loss.is_probing() { 1 } else { qp.own_window_pkts(config) };
        if let Some(flow) = qp.flow.as_deref_mut() {
            let is_cwnd = flow.window_pkts(0, 0) <= own_pkts;
            flow.on_window_full(now, is_cwnd);
        }
        Transmit::Idle
    }

    /// Accepts a CNP, or a mark that counts as one, or ignores it. At most one each round trip is
    /// accepted, the time until a rate cut has an effect: forging a CNP needs only addresses and a
    /// QPN. A spacing of [`CongestionControl`](crate::CongestionControl) applies to times of
    /// arrival, because a host that is late handles several CNPs at once.
    fn accept_cnp(&mut self, qp: &Common, now: Time) -> bool {
        match qp.attr.congestion.and_then(|choice| choice.cnp_spacing) {
            Some(spacing) => self.cnps.accept(qp.arrival.at, Some(spacing)),
            None => self.cnps.accept(now, self.srtt()),
        }
    }

    /// Handles a CNP.
    #[cold]
    pub(super) fn on_cnp(
        &mut self,
        qp: &mut Common,
        now: Time,
        sh: &mut Shared,
    ) -> Result<(), DropReason> {
        if !self.accept_cnp(qp, now) {
            return Err(DropReason::IgnoredCnp);
        }
        sh.counters.rp_cnp_handled += 1;
        if let Some(flow) = qp.flow.as_deref_mut().filter(|_| qp.state.sends()) {
            flow.on_cnp(now);
        }
        Ok(())
    }

    /// Handles a CE mark on a response to an own READ. The requester paces the responses, so it
    /// slows down itself. Without congestion control it sends a CNP, since an adapter paces them.
    #[cold]
    pub(super) fn on_marked_response(&mut self, qp: &mut Common, now: Time, config: &Config) {
        if qp.flow.is_none() || !qp.state.sends() {
            self.cnps.on_marked(now, OpClass::Response, config.cnp_interval);
        } else if self.accept_cnp(qp, now)
            && let Some(flow) = qp.flow.as_deref_mut()
        {
            flow.on_cnp(now);
        }
    }

    /// The limits on the next packet.
    // Inlined, so that a caller computes only what it uses.
    #[inline(always)]
    pub(super) fn allowance(&self, qp: &Common, space: WindowSpace, config: &Config) -> Allowance {
        let flow = qp.flow.as_ref().map_or(u32::MAX, |flow| flow.window_pkts(0, 0));
        let full = qp.own_window_pkts(config).min(flow);
        let window = if self.loss.is_probing() { 1 } else { full };
        let ack_req_interval_pkts = if self.is_slow(qp, config) {
            1
        } else {
            ack_interval(full, config.ack_req_interval_pkts, qp.flow.is_some())
        };
        let in_flight = u32::try_from(self.requester.in_flight_pkts()).unwrap_or(u32::MAX);
        Allowance {
            qp_pkts: window.saturating_sub(in_flight),
            endpoint_pkts: space.pkts,
            no_ack_req_pkts: space.no_ack_req_pkts,
            mtu: qp.mtu,
            max_rd_atomic: qp.max_rd_atomic,
            // Two chunks fit the congestion window: one is in flight while the next is requested.
            read_chunk_pkts: config.read_chunk_pkts.min(flow / 2).max(1),
            ack_req_interval_pkts,
            new_requests: qp.state == QpState::Rts,
        }
    }

    /// True if the timer could expire before a packet that requests an ACK leaves. The timer runs
    /// while packets are outstanding, and the responder acknowledges none without a request: a
    /// pacer slower than that would cause a timeout, a lower rate, and so on for ever.
    #[inline]
    fn is_slow(&self, qp: &Common, config: &Config) -> bool {
        let (Some(flow), Some(timeout)) = (&qp.flow, self.loss.timeout()) else { return false };
        flow.is_slower(config.ack_req_interval_pkts, timeout / SLOW_PART)
    }

    /// Reports a packet to congestion control and pacer. A READ request counts as its responses,
    /// because the requester paces them.
    #[inline]
    pub(super) fn report_sent(
        &self,
        qp: &mut Common,
        now: Time,
        segment: &Segment,
        meta: &TxMeta,
        is_timed: bool,
    ) {
        let Some(flow) = qp.flow.as_deref_mut() else { return };
        let mtu = qp.mtu.bytes();
        let is_request_only = segment.len == 0 && segment.atomic.is_none();
        let response_bytes =
            segment.reth.map_or(0, |(_, len)| if is_request_only { len } else { 0 });
        let bytes = segment.len.max(response_bytes);
        // A last packet is shorter, and alone if nothing else is in flight.
        let others = self.requester.in_flight_pkts().saturating_sub(segment.pkts.into());
        let inflight_bytes = others * u64::from(mtu) + u64::from(bytes);
        let frame_bytes = meta.len + spanwire_base::usize_from(meta.elided_bytes.into());
        let responses = spanwire_base::usize_from(response_bytes.into());
        let wire = (bytes, frame_bytes + responses);
        let send_state = flow.on_sent(now, wire, inflight_bytes, segment.is_retransmission);
        if is_timed {
            flow.set_timed(now, send_state, self.requester.snd_nxt());
        }
    }

    /// As [`Rc::report_sent`], for a plain packet of `len` bytes that was sent for the first time.
    #[inline]
    pub(super) fn report_plain(
        &self,
        qp: &mut Common,
        now: Time,
        len: u32,
        meta: &TxMeta,
        is_timed: bool,
    ) {
        let Some(flow) = qp.flow.as_deref_mut() else { return };
        let others = self.requester.in_flight_pkts().saturating_sub(1);
        let inflight_bytes = others * u64::from(qp.mtu.bytes()) + u64::from(len);
        let frame_bytes = meta.len + spanwire_base::usize_from(meta.elided_bytes.into());
        let send_state = flow.on_sent(now, (len, frame_bytes), inflight_bytes, false);
        if is_timed {
            flow.set_timed(now, send_state, self.requester.snd_nxt());
        }
    }

    /// Reports an acknowledgement of the packets from `una` to `upto`, before which `inflight_pkts`
    /// were in flight.
    #[inline(never)]
    pub(super) fn report_ack(
        &self,
        flow: &mut Flow,
        (mtu, config): (Mtu, &Config),
        (now, arrival): (Time, RxMeta),
        (una, upto): (u64, u64),
        inflight_pkts: u64,
        timed: Option<Time>,
    ) {
        let mtu = u64::from(mtu.bytes());
        let acked_pkts = upto - una;
        let coalesced_pkts = if config.batches {
            let window = flow.window_pkts(0, 0).min(flow.receive_pkts()).min(config.qp_window_pkts);
            let interval = ack_interval(window, config.ack_req_interval_pkts, true);
            acked_pkts.saturating_sub(interval.into())
        } else {
            0
        };
        let sampled = flow.take_timed(upto);
        let ack = Ack {
            acked_bytes: acked_pkts * mtu,
            acked_pkts,
            coalesced_bytes: coalesced_pkts * mtu,
            rtt: timed.map(|sent_at| arrival.at.since(sent_at)),
            rx_delay: now.since(arrival.at),
            rtt_slack: arrival.at.since(arrival.earliest),
            // A sample exists only for a timed packet; the send time of others is unknown.
            sent_at: timed.unwrap_or(Time::ZERO),
            number: upto - 1,
            una: upto,
            next: self.requester.snd_nxt(),
            inflight_bytes: inflight_pkts * mtu,
            ..Ack::default()
        };
        flow.on_ack(now, ack, sampled, IntRecords::NONE);
    }

    /// Reports the loss of everything from `from` on.
    pub(super) fn report_loss(&self, qp: &mut Common, now: Time, from: u64, kind: LossKind) {
        let Some(flow) = qp.flow.as_deref_mut() else { return };
        let mtu = u64::from(qp.mtu.bytes());
        let lost = self.requester.snd_nxt().saturating_sub(from);
        if kind == LossKind::Recovery {
            // One packet is known to be lost, and the responder discards all others, which are
            // congestion if a burst was lost. Their number is unknown.
            flow.count_lost((lost / GO_BACK_N_LOST).max(1) * mtu);
        }
        flow.on_loss(now, kind, lost * mtu, 0);
    }
}

/// An interval of AckReq longer than this part of the timeout is too slow: the round trip and the
/// lateness of hosts have the rest.
const SLOW_PART: u64 = 4;
/// Of the packets that are sent again after a gap, this part counts as lost.
const GO_BACK_N_LOST: u64 = 8;
