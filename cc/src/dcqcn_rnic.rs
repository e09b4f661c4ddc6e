//! The reaction point of DCQCN in RDMA adapters: a timer of its own limits rate decreases.
//!
//! # Source
//! NVIDIA's page of DCQCN parameters, with their names in parentheses, and ns-3's model of it.

use crate::dcqcn::{MBPS, approach, window};
use crate::params::params;
use crate::round::{Base, Guard};
use crate::units::{dur, power, rate};
use crate::{Ack, Controller, Loss, Path};
use spanwire_base::{Dur, Rate, Time};

params! {
    /// Parameters of an adapter's DCQCN.
    struct Params of f64;
    /// Gain of the congestion estimate alpha (1 - dce_tcp_g / 1024).
    ///
    /// NVIDIA: 1019.
    g = 0.004_882_812_5 in 1e-6..=1.0;
    /// Initial alpha (initial_alpha_value / 1024).
    ///
    /// NVIDIA: 1023.
    alpha0 = 0.999_023_437_5 in 0.0..=1.0;
    /// Interval of the alpha update in microseconds (dce_tcp_rtt).
    ///
    /// NVIDIA.
    alpha_us = 1.0 in 0.1..=1e6;
    /// Minimum interval between rate decreases in microseconds (rate_reduce_monitor_period).
    ///
    /// NVIDIA.
    decrease_us = 4.0 in 0.1..=1e6;
    /// Interval of the rate increase in microseconds (rpg_time_reset).
    ///
    /// NVIDIA.
    increase_us = 300.0 in 1.0..=1e6;
    /// Increases in fast recovery, each of which halves the distance to the target (rpg_threshold).
    ///
    /// NVIDIA.
    fast_recovery = 1.0 in 1.0..=31.0;
    /// Additive increase in Mbit/s (rpg_ai_rate).
    ///
    /// NVIDIA.
    additive_mbps = 5.0 in 0.001..=1e6;
    /// Hyper increase in Mbit/s (rpg_hai_rate).
    ///
    /// NVIDIA.
    hyper_mbps = 50.0 in 0.001..=1e6;
    /// Minimum rate in Mbit/s (rpg_min_rate).
    ///
    /// NVIDIA.
    min_mbps = 1.0 in 0.001..=1e6;
    /// The least factor of one decrease (rpg_min_dec_fac).
    ///
    /// NVIDIA: 50 %.
    min_factor = 0.5 in 0.0..=1.0;
    /// The first notification sets the rate to this part of the line rate; 0 is off
    /// (rate_to_set_on_first_cnp).
    first_cnp = 0.0 in 0.0..=1.0;
    /// Each decrease sets the target rate (clamp_tgt_rate); if false, only the first decrease after
    /// an increase does.
    clamp_target = false;
    /// Interval in microseconds at which CE marks in acknowledgements (SR) count as a notification,
    /// at most one each.
    ///
    /// PACC 2: adapters' usual interval; the receiver's of RC is 50.
    cnp_us = 4.0 in 0.0..=1e6;
    /// Window in base round trips at the current rate; 0 for none.
    ///
    /// Adapters have none. Without a window, bytes in flight are unbounded until feedback arrives.
    window_rtts = 2.0 in 0.0..=1000.0;
}

impl Params {
    /// Those of simulations with ns-3, among them HPCC's and PACC's: from the line rate, without a
    /// window.
    ///
    /// # Source
    /// HPCC's ns-3 code: `run.py` ("dcqcn") and `rdma-hw.cc`. Its increases of 5 and 50 Mbit/s are
    /// for links of 25 Gbit/s.
    #[must_use]
    pub(crate) fn ns3() -> Self {
        Self {
            g: 1.0 / 256.0,
            alpha0: 1.0,
            fast_recovery: 1.0,
            min_mbps: 100.0,
            window_rtts: 0.0,
            ..Self::default()
        }
    }
}

/// The controller of one flow. Rates in bytes a nanosecond.
#[derive(Clone, Debug)]
pub struct DcqcnRnic {
    p: Params,
    mtu: f64,
    base: Base,
    current: f64,
    target: f64,
    alpha: f64,
    /// The start of the current alpha slot; none before the first notification.
    slot_at: Option<Time>,
    cnp_in_slot: bool,
    stage: f64,
    /// The start of the current decrease period; none before the first notification.
    gate_at: Option<Time>,
    /// The end of the decrease period, if a notification arrived in it.
    decrease_at: Option<Time>,
    increase_at: Option<Time>,
    /// Open if marks count as a notification.
    notified: Guard,
}

impl DcqcnRnic {
    /// The controller of one flow, at the line rate.
    #[must_use]
    pub fn new(params: &Params, path: &Path) -> Self {
        let base = Base::new(path);
        Self {
            p: *params,
            mtu: f64::from(path.mtu_bytes),
            base,
            current: base.line(),
            target: base.line(),
            alpha: params.alpha0,
            slot_at: None,
            cnp_in_slot: false,
            stage: 0.0,
            gate_at: None,
            decrease_at: None,
            increase_at: None,
            notified: Guard::default(),
        }
    }

    /// Updates alpha to `now`, slot by slot.
    fn update_alpha(&mut self, now: Time) {
        let Some(began) = self.slot_at else { return };
        let period = dur(self.p.alpha_us * 1e3);
        let slots = now.since(began).as_ps() / period.as_ps().max(1);
        self.slot_at = Some(began + period * slots);
        let Some(others) = slots.checked_sub(1) else { return };
        // Only the first slot can have had a notification.
        let seen = std::mem::take(&mut self.cnp_in_slot);
        self.alpha = self.alpha * (1.0 - self.p.g) + if seen { self.p.g } else { 0.0 };
        self.alpha *= power(1.0 - self.p.g, others);
    }

    fn decrease(&mut self, now: Time) {
        (self.gate_at, self.decrease_at) = (Some(now), None);
        if self.p.clamp_target || self.stage > 0.0 {
            self.target = self.current;
        }
        let factor = (1.0 - self.alpha / 2.0).max(self.p.min_factor);
        self.current = (self.current * factor).max(self.p.min_mbps / MBPS);
        self.stage = 0.0;
        self.increase_at = Some(now + dur(self.p.increase_us * 1e3));
    }

    fn increase(&mut self) {
        if self.stage > self.p.fast_recovery {
            self.target += self.p.hyper_mbps / MBPS;
        } else if self.stage >= self.p.fast_recovery {
            self.target += self.p.additive_mbps / MBPS;
        }
        self.stage += 1.0;
        if approach(&mut self.current, &mut self.target, self.base.line()) {
            self.increase_at = None;
        }
    }
}

impl Controller for DcqcnRnic {
    fn cwnd_bytes(&self) -> u64 {
        window(&self.base, self.p.window_rtts, self.current, self.mtu)
    }

    fn rate(&self) -> Option<Rate> {
        Some(rate(self.current))
    }

    fn set_path(&mut self, line_rate: Rate, base_rtt: Dur) {
        self.base.set(line_rate, base_rtt);
    }

    fn on_ack(&mut self, now: Time, ack: &Ack<'_>) {
        self.base.on_ack(ack);
        if ack.marked_bytes > 0 && self.notified.pass(now, dur(self.p.cnp_us * 1e3)) {
            self.on_cnp(now);
        }
    }

    fn on_loss(&mut self, _now: Time, _loss: &Loss) {}

    fn on_cnp(&mut self, now: Time) {
        self.update_alpha(now);
        if self.slot_at.is_none() {
            self.slot_at = Some(now);
            if self.p.first_cnp > 0.0 {
                self.current = self.base.line() * self.p.first_cnp;
                self.target = self.current;
            }
        } else {
            self.cnp_in_slot = true;
        }
        // Each period has at most one decrease. Periods are counted from the first notification,
        // and a timer is needed only at the end of a period with a notification.
        let (began, period) = (*self.gate_at.get_or_insert(now), dur(self.p.decrease_us * 1e3));
        let passed = now.since(began).as_ps() / period.as_ps().max(1);
        self.decrease_at.get_or_insert(began + period * (passed + 1));
    }

    fn poll_timeout(&self) -> Option<Time> {
        [self.decrease_at, self.increase_at].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Time) {
        // Each at its due time and in their order, however late this call is.
        while let Some(due) = self.poll_timeout().filter(|due| *due <= now) {
            if self.decrease_at == Some(due) {
                self.update_alpha(due);
                self.decrease(due);
            } else {
                self.increase_at = Some(due + dur(self.p.increase_us * 1e3));
                self.increase();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, path};
    use spanwire_base::Dur;

    fn flow(p: &Params) -> DcqcnRnic {
        DcqcnRnic::new(p, &path(1000, 25, Some(Dur::from_us(20))))
    }

    fn about(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn handle_timeout__one_notification_is_one_decrease_a_period_later() {
        let rows = [
            (Params { g: 1.0 / 256.0, alpha0: 1.0, ..Params::default() }, 0.984_466_31, 12.694_171),
            (Params::default(), 0.979_653_71, 12.754_329),
        ];
        for (p, alpha, current) in rows {
            let mut cc = flow(&p);
            cc.on_cnp(at(0));
            assert_eq!(cc.rate(), Some(Rate::from_gbps(25)));
            assert_eq!(cc.poll_timeout(), Some(at(4)));
            cc.handle_timeout(at(4));
            assert!((cc.alpha - alpha).abs() < 1e-8, "{}", cc.alpha);
            assert!(about(cc.current * 8.0, current), "{}", cc.current * 8.0);
            assert!(about(cc.target * 8.0, 25.0));
            cc.handle_timeout(at(8));
            assert!(about(cc.current * 8.0, current), "no second notification");
        }
    }

    #[test]
    fn handle_timeout__a_late_call_has_the_same_effect() {
        let mut cc = flow(&Params::default());
        cc.on_cnp(at(0));
        // The decrease was due at 4 us, with alpha after 4 slots rather than 700; the increase
        // 300 us after that.
        cc.handle_timeout(at(700));
        let mut punctual = flow(&Params::default());
        punctual.on_cnp(at(0));
        punctual.handle_timeout(at(4));
        assert!(about(punctual.current * 8.0, 12.754_329));
        punctual.handle_timeout(at(304));
        punctual.handle_timeout(at(604));
        assert!(about(cc.current, punctual.current), "{} {}", cc.current, punctual.current);
        assert_eq!(cc.poll_timeout(), Some(at(904)));
    }

    #[test]
    fn on_cnp__periods_of_decreases_run_from_the_first_one_on() {
        let mut cc = flow(&Params::default());
        cc.on_cnp(at(0));
        cc.handle_timeout(at(4));
        for (us, due) in [(5, 8), (9, 12), (30, 32), (32, 36)] {
            cc.on_cnp(at(us));
            assert_eq!(cc.poll_timeout(), Some(at(due)), "{us}");
            cc.handle_timeout(at(due));
        }
    }

    #[test]
    fn handle_timeout__increases_by_half_then_adds_then_faster() {
        let mut cc = flow(&Params { clamp_target: true, ..Params::default() });
        cc.on_cnp(at(0));
        cc.handle_timeout(at(4));
        cc.on_cnp(at(5));
        cc.handle_timeout(at(8));
        let (low, target) = (cc.current, cc.target);
        cc.handle_timeout(at(308));
        assert!(about(cc.current, f64::midpoint(low, target)) && about(cc.target, target));
        cc.handle_timeout(at(608));
        assert!(about((cc.target - target) * MBPS, 5.0));
        cc.handle_timeout(at(908));
        assert!(about((cc.target - target) * MBPS, 55.0));
    }

    #[test]
    fn on_cnp__many_in_a_period_are_one_decrease() {
        let mut cc = flow(&Params::default());
        for us in 0..4 {
            cc.on_cnp(at(us));
        }
        cc.handle_timeout(at(4));
        let once = cc.current;
        assert!(once > cc.base.line() * 0.5);
        cc.on_cnp(at(5));
        assert_eq!(cc.poll_timeout(), Some(at(8)));
        cc.handle_timeout(at(8));
        assert!(cc.current < once);
    }
}
