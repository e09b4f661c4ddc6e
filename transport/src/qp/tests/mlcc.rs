//! MLCC: stacks of version 2 and credits are sent if both ends agreed on them. A round of the
//! credit loop is acknowledged at once, and no loss, reordering or forged packet stops the loop or
//! takes a rate beyond its bounds.

use super::near::paper;
use super::*;
use crate::{CongestionControl, ErasureCoding, QpAttr, SrOptions};
use spanwire_base::{Node, PortId, Time};
use spanwire_wire::{
    INT_CREDIT_HEADER_LEN, INT_FULL_LEN, IntCredit, IntFormat, IntHop, IntStack, Packet, SrAckRepr,
    SrCredit, int_push, int_restart_credit, ip_end,
};
use std::cell::RefCell;
use std::rc::Rc;

/// Round trips of 20 us between the ends and 5 us behind the switch.
const MLCC: &str = "mlcc,rtt_c_us=20,rtt_d_us=5,theta_ms=0.1,target_us=5";
const RTT_D: Dur = Dur::from_us(5);
/// The default rate of the own link: 100 Gbit/s.
const LINE_KBPS: u64 = 100_000_000;

/// SR with these options agreed on.
fn asked(near: bool, credit: bool) -> SrOptions {
    SrOptions { segment_bytes: Some(1400), near, credit, ..SrOptions::default() }
}

fn config(options: SrOptions) -> PairConfig {
    // A window in which the sender requests an ACK of each sixteenth packet only.
    let config = Config { qp_window_pkts: 512, endpoint_window_pkts: 1024, ..Config::default() };
    PairConfig { options, config, congestion: Some(paper(MLCC)), ..PairConfig::sr() }
}

fn pair() -> Pair {
    Pair::with(&config(asked(true, true)))
}

fn flow_of(p: &Pair, side: usize) -> crate::FlowInfo {
    p.ends[side].ep.query_qp(p.ends[side].qpns[0]).unwrap().flow.unwrap()
}

/// The frame leaves the switch with this credit and passes these ports.
fn release(frame: &mut Vec<u8>, credit: IntCredit, hops: &[IntHop]) {
    let len = frame.len();
    let Some(mut len) = int_restart_credit(frame, len, 0, credit) else { return };
    frame.resize(len + hops.len() * INT_FULL_LEN, 0);
    for hop in hops {
        len = int_push(frame, len, 0, hop).unwrap();
    }
    frame.truncate(len);
}

fn with_credit(frame: &[u8], credit: u32) -> Vec<u8> {
    let mut frame = frame.to_vec();
    release(&mut frame, IntCredit { credit, waiting_bytes: 0 }, &[]);
    frame
}

fn credit_of(packet: &Packet<'_>) -> Option<SrCredit> {
    let ack = SrAckRepr::parse(packet.bth.psn.get(), packet.payload).unwrap();
    assert!(ack.int.is_empty(), "records of version 2 are not echoed");
    ack.credit
}

/// The switch before side 1.
#[derive(Default)]
struct Dci {
    /// Data packets of side 0.
    data: u64,
    /// The largest credit of an ACK that has passed.
    credit: u32,
    /// The credit of each ACK of side 1, lost ones included.
    acks: Vec<Option<SrCredit>>,
}

/// Adds the switch to the path. ACKs that `fate` drops do not pass it.
fn add_switch(p: &mut Pair, mut fate: impl FnMut(usize) -> Fate + 'static) -> Rc<RefCell<Dci>> {
    let dci = Rc::new(RefCell::new(Dci::default()));
    let (passing, releasing) = (Rc::clone(&dci), Rc::clone(&dci));
    p.filter = Box::new(move |side, packet| {
        let (mut dci, fate) = (passing.borrow_mut(), fate(side));
        match packet.bth.opcode {
            Opcode::SrAck if side == 1 => {
                let credit = credit_of(packet);
                dci.acks.push(credit);
                if let Some(credit) = credit.filter(|_| !matches!(fate, Fate::Drop)) {
                    dci.credit = dci.credit.max(credit.credit);
                }
            }
            Opcode::SrData if side == 0 => dci.data += 1,
            _ => {}
        }
        fate
    });
    p.edit = Box::new(move |side, frame| {
        if side == 0 {
            let credit = IntCredit { credit: releasing.borrow().credit, waiting_bytes: 3000 };
            release(frame, credit, &[]);
        }
    });
    dci
}

#[test]
fn data__request_a_credit_and_frames_are_no_longer() {
    for erasure in [None, Some(ErasureCoding::new(4, 2))] {
        let mut p = Pair::with(&PairConfig { erasure, ..config(asked(true, true)) });
        let longest = Rc::new(RefCell::new(0));
        let seen = Rc::clone(&longest);
        p.filter = Box::new(move |_, packet| {
            let stack = IntStack::parse(packet.trailer);
            match packet.bth.opcode {
                Opcode::SrData => {
                    let stack = stack.expect("data request telemetry");
                    assert_eq!((stack.version(), stack.len(), stack.max_hops()), (2, 0, 8));
                    assert_eq!(stack.credit(), Some(IntCredit::default()));
                    let ip_bytes = 20 + 8 + 12 + packet.payload.len() + 4;
                    let bytes = ip_bytes + INT_CREDIT_HEADER_LEN + 8 * INT_FULL_LEN;
                    let longest = *seen.borrow();
                    seen.replace(bytes.max(longest));
                }
                // Switches tell flows apart by the QPN, which neither of these has.
                _ => assert!(packet.trailer.is_empty(), "{:?}", packet.bth.opcode),
            }
            Fate::Pass
        });
        for (i, op) in (0..).zip(Op::ALL) {
            p.post_recv(1, i, 0, 20_000);
            p.post(0, i, op, 0, 20_000);
        }
        assert!(p.run(SECOND));
        assert_eq!(p.ends[0].wcs.len(), 5);
        assert_eq!(flow_of(&p, 0).algorithm, "mlcc");
        // The room for a full packet with the longest header, that of a WRITE's last segment with
        // immediate.
        let (longest, room) = (*longest.borrow(), 20 + 8 + 12 + 24 + 16 + 4 + 4 + 1400 + 4);
        assert!((room - 16..=room).contains(&longest), "{erasure:?}: {longest} of {room}");
    }
}

#[test]
fn flow__without_the_agreement_is_hpcc() {
    let sr = [asked(true, false), asked(false, true), asked(false, false)]
        .map(|asked| (WireMode::Sr, asked));
    for (mode, options) in sr.into_iter().chain([(WireMode::Rc, SrOptions::default())]) {
        let options = SrOptions { segment_bytes: None, ..options };
        let mut p = Pair::with(&PairConfig { mode, ..config(options) });
        let versions = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&versions);
        p.filter = Box::new(move |_, packet| {
            match packet.bth.opcode {
                Opcode::SrAck => assert_eq!(credit_of(packet), None),
                _ => seen.borrow_mut().push(IntStack::parse(packet.trailer).map(|s| s.version())),
            }
            Fate::Pass
        });
        p.post(0, 1, Op::Write, 0, 20_000);
        assert!(p.run(SECOND));
        assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
        for side in [0, 1] {
            assert_eq!(flow_of(&p, side).algorithm, "hpcc", "{mode:?}");
        }
        let expected = if mode == WireMode::Sr { Some(1) } else { None };
        assert!(versions.borrow().iter().all(|version| *version == expected), "{versions:?}");
    }
}

/// The frames of a WRITE of side 0, none of which arrives.
fn frames(p: &mut Pair, count: usize) -> Vec<Vec<u8>> {
    let frames = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&frames);
    p.edit = Box::new(move |_, frame| seen.borrow_mut().push(frame.clone()));
    p.post(0, 1, Op::Write, 0, 40_000);
    while frames.borrow().len() < count {
        p.step(0);
        p.now += Dur::from_ns(100);
    }
    p.edit = Box::new(|_, _| {});
    frames.take()
}

/// Delivers a frame to side 1. Returns the credits of the ACKs that side 1 sends now.
fn deliver(p: &mut Pair, frame: &[u8]) -> Vec<Option<u32>> {
    p.inject(1, frame);
    acks(p)
}

/// The credits of the ACKs that side 1 sends now.
fn acks(p: &mut Pair) -> Vec<Option<u32>> {
    let (now, mut frame, mut credits) = (p.now, vec![0; 8192], Vec::new());
    while let Some(meta) = p.ends[1].ep.poll_transmit(now, PortId::HOST, &mut frame) {
        let packet = Packet::parse(&frame[..meta.len]).unwrap();
        assert_eq!(packet.bth.opcode, Opcode::SrAck);
        credits.push(credit_of(&packet).map(|credit| credit.credit));
    }
    credits
}

/// Runs the timers of side 1. Returns the credits of its ACKs, and how long it has any timer.
fn run_timers(p: &mut Pair) -> (Vec<Option<u32>>, Dur) {
    let (begin, mut credits) = (p.now, Vec::new());
    while let Some(at) = p.ends[1].ep.poll_timeout() {
        p.now = at;
        p.ends[1].ep.handle_timeout(at);
        credits.extend(acks(p));
    }
    (credits, p.now.since(begin))
}

#[test]
fn ack__leaves_at_once_when_a_round_begins() {
    let mut p = pair();
    let sent = frames(&mut p, 9);
    assert_eq!(deliver(&mut p, &with_credit(&sent[0], 0)), [Some(1)], "the first packet");
    assert_eq!(deliver(&mut p, &with_credit(&sent[1], 1)), [Some(2)]);
    assert_eq!(deliver(&mut p, &with_credit(&sent[2], 1)), [], "the switch has not heard of it");
    assert_eq!(deliver(&mut p, &with_credit(&sent[3], 2)), [Some(3)]);
    for (n, credit) in [(4, 0), (5, 2), (6, 4), (7, u32::MAX)] {
        assert_eq!(deliver(&mut p, &with_credit(&sent[n], credit)), [], "{credit}: no round");
    }
    // A duplicate does not count, whatever credit it has.
    assert_eq!(deliver(&mut p, &with_credit(&sent[3], 3)), []);
    assert_eq!(deliver(&mut p, &with_credit(&sent[8], 3)), [Some(4)]);
}

#[test]
fn ack__of_rounds_without_data_ends_after_four() {
    let mut p = pair();
    let sent = frames(&mut p, 3);
    assert_eq!(deliver(&mut p, &with_credit(&sent[0], 0)), [Some(1)]);
    let (credits, time) = run_timers(&mut p);
    assert_eq!((credits, time), ([2, 3, 4, 5].map(Some).into(), RTT_D * 8));
    p.now += SECOND / 100;
    assert_eq!(deliver(&mut p, &with_credit(&sent[1], 5)), [Some(6)], "the loop goes on");
    assert_eq!(run_timers(&mut p).0.len(), 4);
}

#[test]
fn ack__has_no_credit_before_the_first_stack() {
    let mut p = pair();
    let sent = frames(&mut p, 12);
    let bare = |frame: &[u8]| frame[..ip_end(frame, 0).unwrap()].to_vec();
    // An ACK leaves at once for the gap.
    assert_eq!(deliver(&mut p, &bare(&sent[1])), [None]);
    assert_eq!(deliver(&mut p, &with_credit(&sent[2], 0)), [Some(1)]);
    assert_eq!(deliver(&mut p, &bare(&sent[4])), [Some(1)], "each one after it");
}

#[test]
fn ack__has_no_credit_before_rts() {
    let mut p = pair();
    let qpn = p.ends[1].qpns[0];
    let was = p.ends[1].ep.query_qp(qpn).unwrap().attr;
    let reset = QpAttr { state: Some(QpState::Reset), ..QpAttr::default() };
    let psn = Psn::new(config(asked(true, true)).psns[0]);
    let mut rtr = QpAttr::rtr(p.ends[0].qpns[0], psn, Mtu::B256, was.av.unwrap());
    rtr.wire = was.wire;
    for attr in [reset, QpAttr::init(Access::ALL), rtr] {
        p.ends[1].ep.modify_qp(qpn, &attr).unwrap();
    }
    let sent = frames(&mut p, 4);
    assert_eq!(deliver(&mut p, &with_credit(&sent[0], 0)), [None], "the first requests an ACK");
    assert_eq!(run_timers(&mut p).0, [], "no round");
    let rts = QpAttr { congestion: Some(paper(MLCC)), ..QpAttr::rts(Psn::new(7)) };
    p.ends[1].ep.modify_qp(qpn, &rts).unwrap();
    assert_eq!(deliver(&mut p, &with_credit(&sent[1], 0)), [Some(1)]);
}

#[test]
fn modify__a_running_loop_keeps_its_rounds_and_ends_with_its_algorithm() {
    let mut p = pair();
    let sent = frames(&mut p, 8);
    deliver(&mut p, &with_credit(&sent[0], 0));
    let set = |p: &mut Pair, text: &str| {
        let attr = QpAttr { congestion: Some(paper(text)), ..QpAttr::default() };
        let qpn = p.ends[1].qpns[0];
        p.ends[1].ep.modify_qp(qpn, &attr).unwrap();
    };
    set(&mut p, "mlcc,rtt_c_us=40,rtt_d_us=5");
    assert_eq!(deliver(&mut p, &with_credit(&sent[1], 1)), [Some(2)]);
    set(&mut p, "dctcp");
    assert_eq!(deliver(&mut p, &with_credit(&sent[2], 2)), []);
    assert_eq!(deliver(&mut p, &with_credit(&sent[4], 2)), [None], "behind a gap");
}

#[test]
fn timers__end_with_the_queue_pair() {
    for state in [QpState::Err, QpState::Reset] {
        let mut p = pair();
        let sent = frames(&mut p, 2);
        deliver(&mut p, &with_credit(&sent[0], 0));
        assert!(p.ends[1].ep.poll_timeout().is_some());
        let qpn = p.ends[1].qpns[0];
        let attr = QpAttr { state: Some(state), ..QpAttr::default() };
        p.ends[1].ep.modify_qp(qpn, &attr).unwrap();
        assert_eq!(run_timers(&mut p).0, [], "{state:?}");
    }
}

/// Credits and rates are in bounds, and no credit is lower than that of an earlier ACK.
fn check_acks(dci: &Dci) {
    let credits: Vec<SrCredit> = dci.acks.iter().copied().flatten().collect();
    assert!(credits.is_sorted_by_key(|credit| credit.credit), "{credits:?}");
    for credit in credits {
        assert!(u64::from(credit.rate_kbps) <= LINE_KBPS, "{credit:?}");
        let suggested = u64::from(credit.suggested_kbps);
        assert!((LINE_KBPS / 100 - 1..=LINE_KBPS).contains(&suggested), "{credit:?}");
    }
}

#[test]
fn loop__is_alive_under_loss_reordering_and_duplication_in_both_directions() {
    for seed in 0..20 {
        let mut p = pair();
        let mut rng = Rng::new(seed);
        let dci = add_switch(&mut p, move |_| match rng.below(100) {
            0..8 => Fate::Drop,
            8..16 => Fate::Twice,
            16..30 => Fate::Late(Dur::from_us(rng.below(40))),
            30..34 => Fate::Late(Dur::from_us(rng.below(400))),
            _ => Fate::Pass,
        });
        for i in 0..40 {
            p.post(0, i, Op::Write, 0, 60_000);
        }
        let step = Dur::from_us(1);
        let (mut credit, mut advanced_at, mut arrived, mut arrived_at) = (0, p.now, 0, p.now);
        while !p.run(step) {
            let dci = dci.borrow();
            let newest = dci.acks.iter().flatten().map(|ack| ack.credit).max().unwrap_or(0);
            if std::mem::replace(&mut credit, newest) < newest {
                advanced_at = p.now;
            }
            let counters = p.ends[1].ep.counters();
            let data = counters.rx_packets - counters.duplicate_request;
            if std::mem::replace(&mut arrived, data) < data {
                arrived_at = p.now;
            }
            // The loop pauses after four rounds without data.
            let is_live = credit > 0 && p.now.since(arrived_at) < RTT_D * 8;
            let rounds = p.now.since(advanced_at);
            assert!(!is_live || rounds <= RTT_D * 2 + step, "seed {seed}: {rounds:?}");
            assert!(p.now.since(Time::ZERO) < SECOND, "seed {seed}: does not end");
        }
        assert_eq!(p.ends[0].wcs.len(), 40, "seed {seed}");
        assert!(p.ends[0].wcs.iter().all(|wc| wc.status == WcStatus::Success), "seed {seed}");
        assert!(credit > 20, "seed {seed}: {credit} rounds");
        check_acks(&dci.borrow());
    }
}

#[test]
fn ack__packets_between_rounds_are_acknowledged_together() {
    let mut p = pair();
    let dci = add_switch(&mut p, |_| Fate::Pass);
    for i in 0..20 {
        p.post(0, i, Op::Write, 0, 60_000);
    }
    assert!(p.run(SECOND));
    let dci = dci.borrow();
    let rounds = dci.acks.iter().flatten().map(|ack| ack.credit).max().unwrap();
    // One for each round, each request and each sixteen packets, and one that closes the last.
    let most = u64::from(rounds) + 20 + dci.data / 16 + 1;
    assert!((dci.acks.len() as u64) <= most, "{} ACKs, {rounds} rounds", dci.acks.len());
    assert!(dci.acks.iter().all(Option::is_some));
    check_acks(&dci);
}

/// The rates of side 0 while its peer's ACKs suggest these, in kbit/s.
fn rates_of(mut suggest: impl FnMut(usize) -> SrCredit + 'static, writes: u64) -> Vec<u64> {
    let mut p = pair();
    add_switch(&mut p, |_| Fate::Pass);
    let (mut release, mut count) = (std::mem::replace(&mut p.edit, Box::new(|_, _| {})), 0);
    p.edit = Box::new(move |side, frame| {
        release(side, frame);
        let Ok(packet) = Packet::parse(frame) else { return };
        if side == 1 && packet.bth.opcode == Opcode::SrAck {
            let ack = SrAckRepr::parse(packet.bth.psn.get(), packet.payload).unwrap();
            let ack = SrAckRepr { credit: Some(suggest(count)), ..ack };
            let mut bytes = vec![0; ack.header_len()];
            ack.emit(&mut bytes).unwrap();
            let end = frame.len() - 4;
            frame[end - bytes.len()..end].copy_from_slice(&bytes);
            let len = frame.len();
            spanwire_wire::seal(frame, len);
            count += 1;
        }
    });
    let mut rates = Vec::new();
    for i in 0..writes {
        p.post(0, i, Op::Write, 0, 30_000);
        assert!(p.run(SECOND));
        rates.push(flow_of(&p, 0).rate.unwrap().as_bps() / 1000);
    }
    assert_eq!(p.ends[0].wcs.len() as u64, writes);
    rates
}

#[test]
fn rate__follows_the_suggested_one() {
    for suggested_kbps in [3_000_000, 20_000_000, 70_000_000] {
        let rates = rates_of(move |_| SrCredit { credit: 9, rate_kbps: 5, suggested_kbps }, 4);
        // The pacer counts 24 bytes that are not in a frame.
        let most = u64::from(suggested_kbps) * 105 / 100;
        assert!((u64::from(suggested_kbps)..most).contains(&rates[3]), "{rates:?}");
    }
}

#[test]
fn rate__stays_in_bounds_whatever_is_suggested() {
    let mut rng = Rng::new(3);
    let mut word =
        move |_: usize| u32::try_from(rng.next_u64() >> 32).unwrap() >> rng.below(33).min(31);
    let any = move |n| {
        let (credit, rate_kbps) = (word(n), word(n));
        let suggested_kbps = [0, 1, u32::MAX, word(n)][n % 4];
        SrCredit { credit, rate_kbps, suggested_kbps }
    };
    for rate in rates_of(any, 200) {
        assert!((LINE_KBPS / 100..=LINE_KBPS).contains(&rate), "{rate}");
    }
}

#[test]
fn stacks__that_were_not_agreed_on_are_ignored() {
    for cc in [paper(MLCC), paper("hpcc"), CongestionControl::NONE] {
        // The ACKs of side 1: when, and how many.
        let acks = |has_stacks: bool| {
            let mut p =
                Pair::with(&PairConfig { congestion: Some(cc), ..config(asked(false, false)) });
            let seen = Rc::new(RefCell::new(0));
            let count = Rc::clone(&seen);
            p.filter = Box::new(move |_, packet| {
                if packet.bth.opcode == Opcode::SrAck {
                    assert_eq!(credit_of(packet), None);
                    *count.borrow_mut() += 1;
                }
                Fate::Pass
            });
            let mut number = 0;
            p.edit = Box::new(move |side, frame| {
                frame.truncate(ip_end(frame, 0).unwrap());
                if side == 0 && has_stacks {
                    frame.extend(b"INTs\x02\x01\x08\x00");
                    frame.extend([0, 0, 0, number, 0, 0, 0, 9]);
                    frame.extend([number; INT_FULL_LEN]);
                    number = number.wrapping_add(1);
                    let stack = IntStack::find(frame, 0).unwrap();
                    assert_eq!((stack.version(), stack.len()), (2, 1));
                }
            });
            p.post(0, 1, Op::Write, 0, 60_000);
            assert!(p.run(SECOND));
            assert_eq!(statuses(&p.ends[0].wcs), [(1, WcStatus::Success)]);
            (*seen.borrow(), p.now)
        };
        let (with, without) = (acks(true), acks(false));
        assert!(with.0 > 0);
        assert_eq!(with, without);
    }
}

#[test]
fn stacks__of_any_content_leave_rates_in_bounds() {
    for seed in 0..30 {
        let mut p = pair();
        let dci = add_switch(&mut p, |_| Fate::Pass);
        let (passing, mut rng) = (Rc::clone(&dci), Rng::new(seed));
        p.edit = Box::new(move |side, frame| {
            if side == 1 {
                return;
            }
            frame.truncate(ip_end(frame, 0).unwrap());
            let format = IntFormat::ALL[usize::try_from(rng.below(2)).unwrap()];
            let hops = u8::try_from(rng.below(18)).unwrap();
            frame.extend(b"INTs\x02");
            frame.extend([hops, 16, format.to_u8()]);
            let is_number = rng.below(4) > 0;
            let credit = if is_number { passing.borrow().credit } else { random(&mut rng) };
            frame.extend(credit.to_be_bytes());
            frame.extend((random(&mut rng) >> rng.below(32)).to_be_bytes());
            for _ in 0..usize::from(hops) * format.record_len() / 8 {
                frame.extend((rng.next_u64() >> rng.below(64)).to_be_bytes());
            }
            frame.truncate(frame.len() - usize::try_from(rng.below(20) / 19).unwrap());
        });
        let want = p.ends[0].fill(0, 60_000, seed);
        for i in 0..20 {
            p.post(0, i, Op::Write, 0, 60_000);
        }
        assert!(p.run(SECOND), "seed {seed}");
        assert_eq!(p.ends[1].bytes(0, 60_000), want, "seed {seed}");
        assert_eq!(p.ends[0].wcs.len(), 20, "seed {seed}");
        check_acks(&dci.borrow());
    }
}

fn random(rng: &mut Rng) -> u32 {
    u32::try_from(rng.below(1 << 32)).unwrap()
}
