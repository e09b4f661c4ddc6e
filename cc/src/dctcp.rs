//! DCTCP: the window shrinks by half the marked fraction, once a round trip.
//!
//! # Source
//! RFC 8257 and Linux's `tcp_dctcp`, in bytes and without its ten-bit fixed point. Marks are
//! counted exactly, so delayed acknowledgements need no state machine.

use crate::params::params;
use crate::round::{Base, Round};
use crate::units::{float, rate, whole};
use crate::{Ack, Controller, Loss, LossKind, Path};
use spanwire_base::{Dur, Rate, Time};

params! {
    /// Parameters of DCTCP.
    struct Params of f64;
    /// Gain of the average of the marked fraction (alpha).
    ///
    /// RFC 8257 4.2.
    g = 0.0625 in 0.001..=1.0;
    /// Initial alpha.
    ///
    /// Linux: the first mark of a flow halves its window.
    alpha0 = 1.0 in 0.0..=1.0;
    /// Initial window in packets; 0 is the bandwidth-delay product, if it is known.
    ///
    /// RFC 6928.
    initial_pkts = 10.0 in 0.0..=1e5;
    /// Minimum window in packets.
    min_pkts = 2.0 in 1.0..=100.0;
    /// Maximum window in bandwidth-delay products.
    max_bdps = 4.0 in 1.0..=100.0;
    /// Packets are paced at 5/4 of the window for each round trip (twice in slow start); if false,
    /// they leave as the window allows.
    paced = true;
}

/// The DCTCP controller of one flow. Window in bytes.
#[derive(Clone, Debug)]
pub struct Dctcp {
    p: Params,
    mtu: f64,
    base: Base,
    /// Smoothed round trip in nanoseconds.
    srtt: Option<f64>,
    cwnd: f64,
    ssthresh: f64,
    alpha: f64,
    round: Round,
    acked: u64,
    marked: u64,
    /// The time of the last cut: the window stays until a packet sent later is acknowledged.
    reduced_at: Option<Time>,
}

impl Dctcp {
    /// The controller of one flow.
    #[must_use]
    pub fn new(params: &Params, path: &Path) -> Self {
        let (mtu, base) = (f64::from(path.mtu_bytes), Base::new(path));
        let initial = match params.initial_pkts {
            pkts if pkts > 0.0 => pkts * mtu,
            _ => base.bdp().unwrap_or(UNKNOWN_PKTS * mtu),
        };
        Self {
            p: *params,
            mtu,
            base,
            srtt: None,
            cwnd: initial,
            ssthresh: f64::MAX,
            alpha: params.alpha0,
            round: Round::default(),
            acked: 0,
            marked: 0,
            reduced_at: None,
        }
    }

    fn clamp(&mut self) {
        let max = self.base.bdp().map_or(f64::MAX, |bdp| bdp * self.p.max_bdps);
        self.cwnd = self.cwnd.min(max).max(self.p.min_pkts * self.mtu);
    }

    fn grow(&mut self, acked: f64) {
        if self.cwnd < self.ssthresh {
            self.cwnd += acked;
        } else {
            self.cwnd += self.mtu * acked / self.cwnd;
        }
    }

    fn mark(&mut self, now: Time) {
        if self.reduced_at.is_none() {
            self.reduced_at = Some(now);
            self.cwnd *= 1.0 - self.alpha / 2.0;
            self.clamp();
            self.ssthresh = self.cwnd;
        }
    }
}

impl Controller for Dctcp {
    fn cwnd_bytes(&self) -> u64 {
        whole(self.cwnd)
    }

    fn rate(&self) -> Option<Rate> {
        let gain = if self.cwnd < self.ssthresh { 2.0 } else { 1.25 };
        let srtt = self.srtt.filter(|_| self.p.paced)?;
        Some(rate((gain * self.cwnd / srtt.max(1.0)).min(self.base.line())))
    }

    fn set_path(&mut self, line_rate: Rate, base_rtt: Dur) {
        self.base.set(line_rate, base_rtt);
    }

    fn on_ack(&mut self, now: Time, a: &Ack<'_>) {
        self.base.on_ack(a);
        if let Some(rtt) = a.rtt {
            let rtt = crate::units::ns(rtt);
            self.srtt = Some(self.srtt.map_or(rtt, |s| s + (rtt - s) / 8.0));
        }
        self.acked += a.acked_bytes;
        self.marked += a.marked_bytes;
        if self.reduced_at.is_some_and(|at| a.sent_at >= at) {
            self.reduced_at = None;
        }
        if self.round.ends(now, a.sent_at) && self.acked > 0 {
            let fraction = float(self.marked) / float(self.acked);
            self.alpha += self.p.g * (fraction - self.alpha);
            (self.acked, self.marked) = (0, 0);
        }
        if a.marked_bytes > 0 {
            self.mark(now);
        }
        if self.reduced_at.is_none() && a.is_limited(self.cwnd, self.mtu) {
            self.grow(float(a.acked_bytes));
        }
        self.clamp();
    }

    fn on_loss(&mut self, now: Time, loss: &Loss) {
        let is_recovery = matches!(loss.kind, LossKind::Recovery | LossKind::BlockRecovery);
        let to = match loss.kind {
            LossKind::Block => return,
            // Once for each window, as for a mark.
            _ if is_recovery && self.reduced_at.is_some() => return,
            LossKind::Recovery | LossKind::BlockRecovery => self.cwnd / 2.0,
            LossKind::Timeout(1) => self.cwnd / 2.0,
            LossKind::Timeout(_) => self.ssthresh.min(self.cwnd),
        };
        self.ssthresh = to.max(self.p.min_pkts * self.mtu);
        match loss.kind {
            LossKind::Timeout(_) => (self.cwnd, self.reduced_at) = (self.mtu, None),
            _ => (self.cwnd, self.reduced_at) = (self.ssthresh, Some(now)),
        }
    }

    fn on_cnp(&mut self, now: Time) {
        self.mark(now);
    }
}

/// Initial window in packets if the bandwidth-delay product is selected but unknown.
const UNKNOWN_PKTS: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, close, path};
    use spanwire_base::Dur;

    const MTU: u64 = 1000;

    /// A window of 100 packets, past slow start.
    fn flow(alpha0: f64) -> Dctcp {
        let p = Params { alpha0, initial_pkts: 100.0, paced: false, ..Params::default() };
        let mut cc = Dctcp::new(&p, &path(1000, 100, Some(Dur::from_ms(1))));
        cc.ssthresh = 0.0;
        // The first round begins with the first acknowledgement.
        cc.on_ack(at(1), &Ack { sent_at: at(0), ..Ack::default() });
        cc
    }

    fn ack(pkts: u64, marked: u64, sent_at: Time) -> Ack<'static> {
        let (acked_bytes, marked_bytes) = (pkts * MTU, marked * MTU);
        Ack { acked_bytes, marked_bytes, sent_at, cwnd_limited: true, ..Ack::default() }
    }

    #[test]
    fn on_ack__cuts_by_half_the_marked_fraction_once_for_each_window() {
        let mut cc = flow(1.0);
        cc.on_ack(at(20), &ack(100, 20, at(10)));
        assert!(close(cc.alpha, 0.95) && close(cc.cwnd, 52_500.0), "{} {}", cc.alpha, cc.cwnd);
        cc.on_ack(at(21), &ack(10, 10, at(15)));
        assert!(close(cc.cwnd, 52_500.0), "sent before the cut");
    }

    #[test]
    fn on_ack__a_round_without_a_mark_decays_alpha_and_grows_by_a_packet() {
        let mut cc = flow(0.95);
        let before = cc.cwnd;
        cc.on_ack(at(20), &ack(100, 0, at(10)));
        assert!(close(cc.alpha, 0.890_625) && close(cc.cwnd, before + 1000.0));
        let idle = Ack { cwnd_limited: false, ..ack(1, 0, at(20)) };
        cc.on_ack(at(40), &idle);
        assert!(close(cc.cwnd, before + 1000.0), "limited by the application");
    }

    #[test]
    fn on_loss__halves_once_and_slow_starts_after_a_timeout() {
        let loss = |kind| Loss { kind, bytes: MTU, inflight_bytes: 0 };
        let mut cc = flow(0.0);
        cc.on_loss(at(30), &loss(LossKind::Recovery));
        cc.on_loss(at(31), &loss(LossKind::Recovery));
        assert!(close(cc.cwnd, 50_000.0));
        cc.on_loss(at(90), &loss(LossKind::Timeout(1)));
        assert_eq!(cc.cwnd_bytes(), MTU);
        assert!(close(cc.ssthresh, 25_000.0));
        cc.on_ack(at(99), &ack(1, 0, at(91)));
        assert!(cc.cwnd_bytes() == 2 * MTU, "slow start");
    }
}
