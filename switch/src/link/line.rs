//! One direction of a link.
//!
//! A [`Line`] has no I/O. When it is free ([`Line::free_at`]), the caller polls a frame from a node
//! and passes it to [`Line::send`]. That returns when and in which state the frame arrives at the
//! other end, or why it is lost. The caller keeps the frames in flight.

mod config;
mod fault;

pub use config::{BlockLoss, BurstLoss, Flap, Impairments, Interval, LineConfig, Reorder};

use crate::MIN_FRAME_BYTES;
use crate::error::ConfigError;
use arrayvec::ArrayVec;
use fault::{Faults, Hits};
use serde::Serialize;
use spanwire_base::{Dur, Time, u64_from, usize_from};
use spanwire_wire::ip_end;

/// One direction of a link: serialisation at a rate, propagation delay, and impairments.
#[derive(Clone, Debug)]
pub struct Line {
    config: LineConfig,
    /// [`Impairments::is_none`], so that a line without impairments costs nothing.
    is_perfect: bool,
    faults: Faults,
    free_at: Time,
    /// The latest arrival of a frame that was not delayed for reordering: jitter does not reorder.
    last_arrival: Time,
    counters: LineCounters,
}

/// The result of [`Line::send`].
#[derive(Clone, Debug)]
pub struct Sent {
    /// When its last bit has been sent and the line is free again.
    pub tx_done: Time,
    /// One fate, or two if the frame was duplicated.
    pub fates: ArrayVec<Fate, 2>,
}

/// The fate of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Its last bit arrives at the other end at this time.
    Arrives(Time),
    /// It is lost.
    Dropped(LineDrop),
}

/// The cause of a loss; the first that applies, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineDrop {
    /// The link was down during transmission.
    LinkDown,
    /// A blackhole: loss while the link is up.
    Blackhole,
    /// Random loss.
    Loss,
    /// Burst loss.
    BurstLoss,
    /// Block loss.
    BlockLoss,
}

/// Counters of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct LineCounters {
    /// Frames sent into it.
    pub frames: u64,
    /// Their bytes, including elided ones and padding to 60, without overhead.
    pub bytes: u64,
    /// Frames delivered, including duplicates: `frames - dropped + duplicated`.
    pub delivered: u64,
    /// Lost: [`LineDrop::LinkDown`].
    pub drop_link_down: u64,
    /// Lost: [`LineDrop::Blackhole`].
    pub drop_blackhole: u64,
    /// Lost: [`LineDrop::Loss`].
    pub drop_loss: u64,
    /// Lost: [`LineDrop::BurstLoss`].
    pub drop_burst_loss: u64,
    /// Lost: [`LineDrop::BlockLoss`].
    pub drop_block_loss: u64,
    /// Delayed for reordering.
    pub reordered: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Delivered with a bit error.
    pub corrupted: u64,
    /// Delivered with extra delay.
    pub jittered: u64,
}

impl Line {
    /// A line whose impairments are decided by `seed` and the order of frames.
    ///
    /// # Errors
    /// The error of [`LineConfig::validate`].
    pub fn new(config: LineConfig, seed: u64) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            is_perfect: config.impairments.is_none(),
            config,
            faults: Faults::new(seed),
            free_at: Time::ZERO,
            last_arrival: Time::ZERO,
            counters: LineCounters::default(),
        })
    }

    /// Changes the configuration. Counters, generators and frames in flight are not affected, nor
    /// is the end of the present transmission.
    ///
    /// # Errors
    /// The error of [`LineConfig::validate`]; nothing has changed then.
    pub fn set_config(&mut self, config: LineConfig) -> Result<(), ConfigError> {
        config.validate()?;
        self.is_perfect = config.impairments.is_none();
        self.config = config;
        Ok(())
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &LineConfig {
        &self.config
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> &LineCounters {
        &self.counters
    }

    /// When the last frame's last bit has been sent. A frame given earlier waits until then.
    #[must_use]
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// True unless the link is down at `now`. A blackhole is not visible.
    #[must_use]
    pub fn is_up(&self, now: Time) -> bool {
        !self.is_down(now, now)
    }

    /// Sends a frame at `now`, or when the line is free if that is later.
    ///
    /// # Arguments
    /// - `now`: never decreasing.
    /// - `frame`: the bytes that are present; a bit may be flipped.
    /// - `elided_bytes`: elided payload; its bit errors are applied to the ICRC.
    ///
    /// # Cost
    /// No allocation. A line without impairments needs only arithmetic.
    pub fn send(&mut self, now: Time, frame: &mut [u8], elided_bytes: u32) -> Sent {
        let bytes = wire_bytes(frame.len(), elided_bytes);
        let start = now.max(self.free_at);
        let serialise = self
            .config
            .rate
            .map_or(Dur::ZERO, |rate| rate.time_for(bytes + u64::from(self.config.overhead_bytes)));
        let tx_done = start + serialise;
        self.free_at = tx_done;
        self.counters.frames += 1;
        self.counters.bytes += bytes;
        let mut fates = ArrayVec::new();
        if self.is_perfect {
            self.counters.delivered += 1;
            self.last_arrival = self.last_arrival.max(tx_done + self.config.delay);
            fates.push(Fate::Arrives(self.last_arrival));
        } else {
            self.impair(start, tx_done, frame, elided_bytes, &mut fates);
        }
        Sent { tx_done, fates }
    }

    fn impair(
        &mut self,
        start: Time,
        tx_done: Time,
        frame: &mut [u8],
        elided_bytes: u32,
        fates: &mut ArrayVec<Fate, 2>,
    ) {
        let hits = self.faults.next(&self.config.impairments);
        if let Some(drop) = self.loses(start, tx_done, &hits) {
            self.counters.count(drop);
            fates.push(Fate::Dropped(drop));
            return;
        }
        let arrival = self.arrival(tx_done, &hits);
        if hits.corrupt.is_some_and(|draw| flip_bit(draw, frame, elided_bytes)) {
            self.counters.corrupted += 1;
        }
        self.counters.delivered += 1;
        fates.push(Fate::Arrives(arrival));
        if hits.duplicate {
            self.counters.duplicated += 1;
            self.counters.delivered += 1;
            fates.push(Fate::Arrives(arrival));
        }
    }

    fn loses(&self, start: Time, tx_done: Time, hits: &Hits) -> Option<LineDrop> {
        if self.is_down(start, tx_done) {
            return Some(LineDrop::LinkDown);
        }
        if self.config.impairments.blackhole.iter().any(|i| i.overlaps(start, start)) {
            return Some(LineDrop::Blackhole);
        }
        match hits {
            Hits { loss: true, .. } => Some(LineDrop::Loss),
            Hits { burst: true, .. } => Some(LineDrop::BurstLoss),
            Hits { block: true, .. } => Some(LineDrop::BlockLoss),
            _ => None,
        }
    }

    fn is_down(&self, start: Time, end: Time) -> bool {
        let i = &self.config.impairments;
        i.down.iter().any(|down| down.overlaps(start, end))
            || i.flap.is_some_and(|flap| flap.overlaps(start, end))
    }

    fn arrival(&mut self, tx_done: Time, hits: &Hits) -> Time {
        self.counters.jittered += u64::from(hits.jitter > Dur::ZERO);
        let arrival = (tx_done + self.config.delay + hits.jitter).max(self.last_arrival);
        match self.config.impairments.reorder {
            Some(reorder) if hits.reorder => {
                self.counters.reordered += 1;
                arrival + reorder.extra_delay
            }
            _ => {
                self.last_arrival = arrival;
                arrival
            }
        }
    }
}

impl LineCounters {
    /// Frames lost, for any cause.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.drop_link_down
            + self.drop_blackhole
            + self.drop_loss
            + self.drop_burst_loss
            + self.drop_block_loss
    }

    fn count(&mut self, drop: LineDrop) {
        *match drop {
            LineDrop::LinkDown => &mut self.drop_link_down,
            LineDrop::Blackhole => &mut self.drop_blackhole,
            LineDrop::Loss => &mut self.drop_loss,
            LineDrop::BurstLoss => &mut self.drop_burst_loss,
            LineDrop::BlockLoss => &mut self.drop_block_loss,
        } += 1;
    }
}

/// Length of a frame on every line and in every queue: its own, elided bytes, and Ethernet's
/// padding. Without FCS.
#[must_use]
pub(crate) fn wire_bytes(len: usize, elided_bytes: u32) -> u64 {
    (u64_from(len) + u64::from(elided_bytes)).max(MIN_FRAME_BYTES)
}

/// Flips one bit past the Ethernet header, each with the same probability. An elided bit is
/// replaced by one of the ICRC, which then fails as well. False if there is no bit to flip.
fn flip_bit(draw: u64, frame: &mut [u8], elided_bytes: u32) -> bool {
    let there = u64_from(frame.len().saturating_sub(ETHERNET_BYTES));
    let all = (there + u64::from(elided_bytes)) * 8;
    if all == 0 {
        return false;
    }
    let bit = draw % all;
    let byte = if bit / 8 < there {
        ETHERNET_BYTES + usize_from(bit / 8)
    } else {
        // Elided bytes precede the ICRC, which is the last four bytes of the IP packet.
        let end = ip_end(frame, elided_bytes).unwrap_or(frame.len());
        end.saturating_sub(1 + usize_from(bit / 8 % 4))
    };
    frame.get_mut(byte).map(|b| *b ^= 1 << (bit % 8)).is_some()
}

/// The Ethernet header is not corrupted: a frame to a wrong or unknown address would be a loss,
/// which has its own rate.
const ETHERNET_BYTES: usize = 14;

#[cfg(test)]
mod tests;
