//! The state of NDT for each flow.

use super::records::Records;
use crate::agent::sets::{IDLE, KEY_BYTES, Sets, Standing};
use spanwire_base::{Dur, Time, u32_from, usize_from};

/// Flows by addresses and the queue pair that sends them. One that has no waiting packets and has
/// sent nothing for [`IDLE`] is forgotten. If a set is full, the one without waiting packets that
/// was seen longest ago goes, and is counted.
#[derive(Debug)]
pub(super) struct Flows {
    places: Sets<Flow>,
    /// Of the same place.
    records: Vec<Records>,
    /// Of each port.
    active: Vec<Active>,
}

/// The active flows of a port, seen in the last window: the ends of a list through the table, and
/// counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Active {
    oldest: u32,
    newest: u32,
    pub(super) flows: u32,
    pub(super) congested: u32,
}

/// One flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// When its last data arrived.
    seen_at: Time,
    /// Its packets that wait in the normal queues.
    pub(super) normal: u32,
    /// Its packets that wait in the controlled queues.
    pub(super) controlled: u32,
    /// The last of its packets in a normal queue: the port's index, and the number of such packets
    /// of the port until then.
    pub(super) last_normal: (u8, u64),
    /// The index of the port to which its data go.
    port: u8,
    /// Neighbours among the active flows of that port.
    older: u32,
    newer: u32,
    is_active: bool,
    is_congested: bool,
    /// A packet of it has gone to a controlled queue.
    pub(super) is_isolated: bool,
}

/// The effect of a round trip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// The flow is as congested as before.
    Same,
    /// It became congested.
    Congested,
    /// It is not congested any more.
    Recovered,
}

impl Flows {
    /// Places for `most` flows of so many ports.
    pub(super) fn new(most: u32, ports: usize) -> Self {
        let places = Sets::new(most, &Flow::new());
        Self {
            records: vec![Records::default(); places.len()],
            places,
            active: vec![Active { oldest: NONE, newest: NONE, flows: 0, congested: 0 }; ports],
        }
    }

    /// Flows that are not forgotten, and the active and the congested ones of all ports. O(places).
    pub(super) fn gauges(&self, now: Time, window: Dur) -> [u64; 3] {
        let mut counts = [0; 3];
        for flow in self.places.values() {
            let is_active = flow.is_active && flow.seen_at + window >= now;
            let is_of = [!flow.is_over(now), is_active, is_active && flow.is_congested];
            counts.iter_mut().zip(is_of).for_each(|(count, is_it)| *count += u64::from(is_it));
        }
        counts
    }

    /// The active flows of a port.
    pub(super) fn active(&self, port: u8) -> Active {
        self.active[usize::from(port)]
    }

    /// The place of a flow, if it has one.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<usize> {
        self.places.find(key)
    }

    /// The place of a flow whose data arrive for a port, which is active now. `None` if it is new
    /// and every flow of its set has packets that wait.
    #[inline]
    pub(super) fn see(&mut self, now: Time, key: u64, port: u8) -> Option<usize> {
        let at = match self.find(key) {
            Some(at) if self.places.get(at).is_over(now) => {
                self.unlink(at);
                *self.places.get_mut(at) = Flow::new();
                self.records[at] = Records::default();
                at
            }
            Some(at) => at,
            None => self.take_place(now, key)?,
        };
        self.unlink(at);
        self.link(now, at, port);
        Some(at)
    }

    /// Active flows of a port that were not seen in the last `window` are so no more.
    #[inline]
    pub(super) fn expire(&mut self, now: Time, window: Dur, port: u8) {
        loop {
            let oldest = self.active(port).oldest;
            if oldest == NONE {
                break;
            }
            let oldest = place_of(oldest);
            if self.places.get(oldest).seen_at + window >= now {
                break;
            }
            self.unlink(oldest);
        }
    }

    pub(super) fn flow(&mut self, at: usize) -> &mut Flow {
        self.places.get_mut(at)
    }

    pub(super) fn records(&mut self, at: usize) -> &mut Records {
        &mut self.records[at]
    }

    /// The index of the port of a flow.
    pub(super) fn port(&self, at: usize) -> u8 {
        self.places.get(at).port
    }

    /// Sets whether a flow is congested.
    pub(super) fn set_congested(&mut self, at: usize, is_congested: bool) -> Change {
        let flow = self.places.get_mut(at);
        let active = &mut self.active[usize::from(flow.port)];
        if flow.is_congested == is_congested {
            return Change::Same;
        }
        flow.is_congested = is_congested;
        let is_active = u32::from(flow.is_active);
        if !is_congested {
            active.congested -= is_active;
            return Change::Recovered;
        }
        active.congested += is_active;
        Change::Congested
    }

    /// A place for a new flow.
    fn take_place(&mut self, now: Time, key: u64) -> Option<usize> {
        let by_age = |flow: &Flow| {
            let is_used = !flow.is_over(now);
            (!flow.is_waiting()).then_some(Standing { rank: flow.seen_at, is_used })
        };
        let (at, old) = self.places.take(key, Flow::new(), by_age)?;
        if let Some(old) = old {
            self.cut(&old);
            self.records[at] = Records::default();
        }
        Some(at)
    }

    /// Flows that were forgotten for lack of room.
    pub(super) fn evicted(&self) -> u64 {
        self.places.evicted()
    }

    /// Appends a flow to the active ones of a port.
    fn link(&mut self, now: Time, at: usize, port: u8) {
        let (place, active) = (u32_from(at), &mut self.active[usize::from(port)]);
        let flow = self.places.get_mut(at);
        (flow.seen_at, flow.port, flow.is_active) = (now, port, true);
        (flow.older, flow.newer) = (active.newest, NONE);
        active.flows += 1;
        active.congested += u32::from(flow.is_congested);
        match active.newest {
            NONE => active.oldest = place,
            before => self.places.get_mut(place_of(before)).newer = place,
        }
        active.newest = place;
    }

    /// Takes a flow off the active ones, if it is one.
    fn unlink(&mut self, at: usize) {
        let flow = self.places.get_mut(at);
        let old = *flow;
        flow.is_active = false;
        self.cut(&old);
    }

    /// Joins the neighbours of a flow, if it was active.
    fn cut(&mut self, flow: &Flow) {
        if !flow.is_active {
            return;
        }
        let (older, newer) = (flow.older, flow.newer);
        let active = &mut self.active[usize::from(flow.port)];
        active.flows -= 1;
        active.congested -= u32::from(flow.is_congested);
        match older {
            NONE => active.oldest = newer,
            before => self.places.get_mut(place_of(before)).newer = newer,
        }
        match newer {
            NONE => active.newest = older,
            behind => self.places.get_mut(place_of(behind)).older = older,
        }
    }
}

impl Flow {
    fn new() -> Self {
        Self {
            seen_at: Time::ZERO,
            normal: 0,
            controlled: 0,
            last_normal: (0, 0),
            port: 0,
            older: NONE,
            newer: NONE,
            is_active: false,
            is_congested: false,
            is_isolated: false,
        }
    }

    /// Its packets go to the controlled queue: it is congested, or older ones wait there.
    #[inline]
    pub(super) fn is_controlled(&self) -> bool {
        self.is_congested || self.controlled > 0
    }

    fn is_waiting(&self) -> bool {
        self.normal > 0 || self.controlled > 0
    }

    fn is_over(&self, now: Time) -> bool {
        !self.is_waiting() && now.since(self.seen_at) >= IDLE
    }
}

/// The index of a neighbour.
#[inline]
fn place_of(neighbour: u32) -> usize {
    usize_from(neighbour.into())
}

/// No neighbour.
const NONE: u32 = u32::MAX;
/// Bytes of a flow.
pub(super) const BYTES: usize = size_of::<Flow>() + size_of::<Records>() + KEY_BYTES;
/// As documented.
const _: () = assert!(BYTES == 848);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::testing::at;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const WINDOW: Dur = Dur::from_us(100);

    #[test]
    fn see__a_flow_with_waiting_packets_keeps_its_place() {
        let mut flows = Flows::new(4, 2);
        for key in 1..=8 {
            let place = flows.see(at(key), key, 0).unwrap();
            flows.flow(place).controlled = u32::from(key < 8);
        }
        let place = flows.find(8);
        assert_eq!(flows.see(at(9), 9, 0), place, "the only one without takes the newcomer");
        assert_eq!((flows.gauges(at(9), WINDOW), flows.evicted()), ([8, 8, 0], 1));
        assert_eq!(flows.find(8), None);
        flows.flow(place.unwrap()).normal = 1;
        assert_eq!(flows.see(at(10), 10, 0), None);
        assert_eq!((flows.gauges(at(10), WINDOW), flows.evicted()), ([8, 8, 0], 1));
        assert_eq!(flows.active(0).flows, 8);
        let later = flows.gauges(at(1_000_009), WINDOW);
        assert_eq!(later, [8, 0, 0], "they wait, but none has sent for the window");
    }

    #[test]
    fn see__a_flow_that_paused_for_a_second_is_a_new_one() {
        let mut flows = Flows::new(4, 2);
        let place = flows.see(at(1), 1, 0).unwrap();
        flows.set_congested(place, true);
        // A PSN that the honest flow does not reach.
        flows.records(place).set(1 << 30, at(1), Dur::ZERO);
        assert_eq!(flows.gauges(at(1), WINDOW), [1, 1, 1]);
        assert_eq!(flows.gauges(at(102), WINDOW), [1, 0, 0]);
        assert_eq!(flows.see(at(1_000_000), 1, 0), Some(place));
        assert!(flows.flow(place).is_controlled());
        assert_eq!(flows.gauges(at(2_000_000), WINDOW), [0, 0, 0]);
        assert_eq!((flows.see(at(2_000_000), 1, 1), flows.evicted()), (Some(place), 0));
        assert!(!flows.flow(place).is_controlled() && flows.records(place).get(5).is_none());
        assert_eq!([0, 1].map(|port| flows.active(port).flows), [0, 1]);
        assert_eq!(flows.active(0).congested + flows.active(1).congested, 0);
    }

    #[test]
    fn set_congested__says_what_changed() {
        let mut flows = Flows::new(4, 2);
        let place = flows.see(at(1), 1, 0).unwrap();
        let changes = [true, true, false, true].map(|set| flows.set_congested(place, set));
        let congested = Change::Congested;
        assert_eq!(changes, [congested, Change::Same, Change::Recovered, congested]);
    }

    proptest! {
        /// The counts of active flows of each port are those of a plain map.
        #[test]
        fn active__counts_as_a_map_does(
            steps in prop::collection::vec(
                (0_u64..30, 1_u64..24, 0_u8..2, any::<bool>(), 0_u8..3), 1..200),
        ) {
            let window = WINDOW;
            let mut flows = Flows::new(4, 2);
            // By key: when it was seen, for which port, and whether it is congested.
            let mut all: BTreeMap<u64, (u64, u8, bool)> = BTreeMap::new();
            let mut now = 1_000;
            for (wait, key, port, congested, kind) in steps {
                now += wait;
                match kind {
                    0 => {
                        let place = flows.see(at(now), key, port);
                        prop_assert!(place.is_some(), "none waits");
                        let known = all.get(&key).is_some_and(|flow| flow.2);
                        all.insert(key, (now, port, known));
                        all.retain(|key, _| flows.find(*key).is_some());
                    }
                    1 => {
                        if let Some(place) = flows.find(key) {
                            flows.set_congested(place, congested);
                            all.entry(key).and_modify(|flow| flow.2 = congested);
                            prop_assert_eq!(flows.port(place), all[&key].1);
                        }
                    }
                    _ => flows.expire(at(now), window, port),
                }
                for port in 0..2 {
                    flows.expire(at(now), window, port);
                    let own = |flow: &&(u64, u8, bool)| flow.1 == port && flow.0 + 100 >= now;
                    let active: Vec<_> = all.values().filter(own).collect();
                    let congested = active.iter().filter(|flow| flow.2).count();
                    let counts = flows.active(port);
                    prop_assert_eq!(usize_from(counts.flows.into()), active.len());
                    prop_assert_eq!(usize_from(counts.congested.into()), congested);
                }
            }
        }
    }
}
