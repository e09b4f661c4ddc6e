use super::*;
use crate::chunks::ChunkQueue;
use crate::connection::ReceiveHalf;
use crate::message::Name;
use crate::partial::Partial;
use crate::session::POLL_INTERVAL;
use crate::testing::{TempDir, Wire};
use sha2::{Digest, Sha256};
use std::fs;
use std::sync::mpsc::channel;
use std::time::Instant;

const PARTIAL: &str = ".f.spanwire-partial";

/// A chunk: flags, offset, data, hash.
type Piece<'a> = (u32, u64, &'a [u8], Sha256Hex);

/// A sink, with its peers played by the test.
struct Bench {
    tmp: TempDir,
    root: Arc<DestDir>,
    session: Session,
    wire: Wire,
    overwrite: bool,
    verify_disk: bool,
}

fn hash(data: &[u8]) -> Sha256Hex {
    Sha256Hex(Sha256::digest(data).into())
}

impl Bench {
    fn new() -> Self {
        let tmp = TempDir::new();
        let root = DestDir::open(tmp.path()).unwrap();
        let (session, wire) = (Session::new(true), Wire::new());
        Self { tmp, root, session, wire, overwrite: false, verify_disk: false }
    }

    /// Receives file `f` of `size` bytes by these chunks; returns its answers and its end.
    fn take(
        &mut self,
        (partial, granted): (Option<Partial>, u64),
        size: u64,
        chunks: &[Piece],
    ) -> (Result<(), End>, Option<Message>) {
        let (_work, work) = channel();
        let (arrived_in, arrived) = channel();
        let (spare, spare_out) = channel();
        for (flags, offset, data, sha256) in chunks {
            let len = u32::try_from(data.len()).unwrap();
            let header =
                ChunkHeader { flags: *flags, len, index: 0, offset: *offset, sha256: *sha256 };
            arrived_in.send((Instant::now(), [&header.emit()[..], data].concat())).unwrap();
        }
        let (ours, theirs) = self.wire.pair();
        let ((sender, _receiver), (_sender, receiver)) = (ours.split(), theirs.split());
        let (send_half, mut receive_half) =
            (SendHalf::new(sender, &self.session), ReceiveHalf::new(receiver));
        let unanswered = AtomicU64::new(1);
        let mut sink = Sink {
            work,
            chunks: Chunks::new(vec![ChunkQueue { arrived, spare }]),
            send_half: &send_half,
            session: &self.session,
            unanswered: &unanswered,
            overwrite: self.overwrite,
            verify_disk: self.verify_disk,
            root: Arc::clone(&self.root),
        };
        let (dir, name) = (Arc::clone(&self.root), Name::new(b"f".to_vec()).unwrap());
        let mtime = Mtime { s: 1, ns: 0 };
        let file = Named { dir, name, size, mode: 0o644, mtime };
        let file = FileWork { index: 0, file, partial, offset: granted };
        let result = sink.take_file(file);
        if result.is_ok() {
            assert_eq!(spare_out.try_iter().count(), chunks.len(), "all memory is given back");
        }
        let said = receive_half.recv(POLL_INTERVAL).unwrap();
        if said.is_some() {
            assert_eq!(receive_half.recv(POLL_INTERVAL).unwrap(), None, "answered once");
        }
        (result, said)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.tmp.path()).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn resume(&self, bytes: &[u8], size: u64) -> (Option<Partial>, u64) {
        fs::write(self.tmp.path().join(PARTIAL), bytes).unwrap();
        let name = Name::new(b"f".to_vec()).unwrap();
        let mut partial = Partial::find(&self.root, &name, size).unwrap().unwrap();
        partial.hash_found(&self.session).unwrap();
        let bytes = partial.bytes();
        (Some(partial), bytes)
    }
}

/// No existing data.
const FRESH: (Option<Partial>, u64) = (None, 0);

const NONE: Sha256Hex = Sha256Hex([0; 32]);

#[test]
fn take_file__writes_chunks_and_resumes() {
    let mut bench = Bench::new();
    let all = hash(b"abcdef");
    let chunks: [Piece; 2] = [(FIRST, 0, b"abc", NONE), (LAST, 3, b"def", all)];
    let (result, said) = bench.take(FRESH, 6, &chunks);
    assert_eq!(result, Ok(()));
    assert_eq!(said, Some(Message::Done { index: 0, sha256: Some(all) }));
    assert_eq!(fs::read(bench.tmp.path().join("f")).unwrap(), b"abcdef");
    fs::remove_file(bench.tmp.path().join("f")).unwrap();
    let plan = bench.resume(b"abcd", 6);
    let (result, _) = bench.take(plan, 6, &[(FIRST | LAST, 4, b"ef", all)]);
    assert_eq!(result, Ok(()));
    assert_eq!(fs::read(bench.tmp.path().join("f")).unwrap(), b"abcdef");
    let row = &bench.session.ledger().rows[1];
    assert_eq!((row.resumed_bytes, row.bytes), (4, 6));
}

#[test]
fn take_file__a_wrong_hash_leaves_no_file() {
    let mut bench = Bench::new();
    let (result, said) = bench.take(FRESH, 3, &[(FIRST | LAST, 0, b"abc", hash(b"abd"))]);
    assert_eq!(result, Ok(()), "the copy goes on");
    let Some(Message::Refused { reason, .. }) = said else { panic!("{said:?}") };
    assert!(reason.contains("SHA-256 differs"), "{reason}");
    assert!(bench.names().is_empty());
}

#[test]
fn take_file__wrong_offsets_end_the_copy() {
    let all = hash(b"abcdef");
    let cases: [(&str, u64, &[Piece]); 7] = [
        ("an offset that was not offered", 6, &[(FIRST, 3, b"def", NONE)]),
        ("a gap", 6, &[(FIRST, 0, b"abc", NONE), (LAST, 4, b"ef", all)]),
        ("an overlap", 6, &[(FIRST, 0, b"abc", NONE), (LAST, 2, b"cdef", all)]),
        ("too many bytes", 5, &[(FIRST | LAST, 0, b"abcdef", all)]),
        ("too few bytes", 7, &[(FIRST | LAST, 0, b"abcdef", all)]),
        ("no first chunk", 6, &[(0, 0, b"abc", NONE)]),
        ("two first chunks", 6, &[(FIRST, 0, b"abc", NONE), (FIRST, 3, b"def", NONE)]),
    ];
    for (what, size, chunks) in cases {
        let mut bench = Bench::new();
        let (result, _) = bench.take(FRESH, size, chunks);
        assert!(matches!(result, Err(End::Protocol(_))), "{what}: {result:?}");
        assert!(!bench.names().contains(&"f".to_owned()), "{what}");
    }
}

#[test]
fn take_file__does_not_replace_a_name_taken_meanwhile() {
    let mut bench = Bench::new();
    fs::write(bench.tmp.path().join("f"), "precious").unwrap();
    let chunk = (FIRST | LAST, 0, &b"abc"[..], hash(b"abc"));
    let (_, said) = bench.take(FRESH, 3, &[chunk]);
    assert!(matches!(said, Some(Message::Refused { .. })), "{said:?}");
    assert_eq!(fs::read(bench.tmp.path().join("f")).unwrap(), b"precious");
    bench.overwrite = true;
    let (_, said) = bench.take(FRESH, 3, &[chunk]);
    assert!(matches!(said, Some(Message::Done { .. })), "{said:?}");
    assert_eq!(fs::read(bench.tmp.path().join("f")).unwrap(), b"abc");
}

#[test]
fn take_file__a_file_that_another_process_changed_is_detected_if_read_back() {
    for verify_disk in [false, true] {
        let mut bench = Bench { verify_disk, ..Bench::new() };
        let partial = bench.tmp.path().join(PARTIAL);
        fs::write(&partial, "abc").unwrap();
        let name = Name::new(b"f".to_vec()).unwrap();
        let mut found = Partial::find(&bench.root, &name, 6).unwrap().unwrap();
        found.hash_found(&bench.session).unwrap();
        fs::write(&partial, "Abc").unwrap();
        let chunk = (FIRST | LAST, 3, &b"def"[..], hash(b"abcdef"));
        let (_, said) = bench.take((Some(found), 3), 6, &[chunk]);
        let Some(Message::Refused { reason, .. }) = &said else {
            assert!(!verify_disk && matches!(said, Some(Message::Done { .. })), "{said:?}");
            assert_eq!(fs::read(bench.tmp.path().join("f")).unwrap(), b"Abcdef");
            continue;
        };
        assert!(verify_disk && reason.contains("f differs on disk"), "{reason}");
        assert!(bench.names().is_empty());
        let row = &bench.session.ledger().rows[0];
        assert_eq!((row.status, row.path.ends_with("/f")), ("failed", true));
    }
}

#[test]
fn take_file__a_file_given_up_keeps_only_data_to_resume() {
    let mut bench = Bench::new();
    let why: &[u8] = b"changed\x1b[2J";
    let (result, said) = bench.take(FRESH, 6, &[(FIRST | ABORT, 0, why, NONE)]);
    assert_eq!(result, Ok(()));
    let reason = "changed\\u{1b}[2J".to_owned();
    assert_eq!(said, Some(Message::Refused { index: 0, reason }));
    assert!(bench.names().is_empty());
    let chunks: [Piece; 2] = [(FIRST, 0, b"abc", NONE), (ABORT, 0, why, NONE)];
    assert_eq!(bench.take(FRESH, 6, &chunks).0, Ok(()));
    assert_eq!(bench.names(), [PARTIAL]);
}

#[test]
fn take_file__after_a_refusal_the_rest_is_dropped() {
    let mut bench = Bench::new();
    fs::create_dir(bench.tmp.path().join(PARTIAL)).unwrap();
    let all = hash(b"abcdef");
    let (result, said) = bench.take(FRESH, 6, &[(FIRST, 0, b"abc", NONE), (LAST, 3, b"def", all)]);
    assert_eq!(result, Ok(()));
    assert!(matches!(said, Some(Message::Refused { .. })), "{said:?}");
}

#[test]
fn take_file__a_copy_that_ends_keeps_what_has_arrived() {
    let mut bench = Bench::new();
    bench.session.end(End::Interrupted);
    // The chunk is already queued, so it is written before the end is noticed.
    let (result, _) = bench.take(FRESH, 6, &[(FIRST, 0, b"abc", NONE)]);
    assert!(result.is_err());
    assert_eq!(fs::read(bench.tmp.path().join(PARTIAL)).unwrap(), b"abc");
}
