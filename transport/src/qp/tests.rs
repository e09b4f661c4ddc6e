//! The queue pair, end to end over a virtual wire.

use crate::testing::{Fate, LATENCY, Op, Pair, PairConfig};
use crate::{
    Access, Config, DropReason, Mtu, PostError, QpState, RecvRequest, RemoteAddr, Sge, Wc,
    WcOpcode, WcStatus, WireMode, WorkRequest, WrOp,
};
use spanwire_base::{Dur, Rng};
use spanwire_wire::{
    AethRepr, BthRepr, EthernetRepr, ExtHeaders, Headers, IpRepr, MacAddr, NakCode, Opcode, Psn,
    Qpn, Syndrome, UdpRepr,
};

mod atomics;
mod blocks;
mod drain;
mod events;
mod flow;
mod hostile;
mod int;
mod late;
mod losses;
mod mlcc;
mod near;
mod near_int;
mod path_mtu;
mod paths;
mod protection;
mod selective;
mod soak;
mod stall;
mod unproven;
mod verbs;

const SECOND: Dur = Dur::from_secs(1);
const MODES: [WireMode; 2] = [WireMode::Rc, WireMode::Sr];

fn pair_in(mode: WireMode) -> Pair {
    Pair::with(&PairConfig { mode, ..PairConfig::default() })
}

fn statuses(wcs: &[Wc]) -> Vec<(u64, WcStatus)> {
    wcs.iter().map(|w| (w.wr_id, w.status)).collect()
}

/// One operation of `len` bytes over a lossless wire: data, completions and lengths on both sides.
fn check_one(op: Op, mtu: Mtu, len: usize, mode: WireMode) {
    let mut p = Pair::with(&PairConfig { mtu, mode, ..PairConfig::default() });
    let source = if op == Op::Read { 1 } else { 0 };
    let want = p.ends[source].fill(100, len, 42);
    if op.needs_recv() {
        p.post_recv(1, 7, 100, len);
    }
    p.post(0, 3, op, 100, len);
    assert!(p.run(SECOND), "{op:?} of {len} at {mtu:?} does not end");
    assert_eq!(p.ends[1 - source].bytes(100, len), want, "{op:?} of {len} at {mtu:?}");
    let [sent] = p.ends[0].wcs[..] else { panic!("{:?}", p.ends[0].wcs) };
    assert_eq!((sent.wr_id, sent.status), (3, WcStatus::Success));
    assert_eq!(sent.byte_len as usize, len);
    let received = &p.ends[1].wcs;
    if !op.needs_recv() {
        assert!(received.is_empty());
        return;
    }
    let [got] = received[..] else { panic!("{received:?}") };
    let (opcode, imm) = match op {
        Op::Send => (WcOpcode::Recv, None),
        Op::SendImm => (WcOpcode::Recv, Some(0x1234_5678)),
        _ => (WcOpcode::RecvRdmaWithImm, Some(0x9abc_def0)),
    };
    assert_eq!((got.wr_id, got.status, got.opcode, got.imm), (7, WcStatus::Success, opcode, imm));
    assert_eq!(got.byte_len as usize, len);
}

#[test]
fn handle_packet__every_operation_at_the_boundaries_of_every_mtu() {
    for mtu in Mtu::ALL {
        let m = mtu.bytes() as usize;
        for len in [0, 1, 3, m - 1, m, m + 1, 2 * m, 3 * m + 5] {
            for op in Op::ALL {
                check_one(op, mtu, len, WireMode::Rc);
                check_one(op, mtu, len, WireMode::Sr);
            }
        }
    }
}

/// Addresses of both sides: IPv4, IPv6.
fn versions() -> [[std::net::IpAddr; 2]; 2] {
    [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]].map(|ips| ips.map(|ip| ip.parse().unwrap()))
}

#[test]
fn handle_packet__ipv6_moves_the_same_bytes() {
    for mode in MODES {
        let [_, ips] = versions();
        let mut p = Pair::with(&PairConfig { ips, mode, ..PairConfig::default() });
        let want = p.ends[0].fill(0, 5000, 1);
        p.post(0, 1, Op::Write, 0, 5000);
        assert!(p.run(SECOND));
        assert_eq!(p.ends[1].bytes(0, 5000), want);
    }
}

#[test]
fn handle_packet__the_psn_wraps_within_a_mixture() {
    for mode in MODES {
        // The 32-bit PSN of SR starts with these 24 bits on top: 256 packets before the wrap.
        let psns = match mode {
            WireMode::Rc => [0xff_fffd, 0xff_fffe],
            WireMode::Sr => [0xff_ffff; 2],
        };
        let messages = if mode == WireMode::Rc { 5 } else { 40 };
        let mut p = Pair::with(&PairConfig { psns, mode, ..PairConfig::default() });
        let want = p.ends[0].fill(0, 4000, 5);
        for i in 0..messages {
            p.post(0, i, Op::Write, 0, 4000);
            p.post(0, 100 + i, Op::Read, 8000, 4000);
            if i % 20 == 19 {
                assert!(p.run(SECOND));
            }
        }
        assert!(p.run(SECOND));
        assert_eq!(p.ends[1].bytes(0, 4000), want);
        assert_eq!(p.ends[0].wcs.len() as u64, 2 * messages);
        assert!(p.ends[0].wcs.iter().all(|w| w.status == WcStatus::Success));
        assert!(p.log.iter().any(|(_, _, psn)| *psn < 100), "the PSN did not wrap");
    }
}

#[test]
fn write__elided_payload_changes_only_memory() {
    let run = |elide_payload: bool, mode: WireMode| {
        let config = Config { elide_payload, ..Config::default() };
        let mut p = Pair::with(&PairConfig { config, mode, ..PairConfig::default() });
        // Occasional losses of every type of packet, the same in both runs.
        let mut n = 0;
        p.filter = Box::new(move |_, _| {
            n += 1;
            if n % 13 == 0 { Fate::Drop } else { Fate::Pass }
        });
        p.ends[0].fill(0, 9000, 1);
        for (i, op) in Op::ALL.into_iter().enumerate() {
            p.post_recv(1, 7, 20_000, 9000);
            p.post(0, i as u64, op, 0, 1 + i * 2000);
        }
        assert!(p.run(SECOND));
        let counters = p.ends[1].ep.counters().clone();
        let wcs = p.ends.iter().map(|end| end.wcs.clone()).collect::<Vec<_>>();
        let wrote = p.ends[1].bytes(0, 9000).iter().any(|b| *b != 0);
        (p.now, p.log, wcs, counters.rx_payload_bytes, wrote)
    };
    for mode in MODES {
        let (whole, elided) = (run(false, mode), run(true, mode));
        assert_eq!((whole.4, elided.4), (true, false));
        assert_eq!((whole.0, whole.1, whole.2, whole.3), (elided.0, elided.1, elided.2, elided.3));
    }
}

#[test]
fn post_send__gathers_and_scatters_across_elements() {
    for mode in MODES {
        let mut p = pair_in(mode);
        let bytes = p.ends[0].fill(0, 4000, 9);
        let cut = |p: &Pair, side: usize, parts: &[(usize, usize)]| -> Vec<Sge> {
            parts.iter().map(|(at, len)| p.ends[side].sge(*at, *len)).collect()
        };
        let from = cut(&p, 0, &[(3000, 700), (0, 0), (100, 1), (500, 299)]);
        let to = cut(&p, 1, &[(10, 1), (2000, 500), (1000, 499), (0, 10)]);
        let (q0, q1) = (p.ends[0].qpns[0], p.ends[1].qpns[0]);
        p.ends[1].ep.post_recv(q1, &RecvRequest { wr_id: 1, sges: &to }).unwrap();
        p.ends[0].ep.post_send(q0, &WorkRequest::new(2, WrOp::Send, &from)).unwrap();
        assert!(p.run(SECOND));
        let sent = [&bytes[3000..3700], &bytes[100..101], &bytes[500..799]].concat();
        let got = [p.ends[1].bytes(10, 1), p.ends[1].bytes(2000, 500), p.ends[1].bytes(1000, 499)];
        assert_eq!(got.concat(), sent);
    }
}

#[test]
fn poll_transmit__pipelines_up_to_max_rd_atomic() {
    let c = PairConfig {
        rts: |a| a.max_rd_atomic = Some(3),
        rtr: |a| a.max_dest_rd_atomic = Some(3),
        ..PairConfig::default()
    };
    let mut p = Pair::with(&c);
    for i in 0..8 {
        p.post(0, i, Op::Read, 0, 100);
    }
    p.step(0);
    assert_eq!(p.log.iter().filter(|(_, name, _)| name.contains("read")).count(), 3);
    assert!(p.run(SECOND));
    assert_eq!(p.ends[0].wcs.len(), 8);
    assert_eq!(p.ends[1].ep.counters().tx_fatal_naks, 0);
}

#[test]
fn poll_transmit__a_long_read_is_requested_in_chunks_within_the_window() {
    let mut p = Pair::new();
    let want = p.ends[1].fill(0, 60_000, 3);
    p.post(0, 1, Op::Read, 0, 60_000);
    p.step(0);
    let requests = p.log.len();
    assert_eq!(requests, 6, "192 packets of window in chunks of 32");
    assert!(p.run(SECOND));
    assert_eq!(p.ends[0].bytes(0, 60_000), want);
    let requests = p.log.iter().filter(|(side, ..)| *side == 0).count();
    assert_eq!(requests, 60_000usize.div_ceil(256).div_ceil(32));
}

#[test]
fn poll_transmit__a_fence_waits_for_reads_before_it() {
    let mut p = Pair::new();
    p.post(0, 1, Op::Read, 0, 100);
    let (sge, remote) = (p.ends[0].sge(0, 100), p.ends[1].remote(0));
    let write = WorkRequest::new(2, WrOp::Write { remote }, std::slice::from_ref(&sge));
    let qpn = p.ends[0].qpns[0];
    p.ends[0].ep.post_send(qpn, &WorkRequest { fence: true, ..write }).unwrap();
    p.step(0);
    assert_eq!(p.log.len(), 1, "only the READ is sent");
    assert!(p.run(SECOND));
    assert_eq!(p.ends[0].wcs.len(), 2);
}

#[test]
fn poll_transmit__ack_req_every_16_packets_and_at_the_end() {
    let mut p = Pair::new();
    p.post(0, 1, Op::Write, 0, 256 * 40);
    assert!(p.run(SECOND));
    let acks = p.log.iter().filter(|(side, ..)| *side == 1).count();
    // All 40 fit the window and arrive in one burst, so their ACKs coalesce into one.
    assert_eq!(acks, 1);
    assert_eq!(p.ends[0].wcs.len(), 1);
}

#[test]
fn poll_transmit__unsignaled_requests_complete_silently() {
    for mode in MODES {
        let mut p = pair_in(mode);
        let (sge, remote) = (p.ends[0].sge(0, 10), p.ends[1].remote(0));
        let qpn = p.ends[0].qpns[0];
        for (wr_id, signaled) in [(1, false), (2, true), (3, false)] {
            let wr = WorkRequest::new(wr_id, WrOp::Write { remote }, std::slice::from_ref(&sge));
            p.ends[0].ep.post_send(qpn, &WorkRequest { signaled, ..wr }).unwrap();
        }
        assert!(p.run(SECOND));
        assert_eq!(statuses(&p.ends[0].wcs), [(2, WcStatus::Success)]);
    }
}

/// Requests of all operations, in flight at once.
fn post_mixture(p: &mut Pair) {
    for i in 0..4u64 {
        p.post_recv(1, 100 + i, 30_000, 2000);
    }
    let ops = [Op::Write, Op::Send, Op::Read, Op::WriteImm, Op::Read, Op::SendImm, Op::Write];
    for (i, op) in (0u64..).zip(ops) {
        let at = 1000 * usize::try_from(i).unwrap();
        p.post(0, i, op, at, 900);
    }
}

fn check_mixture(p: &Pair, reads: &[Vec<u8>], writes: &[(usize, Vec<u8>)], what: &str) {
    let want: Vec<(u64, WcStatus)> = (0..7).map(|i| (i, WcStatus::Success)).collect();
    assert_eq!(statuses(&p.ends[0].wcs), want, "{what}");
    let want: Vec<(u64, WcStatus)> = (100..103).map(|i| (i, WcStatus::Success)).collect();
    assert_eq!(statuses(&p.ends[1].wcs), want, "{what}");
    assert_eq!(p.ends[0].bytes(2000, 900), reads[0], "{what}");
    assert_eq!(p.ends[0].bytes(4000, 900), reads[1], "{what}");
    for (at, bytes) in writes {
        assert_eq!(p.ends[1].bytes(*at, 900), *bytes, "{what}");
    }
}

fn mixture(
    mode: WireMode,
    filter: impl FnMut(usize, &spanwire_wire::Packet<'_>) -> Fate + 'static,
    what: &str,
) {
    let what = &format!("{mode:?}, {what}");
    let mut p = pair_in(mode);
    let writes: Vec<(usize, Vec<u8>)> =
        [0, 3000, 6000].map(|at| (at, p.ends[0].fill(at, 900, at as u64))).into();
    p.ends[0].fill(1000, 900, 77);
    let reads = [2000, 4000].map(|at| p.ends[1].fill(at, 900, 50 + at as u64));
    p.filter = Box::new(filter);
    post_mixture(&mut p);
    assert!(p.run(SECOND * 20), "{what}: does not end");
    check_mixture(&p, &reads, &writes, what);
}

#[test]
fn recovery__any_single_packet_may_be_lost() {
    for mode in MODES {
        for lost in 0..60 {
            let mut n = 0;
            let filter = move |_: usize, _: &spanwire_wire::Packet<'_>| {
                n += 1;
                if n == lost { Fate::Drop } else { Fate::Pass }
            };
            mixture(mode, filter, &format!("packet {lost} lost"));
        }
    }
}

#[test]
fn recovery__any_single_packet_may_be_duplicated_or_delayed() {
    for mode in MODES {
        for odd in 0..60 {
            for late in [None, Some(LATENCY / 5), Some(LATENCY * 3)] {
                let mut n = 0;
                let filter = move |_: usize, _: &spanwire_wire::Packet<'_>| {
                    n += 1;
                    match late {
                        _ if n != odd => Fate::Pass,
                        None => Fate::Twice,
                        Some(by) => Fate::Late(by),
                    }
                };
                mixture(mode, filter, &format!("packet {odd} late by {late:?}"));
            }
        }
    }
}

#[test]
fn recovery__random_loss_duplication_and_reordering() {
    for mode in MODES {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let filter = move |_: usize, _: &spanwire_wire::Packet<'_>| match rng.below(100) {
                0..10 => Fate::Drop,
                10..15 => Fate::Twice,
                15..25 => Fate::Late(Dur::from_us(rng.below(30))),
                _ => Fate::Pass,
            };
            mixture(mode, filter, &format!("seed {seed}"));
        }
    }
}

#[test]
fn recovery__goes_back_to_the_middle_of_a_message() {
    let mut p = Pair::new();
    let want = p.ends[0].fill(0, 2560, 8);
    let mut dropped = false;
    p.filter = Box::new(move |_, packet| {
        let hit = packet.bth.psn == Psn::new(1004) && !dropped;
        dropped |= hit;
        if hit { Fate::Drop } else { Fate::Pass }
    });
    p.post(0, 1, Op::Write, 0, 2560);
    assert!(p.run(SECOND));
    assert_eq!(p.ends[1].bytes(0, 2560), want);
    let c = p.ends[0].ep.counters();
    assert_eq!((c.packet_seq_err, c.local_ack_timeout_err), (1, 0));
    assert_eq!(c.retransmitted_packets, 6, "from the lost one on, not from the first");
    assert_eq!(p.ends[1].ep.counters().out_of_sequence, 1, "one NAK for the gap");
    let c = p.ends[1].ep.counters();
    assert_eq!(c.dropped(DropReason::AfterSequenceGap), 4);
}

#[test]
fn recovery__a_lost_response_is_requested_from_there_on_only() {
    let mut p = Pair::new();
    let want = p.ends[1].fill(0, 2560, 8);
    let mut dropped = false;
    p.filter = Box::new(move |side, packet| {
        let hit = side == 1 && packet.bth.psn == Psn::new(1006) && !dropped;
        dropped |= hit;
        if hit { Fate::Drop } else { Fate::Pass }
    });
    p.post(0, 1, Op::Read, 0, 2560);
    assert!(p.run(SECOND));
    assert_eq!(p.ends[0].bytes(0, 2560), want);
    let responses = p.log.iter().filter(|(side, ..)| *side == 1).count();
    assert_eq!(responses, 10 + 4, "ten, and four retransmissions from the lost one on");
    assert_eq!(p.ends[0].ep.counters().local_ack_timeout_err, 0);
}

#[test]
fn recovery__an_unresponsive_peer_ends_in_retry_exceeded_and_flushes_the_rest() {
    let mut p = Pair::with(&PairConfig {
        rts: |a| (a.timeout, a.retry_cnt) = (Some(12), Some(3)),
        ..PairConfig::default()
    });
    p.filter = Box::new(|_, _| Fate::Drop);
    p.post_recv(0, 50, 0, 10);
    for i in 0..3 {
        p.post(0, i, Op::Write, 0, 300);
    }
    assert!(p.run(SECOND));
    let want = [
        (0, WcStatus::RetryExcErr),
        (1, WcStatus::WrFlushErr),
        (2, WcStatus::WrFlushErr),
        (50, WcStatus::WrFlushErr),
    ];
    assert_eq!(statuses(&p.ends[0].wcs), want);
    assert_eq!(p.ends[0].ep.query_qp(p.ends[0].qpns[0]).unwrap().state, QpState::Err);
    let firsts = p.log.iter().filter(|(_, _, psn)| *psn == 1000).count();
    assert_eq!(firsts, 4, "retry_cnt 3 is four transmissions (capture 79)");
    // 16.8 ms * (1 + 2 + 4 + 4)
    assert_eq!(p.now.since(spanwire_base::Time::ZERO).as_ms(), 184);
}

#[test]
fn rnr__is_retried_until_a_receive_is_posted() {
    let mut p = Pair::new();
    let want = p.ends[0].fill(0, 600, 4);
    p.post(0, 1, Op::Send, 0, 600);
    assert!(!p.run(Dur::from_ms(10)), "retries continue");
    assert!(p.ends[0].wcs.is_empty());
    assert!(p.ends[0].ep.counters().rnr_nak_retry_err >= 3);
    p.post_recv(1, 2, 0, 600);
    assert!(p.run(SECOND));
    assert_eq!(p.ends[1].bytes(0, 600), want);
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
}

#[test]
fn rnr__fails_after_rnr_retry_attempts() {
    let mut p = Pair::with(&PairConfig { rts: |a| a.rnr_retry = Some(2), ..PairConfig::default() });
    p.post(0, 1, Op::Send, 0, 64);
    p.post(0, 2, Op::Send, 0, 64);
    assert!(p.run(SECOND));
    let want = [(1, WcStatus::RnrRetryExcErr), (2, WcStatus::WrFlushErr)];
    assert_eq!(statuses(&p.ends[0].wcs), want);
    let firsts = p.log.iter().filter(|(side, _, psn)| (*side, *psn) == (0, 1000)).count();
    assert_eq!(firsts, 3, "rnr_retry 2 is three sends (capture 51)");
}

fn refused(wr: WrOp, len: usize, mode: WireMode) -> (Vec<(u64, WcStatus)>, Pair) {
    let mut p = pair_in(mode);
    let (sge, qpn) = (p.ends[0].sge(0, len), p.ends[0].qpns[0]);
    p.ends[0].ep.post_send(qpn, &WorkRequest::new(1, wr, &[sge])).unwrap();
    p.post(0, 2, Op::Write, 0, 10);
    assert!(p.run(SECOND));
    let state = |p: &Pair, i: usize| p.ends[i].ep.query_qp(p.ends[i].qpns[0]).unwrap().state;
    assert_eq!((state(&p, 0), state(&p, 1)), (QpState::Err, QpState::Err));
    (statuses(&p.ends[0].wcs), p)
}

#[test]
fn refused__a_bad_key_address_or_bounds_changes_no_memory() {
    for mode in MODES {
        let good = Pair::new().ends[1].remote(0);
        let end = good.va + (1 << 16);
        let bad = [
            RemoteAddr { rkey: good.rkey ^ 0x8000_0000, ..good },
            RemoteAddr { va: good.va - 1, ..good },
            RemoteAddr { va: end - 599, ..good },
            RemoteAddr { va: end, ..good },
            RemoteAddr { va: u64::MAX - 3, ..good },
        ];
        let want = [(1, WcStatus::RemAccessErr), (2, WcStatus::WrFlushErr)];
        for remote in bad {
            for op in [WrOp::Write { remote }, WrOp::Read { remote }] {
                let (got, p) = refused(op, 600, mode);
                assert_eq!(got, want, "{op:?}");
                assert_eq!(p.ends[1].bytes(0, 1 << 16), vec![0; 1 << 16]);
            }
        }
    }
}

#[test]
fn refused__the_key_of_zero_length_is_not_checked() {
    for mode in MODES {
        let mut p = pair_in(mode);
        let remote = RemoteAddr { va: 1, rkey: 2 };
        let qpn = p.ends[0].qpns[0];
        for (wr_id, op) in [(1, WrOp::Write { remote }), (2, WrOp::Read { remote })] {
            p.ends[0].ep.post_send(qpn, &WorkRequest::new(wr_id, op, &[])).unwrap();
        }
        assert!(p.run(SECOND));
        assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    }
}

#[test]
fn refused__access_not_granted_by_queue_pair_or_region() {
    for mode in MODES {
        let mut p = pair_in(mode);
        let pd = p.ends[1].pd;
        let region = p.ends[1].region.clone();
        let read_only = p.ends[1].ep.reg_mr(pd, region, Access::REMOTE_READ, None).unwrap();
        let remote = RemoteAddr { va: read_only.addr, rkey: read_only.rkey.unwrap() };
        let (sge, qpn) = (p.ends[0].sge(0, 8), p.ends[0].qpns[0]);
        p.ends[0].ep.post_send(qpn, &WorkRequest::new(1, WrOp::Read { remote }, &[sge])).unwrap();
        p.ends[0].ep.post_send(qpn, &WorkRequest::new(2, WrOp::Write { remote }, &[sge])).unwrap();
        assert!(p.run(SECOND));
        assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success), (2, WcStatus::RemAccessErr)]);

        let mut p = pair_in(mode);
        let q1 = p.ends[1].qpns[0];
        let attr = crate::QpAttr { access: Some(Access::LOCAL_WRITE), ..Default::default() };
        p.ends[1].ep.modify_qp(q1, &attr).unwrap();
        p.post(0, 1, Op::Write, 0, 10);
        assert!(p.run(SECOND));
        assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::RemInvReqErr)]);
    }
}

#[test]
fn refused__a_receive_that_is_too_short_fails_both_sides() {
    for mode in MODES {
        let mut p = pair_in(mode);
        p.post_recv(1, 9, 0, 599);
        p.post_recv(1, 10, 0, 599);
        p.post(0, 1, Op::Send, 0, 600);
        assert!(p.run(SECOND));
        assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::RemInvReqErr)]);
        assert_eq!(
            statuses(&p.ends[1].wcs),
            [(9, WcStatus::LocLenErr), (10, WcStatus::WrFlushErr)]
        );
    }
}

#[test]
fn refused__a_region_deregistered_during_a_message() {
    for mode in MODES {
        for op in [Op::Write, Op::Read] {
            let mut p = pair_in(mode);
            p.post(0, 1, op, 0, 60_000);
            p.step(0);
            let lkey = p.ends[1].mr.lkey;
            p.ends[1].ep.dereg_mr(lkey).unwrap();
            assert!(p.run(SECOND));
            assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::RemAccessErr)], "{op:?}");
        }
        for op in [Op::Write, Op::Read] {
            let mut p = pair_in(mode);
            p.post(0, 1, op, 0, 60_000);
            p.step(0);
            let lkey = p.ends[0].mr.lkey;
            p.ends[0].ep.dereg_mr(lkey).unwrap();
            assert!(p.run(SECOND * 5), "the responder of SR fails without ACKs");
            assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::LocProtErr)], "{op:?}");
        }
    }
}

/// A frame from side 1's address to side 0's queue pair: the strongest forger.
fn forge(p: &Pair, opcode: Opcode, psn: u32, syndrome: Syndrome, payload: &[u8]) -> Vec<u8> {
    let (peer, us) = ([10, 0, 0, 2].into(), [10, 0, 0, 1].into());
    let aeth = opcode.props().aeth.then_some(AethRepr { syndrome, msn: 1 });
    let headers = Headers {
        eth: EthernetRepr {
            dst: MacAddr::new([2, 0, 0, 0, 0, 0]),
            src: MacAddr::new([2, 0, 0, 0, 0, 1]),
            ethertype: EthernetRepr::IPV4,
        },
        ip: IpRepr::new(peer, us).unwrap(),
        udp: UdpRepr::new(0xc000),
        bth: BthRepr::new(opcode, p.ends[0].qpns[0], Psn::new(psn)),
        ext: ExtHeaders { aeth, ..ExtHeaders::default() },
    };
    let mut frame = vec![0; headers.frame_len(payload.len())];
    let at = headers.emit(&mut frame, payload.len()).unwrap();
    frame[at].copy_from_slice(payload);
    let len = frame.len();
    spanwire_wire::seal(&mut frame, len);
    frame
}

#[test]
fn forged__responses_to_unsent_requests_change_nothing() {
    let mut p = Pair::new();
    p.post(0, 1, Op::Write, 0, 600);
    p.step(0); // 1000, 1001 and 1002 are outstanding
    let ack = Syndrome::Ack { credits: 31 };
    let nak = Syndrome::Nak(NakCode::RemoteAccess);
    let beyond = DropReason::ResponseBeyondSent;
    let stale = DropReason::StaleResponse;
    let cases = [
        (Opcode::RcAck, 1003, ack, beyond),
        (Opcode::RcAck, 1003, nak, beyond),
        (Opcode::RcAck, 999, ack, stale),
        (Opcode::RcAck, 999, nak, stale),
        (Opcode::RcAck, 1000 + (1 << 22), ack, beyond),
        (Opcode::RcReadResponseOnly, 1001, ack, DropReason::ResponseToNothing),
        (Opcode::RcReadResponseMiddle, 1003, ack, beyond),
        (Opcode::RcAck, 1001, Syndrome::Reserved(0x40), DropReason::BadSyndrome),
    ];
    for (opcode, psn, syndrome, reason) in cases {
        let before = p.ends[0].ep.counters().dropped(reason);
        let payload = if opcode == Opcode::RcAck { &[][..] } else { &[1; 256] };
        let frame = forge(&p, opcode, psn, syndrome, payload);
        p.inject(0, &frame);
        let after = p.ends[0].ep.counters().dropped(reason);
        assert_eq!(after, before + 1, "{opcode:?} {psn} {syndrome:?}");
    }
    assert!(p.ends[0].wcs.is_empty());
    assert!(p.run(SECOND));
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
    assert_eq!(p.ends[0].ep.counters().retransmitted_packets, 0);
}

#[test]
fn forged__a_response_of_a_wrong_length_is_not_placed() {
    let mut p = Pair::new();
    p.post(0, 1, Op::Read, 0, 600);
    p.step(0);
    for len in [0, 1, 255, 257, 600] {
        let ack = Syndrome::Ack { credits: 31 };
        let frame = forge(&p, Opcode::RcReadResponseFirst, 1000, ack, &vec![7; len]);
        p.inject(0, &frame);
    }
    assert_eq!(p.ends[0].ep.counters().dropped(DropReason::BadResponseLength), 5);
    assert_eq!(p.ends[0].bytes(0, 600), vec![0; 600]);
    assert!(p.run(SECOND));
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
}

#[test]
fn post_send__reports_errors_at_once() {
    for mode in MODES {
        let mut p = pair_in(mode);
        let (qpn, sge) = (p.ends[0].qpns[0], p.ends[0].sge(0, 10));
        let post = |p: &mut Pair, qpn, sges: &[Sge]| {
            p.ends[0].ep.post_send(qpn, &WorkRequest::new(1, WrOp::Send, sges))
        };
        assert_eq!(post(&mut p, Qpn::new(0x12_3456), &[sge]), Err(PostError::UnknownQp));
        assert_eq!(post(&mut p, qpn, &[sge; 5]), Err(PostError::TooManySges));
        let long = Sge { len: 1 << 30, ..sge };
        assert_eq!(post(&mut p, qpn, &[long, sge]), Err(PostError::TooLong));
        assert_eq!(post(&mut p, qpn, &[long; 4]), Err(PostError::TooLong), "4 GiB");
        for _ in 0..64 {
            assert_eq!(post(&mut p, qpn, &[sge]), Ok(()));
        }
        assert_eq!(post(&mut p, qpn, &[sge]), Err(PostError::QueueFull));
    }
}

#[test]
fn post_send__in_the_error_state_is_flushed() {
    for mode in MODES {
        let mut p = pair_in(mode);
        let qpn = p.ends[0].qpns[0];
        let to_err = crate::QpAttr { state: Some(QpState::Err), ..Default::default() };
        p.post(0, 1, Op::Write, 0, 10);
        p.ends[0].ep.modify_qp(qpn, &to_err).unwrap();
        p.post(0, 2, Op::Write, 0, 10);
        p.post_recv(0, 3, 0, 10);
        p.step(0);
        let want = [1, 2, 3].map(|i| (i, WcStatus::WrFlushErr));
        assert_eq!(statuses(&p.ends[0].wcs), want);
        assert!(p.log.is_empty(), "nothing is sent");
    }
}

#[test]
fn complete__an_overrun_queue_fails_the_queue_pair() {
    for mode in MODES {
        let mut p = Pair::with(&PairConfig { cqe: 2, mode, ..PairConfig::default() });
        for i in 0..8 {
            p.post(0, i, Op::Write, 0, 10);
        }
        // Both sides run without polling of completions.
        let now = p.now;
        let mut frame = vec![0; 8192];
        let mut carry = |p: &mut Pair, from: usize| {
            use spanwire_base::{Node as _, PortId, RxMeta};
            while let Some(m) = p.ends[from].ep.poll_transmit(now, PortId::HOST, &mut frame) {
                let meta = RxMeta::whole(now);
                p.ends[1 - from].ep.handle_packet(now, PortId::HOST, &frame[..m.len], &meta);
            }
        };
        carry(&mut p, 0);
        carry(&mut p, 1);
        let ep = &mut p.ends[0].ep;
        assert_eq!(ep.query_qp(p.ends[0].qpns[0]).unwrap().state, QpState::Err);
        let cq = p.ends[0].cq;
        assert!(ep.poll_cq(cq).unwrap().is_some() && ep.poll_cq(cq).unwrap().is_some());
        assert_eq!(ep.poll_cq(cq), Err(crate::CqError::Overrun));
        assert!(ep.counters().cq_overrun > 0);
    }
}
