//! Hand-over between the workers of a process: frames that arrive at the port of one worker and
//! belong to a queue pair of another.
//!
//! Which queue of an interface a packet arrives on is decided by the network: a queue's number, a
//! hash, a filter. Where that is not the worker that has the queue pair, the frame is copied into a
//! ring of that worker and its bell is rung. Nothing is handed over where both ends are paired.

use crate::clock::TimeSource;
use crate::port::{Port, SlotToken, slots_of_inner};
use crate::worker::Bell;
use crossbeam_queue::ArrayQueue;
use spanwire_base::{LentPayload, RxMeta, TxMeta, u64_from};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The rings by which the workers of a process hand frames to each other.
#[derive(Debug)]
pub struct Handover {
    inboxes: Box<[Inbox]>,
}

/// The frames for one worker. The buffers are allocated with it, and circulate.
struct Inbox {
    full: ArrayQueue<HandedFrame>,
    free: ArrayQueue<Box<[u8]>>,
    bell: Arc<Bell>,
}

struct HandedFrame {
    buffer: Box<[u8]>,
    len: usize,
    meta: RxMeta,
}

/// The counters of a [`SteeredPort`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SteerCounters {
    /// Frames that arrived here and were handed to their worker.
    pub handed: u64,
    /// Frames of this worker that arrived at another one.
    pub received: u64,
    /// Frames of other workers that were dropped because [`HANDOVER_FRAMES`] waited for them.
    pub dropped: u64,
}

/// Finds the worker that a frame belongs to: a function of the frame, or a type with a faster
/// answer for the usual one.
pub trait Owner {
    /// The worker of a frame; one of an unknown worker goes to worker 0.
    fn owner(&self, frame: &[u8]) -> usize;

    /// True only if it is the worker of the port; if not, [`Owner::owner`] is asked.
    fn is_own(&self, _frame: &[u8]) -> bool {
        false
    }
}

impl<F: Fn(&[u8]) -> usize> Owner for F {
    fn owner(&self, frame: &[u8]) -> usize {
        self(frame)
    }
}

/// The port of one of several workers: it delivers the frames of this worker, from its own port and
/// from those of the others.
pub struct SteeredPort<P, F> {
    inner: P,
    handover: Arc<Handover>,
    worker: usize,
    owner: F,
    /// Those that are held elsewhere, too.
    tallies: Vec<Arc<Tally>>,
    counters: SteerCounters,
}

/// Which of up to 64 numbered frames have arrived at the port of their own worker: a record of the
/// queues that the network chooses.
pub struct Tally {
    index: Box<IndexOf>,
    seen: AtomicU64,
}

/// The number of a frame; `None` of one that is not counted.
type IndexOf = dyn Fn(&[u8]) -> Option<u32> + Send + Sync;

impl Tally {
    /// A tally of the frames to which `index` gives a number, 0..=63.
    pub fn new(index: impl Fn(&[u8]) -> Option<u32> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { index: Box::new(index), seen: AtomicU64::new(0) })
    }

    /// The frames that have arrived: bit `i` is that of number `i`.
    #[must_use]
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    fn see(&self, frame: &[u8]) {
        if let Some(bit) = (self.index)(frame).and_then(|index| 1_u64.checked_shl(index)) {
            self.seen.fetch_or(bit, Ordering::Relaxed);
        }
    }
}

/// Frames that wait for one worker at most. A worker that spins takes them within microseconds; one
/// that sleeps or computes drops what its own ring would drop.
pub const HANDOVER_FRAMES: usize = 256;

/// Tallies that a port counts for at a time, each of which sees every frame.
pub const TALLIES_MAX: usize = 8;

fn is_held(tally: &Arc<Tally>) -> bool {
    Arc::strong_count(tally) > 1
}

impl Handover {
    /// Rings for workers with these bells, for frames of at most `frame_room` bytes. Allocates
    /// [`HANDOVER_FRAMES`] buffers for each, and nothing later.
    ///
    /// # Panics
    /// There are more than 64.
    #[must_use]
    pub fn new(bells: Vec<Arc<Bell>>, frame_room: usize) -> Arc<Self> {
        assert!(bells.len() <= 64, "{} workers", bells.len());
        let inbox = |bell| {
            let free = ArrayQueue::new(HANDOVER_FRAMES);
            for _ in 0..HANDOVER_FRAMES {
                let pushed = free.push(vec![0; frame_room].into_boxed_slice());
                assert!(pushed.is_ok(), "the ring has room for all");
            }
            Inbox { full: ArrayQueue::new(HANDOVER_FRAMES), free, bell }
        };
        Arc::new(Self { inboxes: bells.into_iter().map(inbox).collect() })
    }
}

impl Inbox {
    /// Copies a frame for this worker. False if there is no buffer for it.
    fn put(&self, frame: &[u8], meta: RxMeta) -> bool {
        let Some(mut buffer) = self.free.pop() else { return false };
        let len = frame.len();
        let fits = buffer.get_mut(..len).map(|room| room.copy_from_slice(frame)).is_some();
        let ring = if fits {
            self.full.push(HandedFrame { buffer, len, meta }).is_ok()
        } else {
            self.free.push(buffer).is_ok()
        };
        assert!(ring, "each ring has room for all buffers");
        fits
    }

    /// Delivers up to `max` of the frames that other workers have put here.
    fn take(&self, max: usize, each: &mut dyn FnMut(&[u8], &RxMeta)) -> usize {
        let mut count = 0;
        while count < max
            && let Some(HandedFrame { buffer, len, meta }) = self.full.pop()
        {
            each(&buffer[..len], &meta);
            let freed = self.free.push(buffer);
            assert!(freed.is_ok(), "each ring has room for all buffers");
            count += 1;
        }
        count
    }
}

impl<P: Port, F: Owner> SteeredPort<P, F> {
    /// The port of worker `worker`, which receives at `inner`.
    ///
    /// # Panics
    /// `handover` has no such worker.
    pub fn new(inner: P, handover: Arc<Handover>, worker: usize, owner: F) -> Self {
        assert!(worker < handover.inboxes.len(), "worker {worker}");
        let (tallies, counters) = (Vec::new(), SteerCounters::default());
        Self { inner, handover, worker, owner, tallies, counters }
    }

    /// Counts the frames of `tally` until nothing else holds it. False if [`TALLIES_MAX`] are
    /// counted already.
    pub fn count(&mut self, tally: &Arc<Tally>) -> bool {
        self.tallies.retain(is_held);
        let has_room = self.tallies.len() < TALLIES_MAX;
        self.tallies.extend(has_room.then(|| Arc::clone(tally)));
        has_room
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> SteerCounters {
        self.counters
    }

    /// The inner port.
    #[must_use]
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// The inner port, mutable.
    pub fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }
}

/// A burst of frames from the own port.
struct OwnBurst<'a, F, E> {
    /// Frames of the worker go there.
    each: E,
    owner: &'a F,
    own: usize,
    inboxes: &'a [Inbox],
    counters: &'a mut SteerCounters,
    /// The other workers that have got a frame.
    to_wake: u64,
}

impl<F: Owner, E: FnMut(&[u8], &RxMeta)> OwnBurst<'_, F, E> {
    /// Delivers up to `max` frames from `port`, and passes on those of other workers. Returns the
    /// number of both.
    #[inline]
    fn receive(mut self, port: &mut impl Port, clock: &dyn TimeSource, max: usize) -> usize {
        let count = port.rx_burst(clock, max, &mut |frame, meta| {
            // Both are calls in tail position: a frame of this worker has no more to pay.
            if self.owner.is_own(frame) {
                (self.each)(frame, meta);
            } else {
                self.pass(frame, meta);
            }
        });
        self.wake();
        count
    }

    /// Passes on a frame of another worker. It may be for this one, nevertheless.
    #[cold]
    #[inline(never)]
    fn pass(&mut self, frame: &[u8], meta: &RxMeta) {
        let to = self.owner.owner(frame);
        let to = if to < self.inboxes.len() { to } else { 0 };
        if to == self.own {
            (self.each)(frame, meta);
        } else if self.inboxes[to].put(frame, *meta) {
            self.counters.handed += 1;
            self.to_wake |= 1 << to;
        } else {
            self.counters.dropped += 1;
        }
    }

    /// Rings for each that has got a frame: its next step sees it, or its sleep ends.
    fn wake(&self) {
        let mut to_wake = self.to_wake;
        while to_wake != 0 {
            let bell = &self.inboxes[to_wake.trailing_zeros() as usize].bell;
            bell.ring();
            bell.wake();
            to_wake &= to_wake - 1;
        }
    }
}

impl<P: Port, F: Owner> Port for SteeredPort<P, F> {
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize {
        let Self { inner, handover, worker, owner, tallies, counters } = self;
        let (inboxes, own) = (&*handover.inboxes, *worker);
        // A full inbox leaves half of the burst to the own port, and a busy port half to the inbox.
        let mut received = inboxes[own].take(max.div_ceil(2), each);
        let left = max - received;
        let to_wake = 0;
        let count = if tallies.is_empty() {
            let each = &mut *each;
            OwnBurst { each, owner, own, inboxes, counters, to_wake }.receive(inner, clock, left)
        } else {
            tallies.retain(is_held);
            let each = |frame: &[u8], meta: &RxMeta| {
                tallies.iter().for_each(|tally| tally.see(frame));
                each(frame, meta);
            };
            OwnBurst { each, owner, own, inboxes, counters, to_wake }.receive(inner, clock, left)
        };
        received += inboxes[own].take(left.saturating_sub(count), each);
        counters.received += u64_from(received);
        received + count
    }

    slots_of_inner!();

    fn slot_commit(&mut self, slot: SlotToken, meta: TxMeta) {
        self.inner.slot_commit(slot, meta);
    }

    fn sends_lent(&self) -> bool {
        self.inner.sends_lent()
    }

    fn slot_commit_lent(&mut self, slot: SlotToken, meta: TxMeta, lent: LentPayload) {
        self.inner.slot_commit_lent(slot, meta, lent);
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        if self.handover.inboxes[self.worker].full.is_empty() {
            return self.inner.wait(timeout);
        }
        Ok(())
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.poll_fd()
    }
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tally").field("seen", &self.seen()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("full", &self.full.len()).finish_non_exhaustive()
    }
}

impl<P: fmt::Debug, F> fmt::Debug for SteeredPort<P, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SteeredPort")
            .field("inner", &self.inner)
            .field("worker", &self.worker)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::pipe::{PipeConfig, PipePort, pipe};
    use crate::port::reserve;
    use crate::worker::{Progress, bell};
    use spanwire_base::Time;

    type Steered = SteeredPort<PipePort, fn(&[u8]) -> usize>;

    /// Two workers whose frames begin with the number of their worker, and the far end of each.
    fn two() -> ([Steered; 2], [PipePort; 2]) {
        let bells = (0..2).map(|_| bell(Progress::Inline).unwrap()).collect();
        let handover = Handover::new(bells, 128);
        let ends = [0, 1].map(|worker| {
            let (near, far) = pipe(PipeConfig::default());
            let owner: fn(&[u8]) -> usize = |frame| frame[0].into();
            (SteeredPort::new(near, Arc::clone(&handover), worker, owner), far)
        });
        let [(a, far_a), (b, far_b)] = ends;
        ([a, b], [far_a, far_b])
    }

    fn send(port: &mut PipePort, frame: &[u8]) {
        let mut slot = reserve(port).expect("the ring has room");
        slot.bytes()[..frame.len()].copy_from_slice(frame);
        slot.commit(TxMeta::whole(frame.len()));
        port.flush(Time::ZERO).unwrap();
    }

    fn receive(port: &mut Steered, max: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        port.rx_burst(&Clock::start(), max, &mut |frame, _| frames.push(frame.to_vec()));
        frames
    }

    #[test]
    fn rx_burst__a_frame_reaches_its_worker_from_either_port() {
        let ([mut a, mut b], [mut far_a, mut far_b]) = two();
        send(&mut far_a, &[0, 7]);
        send(&mut far_a, &[1, 8]);
        send(&mut far_b, &[1, 9]);
        assert_eq!(receive(&mut a, 64), [[0, 7]]);
        assert!(b.inner.wait(Duration::ZERO).is_ok());
        assert_eq!(receive(&mut b, 64), [[1, 8], [1, 9]]);
        assert_eq!(a.counters(), SteerCounters { handed: 1, ..SteerCounters::default() });
        assert_eq!(b.counters(), SteerCounters { received: 1, ..SteerCounters::default() });
    }

    #[test]
    fn rx_burst__frames_of_nobody_are_for_the_first_worker() {
        let ([mut a, mut b], [mut far_a, mut far_b]) = two();
        send(&mut far_a, &[9]);
        send(&mut far_b, &[200]);
        assert_eq!(receive(&mut a, 64), [[9]]);
        assert!(receive(&mut b, 64).is_empty());
        assert_eq!(receive(&mut a, 64), [[200]]);
    }

    #[test]
    fn rx_burst__a_full_ring_drops_and_counts_and_no_buffer_is_lost() {
        let ([mut a, mut b], [mut far_a, _far_b]) = two();
        for round in 0..3 {
            for _ in 0..7 {
                (0..64).for_each(|_| send(&mut far_a, &[1]));
                assert!(receive(&mut a, 64).is_empty());
            }
            let taken: usize = (0..9).map(|_| receive(&mut b, 64).len()).sum();
            assert_eq!(taken, HANDOVER_FRAMES, "round {round}");
        }
        assert_eq!(a.counters().handed, 3 * u64_from(HANDOVER_FRAMES));
        assert_eq!(a.counters().handed + a.counters().dropped, 3 * 7 * 64);
    }

    #[test]
    fn rx_burst__takes_no_more_than_asked_and_drops_what_exceeds_a_buffer() {
        let ([mut a, mut b], [mut far_a, _far_b]) = two();
        (0..5).for_each(|_| send(&mut far_a, &[1]));
        send(&mut far_a, &[1; 129]);
        assert!(receive(&mut a, 64).is_empty());
        assert_eq!(a.counters(), SteerCounters { handed: 5, received: 0, dropped: 1 });
        assert_eq!([2, 2, 2].map(|max| receive(&mut b, max).len()), [2, 2, 1]);
    }

    #[test]
    fn rx_burst__a_full_inbox_and_a_full_port_have_half_of_each_burst() {
        let ([mut a, mut b], [mut far_a, mut far_b]) = two();
        for _ in 0..4 {
            (0..64).for_each(|_| send(&mut far_a, &[1, 8]));
            assert!(receive(&mut a, 64).is_empty());
        }
        (0..40).for_each(|_| send(&mut far_b, &[1, 9]));
        let kinds = |frames: Vec<Vec<u8>>| {
            [8, 9].map(|kind| frames.iter().filter(|f| f[1] == kind).count())
        };
        // The rest of a burst is for either.
        assert_eq!([0; 3].map(|_| kinds(receive(&mut b, 64))), [[32, 32], [56, 8], [64, 0]]);
        assert_eq!(b.counters().received, 32 + 56 + 64);
    }

    #[test]
    fn rx_burst__after_a_flood_for_another_worker_its_frames_get_through_again() {
        let ([mut a, mut b], [mut far_a, mut far_b]) = two();
        for _ in 0..100 {
            // At either worker, its own frame is behind those of the flood.
            (0..63).for_each(|_| send(&mut far_a, &[1, 8]));
            send(&mut far_a, &[0, 7]);
            send(&mut far_b, &[1, 9]);
            assert_eq!(receive(&mut a, 64), [[0, 7]]);
            assert!(receive(&mut b, 8).contains(&vec![1, 9]));
        }
        assert!(a.counters().dropped > 0, "the flood fills the ring");
        while !receive(&mut b, 64).is_empty() {}
        let dropped = a.counters().dropped;
        (0..HANDOVER_FRAMES / 64).for_each(|_| {
            (0..64).for_each(|_| send(&mut far_a, &[1, 5]));
            receive(&mut a, 64);
        });
        let later: usize = (0..8).map(|_| receive(&mut b, 64).len()).sum();
        assert_eq!((later, a.counters().dropped), (HANDOVER_FRAMES, dropped));
    }

    #[test]
    fn count__sees_the_frames_of_this_worker_that_arrive_here() {
        let ([mut a, mut b], [mut far_a, mut far_b]) = two();
        let tally = Tally::new(|frame| (frame.len() == 3).then(|| frame[2].into()));
        assert!(b.count(&tally));
        send(&mut far_a, &[1, 9, 0]);
        assert!(receive(&mut a, 64).is_empty());
        for frame in [&[1, 9, 3][..], &[1, 9, 63], &[1, 9, 64], &[1, 9], &[0, 9, 5]] {
            send(&mut far_b, frame);
        }
        assert_eq!(receive(&mut b, 64).len(), 5);
        assert_eq!(tally.seen(), 1 << 3 | 1 << 63, "neither another worker's nor a handed one");
        let many: Vec<_> = (0..TALLIES_MAX).map(|_| Tally::new(|_| None)).collect();
        let is_counted: Vec<bool> = many.iter().map(|tally| b.count(tally)).collect();
        assert_eq!(is_counted.iter().filter(|is| **is).count(), TALLIES_MAX - 1);
        drop((tally, many));
        receive(&mut b, 64);
        assert!(b.tallies.is_empty(), "nobody else holds it");
    }

    #[test]
    fn rx_burst__rings_the_bell_of_the_owner_only() {
        let bells: Vec<_> = (0..2).map(|_| bell(Progress::Inline).unwrap()).collect();
        let handover = Handover::new(bells.clone(), 128);
        let (near, mut far) = pipe(PipeConfig::default());
        let mut port = SteeredPort::new(near, handover, 0, |frame: &[u8]| usize::from(frame[0]));
        send(&mut far, &[0]);
        port.rx_burst(&Clock::start(), 64, &mut |_, _| {});
        assert!(!bells[1].is_rung());
        send(&mut far, &[1]);
        port.rx_burst(&Clock::start(), 64, &mut |_, _| {});
        assert!(bells[1].is_rung() && !bells[0].is_rung());
    }
}
