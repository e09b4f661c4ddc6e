//! The state of NSF for each flow.

use crate::agent::sets::{IDLE, KEY_BYTES, Sets, Standing};
use spanwire_base::{Dur, Time};

/// Flows by addresses and queue pair. One that has sent nothing for [`IDLE`] is forgotten. If a set
/// is full, the flow that was seen longest ago goes, and is counted.
#[derive(Debug)]
pub(super) struct Flows {
    places: Sets<Flow>,
}

/// One flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    seen: Time,
    state: State,
    /// When it may get another pseudo-ACK.
    free_at: Time,
    /// The least delay, ps.
    least_ps: u64,
}

/// The states of a flow.
///
/// # Source
/// Reflex III-B, figure 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Its packets are not late: no pseudo-ACKs.
    Silent,
    /// They are late: a pseudo-ACK in each interval.
    Active,
    /// They are not late any more: so many pseudo-ACKs are left.
    Cooling(u32),
}

/// The result of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// It causes a pseudo-ACK.
    PseudoAck,
    /// It causes none.
    Nothing,
}

impl Flows {
    /// Places for `most` flows.
    pub(super) fn new(most: u32) -> Self {
        Self { places: Sets::new(most, &Flow::new()) }
    }

    /// Flows that are not forgotten. O(places).
    pub(super) fn len(&self, now: Time) -> usize {
        self.places.values().filter(|flow| !is_over(now, flow)).count()
    }

    /// The flow of a key, a new one if it is unknown.
    #[inline]
    pub(super) fn of(&mut self, now: Time, key: u64) -> &mut Flow {
        let at = self.places.find(key).unwrap_or_else(|| self.take_place(now, key));
        let flow = self.places.get_mut(at);
        if is_over(now, flow) {
            *flow = Flow::new();
        }
        flow.seen = now;
        flow
    }

    fn take_place(&mut self, now: Time, key: u64) -> usize {
        let by_age = |flow: &Flow| Some(Standing { rank: flow.seen, is_used: !is_over(now, flow) });
        self.places.take(key, Flow::new(), by_age).expect("any may go").0
    }

    /// Flows that were forgotten for lack of room.
    pub(super) fn evicted(&self) -> u64 {
        self.places.evicted()
    }
}

impl Flow {
    fn new() -> Self {
        let (free_at, least_ps) = (Time::ZERO, u64::MAX);
        Self { seen: Time::ZERO, state: State::Silent, free_at, least_ps }
    }

    /// A delay above the least one of the flow, ps.
    pub(super) fn above_least(&mut self, delay_ps: u64) -> u64 {
        self.least_ps = self.least_ps.min(delay_ps);
        delay_ps - self.least_ps
    }

    /// Applies a packet. A flow in [`State::Cooling`] gets `cool` pseudo-ACKs; all are at least
    /// `interval` apart.
    pub(super) fn step(&mut self, now: Time, is_late: bool, cool: u32, interval: Dur) -> Step {
        self.state = match (self.state, is_late) {
            (_, true) => State::Active,
            (State::Active, false) if cool > 0 => State::Cooling(cool),
            (State::Active, false) => State::Silent,
            (state, false) => state,
        };
        if self.state == State::Silent || now < self.free_at {
            return Step::Nothing;
        }
        self.free_at = now + interval;
        if let State::Cooling(left) = self.state {
            self.state = match left {
                0 | 1 => State::Silent,
                _ => State::Cooling(left - 1),
            };
        }
        Step::PseudoAck
    }
}

fn is_over(now: Time, flow: &Flow) -> bool {
    now.since(flow.seen) >= IDLE
}

/// Bytes of a flow.
pub(super) const BYTES: usize = size_of::<Flow>() + KEY_BYTES;
/// As documented.
const _: () = assert!(BYTES == 40);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::testing::at;

    /// The times, in microseconds, of the pseudo-ACKs for a packet each microsecond.
    fn sent(late: impl Fn(u64) -> bool, until: u64) -> Vec<u64> {
        let mut flow = Flow::new();
        let every = Dur::from_us(5);
        (0..until).filter(|us| flow.step(at(*us), late(*us), 5, every) == Step::PseudoAck).collect()
    }

    #[test]
    fn step__late_packets_cause_one_in_an_interval_and_cooling_five_more() {
        assert!(sent(|_| false, 100).is_empty());
        // The first at once; the next five are those of cooling.
        assert_eq!(sent(|us| us == 10, 100), [10, 15, 20, 25, 30, 35]);
        let late = |us: u64| (10..=22).contains(&us);
        assert_eq!(sent(late, 100), [10, 15, 20, 25, 30, 35, 40, 45]);
        // A late packet while it cools begins anew.
        let late = |us: u64| us == 10 || us == 27;
        assert_eq!(sent(late, 100), [10, 15, 20, 25, 30, 35, 40, 45, 50]);
    }

    #[test]
    fn above_least__is_relative_to_the_flow() {
        let mut flow = Flow::new();
        assert_eq!([50, 70, 40, 45].map(|ps| flow.above_least(ps)), [0, 20, 0, 5]);
    }

    #[test]
    fn of__the_oldest_of_a_full_set_goes() {
        let mut flows = Flows::new(4);
        for key in 1..=9 {
            flows.of(at(key), key).least_ps = key;
        }
        assert_eq!((flows.len(at(9)), flows.evicted()), (8, 1));
        assert_eq!(flows.of(at(10), 2).least_ps, 2);
        assert_eq!(flows.of(at(11), 1).least_ps, u64::MAX, "it was forgotten");
        assert_eq!(flows.of(at(12), 2).least_ps, 2, "it was seen since");
        assert_eq!(flows.evicted(), 2);
    }

    #[test]
    fn of__a_flow_that_paused_for_a_second_is_a_new_one() {
        let mut flows = Flows::new(4);
        flows.of(at(1), 5).least_ps = 0;
        assert_eq!((flows.of(at(1_000_000), 5).least_ps, flows.len(at(1_999_999))), (0, 1));
        assert_eq!(flows.len(at(2_000_000)), 0);
        assert_eq!(flows.of(at(2_000_000), 5).least_ps, u64::MAX);
        assert_eq!((flows.len(at(2_000_000)), flows.evicted()), (1, 0));
    }
}
