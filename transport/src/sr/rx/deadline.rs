//! Block deadlines, from the peer's sending rate and the reordering of its packets. Both are
//! measured by the timestamps in the packets.

use spanwire_base::{Dur, Time};
use spanwire_wire::BlockRepr;

/// The packet gap and the reordering of a stream.
///
/// Timestamps are of the sender's clock and arrivals of the receiver's, so only the difference
/// between two packets' delays is meaningful. A packet that was overtaken is compared with the
/// latest-sent of the packets that overtook it. Delay common to all packets, as of a growing queue
/// or a descheduled core, cancels out: only reordering counts as lateness.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ArrivalTiming {
    /// The packet with the highest number in order: its number, and its timestamp.
    newest: Option<(u64, u64)>,
    /// The smoothed time between two packets.
    packet_gap: Dur,
    /// The received packet that was sent latest.
    latest: Option<Latest>,
    /// The spread of the current period and of the last one.
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
    /// The largest excess delay of an overtaken packet.
    spread: Dur,
}

impl ArrivalTiming {
    /// Records the arrival of packet `number`, the `index`th of its block, sent at `sent_ps` of the
    /// sender's clock. Returns its excess delay over the packet that overtook it.
    pub(super) fn on_packet(&mut self, now: Time, number: u64, sent_ps: u64, index: u8) -> Dur {
        self.samples = (self.samples + 1).min(SPREAD_SAMPLES_MIN);
        self.sample_gap(number, sent_ps, index);
        let excess_delay = self.excess_delay(now, sent_ps).min(SPREAD_MAX);
        match &mut self.period {
            Some(period) if now.since(period.since) < PERIOD => {
                period.spread = period.spread.max(excess_delay);
            }
            _ => {
                self.last_period = self.period.replace(Period { since: now, spread: excess_delay });
            }
        }
        excess_delay
    }

    /// The excess delay of a packet over the latest-sent one; zero if it is the latest itself.
    fn excess_delay(&mut self, now: Time, sent_ps: u64) -> Dur {
        let overtaken_by = |latest: &Latest| {
            let ahead_ps = u64::try_from(latest.sent_ps.wrapping_sub(sent_ps).cast_signed()).ok();
            let behind = now.since(latest.at);
            // Ignore a latest packet that is old. Otherwise, after the sender's clock is set back,
            // every packet would be compared with it indefinitely.
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

    /// The time by which the last packet of a block arrives, unless it is lost. The estimate is
    /// from a packet of the block that arrived at `now` with this excess delay.
    pub(super) fn block_deadline(&self, now: Time, excess_delay: Dur, block: &BlockRepr) -> Time {
        let behind = block.pkts() - 1 - block.index;
        let latest = now + self.packet_gap * u64::from(behind) + self.reordering_allowance();
        latest - excess_delay.min(self.reordering_allowance())
    }

    /// The excess delay up to which a packet is not presumed lost.
    pub(super) fn reordering_allowance(&self) -> Dur {
        let spread = [self.period, self.last_period].into_iter().flatten().map(|p| p.spread).max();
        let spread = spread.unwrap_or(Dur::ZERO);
        let least = if self.samples < SPREAD_SAMPLES_MIN { INITIAL_SPREAD } else { Dur::ZERO };
        spread.max(least) + spread / 8 + SLACK
    }

    /// Updates the packet gap. Only packets of one block are compared: a sender may be idle between
    /// blocks.
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
            // Limited, because a retransmission follows its block by a round trip.
            let most = (self.packet_gap * 2).max(SLACK);
            self.packet_gap = match self.packet_gap {
                Dur::ZERO => sample,
                packet_gap => (packet_gap * 7 + sample.min(most)) / 8,
            };
        }
    }
}

/// The spread is kept for one to two periods.
const PERIOD: Dur = Dur::from_ms(1000);
/// The limit of measured spread: the peer may send any timestamps.
const SPREAD_MAX: Dur = Dur::from_ms(1000);
const GAP_MAX: Dur = Dur::from_ms(100);
/// Packets before the spread is known, and its least value until then.
const SPREAD_SAMPLES_MIN: u32 = 64;
const INITIAL_SPREAD: Dur = Dur::from_ms(1);
/// The jitter of the receiver itself.
const SLACK: Dur = Dur::from_us(20);

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: BlockRepr = BlockRepr { index: 0, data: 8, parity: 2, scheme: 1 };

    /// The timing after packets with these numbers and microseconds of sending and arrival.
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
        // The receiver is stalled for 50 ms from 100 us on; then all packets arrive at once.
        let arrived = |i: u64| if i < 100 { i + 1000 } else { (i + 1000).max(51_100) };
        assert_eq!(timing((0..1000).map(|i| (i, i, arrived(i)))).reordering_allowance(), SLACK);
        // A queue grows on the path.
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
