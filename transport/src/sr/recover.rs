//! FEC blocks of the peer: lost source packets are recovered and placed as if they had arrived.

use super::Sr;
use super::number::wrap;
use super::on_data::{Placed, is_whole_write};
use super::rx::decoder::{Segment, Then};
use super::rx::received::Arrival;
use super::rx::responder::{Arrived, Rejection};
use crate::qp::common::{Common, Shared};
use spanwire_base::Time;
use spanwire_wire::{AckReason, NakCode};

impl Sr {
    /// A packet of a block arrived for the first time and was placed, or is parity.
    #[inline(never)]
    pub(super) fn on_block(
        &mut self,
        qp: &mut Common,
        now: Time,
        a: &Arrived<'_>,
        sh: &mut Shared<'_>,
    ) {
        let first = a.header.block.map_or(a.number, |block| a.number - u64::from(block.index));
        let packet = (a.number, a.header, a.solicited);
        let rx = &mut self.rx;
        let received = &rx.received;
        let arrived = |first| received.arrived(first);
        match rx.decoder.on_packet(now, packet, a.data, arrived, sh.block_memory) {
            Then::Nothing => {}
            Then::Idle(numbers) => rx.received.pass_over(numbers),
            Then::Recover => self.recover(qp, now, first, sh),
        }
        self.rx.count_blocks(sh.counters);
    }

    /// Computes the lost source packets of a block and places them as if they had arrived.
    fn recover(&mut self, qp: &mut Common, now: Time, first: u64, sh: &mut Shared<'_>) {
        let segments = self.rx.decoder.compute(first);
        self.place_recovered(qp, now, first, &segments, sh);
        self.rx.decoder.reuse(segments);
    }

    fn place_recovered(
        &mut self,
        qp: &mut Common,
        now: Time,
        first: u64,
        segments: &[Segment],
        sh: &mut Shared<'_>,
    ) {
        let received = &self.rx.received;
        let is_missing =
            |s: &Segment| matches!(received.judge(wrap(s.number)), Arrival::Missing(_));
        if !segments.iter().all(is_missing) {
            // Overlapping blocks violate the protocol.
            return self.rx.decoder.contradicted(first, sh.block_memory);
        }
        for segment in segments {
            let (number, header) = (segment.number, &segment.header);
            let in_order = number == self.rx.received.due();
            let (data, solicited) = (segment.payload(), segment.solicited);
            let arrived = Arrived { number, in_order, header, data, solicited };
            match self.put(qp, &arrived, sh) {
                Ok(Placed::Yes) => self.rx.received.take(number),
                Ok(Placed::Failed) => return,
                Ok(Placed::No(Rejection::Refused(code @ NakCode::RemoteAccess, _))) => {
                    return self.refuse_message(qp, header.psn, code, None, sh);
                }
                // The packet itself would have been refused, or turned away, in its turn: the
                // sender learns that from its retransmission.
                Ok(Placed::No(_)) | Err(_) => {
                    self.rx.decoder.give_up(first, number, sh.block_memory);
                    self.rx.ack.ask(AckReason::Block);
                    return;
                }
            }
            sh.counters.ec_rebuilt_packets += 1;
            sh.counters.rx_messages += u64::from(is_whole_write(header));
            self.after_response(qp, now, header, sh);
        }
        let idle = self.rx.decoder.rebuilt(first, sh.block_memory);
        self.rx.received.pass_over(idle);
        self.rx.ack.ask(AckReason::Block);
    }
}
