use super::*;
use crate::pipe::{PipeConfig, PipePort, pipe};
use spanwire_base::{PortId, PortMask, RxMeta, Time, TxMeta};
use std::time::Instant;

/// A node that adds numbers until it is stopped.
#[derive(Default)]
struct Adder {
    sum: u64,
    rings: u64,
    stopped: bool,
    ended: Arc<std::sync::Mutex<String>>,
}

impl Node for Adder {
    fn handle_packet(&mut self, _: Time, _: PortId, frame: &[u8], _: &RxMeta) {
        self.sum += frame.len() as u64;
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_transmit(&mut self, _: Time, _: PortId, _: &mut [u8]) -> Option<TxMeta> {
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn take_ready(&mut self) -> PortMask {
        PortMask::EMPTY
    }

    fn handle_ring(&mut self) {
        self.rings += 1;
    }

    fn is_finished(&self) -> bool {
        self.stopped
    }

    fn end(&mut self, why: &str) {
        why.clone_into(&mut self.ended.lock().unwrap());
    }
}

fn adder(progress: Progress) -> (Arc<Worker<Adder, PipePort>>, PipePort) {
    let (port, peer) = pipe(PipeConfig::default());
    let bell = bell(progress).unwrap();
    let made = worker(bell, Adder::default(), port, Clock::start(), Polling::Adaptive);
    (Arc::new(made.unwrap()), peer)
}

fn send(peer: &mut PipePort, bytes: usize) {
    let slot = crate::port::reserve(peer).unwrap();
    slot.commit(TxMeta::whole(bytes));
    peer.flush(Time::ZERO).unwrap();
}

#[test]
fn submit__runs_in_the_caller_in_each_way_of_progress_until_the_end() {
    for progress in [Progress::Inline, Progress::Shared, Progress::Worker] {
        let (worker, mut peer) = adder(progress);
        let thread = (progress != Progress::Inline).then(|| {
            let driven = worker.clone();
            spawn("adder", move || driven.work()).unwrap()
        });
        let caller = thread::current().id();
        for n in 1..=10 {
            let by = worker.submit(|adder| {
                adder.sum += n;
                thread::current().id()
            });
            assert_eq!(by, Some(caller), "{progress:?}");
        }
        send(&mut peer, 45);
        let late = Instant::now() + Duration::from_secs(60);
        let sum = worker.wait_for(Some(late), |core| Some(core.node.sum).filter(|n| *n > 55));
        assert_eq!(sum, Some(100), "{progress:?}: a frame of 45 bytes came");
        let rings = worker.with(|adder| adder.rings).unwrap();
        assert!(rings <= 10, "{progress:?}: a ring or less for each call: {rings}");
        assert!(worker.with_engine(|core| core.driver().steps).unwrap() > 0);
        let ended = worker.submit(|adder| {
            adder.stopped = true;
            adder.ended.clone()
        });
        assert_eq!(worker.wait_for(None, |_| None::<()>), None, "{progress:?}");
        assert_eq!(*ended.unwrap().lock().unwrap(), "it was shut down");
        if let Some(thread) = thread {
            thread.join().unwrap();
        }
        assert_eq!((worker.with(|_| ()), worker.why()), (None, None));
        worker.publish();
        worker.pause(None);
        assert!(!worker.turn() && worker.has_ended());
    }
}

#[test]
fn wait_for__nothing_until_the_deadline() {
    for progress in [Progress::Inline, Progress::Shared] {
        let (worker, _peer) = adder(progress);
        let soon = Instant::now() + Duration::from_millis(20);
        assert_eq!(worker.wait_for(Some(soon), |_| None::<()>), None);
        assert!(Instant::now() >= soon && !worker.has_ended());
    }
}

#[test]
fn map__keeps_everything_but_the_node() {
    let (worker, mut peer) = adder(Progress::Inline);
    let worker = Arc::into_inner(worker).unwrap();
    let worker = worker
        .map(|core| HereOnly::new(core.into_inner().with_node(|adder| Adder { sum: 7, ..adder })));
    send(&mut peer, 60);
    assert_eq!(worker.wait_for(None, |core| Some(core.node.sum).filter(|n| *n > 7)), Some(67));
}

#[test]
fn with__in_a_forked_process_has_no_effect() {
    let (worker, _peer) = adder(Progress::Inline);
    let child = crate::fork::in_child(|| {
        worker.publish();
        let is_gone = worker.with(|_| ()).is_none() && !worker.turn() && worker.has_ended();
        is_gone && worker.why().is_some_and(|why| why.contains("forked"))
    });
    assert!(child.unwrap());
    assert_eq!(worker.with(|adder| adder.rings), Some(0));
}

#[test]
fn turn_of_poller__takes_the_lead_from_the_worker_and_returns_it() {
    let (worker, mut peer) = adder(Progress::Shared);
    let thread = worker.clone();
    let thread = spawn("worker", move || thread.work()).unwrap();
    let sum = || worker.with(|adder| adder.sum).unwrap();
    for n in 1..=3 {
        // No thread calls: the worker leads after a tick or two, and takes the frame.
        let before = sum();
        send(&mut peer, 50);
        let stands_in = (0..10_000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            sum() == before + 50
        });
        assert!(stands_in, "round {n}");
        send(&mut peer, 40);
        let polled = (0..10_000).any(|_| {
            worker.turn_of_poller();
            sum() == before + 90
        });
        assert!(polled, "round {n}");
    }
    worker.end("the test is over");
    thread.join().unwrap();
}

#[test]
fn spawn__the_thread_takes_no_signal_of_the_program() {
    let blocked = || {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim();
        u64::from_str_radix(line, 16).unwrap()
    };
    let before = blocked();
    let (sender, receiver) = std::sync::mpsc::channel();
    spawn("signals", move || sender.send(blocked()).unwrap()).unwrap().join().unwrap();
    // All but SIGKILL, SIGSTOP and the two that the C library keeps for itself.
    let kept = [libc::SIGKILL, libc::SIGSTOP, 32, 33].iter().map(|n| 1 << (n - 1)).sum::<u64>();
    assert_eq!(receiver.recv().unwrap() | kept, u64::MAX);
    assert_eq!(blocked(), before);
}

#[test]
fn wait_for__those_that_wait_see_what_another_one_took() {
    let (worker, _peer) = adder(Progress::Shared);
    let late = Instant::now() + Duration::from_secs(60);
    let wait_for =
        |sum| worker.wait_for(Some(late), move |core| (core.node.sum >= sum).then_some(()));
    let take = |sum| {
        worker.wait_for(None, move |core| {
            core.node.sum = sum;
            Some(())
        })
    };
    thread::scope(|scope| {
        // One of them leads; the other sleeps until it is woken.
        let waits: Vec<_> = [2, 1].map(|sum| scope.spawn(move || wait_for(sum))).into();
        for sum in [1, 2] {
            thread::sleep(Duration::from_millis(20));
            assert_eq!(take(sum), Some(()));
        }
        assert!(waits.into_iter().all(|wait| wait.join().unwrap() == Some(())));
    });
    assert!(Instant::now() < late, "found at the deadline only");
}
