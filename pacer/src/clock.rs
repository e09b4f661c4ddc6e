//! A rate limiter without a timer: the time from which on the next packet may leave.

use spanwire_base::{Dur, Rate, Time};

/// One queue pair's rate, with a bound on bursts.
///
/// A token bucket by its time: a packet may leave from `next` on and moves it by what the packet
/// takes at the rate. Who was idle, or late, may catch up with as much as the bound on bursts and
/// no more, whatever time does: a core that was taken away for a second comes back to one burst.
///
/// Times are in picoseconds with 32 more bits: the fraction is carried from packet to packet, so
/// the rate is exact over any time, to one part in 2^32.
///
/// # Source
/// Bytes counted by the caller are those on the wire: preamble, frame check and gap included
/// (24 bytes beside the frame), as a rate of Ethernet is understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenClock {
    /// The next packet's time, ps times 2^32.
    next: u128,
    /// What a byte takes, ps times 2^32; 0 without a rate.
    per_byte: u128,
    burst_bytes: u32,
}

impl TokenClock {
    /// Without a rate: a packet may leave at any time. `burst_bytes` (at least 1) is the bound on
    /// what may leave at once after a pause, beside the packet that is due.
    #[must_use]
    pub fn new(burst_bytes: u32) -> Self {
        Self { next: 0, per_byte: 0, burst_bytes: burst_bytes.max(1) }
    }

    /// Changes the rate; `None` is none. It counts at once: what was to be waited for at the old
    /// rate is waited for in proportion.
    pub fn set_rate(&mut self, now: Time, rate: Option<Rate>) {
        let new = rate.map_or(0, per_byte);
        let old = std::mem::replace(&mut self.per_byte, new);
        if new == old {
            return;
        }
        let now = fixed(now);
        self.next = match self.next.checked_sub(now) {
            // Nothing is saved up without a rate, nor waited for.
            _ if old == 0 || new == 0 => now,
            Some(ahead) => now.saturating_add(mul_div(ahead, new, old)),
            None => self.next,
        };
    }

    /// The earliest time at which a packet may leave, rounded up: late, never early.
    #[must_use]
    pub fn next(&self) -> Time {
        time_up(self.next)
    }

    /// A packet may leave now.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        self.next <= fixed(now)
    }

    /// A packet of `wire_bytes` left.
    pub fn on_sent(&mut self, now: Time, wire_bytes: u32) {
        let burst = u128::from(self.burst_bytes) * self.per_byte;
        let earliest = fixed(now).saturating_sub(burst);
        self.next = self.next.max(earliest).saturating_add(u128::from(wire_bytes) * self.per_byte);
    }

    /// Holds the next packet back for at least `gap` after `now`: a window below one packet.
    pub fn hold(&mut self, now: Time, gap: Dur) {
        self.next = self.next.max(fixed(now) + (u128::from(gap.as_ps()) << FRACTION_BITS));
    }
}

fn fixed(t: Time) -> u128 {
    u128::from(t.as_ps()) << FRACTION_BITS
}

fn time_up(fixed: u128) -> Time {
    let ps = fixed.div_ceil(1 << FRACTION_BITS);
    Time::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
}

/// Rounded up: never faster than the rate.
fn per_byte(rate: Rate) -> u128 {
    ((8 * PS_PER_S) << FRACTION_BITS).div_ceil(u128::from(rate.as_bps()))
}

/// `a * b / c` without overflow for what occurs here.
fn mul_div(a: u128, b: u128, c: u128) -> u128 {
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => (a / c).saturating_mul(b),
    }
}

const FRACTION_BITS: u32 = 32;
const PS_PER_S: u128 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at_ps(ps: u64) -> Time {
        Time::from_ps(ps)
    }

    /// 335.2 ns a packet.
    const LEN: u32 = 4190;

    /// 100 Gbit/s with a burst of so many nanoseconds.
    fn clock(burst_ns: u32) -> TokenClock {
        let mut c = TokenClock::new(burst_ns * 25 / 2);
        c.set_rate(at_ps(1_000_000), Some(Rate::from_gbps(100)));
        c
    }

    #[test]
    fn on_sent__a_packet_takes_its_time() {
        let mut c = clock(700);
        let mut times = Vec::new();
        for _ in 0..3 {
            let now = c.next();
            assert!(c.is_due(now) && !c.is_due(Time::from_ps(now.as_ps() - 1)));
            c.on_sent(now, LEN);
            times.push(c.next().as_ps());
        }
        assert_eq!(times, [1_335_200, 1_670_400, 2_005_600]);
    }

    #[test]
    fn on_sent__after_a_pause_no_more_than_the_burst() {
        for (burst_ns, want) in
            [(700, [9_635_200, 9_970_400, 10_305_600]), (600, [9_735_200, 10_070_400, 0])]
        {
            let mut c = clock(burst_ns);
            let now = at_ps(10_000_000);
            let mut times = Vec::new();
            while c.is_due(now) {
                c.on_sent(now, LEN);
                times.push(c.next().as_ps());
            }
            times.resize(3, 0);
            assert_eq!(times, want, "{burst_ns}");
        }
    }

    #[test]
    fn set_rate__counts_at_once() {
        let mut c = clock(1);
        c.on_sent(at_ps(1_000_000), LEN);
        c.set_rate(at_ps(1_000_000), Some(Rate::from_gbps(50)));
        assert_eq!(c.next(), at_ps(1_670_400), "twice the wait");
        c.set_rate(at_ps(1_335_200), Some(Rate::from_gbps(100)));
        assert_eq!(c.next(), at_ps(1_502_800), "half of what was left");
        c.set_rate(at_ps(1_335_200), None);
        assert!(c.is_due(at_ps(1_335_200)));
        c.set_rate(at_ps(5_000_000), Some(Rate::from_gbps(1)));
        assert_eq!(c.next(), at_ps(5_000_000));
    }

    #[test]
    fn hold__keeps_a_gap() {
        let mut c = clock(700);
        c.hold(at_ps(2_000_000), Dur::from_us(125));
        assert_eq!(c.next(), at_ps(127_000_000));
        c.hold(at_ps(2_000_000), Dur::from_us(1));
        assert_eq!(c.next(), at_ps(127_000_000), "the longer one");
    }

    #[test]
    fn rates__are_exact_over_a_second_from_1_mbit_to_400_gbit() {
        for bps in [1_000_000, 3_333_333, 999_999_937, 25_000_000_000, 399_999_999_989] {
            let mut c = TokenClock::new(1);
            c.set_rate(Time::ZERO, Some(Rate::from_bps(bps)));
            let (mut sent, end) = (0_u64, Time::ZERO + Dur::from_secs(1));
            let len = if bps > 1_000_000_000 { 65_536 } else { 1_538 };
            while c.next() < end {
                c.on_sent(c.next(), len);
                sent += u64::from(len);
            }
            // The first packet leaves at once: one more than the rate at the most.
            let want = bps / 8;
            assert!(sent >= want && sent - want <= u64::from(len), "{bps}: {sent}");
        }
    }

    proptest! {
        /// In no stretch of time does more leave than rate and burst allow, whatever time does and
        /// however often the rate changes to another below a bound.
        #[test]
        fn bursts__are_bounded(
            steps in proptest::collection::vec(
                (0..5_000_000_u64, 1..400_u64, 64..9000_u32),
                1..300,
            ),
            burst in 1..100_000_u32,
        ) {
            let mut c = TokenClock::new(burst);
            let mut now = Time::ZERO + Dur::from_ms(1);
            c.set_rate(now, Some(Rate::from_gbps(400)));
            let begin = now;
            let mut sent = 0_u64;
            for (wait, gbps, len) in steps {
                now += Dur::from_ps(wait);
                c.set_rate(now, Some(Rate::from_gbps(gbps)));
                while c.is_due(now) {
                    c.on_sent(now, len);
                    sent += u64::from(len);
                }
                let line = Rate::from_gbps(400).bytes_in(now.since(begin));
                // One packet more than the bucket holds, as a bucket in packets releases.
                prop_assert!(sent <= line + u64::from(burst) + 2 * 9000, "{sent} {line}");
            }
        }
    }
}
