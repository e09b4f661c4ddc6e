//! The choice of the next packet, and whether it may leave: windows, the peer's limits, turns of
//! requests and responses.

use super::encoder::NextInBlock;
use super::place::BlockPosition;
use super::plan::{Contents, PlannedPacket, TransmissionKind};
use super::requester::{Allowance, Next};
use super::{Probe, Tx};
use crate::qp::flow::{Flow, FlowLimit};
use spanwire_base::Time;
use spanwire_cc::Sent;

/// What is decided outside.
#[derive(Clone, Copy, Debug)]
pub(in crate::sr) struct Limits {
    /// Own requests are sent, and what was lost is sent again. If not, only answers leave.
    pub(in crate::sr) sends_requests: bool,
    /// A request that was never sent may begin.
    pub(in crate::sr) begins_requests: bool,
    /// Packets in flight.
    pub(in crate::sr) window_pkts: u32,
    /// New packets ask for an acknowledgement this often at least.
    pub(in crate::sr) ack_interval_pkts: u32,
    /// What the endpoint's window still takes.
    pub(in crate::sr) room_pkts: u32,
}

/// What to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sr) enum Choice {
    Send(PlannedPacket),
    Idle,
    /// Something would leave, had the endpoint's window room.
    Blocked,
    /// Something will leave at this time.
    Paced(Time),
}

impl Tx {
    /// Chooses the next packet. [`Tx::on_sent`] once it is written.
    pub(in crate::sr) fn choose(
        &mut self,
        now: Time,
        limits: &Limits,
        flow: Option<&mut Flow>,
    ) -> Choice {
        self.is_paced = false;
        if let Some(planned) = self.probe.and_then(|probe| self.probe_packet(probe, limits)) {
            // It may leave whatever the windows say, but a pacer is not asked twice.
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
                Some(flow) if self.has_pending() => flow.on_window_full(now, window),
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
            Some(_) if limits.room_pkts == 0 => FlowLimit::Endpoint,
            Some(planned) => match flow.and_then(|flow| flow.paced_until(now)) {
                Some(at) => return self.wait_for_pacer(at),
                None => return Choice::Send(planned),
            },
        };
        if let Some(flow) = flow {
            flow.on_limit(now, limit, self.sent.in_flight_bytes());
        }
        if limit == FlowLimit::Endpoint { Choice::Blocked } else { Choice::Idle }
    }

    fn wait_for_pacer(&mut self, until: Time) -> Choice {
        self.is_paced = true;
        Choice::Paced(until)
    }

    /// Something is there to be sent, whether it may or not.
    fn has_pending(&self) -> bool {
        self.requester.has_unsent() || self.responses.len() > 0 || self.sent.has_lost()
    }

    /// A packet that was chosen left at `now`, with `bytes` of payload.
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
                self.sent.on_retransmitted(now, planned.number, path)
            }
            TransmissionKind::First => {
                self.sent.push(now, planned.contents, bytes, planned.position, path);
                match &planned.contents {
                    Contents::Request(segment) => self.requester.advance(segment, planned.number),
                    Contents::Read(_) | Contents::Atomic { .. } => {
                        self.responses.advance(self.block_segment_bytes());
                        self.responses_in_a_row += 1;
                    }
                    Contents::Parity => {}
                }
                if let Some(encoder) = self.encoder.as_mut().filter(|_| planned.position.is_coded())
                {
                    encoder.advance();
                }
            }
        }
        self.timers.on_sent(now);
        if let Some(flow) = flow {
            let is_retransmission = planned.kind != TransmissionKind::First;
            let inflight_bytes = self.sent.in_flight_bytes();
            let sent = Sent { bytes, inflight_bytes, is_retransmission };
            let at_send = flow.on_sent(now, sent, frame_bytes);
            self.sent.set_at_send(planned.number, at_send);
        }
    }

    /// The next packet that was never sent; whether the next request waits for a receive request.
    fn new_packet(&mut self, limits: &Limits, window_left: u64) -> (Option<PlannedPacket>, bool) {
        let number = self.sent.next();
        if number >= self.psn_limit() {
            return (None, false);
        }
        if let Some(planned) = self.next_of_block(number, limits, window_left) {
            return (Some(planned), false);
        }
        let allowance = Allowance {
            segment_bytes: self.segment_bytes,
            max_rd_atomic: self.max_rd_atomic,
            receive_limit: self.credit.receive_limit(),
            begins_requests: limits.begins_requests,
        };
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
                let ends = match response {
                    Contents::Read(segment) => segment.last,
                    Contents::Request(_) | Contents::Atomic { .. } | Contents::Parity => true,
                };
                let is_last = ends && self.responses.len() == 1;
                (response, is_last && !matches!(next, Next::Segment(_)))
            }
            (Next::NoReceive(_), None) => return (None, true),
            (Next::Idle | Next::Segment(_), None) => return (None, false),
        };
        let position = self.position_in_new_block(&contents);
        let requests_ack = is_last || requests_periodic_ack(number, limits, window_left);
        (
            Some(PlannedPacket {
                number,
                contents,
                kind: TransmissionKind::First,
                requests_ack,
                position,
            }),
            false,
        )
    }

    /// The next packet of the block that has begun: nothing else may be begun before its last.
    fn next_of_block(
        &mut self,
        number: u64,
        limits: &Limits,
        window_left: u64,
    ) -> Option<PlannedPacket> {
        let encoder = self.encoder.as_ref()?;
        let position = BlockPosition::of(&encoder.next_position()?);
        let contents = match encoder.next_in_block()? {
            NextInBlock::Parity => Some(Contents::Parity),
            NextInBlock::Data { is_response: true, segment_bytes } => {
                self.responses.next(segment_bytes)
            }
            NextInBlock::Data { segment_bytes, .. } => {
                // What has begun goes on whatever the receive limit says now: it costs a few
                // packets, and answers would have to wait for a limit that moves for their sake.
                let (max_rd_atomic, receive_limit) = (self.max_rd_atomic, None);
                let allowance = Allowance {
                    segment_bytes,
                    max_rd_atomic,
                    receive_limit,
                    begins_requests: false,
                };
                match self.requester.next(&allowance) {
                    Next::Segment(segment) if limits.sends_requests => {
                        Some(Contents::Request(segment))
                    }
                    _ => None,
                }
            }
        };
        let Some(contents) = contents else {
            // Its message is over before its time; what follows is another one's.
            self.encoder.as_mut()?.abandon();
            return None;
        };
        // The last data and all parity behind it: one answer of them may be lost as well, and
        // nobody asks again before two round trips are over.
        let is_last = match &contents {
            Contents::Request(segment) => {
                self.responses.len() == 0 && self.requester.is_last_posted(segment)
            }
            Contents::Read(segment) => {
                segment.last && self.responses.len() == 1 && !self.requester.has_unsent()
            }
            _ => self.responses.len() == 0 && !self.requester.has_unsent(),
        };
        let requests_ack = is_last || requests_periodic_ack(number, limits, window_left);
        Some(PlannedPacket {
            number,
            contents,
            kind: TransmissionKind::First,
            requests_ack,
            position,
        })
    }

    /// The place of a part that would begin a block.
    fn position_in_new_block(&self, contents: &Contents) -> BlockPosition {
        let Some(encoder) = &self.encoder else { return BlockPosition::NONE };
        let left_bytes = match contents {
            Contents::Request(segment) => self.requester.remaining_data(segment),
            Contents::Read(segment) => segment.left,
            Contents::Atomic { .. } | Contents::Parity => 0,
        };
        let block = encoder.plan_block(left_bytes, self.segment_bytes, &self.rtt);
        block.map_or(BlockPosition::NONE, |block| BlockPosition::of(&block))
    }

    /// Full segments are this long where the next packet stands.
    pub(super) fn block_segment_bytes(&self) -> u32 {
        match self.encoder.as_ref().and_then(|encoder| encoder.next_in_block()) {
            Some(NextInBlock::Data { segment_bytes, .. }) => segment_bytes,
            _ => self.segment_bytes,
        }
    }

    fn retransmission(&self, number: u64, contents: Contents) -> PlannedPacket {
        let position = self.sent.position(number);
        PlannedPacket {
            number,
            contents,
            kind: TransmissionKind::Retransmission,
            requests_ack: true,
            position,
        }
    }

    fn probe_packet(&mut self, probe: Probe, limits: &Limits) -> Option<PlannedPacket> {
        match probe {
            Probe::Tail => self
                .sent
                .newest()
                .map(|(n, contents)| self.retransmission(n, contents))
                .or_else(|| {
                    let (number, segment) = self.requester.oldest_outstanding_rd_atomic()?;
                    let (contents, position) = (Contents::Request(segment), BlockPosition::NONE);
                    Some(PlannedPacket {
                        number,
                        contents,
                        kind: TransmissionKind::Probe,
                        requests_ack: true,
                        position,
                    })
                }),
            // A block that has begun does not wait for receive requests.
            Probe::Receive
                if self.encoder.as_ref().is_some_and(|c| c.next_in_block().is_some()) =>
            {
                None
            }
            Probe::Receive => {
                if let Some((number, contents)) = self.sent.next_lost(|_| true) {
                    return Some(self.retransmission(number, contents));
                }
                let allowance = Allowance {
                    segment_bytes: self.segment_bytes,
                    max_rd_atomic: self.max_rd_atomic,
                    receive_limit: self.credit.receive_limit(),
                    begins_requests: limits.begins_requests,
                };
                match self.requester.next(&allowance) {
                    Next::NoReceive(segment) if self.sent.next() < self.psn_limit() => {
                        let (number, contents) = (self.sent.next(), Contents::Request(segment));
                        let position = self.position_in_new_block(&contents);
                        Some(PlannedPacket {
                            number,
                            contents,
                            kind: TransmissionKind::First,
                            requests_ack: true,
                            position,
                        })
                    }
                    _ => None,
                }
            }
        }
    }

    /// No packet at or above this is taken.
    fn psn_limit(&self) -> u64 {
        self.psn_limit.unwrap_or(self.sent.una() + u64::from(self.initial_window_pkts))
    }
}

/// The peer acknowledges every so many by itself. It must be asked where it might wait for more
/// that will not come.
fn requests_periodic_ack(number: u64, limits: &Limits, window_left: u64) -> bool {
    window_left == 1 || number.is_multiple_of(limits.ack_interval_pkts.into())
}

/// Parts of answers after which one request may go first: a burst of the schedule.
const RESPONSES_IN_A_ROW_MAX: u32 = 16;
