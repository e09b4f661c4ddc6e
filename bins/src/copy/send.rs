//! The sender: names what it has, and answers what the receiver wants of it.

use super::control::{self, Listening, Speaking};
use super::lane::{self, Handshake, Lane, RECEIVER_ANSWERS_WITHIN, Ring, Worker, meet, unexpected};
use super::message::{Accept, Entry, EntryKind, Message, Name, Request};
use super::outbound::{CREDIT_RECEIVES, Outbound};
use super::report::FileRow;
use super::session::{End, LOOK_EVERY, Session};
use super::source::{Feeder, Job, Notes, Wish};
use super::walk::{Found, Root, Source, Totals, Walk};
use crate::fabric::Error;
use spanwire_transport::Access;
use std::collections::BTreeMap;
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// Sends `roots`, which hold `totals`, over `stream` and `worker`. `watch` is called a few times a
/// second from the calling thread and may end the session. How it ended is in `session`.
///
/// # Errors
/// The two ends did not come to terms.
pub fn send(
    worker: &mut Worker,
    stream: TcpStream,
    roots: Vec<Root>,
    totals: Totals,
    session: &Session,
    mut watch: impl FnMut(&Session),
) -> Result<Vec<(String, u64)>, Error> {
    let ip = stream.local_addr()?.ip().to_canonical();
    let (mut listening, speaking) = control::split(stream)?;
    session.progress.bytes_total.store(totals.bytes, Ordering::Relaxed);
    session.progress.files_total.store(totals.files, Ordering::Relaxed);
    let handshake = Handshake {
        listening: &mut listening,
        speaking: &speaking,
        session,
        watch: &mut watch,
        patience: RECEIVER_ANSWERS_WITHIN,
    };
    let (mut lane, accept) = shake_hands(worker, ip, handshake, &roots, totals)?;
    let their_ring = Ring { slots: accept.slots, slot_bytes: accept.slot_bytes };
    let (filled_in, filled) = channel();
    let (freed_in, freed) = channel();
    let (jobs_in, jobs) = channel();
    let notes = Notes::default();
    let feeder = Feeder {
        jobs,
        freed,
        filled: filled_in,
        region: lane.region.clone(),
        ring: lane.ring,
        chunk_bytes: lane.ring.slot_bytes.min(their_ring.slot_bytes),
        session,
        notes: &notes,
        free: lane.ring.slots,
        count: 0,
    };
    if !Outbound::post_receives(&mut lane.endpoint, lane.qpn) {
        return Err("a receive queue took no more requests".into());
    }
    speaking.send(&Message::Ready)?;
    let app = Outbound::new(&lane, accept.memory, their_ring, filled, freed_in);
    let teller = Teller {
        walk: Walk::new(roots),
        listening,
        speaking: &speaking,
        session,
        notes: &notes,
        jobs: jobs_in,
        window: u64::from(accept.window),
        named: 0,
        open: BTreeMap::new(),
        finish_said: false,
    };
    let endpoint = thread::scope(|scope| {
        let engine = scope.spawn(|| lane::drive(worker, lane.endpoint, app, session));
        scope.spawn(|| run_part(session, || feeder.run()));
        scope.spawn(|| run_part(session, || teller.run()));
        while !session.is_over() {
            watch(session);
            thread::park_timeout(LOOK_EVERY / 2);
        }
        last_word(session, &speaking);
        engine.join().map_err(|_| Error::from("the engine's thread panicked"))?
    })?;
    let mut counters = endpoint.counters().list();
    counters.extend(worker.attachment.port.counters());
    Ok(counters)
}

/// Comes to terms with the receiver; the queue pair is connected then.
fn shake_hands(
    worker: &mut Worker,
    ip: IpAddr,
    mut handshake: Handshake<'_>,
    roots: &[Root],
    totals: Totals,
) -> Result<(Lane, Accept), Error> {
    let peer = meet(worker, ip, &mut handshake, true)?;
    // The receiver touches none of our memory: it only answers.
    let mut lane =
        Lane::new(worker.config.clone(), Ring::DEFAULT, Access::LOCAL_WRITE, CREDIT_RECEIVES)?;
    let mut names: Vec<Name> = roots.iter().map(|root| root.name.clone()).collect();
    if names.len() > ROOTS_NAMED_MAX {
        names.clear();
    }
    let Totals { bytes, files } = totals;
    let request = Request { qp: lane.params(), bytes, files, roots: names };
    handshake.speaking.send(&Message::Request(request))?;
    let accept = match handshake.expect()? {
        Message::Accept(accept) => accept,
        other => return Err(unexpected("an accept", &other).into()),
    };
    check(&accept)?;
    lane.connect(&peer, accept.qp)?;
    Ok((lane, accept))
}

/// What the receiver lends must make sense: its numbers decide what we send and remember.
fn check(accept: &Accept) -> Result<(), String> {
    let Accept { slots, slot_bytes, window, memory, .. } = *accept;
    let fits = Ring { slots, slot_bytes }.bytes() <= memory.len;
    let sensible = (1..=1024).contains(&slots)
        && (4096..=1 << 24).contains(&slot_bytes)
        && (1..=4096).contains(&window);
    match fits && sensible {
        true => Ok(()),
        false => Err(format!("the receiver lends what makes no sense: {accept:?}")),
    }
}

/// Talks to the receiver while files are read and sent.
struct Teller<'a> {
    walk: Walk,
    listening: Listening,
    speaking: &'a Speaking,
    session: &'a Session,
    notes: &'a Notes,
    jobs: Sender<Job>,
    /// Entries that may be unanswered.
    window: u64,
    /// Entries named so far.
    named: u64,
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
}

impl Teller<'_> {
    /// Works until the receiver has everything.
    fn run(mut self) -> Result<(), End> {
        while !self.session.is_over() {
            self.name_some()?;
            if let Some(message) = self.listening.recv(LOOK_EVERY)? {
                self.on_message(message)?;
            }
        }
        Ok(())
    }

    /// Names entries as far as the window goes, and says when there are no more.
    fn name_some(&mut self) -> Result<(), End> {
        while !self.finish_said && (self.open.len() as u64) < self.window {
            match self.walk.next() {
                Some(Found::Entry { kind, shown, source }) => {
                    let index = self.named;
                    self.named += 1;
                    let entry = Entry { index, kind: kind.clone() };
                    self.speaking.send(&Message::Entry(entry))?;
                    self.open.insert(index, Open { shown, kind, source });
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

    fn on_message(&mut self, message: Message) -> Result<(), End> {
        match message {
            Message::Want { index, offset, sha256 } => {
                self.start(index, Wish::From { offset, sha256 })
            }
            Message::Have { index, sha256, replace } => {
                self.start(index, Wish::Has { sha256, replace })
            }
            Message::Done { index, sha256 } => self.on_done(index, sha256),
            Message::Refused { index, reason } => self.on_refused(index, &reason),
            Message::Finished if self.finish_said => Err(End::Complete),
            Message::Abort { reason } => Err(End::PeerAborted(reason)),
            other => Err(unexpected("an answer", &other).into()),
        }
    }

    fn start(&mut self, index: u64, wish: Wish) -> Result<(), End> {
        let open = self.open.get_mut(&index);
        let Some((EntryKind::File { size, mtime, .. }, source, shown)) =
            open.and_then(|o| Some((&o.kind, o.source.take()?, o.shown.clone())))
        else {
            return Err(stray(index));
        };
        if matches!(wish, Wish::From { offset, .. } if offset > *size) {
            return Err(stray(index));
        }
        let job = Job { index, shown, source, size: *size, mtime: *mtime, wish };
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
        self.session.progress.files_done.fetch_add(1, Ordering::Relaxed);
        self.session.note(match read.same {
            true => FileRow::same(shown, size, read.sha256),
            false => FileRow::copied(shown, size, read.sha256, read.resumed),
        });
        Ok(())
    }

    fn on_refused(&mut self, index: u64, reason: &str) -> Result<(), End> {
        let Open { shown, kind, source } = self.open.remove(&index).ok_or_else(|| stray(index))?;
        if source.is_none() && matches!(kind, EntryKind::File { .. }) {
            // The reader may be at it.
            self.notes.refuse(index);
            self.notes.take(index);
        }
        let size = if let EntryKind::File { size, .. } = kind { size } else { 0 };
        let reason = super::message::printable(reason.as_bytes());
        self.session.note(FileRow::failed(shown, size, &reason));
        Ok(())
    }
}

/// Runs one thread's part of the copy. Its end is the copy's, unless another came first.
pub(super) fn run_part(session: &Session, part: impl FnOnce() -> Result<(), End>) {
    let _guard = session.ends_on_panic();
    if let Err(end) = part() {
        session.end(end);
    }
}

/// Tells the other end why, if it is this one that gives up.
pub(super) fn last_word(session: &Session, speaking: &Speaking) {
    let reason = match session.outcome() {
        Some(End::Interrupted) => "interrupted by its user".to_owned(),
        Some(End::Protocol(what)) => what,
        // Paths and disks of ours are not its business.
        Some(End::Failed(_)) => "something failed there".to_owned(),
        _ => return,
    };
    speaking.send_last(&Message::Abort { reason });
}

fn stray(index: u64) -> End {
    End::Protocol(format!("an answer to entry {index}, which waits for none"))
}

/// Outermost names that are told in the request: enough for a command line, little for a line.
const ROOTS_NAMED_MAX: usize = 1000;
