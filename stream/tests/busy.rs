//! Callers of a listener that has too many handshakes for now.
#![expect(non_snake_case, reason = "tests are named function__case")]

mod common;

use common::{address, networks};
use spanwire_stream::{ConnectOptions, Connection, Progress, SetupError};
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const BUSY: &str =
    r#"{"type":"reject","reason":"too many connections are being set up there","busy":true}"#;

/// Carries bytes between two TCP connections until both directions have ended.
fn relay(a: &TcpStream, b: &TcpStream) {
    thread::scope(|threads| {
        for (mut from, mut to) in [(a, b), (b, a)] {
            threads.spawn(move || {
                // An error is the end of the direction, too.
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
        }
    });
}

#[test]
fn connect__tries_a_busy_listener_again() {
    let [a, b] = networks(Progress::Shared);
    let listener = a.listen(0, ConnectOptions::default()).unwrap();
    let behind = address(&listener);
    let front = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = front.local_addr().unwrap();
    let relaying = thread::spawn(move || {
        for _ in 0..3 {
            // Without reading the hello, which the kernel may answer by a reset.
            let mut caller = front.accept().unwrap().0;
            writeln!(caller, "{BUSY}").unwrap();
        }
        relay(&front.accept().unwrap().0, &TcpStream::connect(behind).unwrap());
    });
    let mut caller = b.connect(to, &ConnectOptions::default()).unwrap();
    let mut peer: Connection = listener.accept().unwrap();
    caller.send(b"hello").unwrap();
    assert_eq!(peer.recv().unwrap().as_deref(), Some(&b"hello"[..]));
    drop((caller, peer, listener, a, b));
    relaying.join().unwrap();
}

/// The listener itself drops the handshake of a caller for newer connections of the same address,
/// twice, before the caller has said anything.
#[test]
fn connect__has_its_turn_although_silent_connections_drop_its_handshake() {
    let [a, b] = networks(Progress::Shared);
    let listener = a.listen(0, ConnectOptions::default()).unwrap();
    let behind = address(&listener);
    let front = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = front.local_addr().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let relaying = thread::spawn(move || {
        for attempt in 0.. {
            let caller = front.accept().unwrap().0;
            if over.load(Ordering::Acquire) {
                return;
            }
            let there = TcpStream::connect(behind).unwrap();
            let mut silent = Vec::new();
            if attempt < 2 {
                there.set_nonblocking(true).unwrap();
                while there.peek(&mut [0]).is_err_and(|e| e.kind() == ErrorKind::WouldBlock) {
                    silent.push(TcpStream::connect(behind).unwrap());
                    thread::sleep(Duration::from_millis(1));
                }
                there.set_nonblocking(false).unwrap();
            }
            relay(&caller, &there);
        }
    });
    let caller = b.connect(to, &ConnectOptions::default());
    is_over.store(true, Ordering::Release);
    let mut caller = caller.expect("the listener is only busy");
    let mut peer: Connection = listener.accept().unwrap();
    caller.send(b"hello").unwrap();
    assert_eq!(peer.recv().unwrap().as_deref(), Some(&b"hello"[..]));
    drop((caller, peer, listener, a, b));
    // Ends the relay, which waits for the next caller.
    TcpStream::connect(to).unwrap();
    relaying.join().unwrap();
}

#[test]
fn connect__gives_a_listener_up_that_stays_busy_and_says_so() {
    let [_a, b] = networks(Progress::Shared);
    let front = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = front.local_addr().unwrap();
    let tries = thread::spawn(move || {
        // The connection that ends the count sends no hello but a line end.
        (0..100)
            .take_while(|_| {
                let mut caller = front.accept().unwrap().0;
                let _ = writeln!(caller, "{BUSY}");
                caller.peek(&mut [0; 2]).is_ok_and(|count| count == 2)
            })
            .count()
    });
    let error = b.connect(to, &ConnectOptions::default()).unwrap_err();
    assert!(matches!(error, SetupError::Busy(_)), "{error}");
    assert!(error.to_string().contains("too many connections are being set up there"), "{error}");
    TcpStream::connect(to).unwrap().write_all(b"\n").unwrap();
    assert_eq!(tries.join().unwrap(), 7);
}
