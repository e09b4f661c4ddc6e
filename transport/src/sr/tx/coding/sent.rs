//! Lost packets of FEC blocks: they are retransmitted only if parity cannot recover them
//! (docs/protocol/sr.md, "Blocks", 6 and 8).

use super::position::{Position, Recovered};
use crate::qp::flow::SendTimeState;
use crate::sr::number::unwrap;
use crate::sr::tx::sent::Sent;
use crate::sr::tx::sent::ack_info::{AckInfo, Acked, NewlyLost, PacketOutcome, PathEvent};
use crate::sr::tx::sent::entry::{Entry, State};
use crate::sr::tx::sent::run::Strided;
use spanwire_base::{Time, u64_from};
use spanwire_wire::{BlockReport, BlockReportKind, BlockRepr};
use std::num::NonZeroU64;

impl<T: Strided> Sent<T> {
    /// Adds a packet of a block, as [`Sent::push`]. `digest` is that of a source packet's payload.
    pub(in crate::sr::tx) fn push_of_block(
        &mut self,
        now: Time,
        contents: T,
        (bytes, path): (u32, u16),
        (block, digest): (BlockRepr, Option<NonZeroU64>),
        send_state: SendTimeState,
    ) {
        self.coding.retransmits &= block.index > 0;
        self.coding.unsent_pkts = u64::from(block.pkts()) - u64::from(block.index) - 1;
        let retransmits = self.coding.retransmits;
        let first = self.next() - u64::from(block.index);
        let position = Some(Position { block, first, digest, retransmits });
        let entry = Entry::new(contents, bytes, now, path, send_state);
        self.push_single(Entry { position, ..entry });
        self.count_sent(bytes);
    }

    /// The position of a packet in its block, if it is in one, while it is unacknowledged.
    pub(crate) fn position(&self, number: u64) -> Option<BlockRepr> {
        Some(self.entry(number)?.position?.block)
    }

    /// The packet that a TLP retransmits if the newest one is `number`: the highest missing source
    /// packet of its block, if there is one, because the payload of sent parity is not kept.
    pub(in crate::sr::tx) fn to_probe(&self, number: u64) -> u64 {
        let position = self.entry(number).and_then(|e| e.position);
        let data = position.map_or(0..0, |position| position.data());
        let is_missing = |n: &u64| self.entry(*n).is_some_and(|e| e.state != State::Arrived);
        data.take_while(|n| *n < number).filter(is_missing).last().unwrap_or(number)
    }

    /// One past the highest number that an ACK may name: parity of an open block may be settled
    /// before it is sent.
    pub(in crate::sr::tx) fn named_end(&self) -> u64 {
        self.next() + self.coding.unsent_pkts
    }

    /// Advances `data_una` past arrived packets and parity.
    #[inline]
    pub(in crate::sr::tx) fn advance_data_una(&mut self) {
        self.data_una = self.data_una.max(self.una());
        while self.is_skipped(self.data_una) {
            self.data_una += 1;
        }
    }

    /// Only parity is unacknowledged, including packets sent since the last ACK.
    pub(crate) fn has_only_parity(&self) -> bool {
        (self.data_una..self.next()).all(|number| self.is_skipped(number))
    }

    fn is_skipped(&self, number: u64) -> bool {
        let is_parity = |e: &Entry<T>| e.position.is_some_and(|p| p.block.is_parity());
        self.entry(number).is_some_and(|e| e.state == State::Arrived || is_parity(e))
    }

    /// Handles the loss of a block's packet.
    ///
    /// If the packets that have arrived, are in flight, are still unsent or wait for their
    /// retransmission suffice to recover the rest, nothing is retransmitted. Otherwise the lowest
    /// lost source packets are, as many as are missing.
    ///
    /// A retransmission reads memory again, which may have changed since parity was computed over
    /// the first transmission. A sum of both would be of neither. So once the payload of one has
    /// changed ([`Sent::repeats`]), all lost source packets of the block are retransmitted, and its
    /// parity is not used.
    #[inline(never)]
    pub(in crate::sr::tx) fn recover_or_queue(&mut self, position: Position) {
        let counts = |n: u64| match self.entry(n) {
            // Below the ring: acknowledged. Above: not sent yet.
            None => true,
            Some(e) => match e.state {
                State::Arrived => !e.is_discarded,
                State::InFlight => true,
                State::Lost => e.is_queued && e.position.is_some_and(|p| p.may_repeat()),
            },
        };
        let have = u64_from(position.packets().filter(|n| counts(*n)).count());
        match u64::from(position.block.data).saturating_sub(have) {
            _ if position.retransmits => self.retransmit_block(position),
            0 => {}
            missing => self.repair_block(position, missing),
        }
    }

    /// Queues so many lost source packets of the block. If a retransmission was lost too, it queues
    /// all, so that another loss takes no further round trip.
    fn repair_block(&mut self, position: Position, missing: u64) {
        let data = position.data();
        let lost = |s: &Self, number: u64| {
            let entry = s.entry(number).filter(|e| e.state == State::Lost && !e.is_queued);
            entry.map(|e| e.is_retransmitted)
        };
        let is_lost_again = data.clone().any(|number| lost(self, number) == Some(true));
        let mut left = if is_lost_again { u64::from(position.block.data) } else { missing };
        for number in data {
            if left > 0 && lost(self, number).is_some() {
                self.queue(number);
                left -= 1;
            }
        }
    }

    /// A lost packet was queued for retransmission: newly, or it was already. If its retransmission
    /// takes no part in recovery, all lost source packets of its block are queued.
    #[inline(never)]
    pub(in crate::sr::tx) fn on_queued(&mut self, position: Position, is_new: bool) {
        self.coding.queued_pkts += u64::from(is_new);
        if !position.retransmits && position.digest.is_none() {
            self.retransmit_block(position);
        }
    }

    /// A packet was retransmitted. If it is a source packet, and its retransmission takes no part
    /// in recovery, all lost ones of its block are queued.
    #[inline(never)]
    pub(in crate::sr::tx) fn on_repeated(&mut self, position: Position) {
        if !position.block.is_parity() && !position.retransmits && position.digest.is_none() {
            self.retransmit_block(position);
        }
    }

    /// A retransmission of the packet `number` has a payload of this digest. True if that is the
    /// payload of its first transmission, so that the peer may add it to its block. Otherwise the
    /// lost source packets of the block are retransmitted from now on.
    #[inline(never)]
    pub(super) fn repeats(&mut self, number: u64, digest: Option<NonZeroU64>) -> bool {
        let Some(position) = self.entry(number).and_then(|e| e.position) else { return false };
        let is_same = digest.is_some() && digest == position.digest;
        if position.digest.is_some() && !is_same {
            self.retransmit_block(position);
        }
        is_same
    }

    /// Retransmits the lost source packets of this block from now on.
    #[inline(never)]
    fn retransmit_block(&mut self, position: Position) {
        let packets = position.packets();
        self.coding.retransmits |= packets.end > self.next();
        for number in packets {
            let Some(entry) = self.entry_mut(number) else { continue };
            let is_lost = entry.state == State::Lost;
            let Some(position) = &mut entry.position else { continue };
            position.retransmits = true;
            if is_lost && !position.block.is_parity() {
                self.queue(number);
            }
        }
    }

    /// Retransmits the lost source packets of the oldest unacknowledged packet's block, if their
    /// recovery is left to parity. Its block NACKs may all have been lost.
    pub(in crate::sr::tx) fn retransmit_oldest(&mut self) {
        let oldest = self.entry(self.una()).filter(|e| e.state == State::Lost);
        if let Some(position) = oldest.and_then(|e| e.position) {
            self.retransmit_block(position);
        }
    }

    /// Applies the reports of packets that the peer has recovered, or does not need.
    #[inline]
    pub(in crate::sr::tx) fn apply_reports(&mut self, info: &AckInfo<'_>, acked: &mut Acked) {
        for report in info.blocks {
            match report.kind {
                BlockReportKind::Settled => acked.settled.add(self.on_block_settled(report)),
                BlockReportKind::Recovered => self.on_block_recovered(report),
                BlockReportKind::Nack => {}
            }
        }
    }

    /// Applies the block NACKs, after all arrivals that the ACK reports.
    #[inline]
    pub(in crate::sr::tx) fn apply_nacks(&mut self, info: &AckInfo<'_>, acked: &mut Acked) {
        for report in info.blocks.iter().filter(|report| report.kind == BlockReportKind::Nack) {
            let until = (info.echo, acked.newest).max((info.lost_send_time, u64::MAX));
            acked.nacked.add(self.on_block_nack(report, until));
        }
    }

    /// Applies a block NACK: packets of the block that the peer cannot use are lost if they were
    /// sent no later than `until`, a time and a number among packets of one time.
    #[inline(never)]
    fn on_block_nack(&mut self, report: &BlockReport, until: (Time, u64)) -> NewlyLost {
        let mut nacked = NewlyLost::default();
        let Some(position) = self.block(report) else { return nacked };
        for number in position.packets().filter(|n| report.bits >> (n - position.first) & 1 == 0) {
            let Some(entry) = self.entry_mut(number) else { continue };
            match entry.state {
                State::Arrived => entry.is_discarded = true,
                State::InFlight if (entry.sent_at, number) <= until => {
                    nacked.add(NewlyLost { pkts: 1, bytes: u64::from(entry.bytes) });
                    self.take_out_of_flight(number);
                    self.presume_lost(number, false);
                }
                State::InFlight | State::Lost => {}
            }
        }
        self.recover_or_queue(position);
        nacked
    }

    /// Applies a report of recovered packets: they are acknowledged. Whether they were lost is
    /// known once they are settled.
    #[inline(never)]
    fn on_block_recovered(&mut self, report: &BlockReport) {
        let Some(position) = self.block(report) else { return };
        for number in position.packets().filter(|n| report.bits >> (n - position.first) & 1 != 0) {
            let Some(entry) = self.entry_mut(number) else { continue };
            let was = std::mem::replace(&mut entry.state, State::Arrived);
            let (bytes, path, sent_at) = (u64::from(entry.bytes), entry.path, entry.sent_at);
            if was == State::Arrived {
                continue;
            }
            self.arrived.set(number);
            if was == State::InFlight {
                self.in_flight_pkts -= 1;
                self.in_flight_bytes -= bytes;
                if self.coding.recovered.len() >= RECOVERED_MAX {
                    self.coding.recovered.pop_front();
                }
                self.coding.recovered.push_back(Recovered { number, bytes, path, sent_at });
            }
        }
    }

    /// Applies a report of settled packets: they were lost and are not needed. Returns those that
    /// were not known to be lost.
    #[inline(never)]
    fn on_block_settled(&mut self, report: &BlockReport) -> NewlyLost {
        // Packets that were not reported as recovered are treated as such first, so that all lost
        // packets are in `recovered`.
        self.on_block_recovered(report);
        let mut lost = NewlyLost::default();
        let first = unwrap(self.una(), report.first);
        let matches = |r: &Recovered| {
            let i = r.number.wrapping_sub(first);
            i < 64 && report.bits >> i & 1 != 0
        };
        while let Some(at) = self.coding.recovered.iter().position(matches) {
            let Some(Recovered { bytes, path, sent_at, .. }) = self.coding.recovered.remove(at)
            else {
                break;
            };
            lost.add(NewlyLost { pkts: 1, bytes });
            self.counters.presumed_lost += 1;
            let outcome = PacketOutcome::Settled;
            self.push_path_event(PathEvent { path, pkts: 1, bytes, marked: 0, sent_at, outcome });
        }
        lost
    }

    /// The position of a packet in the block of a report, if one is unacknowledged.
    fn block(&self, report: &BlockReport) -> Option<Position> {
        let first = unwrap(self.una(), report.first);
        let position = (first..first + 64).find_map(|n| self.entry(n))?.position?;
        ((position.first, position.block.data) == (first, report.data)).then_some(position)
    }
}

/// The most recovered packets to keep: two of each of about a hundred blocks. The losses of older
/// ones are not reported.
const RECOVERED_MAX: usize = 256;

#[cfg(test)]
mod tests;
