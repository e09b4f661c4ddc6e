//! How fast a peer sends and how far its packets are spread, from their timestamps: when a packet
//! that has not come is late.

use spanwire_base::{Dur, Time};
use spanwire_wire::BlockRepr;

/// The pace of a stream.
///
/// Timestamps are of the sender's clock and arrivals of ours: their difference says nothing, but
/// differences of differences do. The fastest packet of the last two periods is the measure of all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// The packet of a block that came last in order: its number, and when it was sent.
    newest: Option<(u64, u64)>,
    /// The smoothed time between two packets.
    gap: Dur,
    /// Of this period and of the last one.
    now: Option<Period>,
    before: Option<Period>,
    /// Packets seen, up to [`ENOUGH_PKTS`].
    seen: u32,
}

#[derive(Clone, Copy, Debug)]
struct Period {
    since: Time,
    /// Arrival less timestamp of the fastest packet, modulo 2^64.
    fastest_ps: u64,
    /// By how much the slowest was slower than the fastest then known.
    spread: Dur,
}

impl Pace {
    /// A packet that was sent at `sent_ps` of its sender's clock came as packet `number`, the
    /// `index`th of a block. Returns by how much it was slower than the fastest.
    pub(super) fn on_packet(&mut self, now: Time, number: u64, sent_ps: u64, index: u8) -> Dur {
        self.seen = (self.seen + 1).min(ENOUGH_PKTS);
        self.note_gap(number, sent_ps, index);
        let trip_ps = now.as_ps().wrapping_sub(sent_ps);
        let fastest = [self.now, self.before].into_iter().flatten().map(|p| p.fastest_ps);
        let slower = fastest.map(|fastest| trip_ps.wrapping_sub(fastest).cast_signed()).max();
        let slower = u64::try_from(slower.unwrap_or(0).max(0)).unwrap_or(0);
        let slower = Dur::from_ps(slower).min(SPREAD_MAX);
        let fresh = Period { since: now, fastest_ps: trip_ps, spread: slower };
        match &mut self.now {
            Some(period) if now.since(period.since) < PERIOD => {
                if trip_ps.wrapping_sub(period.fastest_ps).cast_signed() < 0 {
                    period.fastest_ps = trip_ps;
                }
                period.spread = period.spread.max(slower);
            }
            _ => self.before = self.now.replace(fresh),
        }
        slower
    }

    /// When the last packet of a block is here, or will not come, as a packet of it says that came
    /// at `now` and was `slower` than the fastest.
    pub(super) fn last_is_here(&self, now: Time, slower: Dur, block: &BlockRepr) -> Time {
        let behind = block.pkts() - 1 - block.index;
        let latest = now + self.gap * u64::from(behind) + self.wait();
        latest - slower.min(self.wait())
    }

    /// By how much a packet may be slower than the fastest.
    pub(super) fn wait(&self) -> Dur {
        let spread = [self.now, self.before].into_iter().flatten().map(|p| p.spread).max();
        let spread = spread.unwrap_or(Dur::ZERO);
        let least = if self.seen < ENOUGH_PKTS { UNKNOWN } else { Dur::ZERO };
        spread.max(least) + spread / 8 + SLACK
    }

    /// Within a block one packet follows the other: between blocks a sender may have had nothing.
    fn note_gap(&mut self, number: u64, sent_ps: u64, index: u8) {
        let Some((last, last_sent_ps)) = self.newest.replace((number, sent_ps)) else { return };
        let (ahead, took_ps) = (number.wrapping_sub(last), sent_ps.wrapping_sub(last_sent_ps));
        if ahead == 0 || ahead > u64::from(index) {
            // Older than the newest, or of another block.
            if ahead > 1 << 63 {
                self.newest = Some((last, last_sent_ps));
            }
            return;
        }
        if took_ps < GAP_MAX.as_ps() {
            let sample = Dur::from_ps(took_ps / ahead);
            // What is sent again comes a round trip behind its block and says nothing of the pace.
            let most = (self.gap * 2).max(SLACK);
            self.gap = match self.gap {
                Dur::ZERO => sample,
                gap => (gap * 7 + sample.min(most)) / 8,
            };
        }
    }
}

/// What is the fastest packet is measured anew so often, or two clocks that drift apart would make
/// all packets slow.
const PERIOD: Dur = Dur::from_ms(1000);
/// Timestamps are the peer's: no more than this is believed.
const SPREAD_MAX: Dur = Dur::from_ms(1000);
const GAP_MAX: Dur = Dur::from_ms(100);
/// Packets after which the spread is known, and what it is taken for until then.
const ENOUGH_PKTS: u32 = 64;
const UNKNOWN: Dur = Dur::from_ms(1);
/// A receiver's own jitter.
const SLACK: Dur = Dur::from_us(20);
