//! DCQCN of RDMA adapters: three timers. Those of alpha and of decreases run permanently from the
//! first notification on. At the same time, alpha comes first and increases last. Marks in an
//! acknowledgement are a notification, at most one each 4 us.

use crate::rules::{MBPS, Once};
use crate::trace::{AckSample, Oracle, PathModel, compare};
use spanwire_cc::LossKind;

struct Rnic {
    path: PathModel,
    clamp_target: bool,
    current: f64,
    target: f64,
    alpha: f64,
    stage: f64,
    cnp_in_slot: bool,
    cnp_for_decrease: bool,
    alpha_timer: f64,
    decrease_timer: f64,
    increase_timer: f64,
    notified: Once,
}

const G: f64 = 5.0 / 1024.0;
const THRESHOLD: f64 = 1.0;

impl Rnic {
    fn new(path: PathModel, clamp_target: bool) -> Self {
        Self {
            path,
            clamp_target,
            current: path.line,
            target: path.line,
            alpha: 1023.0 / 1024.0,
            stage: 0.0,
            cnp_in_slot: false,
            cnp_for_decrease: false,
            alpha_timer: f64::INFINITY,
            decrease_timer: f64::INFINITY,
            increase_timer: f64::INFINITY,
            notified: Once::default(),
        }
    }

    fn on_alpha(&mut self) {
        self.alpha_timer += 1_000.0;
        let seen = std::mem::take(&mut self.cnp_in_slot);
        self.alpha = (1.0 - G) * self.alpha + if seen { G } else { 0.0 };
    }

    fn on_decrease(&mut self) {
        let due = self.decrease_timer;
        self.decrease_timer += 4_000.0;
        if !std::mem::take(&mut self.cnp_for_decrease) {
            return;
        }
        if self.clamp_target || self.stage > 0.0 {
            self.target = self.current;
        }
        let by_alpha = self.current * (1.0 - self.alpha / 2.0);
        self.current = by_alpha.max(self.current * 0.5).max(MBPS);
        self.stage = 0.0;
        self.increase_timer = due + 300_000.0;
    }

    fn on_increase(&mut self) {
        self.increase_timer += 300_000.0;
        if self.stage == THRESHOLD {
            self.target += 5.0 * MBPS;
        } else if self.stage > THRESHOLD {
            self.target += 50.0 * MBPS;
        }
        self.stage += 1.0;
        self.target = self.target.min(self.path.line);
        self.current = (self.target + self.current) / 2.0;
        if self.path.line - self.current < self.path.line * 1e-6 {
            self.current = self.path.line;
            self.increase_timer = f64::INFINITY;
        }
    }
}

impl Oracle for Rnic {
    fn run_to(&mut self, now: f64) {
        loop {
            let due = self.alpha_timer.min(self.decrease_timer).min(self.increase_timer);
            if due > now {
                return;
            }
            if self.alpha_timer == due {
                self.on_alpha();
            } else if self.decrease_timer == due {
                self.on_decrease();
            } else {
                self.on_increase();
            }
        }
    }

    fn ack(&mut self, now: f64, a: &AckSample) {
        if a.marked > 0.0 && self.notified.may(now, 4_000.0) {
            self.cnp(now);
        }
    }

    fn loss(&mut self, _now: f64, _kind: LossKind, _bytes: f64, _inflight: f64) {}

    fn cnp(&mut self, now: f64) {
        if self.alpha_timer.is_infinite() {
            (self.alpha_timer, self.decrease_timer) = (now + 1_000.0, now + 4_000.0);
        } else {
            self.cnp_in_slot = true;
        }
        self.cnp_for_decrease = true;
    }

    fn window(&self) -> f64 {
        (2.0 * self.current * self.path.base).max(self.path.mtu)
    }

    fn rate(&self) -> Option<f64> {
        Some(self.current)
    }
}

#[test]
fn dcqcn_rnic__follows_the_adapter() {
    compare("dcqcn-rnic", &[], |path| Rnic::new(path, false));
    compare("dcqcn-rnic", &[("clamp_target", "1")], |path| Rnic::new(path, true));
}
