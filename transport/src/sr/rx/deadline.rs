//! How fast a peer sends and how far its packets overtake each other, from their timestamps: when a
//! packet that has not come is late.

use spanwire_base::{Dur, Time};
use spanwire_wire::BlockRepr;

/// The pace of a stream.
///
/// Timestamps are of the sender's clock and arrivals of ours: their difference says nothing, but
/// differences of differences do. A packet that others overtook is compared with the newest of
/// these. What holds all up alike, a queue that grows or a core that was taken away, makes nobody
/// late: nothing overtakes anything.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ArrivalTiming {
    /// The packet of a block that came last in order: its number, and when it was sent.
    newest: Option<(u64, u64)>,
    /// The smoothed time between two packets.
    packet_gap: Dur,
    /// The packet that was sent latest of those that came.
    latest: Option<Latest>,
    /// Of this period and of the last one.
    period: Option<Period>,
    last_period: Option<Period>,
    /// Packets seen, up to [`SPREAD_SAMPLES_MIN`].
    samples: u32,
}

#[derive(Clone, Copy, Debug)]
struct Latest {
    at: Time,
    sent_ps: u64,
}

#[derive(Clone, Copy, Debug)]
struct Period {
    since: Time,
    /// By how much the latest of those that were overtaken was late.
    spread: Dur,
}

impl ArrivalTiming {
    /// A packet that was sent at `sent_ps` of its sender's clock came as packet `number`, the
    /// `index`th of a block. Returns by how much it took longer than what overtook it.
    pub(super) fn on_packet(&mut self, now: Time, number: u64, sent_ps: u64, index: u8) -> Dur {
        self.samples = (self.samples + 1).min(SPREAD_SAMPLES_MIN);
        self.sample_gap(number, sent_ps, index);
        let excess_delay = self.excess_delay(now, sent_ps).min(SPREAD_MAX);
        match &mut self.period {
            Some(period) if now.since(period.since) < PERIOD => {
                period.spread = period.spread.max(excess_delay);
            }
            _ => {
                self.last_period = self.period.replace(Period { since: now, spread: excess_delay })
            }
        }
        excess_delay
    }

    /// By how much a packet took longer than the one that was sent latest, if that was sent after
    /// it; nothing if it is the latest itself.
    fn excess_delay(&mut self, now: Time, sent_ps: u64) -> Dur {
        let overtaken_by = |latest: &Latest| {
            let ahead_ps = u64::try_from(latest.sent_ps.wrapping_sub(sent_ps).cast_signed()).ok();
            let behind = now.since(latest.at);
            // An old one says nothing, or a clock that was set back would for ever.
            ahead_ps
                .filter(|ahead| *ahead > 0 && behind < PERIOD)
                .map(|ps| behind + Dur::from_ps(ps))
        };
        let excess_delay = self.latest.as_ref().and_then(overtaken_by);
        if excess_delay.is_none() {
            self.latest = Some(Latest { at: now, sent_ps });
        }
        excess_delay.unwrap_or(Dur::ZERO)
    }

    /// When the last packet of a block is here, or will not come, as a packet of it says that came
    /// at `now` and was `excess_delay` than what overtook it.
    pub(super) fn block_deadline(&self, now: Time, excess_delay: Dur, block: &BlockRepr) -> Time {
        let behind = block.pkts() - 1 - block.index;
        let latest = now + self.packet_gap * u64::from(behind) + self.reordering_allowance();
        latest - excess_delay.min(self.reordering_allowance())
    }

    /// By how much a packet may be slower than others.
    pub(super) fn reordering_allowance(&self) -> Dur {
        let spread = [self.period, self.last_period].into_iter().flatten().map(|p| p.spread).max();
        let spread = spread.unwrap_or(Dur::ZERO);
        let least = if self.samples < SPREAD_SAMPLES_MIN { INITIAL_SPREAD } else { Dur::ZERO };
        spread.max(least) + spread / 8 + SLACK
    }

    /// Within a block one packet follows the other: between blocks a sender may have had nothing.
    fn sample_gap(&mut self, number: u64, sent_ps: u64, index: u8) {
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
            let most = (self.packet_gap * 2).max(SLACK);
            self.packet_gap = match self.packet_gap {
                Dur::ZERO => sample,
                packet_gap => (packet_gap * 7 + sample.min(most)) / 8,
            };
        }
    }
}

/// How long it is remembered how late packets were: one to two of these.
const PERIOD: Dur = Dur::from_ms(1000);
/// Timestamps are the peer's: no more than this is believed.
const SPREAD_MAX: Dur = Dur::from_ms(1000);
const GAP_MAX: Dur = Dur::from_ms(100);
/// Packets after which the spread is known, and what it is taken for until then.
const SPREAD_SAMPLES_MIN: u32 = 64;
const INITIAL_SPREAD: Dur = Dur::from_ms(1);
/// A receiver's own jitter.
const SLACK: Dur = Dur::from_us(20);

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: BlockRepr = BlockRepr { index: 0, data: 8, parity: 2, scheme: 1 };

    /// Packets with their numbers, that left and came at these microseconds.
    fn timing(packets: impl IntoIterator<Item = (u64, u64, u64)>) -> ArrivalTiming {
        let mut timing = ArrivalTiming::default();
        for (number, sent, arrived) in packets {
            let index = u8::try_from(number % 10).unwrap();
            timing.on_packet(Time::from_ns(arrived * 1000), number, sent * 1_000_000, index);
        }
        timing
    }

    #[test]
    fn reordering_allowance__of_an_ordered_path_shrinks_to_the_slack() {
        let wait =
            |packets: u64| timing((0..packets).map(|i| (i, i, i + 1000))).reordering_allowance();
        assert!(wait(63) > INITIAL_SPREAD);
        assert_eq!(wait(64), SLACK);
    }

    #[test]
    fn reordering_allowance__ignores_delay_common_to_all_packets() {
        // From 100 us on for 50 ms; then everything comes at once.
        let arrived = |i: u64| if i < 100 { i + 1000 } else { (i + 1000).max(51_100) };
        assert_eq!(timing((0..1000).map(|i| (i, i, arrived(i)))).reordering_allowance(), SLACK);
        // The way becomes longer by a queue.
        assert_eq!(timing((0..1000).map(|i| (i, i, 3 * i + 1000))).reordering_allowance(), SLACK);
    }

    #[test]
    fn reordering_allowance__is_the_difference_of_paths() {
        // Odd packets take 500 us more.
        let mut packets: Vec<_> = (0..1000).map(|i| (i, i, i + 1000 + 500 * (i % 2))).collect();
        packets.sort_by_key(|(_, _, arrived)| *arrived);
        let wait = timing(packets).reordering_allowance();
        assert!((Dur::from_us(560)..Dur::from_us(600)).contains(&wait), "{wait:?}");
    }

    #[test]
    fn reordering_allowance__forgets_after_two_periods() {
        let far = |us| (1000 + us, us, us + 1000);
        let late = (0..100).map(|i| (i, i, i + 1000)).chain([(50, 50, 5000)]);
        let seen = |until: u64| {
            timing(late.clone().chain((10..until).map(|i| far(i * 1000)))).reordering_allowance()
        };
        assert!(seen(900) > Dur::from_us(3900));
        assert_eq!(seen(2100), SLACK);
    }

    #[test]
    fn block_deadline__accounts_for_later_packets_and_excess_delay() {
        let p = timing((0..1000).map(|i| (i, 2 * i, 2 * i + 1000)));
        let now = Time::from_ns(5_000_000);
        let at = |index, excess_delay| {
            p.block_deadline(now, excess_delay, &BlockRepr { index, ..BLOCK })
        };
        assert_eq!(at(9, Dur::ZERO), now + SLACK);
        assert_eq!(at(4, Dur::ZERO), now + Dur::from_us(10) + SLACK);
        assert_eq!(at(9, Dur::from_us(5)), now + SLACK - Dur::from_us(5));
    }
}
