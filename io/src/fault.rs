//! Network emulation around any port: loss, duplication, reordering, corruption, a black hole.
//!
//! Faults apply to received frames only, between the inner port and the node. Two ends that are
//! both wrapped have faults in both directions.

mod config;

pub use config::{FaultConfig, FaultConfigError};

use crate::clock::TimeSource;
use crate::port::{Port, SlotToken, slots_of_inner};
use spanwire_base::{Rng, RxMeta, Time, TxMeta, u64_from, usize_from};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// Number of frames affected by each fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultCounters {
    /// Frames received from the inner port.
    pub rx_frames: u64,
    /// Frames delivered, including duplicates.
    pub delivered: u64,
    /// Frames lost by `loss_ppm`.
    pub lost: u64,
    /// Frames delivered twice.
    pub duplicated: u64,
    /// Frames delayed.
    pub reordered: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
    /// Frames lost to [`FaultPort::set_blackhole`].
    pub blackholed: u64,
}

/// A port with network emulation before its receiver.
#[derive(Debug)]
pub struct FaultPort<P> {
    inner: P,
    faults: Faults,
}

/// State without the inner port, so that both can be borrowed at once.
#[derive(Debug)]
struct Faults {
    cfg: FaultConfig,
    loss: Rng,
    dup: Rng,
    reorder: Rng,
    corrupt: Rng,
    blackhole: bool,
    /// Delayed frames, oldest first; at most `reorder_depth`.
    delayed: Vec<Delayed>,
    /// Due frames that exceeded the last burst; at most a burst and the delayed frames.
    backlog: VecDeque<Vec<u8>>,
    /// Free buffers, so that a running port does not allocate.
    pool: Vec<Vec<u8>>,
    /// Buffers allocated so far.
    made: usize,
    /// The time of the last burst.
    now: Time,
    counters: FaultCounters,
}

#[derive(Debug)]
struct Delayed {
    bytes: Vec<u8>,
    /// Frames that must still overtake it.
    frames_left: u32,
    /// It is also released at this time.
    until: Time,
}

/// The receiver of one burst.
struct Sink<'a> {
    left: usize,
    handed: usize,
    each: &'a mut dyn FnMut(&[u8], &RxMeta),
}

impl<P: Port> FaultPort<P> {
    /// Wraps `inner` with network emulation.
    ///
    /// # Errors
    /// `cfg` is out of range.
    pub fn new(inner: P, cfg: FaultConfig) -> Result<Self, FaultConfigError> {
        cfg.validate()?;
        let mut rng = Rng::new(cfg.seed);
        let faults = Faults {
            cfg,
            loss: rng.fork(),
            dup: rng.fork(),
            reorder: rng.fork(),
            corrupt: rng.fork(),
            blackhole: false,
            delayed: Vec::with_capacity(usize_from(u64::from(cfg.reorder_depth))),
            backlog: VecDeque::new(),
            pool: Vec::new(),
            made: 0,
            now: Time::ZERO,
            counters: FaultCounters::default(),
        };
        Ok(Self { inner, faults })
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> FaultCounters {
        self.faults.counters
    }

    /// While on, all frames are dropped, including delayed ones.
    pub fn set_blackhole(&mut self, on: bool) {
        self.faults.blackhole = on;
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

impl Faults {
    /// Applies the faults to a frame from the inner port.
    fn on_frame(&mut self, frame: &[u8], meta: RxMeta, sink: &mut Sink<'_>) {
        self.counters.rx_frames += 1;
        if self.blackhole {
            self.counters.blackholed += 1;
            return;
        }
        if self.loss.per_million(self.cfg.loss_ppm) {
            self.counters.lost += 1;
            return;
        }
        if frame.len() > ETH_HEADER_LEN && self.corrupt.per_million(self.cfg.corrupt_ppm) {
            self.counters.corrupted += 1;
            let mut bytes = self.copy(frame);
            flip_bit(&mut bytes[ETH_HEADER_LEN..], &mut self.corrupt);
            self.on_survivor(&bytes, meta, sink);
            self.pool.push(bytes);
        } else {
            self.on_survivor(frame, meta, sink);
        }
    }

    /// Delivers a frame that is not lost, now or later, once or twice.
    fn on_survivor(&mut self, frame: &[u8], meta: RxMeta, sink: &mut Sink<'_>) {
        let twice = self.dup.per_million(self.cfg.dup_ppm);
        let late = self.reorder.per_million(self.cfg.reorder_ppm)
            && self.delayed.len() < usize_from(u64::from(self.cfg.reorder_depth));
        self.counters.duplicated += u64::from(twice);
        let prompt = u32::from(twice) + u32::from(!late);
        for _ in 0..prompt {
            self.deliver(frame, meta, sink);
        }
        if prompt > 0 {
            self.overtake(sink);
        }
        if late {
            self.counters.reordered += 1;
            let depth = u64::from(self.cfg.reorder_depth);
            let frames_left = u32::try_from(1 + self.reorder.below(depth)).unwrap_or(u32::MAX);
            let bytes = self.copy(frame);
            self.delayed.push(Delayed {
                bytes,
                frames_left,
                until: self.now + FaultConfig::HOLD_MAX,
            });
        }
    }

    /// Counts a frame that overtakes all delayed ones.
    fn overtake(&mut self, sink: &mut Sink<'_>) {
        for delayed in &mut self.delayed {
            delayed.frames_left -= 1;
        }
        self.release(sink, |delayed| delayed.frames_left == 0);
    }

    /// Delivers delayed frames that are `due`, oldest first.
    fn release(&mut self, sink: &mut Sink<'_>, due: impl Fn(&Delayed) -> bool) {
        let mut at = 0;
        while at < self.delayed.len() {
            if !due(&self.delayed[at]) {
                at += 1;
                continue;
            }
            let bytes = self.delayed.remove(at).bytes;
            self.deliver(&bytes, RxMeta::whole(self.now), sink);
            self.pool.push(bytes);
        }
    }

    /// Delivers a frame, or queues a copy for the next burst if this one is full.
    fn deliver(&mut self, frame: &[u8], meta: RxMeta, sink: &mut Sink<'_>) {
        if sink.left == 0 {
            let bytes = self.copy(frame);
            self.backlog.push_back(bytes);
        } else {
            sink.pass(frame, meta);
        }
    }

    fn deliver_backlog(&mut self, sink: &mut Sink<'_>) {
        while sink.left > 0
            && let Some(bytes) = self.backlog.pop_front()
        {
            sink.pass(&bytes, RxMeta::whole(self.now));
            self.pool.push(bytes);
        }
    }

    /// Frames already delayed are lost in the black hole as well.
    fn drop_all(&mut self) {
        self.counters.blackholed += u64_from(self.delayed.len() + self.backlog.len());
        self.pool.extend(self.delayed.drain(..).map(|delayed| delayed.bytes));
        self.pool.extend(self.backlog.drain(..));
    }

    /// Copies a frame to a buffer of the pool.
    fn copy(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut bytes = self.pool.pop().unwrap_or_else(|| {
            self.made += 1;
            Vec::new()
        });
        bytes.clear();
        bytes.extend_from_slice(frame);
        bytes
    }

    /// The longest wait before a queued frame is due.
    fn wait_max(&self) -> Duration {
        if !self.backlog.is_empty() {
            return Duration::ZERO;
        }
        let left = self.delayed.iter().map(|delayed| delayed.until.since(self.now));
        left.min().map_or(Duration::MAX, |left| {
            // Rounded up, because a wait of zero would spin for the last picoseconds.
            Duration::from_nanos(left.as_ns() + 1)
        })
    }
}

impl Sink<'_> {
    fn pass(&mut self, frame: &[u8], meta: RxMeta) {
        self.left -= 1;
        self.handed += 1;
        (self.each)(frame, &meta);
    }
}

/// Flips one bit of `bytes`, uniformly distributed.
fn flip_bit(bytes: &mut [u8], rng: &mut Rng) {
    let bit = usize_from(rng.below(u64_from(bytes.len()) * 8));
    bytes[bit / 8] ^= 1 << (bit % 8);
}

impl<P: Port> Port for FaultPort<P> {
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize {
        let Self { inner, faults } = self;
        let now = clock.now();
        faults.now = now;
        let mut sink = Sink { left: max, handed: 0, each };
        if faults.blackhole {
            faults.drop_all();
        }
        faults.deliver_backlog(&mut sink);
        faults.release(&mut sink, |delayed| delayed.until <= now);
        // No more than fits: the surplus of a burst is its duplicates and released frames.
        inner.rx_burst(clock, sink.left, &mut |frame, meta| {
            faults.on_frame(frame, *meta, &mut sink);
        });
        faults.counters.delivered += u64_from(sink.handed);
        sink.handed
    }

    slots_of_inner!();

    fn slot_commit(&mut self, slot: SlotToken, meta: TxMeta) {
        self.inner.slot_commit(slot, meta);
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let wait_max = self.faults.wait_max();
        if wait_max.is_zero() {
            return Ok(());
        }
        // Also a wait of zero: the inner port may check its interface then.
        self.inner.wait(timeout.min(wait_max))
    }
}

/// Addresses and type. A bit error in them would only hit the receiver's filter.
const ETH_HEADER_LEN: usize = 14;

#[cfg(test)]
mod tests;
