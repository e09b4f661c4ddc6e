//! Two connected ports in one process: one receives what the other commits and flushes.
//!
//! A pipe is the loss-free network of examples and tests. Both ends are independent [`Port`]s and
//! may be on two threads. All buffers are allocated with the pipe and circulate: from the sender's
//! free ring through its full ring to the receiver and back, without a copy.

mod doorbell;

use crate::clock::TimeSource;
use crate::port::{Port, SlotToken};
use crossbeam_queue::ArrayQueue;
use doorbell::{Doorbell, Wants};
use spanwire_base::{RxMeta, Time, TxMeta, u64_from, usize_from};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Configuration of a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PipeConfig {
    /// Frames queued in each direction, 1..=65,536. Default 256: four bursts of the driver.
    pub ring: usize,
    /// Longest frame in bytes without FCS, 64..=65,536. Default 4,352: a payload of 4,096 (the
    /// largest path MTU of RC) and the largest headers, rounded up to 256.
    pub frame_room: usize,
    /// Handling of a full ring. Default [`WhenFull::BackPressure`].
    pub when_full: WhenFull,
}

/// Handling of a full ring at its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WhenFull {
    /// The sender gets no transmit buffer until the receiver has taken a frame: no loss.
    #[default]
    BackPressure,
    /// The new frame is dropped and counted, like tail drop in a switch.
    Drop,
}

/// The counters of one end of a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PipeCounters {
    /// Frames received at this end.
    pub rx_frames: u64,
    /// Frames put into the other end's ring.
    pub tx_frames: u64,
    /// Frames dropped because the ring was full ([`WhenFull::Drop`] only).
    pub tx_dropped_full: u64,
    /// Frames that the other end did not receive before it was dropped: sent after that, or left
    /// unread in its ring (those are in `tx_frames` too).
    pub tx_dropped_closed: u64,
}

/// One end of a pipe. Dropping it closes the pipe for both.
#[derive(Debug)]
pub struct PipePort {
    shared: Arc<Shared>,
    /// The index of this end: it sends in direction `side` and sleeps on bell `side`.
    side: usize,
    /// Buffers taken as slots, by their id.
    taken: Box<[Option<Frame>]>,
    /// Committed frames, sent with the next flush.
    staged: VecDeque<Frame>,
    /// [`WhenFull::Drop`]: the buffer of frames that will be dropped.
    scrap: Option<Frame>,
    frame_room: usize,
    /// The last [`Port::slot_take`] found no buffer: a wait ends when one is returned.
    starved: bool,
    /// A time after which the ring was seen empty.
    empty_at: Time,
    counters: PipeCounters,
}

#[derive(Debug)]
struct Shared {
    directions: [Direction; 2],
    /// One bell for each end; the other end rings it.
    bells: [Doorbell; 2],
    closed: AtomicBool,
}

/// One direction of the pipe. Each ring has room for all of its buffers, so a push cannot fail.
#[derive(Debug)]
struct Direction {
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

/// Creates a pipe and returns its two ends. Allocates `2 * ring` buffers of `frame_room` bytes, and
/// nothing later.
///
/// # Panics
/// If `cfg` is outside the ranges that [`PipeConfig`] states.
#[must_use]
pub fn pipe(cfg: PipeConfig) -> (PipePort, PipePort) {
    assert!((1..=65_536).contains(&cfg.ring), "ring of {}", cfg.ring);
    assert!((64..=65_536).contains(&cfg.frame_room), "frame_room of {}", cfg.frame_room);
    let shared = Arc::new(Shared {
        directions: [Direction::new(cfg), Direction::new(cfg)],
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

impl Direction {
    fn new(cfg: PipeConfig) -> Self {
        let direction = Self { full: ArrayQueue::new(cfg.ring), free: ArrayQueue::new(cfg.ring) };
        for id in 0..cfg.ring {
            put(&direction.free, Frame::new(id, cfg.frame_room));
        }
        direction
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
            empty_at: Time::ZERO,
            counters: PipeCounters::default(),
        }
    }

    /// The counters of this end so far.
    #[must_use]
    pub fn counters(&self) -> PipeCounters {
        self.counters
    }

    /// True if the other end has been dropped: frames sent before can still be received, but no new
    /// ones arrive.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }

    /// The direction that it sends in.
    fn outgoing(&self) -> &Direction {
        &self.shared.directions[self.side]
    }

    /// The direction that it receives in.
    fn incoming(&self) -> &Direction {
        &self.shared.directions[1 - self.side]
    }

    fn peer_bell(&self) -> &Doorbell {
        &self.shared.bells[1 - self.side]
    }

    /// A buffer for transmission: a free one, one that a closed receiver left unread, or the scrap.
    fn take_frame(&mut self) -> Option<Frame> {
        if let Some(frame) = self.outgoing().free.pop() {
            return Some(frame);
        }
        if self.is_closed()
            && let Some(frame) = self.outgoing().full.pop()
        {
            self.counters.tx_dropped_closed += 1;
            return Some(frame);
        }
        self.scrap.take()
    }

    /// Returns an unused buffer of the sending side.
    fn put_back(&mut self, frame: Frame) {
        if self.is_scrap(&frame) {
            self.scrap = Some(frame);
        } else {
            put(&self.outgoing().free, frame);
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
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize {
        let began = clock.now();
        let mut count = 0;
        while count < max
            && let Some(frame) = self.incoming().full.pop()
        {
            each(&frame.bytes[..frame.len], &RxMeta::between(self.empty_at, clock.now()));
            put(&self.incoming().free, frame);
            count += 1;
        }
        if count < max {
            self.empty_at = began;
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
        let direction = &self.shared.directions[self.side];
        if self.is_closed() {
            self.counters.tx_dropped_closed += count;
            self.staged.drain(..).for_each(|f| put(&direction.free, f));
        } else {
            self.counters.tx_frames += count;
            self.staged.drain(..).for_each(|f| put(&direction.full, f));
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
        let (incoming, out) = (self.incoming(), self.outgoing());
        let bell = &self.shared.bells[self.side];
        if self.starved {
            let ready = || !incoming.full.is_empty() || !out.free.is_empty() || self.is_closed();
            bell.wait(Wants::FramesOrBuffers, timeout, ready);
        } else {
            bell.wait(Wants::Frames, timeout, || !incoming.full.is_empty());
        }
        Ok(())
    }
}

impl Drop for PipePort {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        // A peer that waits for a buffer takes back those that this end has not read.
        self.peer_bell().ring(Wants::FramesOrBuffers);
    }
}

/// Pushes into a ring that has room for every buffer.
fn put(ring: &ArrayQueue<Frame>, frame: Frame) {
    let pushed = ring.push(frame);
    assert!(pushed.is_ok(), "the pipe has no more buffers than it was created with");
}

#[cfg(test)]
mod tests;
