//! State shared by the threads of one copy: its progress, and how it ended.

use crate::gaps::{GapRow, Gaps};
use crate::row::FileRow;
use spanwire_stream::{Cause, Error};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A running copy. The first thread that ends it sets the cause; the others poll it and stop.
#[derive(Debug, Default)]
pub struct Session {
    over: AtomicBool,
    end: Mutex<Option<End>>,
    /// The progress so far.
    pub progress: Progress,
    ledger: Mutex<Ledger>,
    gaps: Mutex<Gaps>,
    stall: Stall,
}

/// The results of the files.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Keeps the rows of all files, not only of those that failed.
    pub keeps_all: bool,
    /// The files, in the order of their completion.
    pub rows: Vec<FileRow>,
    /// Number of files that failed; rows are kept only for the first of them.
    pub failed: u64,
}

/// A guard that ends a copy if it is dropped by a panic.
#[derive(Debug)]
pub struct EndsOnPanic<'a>(&'a Session);

/// How a copy ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// Every entry was sent and answered.
    Complete,
    /// The local user interrupted it.
    Interrupted,
    /// The peer aborted, with this reason.
    PeerAborted(String),
    /// The peer's process or machine is gone.
    PeerGone(&'static str),
    /// The connection is up, but the peer made no progress for this time.
    Stalled(Duration),
    /// The peer violated the protocol.
    Protocol(String),
    /// This end failed.
    Failed(String),
}

/// Stall timer: time spent waiting for the peer.
#[derive(Debug, Default)]
struct Stall {
    /// Start of the wait, perhaps in the future; unset until the first query.
    since: Mutex<Option<Instant>>,
    /// Threads of this end that do local work.
    at_work: AtomicU64,
    /// Declared content since the last progress, in bytes.
    brought: AtomicU64,
}

/// A guard of local work. The stall timer is stopped until it is dropped.
#[derive(Debug)]
pub struct AtWork<'a> {
    session: &'a Session,
    began: Instant,
}

/// Progress of a copy. Each number only grows.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of all files, once known.
    pub bytes_total: AtomicU64,
    /// Files in all, once known.
    pub files_total: AtomicU64,
    /// Bytes processed: sent, or found at the receiver.
    pub bytes_done: AtomicU64,
    /// Of those, bytes that were found at the receiver.
    pub bytes_resumed: AtomicU64,
    /// Files with their final name.
    pub files_done: AtomicU64,
    /// Connections, once the two ends have agreed on them.
    pub connections: AtomicU32,
    /// The current file.
    current: Mutex<Current>,
}

/// The current file.
#[derive(Clone, Debug, Default)]
pub struct Current {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Bytes processed.
    pub done: u64,
    /// Of those, bytes that were found at the receiver.
    pub resumed: u64,
}

impl Session {
    /// Ends the copy with this cause, unless it has ended already.
    pub fn end(&self, end: End) {
        let mut slot = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert(end);
        self.over.store(true, Ordering::Release);
    }

    /// A guard that ends the copy if the calling thread panics, because the other threads would
    /// wait forever.
    #[must_use]
    pub fn ends_on_panic(&self) -> EndsOnPanic<'_> {
        EndsOnPanic(self)
    }

    /// True once the copy has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// A session whose ledger keeps a row of every file if `keeps_all`, else only of failed files.
    #[must_use]
    pub fn new(keeps_all: bool) -> Self {
        let ledger = Mutex::new(Ledger { keeps_all, ..Ledger::default() });
        Self { ledger, ..Self::default() }
    }

    /// Restarts the stall timer: the peer made progress.
    pub fn progressed(&self) {
        self.stall.allow(Duration::ZERO);
    }

    /// The peer has brought `bytes` of declared content. That is progress once it amounts to
    /// [`PROGRESS_BYTES`].
    pub fn brought(&self, bytes: u64) {
        let before = self.stall.brought.fetch_add(bytes, Ordering::AcqRel);
        if before.saturating_add(bytes) >= PROGRESS_BYTES {
            self.stall.brought.store(0, Ordering::Release);
            self.progressed();
        }
    }

    /// Cancels unused allowances, because the peer has answered. That alone is no progress.
    pub fn answered(&self) {
        let now = Instant::now();
        if let Some(since) = &mut *self.stall.lock() {
            *since = now.min(*since);
        }
    }

    /// Extends the stall timer by an allowance of `time` for the peer's answer.
    pub fn allow(&self, time: Duration) {
        self.stall.allow(time);
    }

    /// Stops the stall timer during local work. A guard must not be held across a send, because a
    /// peer that does not read has stalled.
    #[must_use]
    pub fn at_work(&self) -> AtWork<'_> {
        self.stall.at_work.fetch_add(1, Ordering::AcqRel);
        AtWork { session: self, began: Instant::now() }
    }

    /// Time without progress by the peer, local work excluded.
    #[must_use]
    pub fn stalled_for(&self) -> Duration {
        if self.stall.at_work.load(Ordering::Acquire) > 0 {
            return Duration::ZERO;
        }
        let now = Instant::now();
        now.saturating_duration_since(*self.stall.lock().get_or_insert(now))
    }

    /// Records a chunk of a file, which arrived `at`; `is_last` if it is the file's last one.
    pub fn chunk_came(&self, at: Instant, is_last: bool) {
        self.gaps.lock().unwrap_or_else(PoisonError::into_inner).chunk_came(at, is_last);
    }

    /// Statistics of the gaps between chunks; `None` without any gap.
    #[must_use]
    pub fn gaps(&self) -> Option<GapRow> {
        self.gaps.lock().unwrap_or_else(PoisonError::into_inner).row()
    }

    /// Records the result of a file.
    pub fn note(&self, row: FileRow) {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = row.reason.is_some();
        ledger.failed += u64::from(failed);
        if ledger.keeps_all || failed && ledger.failed <= FAILURES_KEPT {
            ledger.rows.push(row);
        }
    }

    /// The results of the files so far.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The cause of the end, if the copy has ended.
    #[must_use]
    pub fn outcome(&self) -> Option<End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Stall {
    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allow(&self, time: Duration) {
        let now = Instant::now();
        let mut since = self.lock();
        let from = since.map_or(now, |since| since.max(now));
        *since = Some(from.checked_add(time).unwrap_or(from));
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let Self { session: Session { stall, .. }, began } = self;
        // Local work is no progress, but its time is excluded. Progress meanwhile has been
        // recorded.
        let now = Instant::now();
        if let Some(since) = &mut *stall.lock() {
            let later = since.checked_add(now.saturating_duration_since(*began)).unwrap_or(now);
            *since = later.min(now.max(*since));
        }
        stall.at_work.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for EndsOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end(End::Failed("internal: a thread panicked".into()));
        }
    }
}

impl Progress {
    /// Starts a file, of which `done` bytes are already at the receiver.
    pub fn begin(&self, name: &str, size: u64, done: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Current { name: name.to_owned(), size, done, resumed: done };
        drop(current);
        self.bytes_done.fetch_add(done, Ordering::Relaxed);
        self.bytes_resumed.fetch_add(done, Ordering::Relaxed);
    }

    /// Adds `bytes` of the current file.
    pub fn advance(&self, bytes: u64) {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).done += bytes;
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The current file.
    #[must_use]
    pub fn current(&self) -> Current {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes that crossed the network.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        let done = self.bytes_done.load(Ordering::Relaxed);
        done.saturating_sub(self.bytes_resumed.load(Ordering::Relaxed))
    }
}

impl From<Error> for End {
    fn from(e: Error) -> Self {
        match e {
            Error::Lost(Cause::PeerGone(how)) => Self::PeerGone(how),
            Error::Lost(Cause::PeerClosed) => Self::PeerGone("it closed the connection"),
            Error::Lost(Cause::PeerAborted(reason)) => Self::PeerAborted(reason),
            Error::Lost(Cause::Protocol(what)) => Self::Protocol(what.to_owned()),
            e => Self::Failed(e.to_string()),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => f.write_str("complete"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::PeerAborted(why) => write!(f, "the other end gave up: {why}"),
            Self::PeerGone(how) => write!(f, "the other end is gone ({how})"),
            Self::Stalled(time) => write!(f, "the other end brought nothing for {time:?}"),
            Self::Protocol(what) => write!(f, "the other end broke the protocol: {what}"),
            Self::Failed(what) => f.write_str(what),
        }
    }
}

/// Limit of failed rows: enough for people, and a peer must not fill memory.
const FAILURES_KEPT: u64 = 1000;

/// Content that counts as progress, in bytes. A sender of less within a stall timeout has stalled.
pub const PROGRESS_BYTES: u64 = 64 << 10;

/// Poll interval at which a blocked thread checks whether the copy has ended.
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end__the_first_cause_counts() {
        let session = Session::default();
        assert!(!session.is_over());
        assert_eq!(session.outcome(), None);
        session.end(End::PeerGone("killed"));
        session.end(End::Complete);
        assert!(session.is_over());
        assert_eq!(session.outcome(), Some(End::PeerGone("killed")));
    }

    #[test]
    fn ends_on_panic__a_panic_ends_the_copy() {
        let session = Session::default();
        drop(session.ends_on_panic());
        assert!(!session.is_over());
        std::thread::scope(|scope| {
            let part = scope.spawn(|| {
                let _guard = session.ends_on_panic();
                panic!("on purpose");
            });
            assert!(part.join().is_err());
        });
        assert!(matches!(session.outcome(), Some(End::Failed(_))));
    }

    #[test]
    fn progress__found_bytes_count_as_done_but_not_as_sent() {
        let progress = Progress::default();
        progress.begin("a", 100, 40);
        progress.advance(60);
        progress.begin("b", 5, 0);
        progress.advance(2);
        assert_eq!(progress.bytes_done.load(Ordering::Relaxed), 102);
        assert_eq!(progress.bytes_sent(), 62);
        let current = progress.current();
        assert_eq!((&*current.name, current.size, current.done), ("b", 5, 2));
    }

    #[test]
    fn stalled_for__counts_only_while_this_end_waits() {
        let (session, short) = (Session::default(), Duration::from_millis(20));
        let began = Instant::now();
        assert_eq!(session.stalled_for(), Duration::ZERO, "it begins with the first question");
        std::thread::sleep(short);
        assert!(session.stalled_for() >= short);
        let at_work = session.at_work();
        std::thread::sleep(short);
        assert_eq!(session.stalled_for(), Duration::ZERO);
        drop(at_work);
        let stalled = session.stalled_for();
        assert!(stalled >= short && stalled + short <= began.elapsed(), "{stalled:?}");
        session.allow(Duration::from_secs(3600));
        session.progressed();
        std::thread::sleep(short);
        assert_eq!(session.stalled_for(), Duration::ZERO, "progress takes no allowance away");
        session.answered();
        std::thread::sleep(short);
        let stalled = session.stalled_for();
        assert!(stalled >= short, "an answer does");
        session.answered();
        assert!(session.stalled_for() >= stalled, "which is no progress");
    }

    #[test]
    fn brought__is_progress_in_quanta() {
        let (session, short) = (Session::default(), Duration::from_millis(20));
        assert_eq!(session.stalled_for(), Duration::ZERO);
        std::thread::sleep(short);
        session.brought(PROGRESS_BYTES - 1);
        assert!(session.stalled_for() >= short);
        session.allow(Duration::from_secs(3600));
        session.answered();
        let before = Instant::now();
        session.brought(1);
        std::thread::sleep(short);
        session.brought(PROGRESS_BYTES - 1);
        let stalled = session.stalled_for();
        assert!(stalled >= short && stalled <= before.elapsed(), "{stalled:?}");
    }

    #[test]
    fn at_work__local_work_during_progress_gives_no_allowance() {
        let (session, short) = (Session::default(), Duration::from_millis(20));
        let at_work = session.at_work();
        std::thread::sleep(short * 2);
        session.progressed();
        drop(at_work);
        std::thread::sleep(short);
        assert!(session.stalled_for() >= short);
    }

    #[test]
    fn end__a_silent_peer_is_gone_whichever_error_reports_it() {
        for cause in [Cause::PeerGone("its side connection closed"), Cause::PeerClosed] {
            assert!(matches!(End::from(Error::Lost(cause)), End::PeerGone(_)));
        }
        let ours = Cause::NetworkGone("no interface".into());
        assert!(matches!(End::from(Error::Lost(ours)), End::Failed(_)));
        let broken = Cause::Protocol("a fragment across the ring's end");
        assert!(matches!(End::from(Error::Lost(broken)), End::Protocol(_)));
        let refused = End::from(Error::Lost(Cause::PeerAborted("busy".into())));
        assert_eq!(refused.to_string(), "the other end gave up: busy");
    }
}
