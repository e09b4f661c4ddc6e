//! How many of its receive chunks a port gives to the kernel.

use spanwire_base::{Dur, Time};

/// The number of receive chunks that the kernel holds, in the fill ring and in the RX ring.
///
/// The kernel uses them in turn, so each received frame is written to the chunk that was used
/// longest ago. With all chunks of a large ring (16 MiB) that chunk is in no cache: on a veth pair
/// this costs a fifth of the rate. So the kernel gets few chunks, the most recently used ones, and
/// more as soon as it has used half of them between two looks at the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stock {
    /// Chunks that the kernel may hold, and all that there are.
    size: u32,
    most: u32,
    /// The most used at a time since `since`.
    peak: u32,
    since: Time,
}

impl Stock {
    /// Of `most` receive chunks.
    pub(super) fn new(most: u32) -> Self {
        Self { size: most.min(FIRST), most, peak: 0, since: Time::ZERO }
    }

    /// Receive chunks that the kernel does not get.
    pub(super) fn reserve(&self) -> u32 {
        self.most - self.size
    }

    /// Records that the kernel has used `used` of its chunks since it got them back.
    #[inline]
    pub(super) fn on_used(&mut self, now: Time, used: u32) {
        self.peak = self.peak.max(used);
        if used > self.size / 2 {
            // Exhausted: frames may have been dropped.
            let factor = if used >= self.size { 4 } else { 2 };
            self.size = self.size.saturating_mul(factor).min(self.most);
            (self.peak, self.since) = (used, now);
        } else if now.since(self.since) >= PERIOD {
            if self.peak < self.size / 4 {
                self.size = (self.size / 2).max(LEAST.min(self.most));
            }
            (self.peak, self.since) = (0, now);
        }
    }
}

/// Chunks at first: twice the default window of a queue pair, and as many as a network card has.
const FIRST: u32 = 512;
/// Chunks that the kernel has at least: more than the default window of a queue pair.
const LEAST: u32 = 256;
/// A stock of which less than a quarter was used for this time is halved. Hosts that were late once
/// are late again within seconds.
const PERIOD: Dur = Dur::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Time {
        Time::ZERO + Dur::from_secs(s)
    }

    #[test]
    fn on_used__grows_before_a_burst_that_doubles_exhausts_it() {
        let mut stock = Stock::new(4096);
        let mut burst = 16;
        while burst < 4096 {
            assert!(burst <= stock.size, "{burst} of {stock:?}");
            stock.on_used(at(0), burst);
            burst *= 2;
        }
        assert_eq!((stock.size, stock.reserve()), (4096, 0));
        stock.on_used(at(0), 4096);
        assert_eq!(stock.size, 4096, "there are no more");
    }

    #[test]
    fn on_used__an_exhausted_stock_grows_fast() {
        let mut stock = Stock::new(4096);
        stock.on_used(at(0), 512);
        assert_eq!(stock.size, 2048);
    }

    #[test]
    fn on_used__falls_while_little_is_used_and_not_below_the_least() {
        let mut stock = Stock::new(4096);
        stock.on_used(at(0), 512);
        let mut sizes = Vec::new();
        for s in 1..40 {
            stock.on_used(at(s), 60);
            sizes.push(stock.size);
        }
        sizes.dedup();
        assert_eq!(sizes, [2048, 1024, 512, 256]);
        // Less than a half is used, but more than a quarter now and then.
        let mut stock = Stock::new(4096);
        (0..40).for_each(|s| stock.on_used(at(s), if s % 4 == 0 { 200 } else { 8 }));
        assert_eq!(stock.size, 512);
    }

    #[test]
    fn new__a_small_ring_is_always_full() {
        let mut stock = Stock::new(16);
        assert_eq!(stock.reserve(), 0);
        (0..40).for_each(|s| stock.on_used(at(s), 0));
        assert_eq!(stock.reserve(), 0);
    }
}
