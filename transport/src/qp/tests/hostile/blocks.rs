//! Invalid FEC blocks: forged parity, overlapping blocks and blocks that never end.

use super::classes::{NONE, Scene};
use super::seal;
use super::selective::{FIRST, NEXT, ack, header_at, resealed, right_ack, write};
use crate::testing::{Pair, PairConfig};
use crate::{Config, Counters, ErasureCoding, QpAttr, QpState};
use spanwire_base::{Dur, Rng};
use spanwire_wire::{
    BlockReport, BlockReportKind, BlockReports, BlockRepr, Opcode, Psn, RethRepr, SrAckRepr,
    SrDataRepr,
};

/// A packet of a block that begins at `first`: 64 bytes of data for `va`, or parity.
fn packet(s: &Scene, first: u32, index: u8, (data, parity): (u8, u8), va: u64) -> SrDataRepr {
    let place = BlockRepr { index, data, parity, scheme: if parity > 2 { 2 } else { 1 } };
    let is_parity = place.is_parity();
    let before = if is_parity { 0 } else { 64 * u32::from(index) };
    let all = 64 * u32::from(data);
    let plain = write(s, first.wrapping_add(index.into()), va, s.rkey);
    let len = if is_parity { all } else { 64 };
    let reth = plain.reth.map(|reth| RethRepr {
        va: va.wrapping_add(before.into()),
        dma_len: len,
        ..reth
    });
    let block_bytes = is_parity.then_some(all);
    SrDataRepr { reth, offset: before, block: Some(place), block_bytes, ..plain }
}

fn inject(s: &mut Scene, header: &SrDataRepr) {
    let is_parity = header.block.is_some_and(|block| block.is_parity());
    let opcode = if is_parity { Opcode::SrParity } else { Opcode::SrData };
    let bth = s.bth(opcode, header.psn & Psn::MASK);
    let mut frame = seal(bth, NONE, header.header_len() + 64, 9);
    header.emit(header_at(&mut frame)).unwrap();
    let frame = resealed(frame);
    s.pair.inject(0, &frame);
}

fn scene(config: Config) -> Scene {
    Scene::of(Pair::with(&PairConfig { config, ..PairConfig::sr() }))
}

const REGION: usize = 1 << 16;

/// One source packet of a block of two and forged parity arrive. The recovered packet must pass the
/// same checks as a received one.
#[test]
fn parity__that_is_forged_writes_nothing_that_data_could_not() {
    let plain = scene(Config::default());
    let (va, rkey) = (plain.va, plain.rkey);
    let end = va + u64::try_from(REGION).unwrap();
    for (name, at, key, recovered) in [
        ("right", va + 0x1000, rkey, 1),
        ("another key", va + 0x1000, rkey ^ 1, 0),
        ("across the end", end - 64 - 63, rkey, 0),
        ("beyond the end", end - 64, rkey, 0),
        ("wrapping", u64::MAX - 100, rkey, 0),
    ] {
        let mut s = scene(Config::default());
        let before = s.pair.ends[0].bytes(0, REGION);
        // The source packet is valid; the parity encodes another target for the lost one.
        let data = packet(&s, NEXT, 0, (2, 1), va + 0x1000);
        inject(&mut s, &data);
        let parity = packet(&s, NEXT, 2, (2, 1), at);
        let reth = parity.reth.map(|reth| RethRepr { rkey: key, ..reth });
        inject(&mut s, &SrDataRepr { reth, ..parity });
        let c = s.pair.ends[0].ep.counters();
        // An invalid key fails the queue pair, as that of a received WRITE would.
        let (is_right, failed) = (recovered > 0, QpState::Err);
        assert_eq!((c.ec_rebuilt_packets, c.tx_fatal_naks), (recovered, 1 - recovered), "{name}");
        let state = s.pair.ends[0].ep.query_qp(s.qpn).unwrap().state;
        assert_eq!(state == failed, !is_right, "{name}");
        let after = s.pair.ends[0].bytes(0, REGION);
        let changed = (0..REGION).filter(|i| before[*i] != after[*i]);
        let may = 0x1000..0x1000 + if recovered > 0 { 128 } else { 64 };
        assert!(changed.into_iter().all(|i| may.contains(&i)), "{name}");
    }
}

/// A PSN is accepted once, whatever blocks claim it.
#[test]
fn blocks__that_overlap_received_packets_recover_nothing() {
    // The packets before the parity of a block of two and two at NEXT + 1, and the number of source
    // packets received then.
    for (before, between) in
        [(&[1][..], &[][..]), (&[], &[1]), (&[], &[2]), (&[2], &[1]), (&[1], &[0])]
    {
        let mut s = scene(Config::default());
        let va = s.va;
        let plain = |s: &mut Scene, ahead: u32| {
            let header = write(s, NEXT + ahead, va + 0x1000 + u64::from(ahead) * 64, s.rkey);
            inject(s, &header);
        };
        before.iter().for_each(|ahead| plain(&mut s, *ahead));
        let [p, q] = [2, 3].map(|row| packet(&s, NEXT + 1, row, (2, 2), va + 0x2000));
        inject(&mut s, &p);
        between.iter().for_each(|ahead| plain(&mut s, *ahead));
        inject(&mut s, &q);
        let end = &s.pair.ends[0];
        assert_eq!(end.ep.counters().ec_rebuilt_packets, 0, "{before:?} {between:?}");
        assert_eq!(end.bytes(0x2000, 128), [0; 128], "{before:?} {between:?}");
    }
}

/// Random overlapping positions: every packet is counted, none has another effect.
#[test]
fn blocks__at_random_positions_leak_no_memory() {
    let limits = Config { block_bytes_qp: 10_000, block_bytes_peer: 1 << 20, ..Config::default() };
    let mut s = scene(limits);
    let mut rng = Rng::new(3);
    let mut below = |n: u64| u8::try_from(rng.below(n)).unwrap();
    for i in 0..20_000u32 {
        let (data, parity) = (1 + below(30), 1 + below(30));
        let index = below(u64::from(data + parity));
        let first = NEXT.wrapping_add(i / 2 * 6 + u32::from(below(40)));
        let va = s.va + 0x1000;
        let header = packet(&s, first, index, (data, parity), va);
        inject(&mut s, &header);
    }
    let c = s.pair.ends[0].ep.counters();
    assert!(c.rx_packets > 10_000 && c.ec_blocks_plain > 1_000, "{c:?}");
    assert!(!s.pair.ends[0].ep.has_no_block_memory(), "no memory was reserved");
    let failed = QpAttr { state: Some(QpState::Err), ..QpAttr::default() };
    let qpn = s.qpn;
    s.pair.ends[0].ep.modify_qp(qpn, &failed).unwrap();
    assert!(s.pair.ends[0].ep.has_no_block_memory());
}

/// Reports of blocks that were never sent, in an otherwise valid ACK.
#[test]
fn reports__of_unsent_packets_change_nothing() {
    let mut s = scene(Config::default());
    let mut rng = Rng::new(4);
    let in_flight = |s: &Scene| s.pair.ends[0].ep.query_qp(s.qpn).unwrap().in_flight_pkts;
    let before = in_flight(&s);
    for _ in 0..1_000 {
        let mut blocks = BlockReports::default();
        for kind in [BlockReportKind::Nack, BlockReportKind::Settled, BlockReportKind::Recovered] {
            let near = u32::try_from(rng.below(200)).unwrap();
            let first = right_ack(&s).next.wrapping_sub(100).wrapping_add(near);
            let data = u8::try_from(1 + rng.below(63)).unwrap();
            blocks.push(BlockReport { first, kind, data, bits: rng.next_u64() });
        }
        let frame = ack(&s, &SrAckRepr { blocks, ..right_ack(&s) });
        s.pair.inject(0, &frame);
    }
    assert_eq!(in_flight(&s), before);
    let c = s.pair.ends[0].ep.counters();
    assert_eq!((c.ec_settled_packets, c.ec_short_packets), (0, 0));
}

/// Side 0 sends blocks of eight and two. A WRITE of one segment has arrived completely. Of a WRITE
/// of three segments ([`BLOCK`]), and of the READ and atomic after it, no packet has.
fn coded_scene(config: Config) -> Scene {
    let erasure = Some(ErasureCoding::default());
    Scene::of(Pair::with(&PairConfig { erasure, config, ..PairConfig::sr() }))
}

/// The sender's counts of losses, packets in flight and retransmissions.
fn losses(s: &Scene) -> ([u64; 3], u64, u64) {
    let end = &s.pair.ends[0];
    let c: &Counters = end.ep.counters();
    let lost = [c.presumed_lost_packets, c.ec_settled_packets, c.ec_short_packets];
    (lost, end.ep.query_qp(s.qpn).unwrap().in_flight_pkts, c.retransmitted_packets)
}

/// Acknowledges the packets that had arrived before, with this report of a block.
fn report(s: &mut Scene, report: BlockReport) {
    let mut blocks = BlockReports::default();
    assert!(blocks.push(report));
    let right = right_ack(s);
    // All packets of a block of one and two have arrived.
    let ahead = SrAckRepr { next: BLOCK, newest: BLOCK - 1, ..right };
    let frame = ack(s, &SrAckRepr { blocks, ..ahead });
    s.pair.inject(0, &frame);
}

/// Reports of known types at PSNs without such a block: beside one, after all, half the PSN space
/// away, of a completed one, of packets outside blocks, of another length.
#[test]
fn reports__of_invalid_blocks_change_nothing() {
    let mut s = coded_scene(Config::default());
    let before = losses(&s);
    assert_eq!(before, ([0; 3], 7, 0), "three data and two parity packets, a READ and an atomic");
    for kind in [BlockReportKind::Nack, BlockReportKind::Settled, BlockReportKind::Recovered] {
        for (first, data) in [
            (BLOCK - 1, 3),
            (BLOCK + 1, 3),
            (BLOCK + 1, 2),
            (BLOCK, 2),
            (BLOCK, 63),
            (FIRST, 1),
            (BLOCK + 5, 1),
            (BLOCK + 6, 1),
            (BLOCK + 7, 3),
            (BLOCK + 1000, 3),
            (BLOCK ^ 1 << 31, 3),
            (BLOCK.wrapping_sub(1 << 30), 3),
        ] {
            for bits in [0, 1, 0b1_1111, u64::MAX] {
                report(&mut s, BlockReport { first, kind, data, bits });
                assert_eq!(losses(&s), before, "{kind:?} {first:#x} {data} {bits:b}");
            }
        }
    }
    s.pair.step(0);
    assert_eq!(losses(&s), before, "no retransmission");
}

/// A block NACK requests the missing packets once. A repeated one does not request packets already
/// retransmitted, and bits beyond the block have no meaning.
#[test]
fn reports__that_are_repeated_request_nothing_twice() {
    let mut s = coded_scene(Config::default());
    // The echo is of a packet sent after the block, not at the same time.
    s.pair.now += Dur::from_ns(1);
    let nack = BlockReport { first: BLOCK, kind: BlockReportKind::Nack, data: 3, bits: !0b1_1111 };
    let old = s.pair.now;
    for _ in 0..50 {
        s.pair.now = old;
        report(&mut s, nack);
        s.pair.now += Dur::from_us(3);
        s.pair.step(0);
    }
    let (lost, in_flight, retransmitted) = losses(&s);
    assert_eq!((lost, in_flight, retransmitted), ([5, 0, 5], 5, 3), "without the lost parity");
    // A report newer than the retransmissions has the same effect, once, and completes no request.
    s.pair.now += Dur::from_us(3);
    (0..50).for_each(|_| report(&mut s, nack));
    s.pair.step(0);
    assert_eq!(losses(&s), ([8, 0, 8], 5, 6));
    assert!(s.pair.ends[0].wcs.is_empty());
}

/// A packet that is settled or recovered stays so, whatever later reports claim, and only its own
/// WRITE completes. A peer that misreports its memory affects only its own data.
#[test]
fn reports__of_settled_packets_count_once() {
    for first_kind in [BlockReportKind::Settled, BlockReportKind::Recovered] {
        let mut s = coded_scene(Config::default());
        for (i, kind) in [
            first_kind,
            BlockReportKind::Settled,
            BlockReportKind::Recovered,
            BlockReportKind::Nack,
        ]
        .into_iter()
        .cycle()
        .take(40)
        .enumerate()
        {
            report(&mut s, BlockReport { first: BLOCK, kind, data: 3, bits: u64::MAX });
            s.pair.step(0);
            let settled = if i == 0 && kind == BlockReportKind::Recovered { 0 } else { 5 };
            let want = ([settled, settled, 0], 2, 0);
            assert_eq!(losses(&s), want, "{first_kind:?}, then {kind:?}");
        }
        let ended: Vec<u64> = s.pair.ends[0].wcs.iter().map(|wc| wc.wr_id).collect();
        assert_eq!(ended, [2], "neither the READ nor the atomic");
    }
}

/// A report may cover all of a block that has begun, and nothing beyond it.
#[test]
fn reports__of_unsent_packets_of_a_block_remove_none() {
    let window = Config {
        qp_window_pkts: 2,
        ack_req_interval_pkts: 2,
        read_chunk_pkts: 1,
        ..Config::default()
    };
    let mut s = coded_scene(window);
    assert_eq!(losses(&s), ([0; 3], 2, 0), "two of five were sent");
    let beyond = |s: &Scene| {
        let reason = crate::DropReason::ResponseBeyondSent;
        s.pair.ends[0].ep.counters().dropped(reason)
    };
    let right = right_ack(&s);
    let frame = ack(&s, &SrAckRepr { next: BLOCK + 6, newest: BLOCK + 1, ..right });
    s.pair.inject(0, &frame);
    assert_eq!((losses(&s), beyond(&s)), (([0; 3], 2, 0), 1));
    let settled =
        BlockReport { first: BLOCK, kind: BlockReportKind::Settled, data: 3, bits: u64::MAX };
    report(&mut s, settled);
    assert_eq!((losses(&s), beyond(&s)), (([2, 2, 0], 0, 0), 1));
    // A packet reported before it was sent is sent all the same and must be acknowledged.
    s.pair.step(0);
    assert_eq!(losses(&s).1, 2);
    assert!(s.pair.ends[0].wcs.is_empty(), "its last segment was only just sent");
}

/// For a peer that begins blocks without ending them, the number of block NACKs is bounded for each
/// received packet, with increasing intervals. Duplicates cause none.
#[test]
fn nacks__are_bounded_by_received_packets() {
    // Its own requests are never acknowledged and stay pending.
    let patient = PairConfig { rts: |attr| attr.timeout = Some(0), ..PairConfig::sr() };
    let mut s = Scene::of(Pair::with(&patient));
    let (va, at_most) = (s.va + 0x1000, 8);
    let count = |s: &Scene| {
        let c = s.pair.ends[0].ep.counters();
        (c.ec_block_nacks, c.tx_acks)
    };
    let (_, acks_before) = count(&s);
    let mut came = 0;
    for block in 0..50 {
        // Of five source packets two arrive, at a long interval, each ten times.
        for index in [1, 3] {
            // Without delay: block NACKs are sent soonest if no delay has been measured.
            let sent_ps = s.pair.now.as_ps();
            let plain = packet(&s, NEXT + block * 7, index, (5, 2), va);
            let header = SrDataRepr { sent_ps, ..plain };
            let (nacks, acks) = count(&s);
            for _ in 0..10 {
                inject(&mut s, &header);
            }
            came += 1;
            s.pair.run(Dur::from_secs(2));
            assert_eq!(count(&s).0 - nacks, at_most, "block {block}, packet {index}");
            // No further block NACK is sent, whatever is duplicated.
            for _ in 0..100 {
                inject(&mut s, &header);
                s.pair.run(Dur::from_ms(100));
            }
            assert_eq!(count(&s).0 - nacks, at_most);
            assert!(count(&s).1 - acks < 2 * 100 + 20, "{}", count(&s).1 - acks);
        }
    }
    let (nacks, acks) = count(&s);
    assert_eq!(nacks, at_most * came);
    assert!(acks - acks_before <= came * (at_most + 112), "{acks}");
}

/// First PSN of the block of three segments, after one of a segment and two parity packets.
const BLOCK: u32 = FIRST + 3;
