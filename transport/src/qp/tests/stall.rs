//! Regressions: states in which a queue pair stalled for ever, or until an unnecessary timeout.

use super::{SECOND, forge, statuses};
use crate::testing::{Fate, Op, Pair, PairConfig};
use crate::{
    Config, CongestionControl, DropReason, ErasureCoding, Mtu, Preset, QpAttr, QpState, Sge,
    WcStatus, WorkRequest, WrOp,
};
use spanwire_base::{Dur, Node, PortId, RxMeta};
use spanwire_wire::{BlockReport, BlockReportKind, Opcode, SrAckRepr, Syndrome};

#[test]
fn send_read_response__a_region_deregistered_before_the_response() {
    let mut p = Pair::new();
    p.post(0, 1, Op::Read, 0, 5000);
    let mut frame = vec![0; 8192];
    let (now, host) = (p.now, PortId::HOST);
    let sent = p.ends[0].ep.poll_transmit(now, host, &mut frame).unwrap();
    p.inject(1, &frame[..sent.len]);
    let lkey = p.ends[1].mr.lkey;
    p.ends[1].ep.dereg_mr(lkey).unwrap();
    p.step(1);
    assert_eq!(p.log.len(), 1, "one NAK, without a retransmission");
    assert!(p.run(SECOND));
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::RemAccessErr)]);
    assert_eq!(p.ends[0].ep.counters().local_ack_timeout_err, 0);
}

#[test]
fn poll_transmit__a_probe_has_ack_req() {
    let mut p = Pair::new();
    p.post(0, 1, Op::Write, 0, 256 * 40);
    p.filter = Box::new(|_, _| Fate::Drop);
    p.step(0);
    p.filter = Box::new(|_, _| Fate::Pass);
    assert!(p.run(SECOND));
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
    assert_eq!(p.ends[0].ep.counters().local_ack_timeout_err, 1);
}

#[test]
fn poll_transmit__packets_without_ack_req_do_not_fill_the_window() {
    // Bursts of 3, AckReq every 16: many queue pairs could fill the window without AckReq.
    let mut p = Pair::with(&PairConfig {
        qps: 80,
        config: Config { turn_bytes: 1024, ..Config::default() },
        ..PairConfig::default()
    });
    let (sge, remote) = (p.ends[0].sge(0, 20_000), p.ends[1].remote(0));
    for qpn in p.ends[0].qpns.clone() {
        let wr = WorkRequest::new(1, WrOp::Write { remote }, std::slice::from_ref(&sge));
        p.ends[0].ep.post_send(qpn, &wr).unwrap();
    }
    assert!(p.run(SECOND));
    assert_eq!(p.ends[0].wcs.len(), 80);
    assert_eq!(p.ends[0].ep.counters().local_ack_timeout_err, 0);
}

#[test]
fn handle_timeout__a_nak_that_overruns_the_completion_queue_leaves_no_timer() {
    let mut p = Pair::with(&PairConfig { cqe: 1, ..PairConfig::default() });
    for i in 0..3 {
        p.post(0, i, Op::Write, 0, 10);
    }
    p.post(0, 3, Op::Send, 0, 10);
    let mut frame = vec![0; 8192];
    let (now, host) = (p.now, PortId::HOST);
    while p.ends[0].ep.poll_transmit(now, host, &mut frame).is_some() {}
    let rnr = Syndrome::RnrNak { timer: 12 };
    let frame = forge(&p, Opcode::RcAck, 1003, rnr, &[]);
    p.inject(0, &frame);
    let qpn = p.ends[0].qpns[0];
    assert_eq!(p.ends[0].ep.query_qp(qpn).unwrap().state, QpState::Err);
    p.ends[0].ep.handle_timeout(now + SECOND * 100);
    assert_eq!(p.ends[0].ep.poll_timeout(), None);
}

#[test]
fn on_ack__a_repeated_rnr_nak_after_the_wait_costs_no_retry() {
    let mut p = Pair::with(&PairConfig { rts: |a| a.rnr_retry = Some(1), ..PairConfig::default() });
    p.post(0, 1, Op::Send, 0, 10);
    p.step(0);
    let rnr = Syndrome::RnrNak { timer: 1 };
    let frame = forge(&p, Opcode::RcAck, 1000, rnr, &[]);
    p.inject(0, &frame);
    p.now += Dur::from_us(10);
    let now = p.now;
    p.ends[0].ep.handle_timeout(now);
    p.inject(0, &frame);
    let c = p.ends[0].ep.counters();
    assert_eq!(c.dropped(DropReason::RepeatedNak), 1);
    assert_eq!(c.rnr_nak_retry_err, 1);
    assert!(p.ends[0].wcs.is_empty());
}

#[test]
fn on_read_response__repeated_reads_during_later_responses_need_no_timer() {
    let mut p = Pair::new();
    let want = p.ends[1].fill(0, 60_000, 1);
    let sges: Vec<Sge> = (0..3).map(|i| p.ends[0].sge(20_000 * i, 8000)).collect();
    for (i, sge) in (0..).zip(&sges) {
        let remote = p.ends[1].remote(20_000 * i);
        let op = WrOp::Read { remote };
        let wr = WorkRequest::new(i as u64, op, std::slice::from_ref(sge));
        let qpn = p.ends[0].qpns[0];
        p.ends[0].ep.post_send(qpn, &wr).unwrap();
    }
    let (now, host, meta) = (p.now, PortId::HOST, RxMeta::whole(p.now));
    let mut frame = vec![0; 8192];
    let carry = |p: &mut Pair, frame: &mut [u8], from: usize, most: usize, lost: usize| {
        for i in 0..most {
            let Some(m) = p.ends[from].ep.poll_transmit(now, host, frame) else {
                return i;
            };
            if i != lost {
                let to = &mut p.ends[1 - from].ep;
                to.handle_packet(now, host, &frame[..m.len], &meta);
            }
        }
        most
    };
    assert_eq!(carry(&mut p, &mut frame, 0, 99, 99), 3);
    // The first response loses a packet; the second is in progress when its request is repeated.
    assert_eq!(carry(&mut p, &mut frame, 1, 40, 5), 40);
    assert_eq!(carry(&mut p, &mut frame, 0, 99, 99), 3, "all three are repeated");
    assert!(p.run(SECOND));
    assert_eq!(p.ends[0].wcs.len(), 3);
    for i in 0..3 {
        let at = 20_000 * i;
        assert_eq!(p.ends[0].bytes(at, 8000), want[at..at + 8000]);
    }
    assert_eq!(p.ends[0].ep.counters().local_ack_timeout_err, 0);
}

/// A flow with a full window and nothing left to send does not wait for the pacer. If the timers
/// treated it as paced, there would be neither a probe nor a timeout, and no request would
/// complete.
#[test]
fn handle_timeout__a_paced_flow_with_a_full_window_does_not_wait_for_the_pacer() {
    let mut algorithm = spanwire_cc::Algorithm::named("fixed").unwrap();
    algorithm.set("window_pkts", "2").unwrap();
    algorithm.set("rate_mbps", "1").unwrap();
    let congestion = Some(CongestionControl {
        algorithm: Some(algorithm),
        base_rtt: None,
        preset: Preset::Paper,
        ..CongestionControl::NONE
    });
    let mut p = Pair::with(&PairConfig { congestion, ..PairConfig::sr() });
    p.post(0, 1, Op::Write, 0, 256);
    p.step(0);
    p.now += crate::testing::LATENCY;
    p.step(1);
    p.now += crate::testing::LATENCY;
    let old = p.take_inbox(0);
    assert_eq!(old.len(), 1, "the ACK of the first");
    p.inject(0, &old[0]);
    p.filter = Box::new(|_, _| Fate::Drop);
    p.post(0, 2, Op::Write, 0, 512);
    while p.ends[0].ep.counters().local_ack_timeout_err == 0 {
        p.run(Dur::from_us(10));
    }
    // The retransmission waits for the pacer. A duplicate of an old ACK makes the timeout look
    // spurious, which fills the window again.
    p.inject(0, &old[0]);
    assert_eq!(p.ends[0].ep.counters().spurious_timeouts, 1);
    p.filter = Box::new(|_, _| Fate::Pass);
    p.run(SECOND * 100);
    let want = [(1, WcStatus::Success), (2, WcStatus::Success)];
    assert_eq!(statuses(&p.ends[0].wcs), want);
}

/// Both ends READ from each other, paced at one packet in several milliseconds, which is longer
/// than a retransmission timeout. If probes used every slot of the pacer, no response would be
/// sent.
#[test]
fn handle_timeout__probes_do_not_use_every_slot_of_the_pacer() {
    for (mtu, bytes) in [(Mtu::B256, 5_000), (Mtu::B1024, 10_000), (Mtu::B4096, 20_000)] {
        let mut algorithm = spanwire_cc::Algorithm::named("fixed").unwrap();
        algorithm.set("window_pkts", "4").unwrap();
        algorithm.set("rate_mbps", "1").unwrap();
        let congestion = Some(CongestionControl {
            algorithm: Some(algorithm),
            base_rtt: None,
            preset: Preset::Paper,
            ..CongestionControl::NONE
        });
        let rts: fn(&mut QpAttr) = |a| (a.timeout, a.retry_cnt) = (Some(4), Some(7));
        let mut p = Pair::with(&PairConfig { congestion, mtu, rts, ..PairConfig::sr() });
        for side in [0, 1] {
            for i in 0..4 {
                p.post(side, i, Op::Read, 0, bytes);
            }
        }
        // Both requests are lost at first, so that both ends probe.
        let mut lost = 0;
        p.filter = Box::new(move |_, _| {
            lost += 1;
            if lost <= 12 { Fate::Drop } else { Fate::Pass }
        });
        p.run(SECOND * 20);
        for side in [0, 1] {
            let want: Vec<_> = (0..4).map(|i| (i, WcStatus::Success)).collect();
            assert_eq!(statuses(&p.ends[side].wcs), want, "{mtu:?}, {bytes} bytes, side {side}");
        }
    }
}

/// A sender without receive credit whose lost data are left to parity that the receiver could not
/// keep. All block NACKs are lost, and each credit probe is acknowledged. The data must be
/// retransmitted all the same, because the receive requests depend on them.
#[test]
fn handle_timeout__data_left_to_parity_do_not_wait_for_a_receive_request() {
    let config = Config { block_bytes_qp: 0, ..Config::default() };
    let erasure = Some(ErasureCoding::default());
    let mut p = Pair::with(&PairConfig { config, erasure, ..PairConfig::sr() });
    let want = p.ends[0].fill(0, 1000, 8);
    let mut lost = 2;
    p.filter = Box::new(move |side, packet| match packet.bth.opcode {
        Opcode::SrAck => {
            let ack = SrAckRepr::parse(packet.bth.psn.get(), packet.payload).unwrap();
            let is_nack = |r: &BlockReport| r.kind == BlockReportKind::Nack;
            if ack.blocks.as_slice().iter().any(is_nack) { Fate::Drop } else { Fate::Pass }
        }
        Opcode::SrData if side == 0 && lost > 0 => {
            lost -= 1;
            Fate::Drop
        }
        _ => Fate::Pass,
    });
    p.post_recv(1, 70, 4096, 100);
    p.post(0, 1, Op::Write, 0, 1000);
    p.post(0, 2, Op::Send, 0, 100);
    p.post(0, 3, Op::Send, 0, 100);
    p.run(SECOND * 2);
    assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert_eq!(p.ends[1].bytes(0, 1000), want);
}
