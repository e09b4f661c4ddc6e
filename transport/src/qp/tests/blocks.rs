//! FEC blocks: parity replaces retransmissions where it suffices, packets beyond it are
//! retransmitted, and no message waits for parity.

use super::*;
use crate::testing::Filter;
use crate::{CodingWhen, CongestionControl, Counters, ErasureCoding, QpAttr};
use spanwire_base::{Node, PortId, u64_from};
use spanwire_wire::{BlockReportKind, Packet, SrAckRepr, SrDataRepr};

/// Both sides send blocks of eight source and two parity packets.
fn coded() -> PairConfig {
    PairConfig { erasure: Some(ErasureCoding::default()), ..PairConfig::sr() }
}

/// The position of a packet in its block: its index, and the number of source packets.
fn place(p: &Packet<'_>) -> Option<(u8, u8)> {
    let parsed = match p.bth.opcode {
        Opcode::SrData => SrDataRepr::parse(p.bth.psn.get(), p.payload),
        Opcode::SrParity => SrDataRepr::parse_parity(p.bth.psn.get(), p.payload),
        _ => return None,
    };
    parsed.unwrap().0.block.map(|block| (block.index, block.data))
}

/// Drops the first transmissions at positions `places` of each block.
fn drop_places(from: usize, places: &'static [u8]) -> Filter {
    let mut highest = None;
    Box::new(move |side, p| {
        let Some((index, _)) = place(p).filter(|_| side == from) else { return Fate::Pass };
        let psn = p.bth.psn.get() << 8;
        let is_new = highest.is_none_or(|high: u32| psn.wrapping_sub(high).cast_signed() > 0);
        if is_new {
            highest = Some(psn);
        }
        if is_new && places.contains(&index) { Fate::Drop } else { Fate::Pass }
    })
}

/// A pair that has measured the arrival timing of packets, in both directions.
fn warm(c: &PairConfig) -> Pair {
    let mut p = Pair::with(c);
    for side in [0, 1] {
        for i in 0..20 {
            p.post(side, 1000 + i, Op::Write, 0, 8 * 248);
            assert!(p.run(SECOND));
        }
        p.ends[side].wcs.clear();
    }
    p
}

/// Retransmitted packets without the tail loss probes.
fn retransmitted(c: &Counters) -> u64 {
    c.retransmitted_packets - c.tail_loss_probes
}

/// Runs each operation over one message, with losses at these positions of its blocks. Returns the
/// pair.
fn transfer(c: &PairConfig, op: Op, bytes: usize, places: &'static [u8]) -> Pair {
    let mut p = warm(c);
    let (source, sink) = if op == Op::Read { (1, 0) } else { (0, 1) };
    let want = p.ends[source].fill(0, bytes, 8);
    p.filter = drop_places(source, places);
    if op.needs_recv() {
        p.post_recv(1, 7, 0, bytes);
    }
    p.post(0, 1, op, 0, bytes);
    assert!(p.run(SECOND), "{op:?} {places:?}");
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
    assert_eq!(p.ends[1].wcs.len(), usize::from(op.needs_recv()), "{op:?}");
    assert!(p.ends[sink].bytes(0, bytes) == want, "{op:?} {places:?}");
    for end in &p.ends {
        assert!(end.ep.has_no_block_memory(), "block memory is still reserved");
    }
    p
}

#[test]
fn recover__any_two_of_a_block_without_retransmission() {
    // Three blocks of eight, eight and three segments, the last of them short.
    let bytes = 18 * 248 + 100;
    for op in Op::ALL {
        for places in
            [&[0, 1][..], &[2, 5], &[0, 7], &[6, 7], &[1, 8], &[3, 9], &[8, 9], &[4], &[8], &[0, 2]]
        {
            let p = transfer(&coded(), op, bytes, places);
            let (source, sink) = if op == Op::Read { (1, 0) } else { (0, 1) };
            let (sent, got) = (p.ends[source].ep.counters(), p.ends[sink].ep.counters());
            assert_eq!(retransmitted(sent), 0, "{op:?} {places:?}");
            assert_eq!(sent.ec_parity_packets, 40 + 6);
            let lost = places.iter().filter(|i| **i < 8).count() as u64;
            assert!(got.ec_rebuilt_packets >= lost * 2, "{op:?} {places:?}");
            assert_eq!((got.ec_block_nacks, got.ec_blocks_plain), (0, 0));
        }
    }
}

#[test]
fn recover__a_message_of_one_segment_has_parity_too() {
    for (bytes, places) in [(1, &[0][..]), (248, &[0, 1]), (249, &[0, 1]), (100, &[1, 2])] {
        let p = transfer(&coded(), Op::SendImm, bytes, places);
        let sent = p.ends[0].ep.counters();
        assert_eq!((sent.ec_parity_packets, retransmitted(sent)), (40 + 2, 0), "{bytes}");
    }
}

#[test]
fn overdue__three_losses_in_a_block_cost_one_retransmission() {
    for places in [&[0, 1, 2][..], &[5, 6, 7], &[0, 8, 9], &[7, 8, 9]] {
        let p = transfer(&coded(), Op::Write, 8 * 248, places);
        let c = p.ends[0].ep.counters();
        assert!((1..=3).contains(&c.retransmitted_packets), "{places:?}");
    }
}

#[test]
fn overdue__a_block_lost_completely_is_retransmitted_completely() {
    let p = transfer(&coded(), Op::Write, 16 * 248, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert!(p.ends[0].ep.counters().retransmitted_packets >= 16);
}

/// No packet after the losses arrives, so only a block NACK can report them before a probe.
#[test]
fn overdue__the_receiver_sends_a_block_nack() {
    let mut p = warm(&coded());
    let want = p.ends[0].fill(0, 8 * 248, 8);
    let mut lost = drop_places(0, &[7, 8, 9]);
    p.filter = Box::new(move |side, packet| {
        if packet.bth.opcode == Opcode::SrAck {
            let ack = SrAckRepr::parse(packet.bth.psn.get(), packet.payload).unwrap();
            let short = ack.blocks.as_slice().iter().filter(|r| r.kind == BlockReportKind::Nack);
            for report in short {
                assert_eq!((report.data, report.bits), (8, 0b00_0111_1111), "7 and all parity");
            }
        }
        lost(side, packet)
    });
    p.post(0, 1, Op::Write, 0, 8 * 248);
    p.run(LATENCY * 12);
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
    assert_eq!(p.ends[1].bytes(0, 8 * 248), want);
    assert_eq!(p.ends[1].ep.counters().ec_block_nacks, 1);
    assert!((1..=2).contains(&p.ends[0].ep.counters().retransmitted_packets));
}

/// A message completes with its data, without waiting for parity.
#[test]
fn deliver__a_message_completes_before_its_parity_arrives() {
    let mut p = Pair::with(&coded());
    p.filter = Box::new(|_, packet| match packet.bth.opcode {
        Opcode::SrParity => Fate::Late(Dur::from_ms(3)),
        _ => Fate::Pass,
    });
    p.post_recv(1, 7, 0, 4000);
    p.post(0, 1, Op::Send, 0, 4000);
    p.run(LATENCY * 3);
    assert_eq!(statuses(&p.ends[1].wcs), [(7, WcStatus::Success)]);
    assert!(p.run(SECOND));
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
}

/// A packet is recovered from the packets received, not from memory, which may have changed by
/// then.
#[test]
fn recover__does_not_read_memory_that_may_have_changed() {
    let mut p = warm(&coded());
    let want = p.ends[0].fill(0, 8 * 248, 8);
    let mut lost = drop_places(0, &[2]);
    p.filter = Box::new(move |side, packet| match packet.bth.opcode {
        Opcode::SrParity => Fate::Late(LATENCY * 4),
        _ => lost(side, packet),
    });
    p.post(0, 1, Op::Write, 0, 8 * 248);
    p.run(LATENCY * 2);
    let noise = p.ends[1].fill(0, 8 * 248, 9);
    assert!(p.run(SECOND));
    let got = p.ends[1].bytes(0, 8 * 248);
    assert_eq!(got[2 * 248..3 * 248], want[2 * 248..3 * 248], "the packet that was lost");
    assert_eq!(got[3 * 248..], noise[3 * 248..]);
    assert_eq!(p.ends[0].ep.counters().retransmitted_packets, 0);
}

/// A retransmission reads memory again, which may have changed since parity was computed over the
/// first transmission. Only the changed bytes may have either value; all others are exact.
#[test]
fn recover__a_retransmission_of_changed_memory_is_not_mixed_with_earlier_parity() {
    let segments = 8;
    let places: &[&[u8]] =
        &[&[0, 1, 2], &[0, 6, 7], &[0, 1, 9], &[0, 3, 8], &[0, 1, 2, 3], &[0, 8, 9]];
    for op in [Op::Read, Op::Write, Op::Send] {
        for (places, parity_late) in places.iter().flat_map(|p| [(*p, false), (*p, true)]) {
            let mut p = warm(&coded());
            let (source, sink) = if op == Op::Read { (1, 0) } else { (0, 1) };
            let bytes = segments * 248;
            let want = p.ends[source].fill(0, bytes, 8);
            let memory = p.ends[source].region.clone();
            let mut lost = drop_places(source, places);
            let mut left = 0;
            p.filter = Box::new(move |side, packet| {
                let fate = lost(side, packet);
                left += usize::from(side == source && place(packet).is_some());
                if left == segments + 2 {
                    memory.copy_in(100, &[0xee; 8]).unwrap();
                }
                let is_parity = packet.bth.opcode == Opcode::SrParity;
                match fate {
                    Fate::Pass if is_parity && parity_late => Fate::Late(LATENCY * 20),
                    fate => fate,
                }
            });
            if op.needs_recv() {
                p.post_recv(1, 7, 0, bytes);
            }
            p.post(0, 1, op, 0, bytes);
            assert!(p.run(SECOND), "{op:?} {places:?}");
            assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
            let got = p.ends[sink].bytes(0, bytes);
            assert_eq!(got[..100], want[..100], "{op:?} {places:?}");
            assert!(got[100..108] == want[100..108] || got[100..108] == [0xee; 8]);
            assert!(got[108..] == want[108..], "{op:?} {places:?}: bytes that never changed");
            for end in &p.ends {
                assert!(end.ep.has_no_block_memory(), "{op:?} {places:?}");
            }
        }
    }
}

/// A retransmission with the payload of the first transmission is as good as that: of a block that
/// parity cannot recover, as many are retransmitted as are missing.
#[test]
fn recover__an_unchanged_retransmission_takes_part_in_recovery() {
    let cases: [(&[u8], u64); 3] = [(&[0, 1, 2], 1), (&[0, 3, 8], 1), (&[1, 2, 5, 9], 2)];
    for (places, missing) in cases {
        let p = transfer(&coded(), Op::Write, 8 * 248, places);
        let (sent, got) = (p.ends[0].ep.counters(), p.ends[1].ep.counters());
        assert_eq!(sent.retransmitted_packets, missing, "{places:?}");
        let data = places.iter().filter(|place| **place < 8).count();
        assert_eq!(got.ec_rebuilt_packets + missing, u64_from(data), "{places:?}");
    }
}

#[test]
fn memory__without_any_the_losses_of_a_block_are_retransmitted() {
    for (qp, peer) in [(0, 1 << 20), (1 << 20, 0), (400, 1 << 20)] {
        let config = Config { block_bytes_qp: qp, block_bytes_peer: peer, ..Config::default() };
        let c = PairConfig { config, ..coded() };
        let p = transfer(&c, Op::Write, 24 * 248, &[1, 5]);
        let (sent, got) = (p.ends[0].ep.counters(), p.ends[1].ep.counters());
        assert_eq!((got.ec_blocks_rebuilt, got.ec_blocks_plain), (0, 20 + 3), "{qp} {peer}");
        assert!(got.ec_block_nacks >= 3, "{sent:?} {got:?}");
        assert!((6..=7).contains(&sent.retransmitted_packets), "only missing packets");
    }
}

#[test]
fn when__off_below_the_base_rtt() {
    let with = |least: Dur, given: Option<Dur>| {
        let when = CodingWhen::BaseRtt(least);
        let erasure = Some(ErasureCoding { when, ..ErasureCoding::default() });
        let algorithm = spanwire_cc::Algorithm::named("unocc").unwrap();
        let congestion = given.map(|base_rtt| CongestionControl {
            algorithm: Some(algorithm),
            base_rtt: Some(base_rtt),
            preset: crate::Preset::Paper,
            ..CongestionControl::NONE
        });
        let mut p = Pair::with(&PairConfig { erasure, congestion, ..PairConfig::sr() });
        for i in 0..3 {
            p.post(0, i, Op::Write, 0, 1000);
            assert!(p.run(SECOND));
        }
        p.ends[0].ep.counters().ec_parity_packets
    };
    assert_eq!(with(LATENCY * 2, None), 4, "known after the first");
    assert_eq!(with(LATENCY * 3, None), 0);
    assert_eq!(with(LATENCY * 3, Some(Dur::from_ms(1))), 6);
    assert_eq!(with(Dur::from_ms(2), Some(Dur::from_ms(1))), 0);
}

/// Adaptive parity follows the measured loss: up at once, down slowly, within its bounds.
#[test]
fn adaptive__parity_follows_the_loss() {
    let erasure = Some(ErasureCoding::new(8, 2).adaptive(1, 6));
    let mut p = Pair::with(&PairConfig { erasure, ..PairConfig::sr() });
    let parity_of = |p: &mut Pair, messages: u64, loss: u64| {
        let mut rng = Rng::new(9);
        p.filter = Box::new(move |side, _| match side == 0 && rng.below(1000) < loss {
            true => Fate::Drop,
            false => Fate::Pass,
        });
        let before = p.ends[0].ep.counters().ec_parity_packets;
        for i in 0..messages {
            p.post(0, i, Op::Write, 0, 16 * 248);
            assert!(p.run(SECOND));
        }
        // The last message has two blocks of the current parity, all within bounds.
        let sent = p.ends[0].ep.counters().ec_parity_packets - before;
        assert!((2 * messages..=12 * messages).contains(&sent));
        p.post(0, 9999, Op::Write, 0, 8 * 248);
        let before = p.ends[0].ep.counters().ec_parity_packets;
        assert!(p.run(SECOND));
        p.ends[0].ep.counters().ec_parity_packets - before
    };
    assert_eq!(parity_of(&mut p, 40, 0), 1, "no loss: the minimum");
    assert!(parity_of(&mut p, 100, 100) >= 5, "a tenth is lost");
    assert!(parity_of(&mut p, 30, 0) >= 3, "it falls slowly");
    assert_eq!(parity_of(&mut p, 1000, 0), 1);
    let fixed = Some(ErasureCoding::new(8, 2));
    let mut p = Pair::with(&PairConfig { erasure: fixed, ..PairConfig::sr() });
    assert_eq!(parity_of(&mut p, 40, 0), 2, "off by default");
    assert_eq!(parity_of(&mut p, 100, 100), 2);
}

/// Responses of a failed queue pair are coded too. If a port has room for data but not for parity,
/// whose header is longer, the responses end there.
#[test]
fn cannot_write__parity_of_a_response_after_a_refusal_ends_the_responses() {
    let mut p = Pair::with(&coded());
    p.post(0, 1, Op::Read, 0, 2 * 248);
    let (sge, remote) = (p.ends[0].sge(0, 8), p.ends[1].remote(0));
    let op = WrOp::Write { remote: RemoteAddr { rkey: remote.rkey ^ 1, ..remote } };
    let qpn = p.ends[0].qpns[0];
    p.ends[0].ep.post_send(qpn, &WorkRequest::new(2, op, &[sge])).unwrap();
    p.step(0);
    p.now += LATENCY;
    p.receive(1);
    let qpn = p.ends[1].qpns[0];
    assert_eq!(p.ends[1].ep.query_qp(qpn).unwrap().state, QpState::Err);
    // The headers and trailer of a READ response in a block over IPv4: all but its 248 bytes.
    let mut frame = [0; 14 + 20 + 8 + 12 + 24 + 4 + 4 + 248 + 4];
    let mut sent = Vec::new();
    while let Some(meta) = p.ends[1].ep.poll_transmit(p.now, PortId::HOST, &mut frame) {
        sent.push(Packet::parse(&frame[..meta.len]).unwrap().bth.opcode);
        assert!(sent.len() < 10, "{sent:?}");
    }
    assert_eq!(sent, [Opcode::SrData, Opcode::SrData, Opcode::SrAck], "no parity; the refusal");
}

/// A peer may close when it has the data, without acknowledging the parity after them. This must
/// not fail the queue pair, as in RC, where nothing would be outstanding.
#[test]
fn parity__a_closed_peer_with_only_parity_unacknowledged_causes_no_failure() {
    let rts = |a: &mut QpAttr| (a.timeout, a.retry_cnt) = (Some(8), Some(1));
    let mut p = warm(&PairConfig { rts, ..coded() });
    let mut acked = false;
    p.filter = Box::new(move |side, packet| match (side, packet.bth.opcode) {
        (0, Opcode::SrParity) => Fate::Drop,
        (0, _) => Fate::Pass,
        _ if std::mem::replace(&mut acked, true) => Fate::Drop,
        _ => Fate::Pass,
    });
    p.post(0, 1, Op::Write, 0, 200);
    p.run(SECOND * 10);
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
    assert!(p.ends[0].ep.counters().local_ack_timeout_err >= 2);
    assert_eq!(p.ends[0].ep.poll_async_event(), None);
    // Later requests have all retries, whether the peer responds or not.
    p.filter = Box::new(|_, _| Fate::Pass);
    p.post(0, 2, Op::Write, 0, 3000);
    assert!(p.run(SECOND));
    p.filter = Box::new(|_, _| Fate::Drop);
    p.post(0, 3, Op::Write, 0, 3000);
    p.run(SECOND * 10);
    let want = [(1, WcStatus::Success), (2, WcStatus::Success), (3, WcStatus::RetryExcErr)];
    assert_eq!(statuses(&p.ends[0].wcs), want);
}

#[test]
fn is_valid__only_supported_codes() {
    assert!(!ErasureCoding::new(0, 2).is_valid() && !ErasureCoding::new(8, 0).is_valid());
    assert!(!ErasureCoding::new(62, 3).is_valid() && ErasureCoding::new(62, 2).is_valid());
    assert!(ErasureCoding::new(16, 4).is_valid() && !ErasureCoding::new(31, 33).is_valid());
    let pq = ErasureCoding { parity: 3, ..ErasureCoding::default() };
    assert!(!pq.is_valid(), "PQ has two parity packets");
    let adaptive = ErasureCoding { adaptive: Some((0, 4)), ..ErasureCoding::new(8, 3) };
    assert!(!adaptive.is_valid());
}

/// A window smaller than a block: parity waits for an ACK of its block's data, is probed in the
/// middle of the next block, and is settled before it is sent.
#[test]
fn soak__windows_smaller_than_a_block() {
    for (seed, window) in (0..40).flat_map(|seed| [(seed, 1), (seed, 3), (seed, 9)]) {
        let config = Config {
            qp_window_pkts: window,
            ack_req_interval_pkts: 1,
            read_chunk_pkts: 1,
            ..Config::default()
        };
        let mut p = Pair::with(&PairConfig { config, ..coded() });
        let want = p.ends[0].fill(0, 5_000, seed);
        let mut fates = Rng::new(seed);
        p.filter = Box::new(move |_, _| if fates.below(10) < 3 { Fate::Drop } else { Fate::Pass });
        for (i, at) in (0..5).zip((0..5_000).step_by(1_000)) {
            p.post(0, i, Op::Write, at, 1_000);
        }
        p.post(1, 9, Op::Read, 0, 5_000);
        assert!(p.run(SECOND * 20), "seed {seed}, window {window}");
        let done = statuses(&p.ends[0].wcs);
        assert!(done.iter().all(|(_, status)| *status == WcStatus::Success), "seed {seed}");
        assert!(done.len() == 5 && p.ends[1].bytes(0, 5_000) == want, "seed {seed}");
    }
}

/// Random loss, duplicates and reordering, all operations at once, in both directions.
#[test]
fn soak__random_loss_reordering_and_duplicates() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let codes = [(8, 2), (4, 2), (10, 4), (1, 1), (3, 1), (16, 4)];
        let (data, parity) = codes[usize::try_from(rng.below(6)).unwrap()];
        let erasure = Some(ErasureCoding::new(data, parity));
        let mut p = Pair::with(&PairConfig { erasure, ..PairConfig::sr() });
        let want = [p.ends[0].fill(0, 30_000, seed), p.ends[1].fill(30_000, 30_000, seed + 1)];
        let mut fates = Rng::new(seed + 1000);
        let loss = [1, 5, 20][usize::try_from(rng.below(3)).unwrap()];
        p.filter = Box::new(move |_, _| match fates.below(100) {
            n if n < loss => Fate::Drop,
            n if n < loss + 3 => Fate::Late(Dur::from_us(fates.below(40))),
            n if n < loss + 4 => Fate::Twice,
            _ => Fate::Pass,
        });
        for i in 0..4u64 {
            p.post_recv(1, 100 + i, 7500 * usize::try_from(i).unwrap(), 7500);
        }
        for (i, op) in [Op::Send, Op::WriteImm, Op::SendImm, Op::Send].into_iter().enumerate() {
            p.post(0, i as u64, op, 7500 * i, 7500);
        }
        p.post(0, 4, Op::Read, 30_000, 30_000);
        p.post(1, 5, Op::Read, 0, 30_000);
        assert!(p.run(SECOND * 20), "seed {seed}");
        let done: Vec<_> = statuses(&p.ends[0].wcs);
        assert_eq!(done.len(), 5, "seed {seed}: {done:?}");
        assert!(done.iter().all(|(_, status)| *status == WcStatus::Success), "seed {seed}");
        assert!(p.ends[1].bytes(0, 30_000) == want[0], "seed {seed}");
        assert!(p.ends[0].bytes(30_000, 30_000) == want[1], "seed {seed}");
        for end in &p.ends {
            assert!(end.ep.has_no_block_memory(), "seed {seed}");
        }
    }
}
