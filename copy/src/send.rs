//! The sender: names what it has, and answers what the receiver wants of it.

use crate::message::{Accept, Entry, EntryKind, Message, Name, Request};
use crate::row::FileRow;
use crate::session::{End, LOOK_EVERY, Session};
use crate::source::{Feeder, Job, Notes, Wish};
use crate::talk::{CHUNK_BYTES, Hearing, RECEIVER_ANSWERS_WITHIN, Speaking, unexpected};
use crate::walk::{Found, Root, Source, Totals, Walk};
use spanwire_base::u32_from;
use spanwire_host::fabric::Error;
use spanwire_stream::Connection;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// Sends `roots`, which hold `totals`, by `connection`. `watch` is called a few times a second from
/// the calling thread and may end the session. How it ended is in `session`.
///
/// # Errors
/// The two ends did not come to terms.
pub fn send(
    connection: Connection,
    roots: Vec<Root>,
    totals: Totals,
    session: &Session,
    mut watch: impl FnMut(&Session),
) -> Result<(), Error> {
    session.progress.bytes_total.store(totals.bytes, Ordering::Relaxed);
    session.progress.files_total.store(totals.files, Ordering::Relaxed);
    let chunk_bytes = CHUNK_BYTES.min(u32_from(connection.max_message_bytes()));
    let (sender, receiver) = connection.split();
    let speaking = Speaking::new(sender, session);
    let mut hearing = Hearing::new(receiver);
    speaking.send(&request(&roots, totals)).map_err(|end| end.to_string())?;
    let accept = match hearing.expect(session, &mut watch, RECEIVER_ANSWERS_WITHIN) {
        Ok(Message::Accept(accept)) => accept,
        Ok(other) => return Err(unexpected("an accept", &other).to_string().into()),
        Err(why) => {
            speaking.end();
            return Err(why);
        }
    };
    check(&accept)?;
    let (jobs_in, jobs) = channel();
    let notes = Notes::default();
    let feeder = Feeder { jobs, speaking: &speaking, chunk_bytes, session, notes: &notes };
    let teller = Teller {
        walk: Walk::new(roots),
        hearing: &mut hearing,
        speaking: &speaking,
        session,
        notes: &notes,
        jobs: jobs_in,
        window: u64::from(accept.window),
        named: 0,
        declared: totals,
        open: BTreeMap::new(),
        finish_said: false,
    };
    thread::scope(|scope| {
        scope.spawn(|| run_part(session, || feeder.run()));
        scope.spawn(|| run_part(session, || teller.run()));
        while !session.is_over() {
            watch(session);
            thread::park_timeout(LOOK_EVERY / 2);
        }
        // Before the other threads let go of the connection.
        speaking.end();
    });
    Ok(())
}

/// What the receiver is asked.
fn request(roots: &[Root], Totals { bytes, files }: Totals) -> Message {
    let mut names: Vec<Name> = roots.iter().map(|root| root.name.clone()).collect();
    let name_bytes: usize = names.iter().map(|name| name.as_bytes().len()).sum();
    if names.len() > ROOTS_NAMED_MAX || name_bytes > ROOTS_NAMED_BYTES_MAX {
        names.clear();
    }
    Message::Request(Request { bytes, files, roots: names })
}

/// What the receiver grants must make sense: it decides what we remember.
fn check(accept: &Accept) -> Result<(), String> {
    match (1..=4096).contains(&accept.window) {
        true => Ok(()),
        false => Err(format!("the receiver grants what makes no sense: {accept:?}")),
    }
}

/// Talks to the receiver while files are read and sent.
struct Teller<'a> {
    walk: Walk,
    hearing: &'a mut Hearing,
    speaking: &'a Speaking<'a>,
    session: &'a Session,
    notes: &'a Notes,
    jobs: Sender<Job>,
    /// Entries that may be unanswered.
    window: u64,
    /// Entries named so far.
    named: u64,
    /// What remains of the declared totals.
    declared: Totals,
    /// Entries that were not answered yet.
    open: BTreeMap<u64, Open>,
    finish_said: bool,
}

/// An entry that was not answered yet.
struct Open {
    shown: String,
    kind: EntryKind,
    /// Where a file's bytes are, until the receiver wants them.
    source: Option<Source>,
    /// The receiver has asked for a hash.
    is_hashed: bool,
}

impl Teller<'_> {
    /// Works until the receiver has everything.
    fn run(mut self) -> Result<(), End> {
        while !self.session.is_over() {
            self.name_some()?;
            if let Some(message) = self.hearing.recv(LOOK_EVERY)? {
                self.on_message(message)?;
            }
        }
        Ok(())
    }

    /// Names entries as far as the window goes, and says when there are no more.
    fn name_some(&mut self) -> Result<(), End> {
        while !self.finish_said && (self.open.len() as u64) < self.window {
            match self.walk.next() {
                Some(Found::Entry { kind: EntryKind::File { size, .. }, shown, .. })
                    if !self.is_declared(size) =>
                {
                    self.session.note(FileRow::failed(shown, size, GREW));
                }
                Some(Found::Entry { kind, shown, source }) => {
                    let index = self.named;
                    self.named += 1;
                    let entry = Entry { index, kind: kind.clone() };
                    self.speaking.send(&Message::Entry(entry))?;
                    self.open.insert(index, Open { shown, kind, source, is_hashed: false });
                }
                Some(Found::Skipped { shown, why, expected: true }) => {
                    tracing::warn!("{shown} is left out: {why}");
                }
                Some(Found::Skipped { shown, why, expected: false }) => {
                    self.session.note(FileRow::failed(shown, 0, &why));
                }
                None if self.open.is_empty() => {
                    self.finish_said = true;
                    self.speaking.send(&Message::Finish)?;
                }
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Whether one more file of `size` bytes is within what was declared; the receiver ends a copy
    /// that brings more.
    fn is_declared(&mut self, size: u64) -> bool {
        let Totals { files, bytes } = self.declared;
        let left = files.checked_sub(1).zip(bytes.checked_sub(size));
        if let Some((files, bytes)) = left {
            self.declared = Totals { files, bytes };
        }
        left.is_some()
    }

    fn on_message(&mut self, message: Message) -> Result<(), End> {
        match message {
            Message::Want { index, offset } => self.start(index, Wish::From { offset }),
            Message::Have { index, bytes } => self.start(index, Wish::Hash { bytes }),
            Message::Done { index, sha256 } => self.on_done(index, sha256),
            Message::Refused { index, reason } => self.on_refused(index, &reason),
            Message::Finished if self.finish_said => Err(End::Complete),
            other => Err(unexpected("an answer", &other)),
        }
    }

    fn start(&mut self, index: u64, wish: Wish) -> Result<(), End> {
        let open = self.open.get_mut(&index).ok_or_else(|| stray(index))?;
        let EntryKind::File { size, mtime, .. } = open.kind else {
            return Err(stray(index));
        };
        let (bytes, source) = match wish {
            // The reader opens the file twice: what lies between may take long.
            Wish::Hash { bytes } if !open.is_hashed => (bytes, open.source.clone()),
            Wish::Hash { .. } => return Err(stray(index)),
            Wish::From { offset } => (offset, open.source.take()),
        };
        let source = source.filter(|_| bytes <= size).ok_or_else(|| stray(index))?;
        open.is_hashed = true;
        let shown = open.shown.clone();
        let job = Job { index, shown, source, size, mtime, wish };
        // The reader is gone only when the copy is over.
        let _ = self.jobs.send(job);
        Ok(())
    }

    fn on_done(
        &mut self,
        index: u64,
        theirs: Option<super::message::Sha256Hex>,
    ) -> Result<(), End> {
        let Open { shown, kind, .. } = self.open.remove(&index).ok_or_else(|| stray(index))?;
        let EntryKind::File { size, .. } = kind else {
            return Ok(());
        };
        let read = self.notes.take(index).ok_or_else(|| stray(index))?;
        if theirs != Some(read.sha256) {
            let what = format!("{shown}: SHA-256 differs: {} sent", read.sha256);
            return Err(End::Protocol(what));
        }
        if read.same {
            self.session.progress.begin(&shown, size, size);
        }
        self.session.progress.files_done.fetch_add(1, Ordering::Relaxed);
        self.session.note(match read.same {
            true => FileRow::same(shown, size, read.sha256),
            false => FileRow::copied(shown, size, read.sha256, read.resumed),
        });
        Ok(())
    }

    fn on_refused(&mut self, index: u64, reason: &str) -> Result<(), End> {
        let Open { shown, kind, source, .. } =
            self.open.remove(&index).ok_or_else(|| stray(index))?;
        if matches!(kind, EntryKind::File { .. }) {
            if source.is_none() {
                // The reader may be at it.
                self.notes.refuse(index);
            }
            self.notes.take(index);
        }
        let size = if let EntryKind::File { size, .. } = kind { size } else { 0 };
        let reason = super::message::printable(reason.as_bytes());
        self.session.note(FileRow::failed(shown, size, &reason));
        Ok(())
    }
}

/// Runs one thread's part of the copy. Its end is the copy's, unless another came first.
pub(crate) fn run_part(session: &Session, part: impl FnOnce() -> Result<(), End>) {
    let _guard = session.ends_on_panic();
    if let Err(end) = part() {
        session.end(end);
    }
}

fn stray(index: u64) -> End {
    End::Protocol(format!("an answer to entry {index}, which waits for none"))
}

/// Why a file is left out that was not counted.
const GREW: &str =
    "it came, or grew, after the files were counted; the same command again takes it";

/// Outermost names that are told in the request: enough for a command line, little for a line.
const ROOTS_NAMED_MAX: usize = 1000;

/// Bytes of their names: in JSON they may be four times as long, and must fit a message.
const ROOTS_NAMED_BYTES_MAX: usize = 200_000;
