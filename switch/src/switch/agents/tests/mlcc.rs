//! MLCC in a switch: frames with their telemetry, from arrival to departure.

use super::*;
use crate::agent::mlcc::config::MlccConfig;
use crate::config::{FlowsConfig, QueueConfig};
use spanwire_base::Rate;
use spanwire_wire::{
    IntCredit, IntFormat, IntHop, IntStack, NearKind, SrAckRepr, SrCredit, int_push, int_request,
    int_request_credit,
};

/// Ports 0 and 1 lead inside, 2 outside. Flows are let in at 8 Gbit/s at first.
fn dci(change: impl Fn(&mut MlccConfig)) -> SwitchConfig {
    let initial = Some(Rate::from_gbps(8));
    let mut mlcc = MlccConfig { outside: vec![2], initial, flows: 64, ..MlccConfig::default() };
    change(&mut mlcc);
    let flows = FlowsConfig { max_flows: 64, rate: None, limit_bytes: None, quantum_bytes: 2048 };
    let queue = QueueConfig { flows: Some(flows), limit_bytes: 1 << 24, ..QueueConfig::default() };
    let of = |queue| PortConfig {
        queues: vec![queue],
        int: true,
        ..PortConfig::new(Rate::from_gbps(100))
    };
    let ports = vec![of(queue), of(queue), of(QueueConfig::default())];
    SwitchConfig { agents: vec![AgentConfig::Mlcc(mlcc)], ports, ..config(|_| ()) }
}

const HOP: IntHop =
    IntHop { time_ps: 1 << 30, tx_bytes: 5_000, queue_bytes: 4_096, link_rate_mbps: 25_000 };

/// SR data to host `dest` with telemetry of two switches, of version 2 if `asks`.
fn data(dest: u8, psn: u32, asks: bool) -> Vec<u8> {
    let mut frame = sr_frame(psn, at(1));
    if dest != 2 {
        // Host 2 is the source then.
        frame[29] = 2;
        frame[33] = dest;
    }
    let len = frame.len();
    frame.resize(len + 200, 0);
    let request = if asks { int_request_credit } else { int_request };
    let mut end = request(&mut frame, len, 6, IntFormat::Compact).unwrap();
    for _ in 0..2 {
        end = int_push(&mut frame, end, 0, &HOP).unwrap();
    }
    frame.truncate(end);
    frame
}

/// An acknowledgement of data to host 0, with this credit.
fn acknowledge(s: &mut Switch, us: u64, credit: SrCredit) {
    let mut frame = roce_frame(2, 100);
    frame[42] = Opcode::SrAck.to_u8();
    frame[47..50].copy_from_slice(&[0, 0, 0x77]);
    let header = SrAckRepr { credit: Some(credit), ..SrAckRepr::default() };
    header.emit(&mut frame[54..]).unwrap();
    let before = frame.clone();
    s.handle_packet(at(us), port(0), &frame, &RxMeta::whole(at(us)));
    let sent = pull(s, at(us), 2);
    // All but TTL and checksum of the routed packet.
    assert_eq!((sent.len(), &sent[0][34..]), (1, &before[34..]));
}

fn stack(frame: &[u8]) -> (usize, Option<IntCredit>) {
    let stack = IntStack::find(frame, 0).expect("it has one");
    (stack.len(), stack.credit())
}

#[test]
fn data_that_leave__give_their_telemetry_back_once_a_round_trip() {
    let mut s = Switch::new(dci(|_| ())).unwrap();
    let mut near = Vec::new();
    for (us, psn) in [(10, 1), (20, 2), (31, 3), (32, 0xab00_0004)] {
        let frame = data(2, psn, true);
        s.handle_packet(at(us), port(0), &frame, &RxMeta::whole(at(us)));
        let sent = pull(&mut s, at(us), 2);
        assert_eq!(stack(&sent[0]), (0, Some(IntCredit::default())), "the long way has none");
        assert_eq!(sent[0].len(), frame.len() - 16);
        near.extend(pull(&mut s, at(us), 0));
    }
    // Feedback is an eighth of what passed: the first packet alone does not allow it.
    let of = |frame: &Vec<u8>| {
        let packet = Packet::parse(frame).expect("valid");
        assert_eq!((packet.bth.opcode, packet.bth.dest_qp), (Opcode::SrNear, Qpn::new(0x77)));
        let near = SrNearRepr::parse(packet.bth.psn.get(), packet.payload).unwrap();
        assert_eq!((near.kind, near.echo_ps), (NearKind::Telemetry, at(1).as_ps()));
        (near.psn, near.int.compact_hops().count())
    };
    let near: Vec<_> = near.iter().map(of).collect();
    assert_eq!(near, [(1, 3), (0xab00_0004, 3)], "with the record of the port itself");
    let now = counters(&s);
    assert_eq!((now["data_out_pkts"], now["near_due"], now["feedback_tx"]), (4, 2, 2));
}

#[test]
fn data_that_come_in__wait_by_their_credit_and_begin_telemetry_anew() {
    let mut s = Switch::new(dci(|_| ())).unwrap();
    let now = at(10);
    for psn in 0..20 {
        s.handle_packet(now, port(2), &data(0, psn, true), &RxMeta::whole(now));
    }
    // 1,130 bytes each at 8 Gbit/s: a quantum and a part of a frame leave at once.
    let bytes = u64::try_from(data(0, 0, true).len()).unwrap();
    let sent = pull(&mut s, now, 0);
    assert_eq!(sent.len(), 2);
    for (n, frame) in (1..).zip(&sent) {
        let (hops, credit) = stack(frame);
        let waiting_bytes = u32::try_from((20 - n) * bytes).unwrap();
        assert_eq!((hops, credit), (1, Some(IntCredit { credit: 0, waiting_bytes })));
        let hop = IntStack::find(frame, 0).unwrap().compact_hops().next().unwrap();
        assert_eq!(hop.queue, 0, "what waits here waits on purpose");
    }
    let wait = s.poll_timeout().expect("the shaper's");
    assert!(wait.since(now) <= Dur::from_ns(1_200), "{wait:?}");
    // Ten times faster, and the number is written from then on.
    acknowledge(&mut s, 11, SrCredit { credit: 5, rate_kbps: 80_000_000, suggested_kbps: 1 });
    let mut left = Vec::new();
    while let Some(due) = s.poll_timeout() {
        s.handle_timeout(due);
        left.extend(pull(&mut s, due, 0).into_iter().map(|frame| (due, frame)));
    }
    assert_eq!(left.len(), 18);
    let (last, frame) = left.last().unwrap();
    assert!(*last < at(14), "{last:?}");
    assert_eq!(stack(frame).1, Some(IntCredit { credit: 5, waiting_bytes: 0 }));
    let now = counters(&s);
    assert_eq!((now["data_in_pkts"], now["credits"], now["flow_collisions"]), (20, 1, 0));
}

#[test]
fn other_traffic__passes_unchanged_in_queues_by_5_tuple() {
    let mut s = Switch::new(dci(|_| ())).unwrap();
    let plain = Switch::new(SwitchConfig { agents: Vec::new(), ..dci(|_| ()) });
    let mut plain = plain.unwrap();
    let mut rc = roce_frame(0, 500);
    rc[29] = 2;
    let others = [rc, data(0, 3, false), sr_frame(9, at(1))];
    for switch in [&mut s, &mut plain] {
        for (n, frame) in others.iter().enumerate() {
            let (from, now) = (if n == 2 { 0 } else { 2 }, at(10));
            switch.handle_packet(now, port(from), frame, &RxMeta::whole(now));
        }
    }
    for out in [0, 2] {
        assert_eq!(pull(&mut s, at(10), out), pull(&mut plain, at(10), out));
    }
    let now = counters(&s);
    assert_eq!((now["data_in_pkts"], now["data_out_pkts"], now["credits_unknown"]), (0, 0, 0));
    assert_eq!(s.mlcc_flows(at(10)).count(), 0);
}

#[test]
fn flooded_data__have_the_tag_of_each_port_alone() {
    // Port 1 leads outside, and the switch floods what it does not know.
    let mut config = dci(|mlcc| mlcc.outside = vec![1]);
    config.ports[2] = config.ports[0].clone();
    config.forwarding = ForwardingConfig::default();
    let mut s = bound(config);
    s.handle_packet(at(2), port(0), &data(2, 7, true), &RxMeta::whole(at(2)));
    // The copy that leaves gives its telemetry back; that which stays within keeps it.
    let [outside, inside] = [1, 2].map(|out| pull(&mut s, at(2), out));
    assert_eq!([outside, inside].map(|sent| stack(&sent[0]).0), [0, 3]);
}

#[test]
fn new__names_what_the_ports_lack() {
    let error = |change: &dyn Fn(&mut SwitchConfig)| {
        let mut config = dci(|_| ());
        change(&mut config);
        Switch::new(config).map_or_else(|error| error.to_string(), |_| "valid".to_owned())
    };
    assert_eq!(error(&|_| ()), "valid");
    let with = |change: fn(&mut MlccConfig)| error(&|c| c.agents = dci(change).agents);
    let cases = [
        (with(|m| m.outside.clear()), "agents[0].outside: is empty; name the ports"),
        (with(|m| m.outside = vec![0, 1, 2]), "agents[0].outside: names every port"),
        (with(|m| m.outside = vec![3]), "agents[0].outside[0]: is 3"),
        (with(|m| m.rtt_d = Dur::from_ns(1)), "agents[0].rtt_d: is 1ns; choose 100ns to 1s"),
        (with(|m| m.flows = 0), "agents[0].flows: is 0"),
        (error(&|c| c.ports[1].int = false), "needs telemetry (`int = true`) at port 1"),
        (error(&|c| c.ports[0].queues[0].flows = None), "needs queues by flow (`flows`)"),
        (error(&|c| c.ports[2].rate = None), "needs a rate (`rate`) at port 2"),
        (
            error(&|c| c.agents.push(AgentConfig::Nsf(NsfConfig::default()))),
            "agents[0]: watches every port of its switch, which can have no other agent",
        ),
    ];
    for (error, want) in cases {
        assert!(error.contains(want), "{error}: {want}");
    }
}
