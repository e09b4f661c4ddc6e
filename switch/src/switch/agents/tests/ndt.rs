//! NDT in a switch: two queues of a port, their shares, their pauses and the order of a flow.

use super::*;
use crate::agent::ndt::config::NdtConfig;
use crate::config::{PfcConfig, QueueConfig};
use spanwire_base::Rate;
use spanwire_wire::{MacAddr, PfcFrame, SrAckRepr};

/// A switch with NDT at port 2, and pause frames of class 0 there.
fn ndt(change: impl Fn(&mut NdtConfig)) -> Switch {
    let mut ndt = NdtConfig { inside: vec![2], flows: 64, ..NdtConfig::default() };
    change(&mut ndt);
    let mut config = SwitchConfig { agents: vec![AgentConfig::Ndt(ndt)], ..config(|_| ()) };
    let pfc = PfcConfig { priorities: vec![0], ..PfcConfig::default() };
    // Nothing is dropped, so that every PSN is missed that is not in order.
    let queues = vec![QueueConfig { limit_bytes: 1 << 30, ..QueueConfig::default() }];
    config.buffer_bytes = 1 << 31;
    config.ports[2] =
        PortConfig { queues, pfc: Some(pfc), ..PortConfig::new(Rate::from_gbps(100)) };
    Switch::new(config).unwrap()
}

/// SR data from the queue pair `flow` of host 0.
fn data(s: &mut Switch, now: Time, flow: u8, psn: u32) {
    let mut frame = sr_frame(psn, now);
    let header = SrDataRepr {
        sent_ps: now.as_ps(),
        receive: Some(0),
        source_qpn: Some(Qpn::new(flow.into())),
        ..SrDataRepr::new(SrKind::Send, psn, 0)
    };
    header.emit(&mut frame[54..]).unwrap();
    s.handle_packet(now, port(0), &frame, &RxMeta::whole(now));
}

/// An acknowledgement from host 2 to the queue pair `flow` of host 0.
fn acknowledge(s: &mut Switch, now: Time, flow: u8, newest: u32, ack_delay_ns: u32) {
    let mut frame = roce_frame(2, 60);
    let (source, dest) = (frame[26..30].to_vec(), frame[30..34].to_vec());
    frame[26..30].copy_from_slice(&dest);
    frame[30..34].copy_from_slice(&source);
    frame[42] = Opcode::SrAck.to_u8();
    frame[47..50].copy_from_slice(&[0, 0, flow]);
    let header = SrAckRepr { newest, ack_delay_ns, ..SrAckRepr::default() };
    header.emit(&mut frame[54..]).unwrap();
    s.handle_packet(now, port(2), &frame, &RxMeta::whole(now));
    assert_eq!(pull(s, now, 0).len(), 1);
}

/// Flow and PSN of the data that leave port 2 at `now`, at most so many.
fn left(s: &mut Switch, now: Time, most: usize) -> Vec<(u8, u32)> {
    let mut buffer = [0; 2_000];
    let one = || {
        let sent = s.poll_transmit(now, port(2), &mut buffer)?;
        assert!(sent.len > 100, "data");
        let psn = u32::from_be_bytes([0, buffer[51], buffer[52], buffer[53]]);
        let (header, _) = SrDataRepr::parse(psn, &buffer[54..]).expect("valid");
        let flow = header.source_qpn.expect("it was sent").get();
        Some((u8::try_from(flow).unwrap(), psn))
    };
    std::iter::from_fn(one).take(most).collect()
}

/// Makes a flow congested by one packet.
fn congest(s: &mut Switch, us: u64, flow: u8, psn: u32) {
    data(s, at(us), flow, psn);
    assert_eq!(left(s, at(us), 9), [(flow, psn)]);
    acknowledge(s, at(us + 11), flow, psn, 0);
}

#[test]
fn poll_transmit__a_controlled_packet_follows_eight_normal_ones() {
    let mut s = ndt(|_| ());
    data(&mut s, at(5), 1, 0);
    assert_eq!(left(&mut s, at(5), 9).len(), 1);
    congest(&mut s, 10, 2, 0);
    (1..=80).for_each(|psn| data(&mut s, at(30), 1, psn));
    (1..=20).for_each(|psn| data(&mut s, at(30), 2, psn));
    let order = left(&mut s, at(31), 1_000);
    let places: Vec<usize> = (0..).zip(&order).filter(|(_, o)| o.0 == 2).map(|(n, _)| n).collect();
    let while_both: Vec<usize> = places.iter().copied().filter(|place| *place < 90).collect();
    assert_eq!(while_both.len(), 10);
    assert!(while_both.windows(2).all(|two| two[1] - two[0] == 9), "{while_both:?}");
    assert_eq!(order.len(), 100, "alone it has the whole port");
}

#[test]
fn handle_packet__a_pause_of_the_class_stops_both_queues() {
    let mut s = ndt(|_| ());
    data(&mut s, at(5), 1, 0);
    left(&mut s, at(5), 9);
    congest(&mut s, 10, 2, 0);
    data(&mut s, at(30), 1, 1);
    data(&mut s, at(30), 2, 1);
    let pause = |s: &mut Switch, quanta: u16| {
        let mut out = [0; PfcFrame::LEN];
        PfcFrame { enabled: 1, quanta: [quanta; 8] }.emit(MacAddr::default(), &mut out);
        s.handle_packet(at(31), port(2), &out, &RxMeta::whole(at(31)));
    };
    pause(&mut s, 0xffff);
    assert_eq!(left(&mut s, at(31), 9), []);
    pause(&mut s, 0);
    assert_eq!(left(&mut s, at(31), 9).len(), 2);
}

#[test]
fn handle_timeout__the_controlled_queue_sends_again_after_the_longest_pause() {
    let mut s = ndt(|_| ());
    congest(&mut s, 10, 2, 0);
    data(&mut s, at(30), 2, 1);
    assert_eq!(left(&mut s, at(30), 9), [], "one flow of one is congested");
    data(&mut s, at(31), 1, 0);
    assert_eq!(left(&mut s, at(31), 9), [(1, 0)], "the other queue goes on");
    assert_eq!(s.poll_timeout(), Some(at(530)));
    s.take_ready();
    s.handle_timeout(at(530));
    assert!(s.take_ready().has(port(2)));
    assert_eq!(left(&mut s, at(530), 9), [(2, 1)]);
}

/// Flows become congested and recover at any time; the port is served in any rhythm. No packet of
/// a flow overtakes another, and none is lost or stays.
#[test]
fn ndt__never_reorders_a_flow() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let part = 1 + u32::try_from(rng.below(10)).unwrap();
        let mut s = ndt(|ndt| ndt.ratio = Ratio::new(part, 10).unwrap());
        let (mut sent, mut seen) = ([0_u32; 6], [0_u32; 6]);
        let mut now = at(1);
        let note = |seen: &mut [u32; 6], all: Vec<(u8, u32)>| {
            for (flow, psn) in all {
                let next = &mut seen[usize::from(flow)];
                assert_eq!(psn, *next, "seed {seed}, flow {flow}");
                *next += 1;
            }
        };
        for _ in 0..3_000 {
            now += Dur::from_ns(rng.below(3_000));
            if s.poll_timeout().is_some_and(|due| due <= now) {
                s.handle_timeout(now);
            }
            let flow = u8::try_from(1 + rng.below(5)).unwrap();
            match rng.below(5) {
                0 | 1 => {
                    for _ in 0..=rng.below(4) {
                        let psn = &mut sent[usize::from(flow)];
                        data(&mut s, now, flow, *psn);
                        *psn += 1;
                    }
                }
                2 => {
                    // A round trip of 0 to 20 us more than what the receiver took.
                    if let Some(newest) = seen[usize::from(flow)].checked_sub(1) {
                        let held = u32::try_from(rng.below(200_000)).unwrap();
                        acknowledge(&mut s, now, flow, newest, held);
                    }
                }
                _ => {
                    let most = usize::try_from(rng.below(5)).unwrap();
                    let all = left(&mut s, now, most);
                    note(&mut seen, all);
                }
            }
        }
        let all = left(&mut s, now, usize::MAX);
        note(&mut seen, all);
        while let Some(due) = s.poll_timeout() {
            s.handle_timeout(due);
            let all = left(&mut s, due, usize::MAX);
            note(&mut seen, all);
        }
        assert_eq!((seen, s.used_pkts()), (sent, 0), "seed {seed}");
        let of = counters(&s);
        assert!(of["controlled_pkts"] > 100 && of["flows_isolated"] > 0, "seed {seed}: {of:?}");
    }
}
