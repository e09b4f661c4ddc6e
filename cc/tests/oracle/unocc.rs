//! UnoCC: Uno 4.2 and algorithm 1 (SC'25).
//!
//! Decided: K and the epoch are those of the datacenter for all flows. The phantom scale does not
//! compound. "No queue" means the smallest round trip of the epoch within a tolerance. Marks that
//! arrive while Quick Adapt skips are discarded, because it has already responded to them.

use crate::rules::Once;
use crate::trace::{AckSample, Oracle, PathModel, compare};
use spanwire_cc::LossKind;

struct UnoCc {
    path: PathModel,
    cwnd: f64,
    ewma: f64,
    epoch_start: Option<f64>,
    acked: f64,
    marked: f64,
    rtt_min: f64,
    qa_on: bool,
    qa_end: f64,
    qa_acked: f64,
    qa_bound: bool,
    skip_until: Option<f64>,
    rto: Once,
}

const ALPHA: f64 = 0.001;
const BETA_QA: f64 = 0.5;
const INTRA: f64 = 14_000.0;
const GAIN: f64 = 0.5;

impl UnoCc {
    fn new(path: PathModel) -> Self {
        Self {
            path,
            cwnd: path.bdp(),
            ewma: 0.0,
            epoch_start: None,
            acked: 0.0,
            marked: 0.0,
            rtt_min: f64::INFINITY,
            qa_on: false,
            qa_end: 0.0,
            qa_acked: 0.0,
            qa_bound: true,
            skip_until: None,
            rto: Once::default(),
        }
        .clamped()
    }

    fn clamped(mut self) -> Self {
        self.clamp();
        self
    }

    fn clamp(&mut self) {
        self.cwnd = self.cwnd.clamp(self.path.mtu, self.path.bdp().max(self.path.mtu));
    }

    fn md(&mut self) {
        let fraction = self.marked / self.acked;
        self.ewma = (1.0 - GAIN) * self.ewma + GAIN * fraction;
        if fraction == 0.0 {
            return;
        }
        let k = self.path.line * INTRA / 7.0;
        let md = 4.0 * k / (k + self.path.bdp());
        let phantom_only = self.rtt_min - self.path.base <= f64::max(0.055 * INTRA, 5_000.0);
        let scale = if phantom_only { 0.3 } else { 1.0 };
        self.cwnd -= self.cwnd * self.ewma * md * scale;
    }

    fn clear_epoch(&mut self) {
        (self.acked, self.marked, self.rtt_min) = (0.0, 0.0, f64::INFINITY);
    }

    fn quick_adapt(&mut self, now: f64, a: &AckSample) {
        if !self.qa_on {
            if a.sent_at >= self.qa_end {
                self.begin_period(now);
            }
        } else if now >= self.qa_end {
            if self.qa_bound && self.qa_acked < BETA_QA * self.cwnd {
                self.cwnd = self.qa_acked.max(self.path.mtu);
                (self.qa_on, self.qa_end, self.skip_until) = (false, now, Some(now));
            } else {
                self.begin_period(now);
            }
        }
    }

    fn begin_period(&mut self, now: f64) {
        (self.qa_on, self.qa_acked, self.qa_bound) = (true, 0.0, true);
        self.qa_end = now + 1.05 * self.path.base;
    }
}

impl Oracle for UnoCc {
    fn ack(&mut self, now: f64, a: &AckSample) {
        let start = *self.epoch_start.get_or_insert(now);
        if self.skip_until.is_some_and(|until| a.sent_at >= until) {
            self.skip_until = None;
            self.clear_epoch();
        }
        self.acked += a.acked;
        self.marked += a.marked;
        self.rtt_min = a.fabric().map_or(self.rtt_min, |rtt| self.rtt_min.min(rtt));
        let bound = a.bound(self.cwnd, &self.path);
        self.qa_acked += a.acked;
        self.qa_bound &= bound;
        if bound {
            self.cwnd += ALPHA * self.path.bdp() * (a.acked - a.marked) / self.cwnd;
        }
        if self.skip_until.is_none() {
            self.quick_adapt(now, a);
        }
        if self.skip_until.is_none() && a.sent_at >= start {
            if self.acked > 0.0 {
                self.md();
            }
            self.clear_epoch();
            // Whole periods, until the end lies beyond the send time.
            let mut next = start;
            while next <= a.sent_at {
                next += INTRA;
            }
            self.epoch_start = Some(next);
        }
        self.clamp();
    }

    fn loss(&mut self, now: f64, kind: LossKind, bytes: f64, _inflight: f64) {
        let at_most_half = bytes.min(self.cwnd / 2.0);
        match kind {
            LossKind::Block | LossKind::BlockRecovery => {}
            LossKind::Recovery => self.cwnd -= at_most_half,
            LossKind::Timeout(_) => {
                if self.rto.may(now, self.path.base) {
                    self.cwnd -= at_most_half;
                }
            }
        }
        self.clamp();
    }

    fn window(&self) -> f64 {
        self.cwnd
    }

    fn rate(&self) -> Option<f64> {
        Some((self.cwnd / self.path.base).min(self.path.line))
    }
}

#[test]
fn unocc__follows_the_paper() {
    compare("unocc", &[], UnoCc::new);
}
