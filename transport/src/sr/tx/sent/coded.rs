//! Lost packets of FEC blocks: they are retransmitted only if parity cannot recover them
//! (docs/protocol/sr.md, "Blocks", 6 and 8).

use super::Sent;
use super::ack_info::{NewlyLost, PacketOutcome, PathEvent};
use super::entry::{Recovered, State};
use super::run::Strided;
use crate::sr::number::unwrap;
use crate::sr::tx::block_position::BlockPosition;
use spanwire_base::{Time, u64_from};
use spanwire_wire::BlockReport;
use std::num::NonZeroU64;

impl<T: Strided> Sent<T> {
    /// The position of a packet in its block, while it is unacknowledged.
    pub(crate) fn position(&self, number: u64) -> BlockPosition {
        self.entry(number).map_or(BlockPosition::NONE, |e| e.position)
    }

    /// The highest missing source packet of a parity packet's block.
    pub(super) fn missing_data(&self, number: u64) -> Option<u64> {
        let position = self.position(number);
        let first = number.saturating_sub(position.index.into());
        let data = first..first + u64::from(position.data);
        let is_missing = |n: &u64| self.entry(*n).is_some_and(|e| e.state != State::Arrived);
        data.take_while(|n| *n < number).filter(is_missing).last()
    }

    /// Advances `data_una` past arrived packets and parity.
    #[inline]
    pub(super) fn skip_parity(&mut self) {
        while self.is_skipped(self.data_una) {
            self.data_una += 1;
        }
    }

    /// Only parity is unacknowledged, including packets sent since the last ACK.
    pub(crate) fn has_only_parity(&self) -> bool {
        (self.data_una..self.next()).all(|number| self.is_skipped(number))
    }

    fn is_skipped(&self, number: u64) -> bool {
        self.entry(number).is_some_and(|e| e.state == State::Arrived || e.position.is_parity())
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
    pub(super) fn on_block_loss(&mut self, number: u64, position: BlockPosition) {
        let first = number.saturating_sub(position.index.into());
        let counts = |n: u64| match self.entry(n) {
            // Below the ring: acknowledged. Above: not sent yet.
            None => true,
            Some(e) => match e.state {
                State::Arrived => !e.position.is_discarded,
                State::InFlight => true,
                State::Lost => e.is_queued && e.may_repeat(),
            },
        };
        let have = u64_from((first..first + position.pkts()).filter(|n| counts(*n)).count());
        match u64::from(position.data).saturating_sub(have) {
            _ if position.retransmits => self.retransmit_block(number, position),
            0 => {}
            missing => self.repair_block(first, position, missing),
        }
    }

    /// Queues so many lost source packets of the block from `first` on. If a retransmission was
    /// lost too, it queues all, so that another loss takes no further round trip.
    fn repair_block(&mut self, first: u64, position: BlockPosition, missing: u64) {
        let data = first..first + u64::from(position.data);
        let lost = |s: &Self, number: u64| {
            let entry = s.entry(number).filter(|e| e.state == State::Lost && !e.is_queued);
            entry.map(|e| e.is_retransmitted)
        };
        let is_lost_again = data.clone().any(|number| lost(self, number) == Some(true));
        let mut left = if is_lost_again { u64::from(position.data) } else { missing };
        for number in data {
            if left > 0 && lost(self, number).is_some() {
                self.queue(number);
                left -= 1;
            }
        }
    }

    /// A retransmission of the packet `number` has a payload of this digest. True if that is the
    /// payload of its first transmission, so that the peer may add it to its block. Otherwise the
    /// lost source packets of the block are retransmitted from now on.
    #[inline(never)]
    pub(crate) fn repeats(&mut self, number: u64, digest: Option<NonZeroU64>) -> bool {
        let Some(entry) = self.entry(number) else { return false };
        let (first, position) = (entry.digest, entry.position);
        let is_same = digest.is_some() && digest == first;
        if first.is_some() && !is_same {
            self.retransmit_block(number, position);
        }
        is_same
    }

    /// Retransmits the lost source packets, from now on, of the block in which the packet `number`
    /// has this position.
    #[inline(never)]
    pub(super) fn retransmit_block(&mut self, number: u64, position: BlockPosition) {
        let first = number.saturating_sub(position.index.into());
        for number in first..first + position.pkts() {
            let Some(entry) = self.entry_mut(number) else { continue };
            entry.position.retransmits = true;
            if entry.state == State::Lost && !entry.position.is_parity() {
                self.queue(number);
            }
        }
        self.open_block_retransmits |= first + position.pkts() > self.next();
    }

    /// Retransmits the lost source packets of the oldest unacknowledged packet's block, if their
    /// recovery is left to parity. Its block NACKs may all have been lost.
    pub(crate) fn retransmit_oldest_block(&mut self) {
        let oldest =
            self.entry(self.una).filter(|e| e.state == State::Lost && e.position.is_coded());
        if let Some(position) = oldest.map(|e| e.position) {
            self.retransmit_block(self.una, position);
        }
    }

    /// Applies a block NACK: packets of the block that the peer cannot use are lost if they were
    /// sent no later than `until`, a time and a number among packets of one time.
    #[inline(never)]
    pub(super) fn on_block_nack(&mut self, report: &BlockReport, until: (Time, u64)) -> NewlyLost {
        let mut nacked = NewlyLost::default();
        let Some((first, position)) = self.block(report) else { return nacked };
        for i in (0..position.pkts()).filter(|i| report.bits >> i & 1 == 0) {
            let number = first + i;
            let Some(entry) = self.entry_mut(number) else { continue };
            match entry.state {
                State::Arrived => entry.position.is_discarded = true,
                State::InFlight if (entry.sent_at, number) <= until => {
                    nacked.pkts += 1;
                    nacked.bytes += u64::from(entry.bytes);
                    entry.lost_by_time = false;
                    self.take_out_of_flight(number);
                    self.presume_lost(number);
                }
                State::InFlight | State::Lost => {}
            }
        }
        self.on_block_loss(first, BlockPosition { index: 0, ..position });
        nacked
    }

    /// Applies a report of recovered packets: they are acknowledged. Whether they were lost is
    /// known once they are settled.
    #[inline(never)]
    pub(super) fn on_block_recovered(&mut self, report: &BlockReport) {
        let Some((first, position)) = self.block(report) else { return };
        for number in (0..position.pkts()).filter(|i| report.bits >> i & 1 != 0).map(|i| first + i)
        {
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
                if self.peer_recovered.len() >= REBUILT_MAX {
                    self.peer_recovered.pop_front();
                }
                self.peer_recovered.push_back(Recovered { number, bytes, path, sent_at });
            }
        }
    }

    /// Applies a report of settled packets: they were lost and are not needed. Returns those that
    /// were not known to be lost.
    #[inline(never)]
    pub(super) fn on_block_settled(&mut self, report: &BlockReport) -> NewlyLost {
        // Packets that were not reported as recovered are treated as such first, so that all lost
        // packets are in `peer_recovered`.
        self.on_block_recovered(report);
        let mut lost = NewlyLost::default();
        let first = unwrap(self.una, report.first);
        let matches = |r: &Recovered| {
            let i = r.number.wrapping_sub(first);
            i < 64 && report.bits >> i & 1 != 0
        };
        while let Some(at) = self.peer_recovered.iter().position(matches) {
            let Some(Recovered { bytes, path, sent_at, .. }) = self.peer_recovered.remove(at)
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

    /// The block of a report, if one of its packets is unacknowledged: its first number, and the
    /// position of its first packet.
    fn block(&self, report: &BlockReport) -> Option<(u64, BlockPosition)> {
        let first = unwrap(self.una, report.first);
        let at = |i: u64| self.entry(first + i).map(|e| (i, e.position));
        let (i, position) = (0..64).find_map(at)?;
        let matches = position.data == report.data && u64::from(position.index) == i;
        matches.then_some((first, BlockPosition { index: 0, ..position }))
    }
}

/// The most recovered packets to keep: two of each of about a hundred blocks. The losses of older
/// ones are not reported.
const REBUILT_MAX: usize = 256;

#[cfg(test)]
mod tests;
