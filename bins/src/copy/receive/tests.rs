use super::super::testing::{TempDir, Wire};
use super::super::walk::{Root, Totals};
use super::super::{message, send};
use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

/// A sender that says what it likes.
struct Hostile<'a> {
    hearing: Hearing,
    speaking: Speaking<'a>,
    next: u64,
}

const LATE: Duration = Duration::from_secs(10);

impl<'a> Hostile<'a> {
    /// Comes to terms with the receiver.
    fn meet(connection: Connection, session: &'a Session) -> Self {
        let (sender, receiver) = connection.split();
        let (speaking, hearing) = (Speaking::new(sender, session), Hearing::new(receiver));
        let mut hostile = Self { hearing, speaking, next: 0 };
        let request = Request { bytes: 0, files: 0, roots: Vec::new() };
        hostile.speaking.send(&Message::Request(request)).unwrap();
        assert!(matches!(hostile.hear(), Message::Accept(_)));
        hostile
    }

    fn hear(&mut self) -> Message {
        self.hearing.recv(LATE).unwrap().expect("something is said in time")
    }

    fn say(&mut self, kind: EntryKind) {
        self.speaking.send(&Message::Entry(Entry { index: self.next, kind })).unwrap();
        self.next += 1;
    }

    fn ask(&mut self, kind: EntryKind) -> Message {
        self.say(kind);
        self.hear()
    }

    fn is_refused(&mut self, kind: EntryKind, words: &str) {
        match self.ask(kind) {
            Message::Refused { reason, .. } => assert!(reason.contains(words), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
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

/// What becomes of a receiver into `into` while `talk` speaks to it.
fn against(into: &Path, overwrite: bool, talk: impl FnOnce(&mut Hostile<'_>)) -> End {
    let (ours, theirs) = Wire::new().pair();
    let root = DestDir::open(into).unwrap();
    let (session, its_own) = (Session::new(false), Session::new(false));
    thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(ours, &root, overwrite, &session, |_| {}));
        let mut hostile = Hostile::meet(theirs, &its_own);
        talk(&mut hostile);
        hostile.speaking.reject("gone for lunch");
        receiving.join().unwrap().unwrap();
    });
    session.outcome().unwrap()
}

#[test]
fn receive__no_name_leads_through_a_symbolic_link() {
    let (into, outside) = (TempDir::new(), TempDir::new());
    symlink(outside.path(), into.path().join("exit")).unwrap();
    symlink(outside.path().join("file"), into.path().join("link")).unwrap();
    for overwrite in [false, true] {
        let end = against(into.path(), overwrite, |sender| {
            sender.is_refused(dir("exit"), "no directory");
            // What would go into it is refused, too, and leaving it is allowed.
            sender.is_refused(file("x", 1), "its directory was not made");
            let done = Message::Done { index: 2, sha256: None };
            assert_eq!(sender.ask(dir_end()), done);
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
fn receive__a_link_that_the_sender_made_is_no_way_out_either() {
    let (into, outside) = (TempDir::new(), TempDir::new());
    let target = outside.path().to_str().unwrap().as_bytes().to_vec();
    let target = message::LinkTarget::new(target).unwrap();
    against(into.path(), true, |sender| {
        let link = EntryKind::Symlink { name: name("exit"), target };
        assert!(matches!(sender.ask(link), Message::Done { .. }));
        sender.is_refused(dir("exit"), "no directory");
    });
    assert_eq!(fs::read_link(into.path().join("exit")).unwrap(), outside.path());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn receive__a_sender_that_breaks_the_protocol_is_told_so() {
    type Talk = fn(&mut Hostile<'_>);
    let cases: [(&str, Talk); 6] = [
        ("leaves the directory", |s| s.say(dir_end())),
        ("entry 7 where 0", |s| {
            s.next = 7;
            s.say(dir("a"));
        }),
        ("finish in the middle", |s| {
            s.ask(dir("a"));
            s.speaking.send(&Message::Finish).unwrap();
        }),
        ("directories deep", |s| {
            for _ in 0..=DEPTH_MAX {
                s.say(dir("d"));
            }
        }),
        ("more entries at a time", |s| {
            // No chunk comes for any of them.
            for n in 0..=WINDOW {
                s.say(file(&format!("f{n}"), 10));
            }
        }),
        ("where an entry was due", |s| s.speaking.send(&Message::Finished).unwrap()),
    ];
    for (words, talk) in cases {
        let into = TempDir::new();
        let end = against(into.path(), false, |sender| {
            talk(sender);
            let start = Instant::now();
            loop {
                assert!(start.elapsed() < LATE, "{words}: nothing is said");
                if let Err(End::PeerAborted(reason)) = sender.hearing.recv(LATE) {
                    assert!(reason.contains(words), "{words:?} not in {reason}");
                    break;
                }
            }
        });
        assert!(matches!(&end, End::Protocol(what) if what.contains(words)), "{end:?}");
    }
}

#[test]
fn receive__a_sender_with_too_much_is_turned_away() {
    let into = TempDir::new();
    let root = DestDir::open(into.path()).unwrap();
    let (ours, theirs) = Wire::new().pair();
    let (session, its_own) = (Session::new(false), Session::new(false));
    let (sender, receiver) = theirs.split();
    let (speaking, mut hearing) = (Speaking::new(sender, &its_own), Hearing::new(receiver));
    let roots = vec![name("huge")];
    speaking.send(&Message::Request(Request { bytes: u64::MAX, files: 1, roots })).unwrap();
    let why = receive(ours, &root, false, &session, |_| {}).unwrap_err();
    assert!(why.to_string().contains("no space"), "{why}");
    let told = hearing.recv(LATE).unwrap_err();
    assert!(told.to_string().contains("no space"), "{told}");
    assert_eq!(fs::read_dir(into.path()).unwrap().count(), 0);
}

/// A whole copy in one process; what the sender's session came to.
fn copy(from: &[&Path], into: &Path, overwrite: bool) -> (Session, Session) {
    let roots = Root::all(&from.iter().map(|p| p.to_path_buf()).collect::<Vec<_>>()).unwrap();
    let totals = Totals::of(&roots, || false);
    let (ours, theirs) = Wire::new().pair();
    let root = DestDir::open(into).unwrap();
    let (sender, receiver) = (Session::new(true), Session::new(true));
    thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(ours, &root, overwrite, &receiver, |_| {}));
        send::send(theirs, roots, totals, &sender, |_| {}).unwrap();
        receiving.join().unwrap().unwrap();
    });
    (sender, receiver)
}

#[test]
fn receive__a_silent_caller_does_not_keep_the_user_from_ending_it() {
    let into = TempDir::new();
    let root = DestDir::open(into.path()).unwrap();
    let (ours, _theirs) = Wire::new().pair();
    let session = Session::new(false);
    let start = Instant::now();
    let ends = |session: &Session| session.end(End::Interrupted);
    let why = receive(ours, &root, false, &session, ends).unwrap_err();
    assert_eq!(why.to_string(), "interrupted");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn receive__what_is_sent_arrives_and_both_ends_agree_on_it() {
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
fn receive__same_size_and_time_but_other_bytes_are_found_out() {
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
