//! The queue pairs that send the packets of a switch.
//!
//! A data packet carries the QPN of its receiver. Feedback goes to its sender, whose QPN the switch
//! learns from SR data that carry it, which is kept with their flow; or from any packet the other
//! way, which is addressed to it and has the same UDP source port, since both ends of a connection
//! use the same; or from a simulation.

use super::passing::{FlowEnds, Passing, fold, pair_hash};
use spanwire_base::usize_from;
use spanwire_wire::Qpn;

/// The senders' QPNs by flow, in sets of [`SET_SIZE`], each a cache line. If a set is full, the one
/// that is least in use goes, and is counted.
#[derive(Debug)]
pub(crate) struct Qpns {
    /// A power of two.
    sets: Vec<Set>,
    evicted: u64,
}

/// Flows and QPNs, those in use first: 39 bits of the flow's hash, a bit that is set if the entry
/// is from a simulation, and the QPN. 0: the place is free.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Set([u64; SET_SIZE]);

impl Qpns {
    /// Places for `most` flows, rounded up to a power of two, and at least one set.
    pub(crate) fn new(most: u32) -> Self {
        let places = usize_from(most.into()).next_power_of_two().max(SET_SIZE);
        Self { sets: vec![Set::default(); places / SET_SIZE], evicted: 0 }
    }

    /// Entries that were forgotten for lack of room.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Learns from a packet.
    #[inline]
    pub(crate) fn learn(&mut self, passing: &Passing) {
        // If it names its sender, the packets the other way name theirs too.
        if passing.source_qpn.is_none() {
            let ends = &passing.ends;
            let other_way = by_port(pair_hash(ends.dest, ends.source), ends.source_port);
            self.set(other_way, ends.dest_qpn, 0);
        }
    }

    /// Learns that packets from `source` to the queue pair `dest_qpn` at `dest` come from `qpn`.
    /// Addresses of IPv4 are in the upper 32 bits. It goes only for another that is set so.
    pub(crate) fn set_sender(&mut self, source: u128, dest: u128, dest_qpn: Qpn, qpn: Qpn) {
        self.set(by_qpn(pair_hash(source, dest), dest_qpn), qpn, FIXED);
    }

    /// The sender's QPN of a flow, if known.
    pub(crate) fn find(&self, ends: &FlowEnds) -> Option<Qpn> {
        let pair = pair_hash(ends.source, ends.dest);
        self.get(by_qpn(pair, ends.dest_qpn)).or_else(|| self.get(by_port(pair, ends.source_port)))
    }

    fn get(&self, key: u64) -> Option<Qpn> {
        let set = &self.sets[self.index(key)].0;
        let entry = set.iter().find(|entry| is_of(**entry, key))?;
        Some(Qpn::new(u32::try_from(entry & QPN).expect("24 bits")))
    }

    #[inline]
    fn set(&mut self, key: u64, qpn: Qpn, fixed: u64) {
        let index = self.index(key);
        let set = &mut self.sets[index].0;
        let known = set.iter().position(|entry| is_of(*entry, key));
        let Some(at) = known else { return self.insert(index, key, qpn, fixed) };
        set[at] = hash_of(key) | set[at] & FIXED | fixed | u64::from(qpn.get());
        // One that is in use comes to the front.
        if at > 0 {
            set.swap(at - 1, at);
        }
    }

    fn insert(&mut self, index: usize, key: u64, qpn: Qpn, fixed: u64) {
        let set = &mut self.sets[index].0;
        let free = set.iter().position(|entry| *entry == 0);
        let oldest = || set.iter().rposition(|entry| entry & FIXED == 0);
        let at = free.or_else(oldest).unwrap_or(SET_SIZE - 1);
        self.evicted += u64::from(set[at] != 0);
        set.copy_within(..at, 1);
        set[0] = hash_of(key) | fixed | u64::from(qpn.get());
    }

    #[inline]
    fn index(&self, key: u64) -> usize {
        usize_from(key) & (self.sets.len() - 1)
    }
}

/// The upper bits of a key, never 0.
#[inline]
fn hash_of(key: u64) -> u64 {
    (key & HASH).max(FIXED << 1)
}

#[inline]
fn is_of(entry: u64, key: u64) -> bool {
    entry & HASH == hash_of(key)
}

/// Keys of the two kinds of knowledge, by the hash of source and destination.
#[inline]
fn by_qpn(pair: u64, dest_qpn: Qpn) -> u64 {
    fold(pair ^ u64::from(dest_qpn.get()), QPN_SEED)
}

#[inline]
fn by_port(pair: u64, port: u16) -> u64 {
    fold(pair ^ u64::from(port), PORT_SEED)
}

/// Any odd words: keys of different kinds differ.
const QPN_SEED: u64 = 0xa076_1d64_78bd_642f;
const PORT_SEED: u64 = 0xe703_7ed1_a0b4_28db;

/// The QPN in an entry.
const QPN: u64 = 0xff_ffff;
/// The bit of what is from a simulation.
const FIXED: u64 = 1 << 24;
/// The hash in an entry.
const HASH: u64 = !(QPN | FIXED);
/// Entries of one set.
const SET_SIZE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::testing::passing;

    /// A data packet of the connection between queue pairs 5 (of host 1) and 6 (of host 2), and one
    /// the other way.
    fn both_ways() -> [Passing; 2] {
        let mut there = passing(1, 2, 1000);
        let mut back = passing(2, 1, 60);
        (there.ends.dest_qpn, back.ends.dest_qpn) = (Qpn::new(6), Qpn::new(5));
        [there, back]
    }

    #[test]
    fn find__learns_from_packets_the_other_way() {
        let [there, back] = both_ways();
        let mut qpns = Qpns::new(64);
        qpns.learn(&there);
        assert_eq!(qpns.find(&there.ends), None);
        qpns.learn(&back);
        assert_eq!(qpns.find(&there.ends), Some(Qpn::new(5)));
        assert_eq!(qpns.find(&back.ends), Some(Qpn::new(6)));
        // Another connection between the same hosts.
        let mut other = there;
        other.ends.source_port ^= 1;
        assert_eq!(qpns.find(&other.ends), None);
    }

    #[test]
    fn find__prefers_what_names_the_queue_pair() {
        let [there, back] = both_ways();
        let mut qpns = Qpns::new(64);
        let ends = &there.ends;
        qpns.set_sender(ends.source, ends.dest, ends.dest_qpn, Qpn::new(5));
        assert_eq!(qpns.find(&there.ends), Some(Qpn::new(5)));
        // Two connections share a UDP port: the last packet the other way is of the second.
        let mut second = back;
        second.ends.dest_qpn = Qpn::new(50);
        qpns.learn(&second);
        assert_eq!(qpns.find(&there.ends), Some(Qpn::new(5)));
        // Packets that name their sender teach nothing.
        qpns.learn(&Passing { source_qpn: Some(Qpn::new(5)), ..there });
        assert_eq!(qpns.find(&back.ends), None);
    }

    #[test]
    fn learn__the_oldest_goes_but_not_those_of_a_simulation() {
        let mut qpns = Qpns::new(8);
        let fixed = passing(200, 2, 0).ends;
        qpns.set_sender(fixed.source, fixed.dest, fixed.dest_qpn, Qpn::new(9));
        for n in 0..100 {
            qpns.learn(&passing(n, 2, 0));
        }
        assert_eq!(qpns.find(&fixed), Some(Qpn::new(9)));
        assert_eq!(qpns.evicted(), 100 + 1 - 8);
        let known = (0..100).filter(|n| qpns.find(&passing(2, *n, 0).ends).is_some());
        assert_eq!(known.collect::<Vec<_>>(), (93..100).collect::<Vec<_>>(), "the newest");
    }
}
