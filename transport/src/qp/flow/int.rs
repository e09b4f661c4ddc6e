//! INT records as congestion control receives them: counters of compact ones are unwrapped.

use spanwire_base::{Rate, Time};
use spanwire_cc::Hop;
use spanwire_wire::{INT_MAX_HOPS, IntCompactHop, IntFormat, IntHop, IntRecords};

/// As many records as an ACK has at most. Those beyond its number have no rate.
pub(crate) type Records = [IntHop; INT_MAX_HOPS as usize];

/// Counters of the hops in the previous ACK, unwrapped to 64 bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unwrapped {
    /// When that ACK arrived.
    at: Time,
    /// Its hops; 0 before the first ACK.
    count: usize,
    hops: [Counters; INT_MAX_HOPS as usize],
}

/// The counters of a hop, in the units of its records. The lowest 20 bits are those of the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counters {
    time: u64,
    tx: u64,
}

/// The records of an ACK that arrived at `now`, with the counters of `unwrapped` if they are
/// compact. False if no difference from earlier ones is valid.
pub(crate) fn records(
    now: Time,
    int: IntRecords<'_>,
    unwrapped: &mut Option<Box<Unwrapped>>,
) -> (Records, bool) {
    let mut records = Records::default();
    let continues = match int.format() {
        IntFormat::Full => {
            records.iter_mut().zip(int.hops()).for_each(|(place, hop)| *place = hop);
            true
        }
        IntFormat::Compact => unwrapped.get_or_insert_default().unwrap(now, int, &mut records),
    };
    (records, continues)
}

/// The records that have a link rate, and their number. Without one there is no utilisation.
pub(crate) fn hops(records: &Records) -> ([Hop; INT_MAX_HOPS as usize], usize) {
    let none = Hop { at: Time::ZERO, tx_bytes: 0, queue_bytes: 0, rate: Rate::from_bps(1) };
    let mut hops = [none; INT_MAX_HOPS as usize];
    let mut count = 0;
    for (place, hop) in hops.iter_mut().zip(records.iter().filter(|hop| hop.link_rate_mbps > 0)) {
        *place = Hop {
            at: Time::from_ps(hop.time_ps),
            tx_bytes: hop.tx_bytes,
            queue_bytes: hop.queue_bytes.into(),
            rate: Rate::from_bps(u64::from(hop.link_rate_mbps) * 1_000_000),
        };
        count += 1;
    }
    (hops, count)
}

impl Unwrapped {
    /// Unwraps the compact records `int` of an ACK that arrived at `now`, into the first of `out`.
    /// True if they continue the counters of the previous ACK; if false, no difference from those
    /// is valid.
    ///
    /// Records are ambiguous if their counters may have wrapped between two ACKs. Records of a
    /// forger give any differences, as full ones do.
    pub(super) fn unwrap(&mut self, now: Time, int: IntRecords<'_>, out: &mut Records) -> bool {
        let elapsed = now.since(self.at).as_ps() / IntCompactHop::TIME_PS;
        let mut next = [Counters::default(); INT_MAX_HOPS as usize];
        let mut hops = next.iter_mut().zip(&self.hops).zip(int.compact_hops());
        let continues = self.count == int.len()
            && elapsed <= WRAP / 2
            && hops.all(|((next, last), record)| {
                last.advance(&record, elapsed).map(|counters| *next = counters).is_some()
            });
        if !continues {
            let first = int.compact_hops().map(|record| Counters::first(&record));
            next.iter_mut().zip(first).for_each(|(next, first)| *next = first);
        }
        for ((place, counters), record) in out.iter_mut().zip(&next).zip(int.compact_hops()) {
            *place = IntHop {
                time_ps: counters.time * IntCompactHop::TIME_PS,
                tx_bytes: counters.tx * u64::from(IntCompactHop::BYTES),
                queue_bytes: u32::from(record.queue) * IntCompactHop::BYTES,
                link_rate_mbps: record.link_rate_mbps(),
            };
        }
        *self = Self { at: now, count: int.len(), hops: next };
        continues
    }

    /// The next records are like the first ones.
    pub(super) fn restart(&mut self) {
        self.count = 0;
    }
}

impl Counters {
    /// The counters of a record without a previous one.
    fn first(record: &IntCompactHop) -> Self {
        Self { time: ORIGIN + u64::from(record.time), tx: ORIGIN + u64::from(record.tx) }
    }

    /// The counters of the next record, whose ACK arrived `elapsed` units of time after that of
    /// this one. `None` if they are ambiguous.
    fn advance(&self, record: &IntCompactHop, elapsed: u64) -> Option<Self> {
        // Between two records passes as much time as between their ACKs, except for the difference
        // of their delays. The record may be older than this one.
        let time = closest(record.time, self.time.checked_add(elapsed)?)?;
        let sent = time.abs_diff(self.time) * u64::from(record.link_rate_mbps()) / MBPS_UNITS;
        if sent > WRAP / 5 * 4 {
            return None;
        }
        let expected = match time >= self.time {
            true => self.tx.checked_add(sent / 2),
            false => self.tx.checked_sub(sent / 2),
        };
        Some(Self { time, tx: closest(record.tx, expected?)? })
    }
}

/// The counter closest to `expected` of which `wrapped` is the lowest part.
fn closest(wrapped: u32, expected: u64) -> Option<u64> {
    // 2^64 is a multiple of the wrap.
    let ahead = u64::from(wrapped).wrapping_sub(expected) % WRAP;
    let counter = match ahead < WRAP / 2 {
        true => expected.checked_add(ahead),
        false => expected.checked_sub(WRAP - ahead),
    };
    counter.filter(|counter| (WRAP..END).contains(counter))
}

const WRAP: u64 = IntCompactHop::WRAP as u64;
/// Counters start here, a multiple of the wrap, because a record may be older than the first one.
const ORIGIN: u64 = 1 << 40;
/// Counters end here, after 104 days: in picoseconds they have 63 bits.
const END: u64 = 1 << 49;
/// The rate in Mbit/s that sends one unit of bytes in one unit of time.
const MBPS_UNITS: u64 = IntCompactHop::BYTES as u64 * 8_000_000 / IntCompactHop::TIME_PS;

#[cfg(test)]
mod tests;
