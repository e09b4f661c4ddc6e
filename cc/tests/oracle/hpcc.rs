//! HPCC (SIGCOMM'19), algorithm 1. Decided: the window is at least a packet; an idle link allows at
//! most a thousand times the window; records of a hop that are not newer are not compared.

use crate::rules::Rounds;
use crate::trace::{AckSample, HopSample, Oracle, PathModel, compare};
use spanwire_cc::LossKind;

struct Hpcc {
    path: PathModel,
    w: f64,
    wc: f64,
    u: f64,
    inc_stage: f64,
    rounds: Rounds,
    last: Last,
}

/// The last record of each hop, and its path.
#[derive(Default)]
pub(crate) struct Last {
    hops: Vec<HopSample>,
    path: u16,
}

impl Last {
    /// Records before and after, of each hop with a newer one. Empty after a path change.
    pub(crate) fn pairs(&mut self, a: &AckSample) -> Vec<(HopSample, HopSample)> {
        if a.int.is_empty() {
            return vec![];
        }
        if a.int.len() != self.hops.len() || a.path != self.path {
            (self.hops, self.path) = (a.int.clone(), a.path);
            return vec![];
        }
        let mut pairs = Vec::new();
        for (known, new) in self.hops.iter_mut().zip(&a.int) {
            if new.at > known.at {
                pairs.push((*known, *new));
                *known = *new;
            }
        }
        pairs
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Hpcc {
    fn new(path: PathModel) -> Self {
        let w = path.bdp().max(path.mtu);
        let (rounds, last) = (Rounds::default(), Last::default());
        Self { path, w, wc: w, u: 1.0, inc_stage: 0.0, rounds, last }
    }
}

impl Oracle for Hpcc {
    fn ack(&mut self, now: f64, a: &AckSample) {
        let update = self.rounds.ends(now, a.sent_at);
        let t = self.path.base;
        let mut most = (f64::NEG_INFINITY, 0.0);
        for (l, n) in self.last.pairs(a) {
            let tau = n.at - l.at;
            let u = n.queue.min(l.queue) / (n.rate * t) + (n.tx - l.tx) / tau / n.rate;
            if u > most.0 {
                most = (u, tau);
            }
        }
        if most.0 == f64::NEG_INFINITY {
            return;
        }
        let tau = most.1.min(t);
        self.u = (1.0 - tau / t) * self.u + tau / t * most.0;
        let w_ai = self.path.bdp() * 0.05 / 100.0;
        let multiplicative = self.u >= 0.95 || self.inc_stage >= 5.0;
        self.w = match multiplicative {
            true => self.wc / (self.u / 0.95).max(1e-3) + w_ai,
            false => self.wc + w_ai,
        };
        self.w = self.w.min(self.path.bdp()).max(self.path.mtu);
        if update {
            self.inc_stage = if multiplicative { 0.0 } else { self.inc_stage + 1.0 };
            self.wc = self.w;
        }
    }

    fn loss(&mut self, _now: f64, kind: LossKind, _bytes: f64, _inflight: f64) {
        if matches!(kind, LossKind::Timeout(_)) {
            self.wc = (self.wc / 2.0).max(self.path.mtu);
            self.w = self.wc;
            self.last.clear();
        }
    }

    fn path_change(&mut self) {
        self.last.clear();
    }

    fn window(&self) -> f64 {
        self.w
    }

    fn rate(&self) -> Option<f64> {
        Some((self.w / self.path.base).min(self.path.line))
    }
}

#[test]
fn hpcc__follows_the_paper() {
    compare("hpcc", &[], Hpcc::new);
}
