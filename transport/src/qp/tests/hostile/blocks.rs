//! Blocks that nobody should send: parity that lies, blocks that overlap and blocks without end.

use super::classes::{NONE, Scene};
use super::seal;
use super::selective::{FIRST, NEXT, ack, header_at, resealed, right_ack, write};
use crate::testing::{Pair, PairConfig};
use crate::{Config, Counters, ErasureCoding, QpAttr, QpState};
use spanwire_base::{Dur, Rng};
use spanwire_wire::{
    BlockReport, BlockReports, BlockRepr, BlockWord, Opcode, Psn, RethRepr, SrAckRepr, SrDataRepr,
};

/// A packet of a block that begins at `first`: data of 64 bytes for `va`, or parity of it all.
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

/// One data packet of a block of two came, and parity: the other is computed, and goes through the
/// checks that it would have gone through had it come.
#[test]
fn parity__that_lies_writes_nothing_that_data_could_not() {
    let plain = scene(Config::default());
    let (va, rkey) = (plain.va, plain.rkey);
    let end = va + u64::try_from(REGION).unwrap();
    for (name, at, key, rebuilt) in [
        ("right", va + 0x1000, rkey, 1),
        ("another key", va + 0x1000, rkey ^ 1, 0),
        ("across the end", end - 64 - 63, rkey, 0),
        ("behind the end", end - 64, rkey, 0),
        ("wrapping", u64::MAX - 100, rkey, 0),
    ] {
        let mut s = scene(Config::default());
        let before = s.pair.ends[0].bytes(0, REGION);
        // The data packet has its right place; what parity says of it is another thing.
        let data = packet(&s, NEXT, 0, (2, 1), va + 0x1000);
        inject(&mut s, &data);
        let parity = packet(&s, NEXT, 2, (2, 1), at);
        let reth = parity.reth.map(|reth| RethRepr { rkey: key, ..reth });
        inject(&mut s, &SrDataRepr { reth, ..parity });
        let c = s.pair.ends[0].ep.counters();
        // A key that does not fit ends the queue pair, as that of a WRITE that came would.
        let (is_right, failed) = (rebuilt > 0, QpState::Err);
        assert_eq!((c.ec_rebuilt_packets, c.tx_fatal_naks), (rebuilt, 1 - rebuilt), "{name}");
        let state = s.pair.ends[0].ep.query_qp(s.qpn).unwrap().state;
        assert_eq!(state == failed, !is_right, "{name}");
        let after = s.pair.ends[0].bytes(0, REGION);
        let changed = (0..REGION).filter(|i| before[*i] != after[*i]);
        let may = 0x1000..0x1000 + if rebuilt > 0 { 128 } else { 64 };
        assert!(changed.into_iter().all(|i| may.contains(&i)), "{name}");
    }
}

/// A number is taken once, whatever blocks it is said to be in.
#[test]
fn blocks__that_overlap_what_has_arrived_rebuild_nothing() {
    // What comes before the parity of a block of two and two that begins at NEXT + 1, between its
    // rows, and how many data packets there are then.
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

/// Random places, one upon the other: every packet is counted, none does harm.
#[test]
fn blocks__of_any_places_leave_no_memory_behind() {
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
    assert!(!s.pair.ends[0].ep.has_no_block_memory(), "some of it is kept");
    let failed = QpAttr { state: Some(QpState::Err), ..QpAttr::default() };
    let qpn = s.qpn;
    s.pair.ends[0].ep.modify_qp(qpn, &failed).unwrap();
    assert!(s.pair.ends[0].ep.has_no_block_memory());
}

/// Reports of blocks that were never sent, beside an acknowledgement that is right.
#[test]
fn reports__of_what_was_not_sent_change_nothing() {
    let mut s = scene(Config::default());
    let mut rng = Rng::new(4);
    let in_flight = |s: &Scene| s.pair.ends[0].ep.query_qp(s.qpn).unwrap().in_flight_pkts;
    let before = in_flight(&s);
    for _ in 0..1_000 {
        let mut blocks = BlockReports::default();
        for word in [BlockWord::Nack, BlockWord::Settled, BlockWord::Rebuilt] {
            let near = u32::try_from(rng.below(200)).unwrap();
            let first = right_ack(&s).next.wrapping_sub(100).wrapping_add(near);
            let data = u8::try_from(1 + rng.below(63)).unwrap();
            blocks.push(BlockReport { first, word, data, bits: rng.next_u64() });
        }
        let frame = ack(&s, &SrAckRepr { blocks, ..right_ack(&s) });
        s.pair.inject(0, &frame);
    }
    assert_eq!(in_flight(&s), before);
    let c = s.pair.ends[0].ep.counters();
    assert_eq!((c.ec_settled_packets, c.ec_short_packets), (0, 0));
}

/// Side 0 sends in blocks of eight and two: of a WRITE of a segment nothing is missing, and of one
/// of three segments ([`BLOCK`]), a READ and an atomic behind it nothing has arrived.
fn coded_scene(config: Config) -> Scene {
    let erasure = Some(ErasureCoding::default());
    Scene::of(Pair::with(&PairConfig { erasure, config, ..PairConfig::sr() }))
}

/// What the sender has counted of losses, has in flight, and has sent again.
fn losses(s: &Scene) -> ([u64; 3], u64, u64) {
    let end = &s.pair.ends[0];
    let c: &Counters = end.ep.counters();
    let lost = [c.presumed_lost_packets, c.ec_settled_packets, c.ec_short_packets];
    (lost, end.ep.query_qp(s.qpn).unwrap().in_flight_pkts, c.retransmitted_packets)
}

/// Acknowledges what had arrived before, and says this of a block.
fn report(s: &mut Scene, report: BlockReport) {
    let mut blocks = BlockReports::default();
    assert!(blocks.push(report));
    let right = right_ack(s);
    // Of a block of one and two packets, all has arrived.
    let ahead = SrAckRepr { next: BLOCK, newest: BLOCK - 1, ..right };
    let frame = ack(s, &SrAckRepr { blocks, ..ahead });
    s.pair.inject(0, &frame);
}

/// Of kinds that the sender knows, at numbers where it has no such block: beside one, behind all of
/// them, half a turn away, of one that is over, of packets that are in none, of another length.
#[test]
fn reports__of_blocks_that_are_none_change_nothing() {
    let mut s = coded_scene(Config::default());
    let before = losses(&s);
    assert_eq!(before, ([0; 3], 7, 0), "three data and two parity packets, a READ and an atomic");
    for word in [BlockWord::Nack, BlockWord::Settled, BlockWord::Rebuilt] {
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
                report(&mut s, BlockReport { first, word, data, bits });
                assert_eq!(losses(&s), before, "{word:?} {first:#x} {data} {bits:b}");
            }
        }
    }
    s.pair.step(0);
    assert_eq!(losses(&s), before, "nothing is sent again either");
}

/// A block NACK asks for what lacks, once: what is on its way when it is said again is not asked
/// for, and bits beyond the block are of nothing.
#[test]
fn reports__that_are_repeated_ask_for_nothing_twice() {
    let mut s = coded_scene(Config::default());
    // The echo is of something sent after the block, not at the same time.
    s.pair.now += Dur::from_ns(1);
    let nack = BlockReport { first: BLOCK, word: BlockWord::Nack, data: 3, bits: !0b1_1111 };
    let old = s.pair.now;
    for _ in 0..50 {
        s.pair.now = old;
        report(&mut s, nack);
        s.pair.now += Dur::from_us(3);
        s.pair.step(0);
    }
    let (lost, in_flight, again) = losses(&s);
    assert_eq!((lost, in_flight, again), ([5, 0, 5], 5, 3), "without the parity, which is gone");
    // One that is newer than what was sent again does the same, once, and no request ends.
    s.pair.now += Dur::from_us(3);
    (0..50).for_each(|_| report(&mut s, nack));
    s.pair.step(0);
    assert_eq!(losses(&s), ([8, 0, 8], 5, 6));
    assert!(s.pair.ends[0].wcs.is_empty());
}

/// What is settled, or rebuilt, is that once, whatever is said of it later, and only its own WRITE
/// ends: a peer that lies about its own memory harms nobody else.
#[test]
fn reports__of_what_is_settled_count_once() {
    for first_word in [BlockWord::Settled, BlockWord::Rebuilt] {
        let mut s = coded_scene(Config::default());
        for (i, word) in [first_word, BlockWord::Settled, BlockWord::Rebuilt, BlockWord::Nack]
            .into_iter()
            .cycle()
            .take(40)
            .enumerate()
        {
            report(&mut s, BlockReport { first: BLOCK, word, data: 3, bits: u64::MAX });
            s.pair.step(0);
            let settled = if i == 0 && word == BlockWord::Rebuilt { 0 } else { 5 };
            let want = ([settled, settled, 0], 2, 0);
            assert_eq!(losses(&s), want, "{first_word:?}, then {word:?}");
        }
        let ended: Vec<u64> = s.pair.ends[0].wcs.iter().map(|wc| wc.wr_id).collect();
        assert_eq!(ended, [2], "neither the READ nor the atomic");
    }
}

/// Of a block that has begun all may be known, and nothing beyond it.
#[test]
fn reports__of_packets_that_have_not_left_take_none_away() {
    let window = Config {
        qp_window_pkts: 2,
        ack_req_interval_pkts: 2,
        read_chunk_pkts: 1,
        ..Config::default()
    };
    let mut s = coded_scene(window);
    assert_eq!(losses(&s), ([0; 3], 2, 0), "two of five have left");
    let beyond = |s: &Scene| {
        let reason = crate::DropReason::ResponseBeyondSent;
        s.pair.ends[0].ep.counters().dropped(reason)
    };
    let right = right_ack(&s);
    let frame = ack(&s, &SrAckRepr { next: BLOCK + 6, newest: BLOCK + 1, ..right });
    s.pair.inject(0, &frame);
    assert_eq!((losses(&s), beyond(&s)), (([0; 3], 2, 0), 1));
    let settled = BlockReport { first: BLOCK, word: BlockWord::Settled, data: 3, bits: u64::MAX };
    report(&mut s, settled);
    assert_eq!((losses(&s), beyond(&s)), (([2, 2, 0], 0, 0), 1));
    // What was named before it left leaves all the same, and is waited for.
    s.pair.step(0);
    assert_eq!(losses(&s).1, 2);
    assert!(s.pair.ends[0].wcs.is_empty(), "its last segment has only just left");
}

/// A peer that begins blocks and never ends them is told of each so many times for each packet that
/// comes, ever more slowly; copies of what came are no reason to say it again.
#[test]
fn nacks__are_bounded_by_what_comes() {
    // Its own requests are never acknowledged, and wait.
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
        // Of five data packets two come, much later than the other, and each of them ten times.
        for index in [1, 3] {
            // As fast as can be: who knows that nothing is slow says so soonest.
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
            // From now on it is silent, whatever comes once more.
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

/// Where the block of three segments begins, behind one of a segment and two parity packets.
const BLOCK: u32 = FIRST + 3;
