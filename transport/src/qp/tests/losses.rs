//! The counts of presumed lost, retransmitted and spurious packets agree between the endpoint's
//! counters, those of the load balancer and the packets that the wire drops.

use super::*;
use crate::counters::Counters;
use crate::{Balance, ErasureCoding};
use spanwire_base::{Node, PortId, Rng, RxMeta};
use spanwire_loadbalance::Choice;
use spanwire_wire::{AckReason, Packet, SrAckRepr};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Percentages: of side 0's packets dropped, of ACKs dropped, of side 0's packets delayed, and the
/// maximum delay in microseconds.
#[derive(Clone, Copy, Debug)]
struct Wire {
    drops: u64,
    ack_drops: u64,
    late: u64,
    late_us: u64,
}

/// Moves 3 MB over such a wire. Returns the pair and the number of side 0's packets dropped.
fn moved(wire: Wire, seed: u64, erasure: Option<ErasureCoding>) -> (Pair, u64) {
    let balance = Some(Balance { choice: Choice::parse("rps,entropy_bits=4").unwrap(), seed });
    let mut p = Pair::with(&PairConfig { balance, erasure, ..PairConfig::sr() });
    let (dropped, mut rng) = (Rc::new(Cell::new(0)), Rng::new(seed));
    let count = Rc::clone(&dropped);
    p.filter = Box::new(move |side, _| {
        let is_drop = rng.below(100) < if side == 0 { wire.drops } else { wire.ack_drops };
        count.set(count.get() + u64::from(is_drop && side == 0));
        match is_drop {
            true => Fate::Drop,
            false if side == 0 && rng.below(100) < wire.late => {
                Fate::Late(Dur::from_us(1 + rng.below(wire.late_us)))
            }
            false => Fate::Pass,
        }
    });
    for i in 0..50 {
        p.post(0, i, Op::Write, 0, 60_000);
        assert!(p.run(SECOND * 100), "{wire:?}, seed {seed}");
    }
    assert!(p.ends[0].wcs.iter().all(|wc| wc.status == WcStatus::Success));
    (p, dropped.get())
}

/// Checks that all reports of one run agree.
fn check_reports(p: &Pair) -> Counters {
    let c = p.ends[0].ep.counters().clone();
    let balancer = p.ends[0].ep.qp_paths(p.ends[0].qpns[0]).unwrap();
    let lb = balancer.counters();
    assert_eq!(lb.presumed_lost_packets, c.presumed_lost_packets);
    assert_eq!((lb.retransmits, lb.timeouts), (c.retransmitted_packets, c.local_ack_timeout_err));
    let by_path: u64 = balancer.paths(p.now).map(|path| path.presumed_lost_packets).sum();
    assert_eq!(by_path, c.presumed_lost_packets);
    assert!(c.spurious_lost_packets <= c.presumed_lost_packets, "{c:?}");
    assert!(c.spurious_retransmits <= c.spurious_lost_packets, "{c:?}");
    assert!(c.spurious_retransmits <= c.retransmitted_packets, "{c:?}");
    c
}

#[test]
fn presumed_lost__is_the_sum_of_dropped_and_spurious_packets() {
    let lossy = Wire { drops: 3, ack_drops: 0, late: 0, late_us: 1 };
    let wires = [
        lossy,
        Wire { ack_drops: 10, ..lossy },
        Wire { drops: 20, ack_drops: 20, ..lossy },
        Wire { late: 5, late_us: 20, ..lossy },
    ];
    for (wire, seed) in wires.into_iter().flat_map(|wire| [1, 2, 3].map(|seed| (wire, seed))) {
        let (p, dropped) = moved(wire, seed, None);
        let c = check_reports(&p);
        let lost = c.presumed_lost_packets - c.spurious_lost_packets;
        let run = format!("{wire:?}, seed {seed}: {dropped} dropped; {c:?}");
        // A probe recovers a lost tail before it is presumed lost, and the loss of a spurious
        // retransmission is no loss of data.
        let unnoticed = c.tail_loss_probes + c.spurious_retransmits;
        assert!(dropped <= lost + unnoticed, "{run}");
        // A spurious loss cannot be proven if the ACK is lost as well.
        let unproven = if wire.ack_drops > 0 || wire.late > 0 { dropped / 4 } else { 0 };
        assert!(lost <= dropped + unproven, "{run}");
    }
}

#[test]
fn presumed_lost__without_loss_is_mostly_proven_spurious() {
    let wire = Wire { drops: 0, ack_drops: 0, late: 5, late_us: 20 };
    let (mut presumed, mut spurious) = (0, 0);
    for seed in 0..5 {
        let (p, _) = moved(wire, seed, None);
        let c = check_reports(&p);
        presumed += c.presumed_lost_packets;
        spurious += c.spurious_lost_packets;
    }
    assert!(presumed > 10, "{presumed}: the wire reorders too little to mean anything");
    // An ACK after both transmissions of a packet proves nothing about the first.
    assert!(spurious * 2 > presumed, "{spurious} of {presumed}");
}

#[test]
fn presumed_lost__agrees_between_reports_of_coded_blocks() {
    let wire = Wire { drops: 3, ack_drops: 2, late: 5, late_us: 20 };
    for seed in 0..5 {
        let (p, _) = moved(wire, seed, Some(ErasureCoding::default()));
        let c = check_reports(&p);
        assert!(c.presumed_lost_packets > 20 && c.ec_settled_packets > 0, "{c:?}");
    }
}

/// A SEND finds no receive request, and a WRITE after it arrives in the same step. The ACK names
/// the WRITE as the newest packet and must not report it as refused.
#[test]
fn on_no_receive__an_ack_of_a_later_packet_does_not_refuse_it() {
    let mut p = Pair::with(&PairConfig::sr());
    let acks = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&acks);
    p.filter = Box::new(move |side, packet| {
        if side == 1 && packet.bth.opcode == Opcode::SrAck {
            let ack = SrAckRepr::parse(packet.bth.psn.get(), packet.payload).unwrap();
            seen.borrow_mut().push((ack.newest, ack.reason));
        }
        Fate::Pass
    });
    // Three packets each, of which the second arrives; the first one and the last one have AckReq.
    p.post(0, 1, Op::Send, 0, 600);
    p.post(0, 2, Op::Write, 0, 600);
    let mut frame = vec![0; 2048];
    let (now, meta) = (p.now, RxMeta::whole(p.now));
    let mut newest = 0;
    for n in 0..6 {
        let sent = p.ends[0].ep.poll_transmit(now, PortId::HOST, &mut frame).unwrap();
        if n % 3 == 1 {
            newest = Packet::parse(&frame[..sent.len]).unwrap().bth.psn.get();
            p.ends[1].ep.handle_packet(now, PortId::HOST, &frame[..sent.len], &meta);
        }
    }
    p.step(1);
    assert_eq!(p.ends[1].ep.counters().out_of_buffer, 1);
    let (named, reason) = acks.borrow()[0];
    assert_eq!(named, newest, "the WRITE's");
    assert_ne!(reason, AckReason::NoReceive);
}
