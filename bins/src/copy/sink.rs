//! The writer of the receiver: takes chunks out of the staging ring and puts them into files.

use super::chunk::{ABORT, ChunkHeader, FIRST, LAST, SAME};
use super::control::Speaking;
use super::dest::DestDir;
use super::inbound::Arrived;
use super::lane::Ring;
use super::message::{Message, Mtime, Name, Sha256Hex, printable};
use super::partial::Partial;
use super::report::FileRow;
use super::session::{End, LOOK_EVERY, Session};
use spanwire_base::usize_from;
use spanwire_mem::Region;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// What is to be done, in the order of the entries.
pub enum Work {
    /// Take in a file.
    File(FileWork),
    /// A directory is full.
    DirEnd {
        /// Number of the entry.
        index: u64,
        /// The directory.
        dir: Arc<DestDir>,
        /// Its permission bits.
        mode: u32,
        /// Its time.
        mtime: Mtime,
    },
    /// Everything was named.
    Finish,
}

/// A file that is expected.
pub struct FileWork {
    /// Number of the entry.
    pub index: u64,
    /// Where it goes.
    pub dir: Arc<DestDir>,
    /// Its name there.
    pub name: Name,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// When it was modified.
    pub mtime: Mtime,
    /// What there is of it.
    pub plan: Plan,
}

/// What there is of a file.
pub enum Plan {
    /// Nothing.
    Fresh,
    /// What an earlier attempt left.
    Resume(Partial),
    /// A file of that hash.
    Have(Sha256Hex),
}

/// The writer.
pub struct Sink<'a> {
    /// What is to be done.
    pub work: Receiver<Work>,
    /// Chunks in the ring.
    pub arrived: Receiver<Arrived>,
    /// Told of each place that is free again.
    pub freed: Sender<()>,
    /// The ring's memory.
    pub region: Region,
    /// The ring's shape.
    pub ring: Ring,
    /// To answer entries.
    pub speaking: &'a Speaking,
    /// The copy.
    pub session: &'a Session,
    /// Entries that were not answered yet.
    pub unanswered: &'a AtomicU64,
    /// Existing files may be replaced.
    pub overwrite: bool,
    /// The directory that everything is copied into.
    pub root: Arc<DestDir>,
}

/// How the taking in of one file stands.
enum State {
    /// Its first chunk has not come.
    Expected(Plan),
    /// It grows.
    Growing(Partial),
    /// It was refused; what still comes is dropped.
    Refused,
}

/// What one chunk did, if all is well.
enum Step {
    Next(State),
    Done(Sha256Hex),
}

/// What may be wrong with a chunk.
enum Wrong {
    /// The file is refused.
    File(String),
    /// The sender does not keep to the protocol.
    Sender(String),
}

impl Sink<'_> {
    /// Works until everything is done or the copy is over.
    ///
    /// # Errors
    /// How the copy ends, if not well.
    pub fn run(mut self) -> Result<(), End> {
        let mut chunk = vec![0; usize_from(self.ring.slot_bytes.into())];
        loop {
            match self.next_work()? {
                Work::File(file) => self.take_file(file, &mut chunk)?,
                Work::DirEnd { index, dir, mode, mtime } => match dir.finish(mode, mtime) {
                    Ok(()) => self.answer(&Message::Done { index, sha256: None })?,
                    Err(reason) => self.answer(&Message::Refused { index, reason })?,
                },
                Work::Finish => {
                    self.root.sync().map_err(End::Failed)?;
                    self.speaking.send(&Message::Finished)?;
                    return Err(End::Complete);
                }
            }
        }
    }

    fn next_work(&mut self) -> Result<Work, End> {
        wait(&self.work, self.session)
    }

    /// Waits for the next chunk and copies it out: what its sender may still change is not looked
    /// at twice.
    fn next_chunk<'c>(&mut self, buffer: &'c mut [u8]) -> Result<(ChunkHeader, &'c [u8]), End> {
        let Arrived { slot, bytes } = wait(&self.arrived, self.session)?;
        let chunk = &mut buffer[..usize_from(bytes.into())];
        self.region
            .copy_out(self.ring.offset(slot), chunk)
            .map_err(|e| End::Protocol(e.to_string()))?;
        // The engine is gone only when the copy is over.
        let _ = self.freed.send(());
        ChunkHeader::parse(chunk).map_err(|e| End::Protocol(e.to_string()))
    }

    fn take_file(&mut self, mut file: FileWork, buffer: &mut [u8]) -> Result<(), End> {
        let plan = std::mem::replace(&mut file.plan, Plan::Fresh);
        let mut state = State::Expected(plan);
        loop {
            let (header, data) = match self.next_chunk(buffer) {
                Ok(chunk) => chunk,
                Err(end) => {
                    drop_if_empty(state);
                    return Err(end);
                }
            };
            if header.index != file.index {
                return Err(broken(&file, "a chunk of another file"));
            }
            let ends = header.flags & (LAST | ABORT | SAME) != 0;
            state = match self.step(&file, state, &header, data) {
                Ok(Step::Next(state)) => state,
                Ok(Step::Done(sha256)) => {
                    self.session.progress.files_done.fetch_add(1, Ordering::Relaxed);
                    self.answer(&Message::Done { index: file.index, sha256: Some(sha256) })?;
                    State::Refused
                }
                Err(Wrong::File(reason)) => {
                    let path = file.dir.show(&file.name);
                    self.session.note(FileRow::failed(path, file.size, &reason));
                    self.answer(&Message::Refused { index: file.index, reason })?;
                    State::Refused
                }
                Err(Wrong::Sender(what)) => return Err(broken(&file, &what)),
            };
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
    ) -> Result<Step, Wrong> {
        if matches!(state, State::Refused) {
            return Ok(Step::Next(State::Refused));
        }
        if header.has(ABORT) {
            let why = printable(data);
            if let State::Growing(partial) = state {
                drop_if_empty(State::Growing(partial));
            }
            return Err(Wrong::File(why));
        }
        let partial = match (state, header.has(FIRST)) {
            (State::Expected(Plan::Have(ours)), true) if header.has(SAME) => {
                return self.confirm_same(file, ours, header);
            }
            (State::Expected(plan), true) if !header.has(SAME) => {
                self.begin(file, plan, header.offset)?
            }
            (State::Growing(partial), false) => partial,
            _ => return Err(Wrong::Sender("chunks of a file out of order".into())),
        };
        self.grow(file, partial, header, data)
    }

    /// Opens the file under its partial name, `offset` bytes of which are there and right.
    fn begin(&self, file: &FileWork, plan: Plan, offset: u64) -> Result<Partial, Wrong> {
        let partial = match plan {
            Plan::Resume(partial) if offset == partial.bytes() && offset <= file.size => {
                partial.reserve(file.size).map(|()| partial)
            }
            Plan::Resume(mut partial) if offset == 0 => {
                partial.start_over().and_then(|()| partial.reserve(file.size)).map(|()| partial)
            }
            Plan::Have(_) if offset == 0 && !self.overwrite => {
                Err(format!("{} is there already, and differs", file.dir.show(&file.name)))
            }
            Plan::Fresh | Plan::Have(_) if offset == 0 => {
                Partial::create(&file.dir, &file.name, file.size)
            }
            _ => return Err(Wrong::Sender(format!("an offset of {offset} that was not offered"))),
        };
        let partial = partial.map_err(Wrong::File)?;
        let shown = file.name.to_string();
        self.session.progress.begin(&shown, file.size, offset);
        Ok(partial)
    }

    fn grow(
        &self,
        file: &FileWork,
        mut partial: Partial,
        header: &ChunkHeader,
        data: &[u8],
    ) -> Result<Step, Wrong> {
        let bytes = u64::from(header.len);
        if header.offset != partial.bytes() || file.size - partial.bytes() < bytes {
            return Err(Wrong::Sender(format!(
                "{bytes} bytes at {} do not belong there",
                header.offset
            )));
        }
        if let Err(why) = partial.append(data) {
            return Err(Wrong::File(why));
        }
        self.session.progress.advance(bytes);
        if !header.has(LAST) {
            return Ok(Step::Next(State::Growing(partial)));
        }
        if partial.bytes() != file.size {
            return Err(Wrong::Sender("an end before the file's end".into()));
        }
        let ours = partial.sha256();
        if ours != header.sha256 {
            partial.discard();
            let theirs = header.sha256;
            return Err(Wrong::File(format!(
                "SHA-256 differs: {ours} arrived, {theirs} was sent; nothing was kept"
            )));
        }
        match partial.commit(file.mode, file.mtime, self.overwrite) {
            Ok(()) => {
                let resumed = self.session.progress.current().resumed;
                let path = file.dir.show(&file.name);
                self.session.note(FileRow::copied(path, file.size, ours, resumed));
                Ok(Step::Done(ours))
            }
            Err(why) => Err(Wrong::File(why)),
        }
    }

    fn confirm_same(
        &self,
        file: &FileWork,
        ours: Sha256Hex,
        header: &ChunkHeader,
    ) -> Result<Step, Wrong> {
        if header.sha256 != ours {
            return Err(Wrong::Sender("it calls a file the same that is not".into()));
        }
        let path = file.dir.show(&file.name);
        self.session.progress.begin(&file.name.to_string(), file.size, file.size);
        self.session.note(FileRow::same(path, file.size, ours));
        Ok(Step::Done(ours))
    }

    fn answer(&self, message: &Message) -> Result<(), End> {
        self.unanswered.fetch_sub(1, Ordering::AcqRel);
        Ok(self.speaking.send(message)?)
    }
}

/// Waits for the next thing from another thread of the copy.
///
/// # Errors
/// The copy is over.
pub(super) fn wait<T>(from: &Receiver<T>, session: &Session) -> Result<T, End> {
    loop {
        match from.recv_timeout(LOOK_EVERY) {
            Ok(thing) => return Ok(thing),
            // The other thread is about to say how the copy ends; it knows, this one does not.
            Err(RecvTimeoutError::Disconnected) if !session.is_over() => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(RecvTimeoutError::Timeout) if !session.is_over() => {}
            // The first end counts; this one only unwinds.
            Err(_) => return Err(End::Failed("another part of the copy has ended".into())),
        }
    }
}

/// An attempt that brought nothing leaves nothing.
fn drop_if_empty(state: State) {
    match state {
        State::Growing(partial) | State::Expected(Plan::Resume(partial))
            if partial.bytes() == 0 =>
        {
            partial.discard();
        }
        _ => {}
    }
}

fn broken(file: &FileWork, what: &str) -> End {
    End::Protocol(format!("{what} ({})", file.dir.show(&file.name)))
}

#[cfg(test)]
mod tests;
