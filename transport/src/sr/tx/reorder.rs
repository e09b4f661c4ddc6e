//! How much later than others a packet may come before it counts as lost.

use spanwire_base::Dur;

/// How far packets overtake each other: a number of quarters of the smallest round trip, or what
/// was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReorderWindow {
    pub(super) quarters: u64,
    /// A quarter more than the most by which a packet was late that others had overtaken.
    seen: Dur,
    /// Recoveries without a needless retransmission that are left before it shrinks.
    persist: u32,
}

impl Default for ReorderWindow {
    fn default() -> Self {
        Self { quarters: 1, seen: Dur::ZERO, persist: 0 }
    }
}

impl ReorderWindow {
    /// After how long more than a round trip a packet is lost.
    pub(crate) fn window(self, smallest: Dur, smoothed: Dur) -> Dur {
        let guess = (smallest * self.quarters / 4).min(smoothed);
        guess.max(self.seen.min(SEEN_MAX.max(smoothed * 2)))
    }

    /// A packet that others had overtaken came `by` later than the fastest.
    pub(crate) fn saw(&mut self, by: Dur) {
        self.seen = self.seen.max(by + by / 4);
        self.persist = PERSIST;
    }

    /// A retransmission was needless.
    pub(crate) fn widen(&mut self) {
        self.quarters = (self.quarters + 1).min(QUARTERS_MAX);
        self.persist = PERSIST;
    }

    /// A recovery is over.
    pub(crate) fn recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            (self.quarters, self.seen) = (1, Dur::ZERO);
        }
    }
}

/// However late a packet was: what is lost must be found before the timeout, which a path of
/// some round trips has anyway, and one of some microseconds has at its floor.
const SEEN_MAX: Dur = Dur::from_ms(4);
/// Four round trips: beyond the smoothed one the window does not go anyway.
const QUARTERS_MAX: u64 = 16;
/// Recoveries that a wider window outlives (RFC 8985 6.2).
const PERSIST: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window__is_a_quarter_and_grows_with_what_was_seen() {
        let us = Dur::from_us;
        let mut w = ReorderWindow::default();
        assert_eq!(w.window(us(100), us(120)), us(25));
        for _ in 0..20 {
            w.widen();
        }
        assert_eq!(w.window(us(100), us(120)), us(120), "a guess is at most the round trip");
        w.saw(us(200));
        assert_eq!(w.window(us(100), us(120)), us(250));
        w.saw(us(1_000_000));
        assert_eq!(w.window(us(100), us(120)), us(4000));
        assert_eq!(w.window(us(100), us(40_000)), us(80_000));
        for _ in 0..16 {
            w.recovered();
        }
        assert_eq!(w.window(us(100), us(120)), us(25));
    }
}
