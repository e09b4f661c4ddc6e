//! The receiver of copies: it serves one sender at a time.

use crate::chunks::{ChunkQueue, Chunks};
use crate::connection::{Queues, ReceiveHalf, SendHalf, unexpected};
use crate::dest::{DEPTH_MAX, DestDir};
use crate::existing::{Comparison, Existing, Named, Outcome, hashing_time};
use crate::grant::{Grant, WINDOW};
use crate::join::{Meanwhile, agree};
use crate::message::{Entry, EntryKind, Message, Mtime, Name, Sha256Hex};
use crate::partial::Partial;
use crate::row::FileRow;
use crate::send::run_part;
use crate::session::{End, POLL_INTERVAL, Session};
use crate::sink::{FileWork, Sink, Work};
use spanwire_host::fabric::Error;
use spanwire_host::text::printable;
use spanwire_stream::Connection;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::thread;

/// Receives the entries of the sender at the other end of `connection` into `root`. `arrivals`
/// returns the next connection that was accepted meanwhile: a further one of this copy, or another
/// sender's, which is rejected. `watch` is called a few times a second from the calling thread and
/// may end the session. The cause of the end is in `session`.
///
/// # Errors
/// The two ends did not agree on a copy; the sender received the reason.
pub fn receive(
    connection: Connection,
    root: &Arc<DestDir>,
    grant: Grant,
    session: &Session,
    mut arrivals: impl FnMut() -> Option<Connection>,
    mut watch: impl FnMut(&Session),
) -> Result<(), Error> {
    let (sender, receiver) = connection.split();
    let mut send_half = SendHalf::new(sender, session);
    let mut first = ReceiveHalf::new(receiver);
    let Grant { overwrite, verify_disk, stall_timeout, connections } = grant;
    let mut meanwhile = Meanwhile { session, watch: &mut watch, arrivals: &mut arrivals };
    let agreed = agree(&mut send_half, &mut first, root, connections, &mut meanwhile);
    let (request, further) = agreed.inspect_err(|why| {
        // An error is ignored here: the sender may have closed.
        send_half.reject(&why.to_string());
    })?;
    let mut receive_halves = vec![first];
    receive_halves.extend(further);
    let (messages, messages_out) = sync_channel(MESSAGE_QUEUE_LEN);
    let (queues, chunk_queues): (Vec<_>, _) = receive_halves.iter().map(|_| chunk_queue()).unzip();
    let (work_in, work) = channel();
    let unanswered = AtomicU64::new(0);
    let sink = Sink {
        work,
        chunks: Chunks::new(chunk_queues),
        send_half: &send_half,
        session,
        unanswered: &unanswered,
        overwrite,
        verify_disk: verify_disk || request.verify_disk,
        root: Arc::clone(root),
    };
    let entry_receiver = EntryReceiver {
        messages: messages_out,
        answers: Answers { send_half: &send_half, session, unanswered: &unanswered },
        work: work_in,
        stack: vec![Ok(Arc::clone(root))],
        next: 0,
        overwrite,
        declared: Declared { entries: request.entries, files: request.files, bytes: request.bytes },
        comparisons: BTreeMap::new(),
        full: VecDeque::new(),
    };
    let (finish_received, mut messages) = (AtomicBool::new(false), Some(messages));
    thread::scope(|scope| {
        // Borrowed, so that the connections are closed only after the final message.
        for (receive_half, queues) in receive_halves.iter_mut().zip(queues) {
            let queues = Queues { messages: messages.take(), ..queues };
            let finish = &finish_received;
            let part = move || receive_half.demultiplex(&queues, finish, session);
            scope.spawn(move || run_part(session, part));
        }
        scope.spawn(|| run_part(session, || sink.run()));
        scope.spawn(|| run_part(session, || entry_receiver.run()));
        session.progressed();
        while !session.is_over() {
            meanwhile.watch();
            if session.stalled_for() >= stall_timeout {
                session.end(End::Stalled(stall_timeout));
            }
            thread::park_timeout(POLL_INTERVAL / 2);
        }
        send_half.end();
    });
    Ok(())
}

/// The two ends of the queue of one connection's chunks.
fn chunk_queue() -> (Queues, ChunkQueue) {
    let (chunks, arrived) = sync_channel(CHUNK_QUEUE_LEN);
    let (spare_in, spare) = channel();
    (Queues { messages: None, chunks, spare }, ChunkQueue { arrived, spare: spare_in })
}

/// The shared part of answering entries.
struct Answers<'a> {
    send_half: &'a SendHalf<'a>,
    session: &'a Session,
    unanswered: &'a AtomicU64,
}

/// The thread that handles entries and decides which files are requested.
struct EntryReceiver<'a> {
    messages: Receiver<Message>,
    answers: Answers<'a>,
    work: Sender<Work>,
    /// The stack of current directories.
    stack: Vec<Place>,
    /// Number of the next entry.
    next: u64,
    overwrite: bool,
    declared: Declared,
    /// Existing files that await the sender's hash, by entry.
    comparisons: BTreeMap<u64, Comparison>,
    /// Directories that the sender has left, and that await comparisons.
    full: VecDeque<FullDir>,
}

/// The remaining declared entries, files and bytes.
struct Declared {
    entries: u64,
    files: u64,
    bytes: u64,
}

/// A directory of the receiver; of a rejected one its path.
type Place = Result<Arc<DestDir>, String>;

/// A directory that the sender has left.
struct FullDir {
    index: u64,
    dir: Arc<DestDir>,
    mode: u32,
    mtime: Mtime,
}

impl EntryReceiver<'_> {
    /// Runs until the sender has sent all entries, or the copy has ended.
    fn run(mut self) -> Result<(), End> {
        while !self.answers.session.is_over() {
            match self.messages.recv_timeout(POLL_INTERVAL) {
                Ok(Message::Entry(entry)) => self.on_entry(entry)?,
                Ok(Message::Hash { index, sha256 }) => self.on_hash(index, sha256)?,
                Ok(Message::GiveUp { index, reason }) => self.on_give_up(index, &reason)?,
                Ok(Message::Finish) => return self.on_finish(),
                Ok(other) => return Err(unexpected("an entry", &other)),
                Err(RecvTimeoutError::Timeout) => {}
                // The thread that received messages has ended with the session's cause.
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
        // The writer sends the final message, after which the sender may close.
        Ok(())
    }

    fn on_entry(&mut self, Entry { index, kind }: Entry) -> Result<(), End> {
        if index != self.next {
            let what = format!("entry {index} where {} was due", self.next);
            return Err(End::Protocol(what));
        }
        self.next += 1;
        self.declared.take(&kind)?;
        self.answers.session.brought(ENTRY_BYTES);
        if self.answers.unanswered.fetch_add(1, Ordering::AcqRel) >= u64::from(WINDOW) {
            return Err(End::Protocol("more entries at a time than were granted".into()));
        }
        let here = self.stack.last().cloned().unwrap_or_else(|| Err(String::new()));
        match kind {
            EntryKind::Dir { name } => self.on_dir(index, here, &name),
            EntryKind::DirEnd { mode, mtime } => self.on_dir_end(index, mode, mtime),
            EntryKind::Symlink { name, target } => {
                let made = here.map_err(|path| not_entered(&path, &name)).and_then(|dir| {
                    dir.symlink(&name, &target, self.overwrite)
                        .map_err(|why| (dir.show(&name), why))
                });
                self.answers.answer(index, made)
            }
            EntryKind::File { name, size, mode, mtime } => match here {
                Ok(dir) => self.on_file(index, Named { dir, name, size, mode, mtime }),
                Err(path) => self.answers.answer(index, Err(not_entered(&path, &name))),
            },
        }
    }

    fn on_file(&mut self, index: u64, file: Named) -> Result<(), End> {
        let session = self.answers.session;
        let (bytes, there) = match file.existing(self.overwrite) {
            Err(why) => return self.answers.answer(index, Err((file.shown(), why))),
            Ok(Existing::Nothing(partial)) => return self.want(index, file, partial, 0),
            Ok(Existing::Whole(whole)) => (file.size, Ok(whole)),
            Ok(Existing::Beginning(partial)) => (partial.bytes(), Err(partial)),
        };
        // Sender and receiver hash concurrently.
        self.answers.send_half.send(&Message::Have { index, bytes })?;
        session.allow(hashing_time(bytes));
        let _at_work = session.at_work();
        let comparison = match there {
            Ok(whole) => Comparison::with_whole(file, whole, session),
            Err(partial) => Comparison::with_beginning(file, partial, session),
        };
        self.comparisons.insert(index, comparison);
        Ok(())
    }

    fn on_hash(&mut self, index: u64, theirs: Sha256Hex) -> Result<(), End> {
        let comparison = self.take_comparison(index)?;
        let (session, (file, outcome)) =
            (self.answers.session, comparison.outcome(theirs, self.overwrite));
        match outcome {
            Outcome::Same(sha256) => {
                session.progress.begin(&file.name.to_string(), file.size, file.size);
                session.progress.files_done.fetch_add(1, Ordering::Relaxed);
                session.note(FileRow::same(file.shown(), file.size, sha256));
                self.answers.done(index, Some(sha256))?;
            }
            Outcome::Wanted(partial, offset) => self.want(index, file, partial, offset)?,
            Outcome::Refused(why) => self.answers.answer(index, Err((file.shown(), why)))?,
        }
        self.give_full();
        Ok(())
    }

    /// The comparison that the sender's message refers to. The compared bytes are content that the
    /// sender has brought.
    fn take_comparison(&mut self, index: u64) -> Result<Comparison, End> {
        let comparison = self.comparisons.remove(&index).ok_or_else(|| unasked(index))?;
        let session = self.answers.session;
        if self.comparisons.is_empty() {
            // The sender has finished hashing, so the rest of its allowance is cancelled.
            session.answered();
        }
        session.brought(comparison.bytes());
        Ok(comparison)
    }

    fn on_give_up(&mut self, index: u64, reason: &str) -> Result<(), End> {
        let comparison = self.take_comparison(index)?;
        let why = printable(reason);
        self.answers.answer(index, Err((comparison.file.shown(), why)))?;
        self.give_full();
        Ok(())
    }

    /// Requests a file from `offset` on.
    fn want(
        &self,
        index: u64,
        file: Named,
        partial: Option<Partial>,
        offset: u64,
    ) -> Result<(), End> {
        // Before `want` is sent, because the writer must expect the sender's chunks.
        self.give(Work::File(Box::new(FileWork { index, file, partial, offset })));
        self.answers.send_half.send(&Message::Want { index, offset })
    }

    /// Finishes directories whose files have all been compared.
    fn give_full(&mut self) {
        let first_open = self.comparisons.keys().next().copied().unwrap_or(u64::MAX);
        while self.full.front().is_some_and(|full| full.index < first_open)
            && let Some(FullDir { index, dir, mode, mtime }) = self.full.pop_front()
        {
            self.give(Work::DirEnd { index, dir, mode, mtime });
        }
    }

    fn on_dir(&mut self, index: u64, here: Place, name: &Name) -> Result<(), End> {
        if self.stack.len() > DEPTH_MAX {
            return Err(End::Protocol(format!("more than {DEPTH_MAX} directories deep")));
        }
        let entered = here
            .map_err(|path| not_entered(&path, name))
            .and_then(|dir| dir.enter(name).map_err(|why| (dir.show(name), why)));
        let (dir, answer) = match entered {
            Ok(dir) => (Ok(dir), Ok(())),
            Err(refusal) => (Err(refusal.0.clone()), Err(refusal)),
        };
        self.stack.push(dir);
        self.answers.answer(index, answer)
    }

    fn on_dir_end(&mut self, index: u64, mode: u32, mtime: Mtime) -> Result<(), End> {
        if self.stack.len() < 2 {
            return Err(End::Protocol("it leaves the directory copied into".into()));
        }
        match self.stack.pop().unwrap_or_else(|| Err(String::new())) {
            Ok(dir) => {
                self.full.push_back(FullDir { index, dir, mode, mtime });
                self.give_full();
                Ok(())
            }
            // The rejection of the directory was reported when it was entered.
            Err(_) => self.answers.answer(index, Ok(())),
        }
    }

    fn give(&self, work: Work) {
        // An error means that the writer has ended with the session.
        let _ = self.work.send(work);
    }
}

impl Answers<'_> {
    /// Answers an entry: done, or rejected with path and reason.
    fn answer(&self, index: u64, result: Result<(), (String, String)>) -> Result<(), End> {
        match result {
            Ok(()) => self.done(index, None),
            Err((path, reason)) => {
                self.session.note(FileRow::failed(path, 0, &reason));
                self.unanswered.fetch_sub(1, Ordering::AcqRel);
                self.send_half.send(&Message::Refused { index, reason })
            }
        }
    }

    fn done(&self, index: u64, sha256: Option<Sha256Hex>) -> Result<(), End> {
        self.unanswered.fetch_sub(1, Ordering::AcqRel);
        self.send_half.send(&Message::Done { index, sha256 })
    }
}

impl Declared {
    /// Counts one more entry. The end of a directory counts with its beginning.
    fn take(&mut self, kind: &EntryKind) -> Result<(), End> {
        let more = |what| End::Protocol(format!("more {what} than it declared"));
        if !matches!(kind, EntryKind::DirEnd { .. }) {
            self.entries = self.entries.checked_sub(1).ok_or_else(|| more("entries"))?;
        }
        let EntryKind::File { size, .. } = *kind else {
            return Ok(());
        };
        self.files = self.files.checked_sub(1).ok_or_else(|| more("files"))?;
        self.bytes = self.bytes.checked_sub(size).ok_or_else(|| more("bytes"))?;
        Ok(())
    }
}

fn unasked(index: u64) -> End {
    End::Protocol(format!("a hash of entry {index}, of which none was asked for"))
}

/// The path and the reason of an entry of a rejected directory.
fn not_entered(directory: &str, name: &Name) -> (String, String) {
    (format!("{directory}/{name}"), "its directory was not made".to_owned())
}

/// Content that an entry counts as, in bytes. It is less than an entry takes on disk, so that empty
/// directories are progress only in numbers.
const ENTRY_BYTES: u64 = 2 << 10;

/// Queued control messages: the granted entries, a hash for each, and `finish`. With room for all
/// of them, chunks are not delayed while this thread hashes.
const MESSAGE_QUEUE_LEN: usize = 129;

/// Chunks of a connection queued for the writer; further ones stay in the connection's ring.
const CHUNK_QUEUE_LEN: usize = 2;

#[cfg(test)]
mod tests;
