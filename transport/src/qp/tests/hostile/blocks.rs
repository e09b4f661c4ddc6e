//! Blocks that nobody should send: parity that lies, blocks that overlap and blocks without end.

use super::classes::{NONE, Scene};
use super::seal;
use super::selective::{NEXT, ack, header_at, resealed, right_ack, write};
use crate::testing::{Pair, PairConfig};
use crate::{Config, QpAttr, QpState};
use spanwire_base::Rng;
use spanwire_wire::{
    BlockReport, BlockReports, BlockRepr, BlockWord, Opcode, Psn, RethRepr, SrcAckRepr, SrcDataRepr,
};

/// A packet of a block that begins at `first`: data of 64 bytes for `va`, or parity of it all.
fn packet(s: &Scene, first: u32, index: u8, (data, parity): (u8, u8), va: u64) -> SrcDataRepr {
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
    SrcDataRepr { reth, offset: before, block: Some(place), block_bytes, ..plain }
}

fn inject(s: &mut Scene, header: &SrcDataRepr) {
    let is_parity = header.block.is_some_and(|block| block.is_parity());
    let opcode = if is_parity { Opcode::SrcParity } else { Opcode::SrcData };
    let bth = s.bth(opcode, header.psn & Psn::MASK);
    let mut frame = seal(bth, NONE, header.header_len() + 64, 9);
    header.emit(header_at(&mut frame)).unwrap();
    let frame = resealed(frame);
    s.pair.inject(0, &frame);
}

fn scene(config: Config) -> Scene {
    Scene::of(Pair::with(&PairConfig { config, ..PairConfig::src() }))
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
        inject(&mut s, &SrcDataRepr { reth, ..parity });
        let c = s.pair.ends[0].ep.counters();
        assert_eq!((c.ec_rebuilt_packets, c.tx_fatal_naks), (rebuilt, 0), "{name}");
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
        let frame = ack(&s, &SrcAckRepr { blocks, ..right_ack(&s) });
        s.pair.inject(0, &frame);
    }
    assert_eq!(in_flight(&s), before);
    let c = s.pair.ends[0].ep.counters();
    assert_eq!((c.ec_settled_packets, c.ec_short_packets), (0, 0));
}
