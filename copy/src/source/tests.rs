use super::*;
use crate::testing::{TempDir, Wire};
use spanwire_stream::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::channel;

fn job(path: PathBuf, request: DataRequest) -> Job {
    let stat = rustix::fs::stat(&path).unwrap();
    let (size, mtime) = (u64::try_from(stat.st_size).unwrap(), mtime(&stat));
    Job { index: 5, shown: "f".into(), source: Source::Root(path), size, mtime, request }
}

/// A control message, or a chunk's header and data.
type Said = Result<(ChunkHeader, Vec<u8>), Message>;

/// The messages for `job`, in chunks of at most `data_bytes`.
fn said(job: &Job, notes: &Notes, data_bytes: u32) -> (Result<(), End>, Vec<Said>) {
    let session = Session::default();
    let (_jobs, jobs) = channel();
    let (theirs, ours) = Wire::new().pair();
    let (sender, _receiver) = ours.split();
    let send_half = SendHalf::new(sender, &session);
    let chunk_bytes = data_bytes + u32_from(HEADER_BYTES);
    let file_reader =
        FileReader { jobs, send_half: &send_half, chunk_bytes, session: &session, notes };
    let end = match file_reader.send_file(job) {
        Err(Stop::Copy(end)) => Err(end),
        _ => Ok(()),
    };
    session.end(End::Complete);
    let mut got = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| send_half.end());
        let (_sender, mut receiver) = theirs.split();
        while let Some(chunk) = receiver.recv().unwrap_or_else(|e: Error| panic!("{e}")) {
            if chunk.first() == Some(&b'{') {
                got.push(Err(serde_json::from_slice(&chunk).unwrap()));
                continue;
            }
            let (header, data) = ChunkHeader::parse(&chunk).unwrap();
            assert_eq!(header.index, 5);
            got.push(Ok((header, data.to_vec())));
        }
    });
    (end, got)
}

/// The chunks of `job`, each of at most `data_bytes`.
fn chunks(job: &Job, notes: &Notes, data_bytes: u32) -> Vec<(ChunkHeader, Vec<u8>)> {
    let (end, said) = said(job, notes, data_bytes);
    assert_eq!(end, Ok(()));
    said.into_iter().map(|said| said.expect("a chunk")).collect()
}

/// The only message for `job`.
fn word(job: &Job, notes: &Notes) -> Message {
    let (end, mut said) = said(job, notes, 8);
    assert_eq!((end, said.len()), (Ok(()), 1));
    said.remove(0).expect_err("a word")
}

fn hash(data: &[u8]) -> Sha256Hex {
    Sha256Hex(Sha256::digest(data).into())
}

const FRESH: DataRequest = DataRequest::From { offset: 0 };

#[test]
fn send_file__in_pieces_with_the_hash_at_the_end() {
    let tmp = TempDir::new();
    let path = tmp.path().join("f");
    for content in [&b""[..], b"12345678", b"12345678abc"] {
        fs::write(&path, content).unwrap();
        let notes = Notes::default();
        let sent = chunks(&job(path.clone(), FRESH), &notes, 8);
        let data: Vec<u8> = sent.iter().flat_map(|(_, data)| data.clone()).collect();
        assert_eq!(data, content);
        assert_eq!(sent.len(), content.len().div_ceil(8).max(1));
        let (first, last) = (&sent[0].0, &sent[sent.len() - 1].0);
        assert!(first.has(FIRST) && first.offset == 0 && last.has(LAST));
        assert_eq!(last.sha256, hash(content));
        let read = ReadResult { sha256: hash(content), resumed: 0, same: false };
        assert_eq!(notes.take(5), Some(read));
    }
}

#[test]
fn send_file__resumes_only_after_a_prefix_whose_hash_was_sent() {
    let tmp = TempDir::new();
    let path = tmp.path().join("f");
    fs::write(&path, "12345678abc").unwrap();
    let notes = Notes::default();
    for (bytes, rest) in [(9, &b"bc"[..]), (11, b"")] {
        let beginning = Message::Hash { index: 5, sha256: hash(&b"12345678abc"[..bytes]) };
        let bytes = u64::try_from(bytes).unwrap();
        assert_eq!(word(&job(path.clone(), DataRequest::Hash { bytes }), &notes), beginning);
        let sent = chunks(&job(path.clone(), DataRequest::From { offset: bytes }), &notes, 8);
        assert_eq!(sent.len(), 1);
        assert_eq!((sent[0].0.flags, sent[0].0.offset, &*sent[0].1), (FIRST | LAST, bytes, rest));
        assert_eq!(sent[0].0.sha256, hash(b"12345678abc"), "of all of it");
        let read = notes.take(5).unwrap();
        assert_eq!((read.resumed, read.same), (bytes, false));
    }
    word(&job(path.clone(), DataRequest::Hash { bytes: 9 }), &notes);
    let over = chunks(&job(path.clone(), FRESH), &notes, 8);
    assert_eq!((over.len(), over[0].0.offset), (2, 0), "the receiver wants it from the beginning");
    for offset in [8, 9, 11] {
        let (end, said) = said(&job(path.clone(), DataRequest::From { offset }), &notes, 8);
        assert!(matches!(end, Err(End::Protocol(_))) && said.is_empty(), "{offset}: {end:?}");
    }
}

#[test]
fn send_file__hashes_and_does_not_send_an_existing_file() {
    let tmp = TempDir::new();
    let path = tmp.path().join("f");
    fs::write(&path, "abc").unwrap();
    let notes = Notes::default();
    let whole = Message::Hash { index: 5, sha256: hash(b"abc") };
    assert_eq!(word(&job(path.clone(), DataRequest::Hash { bytes: 3 }), &notes), whole);
    let same = ReadResult { sha256: hash(b"abc"), resumed: 3, same: true };
    assert_eq!(notes.take(5), Some(same));
    let announced = job(path.clone(), DataRequest::Hash { bytes: 3 });
    fs::remove_file(path).unwrap();
    let given_up = word(&announced, &notes);
    assert!(matches!(&given_up, Message::GiveUp { index: 5, reason } if reason.contains("cannot")));
    assert_eq!(notes.take(5), None);
}

#[test]
fn send_file__gives_up_a_changed_file() {
    let tmp = TempDir::new();
    let path = tmp.path().join("f");
    let gives_up = |job: &Job, why: &str| {
        let sent = chunks(job, &Notes::default(), 200);
        let (header, data) = sent.last().unwrap();
        assert!(header.has(ABORT), "{why}");
        assert!(String::from_utf8_lossy(data).contains(why), "{why}");
    };
    fs::write(&path, "abc").unwrap();
    let announced = job(path.clone(), FRESH);
    for content in ["ab", "abcd"] {
        fs::write(&path, content).unwrap();
        gives_up(&announced, "changed while it was sent");
    }
    let announced = job(path.clone(), FRESH);
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
    gives_up(&announced, "changed while it was sent");
    fs::remove_file(&path).unwrap();
    gives_up(&announced, "cannot read f");
}

#[test]
fn send_file__stops_when_the_receiver_has_rejected_it() {
    let tmp = TempDir::new();
    let path = tmp.path().join("f");
    fs::write(&path, "abc").unwrap();
    let notes = Notes::default();
    notes.refuse(5);
    let sent = chunks(&job(path, FRESH), &notes, 8);
    assert_eq!((sent.len(), sent[0].0.flags), (1, FIRST | ABORT));
}

#[test]
fn send_file__content_beyond_the_size_is_given_up() {
    // Its size is 0.
    let path = PathBuf::from("/proc/cpuinfo");
    assert_eq!(job(path.clone(), FRESH).size, 0);
    let notes = Notes::default();
    let sent = chunks(&job(path.clone(), FRESH), &notes, 1024);
    assert_eq!(sent.len(), 1);
    let (header, why) = &sent[0];
    assert!(header.has(ABORT) && !header.has(LAST));
    let why = String::from_utf8_lossy(why);
    assert!(why.contains("more content than its size of 0 bytes"), "{why}");
    assert_eq!(notes.take(5), None);
    // The receiver has an empty file of that name.
    let Message::GiveUp { reason, .. } = word(&job(path, DataRequest::Hash { bytes: 0 }), &notes)
    else {
        panic!("the hash of nothing was sent")
    };
    assert!(reason.contains("size of 0 bytes"), "{reason}");
}
