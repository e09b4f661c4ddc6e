//! UnoCC: one control law for flows inside a datacenter and between datacenters.
//!
//! # Source
//! Uno 4.1 and Uno 4.2 (SC'25), with the parameters of the authors' published runs. Epochs
//! are delimited by send time. Where paper and runs differ, docs/cc.md gives the choice and why.

use crate::params::params;
use crate::round::{Base, Guard};
use crate::units::{dur, float, ns, rate, whole};
use crate::{Ack, Controller, Loss, LossKind, Path};
use spanwire_base::{Dur, Rate, Time};

params! {
    /// Parameters of UnoCC.
    struct Params of f64;
    /// Additive increase for each round trip, as a part of the flow's bandwidth-delay product.
    ///
    /// Uno, table 2.
    alpha = 0.001 in 1e-6..=1.0;
    /// Quick Adapt acts when less than this part of the window was acknowledged in a round trip.
    ///
    /// Uno, table 2.
    quick_adapt_ratio = 0.5 in 0.0..=1.0;
    /// Quick Adapt is on.
    quick_adapt = true;
    /// The constant K of the multiplicative decrease in bytes; 0 is a seventh of the
    /// bandwidth-delay product inside the datacenter, for all flows alike.
    ///
    /// Uno 4.1.
    k_bytes = 0.0 in 0.0..=1e9;
    /// The round trip inside the datacenter in microseconds: the epoch of every flow.
    ///
    /// Uno 5.
    intra_rtt_us = 14.0 in 0.1..=1e6;
    /// Gain of the average of the marked fraction.
    ///
    /// The authors' runs of figure 10; the paper gives none.
    ewma_gain = 0.5 in 0.001..=1.0;
    /// Factor of the decrease if only a phantom queue marks.
    ///
    /// Uno, algorithm 1; without memory of earlier epochs.
    phantom_scale = 0.3 in 0.0..=1.0;
    /// Delay in microseconds above the base round trip that still counts as no queue. 0 selects
    /// 5.5 % of the round trip inside the datacenter, but at least 5, the jitter of software
    /// timestamps.
    phantom_tolerance_us = 0.0 in 0.0..=1e6;
    /// Maximum window in bandwidth-delay products of the flow.
    ///
    /// The authors' runs.
    max_bdps = 1.0 in 0.01..=100.0;
    /// Initial window as a part of the maximum.
    initial = 1.0 in 0.0001..=1.0;
    /// Initial window in packets while no round trip is known.
    unknown_pkts = 16.0 in 1.0..=1e5;
}

/// The UnoCC controller of one flow. Window in bytes, times in nanoseconds.
#[derive(Clone, Debug)]
pub struct UnoCc {
    p: Params,
    mtu: f64,
    base: Base,
    cwnd: f64,
    /// The average of the marked fraction.
    marked: f64,
    /// The start of the current epoch.
    epoch_at: Option<Time>,
    epoch: Epoch,
    quick: Quick,
    timeout_cut: Guard,
}

/// The samples of an epoch.
#[derive(Clone, Copy, Debug, Default)]
struct Epoch {
    acked: u64,
    marked: u64,
    rtt_min: Option<Dur>,
}

/// The state of Quick Adapt.
#[derive(Clone, Copy, Debug, Default)]
struct Quick {
    /// The current period: its end, the bytes acknowledged, and whether the window limited
    /// throughout.
    period: Option<(Time, u64, bool)>,
    /// A period may begin with a packet sent at this time or later.
    begins_after: Time,
    /// Quick Adapt has acted: no decrease before a packet sent later is acknowledged.
    skip_until: Option<Time>,
}

impl UnoCc {
    /// The controller of one flow.
    #[must_use]
    pub fn new(params: &Params, path: &Path) -> Self {
        let mut this = Self {
            p: *params,
            mtu: f64::from(path.mtu_bytes),
            base: Base::new(path),
            cwnd: params.unknown_pkts * f64::from(path.mtu_bytes),
            marked: 0.0,
            epoch_at: None,
            epoch: Epoch::default(),
            quick: Quick::default(),
            timeout_cut: Guard::default(),
        };
        this.scale();
        this
    }

    /// Converts the window to bandwidth-delay products, once they are known.
    fn scale(&mut self) {
        if let Some(bdp) = self.base.bdp_once() {
            self.cwnd = bdp * self.p.max_bdps * self.p.initial;
            self.clamp();
        }
    }

    fn clamp(&mut self) {
        let max = self.base.bdp().map_or(f64::MAX, |bdp| bdp * self.p.max_bdps);
        self.cwnd = self.cwnd.min(max).max(self.mtu);
    }

    /// The round trip inside the datacenter, ns.
    fn intra_ns(&self) -> f64 {
        self.p.intra_rtt_us * 1e3
    }

    /// 4K / (K + BDP): the decrease of a fully marked epoch.
    fn gain(&self) -> f64 {
        let k = match self.p.k_bytes {
            k if k > 0.0 => k,
            _ => self.base.line() * self.intra_ns() / 7.0,
        };
        self.base.bdp().map_or(0.0, |bdp| 4.0 * k / (k + bdp))
    }

    fn tolerance_ns(&self) -> f64 {
        match self.p.phantom_tolerance_us {
            us if us > 0.0 => us * 1e3,
            _ => (0.055 * self.intra_ns()).max(5_000.0),
        }
    }

    /// Ends an epoch: one decrease, if anything was marked in it.
    fn end_epoch(&mut self, sent_at: Time) {
        let Epoch { acked, marked, rtt_min } = std::mem::take(&mut self.epoch);
        if acked > 0 {
            let fraction = float(marked) / float(acked);
            let gain = self.p.ewma_gain;
            self.marked = (1.0 - gain) * self.marked + gain * fraction;
            if fraction > 0.0 {
                let queue = match (rtt_min, self.base.rtt()) {
                    (Some(rtt), Some(base)) => ns(rtt) - ns(base),
                    _ => f64::MAX,
                };
                let is_phantom = queue <= self.tolerance_ns();
                let scale = if is_phantom { self.p.phantom_scale } else { 1.0 };
                self.cwnd *= 1.0 - (self.marked * self.gain() * scale).min(1.0);
            }
        }
        // Whole periods: a flow with less than one acknowledgement per epoch would fall behind, and
        // then decrease with every acknowledgement.
        if let Some(began) = self.epoch_at {
            let period = dur(self.intra_ns()).as_ps().max(1);
            let periods = 1 + sent_at.since(began).as_ps() / period;
            self.epoch_at = Some(began + Dur::from_ps(period * periods));
        }
    }

    /// Quick Adapt: if far less than a window is acknowledged in a round trip, the window is cut to
    /// that.
    fn adapt(&mut self, now: Time, a: &Ack<'_>) {
        if !self.p.quick_adapt || self.quick.skip_until.is_some() {
            return;
        }
        let Some(base_ns) = self.base.rtt_ns() else { return };
        match self.quick.period {
            None if a.sent_at >= self.quick.begins_after => {
                self.quick.period = Some((now + dur(1.05 * base_ns), 0, true));
            }
            Some((end, acked, limited)) if now >= end => {
                self.quick.period = None;
                self.quick.begins_after = now;
                if limited && float(acked) < self.p.quick_adapt_ratio * self.cwnd {
                    self.cwnd = float(acked).max(self.mtu);
                    self.quick.skip_until = Some(now);
                } else {
                    self.quick.period = Some((now + dur(1.05 * base_ns), 0, true));
                }
            }
            _ => {}
        }
    }
}

impl Controller for UnoCc {
    fn cwnd_bytes(&self) -> u64 {
        whole(self.cwnd)
    }

    fn rate(&self) -> Option<Rate> {
        self.base.rtt_ns().map(|base_ns| rate((self.cwnd / base_ns).min(self.base.line())))
    }

    fn set_path(&mut self, line_rate: Rate, base_rtt: Dur) {
        self.base.set(line_rate, base_rtt);
    }

    fn on_ack(&mut self, now: Time, a: &Ack<'_>) {
        self.base.on_ack(a);
        self.scale();
        if self.epoch_at.is_none() {
            self.epoch_at = Some(now);
        }
        if self.quick.skip_until.is_some_and(|until| a.sent_at >= until) {
            // Quick Adapt has already responded to the marks of this time.
            self.quick.skip_until = None;
            self.epoch = Epoch::default();
        }
        self.epoch.acked += a.acked_bytes;
        self.epoch.marked += a.marked_bytes;
        if let Some(rtt) = a.fabric_rtt() {
            self.epoch.rtt_min = Some(self.epoch.rtt_min.map_or(rtt, |m| m.min(rtt)));
        }
        let limited = a.is_limited(self.cwnd, self.mtu);
        if let Some((_, acked, all)) = &mut self.quick.period {
            *acked += a.acked_bytes;
            *all &= limited;
        }
        if let Some(bdp) = self.base.bdp().filter(|_| limited) {
            let unmarked = float(a.acked_bytes.saturating_sub(a.marked_bytes));
            self.cwnd += self.p.alpha * bdp * unmarked / self.cwnd;
        }
        self.adapt(now, a);
        let may_end = self.quick.skip_until.is_none();
        if may_end && self.epoch_at.is_some_and(|began| a.sent_at >= began) {
            self.end_epoch(a.sent_at);
        }
        self.clamp();
    }

    fn on_loss(&mut self, now: Time, loss: &Loss) {
        let lost = float(loss.bytes).min(self.cwnd / 2.0);
        match loss.kind {
            // Uno 4.1: marks decide for coded packets.
            LossKind::Block | LossKind::BlockRecovery => {}
            LossKind::Recovery => self.cwnd -= lost,
            LossKind::Timeout(_) => {
                let span = self.base.rtt().unwrap_or(Dur::ZERO);
                if self.timeout_cut.pass(now, span) {
                    self.cwnd -= lost;
                }
            }
        }
        self.clamp();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, at_ns, close, path};

    /// The bandwidth-delay products of Uno's figures: 175,344 and 22,400,515 bytes.
    const INTRA: u64 = 14_027_520;
    const INTER: u64 = 1_792_041_200;

    fn flow(rtt_ps: u64, cwnd: f64, change: impl FnOnce(&mut Params)) -> UnoCc {
        let path = path(4096, 100, Some(Dur::from_ps(rtt_ps)));
        let bdp = 12.5 * float(rtt_ps) / 1e3;
        let mut p = Params {
            k_bytes: 24_576.0,
            intra_rtt_us: 14.027_52,
            initial: cwnd / bdp,
            ..Params::default()
        };
        change(&mut p);
        UnoCc::new(&p, &path)
    }

    fn ack(acked: u64, marked: u64) -> Ack<'static> {
        Ack { acked_bytes: acked, marked_bytes: marked, ..Ack::default() }
    }

    /// An acknowledgement of a flow that is not limited by its window: no increase.
    fn idle(acked: u64, marked: u64, sent_at: Time, rtt_us: u64) -> Ack<'static> {
        Ack { sent_at, rtt: Some(Dur::from_us(rtt_us)), ..ack(acked, marked) }
    }

    fn held(acked: u64, marked: u64, sent_at: Time) -> Ack<'static> {
        Ack { sent_at, cwnd_limited: true, ..ack(acked, marked) }
    }

    #[test]
    fn on_ack__increases_by_alpha_for_each_window() {
        let mut cc = flow(INTRA, 100_000.0, |_| {});
        cc.on_ack(at(20), &held(4096, 0, at(1)));
        assert!(close(cc.cwnd, 100_007.182_090_24));
        let mut cc = flow(INTER, 1_000_000.0, |_| {});
        cc.on_ack(at(20), &held(4096, 0, at(1)));
        assert!(close(cc.cwnd, 1_000_091.752_509_44));
    }

    #[test]
    fn on_ack__decreases_once_an_epoch_by_the_average_and_less_for_a_phantom_queue() {
        for (rtt_us, want) in [(100, 87_707.083_333_333), (15, 96_312.125)] {
            let mut cc = flow(INTRA, 100_000.0, |_| {});
            cc.epoch_at = Some(Time::ZERO);
            cc.on_ack(at(20), &idle(40_960, 20_480, at(1), rtt_us));
            assert!(close(cc.marked, 0.25));
            assert!((cc.cwnd - want).abs() < 1.0, "{} {want}", cc.cwnd);
        }
    }

    #[test]
    fn on_ack__a_long_path_decreases_as_often_and_by_less() {
        let mut cc = flow(INTER, 22_400_515.0, |p| p.quick_adapt = false);
        cc.marked = 1.0;
        let mut now = Time::ZERO;
        cc.epoch_at = Some(now);
        cc.on_ack(now, &idle(4096, 4096, now, 9_999));
        assert!((cc.cwnd - 22_302_318.73).abs() < 1.0, "{}", cc.cwnd);
        for _ in 1..128 {
            now += dur(14_027.52);
            cc.on_ack(now, &idle(4096, 4096, now, 9_999));
        }
        assert!((cc.cwnd / 22_400_515.0 - 0.569_87).abs() < 1e-4, "{}", cc.cwnd);
    }

    #[test]
    fn on_ack__quick_adapt_cuts_to_what_arrives_and_skips_a_round_trip() {
        let scene = |acked: u64, cwnd_limited| {
            let mut cc = flow(INTRA, 100_000.0, |p| p.alpha = 1e-6);
            let a = |acked, sent_at| Ack { cwnd_limited, ..ack_at(acked, sent_at) };
            cc.on_ack(at(1), &a(0, at(0)));
            cc.on_ack(at(10), &a(acked, at(0)));
            cc.on_ack(at(16), &a(0, at(0)));
            cc
        };
        let cut = scene(30_000, true);
        assert!((cut.cwnd - 30_000.0).abs() < 1.0, "{}", cut.cwnd);
        assert!((scene(60_000, true).cwnd - 100_000.0).abs() < 1.0);
        assert!(close(scene(30_000, false).cwnd, 100_000.0), "limited by the application");

        let mut cc = cut;
        let before = cc.cwnd;
        cc.on_ack(at(17), &idle(4096, 4096, at(15), 99));
        assert!(close(cc.cwnd, before), "sent before it acted");
        cc.on_ack(at(40), &idle(4096, 4096, at(16), 99));
        assert!(cc.cwnd < before, "sent after");
    }

    fn ack_at(acked: u64, sent_at: Time) -> Ack<'static> {
        Ack { sent_at, ..ack(acked, 0) }
    }

    #[test]
    fn on_ack__an_epoch_catches_up_in_whole_periods() {
        let mut cc = flow(INTRA, 100_000.0, |p| p.intra_rtt_us = 14.0);
        cc.epoch_at = Some(Time::ZERO);
        cc.on_ack(at(60), &idle(4096, 0, at(50), 14));
        assert_eq!(cc.epoch_at, Some(at(56)));
    }

    #[test]
    fn on_loss__cuts_by_the_kind_of_loss() {
        let loss = |kind, bytes| Loss { kind, bytes, inflight_bytes: 0 };
        let mut cc = flow(INTRA, 100_000.0, |_| {});
        cc.on_loss(at(0), &loss(LossKind::Block, 50_000));
        assert!(close(cc.cwnd, 100_000.0));
        cc.on_loss(at(0), &loss(LossKind::Recovery, 10_000));
        assert!(close(cc.cwnd, 90_000.0));
        cc.on_loss(at(1), &loss(LossKind::Timeout(1), 80_000));
        assert!(close(cc.cwnd, 45_000.0));
        cc.on_loss(at(2), &loss(LossKind::Timeout(2), 80_000));
        assert!(close(cc.cwnd, 45_000.0), "once for each round trip");
        for us in 20..30 {
            cc.on_loss(at(us), &loss(LossKind::Recovery, 99_999_999));
        }
        assert!(close(cc.cwnd, 4096.0));
    }

    #[test]
    fn new__without_a_round_trip_starts_with_packets() {
        let mut cc = UnoCc::new(&Params::default(), &path(4096, 100, None));
        assert_eq!((cc.cwnd_bytes(), cc.rate()), (16 * 4096, None));
        cc.on_ack(at_ns(14_000), &idle(4096, 0, at(0), 14));
        assert_eq!(cc.cwnd_bytes(), 175_000);
        assert_eq!(cc.rate(), Some(Rate::from_gbps(100)));
    }
}
