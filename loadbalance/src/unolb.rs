//! UnoLB: a few paths in turn, so that the packets of a block take different ones; a dead one is
//! replaced.
//!
//! The packet with number `p` belongs to subflow `p mod n`. Blocks of an erasure code have
//! consecutive numbers, so the packets of a block of at most `n` take `n` paths, whatever was sent
//! again in between. A packet that is sent again takes the next subflow that is alive, not the one
//! on which it was lost, and if there is one, one that has brought something sent after what was
//! lost: of the paths that share a dead link, some look alive for a moment longer.
//!
//! # When a path is left
//! A subflow is *suspect* when packets were lost on it and none that was sent after the first of
//! them has arrived: a loss at random is followed by arrivals and comes to nothing. It is *bad*
//! when it is suspect and
//! - `lost_in_row` packets were lost in a row (half as many on a path that never brought one), or
//! - it is silent: something is on its way, and an acknowledgement has been due for longer than
//!   half a base round trip and three times the time between its packets. One is due a round trip
//!   after its packet left, so nothing is silent in its first round trip or after idle.
//!
//! A bad subflow takes another path with its next packet, at most once a base round trip: a fresh
//! one, which none uses and which is not remembered as dead. A path is remembered for `avoid_ms`,
//! or until something arrives of it that was sent since; and only if another path brought
//! something meanwhile: when nothing comes back of any, no path is to blame. A timeout counts as a
//! loss on each subflow that something is on its way of, beside the losses that come with it.
//!
//! # Source
//! Uno, section 4.2 and algorithm 2. As printed a subflow takes the path of another that
//! acknowledgements came from (`reroute=copy`); the authors' code draws a fresh one, as we do,
//! since a copy puts two packets of a block on one path. There the turn advances with
//! retransmissions, too, and blocks drift against subflows.

mod dead;
mod subflow;

use crate::params::params;
use crate::pool::Pool;
use crate::rtt::Rtt;
use crate::{Entropy, Flow, LoadBalancer, Outgoing, PathAck, PathLoss, PathState, Pick};
use dead::Dead;
use spanwire_base::{Dur, Rng, Time, u64_from, usize_from};
use std::collections::VecDeque;
use subflow::{Limits, Subflow};

params! {
    /// How many paths, and when one is left.
    struct Params of u64;
    /// Paths in use at a time; as many as packets in a block, so that each takes its own.
    ///
    /// Uno: 10, for blocks of 8 and 2.
    subflows = 10 in 1..=32;
    /// What a bad subflow takes: a fresh path, or a copy of one that acknowledgements come from.
    ///
    /// Uno prints the copy; the authors' code draws.
    reroute = 0 of "fresh" | "copy";
    /// So many packets lost in a row are a dead path.
    ///
    /// At 1 % loss at random, one packet in 10^8.
    lost_in_row = 4 in 1..=1000;
    /// A dead path is not drawn again for so many milliseconds.
    avoid_ms = 10000 in 0..=3600000;
    /// So many paths to draw from.
    ///
    /// The authors' code: 250.
    entropies = 16384 in 1..=16384;
}

/// See the module.
#[derive(Clone, Debug)]
pub struct UnoLb {
    p: Params,
    rng: Rng,
    pool: Pool,
    base_rtt: Option<Dur>,
    /// Round trips of all paths.
    rtt: Rtt,
    subflows: Box<[Subflow]>,
    dead: Dead,
    /// What subflows have left last, as many as there are: a block of which some packets took one
    /// of these is to take it no second time.
    left: VecDeque<Entropy>,
    /// When something was last heard of any path.
    heard_at: Option<Time>,
    /// When the packet left that was sent latest of those that were lost.
    lost_at: Option<Time>,
    /// The subflow that the next retransmission tries first.
    detour: usize,
}

impl UnoLb {
    /// A flow's.
    #[must_use]
    pub fn new(params: &Params, flow: &Flow) -> Self {
        let mut rng = Rng::new(flow.seed);
        let pool = Pool::new(params.entropies, &mut rng);
        let mut subflows: Vec<Subflow> = Vec::with_capacity(usize_from(params.subflows));
        for _ in 0..params.subflows.max(1) {
            let unused = |path| subflows.iter().all(|s| s.entropy != path);
            let path = pool.draw_fitting(&mut rng, unused);
            // Of fewer paths than subflows, some share.
            subflows.push(Subflow::new(path.unwrap_or_else(|| pool.draw(&mut rng))));
        }
        Self {
            p: *params,
            rng,
            pool,
            base_rtt: flow.base_rtt,
            rtt: Rtt::default(),
            subflows: subflows.into(),
            dead: Dead::new(),
            left: VecDeque::new(),
            heard_at: None,
            lost_at: None,
            detour: 0,
        }
    }

    fn base(&self) -> Dur {
        self.base_rtt.or(self.rtt.min()).unwrap_or(UNKNOWN_RTT)
    }

    fn limits(&self, subflow: &Subflow) -> Limits {
        let base = self.base();
        // A path that is not known yet may be as slow as the flow's.
        let rtt = subflow.rtt.smoothed().or(self.rtt.smoothed()).unwrap_or(base);
        let lost_in_row = u32::try_from(self.p.lost_in_row).unwrap_or(u32::MAX);
        Limits { rtt, base, lost_in_row }
    }

    fn is_bad(&self, now: Time, subflow: &Subflow) -> bool {
        subflow.is_bad(now, &self.limits(subflow))
    }

    /// Something comes back of it.
    fn is_alive(&self, now: Time, subflow: &Subflow) -> bool {
        subflow.heard_at.is_some()
            && !subflow.is_suspect()
            && !subflow.is_silent(now, &self.limits(subflow))
    }

    /// Which subflow sends a packet again: the next one alive of which something arrived that was
    /// sent after what was lost; it has outlived what the packet died of.
    fn other_way(&mut self, out: &Outgoing) -> usize {
        let own = self.own(out.psn);
        let n = self.subflows.len();
        let lost_on = out.lost_on.unwrap_or(self.subflows[own].entropy);
        let other = |at: &usize| self.subflows[*at].entropy != lost_on;
        let alive = |at: &usize| other(at) && self.is_alive(out.now, &self.subflows[*at]);
        let proven = |at: &usize| alive(at) && self.subflows[*at].arrived() > self.lost_at;
        let mut turn = (0..n).map(|step| (self.detour + step) % n);
        if let Some(at) = turn.clone().find(proven).or_else(|| turn.find(alive)) {
            self.detour = at + 1;
            return at;
        }
        // The one heard of last. Of several (at first, all) the one before its own: each subflow's
        // losses take another.
        let others = (0..n).filter(other);
        others.max_by_key(|at| (self.subflows[*at].heard_at, (n + at - own) % n)).unwrap_or(own)
    }

    /// The subflow of a packet that is sent for the first time.
    fn own(&self, psn: u64) -> usize {
        usize_from(psn % u64_from(self.subflows.len()))
    }

    /// Gives a bad subflow another path; the one it leaves.
    fn reroute(&mut self, now: Time, at: usize) -> Option<Entropy> {
        let subflow = &self.subflows[at];
        let recently = subflow.moved_at.is_some_and(|moved| now < moved + self.base());
        if recently || !self.is_bad(now, subflow) {
            return None;
        }
        let (old, since) = (subflow.entropy, subflow.lost_from());
        if self.heard_at > subflow.heard_at {
            self.dead.add(old, since, now + Dur::from_ms(self.p.avoid_ms));
        }
        let new = if self.p.reroute == COPY { self.copy(now) } else { None };
        let new = new.or_else(|| self.fresh(now, old))?;
        self.subflows[at].move_to(new, now);
        if self.left.len() == self.subflows.len() {
            self.left.pop_front();
        }
        self.left.push_back(old);
        Some(old)
    }

    /// The path of a random subflow that acknowledgements come from.
    fn copy(&mut self, now: Time) -> Option<Entropy> {
        let count = self.alive(now).count();
        let nth = self.rng.below(u64_from(count.max(1)));
        self.alive(now).nth(usize_from(nth)).map(|s| s.entropy)
    }

    fn alive(&self, now: Time) -> impl Iterator<Item = &Subflow> {
        self.subflows.iter().filter(move |s| self.is_alive(now, s))
    }

    /// A path that nobody uses, or has just left, and that is not known to be dead; if there is
    /// none, one that is another.
    fn fresh(&mut self, now: Time, old: Entropy) -> Option<Entropy> {
        let used = |path| self.subflows.iter().any(|s| s.entropy == path);
        let rng = &mut self.rng;
        let fits = |path| !used(path) && !self.dead.has(path, now);
        let unused = self.pool.draw_fitting(rng, |path| fits(path) && !self.left.contains(&path));
        let unused = unused.or_else(|| self.pool.draw_fitting(rng, fits));
        let shared = |rng: &mut Rng| {
            self.pool.draw_fitting(rng, |path| path != old && !self.dead.has(path, now))
        };
        let any = |rng: &mut Rng| self.pool.draw_fitting(rng, |path| path != old);
        unused.or_else(|| shared(rng)).or_else(|| any(rng))
    }
}

impl LoadBalancer for UnoLb {
    fn pick(&mut self, out: &Outgoing) -> Pick {
        let at = if out.retransmit { self.other_way(out) } else { self.own(out.psn) };
        let left = self.reroute(out.now, at);
        let rtt = self.limits(&self.subflows[at]).rtt;
        let subflow = &mut self.subflows[at];
        subflow.on_sent(out.now, rtt);
        Pick { entropy: subflow.entropy, left }
    }

    fn on_ack(&mut self, now: Time, ack: &PathAck) {
        self.heard_at = Some(now);
        if let Some(rtt) = ack.rtt {
            self.rtt.sample(rtt);
        }
        self.dead.on_ack(ack);
        for subflow in self.subflows.iter_mut().filter(|s| s.entropy == ack.path) {
            subflow.on_ack(now, ack);
        }
    }

    fn on_loss(&mut self, _now: Time, loss: &PathLoss) {
        self.lost_at = self.lost_at.max(Some(loss.sent_at));
        for subflow in self.subflows.iter_mut().filter(|s| s.entropy == loss.path) {
            subflow.on_loss(loss);
        }
    }

    fn on_timeout(&mut self, _now: Time) {
        for subflow in &mut self.subflows {
            subflow.on_timeout();
        }
    }

    fn is_single_path(&self) -> bool {
        self.subflows.len() == 1
    }

    fn state(&self, now: Time, path: Entropy) -> Option<PathState> {
        let Some(subflow) = self.subflows.iter().find(|s| s.entropy == path) else {
            let dead = self.dead.has(path, now);
            return Some(if dead { PathState::Bad } else { PathState::Retired });
        };
        Some(match (self.is_bad(now, subflow), subflow.is_suspect()) {
            (true, _) => PathState::Bad,
            (false, true) => PathState::Suspect,
            (false, false) => PathState::Live,
        })
    }
}

const COPY: u64 = 1;
/// The base round trip while none is known.
const UNKNOWN_RTT: Dur = Dur::from_ms(1);

#[cfg(test)]
mod tests;
