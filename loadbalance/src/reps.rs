//! REPS: recycling of the entropies of unmarked acknowledgements.
//!
//! A ring holds the last entropies. Each unmarked acknowledgement adds its own, each packet removes
//! the oldest, and without one it draws: so load moves away from congested and dead paths. After a
//! sign of failure the ring freezes: for a while packets cycle through the ring, used entropies or
//! not, since a random entropy could select a failed link.
//!
//! # Source
//! Bonato et al., "REPS: Recycled Entropy Packet Spraying for Adaptive Load Balancing and Failure
//! Mitigation", and htsim's `buffer_reps`. There the ring freezes only in a network with packet
//! trimming; here timeouts and losses freeze it.

use crate::params::params;
use crate::pool::Pool;
use crate::rtt::Rtt;
use crate::{Entropy, Flow, LoadBalancer, Outgoing, PathAck, PathLoss, Pick};
use spanwire_base::{Dur, Rng, Time, usize_from};

params! {
    /// Parameters of REPS.
    struct Params of u64;
    /// Entropies in the ring.
    ///
    /// htsim: 8.
    ring = 8 in 1..=256;
    /// Duration of a freeze in microseconds.
    ///
    /// htsim: 10 ms.
    freeze_us = 10000 in 1..=10000000;
    /// Losses within a round trip that freeze the ring, as a timeout does; 0: timeouts only.
    freeze_losses = 3 in 0..=1000;
    /// Packets with random entropies after a freeze.
    ///
    /// htsim: 16.
    explore = 16 in 0..=10000;
    /// Number of paths to draw from.
    entropies = 16384 in 1..=16384;
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Reps {
    p: Params,
    rng: Rng,
    pool: Pool,
    ring: Box<[Recycled]>,
    /// The next slot to write: the oldest one, once all slots are in use.
    head: usize,
    /// Slots in use since the ring was cleared.
    filled: usize,
    /// The next slot to read while frozen.
    turn: usize,
    frozen_until: Option<Time>,
    explore: u64,
    base_rtt: Option<Dur>,
    rtt: Rtt,
    lost_since: Time,
    lost: u64,
}

/// An entropy, and the number of packets that may still use it.
#[derive(Clone, Copy, Debug, Default)]
struct Recycled {
    path: Entropy,
    uses: u32,
}

impl Reps {
    /// The policy of one flow.
    #[must_use]
    pub fn new(params: &Params, flow: &Flow) -> Self {
        let mut rng = Rng::new(flow.seed);
        let pool = Pool::new(params.entropies, &mut rng);
        Self {
            p: *params,
            rng,
            pool,
            ring: vec![Recycled::default(); usize_from(params.ring.max(1))].into(),
            head: 0,
            filled: 0,
            turn: 0,
            frozen_until: None,
            explore: 0,
            base_rtt: flow.base_rtt,
            rtt: Rtt::default(),
            lost_since: Time::ZERO,
            lost: 0,
        }
    }

    /// Ends an expired freeze.
    fn thaw(&mut self, now: Time) {
        if self.frozen_until.is_some_and(|until| now >= until) {
            self.frozen_until = None;
            (self.head, self.filled, self.turn) = (0, 0, 0);
            self.ring.fill(Recycled::default());
            self.explore = self.p.explore;
        }
    }

    fn freeze(&mut self, now: Time) {
        if self.explore == 0 && self.frozen_until.is_none() {
            self.frozen_until = Some(now + Dur::from_us(self.p.freeze_us));
            self.turn = 0;
        }
    }

    /// A random path other than `but`, if there is one.
    fn draw(&mut self, but: Option<Entropy>) -> Entropy {
        let other = self.pool.draw_fitting(&mut self.rng, |path| but != Some(path));
        other.unwrap_or_else(|| self.pool.draw(&mut self.rng))
    }

    /// The next path of the ring; none if it is empty or the policy explores.
    fn next(&mut self) -> Option<Entropy> {
        if self.explore > 0 {
            self.explore -= 1;
            return None;
        }
        if self.filled == 0 {
            return None;
        }
        let oldest = if self.filled == self.ring.len() { self.head } else { 0 };
        if self.frozen_until.is_some() {
            let at = (oldest + self.turn) % self.filled;
            self.turn = (self.turn + 1) % self.filled;
            return Some(self.ring[at].path);
        }
        let mut places = (oldest..self.filled).chain(0..oldest);
        let at = places.find(|at| self.ring[*at].uses > 0)?;
        self.ring[at].uses -= 1;
        Some(self.ring[at].path)
    }
}

impl LoadBalancer for Reps {
    fn pick(&mut self, out: &Outgoing) -> Pick {
        self.thaw(out.now);
        let path = self.next().filter(|path| out.lost_on != Some(*path));
        path.unwrap_or_else(|| self.draw(out.lost_on)).into()
    }

    fn on_ack(&mut self, now: Time, ack: &PathAck) {
        self.thaw(now);
        if let Some(rtt) = ack.rtt {
            self.rtt.sample(rtt);
        }
        if ack.marked > 0 || ack.packets == 0 {
            return;
        }
        self.ring[self.head] = Recycled { path: ack.path, uses: ack.packets };
        self.filled = self.filled.max(self.head + 1);
        self.head = (self.head + 1) % self.ring.len();
    }

    fn on_loss(&mut self, now: Time, loss: &PathLoss) {
        self.thaw(now);
        for recycled in self.ring.iter_mut().filter(|recycled| recycled.path == loss.path) {
            recycled.uses = 0;
        }
        let rtt = self.rtt.smoothed().or(self.base_rtt).unwrap_or(Dur::ZERO);
        if now > self.lost_since + rtt {
            (self.lost_since, self.lost) = (now, 0);
        }
        self.lost += u64::from(loss.packets);
        if self.p.freeze_losses > 0 && self.lost >= self.p.freeze_losses {
            self.freeze(now);
        }
    }

    fn on_timeout(&mut self, now: Time) {
        self.thaw(now);
        self.freeze(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{acked, at, data, flow, lost, retransmission};

    fn reps(ring: u64) -> Reps {
        Reps::new(&Params { ring, ..Params::default() }, &flow(1))
    }

    fn good(reps: &mut Reps, bits: u16) {
        reps.on_ack(at(1), &acked(Entropy::new(bits), at(0), 100));
    }

    fn pick(reps: &mut Reps, now: Time) -> u16 {
        reps.pick(&data(now, 0)).entropy.bits()
    }

    #[test]
    fn pick__recycles_freezes_and_explores() {
        let mut reps = reps(4);
        good(&mut reps, 7);
        good(&mut reps, 3);
        let nine = Entropy::new(9);
        reps.on_ack(at(1), &PathAck { marked: 1, ..acked(nine, at(0), 100) });
        assert_eq!([pick(&mut reps, at(2)), pick(&mut reps, at(2))], [7, 3]);
        let drawn = pick(&mut reps, at(2));
        assert!(![3, 7, 9].contains(&drawn), "{drawn} is a random one of 16384");
        reps.on_timeout(at(10));
        reps.on_timeout(at(5_000));
        let frozen: Vec<u16> = (0..4).map(|_| pick(&mut reps, at(10_009))).collect();
        assert_eq!(frozen, [7, 3, 7, 3]);
        good(&mut reps, 5);
        assert_eq!(pick(&mut reps, at(10_009)), 7, "an unmarked entropy joins the cycle");
        let mut explored: Vec<u16> = (0..16).map(|_| pick(&mut reps, at(10_010))).collect();
        good(&mut reps, 8);
        assert_eq!(pick(&mut reps, at(10_011)), 8, "then recycling resumes");
        explored.extend([3, 7, 5, 8]);
        explored.sort_unstable();
        explored.dedup();
        assert_eq!(explored.len(), 20, "drawn");
    }

    #[test]
    fn pick__takes_the_oldest_after_the_ring_wrapped() {
        let mut reps = reps(2);
        for bits in [1, 2, 3] {
            good(&mut reps, bits);
        }
        assert_eq!([pick(&mut reps, at(2)), pick(&mut reps, at(2))], [2, 3]);
    }

    #[test]
    fn on_ack__of_several_packets_recycles_for_as_many() {
        let mut reps = reps(8);
        let seven = Entropy::new(7);
        reps.on_ack(at(1), &PathAck { packets: 3, ..acked(seven, at(0), 100) });
        let picks: Vec<u16> = (0..4).map(|_| pick(&mut reps, at(2))).collect();
        assert_eq!(picks[..3], [7, 7, 7]);
        assert_ne!(picks[3], 7);
    }

    #[test]
    fn on_loss__three_in_a_round_trip_freeze_and_two_do_not() {
        let mut reps = reps(4);
        good(&mut reps, 7);
        let elsewhere = Entropy::new(1);
        reps.on_loss(at(200), &lost(elsewhere, 2, at(100)));
        assert_eq!(pick(&mut reps, at(200)), 7);
        assert_ne!(pick(&mut reps, at(200)), 7, "no uses are left");
        reps.on_loss(at(301), &lost(elsewhere, 2, at(200)));
        assert!(reps.frozen_until.is_none(), "another round trip");
        reps.on_loss(at(401), &lost(elsewhere, 1, at(300)));
        assert_eq!(pick(&mut reps, at(401)), 7);
    }

    #[test]
    fn on_loss__a_retransmission_avoids_the_path_of_the_loss() {
        let mut reps = reps(4);
        good(&mut reps, 7);
        good(&mut reps, 3);
        reps.on_loss(at(2), &lost(Entropy::new(7), 1, at(0)));
        assert_eq!(pick(&mut reps, at(2)), 3);
        good(&mut reps, 5);
        assert_ne!(reps.pick(&retransmission(at(2), 0, Entropy::new(5))).entropy, Entropy::new(5));
    }

    #[test]
    fn on_timeout__while_it_explores_does_not_freeze() {
        let mut reps = reps(4);
        good(&mut reps, 7);
        reps.on_timeout(at(10));
        pick(&mut reps, at(10_010));
        reps.on_timeout(at(10_011));
        assert!(reps.frozen_until.is_none());
    }
}
