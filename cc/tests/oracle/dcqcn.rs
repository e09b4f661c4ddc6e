//! DCQCN (SIGCOMM'15), with its three timers. Decided: five halvings before the additive increase;
//! a rate within a millionth of the line rate counts as the line rate. Marks in an acknowledgement
//! are a notification, as often as a receiver would send one.

use crate::rules::{MBPS, Once};
use crate::trace::{AckSample, Oracle, PathModel, compare};
use spanwire_cc::LossKind;

struct Dcqcn {
    path: PathModel,
    current: f64,
    target: f64,
    alpha: f64,
    t: f64,
    b: f64,
    bytes: f64,
    alpha_timer: f64,
    increase_timer: f64,
    notified: Once,
}

const G: f64 = 1.0 / 256.0;
const TIMER: f64 = 55_000.0;
const F: f64 = 5.0;

impl Dcqcn {
    fn new(path: PathModel) -> Self {
        Self {
            path,
            current: path.line,
            target: path.line,
            alpha: 1.0,
            t: 0.0,
            b: 0.0,
            bytes: 0.0,
            alpha_timer: f64::INFINITY,
            increase_timer: f64::INFINITY,
            notified: Once::default(),
        }
    }

    fn increase(&mut self) {
        if self.t.max(self.b) <= F {
        } else if self.t.min(self.b) > F {
            self.target += (self.t.min(self.b) - F) * 400.0 * MBPS;
        } else {
            self.target += 40.0 * MBPS;
        }
        self.target = self.target.min(self.path.line);
        self.current = (self.target + self.current) / 2.0;
        if self.path.line - self.current < self.path.line * 1e-6 {
            self.current = self.path.line;
            self.increase_timer = f64::INFINITY;
        }
    }
}

impl Oracle for Dcqcn {
    fn run_to(&mut self, now: f64) {
        loop {
            let due = self.alpha_timer.min(self.increase_timer);
            if due > now {
                return;
            }
            if self.alpha_timer == due {
                self.alpha *= 1.0 - G;
                self.alpha_timer += TIMER;
            } else {
                self.increase_timer += TIMER;
                self.t += 1.0;
                self.increase();
            }
        }
    }

    fn ack(&mut self, now: f64, a: &AckSample) {
        if a.marked > 0.0 && self.notified.may(now, 50_000.0) {
            self.cnp(now);
        }
    }

    fn loss(&mut self, _now: f64, _kind: LossKind, _bytes: f64, _inflight: f64) {}

    fn cnp(&mut self, now: f64) {
        self.target = self.current;
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(MBPS);
        self.alpha = (1.0 - G) * self.alpha + G;
        (self.t, self.b, self.bytes) = (0.0, 0.0, 0.0);
        (self.alpha_timer, self.increase_timer) = (now + TIMER, now + TIMER);
    }

    fn sent(&mut self, bytes: f64, _paced: f64) {
        if self.increase_timer.is_infinite() {
            return;
        }
        self.bytes += bytes;
        if self.bytes >= 1_000.0 {
            self.bytes = 0.0;
            self.b += 1.0;
            self.increase();
        }
    }

    fn window(&self) -> f64 {
        (2.0 * self.current * self.path.base).max(self.path.mtu)
    }

    fn rate(&self) -> Option<f64> {
        Some(self.current)
    }
}

#[test]
fn dcqcn__follows_the_paper() {
    // The default of 10 MB is longer than any trace.
    compare("dcqcn", &[("increase_bytes", "1000")], Dcqcn::new);
}
