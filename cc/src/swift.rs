//! Swift: delay against a target, for the fabric and for the endpoints, down to windows below one
//! packet.
//!
//! # Source
//! Swift (SIGCOMM'20) in Google's description for Falcon (OCP, revision 0.9: Falcon 10), with the
//! errata listed in docs/cc.md. The paper's production constants are not public.

use crate::near::Near;
use crate::params::params;
use crate::round::{Base, Guard};
use crate::units::{dur, float, ns, rate, whole};
use crate::{Ack, Controller, Loss, LossKind, Path, PseudoAck};
use spanwire_base::{Dur, Rate, Time};

params! {
    /// Parameters of Swift.
    struct Params of f64;
    /// Base target of the fabric delay in microseconds, without scaling by hops and flows; 0 is the
    /// base round trip plus 10.
    base_target_us = 0.0 in 0.0..=1e6;
    /// Target scaling per hop in microseconds.
    ///
    /// Reflex's simulations.
    hop_us = 1.0 in 0.0..=1e4;
    /// Maximum target scaling for a small window (flow scaling) in microseconds.
    flow_range_us = 50.0 in 0.0..=1e5;
    /// The window in packets at which flow scaling reaches its maximum.
    ///
    /// htsim.
    flow_min_pkts = 0.1 in 0.001..=10.0;
    /// The window in packets above which there is no flow scaling.
    ///
    /// htsim.
    flow_max_pkts = 100.0 in 11.0..=1e5;
    /// Additive increase in packets a round trip.
    ///
    /// htsim, UCCL.
    increase_pkts = 1.0 in 0.001..=1000.0;
    /// The decrease for a delay far above the target.
    ///
    /// htsim, UCCL.
    beta = 0.8 in 0.001..=1.0;
    /// Maximum multiplicative decrease factor.
    ///
    /// htsim, UCCL.
    max_decrease = 0.5 in 0.001..=0.99;
    /// Target of the endpoint delay in microseconds. Our endpoints delay acknowledgements by up
    /// to a quarter of the round trip, and share cores.
    endpoint_target_us = 500.0 in 1.0..=1e6;
    /// Consecutive timeouts after which the window is at its minimum.
    ///
    /// htsim.
    reset_after = 5.0 in 1.0..=100.0;
    /// Minimum window in packets.
    min_pkts = 0.01 in 0.0001..=1000.0;
    /// Initial window in packets, or the bandwidth-delay product if that is less.
    initial_pkts = 16.0 in 0.1..=1e5;
    /// Maximum window in bandwidth-delay products with the target in place of the round trip.
    max_bdps = 1.0 in 0.1..=100.0;
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
    near_every_us = 3.0 in 0.1..=1e6;
}

/// The Swift controller of one flow. Windows in packets, delays in microseconds.
#[derive(Clone, Debug)]
pub struct Swift {
    p: Params,
    mtu: f64,
    base: Base,
    fabric: Aimd,
    endpoint: Aimd,
    endpoint_delay: Option<f64>,
    srtt: Option<f64>,
    timeouts: f64,
    hops: f64,
    near: Near,
}

/// An AIMD window with the guard of its decreases.
#[derive(Clone, Copy, Debug)]
struct Aimd {
    pkts: f64,
    guard: Guard,
}

impl Swift {
    /// The controller of one flow.
    #[must_use]
    pub fn new(params: &Params, path: &Path) -> Self {
        let (mtu, base) = (f64::from(path.mtu_bytes), Base::new(path));
        let near = Near::new(params.near_base_us, params.near_ack, params.near_every_us);
        // The window is that of the near loop, if its base is known.
        let bdp = near.base_ns().map(|rtt| rtt * base.line()).or(base.bdp());
        let bdp_pkts = bdp.map_or(f64::MAX, |bdp| bdp / mtu);
        let pkts = params.initial_pkts.min(bdp_pkts.max(1.0));
        let aimd = Aimd { pkts, guard: Guard::default() };
        Self {
            p: *params,
            mtu,
            base,
            fabric: aimd,
            endpoint: aimd,
            endpoint_delay: None,
            srtt: None,
            timeouts: 0.0,
            hops: 0.0,
            near,
        }
    }

    /// The target for a window of `pkts`. A smaller window indicates more flows, so a higher
    /// target.
    fn target(&self, pkts: f64) -> Option<f64> {
        let base = match self.p.base_target_us {
            us if us > 0.0 => us,
            _ => self.near.base_ns().or(self.base.rtt_ns())? / 1e3 + 10.0,
        };
        let (min, max) = (self.p.flow_min_pkts, self.p.flow_max_pkts);
        let (low, high) = (1.0 / max.sqrt(), 1.0 / min.sqrt());
        let range = self.p.flow_range_us;
        let flows = range * (1.0 / pkts.sqrt() - low) / (high - low);
        // The near loop has fewer switches than the path of ACKs.
        let hops = match self.near.is_used() {
            true => self.near.hops().map_or(0.0, f64::from),
            false => self.hops,
        };
        Some(base + hops * self.p.hop_us + flows.clamp(0.0, range))
    }

    fn max_pkts(&self) -> f64 {
        let Some(base) = self.near.base_ns().or(self.base.rtt_ns()) else { return MAX_PKTS };
        let bdp = base * self.base.line();
        let target = self.target(MAX_PKTS).map_or(base, |us| us * 1e3);
        (self.p.max_bdps * bdp * (1.0 + target / base) / self.mtu).max(1.0)
    }

    fn smooth(&mut self, a: &Ack<'_>) {
        let Some(rtt) = a.rtt.map(|d| ns(d) / 1e3) else { return };
        self.srtt = Some(self.srtt.map_or(rtt, |s| s + (rtt - s) / 8.0));
        let ends = ns(a.ack_delay) / 1e3;
        self.endpoint_delay = Some(self.endpoint_delay.map_or(ends, |s| s + (ends - s) / 8.0));
    }

    /// Applies a sample of the near loop: `bytes` were sent, or acknowledged, since the last one.
    fn on_near_delay(&mut self, now: Time, rtt_ns: f64, bytes: f64, limited: bool) {
        // A flow grows by at most one increase for a sample, however long the switch was silent.
        let pkts = (bytes / self.mtu).min(self.fabric.pkts.max(1.0));
        // Before the first pseudo-ACK the target lacks its hops, but no queue was reported: the
        // base must not count as too long.
        let is_silent = self.near.hops().is_none() && self.near.base_ns() == Some(rtt_ns);
        let delay = if is_silent { 0.0 } else { rtt_ns / 1e3 };
        self.on_delay(now, delay, pkts, limited);
    }

    /// The span of the guard: the round trip of the active control loop.
    fn span(&self) -> Dur {
        let us = self.near.srtt_ns().map(|t| t / 1e3).or(self.srtt);
        us.map_or(Dur::ZERO, |us| dur(us * 1e3))
    }

    /// Applies a sample of the fabric delay, which `pkts` packets experienced.
    fn on_delay(&mut self, now: Time, delay: f64, pkts: f64, limited: bool) {
        let Some(target) = self.target(self.fabric.pkts) else { return };
        let (span, p) = (self.span(), self.p);
        self.fabric.update(now, span, &p, (delay, target), pkts * f64::from(u8::from(limited)));
        self.fabric.pkts = self.fabric.pkts.min(self.max_pkts()).max(p.min_pkts);
    }

    fn effective(&self) -> f64 {
        self.fabric.pkts.min(self.endpoint.pkts)
    }

    /// The bytes in flight end to end for the window of the near loop.
    fn end_to_end_bytes(&self) -> f64 {
        match (self.near.srtt_ns(), self.base.rtt_ns()) {
            (Some(near), Some(far)) => (far / near).max(1.0),
            _ => 1.0,
        }
    }

    fn cut(&mut self, now: Time) {
        let span = self.span();
        if self.fabric.guard.pass(now, span) {
            let least = self.p.min_pkts;
            self.fabric.pkts = (self.fabric.pkts * (1.0 - self.p.max_decrease)).max(least);
        }
    }
}

impl Aimd {
    /// Applies `sample`, which is delay and target; the window grows as for `grown` packets.
    fn update(&mut self, now: Time, span: Dur, p: &Params, sample: (f64, f64), grown: f64) {
        let (delay, target) = sample;
        if delay < target {
            let each = if self.pkts >= 1.0 { 1.0 / self.pkts } else { 1.0 };
            self.pkts += p.increase_pkts * grown * each;
        } else if self.guard.pass(now, span) {
            // The guard closes only after an actual decrease, or it would never open again.
            let by = p.beta * (delay - target) / delay.max(f64::MIN_POSITIVE);
            self.pkts *= (1.0 - by).max(1.0 - p.max_decrease);
        }
    }
}

impl Controller for Swift {
    fn cwnd_bytes(&self) -> u64 {
        whole((self.effective() * self.end_to_end_bytes()).max(1.0) * self.mtu)
    }

    fn rate(&self) -> Option<Rate> {
        // The near loop controls the rate; the window follows it.
        let near = self.near.srtt_ns()?;
        Some(rate((self.effective() * self.mtu / near.max(1.0)).min(self.base.line())))
    }

    fn min_gap(&self) -> Dur {
        match (self.effective(), self.srtt) {
            (pkts, Some(srtt)) if pkts < 1.0 && !self.near.is_used() => {
                dur(srtt * 1e3 / pkts).min(GAP_MAX)
            }
            _ => Dur::ZERO,
        }
    }

    fn set_path(&mut self, line_rate: Rate, base_rtt: Dur) {
        self.base.set(line_rate, base_rtt);
    }

    fn on_ack(&mut self, now: Time, a: &Ack<'_>) {
        self.base.on_ack(a);
        self.smooth(a);
        self.timeouts = 0.0;
        self.hops = a.hops.map_or(self.hops, f64::from);
        let pkts = float(a.acked_bytes) / self.mtu;
        let limited = a.is_limited(self.effective() * self.end_to_end_bytes() * self.mtu, self.mtu);
        if self.near.is_used() {
            let far = self.base.rtt_ns().unwrap_or(0.0);
            if let Some(sample) = self.near.on_far_ack(now, a, far) {
                self.on_near_delay(now, sample.rtt_ns, sample.bytes, limited);
            }
        } else if let Some(delay) = a.fabric_rtt() {
            self.on_delay(now, ns(delay) / 1e3, pkts, limited);
        }
        if let Some(delay) = self.endpoint_delay {
            // ACKs measure it, so the end-to-end round trip is its loop.
            let span = self.srtt.map_or(Dur::ZERO, |us| dur(us * 1e3));
            let p = self.p;
            let grown = pkts * f64::from(u8::from(limited));
            self.endpoint.update(now, span, &p, (delay, p.endpoint_target_us), grown);
            self.endpoint.pkts = self.endpoint.pkts.min(self.max_pkts()).max(p.min_pkts);
        }
    }

    fn wants_near(&self) -> bool {
        self.p.near_base_us > 0.0
    }

    fn on_pseudo_ack(&mut self, now: Time, a: &PseudoAck) {
        if let Some(sample) = self.near.on_pseudo_ack(now, a) {
            self.on_near_delay(now, sample.rtt_ns, sample.bytes, true);
        }
    }

    fn on_loss(&mut self, now: Time, loss: &Loss) {
        match loss.kind {
            LossKind::Block => {}
            LossKind::Recovery | LossKind::BlockRecovery => {
                self.timeouts = 0.0;
                self.cut(now);
            }
            LossKind::Timeout(_) => {
                self.timeouts += 1.0;
                if self.timeouts >= self.p.reset_after {
                    self.fabric.pkts = self.p.min_pkts;
                } else {
                    self.cut(now);
                }
            }
        }
    }
}

/// A window in packets that is never reached before the path is known.
const MAX_PKTS: f64 = 1e6;
/// The longest gap between two packets.
const GAP_MAX: Dur = Dur::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, path};

    fn flow(pkts: f64) -> Swift {
        let p = Params {
            base_target_us: 20.0,
            flow_range_us: 100.0,
            max_bdps: 100.0,
            initial_pkts: pkts,
            ..Params::default()
        };
        let mut cc = Swift::new(&p, &path(1000, 100, Some(Dur::from_us(20))));
        cc.hops = 3.0;
        // The endpoints do not limit this flow.
        cc.endpoint.pkts = MAX_PKTS;
        cc
    }

    fn ack(delay_us: u64, pkts: u64) -> Ack<'static> {
        let rtt = Some(Dur::from_us(delay_us));
        Ack { acked_bytes: pkts * 1000, rtt, cwnd_limited: true, ..Ack::default() }
    }

    fn about(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-5 * b.max(1.0)
    }

    #[test]
    fn target__more_for_smaller_windows() {
        let cc = flow(16.0);
        let rows = [
            (0.05, 100.0),
            (0.1, 100.0),
            (0.25, 62.045_32),
            (1.0, 29.389_89),
            (4.0, 13.062_17),
            (16.0, 4.898_315),
            (64.0, 0.816_386),
            (100.0, 0.0),
            (500.0, 0.0),
        ];
        for (pkts, flows) in rows {
            let got = cc.target(pkts).unwrap() - 23.0;
            assert!(about(got, flows), "{pkts}: {got}");
        }
    }

    #[test]
    fn on_ack__adds_below_the_target_and_decreases_once_above() {
        let mut cc = flow(16.0);
        cc.on_ack(at(100), &ack(25, 1));
        assert!(about(cc.fabric.pkts, 16.0625));
        let mut cc = flow(16.0);
        cc.on_ack(at(100), &ack(40, 1));
        assert!(about(cc.fabric.pkts, 12.127_461), "{}", cc.fabric.pkts);
        cc.on_ack(at(105), &ack(40, 1));
        assert!(about(cc.fabric.pkts, 12.127_461));
        let mut cc = flow(16.0);
        cc.on_ack(at(100), &ack(200, 1));
        assert!(about(cc.fabric.pkts, 8.0));
    }

    #[test]
    fn min_gap__is_a_window_below_one_packet() {
        let mut cc = flow(16.0);
        cc.srtt = Some(50.0);
        cc.fabric.pkts = 0.4;
        assert_eq!((cc.cwnd_bytes(), cc.min_gap()), (1000, Dur::from_us(125)));
        cc.on_ack(at(100), &ack(50, 1));
        assert!(about(cc.fabric.pkts, 1.4));
        assert_eq!(cc.min_gap(), Dur::ZERO);
    }

    #[test]
    fn on_loss__five_timeouts_reset_to_the_minimum() {
        let mut cc = flow(16.0);
        let mut windows = Vec::new();
        for n in 1..=5 {
            let kind = LossKind::Timeout(n);
            cc.on_loss(at(u64::from(n) * 1000), &Loss { kind, bytes: 1, inflight_bytes: 0 });
            windows.push(cc.fabric.pkts);
        }
        assert_eq!(windows, [8.0, 4.0, 2.0, 1.0, 0.01]);
    }

    #[test]
    fn on_ack__a_slow_peer_shrinks_the_endpoint_window() {
        let mut cc = flow(16.0);
        cc.endpoint.pkts = 16.0;
        let slow = Ack { ack_delay: Dur::from_ms(2), ..ack(2020, 1) };
        cc.on_ack(at(100), &slow);
        assert!(about(cc.fabric.pkts, 16.0625), "the fabric window is not cut");
        assert!(about(cc.endpoint.pkts, 8.0), "{}", cc.endpoint.pkts);
        assert_eq!(cc.cwnd_bytes(), 8000);
    }

    #[test]
    fn on_ack__the_minimum_holds_on_a_path_of_fewer_packets() {
        let p = Params { min_pkts: 500.0, base_target_us: 20.0, ..Params::default() };
        // 10 Gbit/s for 10 us are 12.5 packets.
        let mut cc = Swift::new(&p, &path(1000, 10, Some(Dur::from_us(10))));
        for us in 1..50 {
            cc.on_ack(at(1000 * us), &ack(900, 1));
        }
        assert_eq!(cc.cwnd_bytes(), 500_000);
    }

    #[test]
    fn on_pseudo_ack__controls_the_rate_of_a_long_path_by_the_near_loop() {
        let p = Params { initial_pkts: 100.0, ..Params::default() };
        let mut cc = Swift::new(&p, &path(1000, 100, Some(Dur::from_ms(1))));
        cc.on_pseudo_ack(at(10), &pseudo(10, 1));
        let before = cc.fabric.pkts;
        cc.on_pseudo_ack(at(100), &pseudo(100, 1));
        assert!(cc.fabric.pkts < before);
        let far = Ack { sent_at: at(1), ..ack(5000, 1) };
        let cut = cc.fabric.pkts;
        cc.on_ack(at(120), &far);
        assert!(about(cc.fabric.pkts, cut), "end-to-end ACKs do not cut");
        assert!(cc.cwnd_bytes() > 1_000_000 / 4, "the window covers the end-to-end path");
        assert!(cc.rate().is_some());
    }

    fn pseudo(us: u64, pkts: u64) -> PseudoAck {
        let rtt = Dur::from_us(us);
        PseudoAck { rtt, sent_at: at(0), sent_bytes: pkts * 1000, hops: Some(2) }
    }

    /// A flow between datacenters, 1 ms apart, with 6 us and two switches to the border, where the
    /// target is 6.6 us; 75 packets of a near round trip fill its link.
    fn far_flow(near_ack: f64) -> Swift {
        let p = Params {
            base_target_us: 2.6,
            hop_us: 2.0,
            flow_range_us: 0.0,
            initial_pkts: 40.0,
            near_base_us: 6.0,
            near_ack,
            ..Params::default()
        };
        Swift::new(&p, &path(1000, 100, Some(Dur::from_ms(1))))
    }

    #[test]
    fn on_pseudo_ack__counts_near_hops_and_bytes_since_the_last() {
        let mut cc = far_flow(0.0);
        assert!(cc.wants_near());
        // 40 packets in 6 us, 166 round trips of it in flight.
        assert_eq!((cc.cwnd_bytes(), cc.rate()), (6_666_666, Some(Rate::from_bps(53_333_333_333))));
        // Six hops of ACKs do not count: with them the target would be 14.6 us.
        cc.on_ack(at(10), &Ack { hops: Some(6), acked_bytes: 0, ..ack(1000, 0) });
        cc.on_pseudo_ack(at(20), &pseudo(6, 10));
        assert!(about(cc.fabric.pkts, 40.25), "{}", cc.fabric.pkts);
        // Two milliseconds of packets count as one window.
        cc.on_pseudo_ack(at(30), &pseudo(6, 20_000));
        assert!(about(cc.fabric.pkts, 41.25), "{}", cc.fabric.pkts);
        // 12 us: 1 - 0.8 * 5.4 / 12.
        cc.on_pseudo_ack(at(40), &pseudo(12, 10));
        assert!(about(cc.fabric.pkts, 41.25 * (1.0 - 0.8 * (12.0 - 6.6) / 12.0)));
    }

    #[test]
    fn on_ack__a_flow_that_was_cut_grows_again_without_pseudo_acks() {
        // Stored, least, none.
        let rates = [0.0, 1.0, 2.0].map(|near_ack| {
            let mut cc = far_flow(near_ack);
            for us in 0..60 {
                cc.on_pseudo_ack(at(2000 + 50 * us), &pseudo(40, 1));
            }
            let cut = cc.rate().unwrap();
            assert!(cut < Rate::from_bps(10_000_000), "{cut:?}");
            for us in 5000..9000 {
                cc.on_ack(at(us), &ack(1000, 5));
            }
            (cc.rate() == Some(cut), cc.rate() == Some(Rate::from_gbps(100)))
        });
        assert_eq!(rates, [(false, true), (false, true), (true, false)]);
    }

    #[test]
    fn on_ack__far_round_trips_never_reach_the_law_if_the_near_base_is_known() {
        let mut cc = far_flow(0.0);
        // A millisecond is above any target. Before the first pseudo-ACK the base is no queue.
        for us in 1000..1100 {
            cc.on_ack(at(us), &ack(1000, 40));
        }
        assert!(cc.fabric.pkts > 60.0, "{}", cc.fabric.pkts);
    }
}
