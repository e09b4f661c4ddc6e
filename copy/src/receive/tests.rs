mod several;

use super::*;
use crate::chunk::{ChunkHeader, FIRST, HEADER_BYTES, LAST};
use crate::message::{Accept, Request};
use crate::testing::{TempDir, Wire};
use crate::walk::{Root, Totals};
use crate::{message, send};
use sha2::Digest;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

/// A sender that sends arbitrary messages.
struct Hostile<'a> {
    receive_half: ReceiveHalf,
    send_half: SendHalf<'a>,
    next: u64,
}

/// Only a hang takes so long.
const LATE: Duration = Duration::from_secs(120);

/// Totals that a hostile sender declares.
const DECLARED_BYTES: u64 = 16 << 30;
const DECLARED_FILES: u64 = 100;
const DECLARED_ENTRIES: u64 = 300;

impl<'a> Hostile<'a> {
    /// Exchanges request and accept with the receiver.
    fn negotiate(connection: Connection, session: &'a Session) -> Self {
        let (sender, receiver) = connection.split();
        let (send_half, receive_half) =
            (SendHalf::new(sender, session), ReceiveHalf::new(receiver));
        let mut hostile = Self { receive_half, send_half, next: 0 };
        hostile.send_half.send(&declaration(1)).unwrap();
        assert!(matches!(hostile.recv(), Message::Accept(_)));
        hostile
    }

    fn recv(&mut self) -> Message {
        self.receive_half.recv(LATE).unwrap().expect("something is said in time")
    }

    fn send(&mut self, kind: EntryKind) {
        self.send_half.send(&Message::Entry(Entry { index: self.next, kind })).unwrap();
        self.next += 1;
    }

    fn send_and_recv(&mut self, kind: EntryKind) -> Message {
        self.send(kind);
        self.recv()
    }

    /// The reason with which the receiver ends the copy.
    fn recv_end(&mut self) -> String {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < LATE, "the receiver does not end it");
            if let Err(End::PeerAborted(reason)) = self.receive_half.recv(LATE) {
                return reason;
            }
        }
    }

    /// Sends a chunk; `whole` is the file for the hash of a last chunk.
    fn chunk(&self, index: u64, flags: u32, offset: u64, data: &[u8], whole: Option<&[u8]>) {
        self.try_chunk(index, flags, offset, data, whole).unwrap();
    }

    fn try_chunk(
        &self,
        index: u64,
        flags: u32,
        offset: u64,
        data: &[u8],
        whole: Option<&[u8]>,
    ) -> Result<(), End> {
        let sha256 = whole.map_or(Sha256Hex([0; 32]), hash_of_bytes);
        let len = u32::try_from(data.len()).unwrap();
        let mut chunk = [&[0; HEADER_BYTES], data].concat();
        let header = ChunkHeader { flags, len, index, offset, sha256 };
        self.send_half.send_chunk(&header, &mut chunk)
    }

    fn is_refused(&mut self, kind: EntryKind, words: &str) {
        match self.send_and_recv(kind) {
            Message::Refused { reason, .. } => assert!(reason.contains(words), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
}

/// A request with these totals, for a copy over so many connections.
fn declaration(connections: u32) -> Message {
    Message::Request(Request {
        bytes: DECLARED_BYTES,
        files: DECLARED_FILES,
        entries: DECLARED_ENTRIES,
        verify_disk: false,
        connections,
        roots: Vec::new(),
    })
}

fn hash_of_bytes(bytes: &[u8]) -> Sha256Hex {
    Sha256Hex(sha2::Sha256::digest(bytes).into())
}

fn name(name: &str) -> Name {
    Name::new(name.into()).unwrap()
}

fn dir(n: &str) -> EntryKind {
    EntryKind::Dir { name: name(n) }
}

fn file(n: &str, size: u64) -> EntryKind {
    EntryKind::File { name: name(n), size, mode: 0o644, mtime: Mtime { s: 1, ns: 0 } }
}

fn dir_end() -> EntryKind {
    EntryKind::DirEnd { mode: 0o755, mtime: Mtime { s: 1, ns: 0 } }
}

/// The end of a receiver into `into` while `script` sends to it.
fn against(into: &Path, overwrite: bool, script: impl FnOnce(&mut Hostile<'_>)) -> End {
    against_granted(into, Grant { overwrite, ..Grant::default() }, script)
}

/// As [`against`], with these options of the receiver.
fn against_granted(into: &Path, grant: Grant, script: impl FnOnce(&mut Hostile<'_>)) -> End {
    let (ours, theirs) = Wire::new().pair();
    let root = DestDir::open(into).unwrap();
    let (session, its_own) = (Session::new(false), Session::new(false));
    thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(ours, &root, grant, &session, || None, |_| {}));
        let mut hostile = Hostile::negotiate(theirs, &its_own);
        script(&mut hostile);
        hostile.send_half.reject("gone for lunch");
        receiving.join().unwrap().unwrap();
    });
    let rows = session.ledger().rows;
    assert!(rows.iter().all(|row| !row.path.is_empty()), "{rows:?}");
    session.outcome().unwrap()
}

#[test]
fn receive__follows_no_symbolic_link() {
    let (into, outside) = (TempDir::new(), TempDir::new());
    symlink(outside.path(), into.path().join("exit")).unwrap();
    symlink(outside.path().join("file"), into.path().join("link")).unwrap();
    for overwrite in [false, true] {
        let end = against(into.path(), overwrite, |sender| {
            sender.is_refused(dir("exit"), "no directory");
            // Its entries are rejected too, and leaving it is valid.
            sender.is_refused(file("x", 1), "its directory was not made");
            let done = Message::Done { index: 2, sha256: None };
            assert_eq!(sender.send_and_recv(dir_end()), done);
            if !overwrite {
                sender.is_refused(file("link", 1), "a symbolic link");
            }
        });
        assert_eq!(end, End::PeerAborted("gone for lunch".into()));
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "something was written outside");
    assert!(!outside.path().join("file").exists());
}

#[test]
fn receive__follows_no_link_that_the_sender_created() {
    let (into, outside) = (TempDir::new(), TempDir::new());
    let target = outside.path().to_str().unwrap().as_bytes().to_vec();
    let target = message::LinkTarget::new(target).unwrap();
    against(into.path(), true, |sender| {
        let link = EntryKind::Symlink { name: name("exit"), target };
        assert!(matches!(sender.send_and_recv(link), Message::Done { .. }));
        sender.is_refused(dir("exit"), "no directory");
    });
    assert_eq!(fs::read_link(into.path().join("exit")).unwrap(), outside.path());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn receive__a_protocol_violation_is_reported_to_the_sender() {
    type Talk = fn(&mut Hostile<'_>);
    let cases: [(&str, Talk); 11] = [
        ("leaves the directory", |s| s.send(dir_end())),
        ("entry 7 where 0", |s| {
            s.next = 7;
            s.send(dir("a"));
        }),
        ("finish in the middle", |s| {
            s.send_and_recv(dir("a"));
            s.send_half.send(&Message::Finish).unwrap();
        }),
        ("directories deep", |s| {
            for _ in 0..=DEPTH_MAX {
                s.send(dir("d"));
            }
        }),
        ("more entries at a time", |s| {
            // No chunk is sent for any of them.
            for n in 0..=WINDOW {
                s.send(file(&format!("f{n}"), 10));
            }
        }),
        ("more files than it declared", |s| {
            for n in 0..DECLARED_FILES {
                s.send_and_recv(file(&format!("f{n}"), 0));
                s.chunk(n, FIRST | LAST, 0, b"", Some(b""));
                s.recv();
            }
            s.send(file("more", 0));
        }),
        ("more entries than it declared", |s| {
            for n in 0..DECLARED_ENTRIES {
                s.send_and_recv(dir(&format!("d{n}")));
                s.send_and_recv(dir_end());
            }
            s.send(dir("more"));
        }),
        ("more bytes than it declared", |s| {
            s.send(file("half", DECLARED_BYTES / 2));
            s.send(file("rest", DECLARED_BYTES / 2 + 1));
        }),
        ("a hash of entry 0, of which none", |s| {
            s.send(file("f", 10));
            let hash = Message::Hash { index: 0, sha256: hash_of_bytes(b"") };
            s.send_half.send(&hash).unwrap();
        }),
        ("an offset of 3 that was not offered", |s| {
            s.send(file("f", 6));
            s.chunk(0, FIRST | LAST, 3, b"def", Some(b"abcdef"));
        }),
        ("where an entry was due", |s| s.send_half.send(&Message::Finished).unwrap()),
    ];
    for (words, script) in cases {
        let into = TempDir::new();
        let end = against(into.path(), false, |sender| {
            script(sender);
            let reason = sender.recv_end();
            assert!(reason.contains(words), "{words:?} not in {reason}");
        });
        assert!(matches!(&end, End::Protocol(what) if what.contains(words)), "{end:?}");
    }
}

/// Creates the file of [`file`] in `into`.
fn put(into: &Path, name: &str, content: &[u8]) {
    let path = into.join(name);
    fs::write(&path, content).unwrap();
    let mtime = std::time::UNIX_EPOCH + Duration::from_secs(1);
    fs::File::options().write(true).open(path).unwrap().set_modified(mtime).unwrap();
}

#[test]
fn receive__does_not_disclose_the_hash_of_a_file() {
    let into = TempDir::new();
    let (secret, begun) = (b"secret".as_slice(), b"begun".as_slice());
    for overwrite in [false, true] {
        put(into.path(), "f", secret);
        put(into.path(), ".g.spanwire-partial", begun);
        let mut messages = String::new();
        against(into.path(), overwrite, |sender| {
            for (index, name, size) in [(0, "f", 6), (1, "g", 100)] {
                let answer = sender.send_and_recv(file(name, size));
                messages += &serde_json::to_string(&answer).unwrap();
                let guess = Message::Hash { index, sha256: hash_of_bytes(b"guess") };
                sender.send_half.send(&guess).unwrap();
                messages += &serde_json::to_string(&sender.recv()).unwrap();
            }
        });
        for bytes in [secret, begun] {
            let hash = hash_of_bytes(bytes).to_string();
            assert!(!messages.contains(&hash), "{messages}");
        }
        assert_eq!(fs::read(into.path().join("f")).unwrap(), secret);
    }
}

#[test]
fn receive__a_correct_hash_is_answered_with_the_kept_part() {
    let into = TempDir::new();
    put(into.path(), "f", b"abcdef");
    put(into.path(), ".g.spanwire-partial", b"abc");
    against(into.path(), false, |sender| {
        let of = |index, bytes| Message::Hash { index, sha256: hash_of_bytes(bytes) };
        assert_eq!(sender.send_and_recv(file("f", 6)), Message::Have { index: 0, bytes: 6 });
        // The directory is left before the file is compared.
        assert_eq!(sender.send_and_recv(dir("d")), Message::Done { index: 1, sha256: None });
        assert_eq!(sender.send_and_recv(file("new", 0)), Message::Want { index: 2, offset: 0 });
        sender.send(dir_end());
        sender.chunk(2, FIRST | LAST, 0, b"", Some(b""));
        assert!(matches!(sender.recv(), Message::Done { index: 2, .. }));
        sender.send_half.send(&of(0, b"abcdef")).unwrap();
        let same = Message::Done { index: 0, sha256: Some(hash_of_bytes(b"abcdef")) };
        let mut answers = [sender.recv(), sender.recv()];
        answers.sort_by_key(|answer| matches!(answer, Message::Done { index: 3, .. }));
        assert_eq!(answers, [same, Message::Done { index: 3, sha256: None }]);
        assert_eq!(sender.send_and_recv(file("g", 6)), Message::Have { index: 4, bytes: 3 });
        sender.send_half.send(&of(4, b"abc")).unwrap();
        assert_eq!(sender.recv(), Message::Want { index: 4, offset: 3 });
        sender.chunk(4, FIRST | LAST, 3, b"def", Some(b"abcdef"));
        assert!(matches!(sender.recv(), Message::Done { index: 4, .. }));
    });
    assert_eq!(fs::read(into.path().join("g")).unwrap(), b"abcdef");
}

#[test]
fn receive__a_sender_that_gives_a_compared_file_up_is_answered() {
    let into = TempDir::new();
    put(into.path(), "f", b"abcdef");
    against(into.path(), false, |sender| {
        assert!(matches!(sender.send_and_recv(file("f", 6)), Message::Have { .. }));
        let word = Message::GiveUp { index: 0, reason: "gone\x1b[2J".into() };
        sender.send_half.send(&word).unwrap();
        let reason = "gone\\u{1b}[2J".to_owned();
        assert_eq!(sender.recv(), Message::Refused { index: 0, reason });
    });
}

/// Shorter than the default, for which the tests would wait, and longer than a sender's thread is
/// without a core.
const STALL: Duration = Duration::from_secs(3);

#[test]
fn receive__a_stalled_sender_is_disconnected() {
    type Talk = fn(&mut Hostile<'_>);
    /// Sends as slowly as a receiver would once have waited for, until the receiver ends the copy.
    fn slowly(s: &mut Hostile<'_>, mut send: impl FnMut(&mut Hostile<'_>) -> Result<(), End>) {
        // The end may arrive just now.
        while send(s).is_ok() && s.receive_half.recv(STALL / 10).is_ok() {
            thread::sleep(STALL / 10);
        }
    }
    let cases: [(&str, Talk); 7] = [
        ("nothing at all", |_| {}),
        ("no chunk", |s| s.send(file("f", 10))),
        ("a byte", |s| {
            s.send(file("f", 10));
            s.chunk(0, FIRST, 0, b"x", None);
        }),
        ("no hash", |s| assert!(matches!(s.send_and_recv(file("there", 6)), Message::Have { .. }))),
        ("a directory at a time", |s| {
            slowly(s, |s| {
                let kind = dir(&format!("d{}", s.next));
                s.next += 1;
                s.send_half.send(&Message::Entry(Entry { index: s.next - 1, kind }))
            });
        }),
        ("an empty file at a time", |s| {
            slowly(s, |s| {
                let (index, kind) = (s.next, file(&format!("f{}", s.next), 0));
                s.next += 1;
                s.send_half.send(&Message::Entry(Entry { index, kind }))?;
                s.try_chunk(index, FIRST | LAST, 0, b"", Some(b""))
            });
        }),
        ("a byte at a time", |s| {
            s.send(file("f", 1 << 30));
            s.recv();
            let mut offset = 0;
            // Far below the 64 KiB that count as progress.
            while s.receive_half.recv(STALL / 100).is_ok() {
                let flags = if offset == 0 { FIRST } else { 0 };
                // The end may arrive just now.
                if s.try_chunk(0, flags, offset, b"x", None).is_err() {
                    break;
                }
                offset += 1;
            }
        }),
    ];
    let is_disconnected = |what: &str, script: Talk| {
        let into = TempDir::new();
        put(into.path(), "there", b"abcdef");
        let grant = Grant { stall_timeout: STALL, ..Grant::default() };
        let end = against_granted(into.path(), grant, |sender| {
            script(sender);
            // In the last cases the end was already received.
            if !what.ends_with("at a time") {
                assert!(sender.recv_end().contains("brought nothing"), "{what}");
            }
        });
        assert_eq!(end, End::Stalled(STALL), "{what}");
    };
    thread::scope(|scope| {
        for (what, script) in cases {
            scope.spawn(move || is_disconnected(what, script));
        }
    });
}

#[test]
fn receive__a_declared_size_reserves_little_space_and_releases_it() {
    let into = TempDir::new();
    let partial = into.path().join(".f.spanwire-partial");
    let blocks = || fs::metadata(&partial).map_or(0, |meta| meta.blocks() * 512);
    against(into.path(), false, |sender| {
        sender.send(file("f", 4 << 30));
        assert!(matches!(sender.recv(), Message::Want { .. }));
        sender.chunk(0, FIRST, 0, b"x", None);
        let start = Instant::now();
        while fs::metadata(&partial).map_or(0, |meta| meta.len()) < 1 {
            assert!(start.elapsed() < LATE, "the byte does not arrive");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(blocks() <= 65 << 20, "{} bytes are taken", blocks());
    });
    assert!(blocks() <= 1 << 20, "{} bytes stay", blocks());
    assert_eq!(fs::read(&partial).unwrap(), b"x", "what came can be resumed");
}

#[test]
fn receive__rejects_a_request_above_the_free_space() {
    let into = TempDir::new();
    let root = DestDir::open(into.path()).unwrap();
    let (ours, theirs) = Wire::new().pair();
    let (session, its_own) = (Session::new(false), Session::new(false));
    let (sender, receiver) = theirs.split();
    let (send_half, mut receive_half) =
        (SendHalf::new(sender, &its_own), ReceiveHalf::new(receiver));
    let roots = vec![name("huge")];
    send_half
        .send(&Message::Request(Request {
            bytes: u64::MAX,
            files: 1,
            entries: 1,
            verify_disk: false,
            connections: 1,
            roots,
        }))
        .unwrap();
    let why = receive(ours, &root, Grant::default(), &session, || None, |_| {}).unwrap_err();
    assert!(why.to_string().contains("no space"), "{why}");
    let error = receive_half.recv(LATE).unwrap_err();
    assert!(error.to_string().contains("no space"), "{error}");
    assert_eq!(fs::read_dir(into.path()).unwrap().count(), 0);
}

/// Runs a whole copy in one process; returns both sessions.
fn copy(from: &[&Path], into: &Path, overwrite: bool) -> (Session, Session) {
    copy_over(&mut Wire::new(), [1, 1], from, into, overwrite)
}

/// As [`copy`], with so many connections at most of each end.
fn copy_over(
    wire: &mut Wire,
    connections: [u32; 2],
    from: &[&Path],
    into: &Path,
    overwrite: bool,
) -> (Session, Session) {
    let roots = Root::all(&from.iter().map(|p| p.to_path_buf()).collect::<Vec<_>>()).unwrap();
    let totals = Totals::of(&roots, || false);
    let (ours, theirs) = wire.pair();
    let root = DestDir::open(into).unwrap();
    let (sender, receiver) = (Session::new(true), Session::new(true));
    let grant = Grant { overwrite, connections: connections[0], ..Grant::default() };
    let (accepted, arrivals) = channel();
    thread::scope(|scope| {
        let (root, receiver) = (&root, &receiver);
        let arrivals = move || arrivals.try_recv().ok();
        let receiving = scope.spawn(move || receive(ours, root, grant, receiver, arrivals, |_| {}));
        let plan = send::Plan { roots, totals, verify_disk: true, connections: connections[1] };
        let connect = |_| {
            let (ours, theirs) = wire.pair();
            accepted.send(ours).unwrap();
            Ok(theirs)
        };
        send::send(theirs, plan, &sender, connect, |_| {}).unwrap();
        receiving.join().unwrap().unwrap();
    });
    (sender, receiver)
}

#[test]
fn receive__can_be_interrupted_while_a_sender_is_silent() {
    let into = TempDir::new();
    let root = DestDir::open(into.path()).unwrap();
    let (ours, _theirs) = Wire::new().pair();
    let session = Session::new(false);
    // Otherwise it would end as stalled, after 30 s.
    let ends = |session: &Session| session.end(End::Interrupted);
    let why = receive(ours, &root, Grant::default(), &session, || None, ends).unwrap_err();
    assert_eq!(why.to_string(), "interrupted");
}

#[test]
fn receive__copies_and_both_ends_agree() {
    let (from, into) = (TempDir::new(), TempDir::new());
    let path = from.path().join("f");
    let bytes: Vec<u8> = (0..1_000_003u32).flat_map(u32::to_le_bytes).collect();
    fs::write(&path, &bytes).unwrap();
    let (sender, receiver) = copy(&[&path], into.path(), false);
    assert_eq!(sender.outcome(), Some(End::Complete));
    assert_eq!(receiver.outcome(), Some(End::Complete));
    assert_eq!(fs::read(into.path().join("f")).unwrap(), bytes);
    let [ours, theirs] = [&sender, &receiver].map(|s| s.ledger().rows[0].clone());
    assert_eq!(ours.sha256, theirs.sha256);
    assert_eq!(ours.sha256.unwrap().0, <[u8; 32]>::from(sha2::Sha256::digest(&bytes)));
}

#[test]
fn receive__detects_other_content_of_the_same_size_and_time() {
    let (from, into) = (TempDir::new(), TempDir::new());
    let [path, there] = [from.path().join("f"), into.path().join("f")];
    fs::write(&path, "new!").unwrap();
    fs::write(&there, "old!").unwrap();
    let mtime = fs::metadata(&path).unwrap().modified().unwrap();
    fs::File::options().write(true).open(&there).unwrap().set_modified(mtime).unwrap();
    let (sender, _) = copy(&[&path], into.path(), false);
    let row = &sender.ledger().rows[0];
    assert!(row.reason.as_ref().is_some_and(|why| why.contains("differs")), "{row:?}");
    assert_eq!(fs::read(&there).unwrap(), b"old!");
    let (sender, _) = copy(&[&path], into.path(), true);
    assert_eq!(sender.ledger().failed, 0);
    assert_eq!(fs::read(&there).unwrap(), b"new!");
    let (sender, _) = copy(&[&path], into.path(), true);
    assert_eq!(sender.ledger().rows[0].status, "same");
}

#[test]
fn receive__a_directory_is_not_replaced_by_a_file_nor_a_file_by_a_directory() {
    let (from, into) = (TempDir::new(), TempDir::new());
    fs::write(from.path().join("a"), "file").unwrap();
    fs::create_dir(from.path().join("b")).unwrap();
    fs::write(from.path().join("b/inner"), "file").unwrap();
    fs::create_dir(into.path().join("a")).unwrap();
    fs::write(into.path().join("b"), "file").unwrap();
    let paths = ["a", "b"].map(|n| from.path().join(n));
    let (sender, receiver) = copy(&[&paths[0], &paths[1]], into.path(), true);
    assert_eq!(sender.outcome(), Some(End::Complete), "the rest goes on");
    assert_eq!((sender.ledger().failed, receiver.ledger().failed), (3, 3));
    assert!(into.path().join("a").is_dir() && into.path().join("b").is_file());
}
