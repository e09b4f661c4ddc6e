//! Workers of one host that hand frames over to each other.

use super::*;
use spanwire_base::{u32_from, u64_from};
use spanwire_transport::Config;

/// Workers without drivers.
fn workers(count: u8) -> Workers<Echo> {
    let qpns = Config { workers: count, ..Config::default() }.qpn_workers();
    let workers = (0..count).map(|_| PolledHost::new(Echo::default(), None, 7, 2048)).collect();
    let Engines::Several(workers) = Engines::new(workers, qpns, 5) else { panic!("several") };
    *workers
}

/// A frame to a queue pair of a worker, from one UDP source port.
fn frame(worker: u8, port: u8) -> Vec<u8> {
    let mut frame = vec![0; 64];
    (frame[12], frame[23], frame[35]) = (8, 17, port);
    // 1024 queue pairs have ten bits, the lower two of the middle byte among them.
    frame[48] = worker << 2;
    frame
}

/// A frame for `to` that arrives at the queue of `via`.
fn frame_via(workers: &Workers<Echo>, via: usize, to: u8) -> Vec<u8> {
    let frames = (0..=u8::MAX).map(|port| frame(to, port));
    frames.into_iter().find(|frame| workers.queue_of(frame) == via).expect("each queue has flows")
}

/// Frame `number` arrives; the meta data carry the number.
fn arrive(workers: &mut Workers<Echo>, at: Time, frame: &[u8], number: u32) {
    let meta = RxMeta { elided_bytes: number, ..RxMeta::whole(at) };
    workers.handle_packet(at, PortId::HOST, frame, &meta);
}

/// Runs until nothing is due.
fn run(workers: &mut Workers<Echo>) {
    while let Some(at) = workers.poll_timeout() {
        workers.handle_timeout(at);
    }
}

/// The frames that a worker has got: when, arrival, number.
fn received(workers: &Workers<Echo>, worker: usize) -> Vec<(Time, Time, u32)> {
    let seen = workers.workers[worker].node().seen.iter();
    seen.map(|(now, meta)| (*now, meta.at, meta.elided_bytes)).collect()
}

#[test]
fn engines__of_one_worker_have_no_hand_over() {
    let qpns = Config::default().qpn_workers();
    let mut one = Engines::new(vec![PolledHost::new(Echo::default(), None, 7, 2048)], qpns, 5);
    one.handle_packet(us(3), PortId::HOST, &frame(3, 1), &RxMeta::whole(us(3)));
    assert_eq!(one.all()[0].node().seen, [(us(3), RxMeta::whole(us(3)))]);
    assert_eq!((one.handover(), one.waiting()), (HandoverCounters::default(), 0));
}

#[test]
fn handle_packet__a_frame_reaches_its_worker_from_any_queue() {
    let mut w = workers(4);
    for to in 0..4u8 {
        for via in 0..4 {
            let frame = frame_via(&w, via, to);
            arrive(&mut w, us(1), &frame, u32_from(via));
        }
    }
    run(&mut w);
    for to in 0..4 {
        let mut seen = received(&w, to);
        assert_eq!(seen[0], (us(1), us(1), u32_from(to)), "directly");
        assert!(seen[1..].iter().all(|(now, at, _)| *now > us(1) && *at == us(1)), "{seen:?}");
        seen.sort_by_key(|(.., via)| *via);
        assert_eq!(seen.iter().map(|(.., via)| *via).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }
    assert_eq!(w.counters, HandoverCounters { handed: 12, received: 12, dropped: 0 });
}

#[test]
fn handle_packet__frames_of_nobody_are_for_the_first_worker() {
    let mut w = workers(3);
    let pause = vec![0; 20];
    for frame in [frame_via(&w, 0, 3), pause] {
        arrive(&mut w, us(1), &frame, 9);
    }
    run(&mut w);
    assert_eq!([0, 1, 2].map(|worker| received(&w, worker).len()), [2, 0, 0]);
}

#[test]
fn hand_over__keeps_the_order_of_a_queue_and_no_other() {
    let mut w = workers(4);
    let frames = [1, 2, 3].map(|via| frame_via(&w, via, 3));
    for number in 0..300 {
        let at = us(1) + Dur::from_ns(500) * u64::from(number);
        while let Some(due) = w.poll_timeout().filter(|due| *due <= at) {
            w.handle_timeout(due);
        }
        arrive(&mut w, at, &frames[number as usize % 3], number);
    }
    run(&mut w);
    let numbers: Vec<u32> = received(&w, 3).iter().map(|(.., number)| *number).collect();
    for via in 0..3 {
        assert!(numbers.iter().filter(|n| **n % 3 == via).is_sorted(), "{numbers:?}");
    }
    let overtaken = numbers.windows(2).filter(|two| two[0] > two[1]).count();
    assert!(overtaken > 50, "{overtaken} of 300");
}

#[test]
fn hand_over__a_full_ring_drops_and_counts_and_takes_again() {
    let mut w = workers(4);
    let [full, other] = [frame_via(&w, 1, 2), frame_via(&w, 1, 3)];
    for round in 1..=2 {
        for number in 0..300 {
            arrive(&mut w, us(100 * round), &full, number);
        }
        arrive(&mut w, us(100 * round), &other, 0);
        run(&mut w);
        assert_eq!(w.counters.dropped, 44 * round);
        assert_eq!(u64_from(received(&w, 2).len()), 256 * round);
        assert_eq!(u64_from(received(&w, 3).len()), round, "its ring has room");
    }
    assert_eq!(w.counters.received, w.counters.handed);
}

#[test]
fn poll_transmit__takes_turns() {
    let mut w = workers(4);
    for to in [0, 0, 0, 2, 2, 2, 3] {
        let frame = frame_via(&w, usize::from(to), to);
        arrive(&mut w, us(1), &frame, 0);
    }
    assert!(w.take_ready().has(PortId::HOST) && w.take_ready().is_empty());
    let left = |w: &Workers<Echo>| [0, 1, 2, 3].map(|worker| w.workers[worker].node().to_send);
    let mut buffer = [0; 2048];
    for after in [[2, 0, 3, 1], [2, 0, 2, 1], [2, 0, 2, 0], [1, 0, 2, 0], [1, 0, 1, 0]] {
        assert!(w.poll_transmit(us(1), PortId::HOST, &mut buffer).is_some());
        assert_eq!(left(&w), after);
    }
    assert!(w.poll_transmit(us(1), PortId::HOST, &mut buffer).is_some());
    assert!(w.poll_transmit(us(1), PortId::HOST, &mut buffer).is_some());
    assert!(w.poll_transmit(us(1), PortId::HOST, &mut buffer).is_none());
}

#[test]
fn polled_host__without_timestamps_dates_a_handed_frame_before_its_arrival() {
    let mut host = host(&model());
    super::arrive(&mut host, us(100));
    super::run(&mut host, us(1_000));
    // Its ring was empty at 1 ms, and the frame came to another worker before.
    let handed = RxMeta::whole(us(900));
    host.handle_packet(us(1_000), PortId::HOST, &[0; 64], &handed);
    super::run(&mut host, us(2_000));
    let (_, meta) = *host.node().seen.last().unwrap();
    assert!(meta.earliest <= us(900) && meta.at >= us(900), "{meta:?}");
}
