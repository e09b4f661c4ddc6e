//! The choice of the next packet, and whether it may be sent: windows, the peer's limits,
//! alternation of requests and responses.

use super::plan::{Contents, PlannedPacket, TransmissionKind};
use super::requester::{Allowance, Next};
use super::{Probe, Tx};
use crate::qp::flow::{Flow, FlowLimit};
use spanwire_base::Time;

/// Limits of sending that the caller determines.
#[derive(Clone, Copy, Debug)]
pub(in crate::sr) struct Limits {
    /// Requests are sent and lost packets retransmitted. Otherwise only responses are sent.
    pub(in crate::sr) sends_requests: bool,
    /// A new request may begin.
    pub(in crate::sr) begins_requests: bool,
    /// The window: packets in flight.
    pub(in crate::sr) window_pkts: u32,
    /// The congestion window in packets; `u32::MAX` without one.
    pub(in crate::sr) cwnd_pkts: u32,
    /// New packets request an ACK at least this often.
    pub(in crate::sr) ack_interval_pkts: u32,
    /// Packets that the endpoint's window allows.
    pub(in crate::sr) space_pkts: u32,
}

/// The result of choosing a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sr) enum Choice {
    Send(PlannedPacket),
    Idle,
    /// A packet could be sent if the endpoint's window had room.
    NoSpace,
    /// The pacer releases the next packet at this time.
    Paced(Time),
}

impl Tx {
    /// Chooses the next packet. The caller writes it and then calls [`Tx::on_sent`].
    // One caller, as Tx::new_packet; out of line, the result would be returned through memory.
    #[inline]
    pub(in crate::sr) fn choose(
        &mut self,
        now: Time,
        limits: &Limits,
        flow: Option<&mut Flow>,
    ) -> Choice {
        self.is_paced = false;
        if let Some(planned) = self.probe.and_then(|probe| self.probe_packet(probe, limits)) {
            // A probe ignores the windows, but not the pacer.
            return match flow.and_then(|flow| flow.probe_paced_until(now)) {
                Some(at) => self.wait_for_pacer(at),
                None => Choice::Send(planned),
            };
        }
        self.probe = None;
        let window = if self.timers.is_backed_off() { 1 } else { limits.window_pkts };
        let in_flight = self.sent.in_flight_pkts();
        if in_flight >= u64::from(window) {
            match flow {
                Some(flow) if self.has_pending() => {
                    flow.on_window_full(now, limits.cwnd_pkts <= window);
                }
                Some(flow) => flow.on_window_full_and_idle(now),
                None => {}
            }
            return Choice::Idle;
        }
        let limit = self.credit.receive_limit();
        let requester = &self.requester;
        let lost = self.sent.next_lost(|contents| requester.has_credit_for(contents, limit));
        let lost = lost.filter(|_| limits.sends_requests);
        let (found, mut is_credit_limited) = match lost {
            Some((number, contents)) => (Some(self.retransmission(number, contents)), false),
            None => self.new_packet(limits, u64::from(window) - in_flight),
        };
        is_credit_limited |= found.is_none() && self.sent.has_lost();
        self.credit.set_credit_limited(
            now,
            is_credit_limited && in_flight == 0 && limits.sends_requests,
            &self.rtt,
        );
        let limit = match found {
            None if is_credit_limited || self.sent.next() >= self.psn_limit() => {
                FlowLimit::Receiver
            }
            None => FlowLimit::Application,
            Some(_) if limits.space_pkts == 0 => FlowLimit::Endpoint,
            Some(planned) => match flow.and_then(|flow| flow.paced_until(now)) {
                Some(at) => return self.wait_for_pacer(at),
                None => return Choice::Send(planned),
            },
        };
        if let Some(flow) = flow {
            flow.on_limit(now, limit, self.sent.in_flight_bytes());
        }
        if limit == FlowLimit::Endpoint { Choice::NoSpace } else { Choice::Idle }
    }

    /// The congestion window in packets like those in flight.
    #[inline]
    pub(in crate::sr) fn window_pkts(&self, flow: &Flow) -> u32 {
        flow.window_pkts(self.sent.in_flight_pkts(), self.sent.in_flight_bytes())
    }

    /// New segments have at most `bytes` of payload: the path carries no more.
    pub(in crate::sr) fn limit_segments(&mut self, bytes: u32) {
        self.segment_bytes = self.full_segment_bytes.min(bytes);
    }

    fn wait_for_pacer(&mut self, until: Time) -> Choice {
        self.is_paced = true;
        Choice::Paced(until)
    }

    /// False if [`Tx::choose`] would find nothing and change nothing here.
    #[inline]
    pub(in crate::sr) fn may_send(&self) -> bool {
        let is_quiet = self.probe.is_none() && !self.is_paced && self.credit.next().is_none();
        !is_quiet || self.coding.is_some() || self.has_pending()
    }

    /// A packet waits to be sent, whether or not a limit allows it.
    #[inline]
    fn has_pending(&self) -> bool {
        self.requester.has_unsent() || self.responses.len() > 0 || self.sent.has_lost()
    }

    /// A chosen packet was sent at `now`, with `bytes` of payload.
    #[inline]
    pub(in crate::sr) fn on_sent(
        &mut self,
        now: Time,
        planned: &PlannedPacket,
        (bytes, path): (u32, u16),
        frame_bytes: usize,
        flow: Option<&mut Flow>,
    ) {
        self.probe = None;
        match planned.kind {
            TransmissionKind::Probe => self.timers.margin.on_extra_copy(),
            TransmissionKind::Retransmission => {
                self.sent.on_retransmitted(now, planned.number, path);
            }
            TransmissionKind::First => {
                let sent = (planned.number, bytes);
                let state = self.on_new_sent(now, &planned.contents, sent, frame_bytes, flow);
                return match planned.position {
                    None => self.sent.push(now, planned.contents, bytes, path, state),
                    Some(position) => {
                        self.add_sent(now, planned.contents, (bytes, path), position, state);
                    }
                };
            }
        }
        self.timers.on_sent(now);
        let (sent, in_flight_bytes) = ((bytes, frame_bytes), self.sent.in_flight_bytes());
        let send_state = flow.map(|flow| flow.on_sent(now, sent, in_flight_bytes, true));
        self.sent.set_send_state(planned.number, send_state);
    }

    /// The chosen packet of a request cannot be written, and earlier requests are incomplete. It is
    /// attempted again with every event of the queue pair. Returns whether another packet may be
    /// chosen now.
    pub(in crate::sr) fn postpone(&mut self, now: Time, planned: &PlannedPacket) -> bool {
        if planned.kind != TransmissionKind::First {
            // It counts as lost again, so that a timer runs.
            self.on_sent(now, planned, (0, 0), 0, None);
            return true;
        }
        self.coding.iter_mut().for_each(|coding| coding.abandon());
        let is_credit_limited = self.sent.has_lost() && self.sent.in_flight_pkts() == 0;
        self.credit.set_credit_limited(now, is_credit_limited, &self.rtt);
        // Responses go before it.
        (self.probe, self.responses_in_a_row) = (None, 0);
        self.responses.next(self.segment_bytes).is_some()
    }

    /// The next new packet, and whether the next request lacks receive credit.
    #[inline(always)]
    fn new_packet(&mut self, limits: &Limits, window_left: u64) -> (Option<PlannedPacket>, bool) {
        let number = self.sent.next();
        if number >= self.psn_limit() {
            return (None, false);
        }
        if self.coding.is_some()
            && let Some(planned) = self.continue_coding(number, limits, window_left)
        {
            return (Some(planned), false);
        }
        let allowance = self.allowance(limits);
        let next = if limits.sends_requests { self.requester.next(&allowance) } else { Next::Idle };
        let response = self.responses.next(self.segment_bytes);
        let responses_first = self.responses_in_a_row < RESPONSES_IN_A_ROW_MAX;
        let (contents, is_last) = match (next, response) {
            (Next::Segment(segment), response) if response.is_none() || !responses_first => {
                self.responses_in_a_row = 0;
                let is_last = response.is_none() && self.requester.is_last_posted(&segment);
                (Contents::Request(segment), is_last)
            }
            (next, Some(response)) => {
                if !responses_first {
                    self.responses_in_a_row = 0;
                }
                let ends = !matches!(response, Contents::Read(segment) if !segment.last);
                let is_last = ends && self.responses.len() == 1;
                (response, is_last && !matches!(next, Next::Segment(_)))
            }
            (Next::NoReceive(_), None) => return (None, true),
            (Next::Idle | Next::Segment(_), None) => return (None, false),
        };
        let position = self.position(&contents);
        let requests_ack = is_last || requests_periodic_ack(number, limits, window_left);
        let kind = TransmissionKind::First;
        (Some(PlannedPacket { number, contents, kind, requests_ack, position }), false)
    }

    /// The limits of the segment of the next request.
    #[inline]
    pub(super) fn allowance(&self, limits: &Limits) -> Allowance {
        Allowance {
            segment_bytes: self.segment_bytes,
            max_rd_atomic: self.max_rd_atomic,
            receive_limit: self.credit.receive_limit(),
            begins_requests: limits.begins_requests,
        }
    }

    fn retransmission(&self, number: u64, contents: Contents) -> PlannedPacket {
        let position = self.sent.position(number);
        let kind = TransmissionKind::Retransmission;
        PlannedPacket { number, contents, kind, requests_ack: true, position }
    }

    fn probe_packet(&mut self, probe: Probe, limits: &Limits) -> Option<PlannedPacket> {
        match probe {
            Probe::Tail => {
                self.sent.newest().map(|(n, contents)| self.retransmission(n, contents)).or_else(
                    || {
                        let (number, segment) = self.requester.oldest_outstanding_rd_atomic()?;
                        let (contents, position) = (Contents::Request(segment), None);
                        Some(PlannedPacket {
                            number,
                            contents,
                            kind: TransmissionKind::Probe,
                            requests_ack: true,
                            position,
                        })
                    },
                )
            }
            // What coding has begun does not wait for receive credit.
            Probe::Receive if self.coding.as_ref().is_some_and(|coding| coding.is_open()) => None,
            Probe::Receive => {
                if let Some((number, contents)) = self.sent.next_lost(|_| true) {
                    return Some(self.retransmission(number, contents));
                }
                let allowance = self.allowance(limits);
                match self.requester.next(&allowance) {
                    Next::NoReceive(segment) if self.sent.next() < self.psn_limit() => {
                        let (number, contents) = (self.sent.next(), Contents::Request(segment));
                        let (kind, position) = (TransmissionKind::First, self.position(&contents));
                        Some(PlannedPacket { number, contents, kind, requests_ack: true, position })
                    }
                    _ => None,
                }
            }
        }
    }

    /// The PSN limit: no packet at or above it may be sent.
    pub(super) fn psn_limit(&self) -> u64 {
        self.psn_limit.unwrap_or(self.sent.una() + u64::from(self.initial_window_pkts))
    }
}

/// The packet must request an ACK by its number. The peer acknowledges every few packets without
/// AckReq, but may wait for more packets than the window allows.
pub(super) fn requests_periodic_ack(number: u64, limits: &Limits, window_left: u64) -> bool {
    window_left == 1 || number.is_multiple_of(limits.ack_interval_pkts.into())
}

/// Packets of responses in a row after which a request may be sent.
pub(super) const RESPONSES_IN_A_ROW_MAX: u32 = 16;
