//! The sender of copies: it sends entries, and the data that the receiver requests.

use crate::connection::{CHUNK_BYTES, RECEIVER_REPLY_TIMEOUT, ReceiveHalf, SendHalf, unexpected};
use crate::message::{Accept, Entry, EntryKind, Message, Name, Request};
use crate::row::FileRow;
use crate::session::{End, POLL_INTERVAL, Session};
use crate::source::{DataRequest, FileReader, Job, Notes};
use crate::walk::{Found, Root, Source, Totals, Walk};
use spanwire_base::u32_from;
use spanwire_host::fabric::Error;
use spanwire_host::text::printable;
use spanwire_stream::{Connection, MessageReceiver};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// The content of a copy.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The files and directories.
    pub roots: Vec<Root>,
    /// Their totals.
    pub totals: Totals,
    /// The receiver reads every file back from disk.
    pub verify_disk: bool,
    /// Connections at most; the receiver may grant fewer.
    pub connections: u32,
}

/// Sends what is in `plan` over `connection` and further ones: `connect` opens the one of this
/// number, from 1 on. `watch` is called a few times a second from the calling thread and may end
/// the session. The cause of the end is in `session`.
///
/// # Errors
/// The two ends did not agree on a copy.
pub fn send(
    connection: Connection,
    plan: Plan,
    session: &Session,
    connect: impl FnMut(u32) -> Result<Connection, Error>,
    mut watch: impl FnMut(&Session),
) -> Result<(), Error> {
    let request = request(&plan);
    let Plan { roots, totals, connections, .. } = plan;
    session.progress.bytes_total.store(totals.bytes, Ordering::Relaxed);
    session.progress.files_total.store(totals.files, Ordering::Relaxed);
    let chunk_bytes = CHUNK_BYTES.min(u32_from(connection.max_message_bytes()));
    let (sender, receiver) = connection.split();
    let mut send_half = SendHalf::new(sender, session);
    let mut receive_half = ReceiveHalf::new(receiver);
    send_half.send(&request).map_err(|end| end.to_string())?;
    let accept = match receive_half.expect(session, &mut watch, RECEIVER_REPLY_TIMEOUT) {
        Ok(Message::Accept(accept)) => accept,
        Ok(other) => return Err(unexpected("an accept", &other).to_string().into()),
        Err(why) => {
            send_half.end();
            return Err(why);
        }
    };
    check(&accept, connections)?;
    session.progress.connections.store(accept.connections, Ordering::Relaxed);
    let joined = join(&mut send_half, &accept, connect).and_then(|receivers| {
        if accept.connections > 1 {
            match receive_half.expect(session, &mut watch, RECEIVER_REPLY_TIMEOUT)? {
                Message::Joined => {}
                other => return Err(unexpected("all connections", &other).to_string().into()),
            }
        }
        Ok(receivers)
    });
    // Kept, because a connection ends with its halves.
    let _receivers = joined.inspect_err(|why| send_half.reject(&why.to_string()))?;
    let (jobs_in, jobs) = channel();
    let notes = Notes::default();
    let file_reader =
        FileReader { jobs, send_half: &send_half, chunk_bytes, session, notes: &notes };
    let entry_sender = EntrySender {
        walk: Walk::new(roots),
        receive_half: &mut receive_half,
        send_half: &send_half,
        session,
        notes: &notes,
        jobs: jobs_in,
        window: u64::from(accept.window),
        named: 0,
        declared: totals,
        open: BTreeMap::new(),
        finish_sent: false,
    };
    thread::scope(|scope| {
        scope.spawn(|| run_part(session, || file_reader.run()));
        scope.spawn(|| run_part(session, || entry_sender.run()));
        while !session.is_over() {
            watch(session);
            thread::park_timeout(POLL_INTERVAL / 2);
        }
        // Before the other threads drop the connection.
        send_half.end();
    });
    Ok(())
}

/// Opens the further connections that the receiver grants.
fn join(
    send_half: &mut SendHalf<'_>,
    accept: &Accept,
    mut connect: impl FnMut(u32) -> Result<Connection, Error>,
) -> Result<Vec<MessageReceiver>, Error> {
    let mut receivers = Vec::new();
    for connection in 1..accept.connections {
        let (sender, receiver) = connect(connection)?.split();
        send_half.add(sender);
        receivers.push(receiver);
        let join = Message::Join { token: accept.token.clone(), connection };
        send_half.send_over(receivers.len(), &join).map_err(|end| end.to_string())?;
    }
    Ok(receivers)
}

/// The request to the receiver.
fn request(plan: &Plan) -> Message {
    let Plan { roots, totals: Totals { bytes, files, entries }, verify_disk, connections } = plan;
    let (bytes, files, entries) = (*bytes, *files, *entries);
    let (verify_disk, connections) = (*verify_disk, *connections);
    let mut names: Vec<Name> = roots.iter().map(|root| root.name.clone()).collect();
    let name_bytes: usize = names.iter().map(|name| name.as_bytes().len()).sum();
    if names.len() > ROOTS_NAMED_MAX || name_bytes > ROOTS_NAMED_BYTES_MAX {
        names.clear();
    }
    Message::Request(Request { bytes, files, entries, verify_disk, connections, roots: names })
}

/// Checks the receiver's terms, which bound the memory of this end.
fn check(accept: &Accept, requested: u32) -> Result<(), String> {
    let Accept { window, connections, .. } = accept;
    if !(1..=4096).contains(window) {
        return Err(format!(
            "the receiver grants {window} entries at a time; 1 to 4096 are possible"
        ));
    }
    match (1..=requested).contains(connections) {
        true => Ok(()),
        false => Err(format!(
            "the receiver grants {connections} connections; 1 to {requested} were requested"
        )),
    }
}

/// The thread that exchanges messages with the receiver while files are read and sent.
struct EntrySender<'a> {
    walk: Walk,
    receive_half: &'a mut ReceiveHalf,
    send_half: &'a SendHalf<'a>,
    session: &'a Session,
    notes: &'a Notes,
    jobs: Sender<Job>,
    /// Limit of unanswered entries.
    window: u64,
    /// Entries sent so far.
    named: u64,
    /// The remaining declared totals.
    declared: Totals,
    /// Unanswered entries.
    open: BTreeMap<u64, Open>,
    finish_sent: bool,
}

/// An unanswered entry.
struct Open {
    shown: String,
    kind: EntryKind,
    /// The source of a file's bytes, until the receiver requests them.
    source: Option<Source>,
    /// The receiver has requested a hash.
    is_hashed: bool,
}

impl EntrySender<'_> {
    /// Runs until the receiver has everything.
    fn run(mut self) -> Result<(), End> {
        while !self.session.is_over() {
            self.send_entries()?;
            if let Some(message) = self.receive_half.recv(POLL_INTERVAL)? {
                self.on_message(message)?;
            }
        }
        Ok(())
    }

    /// Sends entries as far as the window permits, and `finish` after the last one.
    fn send_entries(&mut self) -> Result<(), End> {
        while !self.finish_sent && (self.open.len() as u64) < self.window {
            match self.walk.next() {
                Some(Found::Entry { kind, shown, .. }) if !self.is_declared(&kind) => {
                    if matches!(kind, EntryKind::Dir { .. }) {
                        self.walk.leave();
                    }
                    let size = if let EntryKind::File { size, .. } = kind { size } else { 0 };
                    self.session.note(FileRow::failed(shown, size, GREW));
                }
                Some(Found::Entry { kind, shown, source }) => {
                    let index = self.named;
                    self.named += 1;
                    let entry = Entry { index, kind: kind.clone() };
                    self.send_half.send(&Message::Entry(entry))?;
                    self.open.insert(index, Open { shown, kind, source, is_hashed: false });
                }
                Some(Found::Skipped { shown, why, expected: true }) => {
                    tracing::warn!("{shown} is left out: {why}");
                }
                Some(Found::Skipped { shown, why, expected: false }) => {
                    self.session.note(FileRow::failed(shown, 0, &why));
                }
                None if self.open.is_empty() => {
                    self.finish_sent = true;
                    self.send_half.send(&Message::Finish)?;
                }
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// True if one more entry is within the declared totals. The receiver ends a copy that exceeds
    /// them.
    fn is_declared(&mut self, kind: &EntryKind) -> bool {
        let left = self.declared.without(kind);
        self.declared = left.unwrap_or(self.declared);
        left.is_some()
    }

    fn on_message(&mut self, message: Message) -> Result<(), End> {
        match message {
            Message::Want { index, offset } => self.start(index, DataRequest::From { offset }),
            Message::Have { index, bytes } => self.start(index, DataRequest::Hash { bytes }),
            Message::Done { index, sha256 } => self.on_done(index, sha256),
            Message::Refused { index, reason } => self.on_refused(index, &reason),
            Message::Finished if self.finish_sent => Err(End::Complete),
            other => Err(unexpected("an answer", &other)),
        }
    }

    fn start(&mut self, index: u64, request: DataRequest) -> Result<(), End> {
        let open = self.open.get_mut(&index).ok_or_else(|| stray(index))?;
        let EntryKind::File { size, mtime, .. } = open.kind else {
            return Err(stray(index));
        };
        let (bytes, source) = match request {
            // Cloned, because the reader opens the file twice, and much time may pass in between.
            DataRequest::Hash { bytes } if !open.is_hashed => (bytes, open.source.clone()),
            DataRequest::Hash { .. } => return Err(stray(index)),
            DataRequest::From { offset } => (offset, open.source.take()),
        };
        let source = source.filter(|_| bytes <= size).ok_or_else(|| stray(index))?;
        open.is_hashed = true;
        let shown = open.shown.clone();
        let job = Job { index, shown, source, size, mtime, request };
        // An error means that the reader has ended with the session.
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
                // The reader may be sending the file.
                self.notes.refuse(index);
            }
            self.notes.take(index);
        }
        let size = if let EntryKind::File { size, .. } = kind { size } else { 0 };
        let reason = printable(reason);
        self.session.note(FileRow::failed(shown, size, &reason));
        Ok(())
    }
}

/// Runs one thread's part of the copy. An error ends the copy, unless it has ended already.
pub(crate) fn run_part(session: &Session, part: impl FnOnce() -> Result<(), End>) {
    let _guard = session.ends_on_panic();
    if let Err(end) = part() {
        session.end(end);
    }
}

fn stray(index: u64) -> End {
    End::Protocol(format!("an answer to entry {index}, which waits for none"))
}

/// The reason for skipping a file beyond the declared totals.
const GREW: &str =
    "it came, or grew, after the files were counted; the same command again takes it";

/// Limit of top-level names in the request: enough for a command line, and it bounds the message.
const ROOTS_NAMED_MAX: usize = 1000;

/// Limit of their bytes, which may be four times as many in JSON and must fit a message.
const ROOTS_NAMED_BYTES_MAX: usize = 200_000;
