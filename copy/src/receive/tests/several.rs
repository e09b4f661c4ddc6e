//! Copies over several connections.

use super::*;

/// The result of a receiver that grants two connections, and its session. `script` is its sender,
/// which passes further connections to it by the channel, and the token.
fn against_two(
    into: &Path,
    script: impl FnOnce(&mut Wire, &Sender<Connection>, &mut Hostile<'_>, &str),
) -> (Result<(), String>, Session) {
    let mut wire = Wire::new();
    let (ours, theirs) = wire.pair();
    let root = DestDir::open(into).unwrap();
    let (session, its_own) = (Session::new(false), Session::new(false));
    let grant = Grant { connections: 2, ..Grant::default() };
    let (accepted, arrivals) = channel();
    let received = thread::scope(|scope| {
        let (root, session) = (&root, &session);
        let receiving = scope.spawn(move || {
            receive(ours, root, grant, session, || arrivals.try_recv().ok(), |_| {})
        });
        let (sender, receiver) = theirs.split();
        let (send_half, receive_half) =
            (SendHalf::new(sender, &its_own), ReceiveHalf::new(receiver));
        let mut hostile = Hostile { receive_half, send_half, next: 0 };
        hostile.send_half.send(&declaration(5)).unwrap();
        let Message::Accept(Accept { connections: 2, token, .. }) = hostile.recv() else {
            panic!("no accept of two connections")
        };
        script(&mut wire, &accepted, &mut hostile, &token);
        hostile.send_half.reject("gone for lunch");
        receiving.join().unwrap()
    });
    (received.map_err(|e| e.to_string()), session)
}

/// A connection to the receiver whose first message is this.
fn joining(wire: &mut Wire, accepted: &Sender<Connection>, first: &Message) -> Connection {
    let (ours, mut theirs) = wire.pair();
    accepted.send(ours).unwrap();
    theirs.send(&serde_json::to_vec(first).unwrap()).unwrap();
    theirs
}

fn is_rejected_as_busy(connection: Connection) {
    let heard = ReceiveHalf::new(connection.split().1).recv(LATE);
    assert!(matches!(&heard, Err(End::PeerAborted(why)) if why.contains("busy")), "{heard:?}");
}

#[test]
fn receive__files_over_several_connections_are_whole() {
    let (from, mut wire) = (TempDir::new(), Wire::new());
    let paths: Vec<_> = (0..9u32).map(|n| from.path().join(n.to_string())).collect();
    for (n, path) in (0..9u32).zip(&paths) {
        // From nothing to ten chunks, so that files begin on any connection.
        let bytes: Vec<u8> = (0..n * 77_777).flat_map(|word| (word ^ n).to_le_bytes()).collect();
        fs::write(path, bytes).unwrap();
    }
    let paths: Vec<_> = paths.iter().map(|path| &**path).collect();
    for connections in [[3, 3], [3, 1], [1, 3], [2, 16]] {
        let into = TempDir::new();
        let (sender, receiver) = copy_over(&mut wire, connections, &paths, into.path(), false);
        let ended = (sender.outcome(), receiver.outcome());
        assert_eq!(ended, (Some(End::Complete), Some(End::Complete)), "{connections:?}");
        for path in &paths {
            let copied = fs::read(into.path().join(path.file_name().unwrap())).unwrap();
            assert!(copied == fs::read(path).unwrap(), "{connections:?}: {path:?}");
        }
        assert_eq!(receiver.ledger().rows.len(), 9);
        let agreed = [&sender, &receiver].map(|it| it.progress.connections.load(Ordering::Relaxed));
        assert_eq!(agreed, [connections[0].min(connections[1]); 2]);
        assert!(receiver.gaps().is_some());
    }
}

#[test]
fn receive__a_further_connection_needs_the_token_and_a_free_place() {
    let into = TempDir::new();
    let (received, session) = against_two(into.path(), |wire, accepted, hostile, token| {
        let join = |token: &str, connection| Message::Join { token: token.to_owned(), connection };
        for wrong in [
            join("", 1),
            join(&"0".repeat(32), 1),
            join(token, 0),
            join(token, 2),
            join(token, u32::MAX),
            Message::Finish,
        ] {
            is_rejected_as_busy(joining(wire, accepted, &wrong));
        }
        let (silent, its_end) = wire.pair();
        accepted.send(silent).unwrap();
        let second = joining(wire, accepted, &join(token, 1));
        assert_eq!(hostile.recv(), Message::Joined);
        is_rejected_as_busy(its_end);
        // The copy runs: later ones are rejected without a look.
        is_rejected_as_busy(joining(wire, accepted, &join(token, 1)));
        assert!(matches!(hostile.send_and_recv(file("f", 6)), Message::Want { .. }));
        hostile.chunk(0, FIRST, 0, b"abc", None);
        let header = ChunkHeader {
            flags: LAST,
            len: 3,
            index: 0,
            offset: 3,
            sha256: hash_of_bytes(b"abcdef"),
        };
        let (mut sender, _receiver) = second.split();
        sender.send(&[&header.emit()[..], b"def"].concat()).unwrap();
        assert!(matches!(hostile.recv(), Message::Done { index: 0, .. }));
        sender.abort("gone for lunch");
    });
    assert_eq!(received, Ok(()));
    assert_eq!(session.outcome(), Some(End::PeerAborted("gone for lunch".into())));
    assert_eq!(fs::read(into.path().join("f")).unwrap(), b"abcdef");
}

#[test]
fn receive__silent_connections_do_not_keep_a_further_one_out() {
    let into = TempDir::new();
    let (received, _) = against_two(into.path(), |wire, accepted, hostile, token| {
        let silent: Vec<_> = (0..20)
            .map(|_| {
                let (ours, theirs) = wire.pair();
                accepted.send(ours).unwrap();
                theirs
            })
            .collect();
        let join = Message::Join { token: token.to_owned(), connection: 1 };
        let _second = joining(wire, accepted, &join);
        assert_eq!(hostile.recv(), Message::Joined);
        silent.into_iter().for_each(is_rejected_as_busy);
    });
    assert_eq!(received, Ok(()));
}

#[test]
fn receive__a_further_connection_that_ends_ends_the_copy() {
    let into = TempDir::new();
    let (received, session) = against_two(into.path(), |wire, accepted, hostile, token| {
        let join = Message::Join { token: token.to_owned(), connection: 1 };
        let mut second = joining(wire, accepted, &join);
        assert_eq!(hostile.recv(), Message::Joined);
        assert!(matches!(hostile.send_and_recv(file("f", 6)), Message::Want { .. }));
        second.sender().finish();
        hostile.recv_end();
    });
    assert_eq!(received, Ok(()));
    assert_eq!(session.outcome(), Some(End::PeerGone("it finished in the middle")));
}

#[test]
fn receive__a_sender_that_is_gone_before_all_connections_came_is_no_copy() {
    let into = TempDir::new();
    let start = Instant::now();
    let (received, session) = against_two(into.path(), |_, _, hostile, _| {
        hostile.send_half.reject("gone for lunch");
    });
    assert_eq!(received.unwrap_err(), "the other end gave up: gone for lunch");
    assert!(start.elapsed() < crate::connection::SENDER_REPLY_TIMEOUT);
    assert_eq!(session.outcome(), None);
}

#[test]
fn send__a_receiver_that_grants_more_connections_than_requested_is_refused() {
    let from = TempDir::new();
    fs::write(from.path().join("f"), b"abc").unwrap();
    let roots = Root::all(&[from.path().join("f")]).unwrap();
    let totals = Totals::of(&roots, || false);
    let mut wire = Wire::new();
    let (ours, theirs) = wire.pair();
    let session = Session::new(false);
    let (mut sender, _receiver) = ours.split();
    let accept = Accept { window: 64, connections: 3, token: "0".into() };
    sender.send(&serde_json::to_vec(&Message::Accept(accept)).unwrap()).unwrap();
    let plan = send::Plan { roots, totals, verify_disk: false, connections: 2 };
    let why = send::send(theirs, plan, &session, |_| unreachable!(), |_| {}).unwrap_err();
    assert!(why.to_string().contains("3 connections"), "{why}");
}
