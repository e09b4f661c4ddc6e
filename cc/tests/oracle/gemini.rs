//! Gemini (ICNP'19), with the parameters of Uno's runs. Decided: the unmarked bytes of an
//! acknowledgement increase the window, unless the path is late. A path is late by the smallest
//! round trip of the round before, or of this one in the first round. A loss halves once a round
//! trip, independently of cuts for marks, and marks cut nothing for a round trip after it.

use crate::rules::{Once, Rounds, smooth};
use crate::trace::{AckSample, Oracle, PathModel, compare};
use spanwire_cc::LossKind;

struct Gemini {
    path: PathModel,
    t: f64,
    cwnd: f64,
    ssthresh: f64,
    a: f64,
    acked: f64,
    marked: f64,
    rtt_min: Option<f64>,
    rtt_min_before: Option<f64>,
    rounds: Rounds,
    red: Once,
    lost: Once,
    srtt: Option<f64>,
}

const B: f64 = 0.1;
const K: f64 = 24_576.0;

impl Gemini {
    /// `t`: the delay in nanoseconds that indicates a queue.
    fn new(path: PathModel, t: f64) -> Self {
        Self {
            path,
            t,
            cwnd: path.bdp().max(path.mtu),
            ssthresh: 0.0,
            a: 0.0,
            acked: 0.0,
            marked: 0.0,
            rtt_min: None,
            rtt_min_before: None,
            rounds: Rounds::default(),
            red: Once::default(),
            lost: Once::default(),
            srtt: None,
        }
    }

    fn clamp(&mut self) {
        self.cwnd = self.cwnd.min(self.path.bdp()).max(self.path.mtu);
    }
}

impl Oracle for Gemini {
    fn ack(&mut self, now: f64, a: &AckSample) {
        self.srtt = a.rtt.map(|rtt| smooth(self.srtt, rtt)).or(self.srtt);
        self.acked += a.acked;
        self.marked += a.marked;
        if let Some(rtt) = a.fabric() {
            self.rtt_min = Some(self.rtt_min.map_or(rtt, |min| min.min(rtt)));
        }
        if self.rounds.ends(now, a.sent_at) {
            if self.acked > 0.0 {
                self.a = 0.5 * self.a + 0.5 * self.marked / self.acked;
            }
            (self.acked, self.marked) = (0.0, 0.0);
            self.rtt_min_before = self.rtt_min.take();
        }
        let dcn = a.marked > 0.0;
        let rtt_min = self.rtt_min_before.or(self.rtt_min);
        let wan = rtt_min.is_some_and(|rtt| rtt > self.path.base + self.t);
        if !wan && a.acked > a.marked && a.bound(self.cwnd, &self.path) {
            let unmarked = a.acked - a.marked;
            self.cwnd += match self.cwnd < self.ssthresh {
                true => unmarked,
                false => 5376.0 * unmarked / self.cwnd,
            };
        }
        if (dcn || wan) && self.red.may(now, self.path.base) {
            let f = 4.0 * K / (self.path.bdp() + K);
            let by_marks = if dcn { (self.a * f).min(1.0) } else { 0.0 };
            let by_delay = if wan { B } else { 0.0 };
            self.cwnd *= 1.0 - f64::max(by_marks, by_delay);
            self.ssthresh = self.ssthresh.min(self.cwnd);
        }
        self.clamp();
    }

    fn loss(&mut self, now: f64, kind: LossKind, _bytes: f64, _inflight: f64) {
        match kind {
            LossKind::Block => return,
            LossKind::Recovery | LossKind::BlockRecovery => {
                if self.lost.may(now, self.path.base) {
                    self.red = Once::at(now);
                    self.cwnd /= 2.0;
                    self.ssthresh = self.cwnd;
                }
            }
            LossKind::Timeout(n) => {
                if n == 1 {
                    self.ssthresh = self.cwnd / 2.0;
                }
                self.cwnd = self.path.mtu;
                (self.acked, self.marked) = (0.0, 0.0);
                (self.rtt_min, self.rtt_min_before) = (None, None);
            }
        }
        self.clamp();
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
fn gemini__follows_the_paper() {
    compare("gemini", &[], |path| Gemini::new(path, 5e6));
    // A threshold that short paths reach as well.
    compare("gemini", &[("threshold_ms", "0.02")], |path| Gemini::new(path, 2e4));
}
