use super::*;
use crate::port::reserve;
use std::thread;
use std::time::Instant;

const NOW: Time = Time::from_ns(7);
const LONG: Duration = Duration::from_secs(120);

fn small(ring: usize, when_full: WhenFull) -> (PipePort, PipePort) {
    pipe(PipeConfig { ring, when_full, ..PipeConfig::default() })
}

/// Sends one frame of `len` bytes of `tag`; false if there is no slot.
fn send(port: &mut PipePort, tag: u8, len: usize) -> bool {
    let Some(mut slot) = reserve(port) else {
        return false;
    };
    slot.bytes()[..len].fill(tag);
    slot.commit(TxMeta::whole(len));
    port.flush(NOW).unwrap();
    true
}

fn receive(port: &mut PipePort, max: usize) -> Vec<(u8, usize)> {
    let mut got = Vec::new();
    let count = port.rx_burst(&NOW, max, &mut |frame, meta| {
        assert_eq!(meta.at, NOW);
        assert!(frame.iter().all(|b| *b == frame[0]));
        got.push((frame[0], frame.len()));
    });
    assert_eq!(count, got.len());
    got
}

#[test]
fn pipe__carries_frames_both_ways_in_order() {
    let (mut a, mut b) = pipe(PipeConfig::default());
    assert!(send(&mut a, 1, 60) && send(&mut a, 2, 4_352) && send(&mut b, 3, 100));
    assert_eq!(receive(&mut b, 64), [(1, 60), (2, 4_352)]);
    assert_eq!(receive(&mut a, 64), [(3, 100)]);
    assert_eq!(receive(&mut a, 64), []);
    assert_eq!(a.counters().tx_frames, 2);
    assert_eq!(b.counters().rx_frames, 2);
}

#[test]
fn pipe__carries_jumbo_frames_if_configured() {
    let (mut a, mut b) = pipe(PipeConfig { frame_room: 9_216, ..PipeConfig::default() });
    assert_eq!(a.frame_room(), 9_216);
    assert!(send(&mut a, 9, 9_216));
    assert_eq!(receive(&mut b, 1), [(9, 9_216)]);
}

#[test]
#[should_panic(expected = "ring of 0")]
fn pipe__rejects_an_empty_ring() {
    let _ = small(0, WhenFull::Drop);
}

#[test]
fn rx_burst__takes_no_more_than_the_maximum() {
    let (mut a, mut b) = small(8, WhenFull::BackPressure);
    for tag in 0..5 {
        assert!(send(&mut a, tag, 60));
    }
    assert_eq!(receive(&mut b, 2), [(0, 60), (1, 60)]);
    assert_eq!(receive(&mut b, 64).len(), 3);
}

#[test]
fn slot_take__is_none_while_the_ring_is_full() {
    let (mut a, mut b) = small(2, WhenFull::BackPressure);
    assert!(send(&mut a, 1, 60) && send(&mut a, 2, 60));
    assert!(!send(&mut a, 3, 60));
    assert_eq!(receive(&mut b, 1), [(1, 60)]);
    assert!(send(&mut a, 4, 60));
    assert_eq!(receive(&mut b, 64), [(2, 60), (4, 60)]);
    assert_eq!(a.counters().tx_dropped_full, 0);
}

#[test]
fn slot_take__drops_at_the_tail_if_configured() {
    let (mut a, mut b) = small(2, WhenFull::Drop);
    for tag in 1..=5 {
        assert!(send(&mut a, tag, 60));
    }
    assert_eq!(receive(&mut b, 64), [(1, 60), (2, 60)]);
    assert_eq!(a.counters().tx_dropped_full, 3);
    assert!(send(&mut a, 6, 60));
    assert_eq!(receive(&mut b, 64), [(6, 60)]);
}

#[test]
#[should_panic(expected = "only simulated links")]
fn commit__rejects_an_elided_frame() {
    let (mut a, _b) = pipe(PipeConfig::default());
    reserve(&mut a).unwrap().commit(TxMeta { elided_bytes: 1, ..TxMeta::whole(60) });
}

#[test]
fn slot_commit__leaves_with_the_flush() {
    let (mut a, mut b) = pipe(PipeConfig::default());
    reserve(&mut a).unwrap().commit(TxMeta::whole(60));
    assert_eq!(a.tx_pending(), 1);
    assert_eq!(receive(&mut b, 64), []);
    a.flush(NOW).unwrap();
    assert_eq!(a.tx_pending(), 0);
    assert_eq!(receive(&mut b, 64).len(), 1);
}

#[test]
#[should_panic(expected = "a frame of 4353 bytes in a buffer of 4352")]
fn slot_commit__panics_if_the_frame_exceeds_its_buffer() {
    let (mut a, _b) = pipe(PipeConfig::default());
    reserve(&mut a).unwrap().commit(TxMeta::whole(4_353));
}

#[test]
fn slot_release__returns_the_buffer() {
    for when_full in [WhenFull::BackPressure, WhenFull::Drop] {
        let (mut a, mut b) = small(1, when_full);
        for _ in 0..10 {
            drop(reserve(&mut a).expect("the only buffer was returned"));
        }
        assert!(send(&mut a, 1, 60));
        let scrap = reserve(&mut a);
        assert_eq!(scrap.is_some(), when_full == WhenFull::Drop);
        drop(scrap);
        assert_eq!(receive(&mut b, 64), [(1, 60)]);
        assert!(send(&mut a, 2, 60));
        assert_eq!(receive(&mut b, 64), [(2, 60)]);
    }
}

#[test]
fn flush__counts_frames_that_a_dropped_peer_does_not_receive() {
    let (mut a, b) = small(2, WhenFull::BackPressure);
    assert!(send(&mut a, 1, 60) && send(&mut a, 2, 60));
    drop(b);
    assert!(a.is_closed());
    for tag in 0..10 {
        assert!(send(&mut a, tag, 60), "a closed pipe never blocks");
    }
    // One of the two unread frames is taken back for its buffer, the other is still in the ring.
    assert_eq!(a.counters().tx_frames, 2);
    assert_eq!(a.counters().tx_dropped_closed, 11);
}

#[test]
fn rx_burst__still_delivers_what_a_dropped_peer_sent() {
    let (mut a, mut b) = pipe(PipeConfig::default());
    assert!(send(&mut b, 5, 60));
    drop(b);
    assert_eq!(receive(&mut a, 64), [(5, 60)]);
}

#[test]
fn wait__ends_with_a_frame_or_its_timeout() {
    let (mut a, mut b) = pipe(PipeConfig::default());
    let begin = Instant::now();
    a.wait(Duration::from_millis(10)).unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(10));
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(10));
            send(&mut b, 1, 60);
        });
        a.wait(LONG).unwrap();
    });
    assert!(begin.elapsed() < LONG);
    assert_eq!(receive(&mut a, 64).len(), 1);
}

#[test]
fn wait__of_a_starved_sender_ends_with_a_buffer() {
    let (mut a, mut b) = small(1, WhenFull::BackPressure);
    assert!(send(&mut a, 1, 60));
    assert!(!send(&mut a, 2, 60));
    let begin = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(10));
            receive(&mut b, 1);
        });
        a.wait(LONG).unwrap();
    });
    assert!(begin.elapsed() < LONG);
    assert!(send(&mut a, 2, 60));
}

#[test]
fn wait__of_a_starved_sender_ends_when_the_peer_is_dropped() {
    let (mut a, b) = small(1, WhenFull::BackPressure);
    assert!(send(&mut a, 1, 60));
    assert!(!send(&mut a, 2, 60));
    let begin = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(10));
            drop(b);
        });
        a.wait(LONG).unwrap();
    });
    assert!(begin.elapsed() < LONG);
    assert!(send(&mut a, 2, 60));
}

#[test]
fn pipe__keeps_every_frame_between_two_threads_that_sleep() {
    const FRAMES: u64 = 50_000;
    let (mut a, mut b) = small(4, WhenFull::BackPressure);
    thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..FRAMES {
                let slot = loop {
                    if let Some(token) = a.slot_take() {
                        break token;
                    }
                    let begin = Instant::now();
                    a.wait(LONG).unwrap();
                    assert!(begin.elapsed() < LONG, "a lost wake-up at {n}");
                };
                a.slot_bytes(&slot)[..8].copy_from_slice(&n.to_be_bytes());
                a.slot_commit(slot, TxMeta::whole(60));
                a.flush(NOW).unwrap();
            }
        });
        let mut next = 0;
        while next < FRAMES {
            let count = b.rx_burst(&NOW, 64, &mut |frame, _| {
                assert_eq!(frame[..8], next.to_be_bytes());
                next += 1;
            });
            if count == 0 {
                let begin = Instant::now();
                b.wait(LONG).unwrap();
                assert!(begin.elapsed() < LONG, "a lost wake-up at {next}");
            }
        }
    });
}
