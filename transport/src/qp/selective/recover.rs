//! Blocks of the peer's: what comes of them, what is computed, and what is said of those that are
//! late.

use super::Selective;
use super::data::{Placed, is_whole_write};
use super::inbound::{Arrived, Objection};
use super::rebuild::{Overdue, Segment, Then};
use crate::blocks::BlockMemory;
use crate::counters::Counters;
use crate::qp::{QueuePair, Shared};
use crate::stream::received::{Arrival, wrap};
use spanwire_base::Time;
use spanwire_wire::{AckReason, NakCode};

impl QueuePair {
    /// A packet of a block came for the first time and has been put where it belongs, or is parity.
    #[inline(never)]
    pub(super) fn on_block(&mut self, now: Time, a: &Arrived<'_>, sh: &mut Shared<'_>) {
        let Some(sr) = self.selective.as_deref_mut() else { return };
        let first = a.header.block.map_or(a.number, |block| a.number - u64::from(block.index));
        let packet = (a.number, a.header, a.solicited);
        let Selective { rebuild, received, .. } = sr;
        let arrived = |first| received.arrived(first);
        match rebuild.on_packet(now, packet, a.data, arrived, sh.block_memory) {
            Then::Nothing => {}
            Then::Idle(numbers) => sr.received.pass_over(numbers),
            Then::Rebuild => self.rebuild(now, first, sh),
        }
        if let Some(sr) = &mut self.selective {
            sr.count_blocks(sh.counters);
        }
    }

    /// Computes what is lost of a block, and puts it where it belongs as if it had come.
    fn rebuild(&mut self, now: Time, first: u64, sh: &mut Shared<'_>) {
        let segments = self.selective.as_deref_mut().map(|sr| sr.rebuild.compute(first));
        let segments = segments.unwrap_or_default();
        self.place_rebuilt(now, first, &segments, sh);
        if let Some(sr) = self.selective.as_deref_mut() {
            sr.rebuild.reuse(segments);
        }
    }

    fn place_rebuilt(&mut self, now: Time, first: u64, segments: &[Segment], sh: &mut Shared<'_>) {
        // Blocks that overlap are none of a peer's that keeps to the protocol.
        if let Some(sr) = self.selective.as_deref_mut() {
            let received = &sr.received;
            let is_missing =
                |s: &Segment| matches!(received.judge(wrap(s.number)), Arrival::Missing(_));
            if !segments.iter().all(is_missing) {
                return sr.rebuild.contradicted(first, sh.block_memory);
            }
        }
        for segment in segments {
            let Some(sr) = self.selective.as_deref() else { return };
            let (number, header) = (segment.number, &segment.header);
            let in_order = number == sr.received.due();
            let (data, solicited) = (segment.payload(), segment.solicited);
            let arrived = Arrived { number, in_order, header, data, solicited };
            let placed = self.put(&arrived, sh);
            let Some(sr) = self.selective.as_deref_mut() else { return };
            match placed {
                Ok(Placed::Yes) => sr.received.take(number),
                Ok(Placed::Failed) => return,
                Ok(Placed::No(Objection::Refused(code @ NakCode::RemoteAccess, _))) => {
                    return self.refuse_message(header.psn, code, None, sh);
                }
                // As it came it would have been refused, or turned away, in its turn: its sender
                // is told so when it sends it.
                Ok(Placed::No(_)) | Err(_) => {
                    sr.rebuild.give_up(first, number, sh.block_memory);
                    sr.feedback.ask(AckReason::Block);
                    return;
                }
            }
            sh.counters.ec_rebuilt_packets += 1;
            sh.counters.rx_messages += u64::from(is_whole_write(header));
            self.after_response(now, header, sh);
        }
        if let Some(sr) = self.selective.as_deref_mut() {
            let idle = sr.rebuild.rebuilt(first, sh.block_memory);
            sr.received.pass_over(idle);
            sr.feedback.ask(AckReason::Block);
        }
    }

    /// Does what is due at `now` of blocks that are late.
    pub(in crate::qp) fn blocks_overdue(&mut self, now: Time, sh: &mut Shared<'_>) {
        let Some(sr) = &mut self.selective else { return };
        if sr.rebuild.next_deadline().is_none_or(|at| at > now) {
            return;
        }
        while let Some(overdue) = sr.rebuild.overdue(now, sh.block_memory) {
            if let Overdue::Settle(numbers) = overdue {
                sr.received.settle(numbers);
            }
            sr.feedback.ask(AckReason::Block);
        }
        sr.count_blocks(sh.counters);
    }

    /// Nothing more is received: what was kept aside is given back.
    pub(crate) fn forget_blocks(&mut self, memory: &mut BlockMemory) {
        if let Some(sr) = &mut self.selective {
            sr.rebuild.clear(memory);
        }
    }
}

impl Selective {
    fn count_blocks(&mut self, counters: &mut Counters) {
        let new = self.rebuild.take_counters();
        counters.ec_blocks_rebuilt += new.rebuilt;
        counters.ec_blocks_plain += new.plain;
        counters.ec_block_nacks += new.nacks;
    }
}
