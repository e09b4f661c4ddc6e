use super::super::testing::{TempDir, Wire};
use super::*;
use spanwire_stream::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::channel;

fn job(path: PathBuf, wish: Wish) -> Job {
    let stat = rustix::fs::stat(&path).unwrap();
    let (size, mtime) = (u64::try_from(stat.st_size).unwrap(), mtime(&stat));
    Job { index: 5, shown: "f".into(), source: Source::Root(path), size, mtime, wish }
}

/// The chunks that `job` becomes, each of `data_bytes` at most.
fn chunks(job: &Job, notes: &Notes, data_bytes: u32) -> Vec<(ChunkHeader, Vec<u8>)> {
    let session = Session::default();
    let (_jobs, jobs) = channel();
    let (theirs, ours) = Wire::new().pair();
    let (sender, _receiver) = ours.split();
    let speaking = Speaking::new(sender, &session);
    let chunk_bytes = data_bytes + u32_from(HEADER_BYTES);
    let feeder = Feeder { jobs, speaking: &speaking, chunk_bytes, session: &session, notes };
    if let Err(Stop::Copy(end)) = feeder.send_file(job) {
        panic!("{end}");
    }
    session.end(End::Complete);
    let mut got = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| speaking.end());
        let (_sender, mut receiver) = theirs.split();
        while let Some(chunk) = receiver.recv().unwrap_or_else(|e: Error| panic!("{e}")) {
            let (header, data) = ChunkHeader::parse(&chunk).unwrap();
            assert_eq!(header.index, 5);
            got.push((header, data.to_vec()));
        }
    });
    got
}

fn hash(data: &[u8]) -> Sha256Hex {
    Sha256Hex(Sha256::digest(data).into())
}

fn from(offset: u64, sha256: Sha256Hex) -> Wish {
    Wish::From { offset, sha256: Some(sha256) }
}

const FRESH: Wish = Wish::From { offset: 0, sha256: None };

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
        let read = WasRead { sha256: hash(content), resumed: 0, same: false };
        assert_eq!(notes.take(5), Some(read));
    }
}

#[test]
fn send_file__goes_on_only_behind_its_own_beginning() {
    let tmp = TempDir::new();
    let path = tmp.path().join("f");
    fs::write(&path, "12345678abc").unwrap();
    let notes = Notes::default();
    let sent = chunks(&job(path.clone(), from(9, hash(b"12345678a"))), &notes, 8);
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].0.flags, sent[0].0.offset, &*sent[0].1), (FIRST | LAST, 9, &b"bc"[..]));
    assert_eq!(sent[0].0.sha256, hash(b"12345678abc"), "of all of it");
    let whole = chunks(&job(path.clone(), from(11, hash(b"12345678abc"))), &notes, 8);
    assert_eq!((whole.len(), whole[0].1.len()), (1, 0), "only the end is missing");
    let other = chunks(&job(path, from(9, hash(b"another one"))), &notes, 8);
    assert_eq!((other.len(), other[0].0.offset), (2, 0), "starts over");
}

#[test]
fn send_file__one_that_is_there_is_compared_and_not_sent() {
    let tmp = TempDir::new();
    let path = tmp.path().join("f");
    fs::write(&path, "abc").unwrap();
    let has = |content: &[u8], replace| Wish::Has { sha256: hash(content), replace };
    let notes = Notes::default();
    let same = chunks(&job(path.clone(), has(b"abc", false)), &notes, 8);
    assert_eq!((same[0].0.flags, same[0].0.sha256), (FIRST | SAME, hash(b"abc")));
    assert!(notes.take(5).is_some_and(|read| read.same));
    let replaced = chunks(&job(path.clone(), has(b"abd", true)), &notes, 8);
    assert_eq!((replaced[0].0.flags, &*replaced[0].1), (FIRST | LAST, &b"abc"[..]));
    let kept = chunks(&job(path, has(b"abd", false)), &notes, 200);
    assert_eq!(kept[0].0.flags, FIRST | ABORT);
    assert!(String::from_utf8_lossy(&kept[0].1).contains("differs"));
}

#[test]
fn send_file__one_that_changed_is_given_up() {
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
fn send_file__stops_when_the_receiver_has_refused_it() {
    let tmp = TempDir::new();
    let path = tmp.path().join("f");
    fs::write(&path, "abc").unwrap();
    let notes = Notes::default();
    notes.refuse(5);
    let sent = chunks(&job(path, FRESH), &notes, 8);
    assert_eq!((sent.len(), sent[0].0.flags), (1, FIRST | ABORT));
}
