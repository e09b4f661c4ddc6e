//! Gemini: ECN marks inside the datacenter, delay between datacenters.
//!
//! # Source
//! Gemini (ICNP'19) with the parameters of Uno's authors; no code of Gemini's own authors is
//! public. The preset `gemini-paper` has the paper's parameters.

use crate::params::params;
use crate::round::{Base, Guard, Round};
use crate::units::{float, ns, rate, whole};
use crate::{Ack, Controller, Loss, LossKind, Path};
use spanwire_base::{Dur, Rate, Time};

params! {
    /// Parameters of Gemini.
    struct Params of f64;
    /// Additive increase in bytes a round trip, the same for all flows; 0 derives it from `h_pkts`.
    ///
    /// Uno's runs.
    increase_bytes = 5376.0 in 0.0..=1e9;
    /// Additive increase in packets a round trip for each bit of the bandwidth-delay product.
    ///
    /// Gemini: 1.2e-7.
    h_pkts = 1.2e-7 in 0.0..=1.0;
    /// The decrease for delay.
    ///
    /// Uno's runs; Gemini: 0.2.
    beta = 0.1 in 0.001..=1.0;
    /// Queueing delay in milliseconds that indicates congestion between datacenters.
    ///
    /// Gemini, Uno's runs.
    threshold_ms = 5.0 in 0.001..=1e4;
    /// The constant K of the decrease for marks, in bytes.
    ///
    /// Uno's runs: six packets of 4096 bytes.
    k_bytes = 24_576.0 in 1.0..=1e9;
    /// Gain of the average of the marked fraction.
    ///
    /// Uno's runs.
    g = 0.5 in 0.001..=1.0;
    /// Maximum and initial window in bandwidth-delay products.
    ///
    /// Uno's runs.
    max_bdps = 1.0 in 0.01..=100.0;
}

impl Params {
    /// The parameters of the paper, where it gives them.
    pub(crate) fn paper() -> Self {
        let beta = 0.2;
        Self { increase_bytes: 0.0, beta, k_bytes: 50.0 * 1500.0, g: 0.0625, ..Self::default() }
    }
}

/// The Gemini controller of one flow. Windows in bytes.
#[derive(Clone, Debug)]
pub struct Gemini {
    p: Params,
    mtu: f64,
    base: Base,
    cwnd: f64,
    ssthresh: f64,
    alpha: f64,
    acked: u64,
    marked: u64,
    /// The smallest round trips of this round and of the previous one.
    rtt_min: Option<Dur>,
    rtt_min_before: Option<Dur>,
    round: Round,
    cut: Guard,
    /// The guard of cuts for losses: a small cut for a mark does not replace a halving.
    loss_cut: Guard,
    srtt: Option<f64>,
}

impl Gemini {
    /// The controller of one flow.
    #[must_use]
    pub fn new(params: &Params, path: &Path) -> Self {
        let mtu = f64::from(path.mtu_bytes);
        let mut this = Self {
            p: *params,
            mtu,
            base: Base::new(path),
            cwnd: UNKNOWN_PKTS * mtu,
            ssthresh: 0.0,
            alpha: 0.0,
            acked: 0,
            marked: 0,
            rtt_min: None,
            rtt_min_before: None,
            round: Round::default(),
            cut: Guard::default(),
            loss_cut: Guard::default(),
            srtt: None,
        };
        this.scale();
        this
    }

    fn scale(&mut self) {
        if let Some(bdp) = self.base.bdp_once() {
            self.cwnd = (bdp * self.p.max_bdps).max(self.mtu);
        }
    }

    fn clamp(&mut self) {
        let max = self.base.bdp().map_or(f64::MAX, |bdp| bdp * self.p.max_bdps);
        self.cwnd = self.cwnd.min(max).max(self.mtu);
    }

    fn end_round(&mut self) {
        if self.acked > 0 {
            let fraction = float(self.marked) / float(self.acked);
            self.alpha += self.p.g * (fraction - self.alpha);
        }
        (self.acked, self.marked) = (0, 0);
        self.rtt_min_before = self.rtt_min.take();
    }

    /// True if the path between datacenters has a queue: even the smallest round trip is late.
    fn is_late(&self) -> bool {
        let (Some(base), Some(rtt_min)) = (self.base.rtt(), self.rtt_min_before.or(self.rtt_min))
        else {
            return false;
        };
        ns(rtt_min) > ns(base) + self.p.threshold_ms * 1e6
    }

    fn increase(&self) -> f64 {
        match self.p.increase_bytes {
            bytes if bytes > 0.0 => bytes,
            _ => self.p.h_pkts * self.base.bdp().unwrap_or(0.0) * 8.0 * self.mtu,
        }
    }

    fn decrease(&self, is_marked: bool, is_late: bool) -> f64 {
        let k = self.p.k_bytes;
        let gain = self.base.bdp().map_or(1.0, |bdp| 4.0 * k / (bdp + k));
        let by_marks = if is_marked { (self.alpha * gain).min(1.0) } else { 0.0 };
        let by_delay = if is_late { self.p.beta } else { 0.0 };
        by_marks.max(by_delay)
    }
}

impl Controller for Gemini {
    fn cwnd_bytes(&self) -> u64 {
        whole(self.cwnd)
    }

    fn rate(&self) -> Option<Rate> {
        let gain = if self.cwnd < self.ssthresh { 2.0 } else { 1.25 };
        let srtt = self.srtt?;
        Some(rate((gain * self.cwnd / srtt.max(1.0)).min(self.base.line())))
    }

    fn set_path(&mut self, line_rate: Rate, base_rtt: Dur) {
        self.base.set(line_rate, base_rtt);
    }

    fn on_ack(&mut self, now: Time, a: &Ack<'_>) {
        self.base.on_ack(a);
        self.scale();
        if let Some(rtt) = a.rtt {
            let rtt = ns(rtt);
            self.srtt = Some(self.srtt.map_or(rtt, |s| s + (rtt - s) / 8.0));
        }
        self.acked += a.acked_bytes;
        self.marked += a.marked_bytes;
        if let Some(rtt) = a.fabric_rtt() {
            self.rtt_min = Some(self.rtt_min.map_or(rtt, |s| s.min(rtt)));
        }
        if self.round.ends(now, a.sent_at) {
            self.end_round();
        }
        let (is_marked, is_late) = (a.marked_bytes > 0, self.is_late());
        let span = self.base.rtt().unwrap_or(Dur::ZERO);
        // Per packet, however many the acknowledgement covers: unmarked ones increase the window.
        let unmarked = if is_late { 0 } else { a.acked_bytes.saturating_sub(a.marked_bytes) };
        if unmarked > 0 && a.is_limited(self.cwnd, self.mtu) {
            let acked = float(unmarked);
            let slow_start = self.cwnd < self.ssthresh;
            self.cwnd += if slow_start { acked } else { self.increase() * acked / self.cwnd };
        }
        if (is_marked || is_late) && self.cut.pass(now, span) {
            self.cwnd *= 1.0 - self.decrease(is_marked, is_late);
            self.ssthresh = self.ssthresh.min(self.cwnd);
        }
        self.clamp();
    }

    fn on_loss(&mut self, now: Time, loss: &Loss) {
        match loss.kind {
            LossKind::Block => return,
            LossKind::Recovery | LossKind::BlockRecovery => {
                let span = self.base.rtt().unwrap_or(Dur::ZERO);
                if self.loss_cut.pass(now, span) {
                    self.cut.close(now);
                    self.cwnd /= 2.0;
                    self.ssthresh = self.cwnd;
                }
            }
            LossKind::Timeout(n) => {
                if n == 1 {
                    self.ssthresh = self.cwnd / 2.0;
                }
                self.cwnd = self.mtu;
                (self.acked, self.marked, self.rtt_min) = (0, 0, None);
                self.rtt_min_before = None;
            }
        }
        self.clamp();
    }
}

/// Initial window in packets while the bandwidth-delay product is unknown.
const UNKNOWN_PKTS: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, path};

    /// A bandwidth-delay product of 175,344 bytes, as Uno's.
    fn flow(cwnd: f64) -> Gemini {
        let p = Params { beta: 0.2, ..Params::default() };
        let mut cc = Gemini::new(&p, &path(4096, 100, Some(Dur::from_ps(14_027_520))));
        (cc.cwnd, cc.alpha) = (cwnd, 0.5);
        // A round that no acknowledgement below ends.
        cc.round.ends(at(10_000_000), at(0));
        cc
    }

    fn ack(marked: u64) -> Ack<'static> {
        Ack { acked_bytes: 4096, marked_bytes: marked, ..Ack::default() }
    }

    fn about(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-2
    }

    #[test]
    fn on_ack__decreases_for_marks_or_delay_once_a_round_trip() {
        let mut cc = flow(100_000.0);
        cc.on_ack(at(100), &ack(4096));
        assert!(about(cc.cwnd, 75_414.166), "{}", cc.cwnd);
        cc.on_ack(at(105), &ack(4096));
        assert!(about(cc.cwnd, 75_414.166));
        let late = Ack { rtt: Some(Dur::from_ms(6)), ..ack(0) };
        let mut cc = flow(100_000.0);
        cc.on_ack(at(100), &late);
        assert!(about(cc.cwnd, 80_000.0), "{}", cc.cwnd);
        let mut cc = flow(100_000.0);
        cc.on_ack(at(100), &Ack { marked_bytes: 1, ..late });
        assert!(about(cc.cwnd, 75_414.166), "the larger of both");
    }

    #[test]
    fn on_ack__increase_is_the_same_for_all_flows() {
        let mut cc = flow(100_000.0);
        cc.on_ack(at(100), &Ack { cwnd_limited: true, ..ack(0) });
        assert!(about(cc.cwnd, 100_000.0 + 5376.0 * 0.040_96));
    }

    #[test]
    fn on_ack__the_average_follows_each_round() {
        let mut cc = flow(100_000.0);
        cc.on_ack(at(20_000_000), &Ack { sent_at: at(10_000_000), ..ack(4096) });
        assert!(about(cc.alpha, 0.75));
    }

    #[test]
    fn on_loss__halves_once_a_round_trip_despite_marks() {
        let mut cc = flow(100_000.0);
        cc.alpha = 0.5;
        let loss = Loss { kind: LossKind::Recovery, bytes: 1, inflight_bytes: 0 };
        cc.on_ack(at(100), &ack(4096));
        let marked = cc.cwnd;
        assert!(marked < 100_000.0);
        cc.on_loss(at(101), &loss);
        cc.on_loss(at(102), &loss);
        assert!(about(cc.cwnd, marked / 2.0), "{}", cc.cwnd);
        // The window was already cut for the mark that arrives with the loss.
        cc.on_ack(at(103), &ack(4096));
        assert!(about(cc.cwnd, marked / 2.0), "{}", cc.cwnd);
    }

    #[test]
    fn on_loss__slow_starts_after_a_timeout() {
        let mut cc = flow(100_000.0);
        let loss = |kind| Loss { kind, bytes: 1, inflight_bytes: 0 };
        cc.on_loss(at(1), &loss(LossKind::Timeout(1)));
        cc.on_loss(at(2), &loss(LossKind::Timeout(2)));
        assert!(about(cc.cwnd, 4096.0) && about(cc.ssthresh, 50_000.0));
        cc.on_ack(at(3), &Ack { cwnd_limited: true, ..ack(0) });
        assert!(about(cc.cwnd, 8192.0));
    }
}
