//! The MAC address table: learning, ageing, lookup.

use crate::parse::{mac_bits, mix};
use spanwire_base::{Dur, Time, usize_from};
use spanwire_wire::MacAddr;

/// Learned addresses, bounded and with ageing.
///
/// The table is 4-way set associative: a hash of the address selects the set. If the set is full,
/// the least recently seen address is evicted, and its frames are flooded until it is learned
/// again.
#[derive(Clone, Debug)]
pub(crate) struct MacTable {
    /// Sets of [`SET_SIZE`], a power of two of them.
    entries: Vec<Option<Entry>>,
    ageing: Dur,
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    mac: MacAddr,
    port: u8,
    seen: Time,
}

/// The result of learning an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Learned {
    /// It was known at this port, or is new.
    Unchanged,
    /// It was known at another port.
    Moved,
    /// Another address that had not aged out was evicted.
    Evicted,
}

impl MacTable {
    /// A table for about `max_macs` addresses, rounded up to a power of two.
    pub(crate) fn new(max_macs: u32, ageing: Dur, seed: u64) -> Self {
        let places = usize_from(u64::from(max_macs)).next_power_of_two().max(SET_SIZE);
        Self { entries: vec![None; places], ageing, seed }
    }

    /// Records that `mac` is at `port`.
    pub(crate) fn learn(&mut self, now: Time, mac: MacAddr, port: u8) -> Learned {
        let ageing = self.ageing;
        let is_old = |e: &Entry| now.since(e.seen) > ageing;
        let set = self.set_mut(mac);
        let entry = Some(Entry { mac, port, seen: now });
        if let Some(known) = set.iter_mut().flatten().find(|e| e.mac == mac) {
            let outcome = if known.port == port { Learned::Unchanged } else { Learned::Moved };
            *known = Entry { mac, port, seen: now };
            return outcome;
        }
        // Empty places are older than any other.
        let oldest = set.iter_mut().min_by_key(|e| e.map(|e| e.seen)).expect("a set has places");
        let evicts = oldest.is_some_and(|e| !is_old(&e));
        *oldest = entry;
        if evicts { Learned::Evicted } else { Learned::Unchanged }
    }

    /// The port of `mac`, if it has sent a frame within the ageing time.
    pub(crate) fn lookup(&self, now: Time, mac: MacAddr) -> Option<u8> {
        let at = self.set_at(mac);
        let known = self.entries[at..at + SET_SIZE].iter().flatten().find(|e| e.mac == mac)?;
        (now.since(known.seen) <= self.ageing).then_some(known.port)
    }

    fn set_mut(&mut self, mac: MacAddr) -> &mut [Option<Entry>] {
        let at = self.set_at(mac);
        &mut self.entries[at..at + SET_SIZE]
    }

    fn set_at(&self, mac: MacAddr) -> usize {
        let mask = self.entries.len() / SET_SIZE - 1;
        (usize_from(mix(self.seed ^ mac_bits(mac))) & mask) * SET_SIZE
    }
}

const SET_SIZE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::mac;

    fn table(max: u32) -> MacTable {
        MacTable::new(max, Dur::from_secs(300), 1)
    }

    #[test]
    fn learn__then_lookup() {
        let mut t = table(64);
        let at = Time::from_ns(1);
        assert_eq!(t.lookup(at, mac(1)), None);
        assert_eq!(t.learn(at, mac(1), 5), Learned::Unchanged);
        assert_eq!(t.learn(at, mac(2), 6), Learned::Unchanged);
        assert_eq!((t.lookup(at, mac(1)), t.lookup(at, mac(2))), (Some(5), Some(6)));
        assert_eq!(t.learn(at, mac(1), 7), Learned::Moved);
        assert_eq!(t.lookup(at, mac(1)), Some(7));
    }

    #[test]
    fn lookup__ages_out_silent_addresses() {
        let mut t = table(64);
        t.learn(Time::ZERO, mac(1), 5);
        let edge = Time::ZERO + Dur::from_secs(300);
        assert_eq!(t.lookup(edge, mac(1)), Some(5));
        assert_eq!(t.lookup(edge + Dur::from_ps(1), mac(1)), None);
    }

    #[test]
    fn learn__is_bounded_and_evicts_the_oldest() {
        let mut t = table(4);
        for n in 0..4 {
            assert_eq!(t.learn(Time::from_ns(u64::from(n)), mac(n), n), Learned::Unchanged);
        }
        assert_eq!(t.learn(Time::from_ns(9), mac(0), 0), Learned::Unchanged, "seen again");
        assert_eq!(t.learn(Time::from_ns(10), mac(9), 9), Learned::Evicted);
        let known = |n| t.lookup(Time::from_ns(10), mac(n));
        assert_eq!([0, 1, 2, 3, 9].map(known), [Some(0), None, Some(2), Some(3), Some(9)]);
        let late = Time::from_ns(10) + Dur::from_secs(301);
        assert_eq!(
            t.learn(late, mac(10), 1),
            Learned::Unchanged,
            "replacing an aged address is no eviction"
        );
    }
}
