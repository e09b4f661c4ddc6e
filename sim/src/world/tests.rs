use super::*;
use spanwire_base::{Dur, PortMask, Rate};
use spanwire_switch::{Impairments, LineConfig, Prob, Reorder};
use std::collections::VecDeque;

/// A node that sends frames from port 0 at given times and logs what it receives. With several
/// ports it forwards frames from each port to the next.
#[derive(Default)]
struct Toy {
    ports: usize,
    to_send: VecDeque<(Time, usize)>,
    queues: Vec<VecDeque<(Vec<u8>, u32)>>,
    received: Vec<(Time, usize, Vec<u8>)>,
    ready: PortMask,
    timeouts: Vec<Time>,
    /// `may_have_frame` returns false when the queue is empty; otherwise it always returns true.
    reports_idle: bool,
}

impl Toy {
    fn host(to_send: &[(u64, usize)]) -> Self {
        let to_send = to_send.iter().map(|(at, len)| (Time::from_ns(*at), *len)).collect();
        Self { ports: 1, to_send, queues: vec![VecDeque::new()], ..Self::default() }
    }

    fn relay(ports: usize) -> Self {
        Self { ports, queues: vec![VecDeque::new(); ports], ..Self::default() }
    }

    fn enqueue(&mut self, port: usize, frame: Vec<u8>, elided: u32) {
        self.queues[port].push_back((frame, elided));
        self.ready.insert(port_id(port));
    }
}

impl Node for Toy {
    fn handle_packet(&mut self, now: Time, port: PortId, frame: &[u8], meta: &RxMeta) {
        assert_eq!(meta.at, now);
        self.received.push((now, port.index(), frame.to_vec()));
        if self.ports > 1 {
            let out = (port.index() + 1) % self.ports;
            self.enqueue(out, frame.to_vec(), meta.elided_bytes);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.timeouts.push(now);
        while let Some((_, len)) = self.to_send.front().copied().filter(|(at, _)| *at <= now) {
            self.to_send.pop_front();
            let mark = u8::try_from(self.timeouts.len() % 200).unwrap();
            self.enqueue(0, vec![mark; len], 0);
        }
    }

    fn poll_transmit(&mut self, _: Time, port: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        let (bytes, elided_bytes) = self.queues[port.index()].pop_front()?;
        frame[..bytes.len()].copy_from_slice(&bytes);
        Some(TxMeta { elided_bytes, ..TxMeta::whole(bytes.len()) })
    }

    fn may_have_frame(&self, port: PortId) -> bool {
        !self.reports_idle || !self.queues[port.index()].is_empty()
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.to_send.front().map(|(at, _)| *at)
    }

    fn take_ready(&mut self) -> PortMask {
        self.ready.take()
    }
}

fn port_id(n: usize) -> PortId {
    PortId::new(u8::try_from(n).unwrap()).unwrap()
}

fn line(gbps: u64, delay_ns: u64) -> Line {
    let rate = (gbps > 0).then(|| Rate::from_gbps(gbps));
    let config = LineConfig { rate, delay: Dur::from_ns(delay_ns), ..LineConfig::default() };
    Line::new(config, 1).unwrap()
}

const END: Time = Time::from_ns(1 << 40);

/// A host that sends to another over 8 Gbit/s and 100 ns: a byte takes a nanosecond.
fn pair(to_send: &[(u64, usize)]) -> (World<Toy>, [NodeId; 2], [LinkId; 2]) {
    let mut w = World::new(2048);
    let nodes = [w.add_node(Toy::host(to_send)), w.add_node(Toy::host(&[]))];
    let ends = nodes.map(|n| (n, PortId::HOST));
    let links = w.connect(ends[0], ends[1], [line(8, 100), line(8, 100)]);
    (w, nodes, links)
}

#[test]
fn run__a_frame_takes_serialisation_and_propagation() {
    let (mut w, [_, b], [there, back]) = pair(&[(10, 76), (10, 176), (1000, 76)]);
    assert_eq!(w.run(END, u64::MAX, &mut ()), Stop::Idle);
    let received: Vec<u64> = w.node(b).received.iter().map(|(at, ..)| at.as_ns()).collect();
    // 24 bytes of preamble, FCS and gap per frame.
    assert_eq!(received, [10 + 100 + 100, 10 + 100 + 200 + 100, 1000 + 100 + 100]);
    assert_eq!(w.link_counters(there).sent_bytes, 76 + 176 + 76);
    assert_eq!((w.link_counters(back).sent, w.counters().packet_hops), (0, 3));
}

#[test]
fn run__may_have_frame_saves_polls_and_changes_no_frame() {
    // A single frame, back-to-back frames, and frames while the line is busy.
    let to_send = [(10, 76), (10, 176), (60, 76), (1000, 76), (1030, 300)];
    let run = |reports_idle| {
        let (mut w, [a, b], [there, _]) = pair(&to_send);
        w.node_mut(a).reports_idle = reports_idle;
        assert_eq!(w.run(END, u64::MAX, &mut ()), Stop::Idle);
        assert_eq!(w.link_counters(there).arrived, 5);
        assert!(w.check_conservation().is_empty());
        (w.node(b).received.clone(), w.event_hash(), w.counters().events)
    };
    let (always, sometimes) = (run(false), run(true));
    assert_eq!((&always.0, always.1), (&sometimes.0, sometimes.1));
    assert_eq!(always.2 - sometimes.2, 2, "one poll fewer after each burst");
}

#[test]
fn run__stops_at_a_time_and_at_a_number_of_events_and_goes_on() {
    let (mut w, [_, b], [there, _]) = pair(&[(10, 76)]);
    let at = Time::from_ns(150);
    assert_eq!(w.run(at, u64::MAX, &mut ()), Stop::Time);
    assert_eq!((w.now(), w.in_flight(there), w.node(b).received.len()), (at, 1, 0));
    assert!(w.check_conservation().is_empty());
    assert_eq!(w.run(END, 1, &mut ()), Stop::Events);
    assert_eq!((w.now(), w.in_flight(there)), (Time::from_ns(210), 0));
    assert_eq!(w.run(END, u64::MAX, &mut ()), Stop::Idle);
}

#[test]
fn run__a_timer_expires_once_and_not_early() {
    let (mut w, [a, b], _) = pair(&[(10, 70), (500, 70)]);
    w.run(END, u64::MAX, &mut ());
    assert_eq!(w.node(a).timeouts, [Time::from_ns(10), Time::from_ns(500)]);
    assert_eq!(w.node(b).timeouts, []);
    assert_eq!(w.counters().timers, 2);
}

#[test]
fn node_mut__a_node_changed_from_outside_is_polled() {
    let (mut w, [a, b], _) = pair(&[]);
    assert_eq!(w.run(Time::from_ns(50), u64::MAX, &mut ()), Stop::Idle);
    assert_eq!(w.now(), Time::ZERO, "nothing happened");
    w.node_mut(a).enqueue(0, vec![1; 70], 1000);
    w.run(END, u64::MAX, &mut ());
    assert_eq!(
        w.node(b).received[0].0.as_ns(),
        70 + 1000 + 24 + 100,
        "elided bytes take their time"
    );
}

#[test]
fn connect__a_relay_forwards_frames() {
    let mut w = World::new(2048);
    let a = w.add_node(Toy::host(&[(0, 76), (0, 76), (0, 76)]));
    let relay = w.add_node(Toy::relay(2));
    let b = w.add_node(Toy::host(&[]));
    w.connect((a, PortId::HOST), (relay, port_id(0)), [line(8, 100), line(8, 100)]);
    w.connect((relay, port_id(1)), (b, PortId::HOST), [line(4, 100), line(4, 100)]);
    w.run(END, u64::MAX, &mut ());
    let received: Vec<u64> = w.node(b).received.iter().map(|(at, ..)| at.as_ns()).collect();
    assert_eq!(received, [500, 700, 900], "the slower link sets the pace, the relay queues");
    assert_eq!((w.counters().packet_hops, w.check_conservation()), (6, vec![]));
}

#[test]
#[should_panic(expected = "one link")]
fn connect__refuses_a_port_twice() {
    let (mut w, [a, b], _) = pair(&[]);
    w.connect((a, PortId::HOST), (b, PortId::HOST), [line(1, 1), line(1, 1)]);
}

/// Everything that an observer saw.
#[derive(Default)]
struct Watcher(Vec<(Time, LinkId, usize, bool)>);

impl Observer for Watcher {
    fn on_sent(&mut self, now: Time, link: LinkId, frame: &[u8], _: TxMeta) {
        self.0.push((now, link, frame.len(), true));
    }
    fn on_arrived(&mut self, now: Time, link: LinkId, frame: &[u8], _: RxMeta) {
        self.0.push((now, link, frame.len(), false));
    }
}

#[test]
fn observer__sees_each_frame_leave_and_arrive() {
    let (mut w, _, [there, _]) = pair(&[(10, 76)]);
    let mut watcher = Watcher::default();
    w.run(END, u64::MAX, &mut watcher);
    let at = Time::from_ns;
    assert_eq!(watcher.0, [(at(10), there, 76, true), (at(210), there, 76, false)]);
}

/// Two hosts, two relays between them, and lines with every impairment.
fn bad_lines(seed: u64) -> World<Toy> {
    let mut w = World::new(2048);
    let to_send: Vec<(u64, usize)> =
        (0..300).map(|i| (i * 40, 60 + usize_from(i * 7 % 500))).collect();
    let hosts = [w.add_node(Toy::host(&to_send)), w.add_node(Toy::host(&to_send))];
    let relays = [2, 2].map(|n| w.add_node(Toy::relay(n)));
    let per_cent = |n: u32| Prob::from_ppm(n * 10_000);
    let impairments = Impairments {
        loss: per_cent(5),
        reorder: Some(Reorder { probability: per_cent(20), extra_delay: Dur::from_us(3) }),
        duplicate: per_cent(10),
        corrupt: per_cent(10),
        jitter: Dur::from_us(1),
        ..Impairments::default()
    };
    let line = |n| {
        let (rate, delay) = (Some(Rate::from_gbps(8)), Dur::from_ns(500));
        let impairments = impairments.clone();
        let config = LineConfig { rate, delay, impairments, ..LineConfig::default() };
        Line::new(config, seed + n).unwrap()
    };
    w.connect((hosts[0], PortId::HOST), (relays[0], port_id(0)), [line(1), line(2)]);
    w.connect((relays[0], port_id(1)), (relays[1], port_id(0)), [line(3), line(4)]);
    w.connect((relays[1], port_id(1)), (hosts[1], PortId::HOST), [line(5), line(6)]);
    w
}

#[test]
fn run__frames_are_conserved_on_faulty_lines() {
    let mut w = bad_lines(1);
    while w.run(END, 7, &mut ()) == Stop::Events {
        assert_eq!(w.check_conservation(), []);
    }
    assert!(w.links().all(|l| w.in_flight(l) == 0));
    let sum = |f: fn(&spanwire_switch::LineCounters) -> u64| -> u64 {
        w.links().map(|l| f(w.line(l).counters())).sum()
    };
    for happened in [sum(|c| c.drop_loss), sum(|c| c.duplicated), sum(|c| c.reordered)] {
        assert!(happened > 20, "the faults occurred");
    }
    for (_, node) in w.nodes() {
        assert!(node.received.is_sorted_by_key(|(at, ..)| *at), "time never goes back");
    }
}

#[test]
fn event_hash__depends_on_the_seed_alone() {
    let hash = |seed| {
        let mut w = bad_lines(seed);
        w.run(END, u64::MAX, &mut ());
        w.event_hash()
    };
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}
