//! Two ports back to back in one process: what one commits and flushes, the other receives.
//!
//! A pipe is the loss-free network of examples and tests. Both ends are independent [`Port`]s and
//! may live on two threads. All buffers are made with the pipe and go round: from the sender's
//! free ring through its full ring to the receiver and back, never copied in between.

mod doorbell;

use crate::port::{Port, SlotToken};
use crossbeam_queue::ArrayQueue;
use doorbell::{Doorbell, Wants};
use spanwire_base::{RxMeta, Time, TxMeta, u64_from, usize_from};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The shape of a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PipeConfig {
    /// Frames each direction holds, 1..=65,536. Default 256: four bursts of the driver.
    pub ring: usize,
    /// Longest frame in bytes without FCS, 64..=65,536. Default 4,352: a payload of 4,096 (the
    /// largest path MTU of RC) and the largest headers, rounded up to 256.
    pub frame_room: usize,
    /// What happens to a sender whose ring is full. Default [`WhenFull::BackPressure`].
    pub when_full: WhenFull,
}

/// What a full ring does to its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WhenFull {
    /// No transmit buffer until the receiver has taken a frame: nothing is lost.
    #[default]
    BackPressure,
    /// The new frame is dropped and counted, as a switch drops at the tail of its queue.
    Drop,
}

/// What one end of a pipe has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PipeCounters {
    /// Frames handed to this end's receiver.
    pub rx_frames: u64,
    /// Frames put into the other end's ring.
    pub tx_frames: u64,
    /// Frames dropped because the ring was full ([`WhenFull::Drop`] only).
    pub tx_dropped_full: u64,
    /// Frames that the other end will never take, because it has been dropped: sent after that, or
    /// found unread in its ring (those are in `tx_frames` too).
    pub tx_dropped_closed: u64,
}

/// One end of a pipe. Dropping it closes the pipe for both.
#[derive(Debug)]
pub struct PipePort {
    shared: Arc<Shared>,
    /// Which end: it sends on way `side` and sleeps on bell `side`.
    side: usize,
    /// Buffers handed out as slots, by their id.
    taken: Box<[Option<Frame>]>,
    /// Committed, to leave with the next flush.
    staged: VecDeque<Frame>,
    /// [`WhenFull::Drop`]: where frames are written that find the ring full.
    scrap: Option<Frame>,
    frame_room: usize,
    /// The last [`Port::slot_take`] found no buffer: a wait ends when one comes back.
    starved: bool,
    counters: PipeCounters,
}

#[derive(Debug)]
struct Shared {
    ways: [Way; 2],
    /// One for each end; rung by the other.
    bells: [Doorbell; 2],
    closed: AtomicBool,
}

/// One way of the pipe. Each ring has room for all of its buffers, so a push cannot fail.
#[derive(Debug)]
struct Way {
    full: ArrayQueue<Frame>,
    free: ArrayQueue<Frame>,
}

#[derive(Debug)]
struct Frame {
    id: usize,
    len: usize,
    bytes: Box<[u8]>,
}

impl Default for PipeConfig {
    fn default() -> Self {
        Self { ring: 256, frame_room: 4_352, when_full: WhenFull::BackPressure }
    }
}

/// Makes a pipe and returns its two ends. Allocates `2 * ring` buffers of `frame_room` bytes;
/// nothing is allocated later.
///
/// # Panics
/// If `cfg` is outside the ranges that [`PipeConfig`] states.
#[must_use]
pub fn pipe(cfg: PipeConfig) -> (PipePort, PipePort) {
    assert!((1..=65_536).contains(&cfg.ring), "ring of {}", cfg.ring);
    assert!((64..=65_536).contains(&cfg.frame_room), "frame_room of {}", cfg.frame_room);
    let shared = Arc::new(Shared {
        ways: [Way::new(cfg), Way::new(cfg)],
        bells: [Doorbell::default(), Doorbell::default()],
        closed: AtomicBool::new(false),
    });
    let left = PipePort::new(cfg, Arc::clone(&shared), 0);
    (left, PipePort::new(cfg, shared, 1))
}

impl Frame {
    fn new(id: usize, room: usize) -> Self {
        Self { id, len: 0, bytes: vec![0; room].into_boxed_slice() }
    }
}

impl Way {
    fn new(cfg: PipeConfig) -> Self {
        let way = Self { full: ArrayQueue::new(cfg.ring), free: ArrayQueue::new(cfg.ring) };
        for id in 0..cfg.ring {
            put(&way.free, Frame::new(id, cfg.frame_room));
        }
        way
    }
}

impl PipePort {
    fn new(cfg: PipeConfig, shared: Arc<Shared>, side: usize) -> Self {
        // The scrap frame has the id after the ring's.
        let scrap = match cfg.when_full {
            WhenFull::BackPressure => None,
            WhenFull::Drop => Some(Frame::new(cfg.ring, cfg.frame_room)),
        };
        Self {
            shared,
            side,
            taken: (0..=cfg.ring).map(|_| None).collect(),
            staged: VecDeque::with_capacity(cfg.ring),
            scrap,
            frame_room: cfg.frame_room,
            starved: false,
            counters: PipeCounters::default(),
        }
    }

    /// What this end has done so far.
    #[must_use]
    pub fn counters(&self) -> PipeCounters {
        self.counters
    }

    /// True when the other end has been dropped: what was sent before can still be received,
    /// nothing new will come.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }

    /// The way it sends on.
    fn out(&self) -> &Way {
        &self.shared.ways[self.side]
    }

    /// The way it receives on.
    fn inn(&self) -> &Way {
        &self.shared.ways[1 - self.side]
    }

    fn peer_bell(&self) -> &Doorbell {
        &self.shared.bells[1 - self.side]
    }

    /// A buffer to write into: a free one, one that a closed receiver left unread, or the scrap.
    fn take_frame(&mut self) -> Option<Frame> {
        if let Some(frame) = self.out().free.pop() {
            return Some(frame);
        }
        if self.is_closed()
            && let Some(frame) = self.out().full.pop()
        {
            self.counters.tx_dropped_closed += 1;
            return Some(frame);
        }
        self.scrap.take()
    }

    /// Gives an unused buffer of the sending side back.
    fn put_back(&mut self, frame: Frame) {
        if self.is_scrap(&frame) {
            self.scrap = Some(frame);
        } else {
            put(&self.out().free, frame);
        }
    }

    fn is_scrap(&self, frame: &Frame) -> bool {
        frame.id + 1 == self.taken.len()
    }

    fn untake(&mut self, slot: &SlotToken) -> Frame {
        self.taken[usize_from(slot.id())]
            .take()
            .expect("a token is made with its buffer and used once")
    }
}

impl Port for PipePort {
    fn rx_burst(&mut self, now: Time, max: usize, each: &mut dyn FnMut(&[u8], RxMeta)) -> usize {
        let mut count = 0;
        while count < max
            && let Some(frame) = self.inn().full.pop()
        {
            each(&frame.bytes[..frame.len], RxMeta::whole(now));
            put(&self.inn().free, frame);
            count += 1;
        }
        if count > 0 {
            self.counters.rx_frames += u64_from(count);
            self.peer_bell().ring(Wants::FramesOrBuffers);
        }
        count
    }

    fn slot_take(&mut self) -> Option<SlotToken> {
        let frame = self.take_frame();
        self.starved = frame.is_none();
        let frame = frame?;
        let id = frame.id;
        self.taken[id] = Some(frame);
        Some(SlotToken::new(u64_from(id)))
    }

    fn slot_bytes(&mut self, slot: &SlotToken) -> &mut [u8] {
        self.taken[usize_from(slot.id())]
            .as_mut()
            .map(|frame| &mut *frame.bytes)
            .expect("a token is made with its buffer and used once")
    }

    fn slot_commit(&mut self, slot: SlotToken, meta: TxMeta) {
        let mut frame = self.untake(&slot);
        assert!(
            meta.len <= frame.bytes.len(),
            "a frame of {} bytes in a buffer of {}",
            meta.len,
            frame.bytes.len()
        );
        if self.is_scrap(&frame) {
            self.counters.tx_dropped_full += 1;
            self.scrap = Some(frame);
            return;
        }
        frame.len = meta.len;
        self.staged.push_back(frame);
    }

    fn slot_release(&mut self, slot: SlotToken) {
        let frame = self.untake(&slot);
        self.put_back(frame);
    }

    fn flush(&mut self, _now: Time) -> io::Result<()> {
        if self.staged.is_empty() {
            return Ok(());
        }
        let count = u64_from(self.staged.len());
        let way = &self.shared.ways[self.side];
        if self.is_closed() {
            self.counters.tx_dropped_closed += count;
            self.staged.drain(..).for_each(|f| put(&way.free, f));
        } else {
            self.counters.tx_frames += count;
            self.staged.drain(..).for_each(|f| put(&way.full, f));
            self.peer_bell().ring(Wants::Frames);
        }
        Ok(())
    }

    fn frame_room(&self) -> usize {
        self.frame_room
    }

    fn tx_pending(&self) -> usize {
        self.staged.len()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let (inn, out) = (self.inn(), self.out());
        let bell = &self.shared.bells[self.side];
        if self.starved {
            let ready = || !inn.full.is_empty() || !out.free.is_empty() || self.is_closed();
            bell.wait(Wants::FramesOrBuffers, timeout, ready);
        } else {
            bell.wait(Wants::Frames, timeout, || !inn.full.is_empty());
        }
        Ok(())
    }
}

impl Drop for PipePort {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        // A peer starved of buffers waits for ours: it takes back what we left unread.
        self.peer_bell().ring(Wants::FramesOrBuffers);
    }
}

/// Pushes into a ring that has room for every buffer there is.
fn put(ring: &ArrayQueue<Frame>, frame: Frame) {
    let pushed = ring.push(frame);
    assert!(pushed.is_ok(), "more buffers than the pipe was made with");
}

#[cfg(test)]
mod tests;
