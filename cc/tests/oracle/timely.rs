//! TIMELY (SIGCOMM'15), and Zhu et al. (CoNEXT'16). Updated once a round trip; the gradient is
//! normalised by the base round trip.

use crate::rules::{Once, Rounds};
use crate::trace::{AckSample, Oracle, PathModel, compare};
use spanwire_cc::LossKind;

struct Timely {
    path: PathModel,
    patched: bool,
    rate: f64,
    prev: Option<f64>,
    rtt_diff: f64,
    neg: u32,
    rounds: Rounds,
    rto: Once,
}

const EWMA: f64 = 0.875;
const BETA: f64 = 0.8;
const BETA_PATCHED: f64 = 0.008;

impl Timely {
    fn new(path: PathModel, patched: bool) -> Self {
        Self {
            path,
            patched,
            rate: path.line,
            prev: None,
            rtt_diff: 0.0,
            neg: 0,
            rounds: Rounds::default(),
            rto: Once::default(),
        }
    }

    fn update(&mut self, rtt: f64) {
        let Some(prev) = self.prev.replace(rtt) else { return };
        self.rtt_diff = (1.0 - EWMA) * self.rtt_diff + EWMA * (rtt - prev);
        if self.rtt_diff.abs() < 1.0 {
            self.rtt_diff = 0.0;
        }
        let gradient = self.rtt_diff / self.path.base;
        self.neg = if gradient <= 0.0 { self.neg + 1 } else { 0 };
        let (low, high) = (self.path.base + 10_000.0, self.path.base + 200_000.0);
        let (old, delta) = (self.rate, self.path.line / 1000.0);
        self.rate = if rtt < low {
            old + delta
        } else if rtt > high {
            old * (1.0 - BETA * (1.0 - high / rtt))
        } else if self.patched {
            let w = (2.0 * gradient + 0.5).clamp(0.0, 1.0);
            let err = (rtt - low) / low;
            delta * (1.0 - w) + old * (1.0 - BETA_PATCHED * w * err)
        } else if gradient <= 0.0 {
            old + if self.neg >= 5 { 5.0 } else { 1.0 } * delta
        } else {
            old * (1.0 - BETA * gradient)
        };
        self.rate = self.rate.max(old / 2.0);
        self.clamp();
    }

    fn clamp(&mut self) {
        self.rate = self.rate.clamp(self.path.line / 100.0, self.path.line);
    }
}

impl Oracle for Timely {
    fn ack(&mut self, now: f64, a: &AckSample) {
        if let Some(rtt) = a.fabric()
            && self.rounds.ends(now, a.sent_at)
        {
            self.update(rtt);
        }
    }

    fn loss(&mut self, now: f64, kind: LossKind, _bytes: f64, _inflight: f64) {
        if matches!(kind, LossKind::Timeout(_)) && self.rto.may(now, self.path.base) {
            self.rate /= 2.0;
            self.clamp();
        }
    }

    fn path_change(&mut self) {
        (self.prev, self.rtt_diff, self.neg) = (None, 0.0, 0);
    }

    fn window(&self) -> f64 {
        let rtt = self.prev.unwrap_or(0.0).max(self.path.base);
        (1.25 * self.rate * rtt).max(self.path.mtu)
    }

    fn rate(&self) -> Option<f64> {
        Some(self.rate)
    }
}

#[test]
fn timely__patched_follows_zhu_and_others() {
    compare("timely", &[], |path| Timely::new(path, true));
}

#[test]
fn timely__classic_follows_the_paper() {
    compare("timely-classic", &[], |path| Timely::new(path, false));
}
