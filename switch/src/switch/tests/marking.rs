//! Marking, trimming, telemetry: changes of a switch to frames.

use super::*;
use crate::config::{EcnConfig, MarkAt, PhantomConfig, TrimConfig};
use crate::units::{Prob, Ratio};
use spanwire_base::{Dur, Rate};
use spanwire_wire::{
    Ecn, IntCompactHop, IntFormat, IntHop, IntStack, IpRepr, dscp_of, ecn_of, int_request,
    is_trimmed,
};

/// A switch of two ports with host n at port n, whose port 1 is `port`.
fn switch(port: PortConfig) -> Switch {
    Switch::new(routed(vec![PortConfig::default(), port])).unwrap()
}

fn with_queue(queue: QueueConfig) -> Switch {
    switch(PortConfig { queues: vec![queue], ..PortConfig::new(Rate::from_gbps(100)) })
}

/// Sends `n` frames of 1074 bytes to port 1, then receives all; returns which are marked.
fn marks(s: &mut Switch, n: usize) -> Vec<bool> {
    for _ in 0..n {
        push(s, 0, &roce_frame(1, 1_000));
    }
    let is_marked = |f: Vec<u8>| {
        Packet::parse(&f).expect("a mark keeps checksum and ICRC");
        ecn_of(&f) == Some(Ecn::Ce)
    };
    std::iter::from_fn(|| pull(s, 1).map(is_marked)).collect()
}

#[test]
fn poll_transmit__marks_by_the_length_behind_the_frame() {
    let ecn = EcnConfig { at: MarkAt::Dequeue, ..EcnConfig::step(3 * 1_074) };
    let mut s = with_queue(QueueConfig { ecn: Some(ecn), ..QueueConfig::default() });
    // Five frames are behind the first of six, and so on: more than three behind the first two.
    assert_eq!(marks(&mut s, 6), [true, true, false, false, false, false]);
    let q = s.counters().ports[1].queues[0];
    assert_eq!((q.mark_step, q.mark_red, q.marked()), (2, 0, 2));
}

#[test]
fn handle_packet__marks_by_the_length_including_the_frame() {
    let ecn = EcnConfig::step(3 * 1_074);
    let mut s = with_queue(QueueConfig { ecn: Some(ecn), ..QueueConfig::default() });
    assert_eq!(marks(&mut s, 6), [false, false, false, true, true, true]);
    assert_eq!(s.counters().ports[1].queues[0].mark_step, 3);
}

#[test]
fn handle_packet__marks_linearly_between_thresholds() {
    let ecn = EcnConfig {
        at: MarkAt::Enqueue,
        ..EcnConfig::red(100 * 1_074, 300 * 1_074, Prob::from_ppm(500_000))
    };
    let mut s = with_queue(QueueConfig { ecn: Some(ecn), ..QueueConfig::default() });
    let mut by_place = vec![0u32; 400];
    for _ in 0..50 {
        for (place, marked) in marks(&mut s, 400).into_iter().enumerate() {
            by_place[place] += u32::from(marked);
        }
    }
    assert!(by_place[..100].iter().all(|n| *n == 0));
    assert!(by_place[300..].iter().all(|n| *n == 50));
    // 50 % at the upper threshold, a quarter on average.
    let between: u32 = by_place[100..300].iter().sum();
    assert!((2_200..2_800).contains(&between), "{between} of 10000");
    let lower: u32 = by_place[100..200].iter().sum();
    assert!((520..730).contains(&lower), "an eighth in the lower half: {lower}");
    let q = s.counters().ports[1].queues[0];
    assert_eq!(q.mark_red, u64::from(by_place.iter().sum::<u32>()));
}

#[test]
fn handle_packet__does_not_mark_not_ect() {
    let mut s = with_queue(QueueConfig { ecn: Some(EcnConfig::step(0)), ..QueueConfig::default() });
    let mut frame = roce_frame(1, 100);
    frame[15] = 0;
    frame[24..26].copy_from_slice(&[0, 0]);
    let sum: u32 =
        frame[14..34].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!u16::try_from(folded).unwrap()).to_be_bytes());
    push(&mut s, 0, &frame);
    let got = pull(&mut s, 1).unwrap();
    assert_eq!(ecn_of(&got), Some(Ecn::NotEct));
    assert_eq!(s.counters().ports[1].queues[0].mark_not_ect, 1);
}

fn phantom(with_physical: bool) -> PhantomConfig {
    PhantomConfig {
        drain: Ratio::new(9, 10).unwrap(),
        size_bytes: 1_000_000,
        kmin_bytes: 10 * 1_074,
        kmax_bytes: 10 * 1_074,
        pmax: Prob::ONE,
        with_physical,
    }
}

#[test]
fn handle_packet__a_phantom_queue_marks_before_there_is_a_queue() {
    // One frame at a time at 95 % of the rate: the real queue never holds two. The phantom queue,
    // which drains at 90 %, grows by 5.3 % of each.
    let mut s = with_queue(QueueConfig { phantom: Some(phantom(false)), ..QueueConfig::default() });
    let rate = Rate::from_gbps(95);
    let mut now = Time::ZERO;
    let mut first = None;
    for i in 0..400 {
        s.handle_packet(now, port(0), &roce_frame(1, 1_000), &RxMeta::whole(now));
        let got = pull(&mut s, 1).unwrap();
        if ecn_of(&got) == Some(Ecn::Ce) && first.is_none() {
            first = Some(i);
        }
        now += rate.time_for(1_074);
    }
    // Above 10 frames after the one just added: 9 / 0.0526 = 171.
    let first = first.expect("it marks");
    assert!((168..175).contains(&first), "{first}");
    assert_eq!(s.counters().ports[1].queues[0].max_bytes, 1_074);
    assert!(s.phantom_bytes(now, port(1), 0) > 20_000);
}

#[test]
fn handle_packet__a_phantom_queue_grows_on_drops_and_replaces_or_joins_marks() {
    for with_physical in [false, true] {
        let mut s = with_queue(QueueConfig {
            limit_bytes: 5 * 1_074,
            ecn: Some(EcnConfig::step(2 * 1_074)),
            phantom: Some(phantom(with_physical)),
            ..QueueConfig::default()
        });
        let got = marks(&mut s, 12);
        let physical = if with_physical { [false, false, true, true, true] } else { [false; 5] };
        assert_eq!(got, physical);
        // Seven were dropped but counted: over ten now.
        assert_eq!(s.phantom_bytes(Time::ZERO, port(1), 0), 12 * 1_074);
        assert_eq!(marks(&mut s, 1), [true]);
        let q = s.counters().ports[1].queues[0];
        assert_eq!((q.mark_phantom, q.drop_queue_full), (1, 7));
    }
}

#[test]
fn set_queue__changes_thresholds_while_it_runs() {
    let mut s = with_queue(QueueConfig { phantom: Some(phantom(true)), ..QueueConfig::default() });
    assert_eq!(marks(&mut s, 3), [false; 3]);
    let mut queue = s.config().ports[1].queues[0];
    queue.ecn = Some(EcnConfig::step(1_074));
    s.set_queue(Time::ZERO, port(1), 0, queue).unwrap();
    assert_eq!(marks(&mut s, 3), [false, true, true]);
    assert_eq!(s.phantom_bytes(Time::ZERO, port(1), 0), 6 * 1_074, "kept");
    queue.ecn = Some(EcnConfig { kmin_bytes: 2, kmax_bytes: 1, ..EcnConfig::step(0) });
    let error = s.set_queue(Time::ZERO, port(1), 0, queue).unwrap_err().to_string();
    assert!(error.starts_with("ports[1].queues[0].ecn.kmin_bytes: is 2"), "{error}");
    assert_eq!(s.config().ports[1].queues[0].ecn, Some(EcnConfig::step(1_074)));
    queue.ecn = None;
    assert!(s.set_queue(Time::ZERO, port(1), 1, queue).is_err());
    assert!(s.set_queue(Time::ZERO, port(2), 0, queue).is_err());
    let error = s.set_rate(Time::ZERO, port(1), None).unwrap_err().to_string();
    assert!(error.contains("phantom: needs the port's rate"), "{error}");
    s.set_rate(Time::ZERO, port(1), Some(Rate::from_gbps(1))).unwrap();
    // 90 % of 1 Gbit/s drain 1125 bytes in 10 us.
    let later = Time::ZERO + Dur::from_us(10);
    assert_eq!(s.phantom_bytes(later, port(1), 0), 6 * 1_074 - 1_125);
}

#[test]
fn set_marking__changes_thresholds_alone() {
    let mut s = with_queue(QueueConfig::default());
    assert_eq!(marks(&mut s, 3), [false; 3]);
    s.set_marking(port(1), 0, Some(EcnConfig::step(1_074))).unwrap();
    assert_eq!(marks(&mut s, 3), [false, true, true]);
    assert_eq!(s.config().ports[1].queues[0].ecn, Some(EcnConfig::step(1_074)));
    let wrong = EcnConfig { kmin_bytes: 2, kmax_bytes: 1, ..EcnConfig::step(0) };
    let error = s.set_marking(port(1), 0, Some(wrong)).unwrap_err().to_string();
    assert!(error.starts_with("ports[1].queues[0].ecn.kmin_bytes: is 2"), "{error}");
    assert_eq!(marks(&mut s, 3), [false, true, true], "nothing has changed");
    for (n, queue) in [(1, 1), (2, 0)] {
        assert!(s.set_marking(port(n), queue, None).is_err());
    }
    s.set_marking(port(1), 0, None).unwrap();
    assert_eq!(marks(&mut s, 3), [false; 3]);
}

/// Two queues of three frames; the second, of higher priority, takes trimmed packets.
fn trimming() -> Switch {
    let main = QueueConfig {
        limit_bytes: 3 * 1_074,
        trim: Some(TrimConfig { dscp: 40, queue: 1 }),
        ..QueueConfig::default()
    };
    let headers = QueueConfig { limit_bytes: 3 * 74, priority: 1, ..QueueConfig::default() };
    switch(PortConfig { queues: vec![main, headers], ..PortConfig::default() })
}

#[test]
fn handle_packet__trims_frames_without_room_and_sends_headers_first() {
    let mut s = trimming();
    for _ in 0..8 {
        push(&mut s, 0, &roce_frame(1, 1_000));
    }
    let out: Vec<Vec<u8>> = std::iter::from_fn(|| pull(&mut s, 1)).collect();
    assert_eq!(out.iter().map(Vec::len).collect::<Vec<_>>(), [74, 74, 74, 1_074, 1_074, 1_074]);
    for f in &out[..3] {
        assert!(is_trimmed(f));
        assert_eq!(dscp_of(f), Some(40));
        let IpRepr::V4(ip) = Packet::parse_unverified(f).unwrap().ip else { panic!("IPv4") };
        assert_eq!(ip.ttl, 63, "routed like other frames");
    }
    let q = s.counters().ports[1].queues.clone();
    assert_eq!((q[0].trimmed, q[0].dropped(), q[1].drop_trimmed_full), (5, 0, 2));
    assert_eq!((s.used_bytes(), s.used_pkts()), (0, 0));
}

#[test]
fn handle_packet__trims_elided_frames_and_drops_untrimmable_ones() {
    let mut s = trimming();
    let (frame, elided_bytes) = roce_frame_elided(1, 1_000);
    let meta = RxMeta { elided_bytes, ..RxMeta::whole(Time::ZERO) };
    for _ in 0..4 {
        s.handle_packet(Time::ZERO, port(0), &frame, &meta);
    }
    let mut out = [0; 200];
    let tx = s.poll_transmit(Time::ZERO, port(1), &mut out).unwrap();
    assert_eq!((tx.len, tx.elided_bytes, is_trimmed(&out[..74])), (74, 0, true));
    let mut tcp = roce_frame(1, 1_000);
    tcp[23] = 6;
    // One's complement: the protocol decreased by 11, so the checksum increases by as much.
    let checksum = u16::from_be_bytes([tcp[24], tcp[25]]) + (17 - 6);
    tcp[24..26].copy_from_slice(&checksum.to_be_bytes());
    push(&mut s, 0, &tcp);
    let q = s.counters().ports[1].queues[0];
    assert_eq!((q.trimmed, q.drop_queue_full), (1, 1));
}

#[test]
fn poll_transmit__stamps_frames_that_request_it() {
    let port_1 = PortConfig { int: true, ..PortConfig::new(Rate::from_gbps(25)) };
    let mut s = switch(port_1);
    let mut frame = roce_frame(1, 1_000);
    let asked = frame.len();
    frame.resize(asked + 100, 0);
    let len = int_request(&mut frame, asked, 1, IntFormat::Full).unwrap();
    frame.truncate(len);
    push(&mut s, 0, &roce_frame(1, 1_000));
    push(&mut s, 0, &frame);
    push(&mut s, 0, &roce_frame(1, 100));
    let now = Time::from_ns(7);
    let mut out = [0; 2_000];
    let plain = s.poll_transmit(now, port(1), &mut out).unwrap();
    assert_eq!(plain.len, 1_074, "not requested");
    let stamped = s.poll_transmit(now, port(1), &mut out).unwrap();
    assert_eq!(stamped.len, len + 24);
    let stack = IntStack::find(&out[..stamped.len], 0).unwrap();
    let want = IntHop { time_ps: 7_000, tx_bytes: 1_074, queue_bytes: 174, link_rate_mbps: 25_000 };
    assert_eq!(stack.hops().collect::<Vec<_>>(), [want]);
    Packet::parse(&out[..stamped.len]).expect("the ICRC holds");
    // The stack is full at the next switch.
    let again = out[..stamped.len].to_vec();
    push(&mut s, 0, &again);
    while pull(&mut s, 1).is_some() {}
    let c = &s.counters().ports[1];
    assert_eq!((c.int_stamped, c.int_full, c.tx_pkts), (1, 1, 4));
    assert_eq!(c.tx_bytes, 1_074 + 1_106 + 174 + 1_106);
}

#[test]
fn poll_transmit__stamps_elided_frames_after_the_bytes_present() {
    let mut s = switch(PortConfig { int: true, ..PortConfig::new(Rate::from_gbps(25)) });
    let (mut frame, elided_bytes) = roce_frame_elided(1, 1_000);
    frame.resize(frame.len() + 8, 0);
    int_request(&mut frame, 74, 5, IntFormat::Full).unwrap();
    s.handle_packet(
        Time::ZERO,
        port(0),
        &frame,
        &RxMeta { elided_bytes, ..RxMeta::whole(Time::ZERO) },
    );
    let mut out = [0; 200];
    let tx = s.poll_transmit(Time::ZERO, port(1), &mut out).unwrap();
    assert_eq!((tx.len, tx.elided_bytes, tx.wire_len()), (74 + 32, 1_000, 1_106));
    assert_eq!(IntStack::find(&out[..tx.len], tx.elided_bytes).unwrap().len(), 1);
}

#[test]
fn poll_transmit__writes_the_format_that_the_stack_requests() {
    let stamp = |format: IntFormat| {
        let mut s = switch(PortConfig { int: true, ..PortConfig::new(Rate::from_gbps(25)) });
        let mut frame = roce_frame(1, 1_000);
        let len = frame.len();
        frame.resize(len + 8, 0);
        int_request(&mut frame, len, 2, format).unwrap();
        push(&mut s, 0, &frame);
        push(&mut s, 0, &roce_frame(1, 100));
        let mut out = [0; 2_000];
        let tx = s.poll_transmit(Time::from_ns(50_000), port(1), &mut out).unwrap();
        Packet::parse(&out[..tx.len]).expect("the ICRC holds");
        assert_eq!(s.counters().ports[1].int_stamped, 1);
        (out[..tx.len].to_vec(), tx.len - frame.len())
    };
    let (full, added) = stamp(IntFormat::Full);
    assert_eq!(added, 24);
    let full = IntStack::find(&full, 0).unwrap().hops().next().unwrap();
    let (compact, added) = stamp(IntFormat::Compact);
    assert_eq!(added, 8);
    let compact = IntStack::find(&compact, 0).unwrap().compact_hops().next().unwrap();
    assert_eq!((compact.time, compact.queue, compact.link_rate_mbps()), (3_125, 2, 25_000));
    assert_eq!(compact, IntCompactHop::from(&full));
}

#[test]
fn poll_transmit__forwards_stacks_of_unknown_formats_and_versions_unchanged() {
    for (at, value) in [(4, 2), (7, 2), (7, 255)] {
        let mut s = switch(PortConfig { int: true, ..PortConfig::new(Rate::from_gbps(25)) });
        let mut frame = roce_frame(1, 1_000);
        let len = frame.len();
        frame.resize(len + 8, 0);
        int_request(&mut frame, len, 2, IntFormat::Full).unwrap();
        frame[len + at] = value;
        push(&mut s, 0, &frame);
        let mut out = [0; 2_000];
        let tx = s.poll_transmit(Time::ZERO, port(1), &mut out).unwrap();
        assert_eq!(out[len..tx.len], frame[len..], "no header of it changes");
        let c = &s.counters().ports[1];
        assert_eq!((c.int_stamped, c.int_full), (0, 0));
    }
}
