//! Request and response between hosts that respond late: descheduled or asleep.

use crate::WcStatus;
use crate::testing::{Fate, Op, Pair, PairConfig};
use spanwire_base::{Dur, Rng, Time};

const CALL: usize = 64;
const RECEIVED: u64 = 1;
const SENT: u64 = 2;

/// Distribution of the time for which a host is inactive after a step.
type Absence = Box<dyn FnMut(&mut Rng) -> Dur>;

/// A client at side 0 that calls a server at side 1 repeatedly.
struct Calls {
    pair: Pair,
    absence: Absence,
    rng: Rng,
    /// End of each host's inactivity.
    back: [Time; 2],
}

impl Calls {
    fn new(absence: impl FnMut(&mut Rng) -> Dur + 'static) -> Self {
        let mut pair = Pair::with(&PairConfig::sr());
        for side in [0, 1] {
            // Enough receive requests that no call waits for one.
            (0..32).for_each(|_| pair.post_recv(side, RECEIVED, 0, CALL));
        }
        let (absence, rng) = (Box::new(absence), Rng::new(17));
        Self { pair, absence, rng, back: [Time::ZERO; 2] }
    }

    /// One request and its response. Returns the elapsed time.
    fn call(&mut self) -> Dur {
        let begin = self.pair.now;
        for (from, to) in [(0, 1), (1, 0)] {
            self.pair.post_recv(to, RECEIVED, 0, CALL);
            self.pair.post(from, SENT, Op::Send, 0, CALL);
            self.pair.step(from);
            while !self.take(to) {
                self.step();
            }
        }
        self.pair.now.since(begin)
    }

    /// A call has arrived at this side.
    fn take(&mut self, side: usize) -> bool {
        let wcs = std::mem::take(&mut self.pair.ends[side].wcs);
        assert!(wcs.iter().all(|wc| wc.status == WcStatus::Success), "{wcs:?}");
        wcs.iter().any(|wc| wc.wr_id == RECEIVED)
    }

    /// Processes the next event: an active host handles arrived frames, or a timer expires.
    fn step(&mut self) {
        let event = |side: usize| {
            self.pair.ends[side].next_event().map(|at| (at.max(self.back[side]), side))
        };
        let (at, side) = [0, 1].into_iter().filter_map(event).min().expect("a call ends");
        self.pair.now = self.pair.now.max(at);
        self.pair.step(side);
        self.back[side] = self.pair.now + (self.absence)(&mut self.rng);
    }

    fn probes(&self) -> u64 {
        self.pair.ends.iter().map(|end| end.ep.counters().tail_loss_probes).sum()
    }
}

/// Once in a hundred steps 30, 60, 120, 240, 480 or 960 us, each half as often as the previous;
/// otherwise up to 2 us. The RTT is 10 us.
fn now_and_then(rng: &mut Rng) -> Dur {
    if !rng.per_million(10_000) {
        return Dur::from_ns(rng.below(2000));
    }
    let mut absence = Dur::from_us(30);
    while absence < Dur::from_us(960) && rng.per_million(500_000) {
        absence = absence * 2;
    }
    absence
}

#[test]
fn handle_timeout__a_slow_host_is_probed_less_than_once_in_a_thousand_calls() {
    let mut calls = Calls::new(now_and_then);
    for _ in 0..20_000 {
        calls.call();
    }
    let retransmitted = |side: usize| calls.pair.ends[side].ep.counters().retransmitted_packets;
    assert!(calls.probes() <= 20, "{} probes in 20,000 calls", calls.probes());
    assert!(retransmitted(0) + retransmitted(1) <= 20, "nothing was lost");
}

#[test]
fn handle_timeout__a_lost_tail_is_probed_without_extra_delay_between_fast_hosts() {
    let mut calls = Calls::new(|rng| Dur::from_ns(rng.below(2000)));
    let mut sent = 0;
    calls.pair.filter = Box::new(move |_, _| {
        sent += 1;
        // An odd number, so that requests, responses, ACKs and probes are all affected.
        if sent % 37 == 36 { Fate::Drop } else { Fate::Pass }
    });
    let mut took: Vec<Dur> = (0..20_000).map(|_| calls.call()).collect();
    took.sort();
    assert!(calls.probes() > 500, "{}", calls.probes());
    // A loss costs one probe timeout, slightly more than two RTTs.
    let slow = took.iter().filter(|took| **took > Dur::from_us(60)).count();
    assert!(slow <= 20, "{slow}: {:?}", &took[20_000 - slow.min(30)..]);
}
