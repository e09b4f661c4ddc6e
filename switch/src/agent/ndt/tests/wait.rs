//! How long packets wait.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// A packet in a queue of the model of a port.
struct Waiting {
    placement: Placement,
    flow: u8,
    psn: u32,
    came: u64,
    /// The microsecond in which it leaves at the latest.
    latest: u64,
}

/// A port that sends a packet in each microsecond, in turns of `weight` packets of the normal queue
/// and one of the controlled queue.
struct Bed {
    ndt: Ndt,
    queues: [VecDeque<Waiting>; 2],
    is_held: bool,
    turn: u32,
    weight: u32,
    /// Acknowledgements by the microsecond in which they arrive: flow and PSN.
    acks: Vec<(u64, u8, u32)>,
    psns: [u32; 8],
}

impl Bed {
    fn note(&mut self, change: Option<bool>) {
        self.is_held = change.unwrap_or(self.is_held);
    }

    fn timers(&mut self, us: u64) {
        while self.ndt.poll_timeout().is_some_and(|due| due <= at(us)) {
            let effects = self.ndt.handle_timeout(at(us), |_| QueueView::default());
            self.note(held(&effects));
        }
    }

    fn come(&mut self, us: u64, flow: u8, most_pause: u64) {
        let psn = self.psns[usize::from(flow)];
        self.psns[usize::from(flow)] += 1;
        let (placement, change) = come_held(&mut self.ndt, us, flow, psn);
        self.note(change);
        let [normal, controlled] = &mut self.queues;
        // Those that stand before it, each with a whole turn of the other queue; and older ones of
        // its flow in the normal queue.
        let before = (u64_from(controlled.len()) + 1) * u64::from(self.weight + 1);
        let latest = us + most_pause + before + u64_from(normal.len()) + 1;
        let packet = Waiting { placement, flow, psn, came: us, latest };
        if placement.queue.is_some() { controlled } else { normal }.push_back(packet);
    }

    /// Sends one packet, whose acknowledgement comes after `trip`.
    fn send(&mut self, us: u64, trip: u64) -> Result<(), TestCaseError> {
        let can = [!self.queues[0].is_empty(), !self.queues[1].is_empty() && !self.is_held];
        let queue = match can {
            [false, false] => return Ok(()),
            [true, false] => 0,
            [false, true] => 1,
            [true, true] => usize::from(self.turn >= self.weight),
        };
        self.turn = if queue == 0 { self.turn + 1 } else { 0 };
        let packet = self.queues[queue].pop_front().expect("it has one");
        if queue == 1 {
            prop_assert!(us <= packet.latest, "{us}, not {} of {}", packet.latest, packet.came);
        }
        let sr = Some(SrData { psn: packet.psn, sent_ps: 0 });
        let (tag, arrived_at) = (packet.placement.tag, at(packet.came));
        let queue = packet.placement.queue.unwrap_or(0);
        let leaving = Departing { port: 1, queue, tag, arrived_at, bytes: 1000, sr };
        let effects = self.ndt.on_departure(at(us), &leaving);
        self.note(held(&effects));
        self.acks.push((us + trip, packet.flow, packet.psn));
        Ok(())
    }

    fn acks(&mut self, us: u64) {
        let (due, later) = self.acks.iter().partition(|ack| ack.0 <= us);
        self.acks = later;
        let due: Vec<(u64, u8, u32)> = due;
        for (_, flow, psn) in due {
            let change = acknowledge(&mut self.ndt, us, flow, psn, 0);
            self.note(change);
        }
    }
}

proptest! {
    /// No packet waits longer than one pause and those that stood before it, however long receivers
    /// stay congested.
    #[test]
    fn wait__is_one_pause_and_those_before(
        steps in prop::collection::vec((0_u8..8, 0_u64..4, 1_u64..40), 50..400),
        weight in 1_u32..9,
        most_pause in 1_u64..200,
        scope in prop::sample::select(vec![PauseScope::Port, PauseScope::Switch]),
        probe in any::<bool>(),
    ) {
        let ndt = ndt(|config| {
            (config.weight, config.pause_scope, config.pause_probe) = (weight, scope, probe);
            config.max_pause = Dur::from_us(most_pause);
            config.pause_round = PauseRound::Held;
        });
        let queues = [VecDeque::new(), VecDeque::new()];
        let psns = [0; 8];
        let mut bed = Bed { ndt, queues, is_held: false, turn: 0, weight, acks: Vec::new(), psns };
        let mut us = 10;
        for (flow, burst, trip) in steps {
            bed.timers(us);
            bed.acks(us);
            (0..burst).for_each(|_| bed.come(us, flow, most_pause));
            bed.send(us, trip)?;
            us += 1;
        }
        // All leave.
        for _ in 0..20_000 {
            bed.timers(us);
            bed.acks(us);
            bed.send(us, 30)?;
            us += 1;
            if bed.queues.iter().all(VecDeque::is_empty) {
                break;
            }
        }
        prop_assert!(bed.queues.iter().all(VecDeque::is_empty), "packets stay");
    }
}
