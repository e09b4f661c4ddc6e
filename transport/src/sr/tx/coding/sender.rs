//! The packets of blocks: their choice, header and payload, and what follows from sending them.

use crate::qp::flow::SendTimeState;
use crate::sr::number::wrap;
use crate::sr::tx::Tx;
use crate::sr::tx::plan::{Contents, PlannedPacket, ReadSegment, Segment, TransmissionKind};
use crate::sr::tx::requester::{Allowance, Next};
use crate::sr::tx::schedule::{Limits, requests_periodic_ack};
use spanwire_base::Time;
use spanwire_wire::{BlockRepr, SrAckRepr, SrDataRepr, SrKind};

impl Tx {
    /// The next packet of the open block. Packets of a block have consecutive numbers, so nothing
    /// else may begin before its last one.
    #[inline(never)]
    pub(in crate::sr::tx) fn continue_coding(
        &mut self,
        number: u64,
        limits: &Limits,
        window_left: u64,
    ) -> Option<PlannedPacket> {
        let (block, (is_response, segment_bytes)) = self.coding.as_ref()?.encoder.next()?;
        let contents = if block.is_parity() {
            Some(Contents::Parity)
        } else if is_response {
            self.responses.next(segment_bytes)
        } else {
            // An open block ignores the receive limit, at the cost of a few packets. Otherwise
            // responses would wait behind it, for a limit that moves independently of them.
            let (receive_limit, begins_requests) = (None, false);
            let allowance = self.allowance(limits);
            let allowance =
                Allowance { segment_bytes, receive_limit, begins_requests, ..allowance };
            match self.requester.next(&allowance) {
                Next::Segment(segment) if limits.sends_requests => Some(Contents::Request(segment)),
                _ => None,
            }
        };
        let Some(contents) = contents else {
            // The message of the block ended early; the next data belong to another one.
            self.coding.as_mut()?.abandon();
            return None;
        };
        // The last source packet and each parity packet after it request an ACK: one ACK may be
        // lost, and a TLP is not due before two round trips have passed.
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
        let (kind, position) = (TransmissionKind::First, Some(block));
        Some(PlannedPacket { number, contents, kind, requests_ack, position })
    }

    /// The position of a new packet that continues no block: the first of one, if it is coded.
    #[inline]
    pub(in crate::sr::tx) fn position(&self, contents: &Contents) -> Option<BlockRepr> {
        let encoder = &self.coding.as_ref()?.encoder;
        let left_bytes = match contents {
            Contents::Request(segment) => self.requester.remaining_data(segment),
            Contents::Read(segment) => segment.left,
            Contents::Atomic { .. } | Contents::Parity => 0,
        };
        encoder.plan_block(left_bytes, self.segment_bytes, &self.rtt)
    }

    /// Opens the encoder's block, if the packet is the first of one.
    #[inline]
    pub(in crate::sr) fn begin_block_of(&mut self, planned: &PlannedPacket) {
        if planned.kind == TransmissionKind::First
            && let Some(block) = planned.position.filter(|block| block.index == 0)
        {
            self.open_block(planned, block);
        }
    }

    #[inline(never)]
    fn open_block(&mut self, planned: &PlannedPacket, block: BlockRepr) {
        let Some(coding) = &mut self.coding else { return };
        let (psn, segment_bytes) = (wrap(planned.number), self.segment_bytes);
        let bytes_of = |left: u32| left.min(u32::from(block.data) * segment_bytes);
        let (header, len, is_response) = match &planned.contents {
            Contents::Request(segment) => {
                let len = bytes_of(self.requester.remaining_data(segment));
                let whole = Segment { len, ..*segment };
                let Some(header) = self.requester.header(&whole, psn) else { return };
                ((header, self.requester.is_solicited(&whole)), len, false)
            }
            Contents::Read(segment) => {
                let len = bytes_of(segment.left);
                let whole = ReadSegment { len, last: len == segment.left, ..*segment };
                ((whole.header(psn), false), len, true)
            }
            Contents::Atomic { .. } | Contents::Parity => return,
        };
        coding.encoder.open(block, header, len, (is_response, segment_bytes));
    }

    /// The header of a parity packet, its solicited bit, and its payload bytes.
    pub(in crate::sr::tx) fn parity_header(
        &self,
        kind: TransmissionKind,
        psn: u32,
    ) -> (SrDataRepr, bool, u32) {
        let coding = self.coding.as_ref().filter(|_| kind == TransmissionKind::First);
        // The payload of sent parity is not kept: an empty packet completes its number.
        let empty = || (SrDataRepr::new(SrKind::Send, psn, 0), false, 0);
        coding.and_then(|coding| coding.encoder.parity_header(psn)).unwrap_or_else(empty)
    }

    /// Whether the packet whose payload was filled in last is marked as a retransmission: its
    /// payload may differ from that of the first transmission.
    #[inline]
    pub(in crate::sr) fn is_marked(&mut self, planned: &PlannedPacket) -> bool {
        match (planned.kind, planned.position) {
            (TransmissionKind::First, _) => false,
            (TransmissionKind::Retransmission, Some(_)) => {
                let digest = self.coding.as_ref().and_then(|coding| coding.encoder.digest);
                !self.sent.repeats(planned.number, digest)
            }
            (TransmissionKind::Retransmission | TransmissionKind::Probe, _) => true,
        }
    }

    /// Adds a packet with this position to the packets sent.
    pub(in crate::sr::tx) fn add_sent(
        &mut self,
        now: Time,
        contents: Contents,
        sent: (u32, u16),
        block: BlockRepr,
        send_state: SendTimeState,
    ) {
        let Some(coding) = &mut self.coding else { return };
        let position = (block, coding.encoder.digest.filter(|_| !block.is_parity()));
        self.sent.push_of_block(now, contents, sent, position, send_state);
        coding.encoder.advance();
    }

    /// Packets sent until then are lost if a block NACK of this ACK says that they are missing.
    #[inline]
    pub(in crate::sr::tx) fn lost_send_time(&self, now: Time, ack: &SrAckRepr<'_>) -> Time {
        if ack.blocks.as_slice().is_empty() {
            return Time::ZERO;
        }
        self.sent.loss_delay(&self.rtt).map_or(Time::ZERO, |loss_delay| now - loss_delay)
    }

    /// Only parity of completed requests is unacknowledged, if anything. A peer that has closed
    /// need not acknowledge it.
    pub(in crate::sr::tx) fn is_complete(&self) -> bool {
        self.requester.oldest().is_none() && self.sent.has_only_parity()
    }

    /// Stops waiting for ACKs of parity. It is not retransmitted and takes no room in the window of
    /// later requests.
    pub(in crate::sr::tx) fn abandon_rest(&mut self) {
        self.timers.reset();
        self.sent.abandon_all();
    }
}
