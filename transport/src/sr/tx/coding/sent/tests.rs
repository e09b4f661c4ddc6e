use super::*;
use crate::sr::tx::rtt::Rtt;
use spanwire_base::Dur;
use spanwire_wire::SackWord;

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
    (0..6 * count).for_each(|i| push(&mut s, i, u16::from(i % 6) + 1));
    s
}

/// The packet `i` of these blocks, which is sent at its time by this path.
fn push(s: &mut Sent<u64>, i: u8, path: u16) {
    let block = BlockRepr { index: i % 6, data: 4, parity: 2, scheme: 1 };
    let (now, contents) = (at(i.into()), i.into());
    s.push_of_block(now, contents, (100, path), (block, None), SendTimeState::default());
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
    (0..4).for_each(|i| push(&mut s, i, 1));
    s.on_ack(&AckInfo { next: 3, ..info(&[], 2, &[]) }).unwrap();
    assert!(!s.has_only_parity());
    s.on_ack(&AckInfo { next: 4, ..info(&[], 3, &[]) }).unwrap();
    (4..6).for_each(|i| push(&mut s, i, 1));
    assert!(s.has_only_parity() && !s.is_empty());
    s.abandon_all();
    assert!(s.in_flight_pkts() == 0 && !s.has_lost(), "parity takes no room in the window");
    assert_eq!(retransmit_all(&mut s), []);
    s.push(at(6), 6, 100, 1, SendTimeState::default());
    assert!(!s.has_only_parity());
}

#[test]
fn recover_or_queue__recoverable_losses_are_left_to_parity() {
    let mut s = blocks(2);
    s.on_ack(&info(&[word(&[1, 3, 4, 5, 6, 7, 8, 9])], 9, &[])).unwrap();
    let found = s.detect(at(200), &rtt());
    assert_eq!(
        (found.plain, found.recoverable),
        (NewlyLost::default(), NewlyLost { pkts: 2, bytes: 200 })
    );
    assert_eq!(retransmit_all(&mut s), [], "the peer recovers 0 and 2");
    assert!(!s.has_lost() && !s.is_empty());
    assert_eq!(
        (s.in_flight_pkts(), s.in_flight_bytes()),
        (2, 200),
        "the parity of the second block"
    );
}

#[test]
fn recover_or_queue__of_an_unrecoverable_block_all_lost_data_are_retransmitted() {
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

/// As [`blocks`], with digests of the payloads: the number of the packet, and one.
fn blocks_with_digests() -> Sent<u64> {
    let mut s = blocks(2);
    for (n, entry) in (1..).zip(&mut s.ring) {
        let position = entry.position.as_mut().unwrap();
        position.digest = NonZeroU64::new(n).filter(|_| !position.block.is_parity());
    }
    s
}

#[test]
fn recover_or_queue__as_many_are_retransmitted_as_are_missing() {
    let mut s = blocks_with_digests();
    s.on_ack(&info(&[word(&[3, 5, 6, 7])], 7, &[])).unwrap();
    s.detect(at(200), &rtt());
    let first = s.una();
    assert!([0, 1].iter().all(|n| s.repeats(first + n, NonZeroU64::new(n + 1))));
    assert_eq!(retransmit_all(&mut s), [0, 1], "with 3 and 5 they recover 2");
    // One of them is lost too.
    s.on_ack(&info(&[word(&[1, 3, 5, 6, 7, 8, 9, 10, 11])], 11, &[])).unwrap();
    s.delivered = Some((at(1200), 0));
    s.detect(at(2000), &rtt());
    assert_eq!(retransmit_all(&mut s), [0, 2], "all, so that another loss costs no time");
}

#[test]
fn repeats__a_changed_payload_leaves_nothing_to_parity() {
    let mut s = blocks_with_digests();
    s.on_ack(&info(&[word(&[3, 5, 6, 7])], 7, &[])).unwrap();
    s.detect(at(200), &rtt());
    let first = s.una();
    assert!(!s.repeats(first, NonZeroU64::new(99)));
    assert_eq!(retransmit_all(&mut s), [0, 1, 2]);
    // Without a digest nothing is known: packets in no block, and parity.
    assert!(!s.repeats(first + 4, None) && !s.repeats(first + 99, None));
    assert_eq!(retransmit_all(&mut s), []);
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
    let acked = s.on_ack(&AckInfo { echo: at(4), ..info(&[word(&[0, 1, 4])], 4, &nack) }).unwrap();
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
    let mut s = Sent::new(0);
    (0..2).for_each(|i| push(&mut s, i, 1));
    // 0 is lost and retransmitted; both source packets arrive, so the ring is empty.
    s.on_retransmitted(at(50), s.una(), 1);
    s.on_ack(&AckInfo { next: 2, ..info(&[], 1, &[]) }).unwrap();
    assert!(s.is_empty());
    (2..12).for_each(|i| push(&mut s, i, 1));
    s.on_ack(&AckInfo { next: 2, ..info(&[word(&[4, 5, 8, 9, 10, 11])], 11, &[]) }).unwrap();
    s.detect(at(300), &rtt());
    // Parity of 4 and 5 cannot recover 0, 2 and 3; that of the next block recovers 6 and 7.
    assert_eq!(retransmit_all(&mut s), [2, 3]);
}

#[test]
fn on_repeated__a_probe_of_coded_data_retransmits_its_block() {
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
fn advance_data_una__skips_parity_that_has_not_arrived() {
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
fn named_end__only_parity_may_be_settled_before_it_is_sent() {
    let mut s = Sent::new(0);
    (0..4).for_each(|i| push(&mut s, i, 1));
    let settled = [report(BlockReportKind::Settled, 0, 0b11_0000)];
    for next in [7, 1000] {
        assert!(s.on_ack(&AckInfo { next, ..info(&[], 3, &settled) }).is_err(), "{next}");
    }
    assert!(s.on_ack(&info(&[word(&[2, 6])], 3, &settled)).is_err());
    assert!(s.on_ack(&info(&[word(&[2])], 4, &settled)).is_err(), "4 was not sent");
    assert_eq!(s.on_ack(&info(&[word(&[2, 5])], 3, &settled)).map(|a| a.pkts), Ok(1));
    assert_eq!(s.on_ack(&AckInfo { next: 6, ..info(&[], 3, &settled) }).map(|a| a.pkts), Ok(3));
    assert!(s.is_empty() && s.next() & 0xffff_ffff == 4);
    (4..6).for_each(|i| push(&mut s, i, 1));
    assert_eq!(s.in_flight_pkts(), 2, "settled parity is sent all the same");
    assert_eq!(s.on_ack(&AckInfo { next: 6, ..info(&[], 3, &[]) }).map(|a| a.pkts), Ok(2));
    assert!(s.on_ack(&AckInfo { next: 7, ..info(&[], 3, &[]) }).is_err(), "the block has ended");
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
    assert_eq!(s.detect(at(300), &rtt()).recoverable.bytes, 100);
    let settled = [report(BlockReportKind::Settled, 0, 0b100)];
    let acked = s.on_ack(&AckInfo { next: 7, ..info(&[], 6, &settled) }).unwrap();
    assert_eq!((acked.pkts, acked.settled.pkts), (0, 0));
    assert_eq!(s.una() & 0xffff_ffff, 7);
}
