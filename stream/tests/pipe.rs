//! Two networks in one process, with ports back to back and side connections over loopback. This
//! covers everything but AF_XDP, without privileges. `pipe_worker.rs` and `pipe_inline.rs` run
//! the same tests in the other modes of progress.
#![expect(non_snake_case, reason = "tests are named function__case")]

// The path is also right where another test includes this file.
#[path = "pipe/listen.rs"]
mod listen;

use spanwire_stream::fabric::{Attachment, Wrap};
use spanwire_stream::{
    Cause, Config, ConnectOptions, Connection, Error, Listener, ModeChoice, Network,
    NetworkOptions, Progress, SetupError, WireMode,
};
use spanwire_transport::CongestionControl;
use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake};
use std::thread;
use std::time::{Duration, Instant};

/// Only a hang takes so long.
const LATE: Duration = Duration::from_secs(120);
const SOON: Duration = Duration::from_millis(50);

/// Limits that a connection keeps on a busy machine, where a worker may have no core for seconds: a
/// minute for a handshake, and the longest retransmission timeout.
fn patient() -> Config {
    Config { handshake_timeout: Duration::from_secs(60), timeout: 20, ..Config::default() }
}

/// The result of `attempt` once there is one. `what` is the expected event.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LATE;
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(Instant::now() < deadline, "not in {LATE:?}: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn progress() -> Progress {
    match env!("CARGO_CRATE_NAME") {
        "pipe_worker" => Progress::Worker,
        "pipe_inline" => Progress::Inline,
        _ => Progress::default(),
    }
}

/// True if an end moves while no call is made on it. A test in which one thread calls both ends in
/// turn needs that; `inline.rs` has such tests without.
fn moves_between_calls() -> bool {
    progress() != Progress::Inline
}

fn networks_with(config: &Config) -> (Network, Network) {
    let wrap = Wrap::default();
    let (a, b) = Attachment::pipe([&wrap, &wrap]).expect("a pipe needs only memory");
    let open = |attachment| {
        let config = config.clone().validate().expect("within the limits");
        let options = NetworkOptions { config, progress: progress(), ..NetworkOptions::default() };
        Network::over(attachment, "lo", options).expect("threads and descriptors")
    };
    (open(a), open(b))
}

fn networks() -> (Network, Network) {
    networks_with(&Config {
        ring_bytes: 64 << 10,
        fragment_bytes: 16 << 10,
        max_message_bytes: 40_000,
        ..patient()
    })
}

fn loopback<C>(listener: &Listener<C>) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), listener.local_addr().port())
}

fn options(mode: ModeChoice) -> ConnectOptions {
    ConnectOptions { mode, ..ConnectOptions::default() }
}

fn pair(a: &Network, b: &Network) -> (Connection, Connection) {
    try_pair(a, b).unwrap()
}

fn try_pair(a: &Network, b: &Network) -> Result<(Connection, Connection), SetupError> {
    let listener = a.listen(0, ConnectOptions::default())?;
    let caller = b.connect(loopback(&listener), &ConnectOptions::default())?;
    Ok((listener.accept_timeout(LATE)?.expect("it called"), caller))
}

#[test]
fn congestion__is_that_of_each_connection_open_or_ended() {
    if !moves_between_calls() {
        return;
    }
    let none = Some(CongestionControl::NONE);
    for congestion in [None, none] {
        let (a, b) = networks_with(&Config { congestion, ..patient() });
        let (mut taker, mut giver) = pair(&a, &b);
        let qpn = giver.about().qpn;
        for n in 0..50 {
            giver.send(&[n; 20_000]).unwrap();
            assert_eq!(taker.recv().unwrap().expect("a message").len(), 20_000);
        }
        let check = || {
            let all = b.congestion();
            assert_eq!(all.iter().map(|of| of.qpn).collect::<Vec<_>>(), [qpn]);
            let report = &all[0].report;
            if congestion == none {
                assert_eq!((&*report.configured.name, report.signals), ("none", None));
                return;
            }
            let signals = report.signals.expect("auto has signals");
            assert_eq!((&*report.configured.name, signals.chosen), ("auto", "delay"));
            assert!(
                signals.base_rtt_us > Some(0.0) && signals.target_us > Some(0.0),
                "{signals:?}"
            );
        };
        check();
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(taker.recv(), Ok(None)));
            giver.close(LATE).unwrap();
        });
        drop(taker);
        check();
    }
}

#[test]
fn connect__echoes_messages_in_either_mode_and_closes_in_order() {
    let (a, b) = networks();
    for (wanted, got) in [
        (ModeChoice::Auto, WireMode::Sr),
        (ModeChoice::Rc, WireMode::Rc),
        (ModeChoice::Sr, WireMode::Sr),
    ] {
        let listener = a.listen(0, options(ModeChoice::Auto)).unwrap();
        let address = loopback(&listener);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut peer = listener.accept().unwrap();
                assert_eq!(peer.mode(), got);
                let mut message = Vec::new();
                while peer.receiver().recv_into(&mut message).unwrap() {
                    peer.send(&message).unwrap();
                }
                peer.close(LATE).unwrap();
            });
            let mut echo = b.connect(address, &options(wanted)).unwrap();
            assert_eq!((echo.mode(), echo.max_message_bytes()), (got, 40_000));
            for len in [0, 1, 1000, 40_000, 39_999] {
                let message: Vec<u8> = (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect();
                echo.send(&message).unwrap();
                assert!(echo.recv().unwrap() == Some(message), "{len}");
            }
            let too_long = echo.send(&[0; 40_001]);
            assert_eq!(too_long, Err(Error::TooLong { bytes: 40_001, max: 40_000 }));
            echo.sender().finish();
            assert_eq!(echo.recv().unwrap(), None, "the other end finished, too");
            echo.close(LATE).unwrap();
        });
    }
    for network in [a, b] {
        network.shutdown(LATE).unwrap();
    }
}

#[test]
fn connect_stream__carries_bytes_both_ways_at_once() {
    let (a, b) = networks();
    let listener = a.listen_stream(0, ConnectOptions::default()).unwrap();
    let caller = b.connect_stream(loopback(&listener), &ConnectOptions::default()).unwrap();
    let callee = listener.accept_timeout(LATE).unwrap().expect("it called");
    let mut data = vec![0; 5_000_000];
    spanwire_base::Rng::new(3).fill(&mut data);
    let data = &data;
    thread::scope(|scope| {
        for stream in [caller, callee] {
            let (mut writer, mut reader) = stream.split();
            scope.spawn(move || {
                for piece in data.chunks(777) {
                    writer.write_all(piece).unwrap();
                }
                writer.finish();
                writer.drained(LATE).unwrap();
            });
            scope.spawn(move || {
                let mut got = Vec::new();
                reader.read_to_end(&mut got).unwrap();
                assert!(got == *data);
            });
        }
    });
}

#[test]
fn send__blocks_until_the_receiver_takes_data() {
    if !moves_between_calls() {
        return;
    }
    let (a, b) = networks();
    let (mut taker, mut giver) = pair(&a, &b);
    let message = vec![7; 10_000];
    let mut sent = 0;
    let e = loop {
        match giver.sender().send_timeout(&message, SOON) {
            Ok(()) => sent += 1,
            Err(e) => break e,
        }
    };
    assert_eq!((sent, e), (6, Error::TimedOut(SOON)), "64 KiB hold six");
    assert_eq!(giver.sender().try_send(&message), Err(Error::WouldBlock));
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(SOON);
            for _ in 0..7 {
                assert!(taker.recv().unwrap() == Some(message.clone()));
            }
        });
        giver.send(&message).unwrap();
    });
}

#[test]
fn recv_timeout__ends_in_time_and_loses_nothing() {
    let (a, b) = networks();
    let (mut taker, mut giver) = pair(&a, &b);
    assert_eq!(taker.recv_timeout(SOON), Err(Error::TimedOut(SOON)));
    giver.send(b"late").unwrap();
    assert_eq!(taker.recv_timeout(LATE).unwrap().as_deref(), Some(&b"late"[..]));
}

/// A waker that unparks a thread and counts.
struct Unpark(thread::Thread, AtomicUsize);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.unpark();
    }
}

/// Runs a task to completion, as a runtime does. Returns the number of wake-ups. `pending` counts
/// how often the task was not ready.
fn block_on<T>(
    pending: &AtomicUsize,
    mut task: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> (T, usize) {
    let unpark = Arc::new(Unpark(thread::current(), AtomicUsize::new(0)));
    let waker = unpark.clone().into();
    let deadline = Instant::now() + LATE;
    loop {
        if let Poll::Ready(done) = task(&mut Context::from_waker(&waker)) {
            return (done, unpark.1.load(Ordering::Relaxed));
        }
        pending.fetch_add(1, Ordering::SeqCst);
        assert!(Instant::now() < deadline, "the task was not woken");
        thread::park_timeout(LATE);
    }
}

#[test]
fn poll_recv__wakes_its_task() {
    if !moves_between_calls() {
        return;
    }
    let (a, b) = networks();
    let listener = a.listen(0, ConnectOptions::default()).unwrap();
    let [accepting, receiving, other] = [(); 3].map(|()| AtomicUsize::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            // Each event is after its task has found that it must wait.
            let waits = |pending: &AtomicUsize| {
                until("a task waits", || (pending.load(Ordering::SeqCst) > 0).then_some(()));
            };
            waits(&accepting);
            let mut giver = b.connect(loopback(&listener), &ConnectOptions::default()).unwrap();
            waits(&receiving);
            giver.send(b"hello").unwrap();
            let (sent, _) = block_on(&other, |cx| giver.sender().poll_send(cx, b"again"));
            sent.unwrap();
            giver.sender().finish();
            block_on(&other, |cx| giver.sender().poll_drained(cx)).0.unwrap();
        });
        let (accepted, woken) = block_on(&accepting, |cx| listener.poll_accept(cx));
        assert!(woken > 0);
        let mut taker = accepted.unwrap();
        let mut got = Vec::new();
        let (came, woken) = block_on(&receiving, |cx| taker.receiver().poll_recv(cx, &mut got));
        assert!(came.unwrap() && woken > 0);
        assert_eq!(got, b"hello");
        assert!(block_on(&other, |cx| taker.receiver().poll_recv(cx, &mut got)).0.unwrap());
        assert_eq!(got, b"again");
        assert!(!block_on(&other, |cx| taker.receiver().poll_recv(cx, &mut got)).0.unwrap());
    });
}

fn is_readable(what: &impl AsFd, timeout: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(what, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap(),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    poll(&mut fds, Some(&timeout)).unwrap() == 1
}

#[test]
fn as_fd__is_readable_when_a_try_may_succeed() {
    if !moves_between_calls() {
        return;
    }
    let (a, b) = networks();
    let (mut taker, mut giver) = pair(&a, &b);
    assert!(is_readable(taker.receiver(), Duration::ZERO), "try once");
    assert_eq!(taker.receiver().try_recv(), Err(Error::WouldBlock));
    assert!(!is_readable(taker.receiver(), SOON));
    giver.send(b"x").unwrap();
    assert!(is_readable(taker.receiver(), LATE));
    assert_eq!(taker.receiver().try_recv().unwrap().as_deref(), Some(&b"x"[..]));
    assert!(is_readable(giver.sender(), Duration::ZERO), "try once");
    let mut sent = 0;
    while giver.sender().try_send(&[0; 8000]).is_ok() {
        sent += 1;
    }
    assert!(sent > 0 && !is_readable(giver.sender(), SOON), "{sent}");
    for _ in 0..sent {
        assert!(taker.receiver().recv_timeout(LATE).unwrap().is_some());
    }
    // The room returns in parts, each of which makes it readable.
    until("there is room", || {
        assert!(is_readable(giver.sender(), LATE));
        giver.sender().try_send(&[0; 8000]).ok()
    });
}

#[test]
fn abort__sends_its_reason_to_the_other_end() {
    let (a, b) = networks();
    let (mut taker, giver) = pair(&a, &b);
    giver.abort("no more \u{1b}[31mred");
    let aborted = Error::Lost(Cause::PeerAborted("no more \\u{1b}[31mred".into()));
    assert_eq!(taker.recv(), Err(aborted.clone()));
    assert_eq!(taker.send(b"x"), Err(aborted));
}

#[test]
fn abort__at_once_sends_its_reason_too() {
    let (a, b) = networks();
    let listener = a.listen(0, ConnectOptions::default()).unwrap();
    let aborted = Error::Lost(Cause::PeerAborted("wrong door".into()));
    // The worker may handle the abort before it has the side connection.
    for n in 0..200 {
        let caller = b.connect(loopback(&listener), &ConnectOptions::default()).unwrap();
        let accepted = listener.accept_timeout(LATE).unwrap().expect("it called");
        let (first, mut other) = if n % 2 == 0 { (accepted, caller) } else { (caller, accepted) };
        first.abort("wrong door");
        assert_eq!(other.recv_timeout(LATE), Err(aborted.clone()), "connection {n}");
    }
}

#[test]
fn drop__delivers_what_was_sent_and_close_waits_for_it() {
    let (a, b) = networks();
    let (mut taker, mut giver) = pair(&a, &b);
    giver.send(b"one").unwrap();
    drop(giver);
    thread::sleep(SOON);
    assert_eq!(taker.recv().unwrap().as_deref(), Some(&b"one"[..]));
    assert_eq!(taker.recv().unwrap(), None);
    let (mut taker, mut giver) = pair(&a, &b);
    giver.send(b"two").unwrap();
    let takes = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(SOON);
            takes.store(true, Ordering::SeqCst);
            assert_eq!(taker.recv().unwrap().as_deref(), Some(&b"two"[..]));
            assert_eq!(taker.recv().unwrap(), None);
        });
        giver.close(LATE).unwrap();
        assert!(takes.load(Ordering::SeqCst), "it waits for the other application");
    });
    drop(taker);
    let (_taker, mut giver) = pair(&a, &b);
    giver.send(b"three").unwrap();
    assert_eq!(giver.close(SOON), Err(Error::TimedOut(SOON)));
}

#[test]
fn close__of_one_end_is_the_end_of_the_other_and_no_error() {
    let (a, b) = networks();
    let (mut server, mut client) = pair(&a, &b);
    client.send(b"question").unwrap();
    assert!(server.recv().unwrap().is_some());
    server.send(b"answer").unwrap();
    assert!(client.recv().unwrap().is_some());
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(server.recv().unwrap(), None));
        client.close(LATE).unwrap();
    });
    // As if its process had ended.
    b.shutdown(Duration::ZERO).unwrap();
    thread::sleep(SOON);
    server.close(LATE).unwrap();
}

#[test]
fn shutdown__ends_open_connections_with_a_cause() {
    let (a, b) = networks();
    let (mut taker, mut giver) = pair(&a, &b);
    b.shutdown(Duration::ZERO).unwrap();
    assert!(matches!(giver.send(b"x"), Err(Error::Lost(Cause::NetworkGone(_)))));
    assert!(matches!(taker.recv(), Err(Error::Lost(Cause::PeerAborted(_)))));
}

#[test]
fn connect__congestion_control_is_that_of_the_connection() {
    let (a, b) = networks();
    let listener: Listener<Connection> = a.listen(0, ConnectOptions::default()).unwrap();
    let congestion = Some(CongestionControl::NONE);
    let options = ConnectOptions { congestion, ..ConnectOptions::default() };
    let _caller = b.connect(loopback(&listener), &options).unwrap();
    let _accepted = listener.accept().unwrap();
    let names = |network: &Network| {
        let all = network.congestion();
        all.into_iter().map(|of| of.report.configured.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!([names(&a), names(&b)], [["auto"], ["none"]], "each end chooses its own");
}

#[test]
fn idle_timeout__ends_a_silent_connection_and_no_other() {
    let idle_timeout = Duration::from_secs(2);
    let (a, b) = networks_with(&Config { idle_timeout: Some(idle_timeout), ..patient() });
    // The last time before a packet of the connection; its handshake is the first.
    let (mut last, (mut taker, mut giver)) = until("a pair", || {
        let now = Instant::now();
        try_pair(&a, &b).ok().map(|pair| (now, pair))
    });
    let begin = Instant::now();
    while begin.elapsed() < 2 * idle_timeout {
        let now = Instant::now();
        // If this thread is late, the connection may end here. It must have been idle then, too.
        let sent = giver.send(b"busy").and_then(|()| taker.recv_timeout(LATE));
        let Ok(came) = sent else { break };
        assert!(came.is_some());
        last = now;
        thread::sleep(SOON);
    }
    for end in [taker.recv_timeout(LATE), giver.recv_timeout(LATE)] {
        let e = end.unwrap_err().to_string();
        assert!(e.contains("idle_timeout"), "{e}");
    }
    assert!(last.elapsed() >= idle_timeout, "{:?}", last.elapsed());
}
