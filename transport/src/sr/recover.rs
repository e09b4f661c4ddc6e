//! FEC blocks of the peer: lost source packets are recovered and placed as if they had arrived.

use super::Sr;
use super::number::wrap;
use super::on_data::{Placed, ends_write};
use super::rx::decoder::{BlockState, Segment};
use super::rx::received::Arrival;
use super::rx::responder::{ReceivedPacket, Rejection};
use crate::qp::common::{Common, Shared};
use spanwire_base::Time;
use spanwire_wire::{AckReason, NakCode};

impl Sr {
    /// Processes the first arrival of a block's packet: a placed source packet, or parity.
    #[inline(never)]
    pub(super) fn on_block(
        &mut self,
        qp: &mut Common,
        now: Time,
        a: &ReceivedPacket<'_>,
        sh: &mut Shared,
    ) {
        let first = a.header.block.map_or(a.number, |block| a.number - u64::from(block.index));
        let packet = (a.number, a.header, a.solicited);
        let rx = &mut self.rx;
        let received = &rx.received;
        let arrived = |first| received.block_bitmap(first);
        match rx.decoder.on_packet(now, packet, a.data, arrived, &mut sh.block_memory) {
            BlockState::Incomplete => {}
            BlockState::Complete(numbers) => rx.received.skip(numbers),
            BlockState::Recoverable => self.recover(qp, now, first, sh),
        }
        self.rx.count_blocks(&mut sh.counters);
    }

    /// Computes the lost source packets of a block and places them as if they had arrived.
    fn recover(&mut self, qp: &mut Common, now: Time, first: u64, sh: &mut Shared) {
        let segments = self.rx.decoder.recover(first);
        self.place_recovered(qp, now, first, &segments, sh);
        self.rx.decoder.recycle(segments);
    }

    fn place_recovered(
        &mut self,
        qp: &mut Common,
        now: Time,
        first: u64,
        segments: &[Segment],
        sh: &mut Shared,
    ) {
        let received = &self.rx.received;
        let is_missing =
            |s: &Segment| matches!(received.classify(wrap(s.number)), Arrival::Missing(_));
        if !segments.iter().all(is_missing) {
            // Overlapping blocks violate the protocol.
            return self.rx.decoder.on_overlap(first, &mut sh.block_memory);
        }
        for segment in segments {
            let (number, header) = (segment.number, &segment.header);
            let in_order = number == self.rx.received.data_next();
            let (data, solicited) = (segment.payload(), segment.solicited);
            let arrived = ReceivedPacket { number, in_order, header, data, solicited };
            match self.place_data(qp, &arrived, sh) {
                Ok(Placed::Yes) => self.rx.received.insert(number),
                Ok(Placed::Failed) => return,
                Ok(Placed::No(Rejection::Refused(code @ NakCode::RemoteAccess, _))) => {
                    return self.reject_message(qp, header.psn, code, None, sh);
                }
                // The original would be rejected as well. A block NACK makes the sender retransmit
                // it, and the retransmission is answered as usual.
                Ok(Placed::No(_)) | Err(_) => {
                    self.rx.decoder.on_rejected(first, number, &mut sh.block_memory);
                    self.rx.ack.request_ack(AckReason::Block);
                    return;
                }
            }
            sh.counters.ec_rebuilt_packets += 1;
            sh.counters.rx_messages += u64::from(ends_write(header));
            if header.response_to.is_some() {
                self.after_response(qp, now, sh);
            }
        }
        let parity = self.rx.decoder.on_recovered(first, &mut sh.block_memory);
        self.rx.received.skip(parity);
        self.rx.ack.request_ack(AckReason::Block);
    }
}
