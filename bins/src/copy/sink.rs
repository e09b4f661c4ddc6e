//! The writer of the receiver: puts chunks into files.

use super::chunk::{ABORT, ChunkHeader, FIRST, LAST, SAME};
use super::dest::DestDir;
use super::message::{Message, Mtime, Name, Sha256Hex, printable};
use super::partial::Partial;
use super::report::FileRow;
use super::session::{End, LOOK_EVERY, Session};
use super::talk::Speaking;
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
    /// Chunks, copied out of what their sender may still write.
    pub arrived: Receiver<Vec<u8>>,
    /// Takes the memory of chunks that were dealt with.
    pub spare: Sender<Vec<u8>>,
    /// To answer entries.
    pub speaking: &'a Speaking<'a>,
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
        loop {
            match self.next_work()? {
                Work::File(file) => self.take_file(file)?,
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

    fn take_file(&mut self, mut file: FileWork) -> Result<(), End> {
        let plan = std::mem::replace(&mut file.plan, Plan::Fresh);
        let mut state = State::Expected(plan);
        loop {
            let chunk = match wait(&self.arrived, self.session) {
                Ok(chunk) => chunk,
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
            // Who hears is gone only when the copy is over.
            let _ = self.spare.send(chunk);
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
        self.speaking.send(message)
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
