//! State shared by an application's halves of a connection and its channel on the worker: lengths,
//! counters and the cause of the end. The data are in the rings.

use crate::burst::{IsUnread, Unread, note_read};
use crate::config::Shape;
use crate::error::Cause;
use crate::incoming::Taken;
use crate::peers::ConnectionCount;
use crossbeam_queue::ArrayQueue;
use spanwire_base::usize_from;
use spanwire_io::event::EventFd;
use spanwire_io::fork::Origin;
use spanwire_io::worker::{Bell, Signal};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The kind of a connection; both ends must request the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Messages with their boundaries.
    Messages,
    /// Bytes without message boundaries.
    Bytes,
}

/// The queue of channels whose applications did something, for the worker.
#[derive(Debug)]
pub(crate) struct ReadyQueue {
    slots: ArrayQueue<u32>,
    /// A channel did not fit into `slots`: the worker must visit all channels.
    overflowed: AtomicBool,
    unread: Unread,
    pub(crate) bell: Arc<Bell>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    /// The channel's slot at the worker.
    slot: u32,
    ready_queue: Arc<ReadyQueue>,
    is_in_tray: AtomicBool,
    is_unread: IsUnread,
    /// Bytes written to the send ring so far; with messages also their lengths.
    pub(crate) written: AtomicU64,
    /// Bytes of the send ring freed so far.
    pub(crate) freed: AtomicU64,
    /// Lengths of the fragments in the receive ring that the application has not taken, in order.
    pub(crate) arrived: ArrayQueue<u32>,
    /// Bytes received so far.
    pub(crate) arrived_bytes: AtomicU64,
    /// Fragments taken from the receive ring so far, and the bytes in them.
    pub(crate) taken: AtomicU64,
    pub(crate) taken_bytes: AtomicU64,
    flags: AtomicU8,
    cause: OnceLock<Cause>,
    pub(crate) sendable: Signal,
    pub(crate) receivable: Signal,
    origin: Origin,
    /// Counts against the peer's limit until all handles and the worker have dropped this state.
    _count: Option<ConnectionCount>,
}

/// Events in a connection's life. Each happens at most once and is permanent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Milestone {
    /// The application has finished sending.
    Finished = 1,
    /// The application receives no more.
    ReceiveClosed = 2,
    /// The other end has finished sending; data received before are in `arrived`.
    PeerFinished = 4,
    /// The other application has taken all data.
    Drained = 8,
    /// The application has aborted; the cause is set.
    Aborted = 16,
    /// The worker has released the connection.
    Gone = 32,
}

impl ReadyQueue {
    pub(crate) fn new(channels: u32, bell: Arc<Bell>) -> Self {
        // A slot may be reused by a new channel while handles of the previous one remain.
        let slots = ArrayQueue::new(usize_from(channels.into()) * 2);
        let overflowed = AtomicBool::new(false);
        Self { slots, overflowed, unread: Unread::default(), bell }
    }

    /// The next channel to visit. Everything that its application did before is visible then.
    pub(crate) fn pop(&self) -> Option<u32> {
        self.slots.pop()
    }

    /// True once after channels did not fit.
    pub(crate) fn take_overflow(&self) -> bool {
        self.overflowed.load(Ordering::Relaxed) && self.overflowed.swap(false, Ordering::SeqCst)
    }
}

impl Shared {
    /// # Errors
    /// There are no descriptors left.
    pub(crate) fn new(
        kind: Kind,
        shape: Shape,
        slot: u32,
        ready_queue: Arc<ReadyQueue>,
    ) -> io::Result<Self> {
        let fragments = usize_from(shape.fragments.into());
        let bell = &ready_queue.bell;
        let signal = || Ok::<_, io::Error>(Signal::new(EventFd::new()?, Some(bell.clone())));
        let (sendable, receivable) = (signal()?, signal()?);
        Ok(Self {
            kind,
            shape,
            slot,
            ready_queue,
            is_in_tray: AtomicBool::new(false),
            is_unread: IsUnread::default(),
            written: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            arrived: ArrayQueue::new(fragments),
            arrived_bytes: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            taken_bytes: AtomicU64::new(0),
            flags: AtomicU8::new(0),
            cause: OnceLock::new(),
            sendable,
            receivable,
            origin: Origin::here(),
            _count: None,
        })
    }

    /// The same, counted by `count`.
    pub(crate) fn counted_by(self, count: Option<ConnectionCount>) -> Self {
        Self { _count: count, ..self }
    }

    /// Queues the channel for the engine, because the application did something, which must have
    /// been published before. False if it is queued already, or the engine has released it. The
    /// caller then tells the engine.
    pub(crate) fn enqueue(&self) -> bool {
        if self.has(Milestone::Gone) || self.is_in_tray.swap(true, Ordering::SeqCst) {
            return false;
        }
        if self.ready_queue.slots.push(self.slot).is_err() {
            self.ready_queue.overflowed.store(true, Ordering::SeqCst);
        }
        true
    }

    /// True if the engine has not seen the last ring yet.
    pub(crate) fn is_rung(&self) -> bool {
        self.ready_queue.bell.is_rung()
    }

    /// Tells the engine by a thread that does not drive it.
    pub(crate) fn ring(&self) {
        self.ready_queue.bell.ring();
        self.ready_queue.bell.wake();
    }

    /// Called by the worker before it visits the channel: later changes need a new notification.
    pub(crate) fn clear_queued(&self) {
        self.is_in_tray.swap(false, Ordering::SeqCst);
    }

    pub(crate) fn set(&self, milestone: Milestone) {
        self.flags.fetch_or(milestone as u8, Ordering::SeqCst);
    }

    pub(crate) fn has(&self, milestone: Milestone) -> bool {
        self.flags.load(Ordering::SeqCst) & milestone as u8 != 0
    }

    /// Announces data that the application may take.
    pub(crate) fn deliver(&self, arrived_bytes: u64) {
        self.arrived_bytes.store(arrived_bytes, Ordering::SeqCst);
        self.ready_queue.unread.add(&self.is_unread);
        self.receivable.raise();
    }

    /// Publishes what the application has taken.
    pub(crate) fn take(&self, taken: Taken) {
        self.taken_bytes.store(taken.bytes, Ordering::SeqCst);
        self.taken.store(taken.fragments, Ordering::SeqCst);
        note_read(&self.is_unread);
        if !self.has_unread() {
            self.ready_queue.unread.remove(&self.is_unread);
        }
    }

    /// The application reads no more.
    pub(crate) fn close_receiving(&self) {
        self.set(Milestone::ReceiveClosed);
        self.ready_queue.unread.remove(&self.is_unread);
    }

    /// True if the calling thread will read more of what has arrived, here or on a connection that
    /// it serves in turn.
    pub(crate) fn has_more_to_read(&self) -> bool {
        self.has_unread() || self.ready_queue.unread.has_more_for_this_thread()
    }

    /// True if the application has not taken everything that has arrived.
    pub(crate) fn has_unread(&self) -> bool {
        self.arrived_bytes.load(Ordering::SeqCst) > self.taken_bytes.load(Ordering::SeqCst)
    }

    /// Ends the connection with `cause`, unless it has ended already.
    pub(crate) fn fail(&self, cause: Cause) {
        let _ = self.cause.set(cause);
        self.raise_all();
    }

    /// The cause of the end, if it has ended.
    pub(crate) fn cause(&self) -> Option<&Cause> {
        self.cause.get()
    }

    /// True in a process that was forked from the one that has the connection. Its halves of the
    /// connection are copies of which the engine does not know.
    pub(crate) fn is_forked(&self) -> bool {
        !self.origin.is_here()
    }

    pub(crate) fn raise_all(&self) {
        self.sendable.raise();
        self.receivable.raise();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::testing::bell;

    fn shared(ready_queue: &Arc<ReadyQueue>, slot: u32) -> Shared {
        let shape = Shape::wanted(&Config::default());
        Shared::new(Kind::Messages, shape, slot, ready_queue.clone()).unwrap()
    }

    #[test]
    fn enqueue__queues_a_channel_once() {
        let ready_queue = Arc::new(ReadyQueue::new(1, bell()));
        let channel = shared(&ready_queue, 0);
        assert!(channel.enqueue());
        assert!(!channel.enqueue());
        assert_eq!((ready_queue.pop(), ready_queue.pop()), (Some(0), None));
        assert!(!channel.enqueue());
        assert_eq!(ready_queue.pop(), None, "not looked at yet");
        channel.clear_queued();
        assert!(channel.enqueue());
        assert_eq!(ready_queue.pop(), Some(0));
        channel.clear_queued();
        channel.set(Milestone::Gone);
        assert!(!channel.enqueue());
        assert_eq!(ready_queue.pop(), None, "nobody is there to look");
    }

    #[test]
    fn enqueue__a_full_queue_makes_the_engine_visit_all() {
        let ready_queue = Arc::new(ReadyQueue::new(1, bell()));
        let channels = [0; 3].map(|slot| shared(&ready_queue, slot));
        for channel in &channels {
            assert!(channel.enqueue());
        }
        assert!(ready_queue.take_overflow() && !ready_queue.take_overflow());
    }

    #[test]
    fn fail__the_first_cause_counts() {
        let ready_queue = Arc::new(ReadyQueue::new(1, bell()));
        let channel = shared(&ready_queue, 0);
        channel.fail(Cause::PeerGone("first"));
        channel.fail(Cause::PeerGone("second"));
        assert_eq!(channel.cause(), Some(&Cause::PeerGone("first")));
    }
}
