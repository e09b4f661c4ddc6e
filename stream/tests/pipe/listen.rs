//! Listeners: what they reject and for how long they wait, and the limits of connections.

use super::*;

#[test]
fn connect__a_mismatch_is_rejected_with_the_reason() {
    let (a, b) = networks();
    let tagged = ConnectOptions { protocol: "chess/2".into(), ..ConnectOptions::default() };
    let listener = a.listen(0, tagged.clone()).unwrap();
    let address = loopback(&listener);
    let refused = |options: &ConnectOptions| b.connect(address, options).unwrap_err().to_string();
    assert!(refused(&ConnectOptions::default()).contains("chess/2"));
    let e = b.connect_stream(address, &tagged).unwrap_err().to_string();
    assert!(e.contains("byte stream"), "{e}");
    b.connect(address, &tagged).unwrap();
    let picky = a.listen(0, options(ModeChoice::Rc)).unwrap();
    let e = b.connect(loopback(&picky), &options(ModeChoice::Sr)).unwrap_err().to_string();
    assert!(e.contains("no wire mode in common"), "{e}");
    drop(picky);
    let nobody = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1);
    let e = b.connect(nobody, &ConnectOptions::default()).unwrap_err();
    assert!(matches!(e, SetupError::Io(..)), "{e}");
}

#[test]
fn listen__silent_clients_delay_no_other_and_the_longest_silent_is_dropped() {
    // Time ends none of these connections before the test does.
    let limits = Config { max_half_open_per_peer: 2, max_half_open: 2, ..patient() };
    for _ in 0..3 {
        let (a, b) = networks_with(&limits);
        let listener: Listener<Connection> = a.listen(0, ConnectOptions::default()).unwrap();
        let address = loopback(&listener);
        let silent = [(); 4].map(|()| Silent::new(address));
        // The first two have been silent for longer than the others, which have their places.
        until("the first are dropped", || {
            let ended = silent.each_ref().map(|one| one.end().is_some());
            (ended[0] && ended[1]).then_some(())
        });
        // It is rejected while the threads of dropped handshakes have not ended.
        until("a caller", || b.connect(address, &ConnectOptions::default()).ok());
        until("one more is dropped for the caller", || silent[2].end());
    }
}

#[test]
fn listen__the_handshake_timeout_ends_silent_clients() {
    let limits = Config { handshake_timeout: Duration::from_secs(2), ..patient() };
    let (a, _) = networks_with(&limits);
    let listener: Listener<Connection> = a.listen(0, ConnectOptions::default()).unwrap();
    let begin = Instant::now();
    let silent = Silent::new(loopback(&listener));
    let reply = until("it ends", || silent.end());
    assert!(reply.contains("said nothing"), "{reply}");
    assert!(begin.elapsed() >= Duration::from_secs(2), "{:?}", begin.elapsed());
}

/// A client that connects and sends nothing.
struct Silent(TcpStream, RefCell<Vec<u8>>);

impl Silent {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nonblocking(true).unwrap();
        Self(stream, RefCell::default())
    }

    /// The bytes of the listener if it has closed the connection.
    fn end(&self) -> Option<String> {
        let mut bytes = self.1.borrow_mut();
        match (&self.0).read_to_end(&mut bytes) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => None,
            _ => Some(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }
}

#[test]
fn listen__garbage_changes_nothing_for_others() {
    let (a, b) = networks();
    let listener = a.listen(0, ConnectOptions::default()).unwrap();
    let address = loopback(&listener);
    let hello = |ip: &str, more: &str| {
        format!(
            "{{\"type\":\"hello\",\"version\":3,\"carries\":\"messages\",\"ip\":\"{ip}\",\
             \"path_mtu\":1024,\"side_poll_port\":null,\"qp\":{{\"qpn\":7,\"psn\":7}},\"ring\":{{\
             \"va\":0,\"rkey\":0,\"bytes\":65536,\"fragment_bytes\":1024,\
             \"fragments\":16{more}}}}}\n"
        )
    };
    for (line, answer) in [
        ("\n".to_owned(), ""),
        ("{\"type\":\"ready\"}\n".to_owned(), ""),
        (hello("127.0.0.1", ""), ""),
        (hello("127.0.0.2", ",\"max_message_bytes\":1"), "127.0.0.2"),
        (hello("127.0.0.1", ",\"max_message_bytes\":0"), "longest message has 0 bytes"),
        (hello("127.0.0.1", ",\"max_message_bytes\":1").replace("1024", "999"), "path MTU"),
        (
            hello("127.0.0.1", ",\"max_message_bytes\":1").replace("1024", "4097"),
            "path MTU is 4097",
        ),
        (
            hello("127.0.0.1", ",\"max_message_bytes\":1").replace("qpn\":7", "qpn\":0"),
            "number is 0",
        ),
        (
            hello("127.0.0.1", ",\"max_message_bytes\":1").replace("qpn\":7", "qpn\":16777216"),
            "number is 16777216",
        ),
        (
            hello("127.0.0.1", ",\"max_message_bytes\":1").replace("psn\":7", "psn\":16777216"),
            "PSN is 16777216",
        ),
        (hello("127.0.0.1", ",\"max_message_bytes\":1").replace("65536", "1"), "ring"),
        (
            hello("127.0.0.1", ",\"max_message_bytes\":1").replace("version\":3", "version\":2"),
            "version 2",
        ),
    ] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LATE)).unwrap();
        stream.write_all(line.as_bytes()).unwrap();
        let mut reply = String::new();
        // The connection is reset if some bytes were not read.
        let _ = stream.read_to_string(&mut reply);
        assert!(reply.contains(answer), "{line} was answered {reply:?}");
    }
    b.connect(address, &ConnectOptions::default()).unwrap();
}

#[test]
fn closer__ends_a_blocked_accept_and_keeps_accepted_connections() {
    let (a, b) = networks();
    let listener: Listener<Connection> = a.listen(0, ConnectOptions::default()).unwrap();
    let mut caller = b.connect(loopback(&listener), &ConnectOptions::default()).unwrap();
    let mut accepted = listener.accept().unwrap();
    let closer = listener.closer();
    thread::scope(|scope| {
        let blocked = scope.spawn(|| listener.accept());
        thread::sleep(SOON);
        closer.close();
        assert!(matches!(blocked.join().unwrap(), Err(SetupError::ListenerClosed)));
    });
    assert!(matches!(listener.try_accept(), Err(SetupError::ListenerClosed)), "for good");
    accepted.send(b"still here").unwrap();
    assert_eq!(caller.recv().unwrap().as_deref(), Some(&b"still here"[..]));
}

#[test]
fn drop__of_a_listener_aborts_unaccepted_connections() {
    let (a, b) = networks();
    let listener = a.listen(0, ConnectOptions::default()).unwrap();
    assert!(is_readable(&listener, Duration::ZERO), "try once");
    assert!(listener.try_accept().unwrap().is_none());
    let mut caller = b.connect(loopback(&listener), &ConnectOptions::default()).unwrap();
    assert!(is_readable(&listener, LATE), "it can be accepted");
    drop(listener);
    let e = caller.recv_timeout(LATE).unwrap_err();
    assert!(e.to_string().contains("listener was closed"), "{e}");
}

#[test]
fn connect__connections_are_limited_and_counted_until_they_end() {
    let (a, b) = networks_with(&Config { max_connections: 2, ..patient() });
    // At this end, or at the other.
    let is_limit = |e: &SetupError| {
        let text = e.to_string();
        text.contains("max_connections") || text.contains("no room for one more connection")
    };
    // The places of the last round return when its connections have ended at both ends.
    let pair = || {
        until("a place", || match try_pair(&a, &b) {
            Ok(pair) => Some(pair),
            Err(e) => {
                assert!(is_limit(&e), "{e}");
                None
            }
        })
    };
    for _ in 0..3 {
        let (one, two) = (pair(), pair());
        let listener = a.listen(0, ConnectOptions::default()).unwrap();
        let e = b.connect(loopback(&listener), &ConnectOptions::default()).unwrap_err();
        assert!(is_limit(&e), "{e}");
        for connection in [one.0, one.1, two.0, two.1] {
            drop(connection);
        }
    }
}

#[test]
fn connect__connections_of_one_address_are_limited_for_as_long_as_they_are_held() {
    let (a, b) = networks_with(&Config { max_connections_per_peer: 2, ..patient() });
    for _ in 0..3 {
        let listener = a.listen(0, ConnectOptions::default()).unwrap();
        let address = loopback(&listener);
        let call = || b.connect(address, &ConnectOptions::default());
        let is_limit =
            |e: &SetupError| e.to_string().contains("too many connections of your address");
        let in_time = || {
            until("a place", || match call() {
                Ok(caller) => Some(caller),
                Err(e) => {
                    assert!(is_limit(&e), "{e}");
                    None
                }
            })
        };
        // The last connection of the round before counts until its listener has aborted it.
        let held = [in_time(), in_time()];
        let e = call().unwrap_err();
        assert!(is_limit(&e), "{e}");
        let mut accepted =
            [(); 2].map(|()| listener.accept_timeout(LATE).unwrap().expect("it called"));
        // The callers have closed; connections held by the listener's application still count.
        for caller in held {
            caller.abort("enough");
        }
        for connection in &mut accepted {
            let ended = connection.recv_timeout(LATE);
            assert!(matches!(ended, Err(Error::Lost(Cause::PeerAborted(_)))), "{ended:?}");
        }
        let e = call().unwrap_err();
        assert!(is_limit(&e), "{e}");
        drop(accepted);
        // The connection counts while it waits in the listener.
        drop(in_time());
    }
}

/// An address gets a share of memory, whatever the number of its connections may be.
#[test]
fn connect__rings_of_one_address_are_limited_until_their_connections_end() {
    let (mut a, b) = networks_with(&Config { max_ring_bytes_per_peer: 8 << 20, ..patient() });
    let listener: Listener<Connection> = a.listen(0, ConnectOptions::default()).unwrap();
    let call = || b.connect(loopback(&listener), &ConnectOptions::default());
    let is_limit = |e: &SetupError| e.to_string().contains("ask for smaller rings");
    let held = [call().unwrap(), call().unwrap()];
    let accepted = [(); 2].map(|()| listener.accept_timeout(LATE).unwrap().expect("it called"));
    let e = call().unwrap_err();
    assert!(is_limit(&e), "{e}");
    // Nothing remains of the rejected one, and the ended ones make room.
    drop((held, accepted));
    let _again = until("room", || match call() {
        Ok(caller) => Some(caller),
        Err(e) => {
            assert!(is_limit(&e), "{e}");
            // Without a worker nothing else handles the end of those connections.
            a.turn().unwrap();
            None
        }
    });
}

#[test]
fn listen__aborts_a_connection_that_is_not_accepted_in_time() {
    let accept_timeout = Duration::from_millis(1000);
    let (a, b) = networks_with(&Config { accept_timeout, ..patient() });
    let listener = a.listen(0, ConnectOptions::default()).unwrap();
    let call = || b.connect(loopback(&listener), &ConnectOptions::default()).unwrap();
    let begin = Instant::now();
    let mut late = [call(), call()];
    for caller in &mut late {
        let e = caller.recv_timeout(LATE).unwrap_err().to_string();
        assert!(e.contains("not accepted within 1s"), "{e}");
    }
    assert!(begin.elapsed() >= accept_timeout);
    assert!(listener.try_accept().unwrap().is_none(), "it is gone from the listener, too");
    // This thread may be too late to accept one, too: then the next.
    let (mut in_time, mut accepted) = until("one is accepted in time", || {
        let mut caller = call();
        let mut accepted: Connection = listener.accept_timeout(accept_timeout).unwrap()?;
        caller.send(b"hello").ok()?;
        let came = accepted.recv_timeout(accept_timeout).ok()??;
        (came == b"hello").then_some((caller, accepted))
    });
    thread::sleep(2 * accept_timeout);
    in_time.send(b"still here").unwrap();
    assert_eq!(accepted.recv().unwrap().as_deref(), Some(&b"still here"[..]));
}
