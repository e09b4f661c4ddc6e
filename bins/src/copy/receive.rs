//! The receiver: takes what a sender names, one sender at a time.

use super::dest::{DEPTH_MAX, DestDir};
use super::message::{Accept, Entry, EntryKind, Message, Mtime, Name, Request, Sha256Hex};
use super::partial::{Partial, hash_of};
use super::report::FileRow;
use super::send::run_part;
use super::session::{End, LOOK_EVERY, Session};
use super::sink::{FileWork, Plan, Sink, Work};
use super::talk::{Hearing, SENDER_ANSWERS_WITHIN, Sorting, Speaking, unexpected};
use crate::fabric::Error;
use crate::report::bytes;
use rustix::fs::FileType;
use sha2::Digest;
use spanwire_stream::Connection;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::thread;

/// Takes what the sender at the other end of `connection` brings, into `root`. `watch` is called a
/// few times a second from the calling thread and may end the session. How it ended is in
/// `session`.
///
/// # Errors
/// The two ends did not come to terms; the sender was told why.
pub fn receive(
    connection: Connection,
    root: &Arc<DestDir>,
    overwrite: bool,
    session: &Session,
    mut watch: impl FnMut(&Session),
) -> Result<(), Error> {
    let (sender, receiver) = connection.split();
    let speaking = Speaking::new(sender, session);
    let mut hearing = Hearing::new(receiver);
    come_to_terms(&speaking, &mut hearing, session, &mut watch, root).inspect_err(|why| {
        // Whoever is there should know why; if nobody is, nobody does.
        speaking.reject(&why.to_string());
    })?;
    let (words, words_out) = sync_channel(WORDS_WAITING);
    let (chunks, arrived) = sync_channel(CHUNKS_WAITING);
    let (spare_in, spare) = channel();
    let (work_in, work) = channel();
    let unanswered = AtomicU64::new(0);
    let sink = Sink {
        work,
        arrived,
        spare: spare_in,
        speaking: &speaking,
        session,
        unanswered: &unanswered,
        overwrite,
        root: Arc::clone(root),
    };
    let taker = Taker {
        words: words_out,
        answers: Answers { speaking: &speaking, session, unanswered: &unanswered },
        work: work_in,
        stack: vec![Some(Arc::clone(root))],
        next: 0,
        overwrite,
    };
    let sorting = Sorting { words, chunks, spare };
    thread::scope(|scope| {
        // Borrowed: the connection is let go of when the last word is said.
        let hearing = &mut hearing;
        scope.spawn(move || run_part(session, || hearing.sort(&sorting, session)));
        scope.spawn(|| run_part(session, || sink.run()));
        scope.spawn(|| run_part(session, || taker.run()));
        while !session.is_over() {
            watch(session);
            thread::park_timeout(LOOK_EVERY / 2);
        }
        speaking.end();
    });
    Ok(())
}

/// Comes to terms with the sender.
fn come_to_terms(
    speaking: &Speaking<'_>,
    hearing: &mut Hearing,
    session: &Session,
    watch: &mut dyn FnMut(&Session),
    root: &DestDir,
) -> Result<(), Error> {
    let request = match hearing.expect(session, watch, SENDER_ANSWERS_WITHIN)? {
        Message::Request(request) => request,
        other => return Err(unexpected("a request", &other).to_string().into()),
    };
    check_room(root, &request)?;
    let progress = &session.progress;
    progress.bytes_total.store(request.bytes, Ordering::Relaxed);
    progress.files_total.store(request.files, Ordering::Relaxed);
    let accept = Message::Accept(Accept { window: WINDOW });
    speaking.send(&accept).map_err(|end| end.to_string().into())
}

/// Refuses before the first byte what cannot fit, what is there of it already counted in.
fn check_room(root: &DestDir, request: &Request) -> Result<(), String> {
    let free = root.free_bytes()?;
    if request.bytes <= free || request.roots.is_empty() {
        return Ok(());
    }
    let there = root.bytes_there(&request.roots);
    if request.bytes.saturating_sub(there) <= free {
        return Ok(());
    }
    Err(format!("no space: {} are to come, {} are free", bytes(request.bytes), bytes(free)))
}

/// To answer entries with.
struct Answers<'a> {
    speaking: &'a Speaking<'a>,
    session: &'a Session,
    unanswered: &'a AtomicU64,
}

/// Takes entries, and decides what there is to do.
struct Taker<'a> {
    words: Receiver<Message>,
    answers: Answers<'a>,
    work: Sender<Work>,
    /// The directories entered; `None` for one that was refused.
    stack: Vec<Option<Arc<DestDir>>>,
    /// Number of the next entry.
    next: u64,
    overwrite: bool,
}

impl Taker<'_> {
    /// Works until the sender has named everything, or the copy is over.
    fn run(mut self) -> Result<(), End> {
        while !self.answers.session.is_over() {
            match self.words.recv_timeout(LOOK_EVERY) {
                Ok(Message::Entry(entry)) => self.on_entry(entry)?,
                Ok(Message::Finish) => return self.on_finish(),
                Ok(other) => return Err(unexpected("an entry", &other)),
                Err(RecvTimeoutError::Timeout) => {}
                // Who heard them knows how the copy ends.
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
        Ok(())
    }

    fn on_finish(&mut self) -> Result<(), End> {
        if self.stack.len() != 1 || self.answers.unanswered.load(Ordering::Acquire) != 0 {
            return Err(End::Protocol("a finish in the middle".into()));
        }
        self.give(Work::Finish);
        // The writer says the last word; the sender may hang up after it.
        Ok(())
    }

    fn on_entry(&mut self, Entry { index, kind }: Entry) -> Result<(), End> {
        if index != self.next {
            let what = format!("entry {index} where {} was due", self.next);
            return Err(End::Protocol(what));
        }
        self.next += 1;
        if self.answers.unanswered.fetch_add(1, Ordering::AcqRel) >= u64::from(WINDOW) {
            return Err(End::Protocol("more entries at a time than were granted".into()));
        }
        let here = self.stack.last().cloned().flatten();
        match kind {
            EntryKind::Dir { name } => self.on_dir(index, here.as_ref(), &name),
            EntryKind::DirEnd { mode, mtime } => self.on_dir_end(index, mode, mtime),
            EntryKind::Symlink { name, target } => {
                let made = here.map_or_else(not_entered, |dir| {
                    dir.symlink(&name, &target, self.overwrite)
                        .map_err(|why| (dir.show(&name), why))
                });
                self.answers.answer(index, made)
            }
            EntryKind::File { name, size, mode, mtime } => {
                let planned = here.map_or_else(not_entered, |dir| {
                    let plan = self.plan(&dir, &name, size, mtime);
                    plan.map(|plan| (dir.clone(), plan)).map_err(|why| (dir.show(&name), why))
                });
                match planned {
                    Err(refusal) => self.answers.answer(index, Err(refusal)),
                    Ok((dir, plan)) => {
                        let wish = self.wish(index, &plan, size);
                        // Before the sender hears of it: its chunks find the writer ready.
                        let file = FileWork { index, dir, name, size, mode, mtime, plan };
                        self.give(Work::File(file));
                        self.answers.speaking.send(&wish)
                    }
                }
            }
        }
    }

    fn on_dir(&mut self, index: u64, here: Option<&Arc<DestDir>>, name: &Name) -> Result<(), End> {
        if self.stack.len() > DEPTH_MAX {
            return Err(End::Protocol(format!("more than {DEPTH_MAX} directories deep")));
        }
        let entered = here
            .map_or_else(not_entered, |dir| dir.enter(name).map_err(|why| (dir.show(name), why)));
        let (dir, answer) = match entered {
            Ok(dir) => (Some(dir), Ok(())),
            Err(refusal) => (None, Err(refusal)),
        };
        self.stack.push(dir);
        self.answers.answer(index, answer)
    }

    fn on_dir_end(&mut self, index: u64, mode: u32, mtime: Mtime) -> Result<(), End> {
        if self.stack.len() < 2 {
            return Err(End::Protocol("it leaves the directory copied into".into()));
        }
        match self.stack.pop().flatten() {
            Some(dir) => {
                self.give(Work::DirEnd { index, dir, mode, mtime });
                Ok(())
            }
            // That it was refused has been said.
            None => self.answers.answer(index, Ok(())),
        }
    }

    /// What there is of a file, and whether it may come.
    fn plan(
        &self,
        dir: &Arc<DestDir>,
        name: &Name,
        size: u64,
        mtime: Mtime,
    ) -> Result<Plan, String> {
        let session = self.answers.session;
        if let Some(seen) = dir.look(name.as_bytes())? {
            // Of the time, seconds are what every file system keeps; the hash decides.
            let alike = seen.size == size && seen.mtime.s == mtime.s;
            if seen.kind == FileType::RegularFile && alike {
                let (hash, _) = hash_of(&mut dir.read(name)?, session)
                    .map_err(|e| format!("cannot read {}: {e}", dir.show(name)))?;
                return Ok(Plan::Have(Sha256Hex(hash.finalize().into())));
            }
            let replaceable = matches!(seen.kind, FileType::RegularFile | FileType::Symlink);
            if !(replaceable && self.overwrite) {
                return Err(dir.taken(name, seen.kind, self.overwrite));
            }
        }
        let partial = Partial::resume(dir, name, session)?;
        let there = partial.as_ref().map_or(0, Partial::bytes);
        let free = dir.free_bytes()?;
        if size.saturating_sub(there) > free {
            let what = bytes(size - there);
            return Err(format!(
                "no space for {}: {what} to come, {} free",
                dir.show(name),
                bytes(free)
            ));
        }
        Ok(partial.map_or(Plan::Fresh, Plan::Resume))
    }

    /// How the sender is told.
    fn wish(&self, index: u64, plan: &Plan, size: u64) -> Message {
        match plan {
            Plan::Have(sha256) => Message::Have { index, sha256: *sha256, replace: self.overwrite },
            // A longer one is not the beginning of this file.
            Plan::Resume(partial) if partial.bytes() <= size => {
                let sha256 = Some(partial.sha256());
                Message::Want { index, offset: partial.bytes(), sha256 }
            }
            Plan::Resume(_) | Plan::Fresh => Message::Want { index, offset: 0, sha256: None },
        }
    }

    fn give(&self, work: Work) {
        // The writer is gone only when the copy is over.
        let _ = self.work.send(work);
    }
}

impl Answers<'_> {
    /// Done, or refused with (where, why).
    fn answer(&self, index: u64, result: Result<(), (String, String)>) -> Result<(), End> {
        self.unanswered.fetch_sub(1, Ordering::AcqRel);
        let message = match result {
            Ok(()) => Message::Done { index, sha256: None },
            Err((path, reason)) => {
                self.session.note(FileRow::failed(path, 0, &reason));
                Message::Refused { index, reason }
            }
        };
        self.speaking.send(&message)
    }
}

fn not_entered<T>() -> Result<T, (String, String)> {
    Err((String::new(), "its directory was not made".to_owned()))
}

/// Entries that may be unanswered: each may hold two open files.
const WINDOW: u32 = 64;

/// Words that may wait for the taker: what was granted, and the last.
const WORDS_WAITING: usize = 65;

/// Chunks that may wait for the writer; the others wait in the connection's ring.
const CHUNKS_WAITING: usize = 2;

#[cfg(test)]
mod tests;
