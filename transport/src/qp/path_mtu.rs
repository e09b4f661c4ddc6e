//! Path MTU discovery by loss (RFC 8899), for a port that can send a packet as fragments.
//!
//! A hop that drops long packets is a *black hole* (RFC 8899 4.3). Packets that have a PSN cannot
//! be divided, so they are sent as fragments, and whether fragments are acknowledged where whole
//! packets are not distinguishes a black hole from loss and from a dead path. SR's new segments
//! are then shorter. A longer packet is sent whole from time to time, to find the largest length
//! that the path carries.
//!
//! Nothing is inlined: a queue pair over another port has no [`PathMtu`], and its path would save
//! registers for these functions.

use crate::counters::Counters;
use spanwire_base::{Dur, Time};

/// The path MTU of a queue pair, in payload bytes.
#[derive(Debug)]
pub(crate) struct PathMtu {
    /// The payload of a full packet, as agreed with the peer.
    full: u32,
    /// The payload of the longest packet that is sent whole.
    whole: u32,
    /// Segments may have any length (SR).
    divides: bool,
    /// Packets in flight at timeouts that were sent whole, since a long one arrived.
    lost: u64,
    /// Acknowledgements of fragments since then.
    rescues: u32,
    /// Long packets are sent as fragments until one is acknowledged, or until the next timeout.
    in_fragments: bool,
    /// The first packet sent as fragments meanwhile.
    fragmented: Option<u64>,
    /// All packets from here on were never sent as fragments.
    never_fragmented: u64,
    /// After fragments were acknowledged, the first long one of those.
    witness: Option<u64>,
    /// The peer's count of received packets, and what was sent since beside long whole packets.
    received: Option<u32>,
    others: u32,
    /// The search for a longer packet, below the full length.
    search: Option<Search>,
}

/// The search for the longest packet that the path carries (RFC 8899 5.3).
#[derive(Debug)]
struct Search {
    /// The payload of the next probe.
    candidate: u32,
    /// The probe in flight.
    number: Option<u64>,
    failures: u32,
    /// When the next probe may leave.
    next_at: Time,
    interval: Dur,
}

impl PathMtu {
    /// The path of a queue pair whose full packets have `full` bytes of payload.
    pub(crate) fn new(full: u32, divides: bool) -> Self {
        Self {
            full,
            whole: full,
            divides,
            lost: 0,
            rescues: 0,
            in_fragments: false,
            fragmented: None,
            never_fragmented: 0,
            witness: None,
            received: None,
            others: 0,
            search: None,
        }
    }

    /// The payload of the longest packet that is sent whole, if that is not a full one.
    pub(crate) fn reduced(&self) -> Option<u32> {
        (self.whole < self.full).then_some(self.whole)
    }

    /// The limit of the next new segment.
    pub(crate) fn segment_bytes(&self, now: Time) -> u32 {
        match &self.search {
            Some(search) if search.is_due(now) => search.candidate,
            _ => self.whole,
        }
    }

    /// The packet `number` with `len` bytes of payload is sent now. True if it may be fragmented.
    #[inline(never)]
    pub(crate) fn on_sent(&mut self, now: Time, number: u64, len: u32, is_new: bool) -> bool {
        let is_long = shorter(self.whole).is_some_and(|least| len > least);
        let fragmented = self.is_fragmented(now, number, len, is_new);
        self.others = self.others.saturating_add(u32::from(fragmented || !is_long));
        fragmented
    }

    fn is_fragmented(&mut self, now: Time, number: u64, len: u32, is_new: bool) -> bool {
        if let Some(search) = self.search.as_mut().filter(|_| len > self.whole) {
            if is_new && search.is_due(now) {
                search.number = Some(number);
                return false;
            }
            if !is_new && search.number == Some(number) {
                search.on_lost(now);
            }
            return true;
        }
        let is_long = shorter(self.whole).is_some_and(|least| len > least);
        if is_long && self.in_fragments {
            self.fragmented.get_or_insert(number);
            self.never_fragmented = self.never_fragmented.max(number + 1);
            return true;
        }
        if is_long && self.rescues > 0 && number >= self.never_fragmented {
            self.witness.get_or_insert(number);
        }
        false
    }

    /// The retransmission timer has expired, `in_a_row` times without an acknowledgement, with
    /// `lost_pkts` packets in flight that the peer would have acknowledged.
    #[inline(never)]
    pub(crate) fn on_timeout(&mut self, in_a_row: u32, lost_pkts: u64) {
        if !self.in_fragments {
            self.lost += lost_pkts;
        }
        // Not each time, because a peer that is not on UDP sockets takes no fragments.
        let from = if self.rescues > 0 { 1 } else { SUSPICIOUS_TIMEOUTS };
        self.in_fragments = in_a_row >= from && (in_a_row - from).is_multiple_of(FRAGMENTS_EVERY);
        (self.fragmented, self.witness) = (None, None);
    }

    /// All packets below `una` are acknowledged, and the peer has received so many packets, if it
    /// counts them (SR). A lost ACK is then no lost packet.
    #[inline(never)]
    pub(crate) fn on_acked(
        &mut self,
        now: Time,
        una: u64,
        received: Option<u32>,
        counters: &mut Counters,
    ) {
        let is_acked = |number: Option<u64>| number.is_some_and(|number| number < una);
        let before = std::mem::replace(&mut self.received, received);
        let arrived = received.zip(before).map_or(0, |(now, before)| now.wrapping_sub(before));
        let only_others = arrived <= std::mem::take(&mut self.others);
        if self.in_fragments {
            if is_acked(self.fragmented) {
                self.in_fragments = false;
                self.rescues += 1;
                if !only_others {
                    (self.lost, self.rescues) = (0, 0);
                } else if self.rescues >= RESCUES_MIN && self.lost >= LOST_MIN {
                    self.reduce(now);
                    counters.path_mtu_reduced += 1;
                }
            }
        } else if self.rescues == 0 || is_acked(self.witness) {
            (self.lost, self.rescues, self.witness) = (0, 0, None);
        }
        let found = self.search.as_ref().filter(|search| is_acked(search.number));
        if let Some(found) = found.map(|search| search.candidate) {
            self.whole = found;
            self.search = self.search_from(now);
            counters.path_mtu_raised += 1;
        }
    }

    /// The path is a black hole for long packets.
    fn reduce(&mut self, now: Time) {
        self.whole = shorter(self.whole).unwrap_or(self.whole);
        (self.lost, self.rescues, self.witness) = (0, 0, None);
        self.search = self.search_from(now);
    }

    fn search_from(&self, now: Time) -> Option<Search> {
        let longer = STEPS.into_iter().find(|step| *step > self.whole && self.divides);
        let candidate = longer.unwrap_or(self.full).min(self.full);
        (self.whole < self.full).then_some(Search {
            candidate,
            number: None,
            failures: 0,
            next_at: now,
            interval: RAISE_MIN,
        })
    }
}

impl Search {
    fn is_due(&self, now: Time) -> bool {
        self.number.is_none() && now >= self.next_at
    }

    /// The probe was lost.
    fn on_lost(&mut self, now: Time) {
        (self.number, self.next_at) = (None, now);
        self.failures += 1;
        if self.failures >= PROBES_MAX {
            (self.failures, self.next_at) = (0, now + self.interval);
            self.interval = (self.interval * 2).min(RAISE_MAX);
        }
    }
}

/// The length to which packets of `whole` bytes are reduced.
fn shorter(whole: u32) -> Option<u32> {
    BASES.into_iter().find(|base| *base < whole)
}

/// The longest headers of IP and above, and the ICRC, without those that vary.
const HEADERS: u32 = 128;
/// Payload that every path carries over IPv6, and in practice over IPv4 (RFC 8899 5.1.2).
const BASES: [u32; 2] = [1280 - HEADERS, 576 - HEADERS];
/// Payload of probes: the common path MTUs.
const STEPS: [u32; 8] = [
    1006 - HEADERS,
    1280 - HEADERS,
    1400 - HEADERS,
    1492 - HEADERS,
    2002 - HEADERS,
    4352 - HEADERS,
    8166 - HEADERS,
    16_000 - HEADERS,
];
/// Timeouts in a row after which fragments are tried.
const SUSPICIOUS_TIMEOUTS: u32 = 2;
/// After how many further timeouts they are tried again.
const FRAGMENTS_EVERY: u32 = 3;
/// Evidence of a black hole: fragments acknowledged so often, and so many whole packets lost, while
/// no long packet arrived whole. At 30 % loss 16 packets in a row are one in 10^8; with RC, where
/// the loss of an ACK looks the same, one in 10^5.
const RESCUES_MIN: u32 = 2;
const LOST_MIN: u64 = 16;
/// RFC 8899 5.1.2, MAX_PROBES.
const PROBES_MAX: u32 = 3;
/// Time from the last failed probe to the next one, doubling. RFC 8899 5.1.1 has 600 s; a path that
/// was misjudged should not be slow for as long.
const RAISE_MIN: Dur = Dur::from_secs(10);
const RAISE_MAX: Dur = Dur::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Dur::from_ms(ms)
    }

    fn counters() -> Counters {
        Counters::default()
    }

    /// Two timeouts, fragments acknowledged, and the same again after one timeout each.
    fn find_black_hole(path: &mut PathMtu, counters: &mut Counters) {
        path.on_timeout(1, 30);
        assert!(!path.on_sent(at(1), 0, path.whole, false), "one timeout is no evidence");
        path.on_timeout(2, 1);
        assert!(path.on_sent(at(2), 0, path.whole, false));
        path.on_acked(at(3), 1, None, counters);
        assert!(!path.on_sent(at(3), 1, path.whole, false), "tried whole again");
        path.on_timeout(1, 5);
        assert!(path.on_sent(at(4), 1, path.whole, false));
        path.on_acked(at(5), 2, None, counters);
    }

    #[test]
    fn on_acked__fragments_alone_acknowledged_are_a_black_hole() {
        let (mut path, mut counters) = (PathMtu::new(1408, true), counters());
        find_black_hole(&mut path, &mut counters);
        assert_eq!((path.reduced(), counters.path_mtu_reduced), (Some(1152), 1));
        assert!(path.on_sent(at(6), 2, 1408, false), "what has a PSN leaves as fragments");
        // The search: a longer one is acknowledged, the next one is lost three times.
        assert_eq!(path.segment_bytes(at(6)), 1272);
        assert!(!path.on_sent(at(6), 9, 1272, true));
        assert_eq!(path.segment_bytes(at(6)), 1152, "one probe at a time");
        path.on_acked(at(7), 10, None, &mut counters);
        assert_eq!((path.reduced(), counters.path_mtu_raised), (Some(1272), 1));
        for number in 10..13 {
            assert_eq!(path.segment_bytes(at(8)), 1364);
            assert!(!path.on_sent(at(8), number, 1364, true));
            assert!(path.on_sent(at(8), number, 1364, false));
            path.on_acked(at(8), number + 1, None, &mut counters);
        }
        assert_eq!((path.segment_bytes(at(9)), path.segment_bytes(at(10_008))), (1272, 1364));
        assert_eq!(path.reduced(), Some(1272));
    }

    #[test]
    fn on_acked__a_whole_packet_that_arrives_ends_the_suspicion() {
        let (mut path, mut counters) = (PathMtu::new(1408, true), counters());
        for round in 0..100 {
            path.on_timeout(1, 30);
            path.on_timeout(2, 1);
            assert!(path.on_sent(at(1), round * 4, 1408, false));
            path.on_acked(at(1), round * 4 + 1, None, &mut counters);
            assert!(!path.on_sent(at(1), round * 4 + 1, 1408, true));
            path.on_acked(at(1), round * 4 + 2, None, &mut counters);
        }
        assert_eq!((path.reduced(), counters.path_mtu_reduced), (None, 0));
    }

    #[test]
    fn on_timeout__a_dead_path_and_one_without_long_packets_are_no_black_holes() {
        let (mut path, mut counters) = (PathMtu::new(1408, true), counters());
        let tried: Vec<bool> = (1..=6)
            .map(|in_a_row| {
                path.on_timeout(in_a_row, 30);
                path.on_sent(at(1), 0, 1408, false)
            })
            .collect();
        assert_eq!(tried, [false, true, false, false, true, false]);
        let mut path = PathMtu::new(1408, true);
        for number in 0..100 {
            path.on_timeout(2, 30);
            assert!(!path.on_sent(at(1), number, 64, false));
            path.on_acked(at(1), number + 1, None, &mut counters);
        }
        assert_eq!((path.reduced(), counters.path_mtu_reduced), (None, 0));
    }

    #[test]
    fn reduce__of_rc_sends_full_packets_as_fragments_and_one_whole_at_times() {
        let (mut path, mut counters) = (PathMtu::new(1024, false), counters());
        find_black_hole(&mut path, &mut counters);
        assert_eq!(path.reduced(), Some(448));
        assert!(!path.on_sent(at(6), 2, 1024, true), "the probe");
        assert!(path.on_sent(at(6), 3, 1024, true));
        path.on_acked(at(7), 3, None, &mut counters);
        assert_eq!((path.reduced(), counters.path_mtu_raised), (None, 1));
        assert!(!path.on_sent(at(8), 4, 1024, true));
    }
}
