//! The examples' services, over a pipe.
#![expect(non_snake_case, reason = "tests are named function__case")]
#![allow(dead_code, reason = "their main functions need an interface")]

#[path = "../examples/inline.rs"]
mod inline;
#[path = "../examples/kv.rs"]
mod kv;

use spanwire_stream::fabric::{Attachment, Wrap};
use spanwire_stream::{ConnectOptions, Connection, Listener, Network, NetworkOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Only a hang takes so long.
const LATE: Duration = Duration::from_secs(120);

fn networks(options: [NetworkOptions; 2]) -> [Network; 2] {
    let wrap = Wrap::default();
    let (a, b) = Attachment::pipe([&wrap, &wrap]).expect("a pipe needs only memory");
    let mut ends = [a, b].into_iter();
    options.map(|options| Network::over(ends.next().expect("two"), "lo", options).unwrap())
}

fn address(listener: &Listener<Connection>) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), listener.local_addr().port())
}

#[test]
fn kv__every_get_has_its_value() {
    let [a, b] = networks([NetworkOptions::default(), NetworkOptions::default()]);
    let listener = a.listen(0, ConnectOptions::default()).unwrap();
    let (to, closer) = (address(&listener), listener.closer());
    thread::scope(|scope| {
        scope.spawn(move || kv::serve(&listener).unwrap());
        let mut server = b.connect(to, &ConnectOptions::default()).unwrap();
        for outstanding in [1, 16] {
            kv::load(&mut server, 500, outstanding).unwrap();
        }
        server.close(LATE).unwrap();
        closer.close();
    });
}

#[test]
fn kv__answers_what_is_no_request() {
    let store = RwLock::default();
    for request in [&b""[..], b"X", b"P", b"P\x05four"] {
        assert_eq!(kv::answer(request, &store), [3], "{request:?}");
    }
    assert_eq!(kv::answer(b"Gkey", &store), [1]);
    assert_eq!(kv::answer(b"P\x03keyvalue", &store), [0]);
    assert_eq!(kv::answer(b"Gkey", &store), b"\0value");
}

#[test]
fn inline__one_thread_echoes_to_all_clients() {
    let [mut a, b] = networks([inline::options(), NetworkOptions::default()]);
    let listener = a.listen(0, ConnectOptions::default()).unwrap();
    let (to, is_over) = (address(&listener), AtomicBool::new(false));
    thread::scope(|scope| {
        let (is_over, b) = (&is_over, &b);
        let clients = scope.spawn(move || {
            thread::scope(|scope| {
                for n in 0..4_u8 {
                    scope.spawn(move || {
                        let mut echo = b.connect(to, &ConnectOptions::default()).unwrap();
                        for len in [0, 1, 5000, 300_000] {
                            echo.send(&vec![n; len]).unwrap();
                            assert!(echo.recv().unwrap() == Some(vec![n; len]), "{len}");
                        }
                        echo.close(LATE).unwrap();
                    });
                }
            });
            is_over.store(true, Ordering::Relaxed);
        });
        inline::serve(&mut a, &listener, || is_over.load(Ordering::Relaxed)).unwrap();
        clients.join().unwrap();
    });
}
