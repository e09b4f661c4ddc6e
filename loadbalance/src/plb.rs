//! PLB (protective load balancing): one path, replaced when it stays congested or is silent.
//!
//! A round trip with enough CE-marked (or late) packets is congested. After enough consecutive
//! congested rounds the flow reroutes to a random path. An idle flow reroutes after fewer, since
//! that reorders nothing. After a timeout it reroutes at once. It then ignores congestion for a
//! while, as it would otherwise alternate between the congested paths around a failure.
//!
//! # Source
//! Qureshi et al., "PLB: Congestion Signals are Simple and Effective for Network Load Balancing",
//! SIGCOMM 2022; Linux's `tcp_plb`; the preset `plb-uno` is the one that Uno compares with.

use crate::params::params;
use crate::pool::Pool;
use crate::rtt::Rtt;
use crate::{Entropy, Flow, LoadBalancer, Outgoing, PathAck, PathLoss, PathState, Pick, Round};
use spanwire_base::{Dur, Rng, Time};

params! {
    /// Parameters of PLB.
    struct Params of u64;
    /// Part of CE-marked packets from which a round counts as congested, in 256ths.
    ///
    /// Linux: 128.
    congested_256 = 128 in 1..=256;
    /// Congestion signal: CE-marked packets, or acknowledgements later than `delay_us`.
    signal = 0 of "ecn" | "delay";
    /// Queueing delay in microseconds above which an acknowledgement is late.
    delay_us = 50 in 0..=1000000;
    /// Consecutive congested rounds before a reroute.
    ///
    /// Linux: 12, Uno: 2.
    rounds = 3 in 1..=1000;
    /// Consecutive congested rounds before a reroute if nothing is in flight.
    ///
    /// Linux: 3.
    idle_rounds = 1 in 1..=1000;
    /// Suspension of reroutes for congestion after a timeout, in milliseconds, times 1 to 2.
    ///
    /// Linux: 60000.
    suspend_ms = 0 in 0..=3600000;
    /// The same in retransmission timeouts; the longer one applies.
    suspend_rtos = 10 in 0..=1000;
    /// Packet loss reroutes as well; loss and timeouts together at most once per timeout.
    ///
    /// True in Uno; Linux reroutes only for timeouts.
    on_loss = false;
    /// Number of paths to draw from.
    ///
    /// Uno: 250.
    entropies = 16384 in 1..=16384;
}

impl Params {
    /// The parameters of Linux.
    #[must_use]
    pub fn linux() -> Self {
        let (rounds, idle_rounds) = (12, 3);
        Self { rounds, idle_rounds, suspend_ms: 60_000, suspend_rtos: 0, ..Self::default() }
    }

    /// The parameters of Uno's experiments: a quarter marked in two rounds, and each loss.
    #[must_use]
    pub fn uno() -> Self {
        Self {
            congested_256: 64,
            rounds: 2,
            idle_rounds: 2,
            suspend_rtos: 0,
            on_loss: true,
            entropies: 250,
            ..Self::default()
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Plb {
    p: Params,
    rng: Rng,
    pool: Pool,
    path: Entropy,
    base_rtt: Option<Dur>,
    rtt: Rtt,
    /// Consecutive congested rounds.
    rounds: u64,
    /// Acknowledgements in this round, and the late ones among them.
    acked: u64,
    late: u64,
    /// A loss or a timeout: reroute with the next packet, congested or not.
    must_reroute: bool,
    suspended_until: Time,
    rerouted_at: Option<Time>,
}

impl Plb {
    /// The policy of one flow.
    #[must_use]
    pub fn new(params: &Params, flow: &Flow) -> Self {
        let mut rng = Rng::new(flow.seed);
        let pool = Pool::new(params.entropies, &mut rng);
        let path = pool.draw(&mut rng);
        Self {
            p: *params,
            rng,
            pool,
            path,
            base_rtt: flow.base_rtt,
            rtt: Rtt::default(),
            rounds: 0,
            acked: 0,
            late: 0,
            must_reroute: false,
            suspended_until: Time::ZERO,
            rerouted_at: None,
        }
    }

    fn timeout(&self) -> Dur {
        self.rtt.timeout().or(self.base_rtt).unwrap_or(UNKNOWN_TIMEOUT)
    }

    fn has_just_rerouted(&self, now: Time) -> bool {
        self.rerouted_at.is_some_and(|at| now < at + self.timeout())
    }

    fn is_due(&self, out: &Outgoing) -> bool {
        let idle = out.in_flight_bytes == 0 && self.rounds >= self.p.idle_rounds;
        let congested = self.rounds >= self.p.rounds || idle;
        self.must_reroute || (congested && out.now >= self.suspended_until)
    }

    /// Reroutes and returns the old path. Returns none if there is no other path.
    fn leave(&mut self, now: Time) -> Option<Entropy> {
        (self.rounds, self.must_reroute) = (0, false);
        let old = self.path;
        self.path = self.pool.draw_fitting(&mut self.rng, |path| path != old)?;
        self.rerouted_at = Some(now);
        Some(old)
    }
}

impl LoadBalancer for Plb {
    fn pick(&mut self, out: &Outgoing) -> Pick {
        let replaced = if self.is_due(out) { self.leave(out.now) } else { None };
        Pick { entropy: self.path, replaced }
    }

    fn on_ack(&mut self, _now: Time, ack: &PathAck) {
        let Some(rtt) = ack.rtt else { return };
        self.rtt.sample(rtt);
        self.acked += 1;
        let base = self.base_rtt.or(self.rtt.min()).unwrap_or(rtt);
        // The delay of the hosts is none of the path.
        let limit = base + Dur::from_us(self.p.delay_us) + ack.host_delay;
        self.late += u64::from(rtt > limit);
    }

    fn on_loss(&mut self, now: Time, loss: &PathLoss) {
        if self.p.on_loss && loss.path == self.path && !self.has_just_rerouted(now) {
            self.must_reroute = true;
        }
    }

    fn on_timeout(&mut self, now: Time) {
        // The silent path may be the one that a loss has just made the flow leave.
        self.must_reroute |= !self.p.on_loss || !self.has_just_rerouted(now);
        self.rounds = 0;
        let rtos = self.timeout() * self.p.suspend_rtos;
        let least = Dur::from_ms(self.p.suspend_ms).max(rtos).as_ps();
        let more = self.rng.below(least.saturating_add(1));
        self.suspended_until = now + Dur::from_ps(least.saturating_add(more));
    }

    fn on_round(&mut self, _now: Time, round: &Round) {
        let (all, bad) = match self.p.signal {
            DELAY => (self.acked, self.late),
            _ => (round.acked, round.marked),
        };
        (self.acked, self.late) = (0, 0);
        if all == 0 {
            return;
        }
        let congested = u128::from(bad) * 256 >= u128::from(all) * u128::from(self.p.congested_256);
        self.rounds = if congested { self.rounds + 1 } else { 0 };
    }

    fn is_single_path(&self) -> bool {
        true
    }

    fn state(&self, _now: Time, path: Entropy) -> Option<PathState> {
        match (path == self.path, self.must_reroute) {
            (false, _) => Some(PathState::Retired),
            (true, true) => Some(PathState::Bad),
            (true, false) => None,
        }
    }
}

const DELAY: u64 = 1;
/// The retransmission timeout while no round trip is known.
const UNKNOWN_TIMEOUT: Dur = Dur::from_ms(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{acked, at, data, flow, lost};

    fn plb(params: Params) -> Plb {
        Plb::new(&params, &flow(1))
    }

    /// Ends `n` rounds of a thousand packets, `marked` of them marked.
    fn rounds(plb: &mut Plb, n: u64, marked: u64) {
        for _ in 0..n {
            plb.on_round(at(0), &Round { acked: 1000, marked });
        }
    }

    fn moves(plb: &mut Plb, now: Time) -> bool {
        let before = plb.path;
        let pick = plb.pick(&data(now, 0));
        assert_eq!(pick.replaced.is_some(), pick.entropy != before);
        pick.replaced.is_some()
    }

    #[test]
    fn on_round__linux_moves_at_the_twelfth_congested_round_in_a_row() {
        let mut plb = plb(Params::linux());
        rounds(&mut plb, 11, 600);
        assert!(!moves(&mut plb, at(1)));
        rounds(&mut plb, 1, 400);
        assert!(!moves(&mut plb, at(2)) && plb.rounds == 0);
        rounds(&mut plb, 11, 500);
        plb.on_round(at(2), &Round { acked: 0, marked: 0 });
        assert!(!moves(&mut plb, at(3)), "a round without packets does not count");
        rounds(&mut plb, 1, 500);
        assert!(moves(&mut plb, at(4)) && plb.rounds == 0);
        assert!(!moves(&mut plb, at(5)), "once");
    }

    #[test]
    fn on_round__uno_moves_at_the_second_with_a_quarter_marked() {
        let mut plb = plb(Params::uno());
        rounds(&mut plb, 1, 250);
        assert!(!moves(&mut plb, at(1)));
        rounds(&mut plb, 1, 250);
        assert!(moves(&mut plb, at(2)));
        rounds(&mut plb, 9, 249);
        assert!(!moves(&mut plb, at(3)));
    }

    #[test]
    fn on_round__by_delay_counts_late_acknowledgements() {
        let mut plb = plb(Params { signal: DELAY, rounds: 1, ..Params::default() });
        for rtt_us in [140, 151, 150, 149] {
            plb.on_ack(at(1), &acked(plb.path, at(0), rtt_us));
        }
        rounds(&mut plb, 1, 1000);
        assert!(!moves(&mut plb, at(1)), "one of four is late");
        for rtt_us in [151, 140] {
            plb.on_ack(at(1), &acked(plb.path, at(0), rtt_us));
        }
        rounds(&mut plb, 1, 0);
        assert!(moves(&mut plb, at(1)), "half are late");
    }

    #[test]
    fn pick__an_idle_flow_reroutes_after_fewer_rounds() {
        let mut plb = plb(Params::linux());
        rounds(&mut plb, 3, 600);
        assert!(!moves(&mut plb, at(1)));
        assert!(plb.pick(&Outgoing { in_flight_bytes: 0, ..data(at(2), 0) }).replaced.is_some());
    }

    #[test]
    fn on_timeout__reroutes_at_once_then_suspends_for_once_to_twice_the_time() {
        for seed in 0..50 {
            let mut plb = Plb::new(&Params::linux(), &flow(seed));
            rounds(&mut plb, 11, 600);
            plb.on_timeout(at(0));
            assert!(moves(&mut plb, at(0)) && plb.rounds == 0);
            rounds(&mut plb, 20, 600);
            assert!(!moves(&mut plb, at(59_999_999)));
            assert!(moves(&mut plb, at(120_000_001)));
            plb.on_timeout(at(120_000_002));
            assert!(moves(&mut plb, at(120_000_002)), "a timeout reroutes even then");
        }
    }

    #[test]
    fn on_loss__reroutes_uno_at_most_once_in_a_timeout() {
        let mut plb = plb(Params::uno());
        // Smoothed 100 us, deviation 50 us: 300 us.
        plb.on_ack(at(100), &acked(plb.path, at(0), 100));
        plb.on_loss(at(110), &lost(plb.path, 1, at(0)));
        assert!(moves(&mut plb, at(110)));
        plb.on_loss(at(409), &lost(plb.path, 1, at(300)));
        assert!(!moves(&mut plb, at(409)));
        plb.on_loss(at(410), &lost(Entropy::new(plb.path.bits() + 1), 1, at(300)));
        assert!(!moves(&mut plb, at(410)), "a loss on the old path");
        plb.on_loss(at(411), &lost(plb.path, 1, at(300)));
        plb.on_timeout(at(411));
        assert!(moves(&mut plb, at(411)));
        rounds(&mut plb, 1, 1000);
        plb.on_timeout(at(710));
        assert_eq!(plb.rounds, 0);
        assert!(!moves(&mut plb, at(710)), "a timeout of the old path");
        plb.on_timeout(at(711));
        assert!(moves(&mut plb, at(711)));
        let mut linux = Plb::new(&Params::linux(), &flow(1));
        linux.on_loss(at(1), &lost(linux.path, 9, at(0)));
        assert!(!moves(&mut linux, at(1)));
    }

    #[test]
    fn leave__keeps_a_single_path() {
        let mut plb = plb(Params { entropies: 1, ..Params::default() });
        plb.on_timeout(at(1));
        assert!(!moves(&mut plb, at(1)));
    }
}
