//! HPCC: the window follows the link utilisation in switch telemetry.
//!
//! # Source
//! HPCC (SIGCOMM'19), algorithm 1; the authors' ns-3 where the paper leaves it open.

use crate::params::params;
use crate::round::{Base, Round};
use crate::telemetry::{Change, Telemetry};
use crate::units::{rate, whole};
use crate::{Ack, Controller, Hop, Loss, LossKind, Path};
use spanwire_base::{Dur, Rate, Time};

params! {
    /// Parameters of HPCC.
    struct Params of f64;
    /// Target utilisation.
    ///
    /// HPCC 4.
    eta = 0.95 in 0.5..=1.0;
    /// Round trips of additive increase before the next multiplicative one.
    ///
    /// HPCC 4.
    max_stage = 5.0 in 0.0..=1000.0;
    /// Flows that share a link without a queue: the additive increase is the headroom of eta
    /// divided by this.
    flows = 100.0 in 1.0..=1e6;
    /// Initial utilisation.
    ///
    /// The authors' ns-3.
    initial_u = 1.0 in 0.0..=10.0;
}

/// The HPCC controller of one flow. Windows in bytes.
#[derive(Clone, Debug)]
pub struct Hpcc {
    p: Params,
    mtu: f64,
    base: Base,
    /// W.
    cwnd: f64,
    /// W_c, the reference from which W is computed until the end of the round trip.
    reference: f64,
    u: f64,
    stage: f64,
    round: Round,
    telemetry: Telemetry,
}

impl Hpcc {
    /// The controller of one flow.
    #[must_use]
    pub fn new(params: &Params, path: &Path) -> Self {
        let mtu = f64::from(path.mtu_bytes);
        let mut this = Self {
            p: *params,
            mtu,
            base: Base::new(path),
            cwnd: UNKNOWN_PKTS * mtu,
            reference: UNKNOWN_PKTS * mtu,
            u: params.initial_u,
            stage: 0.0,
            round: Round::default(),
            telemetry: Telemetry::default(),
        };
        this.scale();
        this
    }

    fn scale(&mut self) {
        if let Some(bdp) = self.base.bdp_once() {
            (self.cwnd, self.reference) = (bdp.max(self.mtu), bdp.max(self.mtu));
        }
    }

    fn clamp(&self, w: f64) -> f64 {
        w.min(self.base.bdp().unwrap_or(f64::MAX)).max(self.mtu)
    }

    /// The utilisation of the busiest hop and the time it covers; none without new telemetry.
    fn utilisation(&mut self, a: &Ack<'_>, t: f64) -> Option<(f64, f64)> {
        let utilisation = |c: &Change| c.queue.min(c.queue_before) / (c.rate * t) + c.tx / c.rate;
        self.telemetry.busiest(a, utilisation)
    }
}

impl Controller for Hpcc {
    fn cwnd_bytes(&self) -> u64 {
        whole(self.cwnd)
    }

    fn rate(&self) -> Option<Rate> {
        self.base.rtt_ns().map(|t| rate((self.cwnd / t).min(self.base.line())))
    }

    fn wants_int(&self) -> bool {
        true
    }

    fn set_path(&mut self, line_rate: Rate, base_rtt: Dur) {
        self.base.set(line_rate, base_rtt);
    }

    fn on_ack(&mut self, now: Time, a: &Ack<'_>) {
        self.base.on_ack(a);
        self.scale();
        let is_over = self.round.ends(now, a.sent_at);
        let Some(t) = self.base.rtt_ns() else { return };
        let Some((u, span)) = self.utilisation(a, t) else { return };
        let tau = span.min(t);
        self.u += tau / t * (u - self.u);
        let bdp = self.base.bdp().unwrap_or(self.cwnd);
        let add = bdp * (1.0 - self.p.eta) / self.p.flows;
        let multiplies = self.u >= self.p.eta || self.stage >= self.p.max_stage;
        // Always from the reference, so that acknowledgements within a round trip do not compound.
        let w = match multiplies {
            true => self.reference / (self.u / self.p.eta).max(U_LEAST) + add,
            false => self.reference + add,
        };
        self.cwnd = self.clamp(w);
        if is_over {
            self.stage = if multiplies { 0.0 } else { self.stage + 1.0 };
            self.reference = self.cwnd;
        }
    }

    fn on_near_int(&mut self, now: Time, int: &[Hop]) {
        // Like an acknowledgement of the loop that ends at that switch.
        let rtt = self.base.rtt();
        self.on_ack(now, &Ack { int, rtt, sent_at: back(now, rtt), ..Ack::default() });
    }

    fn on_int_discontinuity(&mut self) {
        self.telemetry.clear();
    }

    fn on_loss(&mut self, _now: Time, loss: &Loss) {
        if let LossKind::Timeout(_) = loss.kind {
            self.reference = (self.reference / 2.0).max(self.mtu);
            self.cwnd = self.reference;
            self.telemetry.clear();
        }
    }

    fn on_path_change(&mut self, _now: Time) {
        self.telemetry.clear();
    }
}

/// The time one round trip before `now`.
fn back(now: Time, rtt: Option<Dur>) -> Time {
    Time::from_ps(now.as_ps().saturating_sub(rtt.map_or(0, Dur::as_ps)))
}

/// Initial window in packets while the bandwidth-delay product is unknown.
const UNKNOWN_PKTS: f64 = 16.0;
/// The smallest utilisation, which bounds the window on an idle link.
const U_LEAST: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::hop;
    use crate::testing::{at, close, path};

    /// 100 Gbit/s, 13 us: a window of 162,500 bytes, and an increase of 81.25.
    fn flow() -> Hpcc {
        let mut cc = Hpcc::new(&Params::default(), &path(1000, 100, Some(Dur::from_us(13))));
        cc.on_ack(at(0), &ack(&[hop(at(0), 0, 0)], at(0)));
        cc
    }

    fn ack(int: &[Hop], sent_at: Time) -> Ack<'_> {
        Ack { int, sent_at, ..Ack::default() }
    }

    fn about(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-3
    }

    #[test]
    fn on_ack__follows_the_busiest_hop() {
        let mut cc = flow();
        cc.on_ack(at(20), &ack(&[hop(at(13), 162_500, 50_000)], at(1)));
        assert!(close(cc.u, 1.0), "{}", cc.u);
        assert!(about(cc.cwnd, 154_456.25), "{}", cc.cwnd);
        cc.on_ack(at(40), &ack(&[hop(at(26), 325_000, 30_000)], at(20)));
        assert!(about(cc.cwnd, 123_947.138_8), "{}", cc.cwnd);
    }

    #[test]
    fn on_ack__adds_five_times_below_the_target_and_then_multiplies() {
        let mut cc = flow();
        cc.reference = 100_000.0;
        let mut windows = Vec::new();
        for n in 1..=6 {
            let int = [hop(at(13 * n), 81_250 * n, 0)];
            cc.on_ack(at(20 * n), &ack(&int, at(20 * (n - 1))));
            windows.push(cc.cwnd);
        }
        let want = [100_081.25, 100_162.5, 100_243.75, 100_325.0, 100_406.25, 162_500.0];
        assert!(windows.iter().zip(want).all(|(w, x)| about(*w, x)), "{windows:?}");
        assert!(close(cc.stage, 0.0));
    }

    #[test]
    fn on_ack__a_part_of_a_round_trip_counts_as_a_part() {
        let mut cc = flow();
        cc.u = 0.95;
        let quarter = Dur::from_ns(3250);
        // 3.25 us at 12 bytes a nanosecond, and a queue that brings the utilisation to 1.2.
        let queue = 39_000;
        cc.telemetry.clear();
        cc.on_ack(at(1), &ack(&[hop(at(0), 0, queue)], at(0)));
        cc.on_ack(at(30), &ack(&[hop(at(0) + quarter, 39_000, queue)], at(0)));
        assert!(close(cc.u, 1.0125), "{}", cc.u);
    }

    #[test]
    fn on_ack__does_not_compound_within_a_round_trip() {
        let mut cc = flow();
        cc.round.ends(at(1000), at(900));
        let reference = cc.reference;
        for n in 1..=2 {
            cc.on_ack(at(1000), &ack(&[hop(at(13 * n), 162_500 * n, 0)], at(10)));
            assert!(about(cc.cwnd, reference / (1.0 / 0.95) + 81.25), "{}", cc.cwnd);
        }
    }

    #[test]
    fn on_loss__halves_the_reference() {
        let mut cc = flow();
        let loss = |kind| Loss { kind, bytes: 1, inflight_bytes: 0 };
        cc.on_loss(at(1), &loss(LossKind::Recovery));
        assert!(close(cc.cwnd, 162_500.0));
        cc.on_loss(at(1), &loss(LossKind::Timeout(1)));
        assert!(close(cc.cwnd, 81_250.0));
    }
}
