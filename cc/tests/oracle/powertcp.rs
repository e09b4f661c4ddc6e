//! PowerTCP (NSDI'22), algorithms 1 and 2.
//!
//! Decided: the packets acknowledged in a round were sent with the window of the start of the round
//! before. Acknowledgements closer together than the transmission time of a packet give no
//! gradient. Theta's current is at least a half, as in the authors' ns-3, since a queue that drains
//! would otherwise have no power.

use crate::hpcc::Last;
use crate::rules::Rounds;
use crate::trace::{AckSample, Oracle, PathModel, compare};
use spanwire_cc::LossKind;

struct PowerTcp {
    path: PathModel,
    theta: bool,
    cwnd: f64,
    /// The windows at the start of this round, and of the one before.
    began_with: [f64; 2],
    gamma_power: Option<f64>,
    last: Last,
    rtt_prev: Option<(f64, f64)>,
    rounds: Rounds,
}

const GAMMA: f64 = 0.9;

impl PowerTcp {
    fn new(path: PathModel, theta: bool) -> Self {
        let cwnd = path.bdp().max(path.mtu);
        Self {
            path,
            theta,
            cwnd,
            began_with: [cwnd; 2],
            gamma_power: None,
            last: Last::default(),
            rtt_prev: None,
            rounds: Rounds::default(),
        }
    }

    /// Normalised power, and the time it covers.
    fn power(&mut self, now: f64, a: &AckSample) -> Option<(f64, f64)> {
        let tau = self.path.base;
        if self.theta {
            let rtt = a.fabric()?;
            let Some((t_prev, rtt_prev)) = self.rtt_prev else {
                self.rtt_prev = Some((now, rtt));
                return None;
            };
            let dt = now - t_prev;
            if dt < self.path.mtu / self.path.line {
                return None;
            }
            self.rtt_prev = Some((now, rtt));
            return Some((f64::max(1.0 + (rtt - rtt_prev) / dt, 0.5) * rtt / tau, dt));
        }
        let mut most: Option<(f64, f64)> = None;
        for (l, n) in self.last.pairs(a) {
            let dt = n.at - l.at;
            let lambda = (((n.queue - l.queue) + (n.tx - l.tx)) / dt).max(0.0);
            let voltage = n.queue + n.rate * tau;
            let p = lambda * voltage / (n.rate * n.rate * tau);
            if most.is_none_or(|(power, _)| p > power) {
                most = Some((p, dt));
            }
        }
        most
    }
}

impl Oracle for PowerTcp {
    fn ack(&mut self, now: f64, a: &AckSample) {
        let tau = self.path.base;
        let sample = self.power(now, a);
        let over = self.rounds.ends(now, a.sent_at);
        if let Some((p, dt)) = sample {
            let dt = dt.min(tau);
            let smoothed = self.gamma_power.map_or(p, |g| (g * (tau - dt) + p * dt) / tau);
            let smoothed = smoothed.max(0.01);
            self.gamma_power = Some(smoothed);
            if over || !self.theta {
                let old = self.began_with[1];
                let beta = self.path.bdp() / 10.0;
                self.cwnd = GAMMA * (old / smoothed + beta) + (1.0 - GAMMA) * self.cwnd;
                self.cwnd = self.cwnd.min(self.path.bdp()).max(self.path.mtu);
            }
        }
        if over {
            self.began_with = [self.cwnd, self.began_with[0]];
        }
    }

    fn loss(&mut self, _now: f64, kind: LossKind, _bytes: f64, _inflight: f64) {
        if matches!(kind, LossKind::Timeout(_)) {
            self.cwnd = (self.cwnd / 2.0).max(self.path.mtu);
            self.began_with = [self.cwnd; 2];
            self.gamma_power = None;
            self.path_change();
        }
    }

    fn path_change(&mut self) {
        self.last.clear();
        self.rtt_prev = None;
    }

    fn window(&self) -> f64 {
        self.cwnd
    }

    fn rate(&self) -> Option<f64> {
        Some((self.cwnd / self.path.base).min(self.path.line))
    }
}

#[test]
fn powertcp__follows_algorithm_1() {
    compare("powertcp", &[], |path| PowerTcp::new(path, false));
}

#[test]
fn powertcp__theta_follows_algorithm_2() {
    compare("theta-powertcp", &[], |path| PowerTcp::new(path, true));
}
