//! TIMELY: the rate follows the gradient of the round trip. Classic and patched.
//!
//! # Source
//! TIMELY (SIGCOMM'15); the patch of Zhu et al. (CoNEXT'16), without which no rate is a fixed
//! point. Updated once a round trip, so that no step has to be scaled by the time between
//! acknowledgements.

use crate::near::Near;
use crate::params::params;
use crate::round::{Base, Guard, Round};
use crate::units::{ns, rate, whole};
use crate::{Ack, Controller, Loss, LossKind, Path, PseudoAck};
use spanwire_base::{Dur, Rate, Time};

params! {
    /// Parameters of TIMELY.
    struct Params of f64;
    /// The patched form, which has a fixed point; if false, the classic one.
    patched = true;
    /// Gain of the average of the round trip differences.
    ///
    /// TIMELY, as ns-3's users run it.
    alpha = 0.875 in 0.001..=1.0;
    /// The decrease for a gradient of one, classic.
    ///
    /// TIMELY.
    beta = 0.8 in 0.001..=1.0;
    /// The decrease for a relative error of one, patched.
    ///
    /// Zhu et al.
    beta_patched = 0.008 in 0.0001..=1.0;
    /// Additive increase as a part of the line rate.
    ///
    /// 10 Mbit/s at 10 Gbit/s, as ns-3's users run it.
    increase = 0.001 in 1e-6..=1.0;
    /// Consecutive updates without a positive gradient before the increase is fivefold (classic).
    ///
    /// TIMELY.
    fast_after = 5.0 in 1.0..=1000.0;
    /// Low threshold of the round trip in microseconds, below which the rate grows; 0 is the base
    /// round trip plus 10.
    low_us = 0.0 in 0.0..=1e6;
    /// High threshold in microseconds, above which the rate shrinks whatever the gradient; 0 is the
    /// base round trip plus 200.
    high_us = 0.0 in 0.0..=1e6;
    /// Normalisation of the gradient in microseconds; 0 is the base round trip. A value far below
    /// the base round trip exaggerates gradients by as much.
    min_rtt_us = 0.0 in 0.0..=1e6;
    /// Minimum rate as a part of the line rate.
    min_rate = 0.01 in 1e-6..=1.0;
    /// Initial rate as a part of the line rate.
    initial = 1.0 in 1e-6..=1.0;
    /// Window in round trips (base round trips if larger) at the current rate; 0 for none. Without
    /// a window, bytes in flight are unbounded until feedback arrives.
    window_rtts = 1.25 in 0.0..=100.0;
    /// The round trip of the window: the last one, or always the base.
    window_of = 0.0 of "last" | "base";
    /// The round trip to the nearby switch that sends pseudo-ACKs, without queues, in microseconds.
    /// Above 0, the flow requests them (Reflex) and end-to-end round trips never reach the law; at
    /// 0 they do until the first pseudo-ACK.
    near_base_us = 0.0 in 0.0..=1e6;
    /// The near round trip with which an ACK runs the law, so that a flow grows while the switch
    /// has no queue to report: the last one, for an end-to-end round trip, or the least. With
    /// `none` ACKs do not run it. With `silent` it is the least, after `near_every_us` without a
    /// pseudo-ACK, and of pseudo-ACKs only those about packets that left since the last run count.
    ///
    /// Reflex leaves it open.
    near_ack = 0.0 of "stored" | "least" | "none" | "silent";
    /// Minimum interval in microseconds between two runs of the law by ACKs.
    ///
    /// Reflex: the interval of pseudo-ACKs.
    near_every_us = 5.0 in 0.1..=1e6;
}

impl Params {
    /// Those of simulations with ns-3: the classic form with thresholds of 50 and 500 us, without a
    /// window.
    ///
    /// # Source
    /// HPCC's ns-3 code: `run.py` ("timely").
    #[must_use]
    pub(crate) fn ns3() -> Self {
        Self {
            patched: false,
            low_us: 50.0,
            high_us: 500.0,
            min_rtt_us: 20.0,
            window_rtts: 0.0,
            ..Self::default()
        }
    }

    /// The same with a window, which is a bandwidth-delay product at the current rate, and with a
    /// lowest rate of 100 Mbit/s at 100 Gbit/s.
    ///
    /// # Source
    /// HPCC's ns-3 code: `HAS_WIN`, `VAR_WIN` and `MIN_RATE` of `mix/config.txt`. Its `GLOBAL_T`
    /// gives all flows the window of the longest path; here each has that of its own.
    #[must_use]
    pub(crate) fn ns3_with_window() -> Self {
        Self { window_rtts: 1.0, window_of: BASE, min_rate: 0.001, ..Self::ns3() }
    }
}

/// The TIMELY controller of one flow. Rate in bytes a nanosecond, round trips in microseconds.
#[derive(Clone, Debug)]
pub struct Timely {
    p: Params,
    mtu: f64,
    base: Base,
    rate: f64,
    prev: Option<f64>,
    /// The average of the round trip differences.
    diff: f64,
    /// Consecutive updates without a positive gradient.
    falling: u32,
    round: Round,
    near: Near,
    timeout_cut: Guard,
}

impl Timely {
    /// The controller of one flow.
    #[must_use]
    pub fn new(params: &Params, path: &Path) -> Self {
        let base = Base::new(path);
        Self {
            p: *params,
            mtu: f64::from(path.mtu_bytes),
            base,
            rate: base.line() * params.initial,
            // The base of the near loop, if it is known: the first pseudo-ACK shows a difference.
            prev: Some(params.near_base_us).filter(|us| *us > 0.0),
            diff: 0.0,
            falling: 0,
            round: Round::default(),
            near: Near::new(params.near_base_us, params.near_ack, params.near_every_us),
            timeout_cut: Guard::default(),
        }
    }

    /// The base round trip of the active control loop, us.
    fn base_us(&self) -> Option<f64> {
        Some(self.near.base_ns().or(self.base.rtt_ns())? / 1e3)
    }

    fn update(&mut self, rtt: f64) {
        let Some(base) = self.base_us() else { return };
        let or = |value: f64, other: f64| if value > 0.0 { value } else { other };
        let (low, high) = (or(self.p.low_us, base + 10.0), or(self.p.high_us, base + 200.0));
        let Some(prev) = self.prev.replace(rtt) else { return };
        self.diff += self.p.alpha * (rtt - prev - self.diff);
        if self.diff.abs() < RESOLUTION_US {
            // The average of a difference long ago; constant round trips have no gradient. The
            // classic form would not increase for hundreds of round trips.
            self.diff = 0.0;
        }
        let gradient = self.diff / or(self.p.min_rtt_us, base);
        self.falling = if gradient <= 0.0 { self.falling.saturating_add(1) } else { 0 };
        let add = self.p.increase * self.base.line();
        let old = self.rate;
        self.rate = if rtt < low {
            old + add
        } else if rtt > high {
            old * (1.0 - self.p.beta * (1.0 - high / rtt))
        } else if self.p.patched {
            let weight = (2.0 * gradient + 0.5).clamp(0.0, 1.0);
            let error = (rtt - low) / low;
            add * (1.0 - weight) + old * (1.0 - self.p.beta_patched * weight * error)
        } else if gradient <= 0.0 {
            let is_fast = f64::from(self.falling) >= self.p.fast_after;
            old + add * if is_fast { FAST } else { 1.0 }
        } else {
            old * (1.0 - self.p.beta * gradient)
        };
        self.clamp(old / 2.0);
    }

    fn clamp(&mut self, floor: f64) {
        let line = self.base.line();
        self.rate = self.rate.max(floor).max(line * self.p.min_rate).min(line);
    }
}

impl Controller for Timely {
    fn cwnd_bytes(&self) -> u64 {
        let Some(base) = self.base.rtt_ns().filter(|_| self.p.window_rtts > 0.0) else {
            return u64::MAX;
        };
        // The last round trip of the far loop, because bytes are in flight end to end.
        let last = self.prev.filter(|_| !self.near.is_used() && self.p.window_of < BASE);
        let rtt = last.map_or(base, |us| (us * 1e3).max(base));
        whole((self.p.window_rtts * self.rate * rtt).max(self.mtu))
    }

    fn rate(&self) -> Option<Rate> {
        Some(rate(self.rate))
    }

    fn set_path(&mut self, line_rate: Rate, base_rtt: Dur) {
        self.base.set(line_rate, base_rtt);
    }

    fn on_ack(&mut self, now: Time, a: &Ack<'_>) {
        self.base.on_ack(a);
        if self.near.is_used() {
            let far = self.base.rtt_ns().unwrap_or(0.0);
            if let Some(sample) = self.near.on_far_ack(now, a, far) {
                self.update(sample.rtt_ns / 1e3);
            }
            return;
        }
        if let Some(rtt) = a.fabric_rtt().filter(|_| self.round.ends(now, a.sent_at)) {
            self.update(ns(rtt) / 1e3);
        }
    }

    fn wants_near(&self) -> bool {
        self.p.near_base_us > 0.0
    }

    fn on_pseudo_ack(&mut self, now: Time, a: &PseudoAck) {
        if !self.near.is_used() {
            // The round trips of another control loop are not comparable.
            (self.prev, self.diff) = (None, 0.0);
        }
        if let Some(sample) = self.near.on_pseudo_ack(now, a) {
            self.update(sample.rtt_ns / 1e3);
        }
    }

    fn on_loss(&mut self, now: Time, loss: &Loss) {
        let span = self.base.rtt().unwrap_or(Dur::ZERO);
        let is_timeout = matches!(loss.kind, LossKind::Timeout(_));
        if is_timeout && self.timeout_cut.pass(now, span) {
            self.rate /= 2.0;
            self.clamp(0.0);
        }
    }

    fn on_path_change(&mut self, _now: Time) {
        (self.prev, self.diff, self.falling) = (None, 0.0, 0);
    }
}

/// Timestamps have nanoseconds.
const RESOLUTION_US: f64 = 0.001;
/// The factor of the increase after consecutive falling round trips.
const FAST: f64 = 5.0;
/// `window_of` of windows that do not grow with the round trip.
const BASE: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, path};

    /// Rates in Mbit/s on a link of 10 Gbit/s, where the increase is 10 Mbit/s.
    fn flow(patched: bool, start: f64, prev: f64) -> Timely {
        let p = Params {
            patched,
            low_us: 50.0,
            high_us: 500.0,
            min_rtt_us: 20.0,
            initial: start / 1e4,
            ..Params::default()
        };
        let mut cc = Timely::new(&p, &path(1000, 10, Some(Dur::from_us(20))));
        cc.prev = Some(prev);
        // The first round begins.
        cc.round.ends(at(900), at(0));
        cc
    }

    fn feed(cc: &mut Timely, rtts: &[u64]) -> Vec<f64> {
        let mut now = at(1000);
        let mut rates = Vec::new();
        for rtt in rtts {
            let sent_at = now;
            now += Dur::from_us(*rtt);
            cc.on_ack(now, &Ack { rtt: Some(Dur::from_us(*rtt)), sent_at, ..Ack::default() });
            rates.push(cc.rate * 8e3);
        }
        rates
    }

    fn near(got: &[f64], want: &[f64]) -> bool {
        got.len() == want.len() && got.iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-4)
    }

    #[test]
    fn on_ack__classic_follows_the_gradient() {
        let got = feed(&mut flow(false, 1000.0, 100.0), &[110, 100, 600, 40]);
        assert!(near(&got, &[650.0, 660.0, 572.0, 582.0]), "{got:?}");
    }

    #[test]
    fn on_ack__patched_weighs_gradient_and_error() {
        let got = feed(&mut flow(true, 10_000.0, 60.0), &[62, 58]);
        // At the line rate, which the second may not exceed.
        assert!(near(&got, &[9_990.29, 9_996.373_4]), "{got:?}");
    }

    #[test]
    fn on_ack__after_five_falling_round_trips_the_increase_is_fivefold() {
        let got = feed(&mut flow(false, 1000.0, 300.0), &[290, 280, 270, 260, 250]);
        assert!(near(&got, &[1010.0, 1020.0, 1030.0, 1040.0, 1090.0]), "{got:?}");
    }

    #[test]
    fn on_ack__constant_round_trips_have_no_gradient() {
        let mut rtts = [100; 12];
        rtts[0] = 140;
        let got = feed(&mut flow(false, 5000.0, 100.0), &rtts);
        // The average falls to an eighth each round trip, from 35 us to less than a nanosecond.
        let increases = got.windows(2).filter(|pair| pair[1] > pair[0]).count();
        assert!(increases >= 5, "{got:?}");
    }

    #[test]
    fn cwnd_bytes__grows_with_the_round_trip_unless_it_is_the_base_s() {
        let windows = [0.0, BASE].map(|window_of| {
            let mut cc = flow(false, 5000.0, 100.0);
            cc.p = Params { window_rtts: 1.0, window_of, ..cc.p };
            let at_100_us = cc.cwnd_bytes();
            feed(&mut cc, &[100]);
            assert!(near(&[cc.rate * 8e3], &[5010.0]), "{}", cc.rate);
            [at_100_us, cc.cwnd_bytes()]
        });
        // 5 Gbit/s for 100 us, and for the base of 20 us.
        assert_eq!(windows, [[62_500, 62_625], [12_500, 12_525]]);
    }

    #[test]
    fn on_ack__once_a_round_trip() {
        let mut cc = flow(false, 1000.0, 100.0);
        feed(&mut cc, &[110]);
        let before = cc.rate;
        // Sent before the last update.
        let late = Ack { rtt: Some(Dur::from_us(400)), sent_at: at(1001), ..Ack::default() };
        cc.on_ack(at(1200), &late);
        assert!((cc.rate - before).abs() < 1e-12);
    }

    #[test]
    fn on_pseudo_ack__replaces_acknowledgements() {
        let mut cc = flow(false, 1000.0, 100.0);
        cc.on_pseudo_ack(at(1000), &pseudo(100));
        let mut rates = Vec::new();
        for us in [110, 100] {
            cc.on_pseudo_ack(at(1010), &pseudo(us));
            let far = Ack { rtt: Some(Dur::from_us(1012)), sent_at: at(1009), ..Ack::default() };
            cc.on_ack(at(1011), &far);
            rates.push(cc.rate * 8e3);
        }
        assert!(near(&rates, &[650.0, 660.0]), "{rates:?}");
    }

    fn pseudo(us: u64) -> PseudoAck {
        PseudoAck { rtt: Dur::from_us(us), sent_at: at(0), sent_bytes: 4096, hops: None }
    }

    /// A flow between datacenters, 1012 us apart, with 6 us to the switch at the border.
    fn far_flow(near_ack: f64, near_base_us: f64) -> Timely {
        let p = Params {
            patched: false,
            low_us: 50.0,
            high_us: 500.0,
            min_rtt_us: 20.0,
            near_base_us,
            near_ack,
            ..Params::default()
        };
        Timely::new(&p, &path(1000, 10, Some(Dur::from_us(1012))))
    }

    /// Acknowledges a packet each microsecond of `us`.
    fn acknowledge(cc: &mut Timely, us: std::ops::Range<u64>) {
        for us in us {
            let rtt = Some(Dur::from_us(1012));
            let ack = Ack { acked_bytes: 1000, rtt, sent_at: at(us - 1012), ..Ack::default() };
            cc.on_ack(at(us), &ack);
        }
    }

    #[test]
    fn on_ack__far_round_trips_never_reach_the_law_if_the_near_base_is_known() {
        for (near_base_us, holds) in [(0.0, false), (6.0, true)] {
            let mut cc = far_flow(0.0, near_base_us);
            assert_eq!(cc.wants_near(), holds);
            acknowledge(&mut cc, 2000..8000);
            // 1012 us are above the high threshold.
            assert_eq!(cc.rate() == Some(Rate::from_gbps(10)), holds, "{:?}", cc.rate());
        }
    }

    #[test]
    fn on_pseudo_ack__the_first_is_compared_with_the_near_base() {
        let mut cc = far_flow(0.0, 6.0);
        // Gradient (100 - 6) * 0.875 / 20: halved, as in each step at most.
        cc.on_pseudo_ack(at(2000), &pseudo(100));
        assert_eq!(cc.rate(), Some(Rate::from_gbps(5)));
    }

    #[test]
    fn on_ack__a_flow_that_was_cut_grows_again_without_pseudo_acks() {
        // Stored, least, none.
        let rates = [0.0, 1.0, 2.0].map(|near_ack| {
            let mut cc = far_flow(near_ack, 6.0);
            for us in 0..60 {
                cc.on_pseudo_ack(at(2000 + 5 * us), &pseudo(900 + us));
            }
            assert_eq!(cc.rate(), Some(Rate::from_bps(100_000_000)), "the minimum");
            // No pseudo-ACK follows: all are lost, or the queue is empty.
            acknowledge(&mut cc, 2300..20_000);
            cc.rate().unwrap().as_bps() / 1_000_000
        });
        assert_eq!(rates, [10_000, 10_000, 100]);
    }

    #[test]
    fn on_loss__halves_after_a_timeout_only() {
        let mut cc = flow(true, 1000.0, 100.0);
        let loss = |kind| Loss { kind, bytes: 1, inflight_bytes: 0 };
        cc.on_loss(at(0), &loss(LossKind::Recovery));
        assert!((cc.rate * 8e3 - 1000.0).abs() < 1e-9);
        cc.on_loss(at(1), &loss(LossKind::Timeout(1)));
        cc.on_loss(at(2), &loss(LossKind::Timeout(2)));
        assert!((cc.rate * 8e3 - 500.0).abs() < 1e-9, "once for each round trip");
    }
}
