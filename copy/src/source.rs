//! The reader of the sender: it reads files, hashes them and sends them in chunks.

use crate::chunk::{ABORT, ChunkHeader, FIRST, HEADER_BYTES, LAST};
use crate::chunks::wait;
use crate::connection::SendHalf;
use crate::message::{Message, Mtime, Sha256Hex};
use crate::partial::hash_up_to;
use crate::session::{End, Session};
use crate::walk::{Source, mtime};
use sha2::{Digest, Sha256};
use spanwire_base::{u32_from, usize_from};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError};

/// A file to send.
pub struct Job {
    /// Number of its entry.
    pub index: u64,
    /// Its local path, for messages.
    pub shown: String,
    /// The source of its bytes.
    pub source: Source,
    /// Bytes, as in its entry.
    pub size: u64,
    /// Modification time, as in its entry.
    pub mtime: Mtime,
    /// The receiver's request.
    pub request: DataRequest,
}

/// The receiver's request for a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataRequest {
    /// The receiver has the first `bytes` and requests their hash.
    Hash {
        /// Bytes it has.
        bytes: u64,
    },
    /// The receiver requests the data after the first `offset` bytes.
    From {
        /// Bytes that it keeps: 0, or those whose hash it has received.
        offset: u64,
    },
}

/// State shared by the reader and the thread that exchanges messages with the receiver.
#[derive(Debug, Default)]
pub struct Notes {
    /// Files that the receiver rejected while they may still be read.
    refused: Mutex<BTreeSet<u64>>,
    /// The read part of each unanswered file.
    read: Mutex<BTreeMap<u64, ReadResult>>,
    /// The hash of the prefix of each unanswered file, and the prefix length.
    begun: Mutex<BTreeMap<u64, (Sha256, u64)>>,
}

/// The result of reading a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadResult {
    /// Its hash.
    pub sha256: Sha256Hex,
    /// Bytes that the receiver already had.
    pub resumed: u64,
    /// The receiver already had the whole file.
    pub same: bool,
}

/// The reader.
pub struct FileReader<'a> {
    /// Files to send, in order.
    pub jobs: Receiver<Job>,
    /// The sending half of the connection.
    pub send_half: &'a SendHalf<'a>,
    /// Bytes of a chunk at most, header included.
    pub chunk_bytes: u32,
    /// The copy.
    pub session: &'a Session,
    /// Shared with the thread that exchanges messages.
    pub notes: &'a Notes,
}

/// Why a file is given up, for people.
type GivenUp = String;

/// Whether the file or the whole copy is given up.
enum Stop {
    File(GivenUp),
    Copy(End),
}

/// A file whose prefix the receiver has.
struct Begun {
    file: File,
    hash: Sha256,
    offset: u64,
}

impl Notes {
    /// Records that the receiver rejected file `index`.
    pub fn refuse(&self, index: u64) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(index);
    }

    /// The result of reading file `index`, which is now answered.
    pub fn take(&self, index: u64) -> Option<ReadResult> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).remove(&index);
        self.read.lock().unwrap_or_else(PoisonError::into_inner).remove(&index)
    }

    fn record_read(&self, index: u64, what: ReadResult) {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).insert(index, what);
    }

    fn has_begun(&self, index: u64, hash: Sha256, bytes: u64) {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).insert(index, (hash, bytes));
    }

    /// The hash of the first `bytes` of file `index`, if it was sent to the receiver.
    fn beginning(&self, index: u64, bytes: u64) -> Option<Sha256> {
        let known = self.begun.lock().unwrap_or_else(PoisonError::into_inner).remove(&index);
        match bytes {
            0 => Some(Sha256::new()),
            _ => known.filter(|(_, of)| *of == bytes).map(|(hash, _)| hash),
        }
    }

    fn forget_refusal(&self, index: u64) -> bool {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).remove(&index)
    }
}

impl FileReader<'_> {
    /// Runs until the copy has ended.
    ///
    /// # Errors
    /// The cause, unless the copy is complete.
    pub fn run(self) -> Result<(), End> {
        loop {
            let job = wait(&self.jobs, self.session)?;
            match self.send_file(&job) {
                Ok(()) => {}
                Err(Stop::Copy(end)) => return Err(end),
                Err(Stop::File(_)) => {}
            }
            self.notes.forget_refusal(job.index);
        }
    }

    fn send_file(&self, job: &Job) -> Result<(), Stop> {
        let offset = match job.request {
            DataRequest::Hash { bytes } => return self.send_hash(job, bytes),
            DataRequest::From { offset } => offset,
        };
        let mut started = false;
        match self.send_from(job, offset, &mut started) {
            Err(Stop::File(why)) => {
                let first = if started { 0 } else { FIRST };
                let cut = why.len().min(usize_from(self.chunk_bytes.into()) - HEADER_BYTES);
                let mut chunk = [&[0; HEADER_BYTES], &why.as_bytes()[..cut]].concat();
                self.put(job.index, ABORT | first, 0, None, &mut chunk)?;
                Err(Stop::File(why))
            }
            other => other,
        }
    }

    /// Sends the hash of the first `bytes`, or gives up the file.
    fn send_hash(&self, job: &Job, bytes: u64) -> Result<(), Stop> {
        let word = match self.hash_beginning(job, bytes) {
            Ok(sha256) => Message::Hash { index: job.index, sha256 },
            Err(Stop::File(reason)) => Message::GiveUp { index: job.index, reason },
            Err(end) => return Err(end),
        };
        self.send_half.send(&word).map_err(Stop::Copy)
    }

    fn hash_beginning(&self, job: &Job, bytes: u64) -> Result<Sha256Hex, Stop> {
        let mut file = Self::open(job)?;
        let (hash, len) =
            hash_up_to(&mut file, bytes, self.session).map_err(|e| cannot_read(job, &e))?;
        check_unchanged(&file, job)?;
        if len != bytes {
            return Err(cut_short(job));
        }
        if bytes == job.size {
            check_end(&mut file, job)?;
        }
        let sha256 = Sha256Hex(hash.clone().finalize().into());
        if bytes == job.size {
            let same = ReadResult { sha256, resumed: job.size, same: true };
            self.notes.record_read(job.index, same);
        }
        self.notes.has_begun(job.index, hash, bytes);
        Ok(sha256)
    }

    fn send_from(&self, job: &Job, offset: u64, started: &mut bool) -> Result<(), Stop> {
        let stray = || End::Protocol(format!("{} from {offset}, not from what it has", job.shown));
        let beginning = self.notes.beginning(job.index, offset);
        let hash = beginning.ok_or_else(|| Stop::Copy(stray()))?;
        let mut file = Self::open(job)?;
        file.seek(SeekFrom::Start(offset)).map_err(|e| cannot_read(job, &e))?;
        self.send_rest(job, Begun { file, hash, offset }, started)
    }

    fn open(job: &Job) -> Result<File, Stop> {
        let file = job.source.open().map_err(|e| cannot_read(job, &e))?;
        check_unchanged(&file, job)?;
        Ok(file)
    }

    fn send_rest(&self, job: &Job, begun: Begun, started: &mut bool) -> Result<(), Stop> {
        let Begun { mut file, mut hash, mut offset } = begun;
        let resumed = offset;
        self.session.progress.begin(&job.shown, job.size, offset);
        let mut buffer = vec![0; usize_from(self.chunk_bytes.into())];
        let room = buffer.len() - HEADER_BYTES;
        loop {
            if self.notes.forget_refusal(job.index) {
                return Err(Stop::File("the receiver refused it".into()));
            }
            let left = job.size - offset;
            let want = usize::try_from(left).map_or(room, |left| left.min(room));
            let chunk = &mut buffer[..HEADER_BYTES + want];
            let data = &mut chunk[HEADER_BYTES..];
            file.read_exact(data).map_err(|e| match e.kind() {
                ErrorKind::UnexpectedEof => {
                    check_unchanged(&file, job).err().unwrap_or(cut_short(job))
                }
                _ => cannot_read(job, &e),
            })?;
            hash.update(&*data);
            let last = u64::try_from(want) == Ok(left);
            let mut flags = if *started { 0 } else { FIRST };
            let mut sha256 = None;
            if last {
                // Checked before the last chunk, after which the receiver considers the file
                // complete.
                check_end(&mut file, job)?;
                check_unchanged(&file, job)?;
                let ours = Sha256Hex(hash.clone().finalize().into());
                self.notes
                    .record_read(job.index, ReadResult { sha256: ours, resumed, same: false });
                (flags, sha256) = (flags | LAST, Some(ours));
            }
            *started = true;
            self.put(job.index, flags, offset, sha256, chunk)?;
            self.session.progress.advance(spanwire_base::u64_from(want));
            if last {
                return Ok(());
            }
            offset += spanwire_base::u64_from(want);
        }
    }

    /// Sends `chunk`, which has room for the header before its data.
    fn put(
        &self,
        index: u64,
        flags: u32,
        offset: u64,
        sha256: Option<Sha256Hex>,
        chunk: &mut [u8],
    ) -> Result<(), Stop> {
        let len = u32_from(chunk.len() - HEADER_BYTES);
        let sha256 = sha256.unwrap_or(Sha256Hex([0; 32]));
        let header = ChunkHeader { flags, len, index, offset, sha256 };
        self.send_half.send_chunk(&header, chunk).map_err(Stop::Copy)
    }
}

/// Checks that the file still is a regular one with the size and time of its entry.
fn check_unchanged(file: &File, job: &Job) -> Result<(), Stop> {
    match rustix::fs::fstat(file) {
        Ok(stat)
            if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file()
                && u64::try_from(stat.st_size) == Ok(job.size)
                && mtime(&stat) == job.mtime =>
        {
            Ok(())
        }
        Ok(_) => Err(changed(job)),
        Err(e) => Err(Stop::File(format!("cannot look at {}: {e}", job.shown))),
    }
}

/// Checks that the file ends here. Files of procfs and sysfs have a size that is not that of their
/// content, mostly 0.
fn check_end(file: &mut File, job: &Job) -> Result<(), Stop> {
    match file.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => {
            check_unchanged(file, job)?;
            let Job { shown, size, .. } = job;
            Err(Stop::File(format!(
                "{shown} has more content than its size of {size} bytes{GENERATED}"
            )))
        }
        Err(e) => Err(cannot_read(job, &e)),
    }
}

fn cut_short(job: &Job) -> Stop {
    let Job { shown, size, .. } = job;
    Stop::File(format!("{shown} has less content than its size of {size} bytes{GENERATED}"))
}

/// The cause of a content that is not of a file's size, and a remedy.
const GENERATED: &str =
    ", as of files that the kernel generates, in /proc and /sys: save its content as a file first";

fn changed(job: &Job) -> Stop {
    Stop::File(format!("{} changed while it was sent", job.shown))
}

fn cannot_read(job: &Job, e: &dyn std::fmt::Display) -> Stop {
    Stop::File(format!("cannot read {}: {e}", job.shown))
}

#[cfg(test)]
mod tests;
