//! Where a queue pair asks its congestion control and its pacer, and tells them what happened. What
//! SR tells them is in `selective/`.

use super::flow::{Flow, FlowInfo, FlowLimit, Progress};
use super::requester::Allowance;
use super::segment::Segment;
use super::state::QpState;
use super::{QueuePair, Shared, Transmit};
use crate::attr::{CongestionControl, QpAttr};
use crate::config::Config;
use crate::drop::DropReason;
use crate::schedule::Room;
use spanwire_base::{Time, TxMeta};
use spanwire_cc::{LossKind, Sent};
use spanwire_loadbalance::Balancer;

/// Of a window of `window_pkts`, every so many packets ask for an acknowledgement, `most` at most:
/// a small window is told of before it is used up. What has arrived and is not acknowledged yet
/// fills the window, but not the path: congestion control, whose window is as long as the path and
/// no longer, is told sixteen times in a window.
pub(super) fn ack_interval(window_pkts: u32, most: u32, has_cc: bool) -> u32 {
    (window_pkts / if has_cc { 16 } else { 4 }).clamp(1, most.max(1))
}

impl QueuePair {
    /// Begins anew with this congestion control.
    pub(super) fn set_congestion(&mut self, choice: &CongestionControl, config: &Config) {
        let flow = match &mut self.selective {
            None => Flow::new(choice, self.mtu.bytes(), config),
            Some(sr) => {
                let full_bytes = self.attr.segment_bytes.unwrap_or(self.mtu.bytes());
                let flow = Flow::new(choice, full_bytes, config);
                let hops = if flow.wants_int() { config.int_hops } else { 0 };
                match sr.ask_for_int(hops, full_bytes) {
                    same if same == full_bytes => flow,
                    shorter => Flow::new(choice, shorter, config),
                }
            }
        };
        self.flow = Some(Box::new(flow));
    }

    /// Begins to send in blocks, or to choose among paths.
    pub(super) fn set_erasure_and_balance(&mut self, attr: &QpAttr, config: &Config) {
        let base_rtt = attr.congestion.or(self.attr.congestion).and_then(|choice| choice.base_rtt);
        let Some(sr) = &mut self.selective else { return };
        if let Some(balance) = &attr.balance {
            sr.set_balance(balance, self.qpn, base_rtt);
        }
        if let Some(choice) = attr.erasure {
            sr.set_erasure(choice, base_rtt, self.attr.segment_bytes.unwrap_or(self.mtu.bytes()));
            if let Some(choice) = self.attr.congestion.filter(|_| attr.congestion.is_none()) {
                self.set_congestion(&choice, config);
            }
        }
    }

    /// Its share of the port.
    pub(crate) fn weight(&self) -> u8 {
        self.attr.weight.unwrap_or(1)
    }

    /// What chooses among paths for it, if anything does.
    pub(crate) fn balancer(&self) -> Option<&Balancer> {
        self.selective.as_ref()?.balancer()
    }

    /// Its congestion control, if it has one.
    pub(crate) fn flow_info(&self) -> Option<FlowInfo> {
        self.flow.as_ref().map(|flow| flow.info())
    }

    /// When the next packet may leave, if a pacer holds it back.
    #[inline]
    pub(super) fn paced_until(&mut self, now: Time) -> Option<Time> {
        self.flow.as_deref_mut()?.paced_until(now)
    }

    /// Its turn ended without a packet, for this reason.
    #[inline]
    pub(super) fn limited(&mut self, now: Time, limit: FlowLimit, answer: Transmit) -> Transmit {
        if let Some(flow) = self.flow.as_deref_mut() {
            let inflight = self.requester.in_flight_pkts() * u64::from(self.mtu.bytes());
            flow.on_limit(now, limit, inflight);
        }
        answer
    }

    /// Its turn ended without a packet because its window is full.
    #[inline]
    pub(super) fn window_full(&mut self, now: Time, own_pkts: u32) -> Transmit {
        if let Some(flow) = self.flow.as_deref_mut() {
            let own_pkts = if self.loss.is_probing() { 1 } else { own_pkts };
            flow.on_window_full(now, own_pkts);
        }
        Transmit::Idle
    }

    /// Handles a CNP. At most one counts each round trip, the time until a rate cut shows: a
    /// forger, which needs only addresses and a QPN, can send any number.
    #[cold]
    pub(super) fn on_cnp(&mut self, now: Time, sh: &mut Shared<'_>) -> Result<(), DropReason> {
        if !self.cnps.counts(now, self.srtt()) {
            return Err(DropReason::IgnoredCnp);
        }
        sh.counters.rp_cnp_handled += 1;
        if let Some(flow) = self.flow.as_deref_mut().filter(|_| self.state.sends()) {
            flow.on_cnp(now);
        }
        Ok(())
    }

    pub(super) fn allowance(&self, room: Room, config: &Config) -> Allowance {
        let flow = self.flow.as_ref().map_or(u32::MAX, |flow| flow.window_pkts());
        let full = config.qp_window_pkts.min(flow);
        let window = if self.loss.is_probing() { 1 } else { full };
        let ack_req_interval_pkts =
            ack_interval(full, config.ack_req_interval_pkts, self.flow.is_some());
        let in_flight = u32::try_from(self.requester.in_flight_pkts()).unwrap_or(u32::MAX);
        Allowance {
            qp_pkts: window.saturating_sub(in_flight),
            endpoint_pkts: room.pkts,
            unasked_pkts: room.unasked_pkts,
            mtu: self.mtu,
            max_rd_atomic: self.max_rd_atomic,
            read_chunk_pkts: config.read_chunk_pkts,
            ack_req_interval_pkts,
            begins: self.state == QpState::Rts,
        }
    }
    /// Tells congestion control and pacer of a packet; of a READ's responses as of what is sent,
    /// because who asks for them paces them.
    #[inline]
    pub(super) fn account_sent(
        &mut self,
        now: Time,
        segment: &Segment,
        meta: &TxMeta,
        is_timed: bool,
    ) {
        let Some(flow) = self.flow.as_deref_mut() else { return };
        let mtu = self.mtu.bytes();
        let asks_for_data = segment.len == 0 && segment.atomic.is_none();
        let asked = segment.reth.map_or(0, |(_, len)| if asks_for_data { len } else { 0 });
        let bytes = segment.len.max(asked);
        let sent = Sent {
            bytes,
            inflight_bytes: self.requester.in_flight_pkts() * u64::from(mtu),
            again: segment.is_retransmission,
        };
        let frame_bytes = meta.len + spanwire_base::usize_from(meta.elided_bytes.into());
        let responses = spanwire_base::usize_from(asked.into());
        let at_send = flow.on_sent(now, sent, frame_bytes + responses);
        if is_timed {
            flow.time(at_send);
        }
    }

    /// Tells congestion control of an acknowledgement: of whole packets, for RC says no more, with
    /// the round trip of one packet at a time and without marks, of which CNPs tell.
    #[inline(never)]
    pub(super) fn tell_flow(
        &mut self,
        now: Time,
        (una, upto): (u64, u64),
        inflight_pkts: u64,
        timed: Option<Time>,
    ) {
        let Some(flow) = self.flow.as_deref_mut() else { return };
        let mtu = u64::from(self.mtu.bytes());
        let acked_pkts = upto - una;
        let progress = Progress {
            acked_bytes: acked_pkts * mtu,
            acked_pkts,
            rtt: timed.map(|sent_at| now.since(sent_at)),
            // A round ends with a packet that was timed: of no other is it known when it left.
            sent_at: timed.unwrap_or(Time::ZERO),
            at_send: timed.and_then(|_| flow.take_timed()),
            number: upto - 1,
            una: upto,
            next: self.requester.snd_nxt(),
            inflight_bytes: inflight_pkts * mtu,
            ..Progress::default()
        };
        flow.on_ack(now, &progress);
    }

    /// Tells congestion control that everything from `from` on was lost.
    pub(super) fn lost_from(&mut self, now: Time, from: u64, kind: LossKind) {
        let Some(flow) = self.flow.as_deref_mut() else { return };
        let mtu = u64::from(self.mtu.bytes());
        let lost = self.requester.snd_nxt().saturating_sub(from);
        flow.on_loss(now, kind, lost * mtu, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_interval__is_short_for_small_windows_and_shorter_for_congestion_control() {
        let of = |has_cc| [1, 15, 42, 192, 1 << 16].map(|window| ack_interval(window, 16, has_cc));
        assert_eq!(of(false), [1, 3, 10, 16, 16]);
        assert_eq!(of(true), [1, 1, 2, 12, 16]);
        assert_eq!(ack_interval(192, 0, false), 1);
    }
}
