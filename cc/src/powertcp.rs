//! PowerTCP: the window follows power, the product of current and voltage, measured by telemetry
//! or by the round trip alone (theta).
//!
//! # Source
//! PowerTCP (NSDI'22), algorithms 1 and 2, and the authors' kernel module: the form with windows,
//! without the utilisation target of their ns-3, and of its floors only that of the gradient.

use crate::params::params;
use crate::round::{Base, Round};
use crate::telemetry::Telemetry;
use crate::units::{ns, rate, whole};
use crate::{Ack, Controller, Hop, Loss, LossKind, Path};
use spanwire_base::{Dur, Rate, Time};

params! {
    /// Parameters of PowerTCP.
    struct Params of f64;
    /// Power is measured by the round trip (theta-PowerTCP); if false, by telemetry.
    theta = false;
    /// Gain of the window's update.
    ///
    /// PowerTCP 3.3.
    gamma = 0.9 in 0.01..=1.0;
    /// Flows expected on a link: the additive increase is a bandwidth-delay product divided by
    /// this.
    ///
    /// The authors' kernel module.
    flows = 10.0 in 1.0..=1e6;
    /// Minimum normalised power.
    ///
    /// The authors' kernel module.
    power_floor = 0.01 in 1e-6..=1.0;
    /// Minimum of one plus the round trip's gradient (theta). At zero, a queue that drains at the
    /// line rate would have no power, and every flow would open its window at once.
    ///
    /// The authors' ns-3.
    gradient_floor = 0.5 in 0.0..=1.0;
}

/// The PowerTCP controller of one flow. Windows in bytes.
#[derive(Clone, Debug)]
pub struct PowerTcp {
    p: Params,
    mtu: f64,
    base: Base,
    cwnd: f64,
    /// The window at the time the acknowledged packets were sent.
    old: f64,
    /// The window at the start of this round trip: `old` in the next.
    cwnd_at_round_start: f64,
    /// Smoothed normalised power; none before the first sample.
    power: Option<f64>,
    telemetry: Telemetry,
    /// The last acknowledgement and its round trip in nanoseconds (theta).
    last: Option<(Time, f64)>,
    round: Round,
}

impl PowerTcp {
    /// The controller of one flow.
    #[must_use]
    pub fn new(params: &Params, path: &Path) -> Self {
        let mtu = f64::from(path.mtu_bytes);
        let mut this = Self {
            p: *params,
            mtu,
            base: Base::new(path),
            cwnd: UNKNOWN_PKTS * mtu,
            old: UNKNOWN_PKTS * mtu,
            cwnd_at_round_start: UNKNOWN_PKTS * mtu,
            power: None,
            telemetry: Telemetry::default(),
            last: None,
            round: Round::default(),
        };
        this.scale();
        this
    }

    fn scale(&mut self) {
        if let Some(bdp) = self.base.bdp_once() {
            let w = bdp.max(self.mtu);
            (self.cwnd, self.old, self.cwnd_at_round_start) = (w, w, w);
        }
    }

    /// Normalised power by telemetry and the time it covers, ns.
    fn by_telemetry(&mut self, a: &Ack<'_>, tau: f64) -> Option<(f64, f64)> {
        self.telemetry.busiest(a, |c| {
            // The arrival rate is the departure rate plus the growth of the queue.
            let current = (c.tx + (c.queue - c.queue_before) / c.span).max(0.0);
            let voltage = c.queue + c.rate * tau;
            current * voltage / (c.rate * c.rate * tau)
        })
    }

    /// Normalised power by the round trip and the time it covers, ns.
    fn by_round_trip(&mut self, now: Time, a: &Ack<'_>, tau: f64) -> Option<(f64, f64)> {
        let rtt = ns(a.fabric_rtt()?);
        let Some((at, before)) = self.last else {
            self.last = Some((now, rtt));
            return None;
        };
        let span = ns(now.since(at));
        // Acknowledgements that arrive together do not show the growth rate of a queue.
        if span < self.mtu / self.base.line() {
            return None;
        }
        self.last = Some((now, rtt));
        let gradient = 1.0 + (rtt - before) / span;
        Some((gradient.max(self.p.gradient_floor) * rtt / tau, span))
    }

    fn smooth(&mut self, power: f64, span: f64, tau: f64) -> f64 {
        let part = span.min(tau) / tau;
        let smoothed = self.power.map_or(power, |old| old + part * (power - old));
        let smoothed = smoothed.max(self.p.power_floor);
        self.power = Some(smoothed);
        smoothed
    }
}

impl Controller for PowerTcp {
    fn cwnd_bytes(&self) -> u64 {
        whole(self.cwnd)
    }

    fn rate(&self) -> Option<Rate> {
        self.base.rtt_ns().map(|tau| rate((self.cwnd / tau).min(self.base.line())))
    }

    fn wants_int(&self) -> bool {
        !self.p.theta
    }

    fn set_path(&mut self, line_rate: Rate, base_rtt: Dur) {
        self.base.set(line_rate, base_rtt);
    }

    fn on_ack(&mut self, now: Time, a: &Ack<'_>) {
        self.base.on_ack(a);
        self.scale();
        let (Some(tau), Some(bdp)) = (self.base.rtt_ns(), self.base.bdp()) else { return };
        let theta = self.p.theta;
        let sample =
            if theta { self.by_round_trip(now, a, tau) } else { self.by_telemetry(a, tau) };
        let is_over = self.round.ends(now, a.sent_at);
        if let Some((power, span)) = sample {
            let power = self.smooth(power, span, tau);
            // By the round trip once per round; by telemetry with every acknowledgement.
            if is_over || !theta {
                let gamma = self.p.gamma;
                let to = self.old / power + bdp / self.p.flows;
                self.cwnd = gamma * to + (1.0 - gamma) * self.cwnd;
                self.cwnd = self.cwnd.min(bdp).max(self.mtu);
            }
        }
        if is_over {
            self.old = self.cwnd_at_round_start;
            self.cwnd_at_round_start = self.cwnd;
        }
    }

    fn on_near_int(&mut self, now: Time, int: &[Hop]) {
        let rtt = self.base.rtt();
        let ago = rtt.map_or(0, spanwire_base::Dur::as_ps);
        let sent_at = Time::from_ps(now.as_ps().saturating_sub(ago));
        self.on_ack(now, &Ack { int, rtt, sent_at, ..Ack::default() });
    }

    fn on_int_discontinuity(&mut self) {
        self.telemetry.clear();
    }

    fn on_loss(&mut self, _now: Time, loss: &Loss) {
        if let LossKind::Timeout(_) = loss.kind {
            self.cwnd = (self.cwnd / 2.0).max(self.mtu);
            (self.old, self.cwnd_at_round_start, self.power) = (self.cwnd, self.cwnd, None);
            self.telemetry.clear();
            self.last = None;
        }
    }

    fn on_path_change(&mut self, _now: Time) {
        self.telemetry.clear();
        self.last = None;
    }
}

/// Initial window in packets while the bandwidth-delay product is unknown.
const UNKNOWN_PKTS: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::hop;
    use crate::testing::{at, close, path};
    use spanwire_base::Dur;

    /// 100 Gbit/s, 20 us: 250,000 bytes; the increase is 2500.
    fn flow(theta: bool) -> PowerTcp {
        let p = Params { theta, flows: 100.0, ..Params::default() };
        PowerTcp::new(&p, &path(1000, 100, Some(Dur::from_us(20))))
    }

    fn int(hops: &[Hop], sent_at: Time) -> Ack<'_> {
        Ack { int: hops, sent_at, ..Ack::default() }
    }

    fn about(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-2
    }

    #[test]
    fn on_ack__by_telemetry() {
        let mut cc = flow(false);
        cc.on_ack(at(0), &int(&[hop(at(0), 0, 0)], at(0)));
        cc.on_ack(at(20), &int(&[hop(at(20), 250_000, 50_000)], at(1)));
        assert!(close(cc.power.unwrap(), 1.44));
        assert!(about(cc.cwnd, 183_500.0), "{}", cc.cwnd);
        cc.old = 183_500.0;
        cc.power = None;
        cc.on_ack(at(40), &int(&[hop(at(40), 500_000, 20_000)], at(21)));
        assert!(close(cc.power.unwrap(), 0.9504), "{:?}", cc.power);
        assert!(about(cc.cwnd, 194_368.939), "{}", cc.cwnd);
    }

    #[test]
    fn on_ack__by_the_round_trip() {
        let mut cc = flow(true);
        let ack = |us, sent_at| Ack { rtt: Some(Dur::from_us(us)), sent_at, ..Ack::default() };
        cc.on_ack(at(100), &ack(20, at(80)));
        cc.on_ack(at(120), &ack(24, at(100)));
        assert!(close(cc.power.unwrap(), 1.44), "{:?}", cc.power);
        assert!(about(cc.cwnd, 183_500.0), "{}", cc.cwnd);
        (cc.old, cc.power) = (183_500.0, None);
        cc.on_ack(at(140), &ack(20, at(120)));
        assert!(close(cc.power.unwrap(), 0.8));
        assert!(about(cc.cwnd, 227_037.5), "{}", cc.cwnd);
        let before = cc.cwnd;
        cc.on_ack(at(150), &ack(40, at(121)));
        assert!(close(cc.cwnd, before), "once a round trip");
    }

    #[test]
    fn by_round_trip__a_draining_queue_has_power() {
        let mut cc = flow(true);
        let ack = |us, sent_at| Ack { rtt: Some(Dur::from_us(us)), sent_at, ..Ack::default() };
        cc.on_ack(at(100), &ack(60, at(40)));
        // 20 us less in 20 us: nothing arrives. Half of the voltage 40 / 20 is left.
        cc.on_ack(at(120), &ack(40, at(100)));
        assert!(close(cc.power.unwrap(), 1.0), "{:?}", cc.power);
        let mut cc = PowerTcp { p: Params { gradient_floor: 0.0, ..cc.p }, ..flow(true) };
        cc.on_ack(at(100), &ack(60, at(40)));
        cc.on_ack(at(120), &ack(40, at(100)));
        assert!(close(cc.power.unwrap(), 0.01), "{:?}", cc.power);
    }

    #[test]
    fn smooth__a_part_of_a_round_trip_counts_as_a_part() {
        let mut cc = flow(false);
        cc.power = Some(1.0);
        assert!(close(cc.smooth(1.44, 5e3, 20e3), 1.11));
        assert!(close(cc.smooth(-1e9, 20e3, 20e3), 0.01), "the floor");
    }

    #[test]
    fn on_loss__halves_after_a_timeout_and_resets() {
        let mut cc = flow(false);
        cc.on_loss(at(1), &Loss { kind: LossKind::Timeout(1), bytes: 1, inflight_bytes: 0 });
        assert!(close(cc.cwnd, 125_000.0) && cc.power.is_none());
    }
}
