//! What is behind a port: one direction of a link.
//!
//! A [`Line`] is pure: the caller pulls a frame from a node when the line is free
//! ([`Line::free_at`]), gives it to [`Line::send`] and learns when it arrives at the other end and
//! in which state, or why it does not. It keeps no frames; whoever owns it keeps those under way.

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

/// One direction of a link: serialisation at a rate, propagation, and what goes wrong on the way.
#[derive(Clone, Debug)]
pub struct Line {
    config: LineConfig,
    /// [`Impairments::is_none`], so that a perfect line costs nothing.
    is_perfect: bool,
    faults: Faults,
    free_at: Time,
    /// The latest arrival of a frame that was not held back: jitter does not reorder.
    last_arrival: Time,
    counters: LineCounters,
}

/// What became of a frame given to [`Line::send`].
#[derive(Clone, Debug)]
pub struct Sent {
    /// When its last bit has left: the line is free again.
    pub tx_done: Time,
    /// One fate, or two when the frame was duplicated.
    pub fates: ArrayVec<Fate, 2>,
}

/// What becomes of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Its last bit is at the other end at this time.
    Arrives(Time),
    /// It never is.
    Dropped(LineDrop),
}

/// Why a line loses a frame; the first that applies, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineDrop {
    /// The link was down while the frame was sent.
    LinkDown,
    /// The link looked well and was not.
    Blackhole,
    /// Random loss.
    Loss,
    /// A burst of losses.
    BurstLoss,
    /// A loss within a block.
    BlockLoss,
}

/// What a line has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct LineCounters {
    /// Frames sent into it.
    pub frames: u64,
    /// Their bytes, elided ones and padding to 60 included, overhead not.
    pub bytes: u64,
    /// Frames that arrive, duplicates included: `frames - dropped + duplicated`.
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
    /// Held back.
    pub reordered: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Delivered with a bit flipped.
    pub corrupted: u64,
    /// Delivered with extra delay.
    pub jittered: u64,
}

impl Line {
    /// A line whose faults are decided by `seed` and the order of frames.
    ///
    /// # Errors
    /// What [`LineConfig::validate`] finds.
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

    /// Changes what the line is like. Counters, generators and frames under way stay as they are;
    /// the frame being sent ends when it would have.
    ///
    /// # Errors
    /// What [`LineConfig::validate`] finds; then nothing has changed.
    pub fn set_config(&mut self, config: LineConfig) -> Result<(), ConfigError> {
        config.validate()?;
        self.is_perfect = config.impairments.is_none();
        self.config = config;
        Ok(())
    }

    /// What the line is like.
    #[must_use]
    pub fn config(&self) -> &LineConfig {
        &self.config
    }

    /// What it has done.
    #[must_use]
    pub fn counters(&self) -> &LineCounters {
        &self.counters
    }

    /// When the last frame's last bit has left. A frame given earlier waits until then.
    #[must_use]
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// True unless the link is down at `now`. A blackhole does not show.
    #[must_use]
    pub fn is_up(&self, now: Time) -> bool {
        !self.is_down(now, now)
    }

    /// Sends a frame at `now`, or when the line is free if that is later.
    ///
    /// # Arguments
    /// - `now`: never decreasing.
    /// - `frame`: the bytes that are there; a bit may be flipped.
    /// - `elided_bytes`: payload that stands for itself; its bit errors fall on the ICRC.
    ///
    /// # Cost
    /// No allocation. A perfect line does arithmetic only.
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
    /// Frames lost, for whatever reason.
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

/// Bytes that a frame counts for on every line and in every queue: its own, the elided ones, and
/// Ethernet's padding. Without FCS.
#[must_use]
pub(crate) fn wire_bytes(len: usize, elided_bytes: u32) -> u64 {
    (u64_from(len) + u64::from(elided_bytes)).max(MIN_FRAME_BYTES)
}

/// Flips one bit past the Ethernet header, each with the same probability; of the bits that were
/// elided, one of the ICRC instead, which stands for them. False when there is none to flip.
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
        // What was elided had stood before the ICRC, the last four bytes of the IP packet.
        let end = ip_end(frame, elided_bytes).unwrap_or(frame.len());
        end.saturating_sub(1 + usize_from(bit / 8 % 4))
    };
    frame.get_mut(byte).map(|b| *b ^= 1 << (bit % 8)).is_some()
}

/// The Ethernet header: what reaches the wrong station, or none, is loss and has its own rate.
const ETHERNET_BYTES: usize = 14;

#[cfg(test)]
mod tests;
