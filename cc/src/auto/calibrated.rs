//! Other algorithms on any path: they decide in congestion avoidance, and `auto` does the rest.
//!
//! Algorithms of datacenters are made for a known link and base round trip, for hosts that are not
//! late, and for lossless paths. Here each sees such a path. Its link has the rate that the path
//! delivers, and a quarter more; its base round trip includes the delay that `auto` tolerates; its
//! delays are the smallest of an interval; it sees losses only if they are congestion. Startup,
//! drains and the base round trip are those of `auto`.

use super::best::BestRate;
use super::interval::Interval;
use crate::units::{bytes_per_ns, dur, ns, rate};
use crate::wire_share::WireShare;
use crate::{Ack, Algorithm, Cc, Controller, Loss, LossKind, Path, Sent};
use spanwire_base::{Dur, Time};

/// Another algorithm in congestion avoidance.
#[derive(Clone, Debug)]
pub(super) struct Calibrated {
    algorithm: Algorithm,
    path: Path,
    wants_int: bool,
    has_int: bool,
    /// It runs since startup ended.
    cc: Option<Cc>,
    rates: BestRate,
    wire: WireShare,
    /// The link in payload, as it was given with headers, and the base round trip.
    line: f64,
    wire_line: f64,
    base: f64,
    /// The smallest delay of the previous interval.
    min_before: f64,
}

/// The path as `auto` knows it, in nanoseconds and bytes per nanosecond.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) base: f64,
    /// The delay that is no congestion: the target, or what the hosts add if that is more.
    pub(super) target: f64,
    pub(super) rate: f64,
}

impl Calibrated {
    /// `algorithm` on a path with this MTU and link.
    pub(super) fn new(algorithm: &Algorithm, path: &Path) -> Self {
        Self {
            algorithm: *algorithm,
            path: *path,
            wants_int: algorithm.start(path).wants_int(),
            has_int: false,
            cc: None,
            rates: BestRate::new(WINDOW),
            wire: WireShare::default(),
            line: 0.0,
            wire_line: 0.0,
            base: 0.0,
            min_before: f64::MAX,
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.algorithm.name()
    }

    pub(super) fn wants_int(&self) -> bool {
        self.wants_int
    }

    pub(super) fn wants_near(&self) -> bool {
        self.algorithm.wants_near()
    }

    /// It uses telemetry, and the path has none.
    pub(super) fn lacks_int(&self) -> bool {
        self.wants_int && !self.has_int
    }

    /// The algorithm, if it runs.
    pub(super) fn cc(&self) -> Option<&Cc> {
        self.cc.as_ref()
    }

    /// The algorithm, mutable, if it runs.
    pub(super) fn cc_mut(&mut self) -> Option<&mut Cc> {
        self.cc.as_mut()
    }

    /// Records whether there is telemetry.
    pub(super) fn see(&mut self, a: &Ack<'_>) {
        self.has_int |= !a.int.is_empty();
    }

    /// Applies the end of an interval whose smallest delay is `min`.
    pub(super) fn on_interval(&mut self, now: Time, min: f64, view: &View) {
        self.min_before = min;
        self.rates.add(now, view.rate, Dur::ZERO);
        let (line, base) = self.calibration(view);
        let wire_line = self.on_the_wire(line);
        let differs = |a: f64, b: f64| (a - b).abs() > b / 16.0;
        if differs(wire_line, self.wire_line) || differs(base, self.base) {
            (self.line, self.wire_line, self.base) = (line, wire_line, base);
            if let Some(cc) = &mut self.cc {
                cc.set_path(rate(wire_line), dur(base));
            }
        }
    }

    /// A packet left.
    pub(super) fn on_sent(&mut self, now: Time, sent: &Sent) {
        self.wire.add(sent);
        if let Some(cc) = &mut self.cc {
            cc.on_sent(now, sent);
        }
    }

    /// A rate of payload as the pacer counts it. The link that an algorithm is given would else
    /// fall below the rate that it was measured with, and so on without end.
    fn on_the_wire(&self, payload: f64) -> f64 {
        (payload * self.wire.correction()).min(bytes_per_ns(self.path.line_rate))
    }

    /// Link and base round trip for the algorithm.
    fn calibration(&self, view: &View) -> (f64, f64) {
        let base = view.base + view.target;
        // A path that stopped has no rate; it may be good again.
        let least = MIN_PKTS * f64::from(self.path.mtu_bytes) / base.max(1.0);
        let own = bytes_per_ns(self.path.line_rate);
        ((self.rates.get() * RATE_MARGIN).max(least).min(own), base)
    }

    /// Starts the algorithm, if it does not run and the path supports it.
    pub(super) fn start(&mut self, view: &View) {
        if self.cc.is_some() || self.lacks_int() {
            return;
        }
        (self.line, self.base) = self.calibration(view);
        self.wire_line = self.on_the_wire(self.line);
        let path =
            Path { line_rate: rate(self.wire_line), base_rtt: Some(dur(self.base)), ..self.path };
        self.cc = Some(scaled(self.algorithm, &path, view).start(&path));
    }

    /// Applies an acknowledgement in congestion avoidance. Its delay is the smallest of this and
    /// the previous interval, and the delay that `auto` tolerates is part of the base round trip.
    pub(super) fn on_ack(&mut self, now: Time, a: &Ack<'_>, interval: &Interval, view: &View) {
        let smallest = interval.min_delay().map_or(self.min_before, |m| m.min(self.min_before));
        let base = self.base;
        let Some(cc) = &mut self.cc else { return };
        let queue = (smallest - view.base - view.target).max(0.0);
        let rtt = a.rtt.map(|_| dur(base + queue) + a.ack_delay);
        cc.on_ack(now, &Ack { rtt, rtt_slack: Dur::ZERO, ..*a });
    }

    /// Losses are congestion.
    pub(super) fn on_congestion(&mut self, now: Time, bytes: u64, inflight_bytes: u64) {
        if let Some(cc) = &mut self.cc {
            cc.on_loss(now, &Loss { kind: LossKind::Recovery, bytes, inflight_bytes });
        }
    }

    /// The window in bytes: the algorithm's, at most twice what the path holds.
    pub(super) fn window(&self, mtu: f64) -> Option<f64> {
        let most = MAX_BDPS * self.line * self.base + SPARE_PKTS * mtu;
        Some(crate::units::float(self.cc.as_ref()?.cwnd_bytes()).min(most))
    }
}

/// Scales parameters that were not set and have their defaults: a preset has its own.
macro_rules! scale {
    ($p:ident, $d:ident: $($field:ident = $to:expr;)*) => {{
        $(if !$p.is_set(stringify!($field)) && $p.$field == $d.$field {
            $p.$field = $to;
        })*
    }};
}

/// The parameters of an algorithm that have the scale of a datacenter, for this path. Parameters
/// that were set are kept.
fn scaled(algorithm: Algorithm, path: &Path, view: &View) -> Algorithm {
    let base_us = path.base_rtt.map_or(0.0, ns) / 1e3;
    let target_us = view.target / 1e3;
    let line = bytes_per_ns(path.line_rate);
    let bdp = line * base_us * 1e3;
    let mut scaled = algorithm;
    match (&mut scaled, algorithm.defaults()) {
        (Algorithm::Swift(p), Algorithm::Swift(d)) => {
            let near_us = near_loop_us(p.near_base_us, target_us);
            scale! { p, d:
                endpoint_target_us = (base_us + target_us).clamp(d.endpoint_target_us, 1e6);
                increase_pkts =
                    (near_us.unwrap_or(base_us) / 500.0).clamp(d.increase_pkts, 1000.0);
                initial_pkts = 1e5;
                max_bdps = MAX_BDPS;
                base_target_us = near_us.map_or(d.base_target_us, |us| (us + target_us).min(1e6));
                near_every_us = near_us.map_or(d.near_every_us, |us| NEAR_SILENT * us);
                near_ack = near_us.map_or(d.near_ack, |_| NEAR_SILENT_ACK);
            }
        }
        (Algorithm::Timely(p), Algorithm::Timely(d)) => {
            let near_us = near_loop_us(p.near_base_us, target_us);
            scale! { p, d:
                increase = INCREASE;
                near_every_us = near_us.map_or(d.near_every_us, |us| NEAR_SILENT * us);
                near_ack = near_us.map_or(d.near_ack, |_| NEAR_SILENT_ACK);
            }
            // Thresholds of a preset below the base round trip mean that there is always a queue.
            // Its own follow the base round trip.
            let is_set = p.is_set("low_us") || p.is_set("high_us");
            if !is_set && p.high_us < near_us.unwrap_or(base_us + target_us) {
                let near = near_us.map(|low| (low, (low + target_us.max(NEAR_RANGE_US)).min(1e6)));
                (p.low_us, p.high_us) = near.unwrap_or((d.low_us, d.high_us));
            }
        }
        (Algorithm::UnoCc(p), Algorithm::UnoCc(d)) => scale! { p, d:
            intra_rtt_us = base_us.clamp(d.intra_rtt_us, 1e6);
            alpha = INCREASE;
            max_bdps = MAX_BDPS;
            initial = 1.0 / MAX_BDPS;
            // Quick Adapt takes a host that is late for a round trip for a failed path.
            quick_adapt = false;
        },
        (Algorithm::Dcqcn(p), Algorithm::Dcqcn(d)) => {
            let mbps = line * 8e3;
            scale! { p, d:
                increase_us = base_us.clamp(d.increase_us, 1e6);
                alpha_us = base_us.clamp(d.alpha_us, 1e6);
                additive_mbps = (mbps * INCREASE).max(0.001);
                hyper_mbps = (mbps * INCREASE * 2.0).max(0.001);
                g = DCQCN_GAIN;
            }
            if !p.is_set("min_mbps") {
                p.min_mbps = p.min_mbps.min(mbps / 100.0).max(0.001);
            }
        }
        (Algorithm::Gemini(p), Algorithm::Gemini(d)) => scale! { p, d:
            threshold_ms = (target_us / 1e3).clamp(0.001, d.threshold_ms);
            increase_bytes = (bdp * INCREASE).clamp(d.increase_bytes, 1e9);
            max_bdps = MAX_BDPS;
        },
        _ => {}
    }
    scaled
}

/// The round trip of the near loop, if it has one, with the delay that is no congestion end to end:
/// the hosts add it there, too. Above it TIMELY no longer grows; with twice the delay, since round
/// trips here are single ones and not the smallest of an interval, both slow down.
fn near_loop_us(near_base_us: f64, target_us: f64) -> Option<f64> {
    (near_base_us > 0.0).then_some((near_base_us + target_us).min(5e5))
}

/// Delivery rates of so long count: twice, as windows overlap.
const WINDOW: Dur = Dur::from_secs(5);
/// The link of the algorithm has this times the highest delivery rate, so that it can find more.
const RATE_MARGIN: f64 = 1.25;
/// The link holds at least this many packets in a round trip.
const MIN_PKTS: f64 = 2.0;
/// Packets that the window may have beside twice the path.
const SPARE_PKTS: f64 = 16.0;
/// The longest window in bandwidth-delay products: a host that is late needs more than one.
const MAX_BDPS: f64 = 2.0;
/// The increase in a round trip, as a part of the rate or of the window.
const INCREASE: f64 = 0.02;
/// Near round trips without a pseudo-ACK after which an ACK shows that there is no queue. If that
/// is shorter than the interval of the switch, ACKs undo what pseudo-ACKs do, and a flow from
/// another datacenter starves those within for longer than without feedback.
const NEAR_SILENT: f64 = 2.0;
/// The word `silent` of `near_ack`.
const NEAR_SILENT_ACK: f64 = 3.0;
/// The least distance of TIMELY's thresholds in the near loop: that of its defaults.
const NEAR_RANGE_US: f64 = 190.0;
/// Gain of DCQCN where CNPs are rare.
const DCQCN_GAIN: f64 = 1.0 / 16.0;

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_base::Rate;

    /// `text` scaled to a path of 200 Mbit/s and 20 ms.
    fn on_a_far_path(text: &str) -> Algorithm {
        let path = Path {
            mtu_bytes: 1024,
            line_rate: Rate::from_bps(200_000_000),
            base_rtt: Some(Dur::from_ms(20)),
        };
        let view = View { base: 20e6, target: 1e6, rate: 0.025 };
        scaled(Algorithm::parse(text).unwrap(), &path, &view)
    }

    #[test]
    fn scaled__keeps_parameters_that_were_set_also_to_their_defaults() {
        let Algorithm::UnoCc(plain) = on_a_far_path("unocc") else { panic!("unocc") };
        assert!(!plain.quick_adapt && plain.intra_rtt_us > 15_000.0);
        let set = on_a_far_path("unocc,quick_adapt=true,intra_rtt_us=14");
        let Algorithm::UnoCc(set) = set else { panic!("unocc") };
        assert!(set.quick_adapt && set.intra_rtt_us < 15.0);
        // Presets are not scaled where they differ from the defaults.
        let [plain, preset] = ["gemini", "gemini-paper"].map(on_a_far_path);
        let paper = Algorithm::named("gemini-paper").unwrap();
        for (name, text) in paper.differences(&paper.defaults()) {
            assert!(preset.settings().contains(&(name, text.clone())), "{name}={text}: {preset}");
        }
        assert_ne!(plain, preset);
    }

    #[test]
    fn scaled__thresholds_below_the_base_round_trip_are_not_kept() {
        let thresholds = |text: &str| match on_a_far_path(text) {
            Algorithm::Timely(p) => (p.low_us, p.high_us),
            other => panic!("{other}"),
        };
        // 50 and 500 us on a path of 20 ms.
        assert_eq!(thresholds("timely-ns3"), (0.0, 0.0));
        assert_eq!(thresholds("timely-ns3,high_us=600"), (50.0, 600.0), "as it was set");
    }

    /// The path's delay that is no congestion is 1 ms.
    #[test]
    fn scaled__thresholds_of_the_near_loop_are_above_its_own_round_trip() {
        let Algorithm::Swift(swift) = on_a_far_path("swift,near_base_us=600") else { panic!() };
        assert_eq!((swift.base_target_us, swift.near_every_us), (2_600.0, 3_200.0));
        assert!((3.0..4.0).contains(&swift.increase_pkts), "of the near loop, not of 20 ms");
        for name in ["timely", "timely-ns3"] {
            let text = format!("{name},near_base_us=600");
            let Algorithm::Timely(timely) = on_a_far_path(&text) else { panic!() };
            assert_eq!((timely.low_us, timely.high_us), (1_600.0, 2_600.0), "{name}");
            assert_eq!((timely.near_every_us, timely.near_ack), (3_200.0, NEAR_SILENT_ACK));
        }
        let Algorithm::Swift(far) = on_a_far_path("swift") else { panic!() };
        let default = Algorithm::named("swift").unwrap();
        let Algorithm::Swift(default) = default else { panic!() };
        assert_eq!((far.near_ack, far.base_target_us), (default.near_ack, default.base_target_us));
    }

    #[test]
    fn scaled__every_parameter_that_is_scaled_can_be_kept() {
        let near = ["swift,near_base_us=600", "timely,near_base_us=600"];
        for name in ["swift", "timely", "unocc", "dcqcn", "gemini"].into_iter().chain(near) {
            let plain = Algorithm::parse(name).unwrap();
            for (field, to) in on_a_far_path(name).differences(&plain) {
                let default = plain.fields().iter().find(|f| f.name == field).unwrap();
                let text = format!("{name},{field}={}", default.text(default.default));
                let kept = on_a_far_path(&text).differences(&plain);
                assert!(kept.iter().all(|(other, _)| *other != field), "{text} became {to}");
            }
        }
    }
}
