//! The reader of the sender: reads files, hashes them and sends them in chunks.

use super::chunk::{ABORT, ChunkHeader, FIRST, HEADER_BYTES, LAST, SAME};
use super::message::{Mtime, Sha256Hex};
use super::partial::{hash_of, hash_up_to};
use super::session::{End, Session};
use super::sink::wait;
use super::talk::Speaking;
use super::walk::{Source, mtime};
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
    /// What it is called here.
    pub shown: String,
    /// Where its bytes are.
    pub source: Source,
    /// Bytes, as it was announced.
    pub size: u64,
    /// Time of modification, as it was announced.
    pub mtime: Mtime,
    /// What the receiver wants of it.
    pub wish: Wish,
}

/// What the receiver said to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// It has the first `offset` bytes, with that hash.
    From {
        /// Bytes it has.
        offset: u64,
        /// Their hash.
        sha256: Option<Sha256Hex>,
    },
    /// It has a whole file.
    Has {
        /// Its hash.
        sha256: Sha256Hex,
        /// It may be replaced.
        replace: bool,
    },
}

/// What the reader and the thread that talks to the receiver know of each other.
#[derive(Debug, Default)]
pub struct Notes {
    /// Files the receiver refused while they may still be read.
    refused: Mutex<BTreeSet<u64>>,
    /// What was sent of each file that is not answered yet.
    read: Mutex<BTreeMap<u64, WasRead>>,
}

/// What was read of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WasRead {
    /// Its hash.
    pub sha256: Sha256Hex,
    /// Bytes that did not have to be sent.
    pub resumed: u64,
    /// All of it was there.
    pub same: bool,
}

/// The reader.
pub struct Feeder<'a> {
    /// Files to send, in order.
    pub jobs: Receiver<Job>,
    /// To send by.
    pub speaking: &'a Speaking<'a>,
    /// Bytes of a chunk at most, header included.
    pub chunk_bytes: u32,
    /// The copy.
    pub session: &'a Session,
    /// Shared with the thread that talks to the receiver.
    pub notes: &'a Notes,
}

/// Why a file is given up, for people.
type GivenUp = String;

/// Either the file or the whole copy is given up.
enum Stop {
    File(GivenUp),
    Copy(End),
}

/// A file whose beginning the receiver has.
struct Begun {
    file: File,
    hash: Sha256,
    offset: u64,
}

impl Notes {
    /// The receiver refused file `index`.
    pub fn refuse(&self, index: u64) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(index);
    }

    /// What was read of file `index`, which is answered now.
    pub fn take(&self, index: u64) -> Option<WasRead> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).remove(&index)
    }

    fn was_read(&self, index: u64, what: WasRead) {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).insert(index, what);
    }

    fn forget_refusal(&self, index: u64) -> bool {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).remove(&index)
    }
}

impl Feeder<'_> {
    /// Works until the copy is over.
    ///
    /// # Errors
    /// How the copy ends.
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
        let mut started = false;
        match self.send_chunks(job, &mut started) {
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

    fn send_chunks(&self, job: &Job, started: &mut bool) -> Result<(), Stop> {
        let cannot =
            |e: &dyn std::fmt::Display| Stop::File(format!("cannot read {}: {e}", job.shown));
        let mut file = job.source.open().map_err(|e| cannot(&e))?;
        check_unchanged(&file, job)?;
        let begun = match job.wish {
            Wish::Has { sha256, replace } => {
                let (hash, _) = hash_of(&mut file, self.session).map_err(|e| cannot(&e))?;
                let ours = Sha256Hex(hash.finalize().into());
                if ours == sha256 {
                    check_unchanged(&file, job)?;
                    return self.say_same(job, ours, started);
                }
                if !replace {
                    return Err(Stop::File(format!(
                        "{}: the receiver has a file of that name, size and time that differs \
                         (--overwrite at the receiver replaces it)",
                        job.shown
                    )));
                }
                rewound(file).map_err(|e| cannot(&e))?
            }
            Wish::From { offset, sha256 } => {
                let (hash, len) =
                    hash_up_to(&mut file, offset, self.session).map_err(|e| cannot(&e))?;
                let ours = Sha256Hex(hash.clone().finalize().into());
                if len == offset && (offset == 0 || sha256 == Some(ours)) {
                    Begun { file, hash, offset }
                } else {
                    // The file is another one now, or the partial one was damaged.
                    rewound(file).map_err(|e| cannot(&e))?
                }
            }
        };
        self.send_rest(job, begun, started)
    }

    fn say_same(&self, job: &Job, sha256: Sha256Hex, started: &mut bool) -> Result<(), Stop> {
        self.session.progress.begin(&job.shown, job.size, job.size);
        self.notes.was_read(job.index, WasRead { sha256, resumed: job.size, same: true });
        *started = true;
        self.put(job.index, FIRST | SAME, 0, Some(sha256), &mut [0; HEADER_BYTES])
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
                ErrorKind::UnexpectedEof => changed(job),
                _ => Stop::File(format!("cannot read {}: {e}", job.shown)),
            })?;
            hash.update(&*data);
            let last = u64::try_from(want) == Ok(left);
            let mut flags = if *started { 0 } else { FIRST };
            let mut sha256 = None;
            if last {
                // Before the receiver may take it for whole.
                check_unchanged(&file, job)?;
                let ours = Sha256Hex(hash.clone().finalize().into());
                self.notes.was_read(job.index, WasRead { sha256: ours, resumed, same: false });
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

    /// Sends `chunk`, whose data are behind room for the header.
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
        self.speaking.send_chunk(&header, chunk).map_err(Stop::Copy)
    }
}

/// The file is what was announced: a regular one of that size and time.
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

fn changed(job: &Job) -> Stop {
    Stop::File(format!("{} changed while it was sent", job.shown))
}

fn rewound(mut file: File) -> std::io::Result<Begun> {
    file.seek(SeekFrom::Start(0))?;
    Ok(Begun { file, hash: Sha256::new(), offset: 0 })
}

#[cfg(test)]
mod tests;
