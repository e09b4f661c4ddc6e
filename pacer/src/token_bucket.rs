//! A token bucket rate limiter without a timer: the time at which the next packet may leave.

use spanwire_base::{Dur, Rate, Time};

/// The token bucket of one queue pair: a rate with a burst limit.
///
/// Tokens are kept as a time: a packet may leave from `next` on, and advances it by its
/// transmission time at the rate. After an idle period or a delay, at most the burst limit may
/// leave at once. So a core that was preempted for a second resumes with one burst.
///
/// Times are in picoseconds with 32 more bits. The fraction is carried from packet to packet, so
/// the rate is exact over any time, to one part in 2^32.
///
/// # Source
/// The caller counts bytes on the wire: preamble, frame check and gap included (24 bytes in
/// addition to the frame), as for an Ethernet link rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenBucket {
    /// The earliest time of the next packet, ps times 2^32.
    next: u128,
    /// The transmission time of a byte, ps times 2^32; 0 without a rate.
    per_byte: u128,
    /// The end of the requested gap.
    held_until: Time,
    burst_bytes: u32,
    catch_up_ps: u32,
    /// The longest delay that is caught up, ps times 2^32.
    depth: u128,
    /// A packet waits for `next`.
    is_awaited: bool,
    /// The longest time by which packets leave early to leave together, and that of 64 KiB if it is
    /// less.
    quantum_max: Dur,
    quantum: Dur,
    /// The quantum, while packets leave and none has been refused since; else zero.
    ahead: Dur,
}

impl TokenBucket {
    /// A bucket without a rate: a packet may leave at any time.
    ///
    /// After a pause, the packet that is due and a burst may leave at once. The burst limit is
    /// `burst_bytes` (at least 1), or the bytes of `catch_up` (at most 4 ms) at the rate if that is
    /// more. A worker that polls at intervals reaches a rate only if it may catch up on the packets
    /// that became due in between. At 400 Gbit/s these are 12,500 bytes in each slot of the wheel,
    /// many packets; at 1 Mbit/s there are none.
    #[must_use]
    pub fn new(burst_bytes: u32, catch_up: Dur) -> Self {
        let catch_up_ps = u32::try_from(catch_up.as_ps()).unwrap_or(u32::MAX).min(CATCH_UP_MAX_PS);
        let burst_bytes = burst_bytes.max(1);
        Self {
            next: 0,
            per_byte: 0,
            held_until: Time::ZERO,
            burst_bytes,
            catch_up_ps,
            depth: u128::from(catch_up_ps) << FRACTION_BITS,
            is_awaited: false,
            quantum_max: Dur::ZERO,
            quantum: Dur::ZERO,
            ahead: Dur::ZERO,
        }
    }

    /// Sets the quantum: once a packet may leave, those that may within the time of `quantum`, and
    /// of [`QUANTUM_BYTES`] at most, leave with it. A worker that sleeps between packets then wakes
    /// once for many. The rate stays the same; a queue of up to a quantum builds where the rate is
    /// that of the link. Zero, the default: each packet leaves at its time.
    ///
    /// # Source
    /// Linux' TCP sizes its paced segments so (`tcp_tso_autosize`): a millisecond of the rate, at
    /// most 64 KiB.
    pub fn set_quantum(&mut self, quantum: Dur) {
        self.quantum_max = quantum;
        self.limit_quantum();
    }

    fn limit_quantum(&mut self) {
        self.quantum = self.quantum_max;
        if self.per_byte > 0 && self.quantum_max > Dur::ZERO {
            self.quantum = self.quantum_max.min(self.time_for(QUANTUM_BYTES.into()));
        }
    }

    /// Changes the rate; `None` is unlimited. It applies at once: a remaining wait is scaled to the
    /// new rate, and accumulated burst bytes stay the same number of bytes. A change from or to
    /// unlimited discards both. True if it was another rate.
    pub fn set_rate(&mut self, now: Time, rate: Option<Rate>) -> bool {
        let new = rate.map_or(0, per_byte);
        if new == self.per_byte {
            return false;
        }
        let (old, depth) = (self.per_byte, self.depth);
        self.per_byte = new;
        self.set_depth();
        let now = fixed(now);
        self.next = match self.next.checked_sub(now) {
            // Without a rate there is neither a wait nor an accumulated burst.
            _ if old == 0 || new == 0 => now,
            Some(ahead) => now.saturating_add(scaled(ahead, new, old, Rounding::Up)),
            None => {
                let saved = (now - self.next).min(depth);
                now.saturating_sub(scaled(saved, new, old, Rounding::Down))
            }
        };
        self.limit_quantum();
        true
    }

    /// The earliest time at which a packet may leave, rounded up: late, never early.
    #[must_use]
    pub fn next(&self) -> Time {
        time_up(self.next).max(self.held_until)
    }

    /// A packet may leave now.
    #[must_use]
    pub fn is_due(&self, now: Time) -> bool {
        // By the rounded time, which saturates at the end of the range. A packet that waits for
        // that time is due then, so that callers do not poll for ever.
        self.held_until <= now && time_up(self.next) <= now + self.ahead
    }

    /// A packet waits for [`TokenBucket::next`]. If the caller is late, all packets that became due
    /// meanwhile may leave at once, those of 10 ms at most: the rate is kept on a host that lost
    /// its core.
    pub fn set_awaited(&mut self) {
        if !std::mem::replace(&mut self.is_awaited, true) {
            self.set_depth();
        }
        self.ahead = Dur::ZERO;
    }

    /// A packet has waited for [`TokenBucket::next`] since [`TokenBucket::set_idle`].
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    /// No packet waits, so time that passes is a pause and earns a burst at most.
    pub fn set_idle(&mut self) {
        if std::mem::take(&mut self.is_awaited) {
            self.set_depth();
        }
    }

    /// A packet of `wire_bytes` left.
    #[inline]
    pub fn on_sent(&mut self, now: Time, wire_bytes: u32) {
        self.ahead = self.quantum;
        let earliest = fixed(now).saturating_sub(self.depth);
        self.next = self.next.max(earliest).saturating_add(u128::from(wire_bytes) * self.per_byte);
    }

    /// The time that `wire_bytes` take at the rate, rounded down; zero without a rate.
    #[must_use]
    pub fn time_for(&self, wire_bytes: u64) -> Dur {
        let ps = (u128::from(wire_bytes).saturating_mul(self.per_byte)) >> FRACTION_BITS;
        Dur::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
    }

    /// Delays the next packet by at least `gap` after `now`, independently of the rate: for a
    /// window below one packet.
    pub fn hold(&mut self, now: Time, gap: Dur) {
        self.held_until = self.held_until.max(now + gap);
    }

    /// Rate or wait have changed.
    fn set_depth(&mut self) {
        let catch_up = u128::from(match self.is_awaited {
            true => LATENESS_MAX_PS,
            false => self.catch_up_ps.into(),
        }) << FRACTION_BITS;
        self.depth = (u128::from(self.burst_bytes) * self.per_byte).max(catch_up);
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rounding {
    Up,
    Down,
}

/// `time * new / old` of per-byte times, at most 2^75 each; saturates. If the product exceeds 128
/// bits, the ratio is shortened to 53 bits or more, rounded in the same direction.
fn scaled(time: u128, new: u128, old: u128, rounding: Rounding) -> u128 {
    let (whole, rest) = (time / old, time % old);
    let bits = |x: u128| u128::BITS - x.leading_zeros();
    let shift = (bits(rest) + bits(new)).saturating_sub(u128::BITS);
    let part = match rounding {
        Rounding::Down => rest * (new >> shift) / old.div_ceil(1 << shift),
        Rounding::Up => (rest * new.div_ceil(1 << shift)).div_ceil(old >> shift),
    };
    whole.saturating_mul(new).saturating_add(part)
}

/// The most bytes of a quantum ([`TokenBucket::set_quantum`]): the longest payload of a send with
/// segments.
pub const QUANTUM_BYTES: u32 = 1 << 16;

/// The longest time that a core is away, as measured on shared hosts.
const LATENESS_MAX: Dur = Dur::from_ms(10);
const LATENESS_MAX_PS: u64 = LATENESS_MAX.as_ps();
const FRACTION_BITS: u32 = 32;
const PS_PER_S: u128 = 1_000_000_000_000;
/// Below the range of the field, and longer than any catch-up that is not a burst.
const CATCH_UP_MAX_PS: u32 = 4_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at_ps(ps: u64) -> Time {
        Time::from_ps(ps)
    }

    /// 335.2 ns a packet.
    const LEN: u32 = 4190;

    /// 100 Gbit/s with a burst of `burst_ns` nanoseconds.
    fn bucket(burst_ns: u32) -> TokenBucket {
        let mut c = TokenBucket::new(burst_ns * 25 / 2, Dur::ZERO);
        c.set_rate(at_ps(1_000_000), Some(Rate::from_gbps(100)));
        c
    }

    #[test]
    fn on_sent__advances_by_the_transmission_time() {
        let mut c = bucket(700);
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
            let mut c = bucket(burst_ns);
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
    fn set_rate__applies_at_once() {
        let mut c = bucket(1);
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
        let mut c = bucket(700);
        c.hold(at_ps(2_000_000), Dur::from_us(125));
        assert_eq!(c.next(), at_ps(127_000_000));
        c.hold(at_ps(2_000_000), Dur::from_us(1));
        assert_eq!(c.next(), at_ps(127_000_000), "the longer one");
    }

    #[test]
    fn new__the_burst_limit_is_the_larger_of_bytes_and_time() {
        // 4 us at 400 Gbit/s are 200,000 bytes; at 1 Gbit/s they are 500.
        for (gbps, want) in [(400, 200_000_u64), (1, 3000)] {
            let mut c = TokenBucket::new(3000, Dur::from_us(4));
            c.set_rate(Time::ZERO, Some(Rate::from_gbps(gbps)));
            let (now, mut sent) = (Time::ZERO + Dur::from_ms(1), 0);
            while c.is_due(now) {
                c.on_sent(now, 500);
                sent += 500;
            }
            assert_eq!(sent, want + 500, "plus the packet that is due");
        }
    }

    #[test]
    fn set_rate__keeps_accumulated_burst_bytes() {
        let mut c = TokenBucket::new(100_000, Dur::ZERO);
        c.set_rate(Time::ZERO, Some(Rate::from_gbps(1)));
        // 8 us idle: 1000 bytes.
        let now = at_ps(8_000_000);
        c.set_rate(now, Some(Rate::from_gbps(400)));
        assert_eq!(now.since(c.next()), Dur::from_ns(20));
        c.set_rate(now, Some(Rate::from_gbps(1)));
        assert_eq!(now.since(c.next()), Dur::from_us(8));
    }

    #[test]
    fn set_rate__between_the_slowest_rates_no_wait_is_lost() {
        let mut c = TokenBucket::new(1, Dur::ZERO);
        c.set_rate(Time::ZERO, Some(Rate::from_bps(1)));
        c.on_sent(Time::ZERO, 9000);
        assert_eq!(c.next(), Time::ZERO + Dur::from_secs(72_000));
        c.set_rate(Time::ZERO, Some(Rate::from_bps(3)));
        let late = c.next().since(Time::ZERO + Dur::from_secs(24_000));
        assert!(late <= Dur::from_us(1) && c.next() >= Time::ZERO + Dur::from_secs(24_000));
        c.set_rate(Time::ZERO, Some(Rate::from_gbps(400)));
        assert_eq!(c.next().as_ps().div_ceil(1000), 180, "9000 bytes");
    }

    #[test]
    fn is_due__at_the_end_of_time() {
        let mut c = TokenBucket::new(1, Dur::ZERO);
        c.set_rate(Time::MAX, Some(Rate::from_bps(1)));
        for _ in 0..3 {
            assert!(c.is_due(Time::MAX));
            c.on_sent(Time::MAX, u32::MAX);
            assert_eq!(c.next(), Time::MAX);
        }
        c.hold(Time::MAX, Dur::MAX);
        assert!(c.is_due(Time::MAX));
        c.set_rate(Time::ZERO, Some(Rate::from_bps(u64::MAX)));
        c.set_rate(Time::ZERO, None);
        assert!(!c.is_due(Time::ZERO), "held");
    }

    #[test]
    fn hold__is_independent_of_the_rate() {
        let mut c = bucket(700);
        c.hold(at_ps(2_000_000), Dur::from_us(100));
        c.set_rate(at_ps(3_000_000), Some(Rate::from_gbps(400)));
        c.set_rate(at_ps(3_000_000), None);
        assert_eq!(c.next(), at_ps(102_000_000));
    }

    #[test]
    fn rates__are_exact_over_a_second_from_1_mbit_to_400_gbit() {
        for bps in [1_000_000, 3_333_333, 999_999_937, 25_000_000_000, 399_999_999_989] {
            let mut c = TokenBucket::new(1, Dur::ZERO);
            c.set_rate(Time::ZERO, Some(Rate::from_bps(bps)));
            let (mut sent, end) = (0_u64, Time::ZERO + Dur::from_secs(1));
            let len = if bps > 1_000_000_000 { 65_536 } else { 1_538 };
            while c.next() < end {
                c.on_sent(c.next(), len);
                sent += u64::from(len);
            }
            // The first packet leaves at once: at most one more than the rate.
            let want = bps / 8;
            assert!(sent >= want && sent - want <= u64::from(len), "{bps}: {sent}");
        }
    }

    #[test]
    fn set_quantum__packets_leave_together_at_the_same_rate() {
        for (rate, quantum, together) in [
            (Rate::from_bps(100_000_000), Dur::from_ms(1), 12),
            (Rate::from_gbps(10), Dur::from_ms(1), 65),
            (Rate::from_bps(100_000_000), Dur::from_us(99), 1),
            (Rate::from_bps(100_000_000), Dur::ZERO, 1),
        ] {
            let mut c = TokenBucket::new(1, Dur::ZERO);
            c.set_quantum(quantum);
            c.set_rate(Time::ZERO, Some(rate));
            let (mut now, mut sent, mut wakes) = (Time::ZERO + Dur::from_secs(1), 0_u64, 0_u64);
            let end = now + Dur::from_ms(100);
            while now < end {
                wakes += 1;
                while c.is_due(now) {
                    c.on_sent(now, 1000);
                    sent += 1;
                }
                c.set_awaited();
                assert!(c.next() > now, "a packet that was refused waits");
                now = c.next();
            }
            let each = sent.div_ceil(wakes);
            assert!((together..=together + 2).contains(&each), "{rate:?} {quantum:?}: {each}");
            let expected = rate.as_bps() / 80_000;
            assert!((expected..=expected + together + 2).contains(&sent), "{rate:?}: {sent}");
        }
    }

    #[test]
    fn set_quantum__a_hold_is_kept() {
        let mut c = TokenBucket::new(1, Dur::ZERO);
        c.set_quantum(Dur::from_ms(1));
        c.set_rate(Time::ZERO, Some(Rate::from_bps(100_000_000)));
        let now = Time::ZERO + Dur::from_secs(1);
        c.on_sent(now, 1000);
        assert!(c.is_due(now));
        c.hold(now, Dur::from_us(10));
        assert!(!c.is_due(now) && c.is_due(now + Dur::from_us(10)));
    }

    proptest! {
        /// Compares with a token bucket in whole numbers: one token is a bit a second in a
        /// picosecond, 8 * 10^12 tokens are a byte. The bucket fills at the rate, holds `burst`,
        /// and goes below zero by the packet that is due. No interval may see more bytes leave,
        /// however time and the rate change. Rounding the time of a byte loses at most a packet.
        #[test]
        fn bursts__match_a_token_bucket(
            steps in proptest::collection::vec(
                (0..40_u32, 0..u64::MAX, 1_000_000..400_000_000_000_u64, 64..9000_u32),
                1..300,
            ),
            burst in 1..100_000_u32,
            catch_up_ns in 0..5_000_u64,
        ) {
            const BYTE: i128 = 8_000_000_000_000;
            let mut c = TokenBucket::new(burst, Dur::from_ns(catch_up_ns));
            let mut now = Time::ZERO + Dur::from_secs(1);
            let mut bps = 1_000_000_u64;
            c.set_rate(Time::ZERO, Some(Rate::from_bps(bps)));
            let depth = |bps: u64| {
                (i128::from(burst) * BYTE).max(i128::from(catch_up_ns) * 1000 * i128::from(bps))
            };
            let mut tokens = depth(bps);
            for (shift, random, new_bps, len) in steps {
                // Of every order of magnitude up to a second.
                let wait = Dur::from_ps(random.checked_shr(24 + shift).unwrap_or(0));
                now += wait;
                let gained = i128::from(wait.as_ps()) * i128::from(bps);
                tokens = (tokens + gained).min(depth(bps));
                c.set_rate(now, Some(Rate::from_bps(new_bps)));
                bps = new_bps;
                tokens = tokens.min(depth(bps));
                while c.is_due(now) {
                    c.on_sent(now, len);
                    tokens -= i128::from(len) * BYTE;
                    // Rounded by less than a thousandth of a byte.
                    prop_assert!(tokens >= -i128::from(len) * BYTE - BYTE / 1000, "{tokens}");
                }
                // No needless delay either: the remaining tokens are less than a packet.
                prop_assert!(tokens < BYTE / 1000, "{tokens} at {bps}");
            }
        }
    }
}
