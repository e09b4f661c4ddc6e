//! UnoLB: several paths in turn, so that the packets of a block take different ones; dead paths are
//! replaced.
//!
//! The packet with number `p` belongs to subflow `p mod n`. Blocks of an erasure code have
//! consecutive numbers, so the packets of a block of at most `n` take `n` paths, whatever
//! retransmissions are in between. A retransmission takes the next live subflow other than the one
//! of the loss. It prefers a subflow on which a packet sent after the lost one has arrived, because
//! of paths that share a dead link, some appear live for a moment longer.
//!
//! # Reroutes
//! A subflow is *suspect* if packets were lost on it and none sent after the first of them has
//! arrived. A random loss is followed by arrivals and has no effect. A subflow is *bad*
//! if it is suspect and
//! - `lost_in_row` consecutive packets were lost (half as many on a path without any arrival), or
//! - it is silent: packets are in flight, and an acknowledgement is overdue by more than half a
//!   base round trip and three times the interval of its packets, and by more than the hosts are
//!   late. It is due a round trip after its packet left, so no subflow is silent in its first round
//!   trip or after idle.
//!
//! A bad subflow takes another path with its next packet, at most once a base round trip. The path
//! is fresh: no subflow uses it, and it is not remembered as dead. A dead path is remembered for
//! `avoid_ms`, or until a packet sent on it since then arrives. It is remembered only if another
//! path had an arrival meanwhile, because without any arrival no single path is the cause. A
//! timeout counts as a loss on each subflow with packets in flight, in addition to reported losses.
//!
//! # Source
//! Uno 4.2 and algorithm 2. As printed, a subflow takes the path of another that
//! has acknowledgements (`reroute=copy`). The authors' code draws a fresh one, as we do,
//! since a copy puts two packets of a block on one path. In their code retransmissions advance the
//! turn as well, so blocks shift against subflows.

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
    /// Parameters of UnoLB.
    struct Params of u64;
    /// Paths in use at a time; as many as packets in a block, so that each takes its own.
    ///
    /// Uno: 10, for blocks of 8 and 2.
    subflows = 10 in 1..=32;
    /// New path of a bad subflow: a fresh one, or a copy of one with acknowledgements.
    ///
    /// Uno prints the copy; the authors' code draws.
    reroute = 0 of "fresh" | "copy";
    /// Consecutive lost packets that indicate a dead path.
    ///
    /// At 1 % loss at random, one packet in 10^8.
    lost_in_row = 4 in 1..=1000;
    /// Time in milliseconds for which a dead path is not drawn.
    avoid_ms = 10000 in 0..=3600000;
    /// Number of paths to draw from.
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
    /// The RTT of all paths.
    rtt: Rtt,
    /// The longest recent lateness of the hosts.
    lateness: Dur,
    subflows: Box<[Subflow]>,
    dead: Dead,
    /// The paths that subflows left last, at most as many as subflows. A block that already has
    /// packets on one of these must not use it a second time.
    replaced: VecDeque<Entropy>,
    /// The time of the last feedback about any path.
    feedback_at: Option<Time>,
    /// The send time of the newest lost packet.
    lost_at: Option<Time>,
    /// The subflow that the next retransmission tries first.
    retransmission_turn: usize,
}

impl UnoLb {
    /// The policy of one flow.
    #[must_use]
    pub fn new(params: &Params, flow: &Flow) -> Self {
        let mut rng = Rng::new(flow.seed);
        let pool = Pool::new(params.entropies, &mut rng);
        let mut subflows: Vec<Subflow> = Vec::with_capacity(usize_from(params.subflows));
        for _ in 0..params.subflows.max(1) {
            let unused = |path| subflows.iter().all(|s| s.entropy != path);
            let path = pool.draw_fitting(&mut rng, unused);
            // With fewer paths than subflows, some share a path.
            subflows.push(Subflow::new(path.unwrap_or_else(|| pool.draw(&mut rng))));
        }
        Self {
            p: *params,
            rng,
            pool,
            base_rtt: flow.base_rtt,
            rtt: Rtt::default(),
            lateness: Dur::ZERO,
            subflows: subflows.into(),
            dead: Dead::new(),
            replaced: VecDeque::new(),
            feedback_at: None,
            lost_at: None,
            retransmission_turn: 0,
        }
    }

    fn base(&self) -> Dur {
        self.base_rtt.or(self.rtt.min()).unwrap_or(UNKNOWN_RTT)
    }

    fn limits(&self, subflow: &Subflow) -> Limits {
        let base = self.base();
        // A path without a sample may be as slow as the flow's.
        let rtt = subflow.rtt.smoothed().or(self.rtt.smoothed()).unwrap_or(base);
        let lost_in_row = u32::try_from(self.p.lost_in_row).unwrap_or(u32::MAX);
        Limits { rtt, base, lateness: self.lateness, lost_in_row }
    }

    fn is_bad(&self, now: Time, subflow: &Subflow) -> bool {
        subflow.is_bad(now, &self.limits(subflow))
    }

    /// The path has recent arrivals.
    fn is_alive(&self, now: Time, subflow: &Subflow) -> bool {
        subflow.feedback_at.is_some()
            && !subflow.is_suspect()
            && !subflow.is_silent(now, &self.limits(subflow))
    }

    /// The subflow of a retransmission: the next live one on which a packet sent after the lost one
    /// has arrived. The cause of the loss does not affect such a subflow.
    fn retransmission_subflow(&mut self, out: &Outgoing) -> usize {
        let own = self.own_subflow(out.psn);
        let n = self.subflows.len();
        let lost_on = out.lost_on.unwrap_or(self.subflows[own].entropy);
        let other = |at: &usize| self.subflows[*at].entropy != lost_on;
        let alive = |at: &usize| other(at) && self.is_alive(out.now, &self.subflows[*at]);
        let proven = |at: &usize| alive(at) && self.subflows[*at].arrived() > self.lost_at;
        let mut turn = (0..n).map(|step| (self.retransmission_turn + step) % n);
        if let Some(at) = turn.clone().find(proven).or_else(|| turn.find(alive)) {
            self.retransmission_turn = at + 1;
            return at;
        }
        // The one with the last feedback. Among several (at first, all) the one before its own, so
        // that the losses of each subflow take a different one.
        let others = (0..n).filter(other);
        others.max_by_key(|at| (self.subflows[*at].feedback_at, (n + at - own) % n)).unwrap_or(own)
    }

    /// The subflow of a packet's first transmission.
    fn own_subflow(&self, psn: u64) -> usize {
        usize_from(psn % u64_from(self.subflows.len()))
    }

    /// Reroutes a bad subflow; returns the old path.
    fn reroute(&mut self, now: Time, at: usize) -> Option<Entropy> {
        let subflow = &self.subflows[at];
        let recently = subflow.moved_at.is_some_and(|moved| now < moved + self.base());
        if recently || !self.is_bad(now, subflow) {
            return None;
        }
        let (old, since) = (subflow.entropy, subflow.lost_from());
        if self.feedback_at > subflow.feedback_at {
            self.dead.add(old, since, now + Dur::from_ms(self.p.avoid_ms));
        }
        let new = if self.p.reroute == COPY { self.copy(now) } else { None };
        let new = new.or_else(|| self.fresh(now, old))?;
        self.subflows[at].reroute_to(new, now);
        if self.replaced.len() == self.subflows.len() {
            self.replaced.pop_front();
        }
        self.replaced.push_back(old);
        Some(old)
    }

    /// The path of a random subflow with recent arrivals.
    fn copy(&mut self, now: Time) -> Option<Entropy> {
        let count = self.alive(now).count();
        let nth = self.rng.below(u64_from(count.max(1)));
        self.alive(now).nth(usize_from(nth)).map(|s| s.entropy)
    }

    fn alive(&self, now: Time) -> impl Iterator<Item = &Subflow> {
        self.subflows.iter().filter(move |s| self.is_alive(now, s))
    }

    /// A path that no subflow uses or has just left, and that is not remembered as dead. If there
    /// is none, any other path.
    fn fresh(&mut self, now: Time, old: Entropy) -> Option<Entropy> {
        let used = |path| self.subflows.iter().any(|s| s.entropy == path);
        let rng = &mut self.rng;
        let fits = |path| !used(path) && !self.dead.has(path, now);
        let unused =
            self.pool.draw_fitting(rng, |path| fits(path) && !self.replaced.contains(&path));
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
        let at = if out.retransmit {
            self.retransmission_subflow(out)
        } else {
            self.own_subflow(out.psn)
        };
        let replaced = self.reroute(out.now, at);
        let rtt = self.limits(&self.subflows[at]).rtt;
        let subflow = &mut self.subflows[at];
        subflow.on_sent(out.now, rtt);
        Pick { entropy: subflow.entropy, replaced }
    }

    fn on_ack(&mut self, now: Time, ack: &PathAck) {
        self.feedback_at = Some(now);
        let decayed = self.lateness - self.lateness / LATENESS_DECAY;
        self.lateness = decayed.max(ack.lateness);
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
/// The lateness of the hosts decays by this part with each acknowledgement of a path.
const LATENESS_DECAY: u64 = 64;
/// The base round trip while none is known.
const UNKNOWN_RTT: Dur = Dur::from_ms(1);

#[cfg(test)]
mod tests;
