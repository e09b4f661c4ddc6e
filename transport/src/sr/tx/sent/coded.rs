//! Lost packets of FEC blocks: they are retransmitted only if parity cannot recover them
//! (docs/protocol/sr.md, "Blocks", 6 and 8).

use super::Sent;
use super::ack_info::{NewlyLost, PacketOutcome, PathEvent};
use super::entry::{Recovered, State};
use crate::sr::number::unwrap;
use crate::sr::tx::block_position::BlockPosition;
use spanwire_base::{Time, u64_from};
use spanwire_wire::BlockReport;

impl<T: Copy> Sent<T> {
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
    /// If the packets that have arrived, are in flight or are still unsent suffice to recover the
    /// rest, nothing is retransmitted. Otherwise all lost source packets of the block are, and its
    /// parity is not used.
    ///
    /// A retransmission takes no part in recovery: it reads memory again, which may have changed
    /// since parity was computed over the first transmission. A sum of both would be of neither.
    #[inline(never)]
    pub(super) fn on_block_loss(&mut self, number: u64, position: BlockPosition) {
        let first = number.saturating_sub(position.index.into());
        let counts = |n: u64| match self.entry(n) {
            // Below the ring: acknowledged. Above: not sent yet.
            None => true,
            Some(e) => match e.state {
                State::Arrived => !e.position.is_discarded,
                State::InFlight => true,
                State::Lost => false,
            },
        };
        let have = u64_from((first..first + position.pkts()).filter(|n| counts(*n)).count());
        if position.retransmits || have < u64::from(position.data) {
            self.retransmit_block(number, position);
        }
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
mod tests {
    use super::*;
    use crate::sr::tx::rtt::Rtt;
    use crate::sr::tx::sent::ack_info::AckInfo;
    use spanwire_base::Dur;
    use spanwire_wire::BlockRepr;
    use spanwire_wire::{BlockReportKind, SackWord};

    fn at(us: u64) -> Time {
        Time::ZERO + Dur::from_us(us)
    }

    fn rtt() -> Rtt {
        let mut rtt = Rtt::default();
        rtt.sample(Dur::from_us(100), Dur::ZERO);
        rtt
    }

    /// Blocks of four source and two parity packets, one packet each microsecond. The six packets
    /// of a block take paths 1 to 6.
    fn blocks(count: u8) -> Sent<u64> {
        let mut s = Sent::new(0);
        s.track_paths();
        for i in 0..6 * count {
            let block = BlockRepr { index: i % 6, data: 4, parity: 2, scheme: 1 };
            let position = BlockPosition::of(&block);
            s.push(at(i.into()), i.into(), 100, position, u16::from(i % 6) + 1);
        }
        s
    }

    fn word(numbers: &[u64]) -> SackWord {
        SackWord { base: 0, bits: numbers.iter().fold(0, |bits, n| bits | 1 << n) }
    }

    fn info<'a>(words: &'a [SackWord], newest: u32, blocks: &'a [BlockReport]) -> AckInfo<'a> {
        AckInfo {
            next: 0,
            words,
            newest,
            echo: at(newest.into()),
            blocks,
            lost_send_time: Time::ZERO,
            latest_ackable: Time::MAX,
            marks: 0,
        }
    }

    fn report(kind: BlockReportKind, first: u32, bits: u64) -> BlockReport {
        BlockReport { first, kind, data: 4, bits }
    }

    /// Retransmits all queued packets; returns their contents.
    fn retransmit_all(s: &mut Sent<u64>) -> Vec<u64> {
        let mut all = Vec::new();
        while let Some((number, contents)) = s.next_lost(|_| true) {
            s.on_retransmitted(at(999), number, 9);
            all.push(contents);
        }
        all
    }

    /// If all data of a block are acknowledged before its parity is sent, and the peer has closed,
    /// no ACK of the parity follows. The queue pair must not fail because of that.
    #[test]
    fn has_only_parity__counts_packets_sent_since_the_last_ack() {
        let mut s = Sent::new(0);
        let block = |index| BlockPosition::of(&BlockRepr { index, data: 4, parity: 2, scheme: 1 });
        (0..4).for_each(|i| s.push(at(i.into()), u64::from(i), 100, block(i), 1));
        s.on_ack(&AckInfo { next: 3, ..info(&[], 2, &[]) }).unwrap();
        assert!(!s.has_only_parity());
        s.on_ack(&AckInfo { next: 4, ..info(&[], 3, &[]) }).unwrap();
        (4..6).for_each(|i| s.push(at(i.into()), u64::from(i), 100, block(i), 1));
        assert!(s.has_only_parity() && !s.is_empty());
        s.abandon_all();
        assert!(s.in_flight_pkts() == 0 && !s.has_lost(), "parity takes no room in the window");
        assert_eq!(retransmit_all(&mut s), []);
        s.push(at(6), 6, 100, BlockPosition::NONE, 1);
        assert!(!s.has_only_parity());
    }

    #[test]
    fn on_block_loss__recoverable_losses_are_left_to_parity() {
        let mut s = blocks(2);
        s.on_ack(&info(&[word(&[1, 3, 4, 5, 6, 7, 8, 9])], 9, &[])).unwrap();
        let found = s.detect(at(200), &rtt());
        assert_eq!((found.pkts, found.bytes, found.coded_bytes), (2, 0, 200));
        assert_eq!(retransmit_all(&mut s), [], "the peer recovers 0 and 2");
        assert!(!s.has_lost() && !s.is_empty());
        assert_eq!(
            (s.in_flight_pkts(), s.in_flight_bytes()),
            (2, 200),
            "the parity of the second block"
        );
    }

    #[test]
    fn on_block_loss__of_an_unrecoverable_block_all_lost_data_are_retransmitted() {
        let mut s = blocks(2);
        s.on_ack(&info(&[word(&[3, 5, 6, 7])], 7, &[])).unwrap();
        s.detect(at(200), &rtt());
        assert_eq!(retransmit_all(&mut s), [0, 1, 2], "0, 1, 2 and the parity 4 are lost");
        // One retransmission is lost too.
        s.on_ack(&info(&[word(&[1, 3, 5, 6, 7, 8, 9, 10, 11])], 11, &[])).unwrap();
        s.delivered = Some((at(1200), 0));
        s.detect(at(2000), &rtt());
        assert_eq!(retransmit_all(&mut s), [0, 2], "a retransmission is no part of recovery");
    }

    #[test]
    fn mark_all_lost__queues_the_missing_data_of_each_block() {
        let mut s = blocks(2);
        s.on_ack(&info(&[word(&[2, 5])], 5, &[])).unwrap();
        s.mark_all_lost();
        assert_eq!(retransmit_all(&mut s), [0, 1, 3, 6, 7, 8, 9]);
    }

    #[test]
    fn on_block_nack__packets_sent_before_the_echo_are_lost() {
        let mut s = blocks(1);
        // 4 has arrived and was dropped; 5 was sent after the echoed packet.
        let nack = [report(BlockReportKind::Nack, 0, 0b00_0011)];
        let acked =
            s.on_ack(&AckInfo { echo: at(4), ..info(&[word(&[0, 1, 4])], 4, &nack) }).unwrap();
        assert_eq!((acked.pkts, acked.nacked), (3, NewlyLost { pkts: 2, bytes: 200 }));
        assert_eq!(retransmit_all(&mut s), [2, 3], "5, in flight, can recover one of them only");
        s.on_ack(&info(&[word(&[0, 1, 4])], 4, &nack)).unwrap();
        assert_eq!(retransmit_all(&mut s), [], "packets in flight are not retransmitted");
    }

    #[test]
    fn on_block_nack__overdue_packets_are_lost_without_a_newer_arrival() {
        let mut s = blocks(1);
        let nack = [report(BlockReportKind::Nack, 0, 0b11_0001)];
        s.on_ack(&info(&[word(&[0, 4, 5])], 5, &nack)).unwrap();
        assert_eq!(retransmit_all(&mut s), [1, 2, 3], "retransmitted at 999 us");
        let words = [word(&[0, 4, 5])];
        let info = info(&words, 5, &nack);
        s.on_ack(&AckInfo { lost_send_time: at(998), ..info }).unwrap();
        assert_eq!(retransmit_all(&mut s), []);
        s.on_ack(&AckInfo { lost_send_time: at(999), ..info }).unwrap();
        assert_eq!(retransmit_all(&mut s), [1, 2, 3], "all missing source packets are lost again");
    }

    #[test]
    fn on_block_nack__a_premature_nack_does_not_widen_reo_wnd() {
        let mut s = blocks(1);
        let nack = [report(BlockReportKind::Nack, 0, 0b00_0111)];
        s.on_ack(&AckInfo { echo: at(5), ..info(&[word(&[0, 1, 2, 5])], 5, &nack) }).unwrap();
        assert_eq!(retransmit_all(&mut s), [3]);
        s.on_ack(&AckInfo { echo: at(3), ..info(&[word(&[3])], 3, &[]) }).unwrap();
        assert_eq!((s.counters().spurious_retransmits, s.reorder.reo_wnd_mult), (1, 1));
    }

    #[test]
    fn retransmit_block__applies_to_packets_sent_later() {
        let push = |s: &mut Sent<u64>, i: u8| {
            let block = BlockRepr { index: i % 6, data: 4, parity: 2, scheme: 1 };
            s.push(at(i.into()), i.into(), 100, BlockPosition::of(&block), 1);
        };
        let mut s = Sent::new(0);
        (0..2).for_each(|i| push(&mut s, i));
        // 0 is lost and retransmitted; both source packets arrive, so the ring is empty.
        s.on_retransmitted(at(50), s.una(), 1);
        s.on_ack(&AckInfo { next: 2, ..info(&[], 1, &[]) }).unwrap();
        assert!(s.is_empty());
        (2..12).for_each(|i| push(&mut s, i));
        s.on_ack(&AckInfo { next: 2, ..info(&[word(&[4, 5, 8, 9, 10, 11])], 11, &[]) }).unwrap();
        s.detect(at(300), &rtt());
        // Parity of 4 and 5 cannot recover 0, 2 and 3; that of the next block recovers 6 and 7.
        assert_eq!(retransmit_all(&mut s), [2, 3]);
    }

    #[test]
    fn on_retransmitted__a_probe_of_coded_data_retransmits_its_block() {
        let mut s = blocks(2);
        s.on_ack(&info(&[word(&[2, 6, 7])], 7, &[])).unwrap();
        s.detect(at(200), &rtt());
        let (number, contents) = s.newest().unwrap();
        assert_eq!((retransmit_all(&mut s), contents), (vec![0, 1, 3], 9));
        let mut s = blocks(1);
        s.on_ack(&AckInfo { echo: at(1), ..info(&[word(&[1])], 1, &[]) }).unwrap();
        s.detect(at(126), &rtt());
        assert_eq!((lost_numbers(&s), retransmit_all(&mut s)), (vec![0], vec![]));
        let (probed, contents) = s.newest().unwrap();
        assert_eq!((probed, contents), (number - 6, 3));
        s.on_retransmitted(at(300), probed, 9);
        assert_eq!(retransmit_all(&mut s), [0], "the TLP of 3 takes no part in recovery");
    }

    fn lost_numbers(s: &Sent<u64>) -> Vec<u64> {
        s.ring.iter().filter(|e| e.state == State::Lost).map(|e| e.contents).collect()
    }

    #[test]
    fn data_una__skips_parity_that_has_not_arrived() {
        let mut s = blocks(2);
        let first = s.una();
        s.on_ack(&info(&[word(&[0, 1, 2, 3, 6, 7])], 7, &[])).unwrap();
        assert_eq!((s.una(), s.data_una()), (first + 4, first + 8));
        s.on_ack(&info(&[word(&[0, 1, 2, 3, 6, 7, 8, 9])], 9, &[])).unwrap();
        assert_eq!((s.una(), s.data_una()), (first + 4, first + 12));
    }

    #[test]
    fn on_block_nack__of_an_unknown_block_changes_nothing() {
        for nack in [
            report(BlockReportKind::Nack, 1, 0),
            report(BlockReportKind::Nack, 0x8000_0000, 0),
            BlockReport { data: 5, ..report(BlockReportKind::Nack, 0, 0) },
            report(BlockReportKind::Nack, 700, 0),
        ] {
            let mut s = blocks(2);
            let acked = s.on_ack(&info(&[word(&[0])], 0, &[nack])).unwrap();
            assert_eq!(acked.nacked, NewlyLost::default(), "{nack:?}");
            assert_eq!((retransmit_all(&mut s), s.in_flight_pkts()), (vec![], 11));
        }
    }

    #[test]
    fn on_block_settled__undetected_losses_leave_flight() {
        let mut s = blocks(1);
        let settled = [report(BlockReportKind::Settled, 0, 0b10_0100)];
        let acked = s.on_ack(&info(&[word(&[0, 1, 2, 3, 4])], 4, &settled)).unwrap();
        assert_eq!((acked.pkts, acked.bytes, acked.settled.bytes), (4, 400, 200));
        assert!(s.is_empty() && s.in_flight_pkts() == 0);
        let mut outcomes = Vec::new();
        for PathEvent { path, pkts, outcome, .. } in s.take_path_events() {
            assert_eq!(pkts, 1);
            outcomes.push((path, outcome));
        }
        outcomes.sort_by_key(|(path, _)| *path);
        let (arrived, settled) = (PacketOutcome::Arrived, PacketOutcome::Settled);
        let want = [(1, arrived), (2, arrived), (3, settled), (4, arrived), (5, arrived)];
        assert_eq!(outcomes[..5], want);
        assert_eq!(outcomes[5], (6, settled));
        assert_eq!(s.on_ack(&info(&[], 4, &[])).map(|a| a.settled), Ok(NewlyLost::default()));
    }

    /// The windows may delay parity for longer than the peer waits for it.
    #[test]
    fn on_ack__only_parity_may_be_settled_before_it_is_sent() {
        let push = |s: &mut Sent<u64>, i: u8| {
            let block = BlockRepr { index: i, data: 4, parity: 2, scheme: 1 };
            s.push(at(i.into()), i.into(), 100, BlockPosition::of(&block), 1);
        };
        let mut s = Sent::new(0);
        (0..4).for_each(|i| push(&mut s, i));
        let settled = [report(BlockReportKind::Settled, 0, 0b11_0000)];
        for next in [7, 1000] {
            assert!(s.on_ack(&AckInfo { next, ..info(&[], 3, &settled) }).is_err(), "{next}");
        }
        assert!(s.on_ack(&info(&[word(&[2, 6])], 3, &settled)).is_err());
        assert!(s.on_ack(&info(&[word(&[2])], 4, &settled)).is_err(), "4 was not sent");
        assert_eq!(s.on_ack(&info(&[word(&[2, 5])], 3, &settled)).map(|a| a.pkts), Ok(1));
        assert_eq!(s.on_ack(&AckInfo { next: 6, ..info(&[], 3, &settled) }).map(|a| a.pkts), Ok(3));
        assert!(s.is_empty() && s.next() & 0xffff_ffff == 4);
        (4..6).for_each(|i| push(&mut s, i));
        assert_eq!(s.in_flight_pkts(), 2, "settled parity is sent all the same");
        assert_eq!(s.on_ack(&AckInfo { next: 6, ..info(&[], 3, &[]) }).map(|a| a.pkts), Ok(2));
        assert!(
            s.on_ack(&AckInfo { next: 7, ..info(&[], 3, &[]) }).is_err(),
            "the block has ended"
        );
    }

    #[test]
    fn on_block_recovered__is_neither_loss_nor_arrival_until_settled() {
        let mut s = blocks(2);
        let recovered = [report(BlockReportKind::Recovered, 0, 0b110)];
        let words = [word(&[0, 1, 2, 3, 4])];
        let acked = s.on_ack(&info(&words, 4, &recovered)).unwrap();
        assert_eq!((acked.pkts, acked.settled), (3, NewlyLost::default()));
        let paths: Vec<u16> = s.take_path_events().iter().map(|event| event.path).collect();
        assert_eq!(paths, [1, 4, 5], "no event of the paths of 1 and 2");
        // The original of 1 arrives late; 2 and the parity 5 never arrive.
        let settled = [report(BlockReportKind::Settled, 0, 0b10_0100)];
        for want in [200, 0] {
            let acked = s.on_ack(&info(&words, 4, &settled)).unwrap();
            assert_eq!(acked.settled.bytes, want, "reported once");
        }
        let outcomes: Vec<_> =
            s.take_path_events().iter().map(|event| (event.path, event.outcome)).collect();
        assert_eq!(outcomes, [(3, PacketOutcome::Settled), (6, PacketOutcome::Settled)]);
    }

    #[test]
    fn on_block_settled__a_detected_loss_is_not_reported_twice() {
        let mut s = blocks(2);
        s.on_ack(&info(&[word(&[0, 1, 3, 4, 5, 6])], 6, &[])).unwrap();
        assert_eq!(s.detect(at(300), &rtt()).coded_bytes, 100);
        let settled = [report(BlockReportKind::Settled, 0, 0b100)];
        let acked = s.on_ack(&AckInfo { next: 7, ..info(&[], 6, &settled) }).unwrap();
        assert_eq!((acked.pkts, acked.settled.pkts), (0, 0));
        assert_eq!(s.una() & 0xffff_ffff, 7);
    }
}
