//! DCTCP: RFC 8257. Decided: further consecutive timeouts do not lower the threshold again; a loss
//! within the round trip of a cut causes no further cut.

use crate::rules::{Rounds, smooth};
use crate::trace::{AckSample, Oracle, PathModel, compare};
use spanwire_cc::LossKind;

struct Dctcp {
    path: PathModel,
    cwnd: f64,
    ssthresh: f64,
    alpha: f64,
    acked: f64,
    marked: f64,
    rounds: Rounds,
    cwr: Option<f64>,
    srtt: Option<f64>,
}

impl Dctcp {
    fn new(path: PathModel) -> Self {
        Self {
            path,
            cwnd: 10.0 * path.mtu,
            ssthresh: f64::INFINITY,
            alpha: 1.0,
            acked: 0.0,
            marked: 0.0,
            rounds: Rounds::default(),
            cwr: None,
            srtt: None,
        }
    }

    fn clamp(&mut self) {
        let least = 2.0 * self.path.mtu;
        self.cwnd = self.cwnd.min(4.0 * self.path.bdp()).max(least);
    }
}

impl Oracle for Dctcp {
    fn ack(&mut self, now: f64, a: &AckSample) {
        self.srtt = a.rtt.map(|rtt| smooth(self.srtt, rtt)).or(self.srtt);
        self.acked += a.acked;
        self.marked += a.marked;
        if self.cwr.is_some_and(|since| a.sent_at >= since) {
            self.cwr = None;
        }
        if self.rounds.ends(now, a.sent_at) && self.acked > 0.0 {
            self.alpha = 15.0 / 16.0 * self.alpha + self.marked / self.acked / 16.0;
            (self.acked, self.marked) = (0.0, 0.0);
        }
        if a.marked > 0.0 {
            self.cnp(now);
        }
        if self.cwr.is_none() && a.bound(self.cwnd, &self.path) {
            self.cwnd += match self.cwnd < self.ssthresh {
                true => a.acked,
                false => self.path.mtu * a.acked / self.cwnd,
            };
        }
        self.clamp();
    }

    fn cnp(&mut self, now: f64) {
        if self.cwr.is_none() {
            self.cwr = Some(now);
            self.cwnd -= self.cwnd * self.alpha / 2.0;
            self.clamp();
            self.ssthresh = self.cwnd;
        }
    }

    fn loss(&mut self, now: f64, kind: LossKind, _bytes: f64, _inflight: f64) {
        let least = 2.0 * self.path.mtu;
        match kind {
            LossKind::Block => {}
            LossKind::Recovery | LossKind::BlockRecovery => {
                if self.cwr.is_none() {
                    self.ssthresh = (self.cwnd / 2.0).max(least);
                    (self.cwnd, self.cwr) = (self.ssthresh, Some(now));
                }
            }
            LossKind::Timeout(n) => {
                let to = if n == 1 { self.cwnd / 2.0 } else { self.ssthresh.min(self.cwnd) };
                self.ssthresh = to.max(least);
                (self.cwnd, self.cwr) = (self.path.mtu, None);
            }
        }
    }

    fn window(&self) -> f64 {
        self.cwnd
    }

    fn rate(&self) -> Option<f64> {
        let gain = if self.cwnd < self.ssthresh { 2.0 } else { 1.25 };
        self.srtt.map(|srtt| (gain * self.cwnd / srtt).min(self.path.line))
    }
}

#[test]
fn dctcp__follows_the_rfc() {
    compare("dctcp", &[], Dctcp::new);
}
