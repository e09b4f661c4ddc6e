use super::*;
use spanwire_wire::{RethRepr, SrKind};
use std::collections::BTreeSet;

const PEER: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
const FIRST: u64 = (1 << 32) + 1000;

fn at(us: u64) -> Time {
    Time::from_ns(us * 1000)
}

/// A block of data and parity packets with real payload, by PQ, in segments of 100 bytes; the last
/// segment has 40.
struct Requester {
    place: BlockRepr,
    data: Vec<Vec<u8>>,
    parity: Vec<Vec<u8>>,
}

impl Requester {
    fn new(data: u8, parity: u8) -> Self {
        let len = |i| if i + 1 == data { 40 } else { 100 };
        let segment = |i: u8| (0..len(i)).map(|at: u8| at.wrapping_mul(7) ^ i).collect();
        let segments: Vec<Vec<u8>> = (0..data).map(segment).collect();
        let place = BlockRepr { index: 0, data, parity, scheme: 1 };
        let mut rows = vec![vec![0; if data == 1 { 40 } else { 100 }]; parity.into()];
        let shards: Vec<&[u8]> = segments.iter().map(Vec::as_slice).collect();
        code(&place).unwrap().encode(&shards, &mut rows);
        Self { place, data: segments, parity: rows }
    }

    fn bytes(&self) -> u32 {
        u32::try_from(self.data.iter().map(Vec::len).sum::<usize>()).unwrap()
    }

    fn header(&self, index: u8) -> SrDataRepr {
        let is_parity = index >= self.place.data;
        let before = if is_parity { 0 } else { u32::from(index) * 100 };
        let len = if is_parity {
            self.bytes()
        } else {
            u32::try_from(self.payload(index).len()).unwrap()
        };
        let last = is_parity || index + 1 == self.place.data;
        SrDataRepr {
            first: is_parity || index == 0,
            last,
            offset: before,
            reth: Some(RethRepr { va: 0x5000 + u64::from(before), rkey: 9, dma_len: len }),
            imm: last.then_some(77),
            receive: last.then_some(3),
            sent_ps: 1000,
            block: Some(BlockRepr { index, ..self.place }),
            block_bytes: is_parity.then_some(self.bytes()),
            ..SrDataRepr::new(SrKind::Write, 0, 5)
        }
    }

    fn payload(&self, index: u8) -> &[u8] {
        let i = usize::from(index);
        self.data.get(i).unwrap_or_else(|| &self.parity[i - self.data.len()])
    }

    fn send(&self, r: &mut Decoder, memory: &mut BlockMemory, index: u8) -> BlockState {
        let packet = (FIRST + u64::from(index), &self.header(index), index == 1);
        r.on_packet(at(10), packet, Payload::Bytes(self.payload(index)), |_| 0, memory)
    }
}

fn both() -> (Decoder, BlockMemory) {
    (Decoder::new(PEER, 1 << 20), BlockMemory::new(1 << 20))
}

#[test]
fn recover__every_pair_of_lost_packets() {
    let s = Requester::new(8, 2);
    for (a, b) in (0..10).flat_map(|a| (a..10).map(move |b| (a, b))) {
        let (mut r, mut memory) = both();
        let arrived: Vec<u8> = (0..10).filter(|i| *i != a && *i != b).collect();
        let mut recovered = 0;
        for i in &arrived {
            match s.send(&mut r, &mut memory, *i) {
                BlockState::Recoverable => {}
                BlockState::Complete(numbers) => assert_eq!(numbers, FIRST + 8..FIRST + 10),
                BlockState::Incomplete => continue,
            }
            for segment in r.recover(FIRST) {
                let i = u8::try_from(segment.number - FIRST).unwrap();
                assert!(i == a || i == b);
                let want = SrDataRepr { block: None, sent_ps: 1000, ..s.header(i) };
                assert_eq!(segment.header, SrDataRepr { psn: wrap(segment.number), ..want });
                let Payload::Bytes(bytes) = segment.payload() else { panic!("it has bytes") };
                assert_eq!(bytes, s.payload(i), "{i} of {a} and {b}");
                recovered += 1;
            }
            if recovered > 0 {
                r.on_recovered(FIRST, &mut memory);
                break;
            }
        }
        assert_eq!(
            recovered,
            [a, b].iter().filter(|i| **i < 8).count() - usize::from(a == b && a < 8)
        );
        r.clear(&mut memory);
        assert!(memory.is_unused());
    }
}

#[test]
fn pop_expired__reports_a_nack_then_recovery_then_settled() {
    let s = Requester::new(8, 2);
    let (mut r, mut memory) = both();
    for i in [0, 1, 2, 4, 5, 9] {
        assert_eq!(s.send(&mut r, &mut memory, i), BlockState::Incomplete);
    }
    let due = r.next_deadline().unwrap();
    assert_eq!(r.pop_expired(due - spanwire_base::Dur::from_ns(1), &mut memory), None);
    assert_eq!(r.pop_expired(due, &mut memory), Some(ExpiredBlock::Nack));
    assert_eq!(r.pop_expired(due, &mut memory), None);
    let nack =
        BlockReport { first: 1000, kind: BlockReportKind::Nack, data: 8, bits: 0b10_0011_0111 };
    assert_eq!(r.reports().as_slice(), [nack]);
    assert!(r.next_deadline().unwrap() > due, "another NACK follows");
    // Two of the three arrive, and the third is recovered.
    assert_eq!(s.send(&mut r, &mut memory, 3), BlockState::Incomplete);
    assert_eq!(s.send(&mut r, &mut memory, 7), BlockState::Recoverable);
    assert_eq!(r.recover(FIRST).len(), 1);
    assert_eq!(r.on_recovered(FIRST, &mut memory), FIRST + 8..FIRST + 10);
    let recovered = BlockReport { kind: BlockReportKind::Recovered, bits: 1 << 6, ..nack };
    assert_eq!(r.reports().as_slice(), [nack, recovered], "in two ACKs each");
    let due = r.next_deadline().unwrap() + spanwire_base::Dur::from_ms(10);
    assert_eq!(r.pop_expired(due, &mut memory), Some(ExpiredBlock::Settle(FIRST + 8..FIRST + 10)));
    let settled = BlockReport { kind: BlockReportKind::Settled, bits: 0b1_0100_0000, ..nack };
    assert_eq!(r.reports().as_slice(), [recovered, settled]);
    assert_eq!(r.reports().as_slice(), [settled]);
    assert_eq!(r.reports().as_slice(), []);
    assert!(memory.is_unused() && r.pop_expired(Time::MAX, &mut memory).is_none());
    assert_eq!(r.next_deadline(), None);
}

#[test]
fn on_packet__after_a_nack_shortens_the_deadline() {
    let s = Requester::new(8, 2);
    let ((mut r, mut memory), (_, mut none)) = (both(), both());
    let mut send = |r: &mut Decoder, index: u8, us: u64| {
        let header = SrDataRepr { sent_ps: us * 1_000_000, ..s.header(index) };
        let payload = Payload::Bytes(s.payload(index));
        let packet = (FIRST + u64::from(index), &header, false);
        r.on_packet(at(us + 10), packet, payload, |_| 0, &mut memory);
    };
    (0..5).for_each(|i| send(&mut r, i, i.into()));
    let soon = r.open.oldest().deadline.unwrap().since(at(14));
    let mut nacks = 0;
    while nacks < 5 {
        let due = r.next_deadline().unwrap();
        nacks += u32::from(r.pop_expired(due, &mut none) == Some(ExpiredBlock::Nack));
    }
    assert!(
        r.open.oldest().deadline.unwrap() > at(50_000),
        "the deadline covers the round trip of the NACK"
    );
    send(&mut r, 5, 30_000);
    assert!(r.pop_expired(at(30_010), &mut none).is_none());
    let due = r.open.oldest().deadline.unwrap().since(at(30_010));
    assert!(due <= soon + soon / 4, "{due:?} {soon:?}");
}

#[test]
fn on_duplicate__a_late_source_packet_is_not_settled() {
    let s = Requester::new(8, 2);
    let (mut r, mut memory) = both();
    (1..8).for_each(|i| _ = s.send(&mut r, &mut memory, i));
    assert_eq!(s.send(&mut r, &mut memory, 8), BlockState::Recoverable);
    assert_eq!(r.recover(FIRST).len(), 1);
    r.on_recovered(FIRST, &mut memory);
    r.on_duplicate(FIRST, &BlockRepr { index: 0, ..s.place });
    assert_eq!(s.send(&mut r, &mut memory, 9), BlockState::Complete(FIRST + 8..FIRST + 10));
    let kinds: Vec<BlockReportKind> =
        r.reports().as_slice().iter().map(|report| report.kind).collect();
    assert_eq!(
        (kinds, r.open.len()),
        (vec![BlockReportKind::Recovered], 0),
        "all its packets have arrived"
    );
}

#[test]
fn pop_expired__limits_the_nacks_of_a_block() {
    let s = Requester::new(8, 2);
    let (mut r, mut memory) = both();
    s.send(&mut r, &mut memory, 0);
    let mut events = Vec::new();
    while let Some(due) = r.next_deadline() {
        events.extend(r.pop_expired(due, &mut memory));
        assert!(events.len() <= 8);
        if r.pop_expired(due, &mut memory).is_none() && events.len() == 8 {
            break;
        }
    }
    assert_eq!(r.pop_expired(Time::MAX, &mut memory), None);
    assert_eq!(r.next_deadline(), None);
    assert_eq!(events.len(), 8);
    s.send(&mut r, &mut memory, 1);
    assert!(r.next_deadline().is_some(), "a packet of it has arrived");
}

#[test]
fn on_packet__empty_parity_completes_a_block() {
    let s = Requester::new(2, 2);
    let (mut r, mut memory) = both();
    for i in [2, 3] {
        let block = Some(BlockRepr { index: i, ..s.place });
        let header = SrDataRepr { block, ..SrDataRepr::new(SrKind::Send, 0, 0) };
        let packet = (FIRST + u64::from(i), &header, false);
        let then = r.on_packet(at(5), packet, Payload::Bytes(&[]), |_| 0, &mut memory);
        assert_eq!(then, BlockState::Incomplete);
    }
    assert_eq!(s.send(&mut r, &mut memory, 0), BlockState::Incomplete);
    assert_eq!(s.send(&mut r, &mut memory, 1), BlockState::Complete(FIRST + 2..FIRST + 4));
    assert!(r.open.len() == 0 && memory.is_unused());
}

#[test]
fn on_packet__inconsistent_parity_is_dropped() {
    let s = Requester::new(8, 2);
    let wrong: [fn(&mut SrDataRepr); 4] = [
        |h| h.block_bytes = Some(741),
        |h| h.block_bytes = Some(700),
        |h| h.block_bytes = Some(u32::MAX),
        |h| h.offset = u32::MAX - 5,
    ];
    for wrong in wrong {
        let (mut r, mut memory) = both();
        let mut header = s.header(8);
        wrong(&mut header);
        (0..7).for_each(|i| _ = s.send(&mut r, &mut memory, i));
        let packet = (FIRST + 8, &header, false);
        let then = r.on_packet(at(5), packet, Payload::Bytes(s.payload(8)), |_| 0, &mut memory);
        assert_eq!(then, BlockState::Incomplete);
        assert_eq!(r.recover(FIRST).len(), 0);
        assert!(memory.is_unused());
        assert_eq!(r.take_counters().uncoded, 1);
    }
    let (mut r, mut memory) = both();
    s.send(&mut r, &mut memory, 0);
    let other = Requester { place: BlockRepr { parity: 3, ..s.place }, ..Requester::new(8, 2) };
    assert_eq!(other.send(&mut r, &mut memory, 1), BlockState::Incomplete);
    assert_eq!((r.open.oldest().arrived, r.take_counters().uncoded), (1, 1));
}

/// Parity packets are not usable after the sums of their block are dropped.
#[test]
fn on_packet__dropped_sums_make_parity_unusable() {
    let s = Requester::new(8, 2);
    let (mut r, mut memory) = both();
    for i in [0, 1, 2, 3, 4, 5, 9] {
        assert_eq!(s.send(&mut r, &mut memory, i), BlockState::Incomplete);
    }
    let header = SrDataRepr { block_bytes: Some(700), ..s.header(8) };
    let packet = (FIRST + 8, &header, false);
    let parity = Payload::Bytes(s.payload(8));
    assert_eq!(r.on_packet(at(11), packet, parity, |_| 0, &mut memory), BlockState::Incomplete);
    let due = r.next_deadline().unwrap() + spanwire_base::Dur::from_ms(10);
    assert_eq!(r.pop_expired(due, &mut memory), Some(ExpiredBlock::Nack));
    let nack = BlockReport { first: 1000, kind: BlockReportKind::Nack, data: 8, bits: 0b11_1111 };
    assert_eq!(r.reports().as_slice(), [nack], "two more are needed");
}

#[test]
fn on_packet__open_blocks_are_bounded() {
    let s = Requester::new(8, 2);
    let (mut r, mut memory) = (Decoder::new(PEER, 5000), BlockMemory::new(1 << 20));
    for n in 0..10_000 {
        let packet = (FIRST + n * 16, &s.header(0), false);
        r.on_packet(at(10), packet, Payload::Bytes(s.payload(0)), |_| 0, &mut memory);
    }
    assert_eq!(r.open.len(), OPEN_MAX);
    let rows: usize = r.open.iter().map(|b| usize::from(matches!(b.sums, Sums::Rows(_)))).sum();
    assert_eq!(rows, 25, "two rows of 100 bytes each");
    assert_eq!(r.take_counters().uncoded, 10_000 - 25);
    r.clear(&mut memory);
    assert!(memory.is_unused());
}

#[test]
fn on_packet__an_unknown_scheme_keeps_no_parity() {
    let mut s = Requester::new(8, 2);
    s.place.scheme = 9;
    let (mut r, mut memory) = both();
    for i in 0..7 {
        assert_eq!(s.send(&mut r, &mut memory, i), BlockState::Incomplete);
    }
    assert_eq!(s.send(&mut r, &mut memory, 8), BlockState::Incomplete);
    assert_eq!(s.send(&mut r, &mut memory, 7), BlockState::Complete(FIRST + 8..FIRST + 10));
    assert_eq!(r.take_counters().uncoded, 1);
}

/// If a receive request is missing for the last segment only, the segments before it are placed.
#[test]
fn on_rejected__placed_segments_are_not_nacked() {
    let s = Requester::new(4, 2);
    for (refused, nacks) in [(1, 0b1110), (3, 0b1000)] {
        let (mut r, mut memory) = both();
        for i in [0, 2, 4, 5].into_iter().filter(|i| *i != 2 || refused > 1) {
            s.send(&mut r, &mut memory, i);
        }
        r.on_rejected(FIRST, FIRST + refused, &mut memory);
        let reports = r.reports();
        let short = reports.as_slice().iter().find(|report| report.kind == BlockReportKind::Nack);
        assert_eq!(short.map(|report| !report.bits & 0b1111), Some(nacks));
        let arrived =
            (1..4).filter(|i| nacks >> i & 1 != 0).map(|i| s.send(&mut r, &mut memory, i));
        assert_eq!(arrived.last(), Some(BlockState::Complete(FIRST + 4..FIRST + 6)));
        assert!(memory.is_unused());
    }
}

/// If parity arrives after its block was closed, source packets that have arrived are not
/// recovered.
#[test]
fn on_packet__counts_arrivals_before_the_block_was_opened() {
    let s = Requester::new(2, 2);
    for (arrived, want) in [
        (0b0011, BlockState::Complete(FIRST + 2..FIRST + 4)),
        (0b0101, BlockState::Incomplete),
        (0, BlockState::Incomplete),
    ] {
        let (mut r, mut memory) = both();
        let packet = (FIRST + 2, &s.header(2), false);
        let parity = Payload::Bytes(s.payload(2));
        let first = |first| if first == FIRST { arrived } else { 0 };
        assert_eq!(r.on_packet(at(5), packet, parity, first, &mut memory), want, "{arrived:b}");
        let is_kept = arrived == 0;
        assert_eq!(
            s.send(&mut r, &mut memory, 3) == BlockState::Recoverable,
            is_kept,
            "{arrived:b}"
        );
    }
}

/// A name and the order in which blocks begin.
type Order = (&'static str, fn(u64) -> u64);

/// With the most open blocks, begun in any order and due at once, each deadline timer fires once
/// per block NACK.
#[test]
fn pop_expired__each_of_many_blocks_expires_once() {
    const BLOCKS: u64 = 4096;
    let orders: [Order; 4] = [
        ("ascending", |i| i),
        ("descending", |i| BLOCKS - 1 - i),
        ("from the middle", |i| BLOCKS / 2 + i / 2 - (i % 2) * (i | 1)),
        ("in strides", |i| i % 64 * 64 + i / 64),
    ];
    for (name, order) in orders {
        let (mut r, mut memory) = both();
        let s = Requester::new(2, 2);
        let opened: BTreeSet<u64> = (0..BLOCKS).map(order).collect();
        assert_eq!(opened.len(), 4096, "{name}");
        for i in (0..BLOCKS).map(order) {
            let packet = (FIRST + 16 * i, &s.header(0), false);
            let data = Payload::Bytes(s.payload(0));
            assert_eq!(
                r.on_packet(at(10), packet, data, |_| 0, &mut memory),
                BlockState::Incomplete
            );
        }
        assert_eq!((r.open.len(), r.open.expirations), (4096, 0), "{name}");
        for round in 1..=u64::from(NACKS_MAX) {
            let mut short = 0;
            while r.pop_expired(at(1_000_000_000 * round), &mut memory).is_some() {
                short += 1;
            }
            assert_eq!(short, BLOCKS, "{name}");
            assert!(
                r.open.expirations <= round * BLOCKS,
                "{name}: {} expirations",
                r.open.expirations
            );
        }
        assert_eq!(r.next_deadline(), None, "{name}: no block NACK is due any more");
        r.clear(&mut memory);
        assert!(r.open.len() == 0 && memory.is_unused(), "{name}");
    }
}

/// The timer of a postponed deadline fires at the old time, and reports the block at the new time.
#[test]
fn pop_expired__a_postponed_deadline_expires_at_its_new_time() {
    let s = Requester::new(8, 2);
    let (mut r, mut memory) = both();
    s.send(&mut r, &mut memory, 0);
    let first = r.next_deadline().unwrap();
    let later = (FIRST + 1, &s.header(1), false);
    let data = Payload::Bytes(s.payload(1));
    r.on_packet(first, later, data, |_| 0, &mut memory);
    assert_eq!(r.pop_expired(first, &mut memory), None);
    let postponed = r.next_deadline().unwrap();
    assert!(postponed > first);
    assert_eq!(r.pop_expired(postponed, &mut memory), Some(ExpiredBlock::Nack));
}
