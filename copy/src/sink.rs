//! The writer of the receiver: it writes chunks to files.

use crate::chunk::{ABORT, ChunkHeader, FIRST, LAST};
use crate::chunks::{Chunks, wait};
use crate::connection::SendHalf;
use crate::dest::DestDir;
use crate::existing::Named;
use crate::message::{Message, Mtime, Sha256Hex};
use crate::partial::Partial;
use crate::row::FileRow;
use crate::session::{End, Session};
use spanwire_host::text::printable;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

/// A task of the writer, in the order of the entries.
pub enum Work {
    /// Receive a file.
    File(Box<FileWork>),
    /// A directory whose content is complete.
    DirEnd {
        /// Number of the entry.
        index: u64,
        /// The directory.
        dir: Arc<DestDir>,
        /// Its permission bits.
        mode: u32,
        /// Its modification time.
        mtime: Mtime,
    },
    /// All entries were received.
    Finish,
}

/// A file whose chunks are expected.
pub struct FileWork {
    /// Number of the entry.
    pub index: u64,
    /// The file.
    pub file: Named,
    /// The partial file of an earlier attempt.
    pub partial: Option<Partial>,
    /// The kept part of it: the offset of the first chunk.
    pub offset: u64,
}

/// The writer.
pub struct Sink<'a> {
    /// Its tasks.
    pub work: Receiver<Work>,
    /// The chunks of the files.
    pub chunks: Chunks,
    /// To answer entries.
    pub send_half: &'a SendHalf<'a>,
    /// The copy.
    pub session: &'a Session,
    /// Number of unanswered entries.
    pub unanswered: &'a AtomicU64,
    /// Existing files may be replaced.
    pub overwrite: bool,
    /// Files are read back from disk.
    pub verify_disk: bool,
    /// The directory that everything is copied into.
    pub root: Arc<DestDir>,
}

/// The state of receiving one file.
enum State {
    /// The first chunk has not arrived.
    Expected(Option<Partial>),
    /// Chunks are being appended.
    Growing(Partial),
    /// The file was rejected; further chunks are dropped.
    Refused,
}

/// The result of one valid chunk.
enum Step {
    Next(State),
    Done(Sha256Hex),
}

/// An error of a chunk.
enum ChunkFailure {
    /// The file fails.
    File(String),
    /// The sender violated the protocol.
    Sender(String),
}

impl Sink<'_> {
    /// Runs until all tasks are done or the copy has ended.
    ///
    /// # Errors
    /// The cause, unless the copy is complete.
    pub fn run(mut self) -> Result<(), End> {
        loop {
            match self.next_work()? {
                Work::File(file) => self.take_file(*file)?,
                Work::DirEnd { index, dir, mode, mtime } => {
                    let finished = self.at_work(|| dir.finish(mode, mtime));
                    match finished {
                        Ok(()) => self.answer(&Message::Done { index, sha256: None })?,
                        Err(reason) => self.answer(&Message::Refused { index, reason })?,
                    }
                }
                Work::Finish => {
                    self.at_work(|| self.root.sync()).map_err(End::Failed)?;
                    self.send_half.send(&Message::Finished)?;
                    return Err(End::Complete);
                }
            }
        }
    }

    fn next_work(&mut self) -> Result<Work, End> {
        wait(&self.work, self.session)
    }

    fn take_file(&mut self, mut file: FileWork) -> Result<(), End> {
        let mut state = State::Expected(file.partial.take());
        // Chunks of a refused file may have more bytes, which are no progress.
        let mut declared = file.file.size - file.offset.min(file.file.size);
        loop {
            let (arrived_at, chunk) = match self.chunks.next(self.session) {
                Ok(arrived) => arrived,
                Err(end) => {
                    drop_if_empty(state);
                    return Err(end);
                }
            };
            let (header, data) = match ChunkHeader::parse(&chunk) {
                Ok(parsed) => parsed,
                Err(e) => {
                    drop_if_empty(state);
                    return Err(End::Protocol(e.to_string()));
                }
            };
            if header.index != file.index {
                return Err(broken(&file, "a chunk of another file"));
            }
            let ends = header.ends_file();
            self.session.chunk_came(arrived_at, ends);
            let bytes = declared.min(header.len.into());
            declared -= bytes;
            self.session.brought(bytes);
            state = match self.step(&file, state, &header, data) {
                Ok(Step::Next(state)) => state,
                Ok(Step::Done(sha256)) => {
                    self.session.progress.files_done.fetch_add(1, Ordering::Relaxed);
                    self.answer(&Message::Done { index: file.index, sha256: Some(sha256) })?;
                    State::Refused
                }
                Err(ChunkFailure::File(reason)) => {
                    let Named { size, .. } = file.file;
                    self.session.note(FileRow::failed(file.file.shown(), size, &reason));
                    self.answer(&Message::Refused { index: file.index, reason })?;
                    State::Refused
                }
                Err(ChunkFailure::Sender(what)) => return Err(broken(&file, &what)),
            };
            self.chunks.processed(chunk);
            if ends {
                drop_if_empty(state);
                return Ok(());
            }
        }
    }

    fn step(
        &self,
        file: &FileWork,
        state: State,
        header: &ChunkHeader,
        data: &[u8],
    ) -> Result<Step, ChunkFailure> {
        if matches!(state, State::Refused) {
            return Ok(Step::Next(State::Refused));
        }
        if header.has(ABORT) {
            let why = printable(data);
            if let State::Growing(partial) = state {
                drop_if_empty(State::Growing(partial));
            }
            return Err(ChunkFailure::File(why));
        }
        let partial = match (state, header.has(FIRST)) {
            (State::Expected(partial), true) => self.begin(file, partial, header.offset)?,
            (State::Growing(partial), false) => partial,
            _ => return Err(ChunkFailure::Sender("chunks of a file out of order".into())),
        };
        self.grow(file, partial, header, data)
    }

    /// Opens the partial file. The part of it that `want` granted exists and is verified.
    fn begin(
        &self,
        work: &FileWork,
        partial: Option<Partial>,
        offset: u64,
    ) -> Result<Partial, ChunkFailure> {
        // Data may follow only a prefix whose hash the sender has proved to know.
        if offset != work.offset {
            return Err(ChunkFailure::Sender(format!(
                "an offset of {offset} that was not offered"
            )));
        }
        let Named { dir, name, size, .. } = &work.file;
        let partial = match partial {
            Some(mut partial) => {
                let ready = if offset == 0 { partial.start_over() } else { Ok(()) };
                ready.and_then(|()| partial.reserve()).map(|()| partial)
            }
            None => Partial::create(dir, name, *size),
        };
        let partial = partial.map_err(ChunkFailure::File)?;
        self.session.progress.begin(&name.to_string(), *size, offset);
        Ok(partial)
    }

    fn grow(
        &self,
        work: &FileWork,
        mut partial: Partial,
        header: &ChunkHeader,
        data: &[u8],
    ) -> Result<Step, ChunkFailure> {
        let file = &work.file;
        let bytes = u64::from(header.len);
        if header.offset != partial.bytes() || file.size.saturating_sub(partial.bytes()) < bytes {
            return Err(ChunkFailure::Sender(format!(
                "{bytes} bytes at {} do not belong there",
                header.offset
            )));
        }
        if let Err(why) = self.at_work(|| partial.append(data)) {
            return Err(ChunkFailure::File(why));
        }
        self.session.progress.advance(bytes);
        if !header.has(LAST) {
            return Ok(Step::Next(State::Growing(partial)));
        }
        if partial.bytes() != file.size {
            return Err(ChunkFailure::Sender("an end before the file's end".into()));
        }
        let ours = partial.sha256();
        if ours != header.sha256 {
            partial.discard();
            let theirs = header.sha256;
            return Err(ChunkFailure::File(format!(
                "SHA-256 differs: {ours} arrived, {theirs} was sent; nothing was kept"
            )));
        }
        if self.verify_disk
            && let Err(why) = self.at_work(|| partial.verify_disk(self.session))
        {
            // Of a copy that has ended, what arrived stays.
            if !self.session.is_over() {
                partial.discard();
            }
            return Err(ChunkFailure::File(why));
        }
        match self.at_work(|| partial.commit(file.mode, file.mtime, self.overwrite)) {
            Ok(()) => {
                let resumed = self.session.progress.current().resumed;
                self.session.note(FileRow::copied(file.shown(), file.size, ours, resumed));
                Ok(Step::Done(ours))
            }
            Err(why) => Err(ChunkFailure::File(why)),
        }
    }

    /// Does local work, during which the stall timer is stopped.
    fn at_work<T>(&self, work: impl FnOnce() -> T) -> T {
        let _at_work = self.session.at_work();
        work()
    }

    fn answer(&self, message: &Message) -> Result<(), End> {
        self.unanswered.fetch_sub(1, Ordering::AcqRel);
        self.send_half.send(message)
    }
}

/// Removes the partial file of an attempt that received no data.
fn drop_if_empty(state: State) {
    match state {
        State::Growing(partial) | State::Expected(Some(partial)) if partial.bytes() == 0 => {
            partial.discard();
        }
        _ => {}
    }
}

fn broken(file: &FileWork, what: &str) -> End {
    End::Protocol(format!("{what} ({})", file.file.name))
}

#[cfg(test)]
mod tests;
