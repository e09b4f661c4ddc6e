//! The flows that pass one queue: what each sent in a period, and the CNPs allotted to it.

use crate::agent::passing::{FlowEnds, Passing};
use crate::agent::sets::{KEY_BYTES, Sets, Standing};
use spanwire_base::{Dur, Time, u32_from, usize_from};
use spanwire_wire::Qpn;
use std::collections::VecDeque;

/// Flows by pair of addresses. If a set is full, the flow that sent least in this period goes, and
/// is counted. A period costs as much as the flows that are counted in it, not as all.
#[derive(Debug)]
pub(super) struct Flows {
    places: Sets<Flow>,
    /// `B_th`: a flow that sends less in a period is forgotten.
    least_bytes: u64,
    /// The number of the present period; it wraps.
    period: u32,
    /// The flows that have sent in this period, and in the one before.
    sent: [usize; 2],
    /// The flows with counted packets, and these packets.
    counted: Vec<u32>,
    counted_pkts: u64,
    /// Flows with CNPs to send, by the time of the next.
    due: VecDeque<(Time, u32)>,
}

/// One flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// Its bytes in the period in which it sent last, and the number of that.
    tx_bytes: u64,
    period: u32,
    /// Packets that met a queue above the threshold, since the last computation.
    pub(super) counted: u32,
    /// CNPs left, and the fraction of the next one, in 2^-16.
    left: u32,
    pub(super) carried: u16,
    /// When it may get another CNP.
    free_at: Time,
    /// The queue pair that was counted last, and its sender if a packet has said so.
    ends: FlowEnds,
    sender: Option<Qpn>,
}

impl Flows {
    /// Places for `most` flows. Those that send less than `least_bytes` in a period, or nothing,
    /// are forgotten.
    pub(super) fn new(most: u32, least_bytes: u64) -> Self {
        let places = Sets::new(most, &Flow::new());
        let most = places.len();
        Self {
            places,
            least_bytes: least_bytes.max(1),
            period: 1,
            sent: [0; 2],
            counted: Vec::with_capacity(most),
            counted_pkts: 0,
            due: VecDeque::with_capacity(most),
        }
    }

    /// Flows that have sent in this period or the one before, whichever are more.
    pub(super) fn len(&self) -> usize {
        self.sent[0].max(self.sent[1])
    }

    /// True if no flow has sent since the end of the last period, and none gets CNPs.
    pub(super) fn is_idle(&self) -> bool {
        self.sent[1] == 0 && self.due.is_empty()
    }

    /// Adds a packet, counted if it met a queue above the threshold.
    #[inline]
    pub(super) fn on_packet(&mut self, now: Time, passing: &Passing, is_counted: bool) {
        let key = passing.pair_key();
        let place = self.places.find(key).unwrap_or_else(|| self.take_place(key));
        let flow = self.places.get_mut(place);
        if flow.period != self.period {
            flow.begin_period(now, self.period, self.least_bytes);
            self.sent[0] += 1;
        }
        flow.tx_bytes += passing.wire_bytes;
        if is_counted || flow.counted == 0 {
            (flow.ends, flow.sender) = (passing.ends, passing.source_qpn);
        }
        if is_counted {
            if flow.counted == 0 {
                self.counted.push(u32_from(place));
            }
            flow.counted = flow.counted.saturating_add(1);
            self.counted_pkts += 1;
        }
    }

    /// Packets counted since the last computation.
    pub(super) fn counted(&self) -> u64 {
        self.counted_pkts
    }

    /// Allots CNPs to every counted flow: `share` gives their number and the fraction carried on.
    /// Those left of earlier ones are replaced. Then nothing is counted.
    pub(super) fn allot(&mut self, now: Time, mut share: impl FnMut(&Flow) -> (u32, u16)) {
        for (_, place) in self.due.drain(..) {
            self.places.get_mut(usize_from(place.into())).left = 0;
        }
        for place in &self.counted {
            let flow = self.places.get_mut(usize_from((*place).into()));
            (flow.left, flow.carried) = share(flow);
            if flow.left > 0 {
                self.due.push_back((flow.free_at.max(now), *place));
            }
        }
        self.due.make_contiguous().sort_unstable();
        self.forget_counts();
    }

    /// Forgets what was counted.
    pub(super) fn forget_counts(&mut self) {
        for place in self.counted.drain(..) {
            self.places.get_mut(usize_from(place.into())).counted = 0;
        }
        self.counted_pkts = 0;
    }

    /// Ends a period.
    pub(super) fn end_period(&mut self) {
        // 0 is that of flows that have not sent.
        self.period = self.period.checked_add(1).unwrap_or(1);
        self.sent = [0, self.sent[0]];
    }

    /// The flow at a place, and its sender if that is known.
    pub(super) fn at(&self, place: u32) -> (FlowEnds, Option<Qpn>) {
        let flow = self.places.get(usize_from(place.into()));
        (flow.ends, flow.sender)
    }

    /// The place of the flow of a CNP that is due.
    pub(super) fn pop_due(&mut self, now: Time, spacing: Dur) -> Option<u32> {
        let (_, place) = self.due.front().copied().filter(|(at, _)| *at <= now)?;
        self.due.pop_front();
        let flow = self.places.get_mut(usize_from(place.into()));
        flow.left -= 1;
        flow.free_at = now + spacing;
        if flow.left > 0 {
            // All have the same spacing, so the order stays that of time, except after a handful
            // of late flows of an earlier allotment.
            let at = flow.free_at;
            let before = self.due.partition_point(|(other, _)| *other <= at);
            self.due.insert(before, (at, place));
        }
        Some(place)
    }

    /// When the next CNP is due.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.due.front().map(|(at, _)| *at)
    }

    /// A place for a new flow.
    fn take_place(&mut self, key: u64) -> usize {
        let period = self.period;
        let by_bytes = |flow: &Flow| {
            let is_recent = [period, period.wrapping_sub(1)].contains(&flow.period);
            let waits = flow.left > 0;
            Some(Standing { rank: (waits, flow.sent_in(period)), is_used: is_recent || waits })
        };
        let (at, old) = self.places.take(key, Flow::new(), by_bytes).expect("any may go");
        let Some(old) = old else { return at };
        // Fewer, if it sent 2^32 periods ago.
        self.sent[0] = self.sent[0].saturating_sub((old.period == period).into());
        if old.left > 0 {
            self.due.retain(|(_, place)| *place != u32_from(at));
        }
        if old.counted > 0 {
            self.counted.retain(|place| *place != u32_from(at));
            self.counted_pkts -= u64::from(old.counted);
        }
        at
    }

    /// Flows that were forgotten for lack of room.
    pub(super) fn evicted(&self) -> u64 {
        self.places.evicted()
    }
}

impl Flow {
    fn new() -> Self {
        Self {
            tx_bytes: 0,
            period: 0,
            counted: 0,
            left: 0,
            carried: 0,
            free_at: Time::ZERO,
            ends: FlowEnds::default(),
            sender: None,
        }
    }

    /// Its bytes in a period.
    fn sent_in(&self, period: u32) -> u64 {
        if self.period == period { self.tx_bytes } else { 0 }
    }

    /// Its first packet in a period. If it sent too little in the one before, it is a new flow,
    /// which has no fraction of a CNP; but one that still gets CNPs stays until it has them, and
    /// until it may get another, which it would get too early otherwise.
    fn begin_period(&mut self, now: Time, period: u32, least_bytes: u64) {
        let is_kept = self.sent_in(period.wrapping_sub(1)) >= least_bytes;
        if !is_kept && self.left == 0 && self.free_at <= now {
            self.carried = 0;
        }
        (self.period, self.tx_bytes) = (period, 0);
    }
}

/// Bytes of a flow.
pub(super) const BYTES: usize = size_of::<Flow>() + KEY_BYTES;
/// As documented.
const _: () = assert!(BYTES == 120);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::testing::{at, passing};

    const SPACING: Dur = Dur::from_us(4);

    fn due(flows: &mut Flows, until_us: u64) -> Vec<(u64, u8)> {
        let mut sent = Vec::new();
        while let Some(next) = flows.next_due().filter(|next| *next <= at(until_us)) {
            let place = flows.pop_due(next, SPACING).expect("it is due");
            sent.push((next.as_ns() / 1000, flows.at(place).0.source_number()));
        }
        sent
    }

    fn push(flows: &mut Flows, us: u64, source: u8, bytes: u64, is_counted: bool) {
        flows.on_packet(at(us), &passing(source, 9, bytes), is_counted);
    }

    /// The fractions carried by the counted flows, which get these shares.
    fn carried(flows: &mut Flows, us: u64, share: (u32, u16)) -> Vec<u16> {
        let mut all = Vec::new();
        flows.allot(at(us), |flow| {
            all.push(flow.carried);
            share
        });
        all
    }

    #[test]
    fn allot__cnps_are_apart_and_replace_those_left() {
        let mut flows = Flows::new(64, 4000);
        [1, 2].into_iter().for_each(|source| push(&mut flows, 0, source, 1000, true));
        assert_eq!(flows.counted(), 2);
        assert_eq!(carried(&mut flows, 10, (3, 5)), [0, 0]);
        assert_eq!(due(&mut flows, 15), [(10, 1), (10, 2), (14, 1), (14, 2)]);
        assert_eq!(flows.counted(), 0);
        // One is left of each. Only the first is counted again, two microseconds after its CNP.
        push(&mut flows, 16, 1, 1000, true);
        assert_eq!(carried(&mut flows, 16, (2, 0)), [5]);
        assert_eq!(due(&mut flows, 100), [(18, 1), (22, 1)], "the spacing is kept");
    }

    #[test]
    fn end_period__a_flow_that_sent_little_is_a_new_one() {
        let mut flows = Flows::new(64, 4000);
        push(&mut flows, 0, 1, 3000, true);
        (0..2).for_each(|_| push(&mut flows, 0, 2, 3000, true));
        assert_eq!((carried(&mut flows, 0, (0, 7)), flows.len()), (vec![0, 0], 2));
        flows.end_period();
        [1, 2].into_iter().for_each(|source| push(&mut flows, 1, source, 9000, true));
        assert_eq!(carried(&mut flows, 1, (0, 7)), [0, 7]);
        flows.end_period();
        flows.end_period();
        assert!(flows.is_idle() && flows.len() == 0);
        [1, 2].into_iter().for_each(|source| push(&mut flows, 2, source, 9000, true));
        assert_eq!(carried(&mut flows, 2, (0, 7)), [0, 0], "they paused for a period");
    }

    #[test]
    fn end_period__a_flow_stays_until_it_may_get_another_cnp() {
        let mut flows = Flows::new(64, 4000);
        push(&mut flows, 0, 3, 100, true);
        carried(&mut flows, 0, (1, 9));
        flows.end_period();
        assert!(!flows.is_idle(), "it waits for its CNP");
        push(&mut flows, 0, 3, 100, false);
        assert_eq!(due(&mut flows, 0), [(0, 3)]);
        flows.end_period();
        push(&mut flows, 3, 3, 100, true);
        assert_eq!(carried(&mut flows, 3, (0, 9)), [9], "its spacing has not passed");
        flows.end_period();
        push(&mut flows, 4, 3, 100, true);
        assert_eq!(carried(&mut flows, 4, (0, 9)), [0]);
    }

    #[test]
    fn on_packet__a_full_set_forgets_the_flow_that_sent_least() {
        let mut flows = Flows::new(1, 4000);
        (0..8).for_each(|source| push(&mut flows, 0, source, 1000 + u64::from(source), true));
        assert_eq!((flows.len(), flows.evicted(), flows.counted()), (8, 0, 8));
        push(&mut flows, 0, 100, 5000, true);
        assert_eq!((flows.len(), flows.evicted(), flows.counted()), (8, 1, 8));
        carried(&mut flows, 0, (1, 0));
        let mut sources: Vec<u8> = due(&mut flows, 0).into_iter().map(|(_, from)| from).collect();
        sources.sort_unstable();
        assert_eq!(sources, [1, 2, 3, 4, 5, 6, 7, 100]);
        // One with CNPs left is the last to go.
        push(&mut flows, 10, 1, 1, true);
        carried(&mut flows, 10, (5, 0));
        (20..27).for_each(|source| push(&mut flows, 10, source, 9000, false));
        assert_eq!(due(&mut flows, 10), [(10, 1)]);
    }
}
