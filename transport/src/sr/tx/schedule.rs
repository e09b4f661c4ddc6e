//! The choice of the next packet, and whether it may leave: windows, the peer's limits, turns of
//! requests and responses.

use super::encoder::Turn;
use super::place::Place;
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
    pub(in crate::sr) sends: bool,
    /// A request that was never sent may begin.
    pub(in crate::sr) begins: bool,
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
        if let Some(sending) = self.probe.and_then(|probe| self.probe_packet(probe, limits)) {
            // It may leave whatever the windows say, but a pacer is not asked twice.
            return match flow.and_then(|flow| flow.probe_paced_until(now)) {
                Some(at) => self.wait_for_pacer(at),
                None => Choice::Send(sending),
            };
        }
        self.probe = None;
        let window = if self.timers.is_silent() { 1 } else { limits.window_pkts };
        let in_flight = self.sent.in_flight_pkts();
        if in_flight >= u64::from(window) {
            match flow {
                Some(flow) if self.has_more() => flow.on_window_full(now, window),
                Some(flow) => flow.on_window_full_and_idle(now),
                None => {}
            }
            return Choice::Idle;
        }
        let limit = self.credit.receive_limit();
        let requester = &self.requester;
        let lost = self.sent.next_lost(|part| requester.may_leave(part, limit));
        let lost = lost.filter(|_| limits.sends);
        let (found, mut is_stuck) = match lost {
            Some((number, part)) => (Some(self.again(number, part)), false),
            None => self.new_packet(limits, u64::from(window) - in_flight),
        };
        is_stuck |= found.is_none() && self.sent.has_lost();
        self.credit.set_stuck(now, is_stuck && in_flight == 0 && limits.sends, &self.rtt);
        let limit = match found {
            None if is_stuck || self.sent.next() >= self.psn_limit() => FlowLimit::Receiver,
            None => FlowLimit::Application,
            Some(_) if limits.room_pkts == 0 => FlowLimit::Endpoint,
            Some(sending) => match flow.and_then(|flow| flow.paced_until(now)) {
                Some(at) => return self.wait_for_pacer(at),
                None => return Choice::Send(sending),
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
    fn has_more(&self) -> bool {
        self.requester.has_unsent() || self.responses.len() > 0 || self.sent.has_lost()
    }

    /// A packet that was chosen left at `now`, with `bytes` of payload.
    #[inline]
    pub(in crate::sr) fn on_sent(
        &mut self,
        now: Time,
        sending: &PlannedPacket,
        (bytes, path): (u32, u16),
        frame_bytes: usize,
        flow: Option<&mut Flow>,
    ) {
        self.probe = None;
        match sending.kind {
            TransmissionKind::Probe => self.timers.margin.on_sign(),
            TransmissionKind::Retransmission => self.sent.resent(now, sending.number, path),
            TransmissionKind::First => {
                self.sent.push(now, sending.part, bytes, sending.place, path);
                match &sending.part {
                    Contents::Request(segment) => self.requester.advance(segment, sending.number),
                    Contents::Read(_) | Contents::Atomic { .. } => {
                        self.responses.advance(self.block_segment_bytes());
                        self.responses_in_a_row += 1;
                    }
                    Contents::Parity => {}
                }
                if let Some(encoder) = self.encoder.as_mut().filter(|_| sending.place.is_coded()) {
                    encoder.advance();
                }
            }
        }
        self.timers.on_sent(now);
        if let Some(flow) = flow {
            let is_retransmission = sending.kind != TransmissionKind::First;
            let inflight_bytes = self.sent.in_flight_bytes();
            let sent = Sent { bytes, inflight_bytes, is_retransmission };
            let at_send = flow.on_sent(now, sent, frame_bytes);
            self.sent.note_flow(sending.number, at_send);
        }
    }

    /// The next packet that was never sent; whether the next request waits for a receive request.
    fn new_packet(&mut self, limits: &Limits, window_left: u64) -> (Option<PlannedPacket>, bool) {
        let number = self.sent.next();
        if number >= self.psn_limit() {
            return (None, false);
        }
        if let Some(sending) = self.next_of_block(number, limits, window_left) {
            return (Some(sending), false);
        }
        let may = Allowance {
            segment_bytes: self.segment_bytes,
            max_rd_atomic: self.max_rd_atomic,
            receive_limit: self.credit.receive_limit(),
            begins: limits.begins,
        };
        let next = if limits.sends { self.requester.next(&may) } else { Next::Idle };
        let answer = self.responses.next(self.segment_bytes);
        let answers_turn = self.responses_in_a_row < RESPONSES_IN_A_ROW_MAX;
        let (part, is_last) = match (next, answer) {
            (Next::Segment(segment), answer) if answer.is_none() || !answers_turn => {
                self.responses_in_a_row = 0;
                let is_last = answer.is_none() && self.requester.is_last(&segment);
                (Contents::Request(segment), is_last)
            }
            (next, Some(answer)) => {
                if !answers_turn {
                    self.responses_in_a_row = 0;
                }
                let ends = match answer {
                    Contents::Read(part) => part.last,
                    Contents::Request(_) | Contents::Atomic { .. } | Contents::Parity => true,
                };
                let is_last = ends && self.responses.len() == 1;
                (answer, is_last && !matches!(next, Next::Segment(_)))
            }
            (Next::NoReceive(_), None) => return (None, true),
            (Next::Idle | Next::Segment(_), None) => return (None, false),
        };
        let place = self.begin_block(&part);
        let asks = is_last || asks_by_number(number, limits, window_left);
        (Some(PlannedPacket { number, part, kind: TransmissionKind::First, asks, place }), false)
    }

    /// The next packet of the block that has begun: nothing else may be begun before its last.
    fn next_of_block(
        &mut self,
        number: u64,
        limits: &Limits,
        window_left: u64,
    ) -> Option<PlannedPacket> {
        let encoder = self.encoder.as_ref()?;
        let place = Place::of(&encoder.next_place()?);
        let part = match encoder.turn()? {
            Turn::Parity => Some(Contents::Parity),
            Turn::Data { is_answer: true, segment_bytes } => self.responses.next(segment_bytes),
            Turn::Data { segment_bytes, .. } => {
                // What has begun goes on whatever the receive limit says now: it costs a few
                // packets, and answers would have to wait for a limit that moves for their sake.
                let (max_rd_atomic, receive_limit) = (self.max_rd_atomic, None);
                let may = Allowance { segment_bytes, max_rd_atomic, receive_limit, begins: false };
                match self.requester.next(&may) {
                    Next::Segment(segment) if limits.sends => Some(Contents::Request(segment)),
                    _ => None,
                }
            }
        };
        let Some(part) = part else {
            // Its message is over before its time; what follows is another one's.
            self.encoder.as_mut()?.abandon();
            return None;
        };
        // The last data and all parity behind it: one answer of them may be lost as well, and
        // nobody asks again before two round trips are over.
        let is_last = match &part {
            Contents::Request(segment) => {
                self.responses.len() == 0 && self.requester.is_last(segment)
            }
            Contents::Read(part) => {
                part.last && self.responses.len() == 1 && !self.requester.has_unsent()
            }
            _ => self.responses.len() == 0 && !self.requester.has_unsent(),
        };
        let asks = is_last || asks_by_number(number, limits, window_left);
        Some(PlannedPacket { number, part, kind: TransmissionKind::First, asks, place })
    }

    /// The place of a part that would begin a block.
    fn begin_block(&self, part: &Contents) -> Place {
        let Some(encoder) = &self.encoder else { return Place::NONE };
        let left_bytes = match part {
            Contents::Request(segment) => self.requester.data_left(segment),
            Contents::Read(part) => part.left,
            Contents::Atomic { .. } | Contents::Parity => 0,
        };
        let block = encoder.begin(left_bytes, self.segment_bytes, &self.rtt);
        block.map_or(Place::NONE, |block| Place::of(&block))
    }

    /// Full segments are this long where the next packet stands.
    pub(super) fn block_segment_bytes(&self) -> u32 {
        match self.encoder.as_ref().and_then(|encoder| encoder.turn()) {
            Some(Turn::Data { segment_bytes, .. }) => segment_bytes,
            _ => self.segment_bytes,
        }
    }

    fn again(&self, number: u64, part: Contents) -> PlannedPacket {
        let place = self.sent.place(number);
        PlannedPacket { number, part, kind: TransmissionKind::Retransmission, asks: true, place }
    }

    fn probe_packet(&mut self, probe: Probe, limits: &Limits) -> Option<PlannedPacket> {
        match probe {
            Probe::Tail => self.sent.newest().map(|(n, part)| self.again(n, part)).or_else(|| {
                let (number, segment) = self.requester.oldest_unanswered()?;
                let (part, place) = (Contents::Request(segment), Place::NONE);
                Some(PlannedPacket {
                    number,
                    part,
                    kind: TransmissionKind::Probe,
                    asks: true,
                    place,
                })
            }),
            // A block that has begun does not wait for receive requests.
            Probe::Receive if self.encoder.as_ref().is_some_and(|c| c.turn().is_some()) => None,
            Probe::Receive => {
                if let Some((number, part)) = self.sent.next_lost(|_| true) {
                    return Some(self.again(number, part));
                }
                let may = Allowance {
                    segment_bytes: self.segment_bytes,
                    max_rd_atomic: self.max_rd_atomic,
                    receive_limit: self.credit.receive_limit(),
                    begins: limits.begins,
                };
                match self.requester.next(&may) {
                    Next::NoReceive(segment) if self.sent.next() < self.psn_limit() => {
                        let (number, part) = (self.sent.next(), Contents::Request(segment));
                        let place = self.begin_block(&part);
                        Some(PlannedPacket {
                            number,
                            part,
                            kind: TransmissionKind::First,
                            asks: true,
                            place,
                        })
                    }
                    _ => None,
                }
            }
        }
    }

    /// No packet at or above this is taken.
    fn psn_limit(&self) -> u64 {
        self.psn_limit.unwrap_or(self.sent.una() + u64::from(self.first_window_pkts))
    }
}

/// The peer acknowledges every so many by itself. It must be asked where it might wait for more
/// that will not come.
fn asks_by_number(number: u64, limits: &Limits, window_left: u64) -> bool {
    window_left == 1 || number.is_multiple_of(limits.ack_interval_pkts.into())
}

/// Parts of answers after which one request may go first: a burst of the schedule.
const RESPONSES_IN_A_ROW_MAX: u32 = 16;
