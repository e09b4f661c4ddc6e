//! BBR, version 1: a model of the path from the delivery rate and the smallest round trip.
//!
//! # Source
//! Linux's `tcp_bbr`, whose constants are kept, without its estimator of policers. ECN marks are
//! ignored.

mod filter;

use crate::params::params;
use crate::round::Base;
use crate::units::{dur, float, ns, rate, whole};
use crate::wire_share::WireShare;
use crate::{Ack, Controller, Loss, LossKind, Path, Sent};
use filter::MaxFilter;
use spanwire_base::{Dur, Rate, Time};

params! {
    /// Parameters of BBR.
    struct Params of f64;
    /// Gain of rate and window in Startup: 2 / ln 2.
    ///
    /// Linux: 739/256.
    high_gain = 2.886_718_75 in 1.0..=10.0;
    /// Gain of the rate in Drain.
    ///
    /// Linux: 88/256.
    drain_gain = 0.343_75 in 0.01..=1.0;
    /// Gain of the window in ProbeBW.
    ///
    /// Linux.
    cwnd_gain = 2.0 in 1.0..=10.0;
    /// The rate as a part of the bandwidth estimate, which drains the queue of an overestimate.
    ///
    /// Linux: one percent.
    pacing_margin = 0.99 in 0.5..=1.0;
    /// ProbeRTT measures the smallest round trip anew when it is this many seconds old.
    ///
    /// Linux.
    min_rtt_s = 10.0 in 0.001..=1000.0;
    /// Duration of ProbeRTT in milliseconds.
    ///
    /// Linux.
    probe_rtt_ms = 200.0 in 0.001..=1e4;
    /// Initial window in packets.
    ///
    /// Linux.
    initial_pkts = 10.0 in 1.0..=1e5;
    /// Maximum window in bandwidth-delay products of our own link; 0 for no limit.
    ///
    /// Uno's runs: 1.
    max_bdps = 0.0 in 0.0..=100.0;
}

/// The BBR controller of one flow. Bytes and nanoseconds.
#[derive(Clone, Debug)]
pub struct Bbr {
    p: Params,
    mtu: f64,
    base: Base,
    mode: Mode,
    cwnd: f64,
    /// The pacing rate, once there is a sample.
    pacing: Option<f64>,
    bandwidth: MaxFilter,
    wire: WireShare,
    min_rtt: Option<f64>,
    min_rtt_at: Time,
    /// Rounds, counted by bytes delivered.
    rounds: u64,
    round_ends_at: u64,
    full: FullPipe,
    /// The phase of the gain cycle, and its start.
    phase: usize,
    phase_at: Time,
    loss_in_phase: bool,
    /// The window before ProbeRTT, or before a recovery.
    prior_cwnd: f64,
    probe_done_at: Option<Time>,
    probe_round_over: bool,
    recovery: Option<Recovery>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRtt,
}

/// The detection of a full pipe in Startup.
#[derive(Clone, Copy, Debug, Default)]
struct FullPipe {
    bandwidth: f64,
    count: u32,
    filled: bool,
}

/// Recovery after a loss: packet conservation for a round.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    began: Time,
    first_round_ends: u64,
}

impl Bbr {
    /// The controller of one flow.
    #[must_use]
    pub fn new(params: &Params, path: &Path) -> Self {
        let mtu = f64::from(path.mtu_bytes);
        let cwnd = params.initial_pkts * mtu;
        Self {
            p: *params,
            mtu,
            base: Base::new(path),
            mode: Mode::Startup,
            cwnd,
            pacing: None,
            bandwidth: MaxFilter::default(),
            wire: WireShare::default(),
            min_rtt: None,
            min_rtt_at: Time::ZERO,
            rounds: 0,
            round_ends_at: 0,
            full: FullPipe::default(),
            phase: 0,
            phase_at: Time::ZERO,
            loss_in_phase: false,
            prior_cwnd: 0.0,
            probe_done_at: None,
            probe_round_over: false,
            recovery: None,
        }
    }

    fn pacing_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => self.p.high_gain,
            Mode::Drain => self.p.drain_gain,
            Mode::ProbeBandwidth => CYCLE[self.phase],
            Mode::ProbeRtt => 1.0,
        }
    }

    fn cwnd_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup | Mode::Drain => self.p.high_gain,
            Mode::ProbeBandwidth => self.p.cwnd_gain,
            Mode::ProbeRtt => 1.0,
        }
    }

    /// The bandwidth-delay product times `gain`; none before both are known.
    fn bdp(&self, gain: f64) -> Option<f64> {
        Some(gain * self.bandwidth.max()? * self.min_rtt?)
    }

    /// Applies the delivery rate sample. Returns true at the end of a round.
    fn sample(&mut self, a: &Ack<'_>) -> bool {
        let Some(d) = a.delivery.filter(|d| d.interval > Dur::ZERO) else { return false };
        let is_over = d.total_at_send_bytes >= self.round_ends_at;
        if is_over {
            self.round_ends_at = d.total_bytes;
            self.rounds += 1;
        }
        let delivered = float(d.total_bytes.saturating_sub(d.total_at_send_bytes));
        let bandwidth = delivered / ns(d.interval);
        // An app-limited sample is only a lower bound of the bandwidth.
        if !d.app_limited || self.bandwidth.max().is_none_or(|max| bandwidth >= max) {
            self.bandwidth.update(self.rounds, bandwidth);
        }
        if is_over && !d.app_limited {
            self.check_full_pipe();
        }
        is_over
    }

    fn check_full_pipe(&mut self) {
        let (full, bandwidth) = (&mut self.full, self.bandwidth.max().unwrap_or(0.0));
        if full.filled {
            return;
        }
        if bandwidth >= full.bandwidth * FULL_GROWTH {
            (full.bandwidth, full.count) = (bandwidth, 0);
            return;
        }
        full.count += 1;
        full.filled = full.count >= FULL_ROUNDS;
    }

    fn change_mode(&mut self, now: Time, inflight: f64) {
        if self.mode == Mode::Startup && self.full.filled {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && self.bdp(1.0).is_none_or(|bdp| inflight <= bdp) {
            self.enter_probe_bandwidth(now);
        }
        if self.mode == Mode::ProbeBandwidth {
            self.advance_phase(now, inflight);
        }
    }

    fn enter_probe_bandwidth(&mut self, now: Time) {
        self.mode = Mode::ProbeBandwidth;
        // Linux draws a random phase other than the draining one. Controllers have no random
        // numbers: flows that start together differ by their start times.
        let slot = now.as_ps() / 1000 % (CYCLE_LEN - 1);
        self.phase = [0, 2, 3, 4, 5, 6, 7][spanwire_base::usize_from(slot)];
        self.phase_at = now;
        self.loss_in_phase = false;
    }

    fn advance_phase(&mut self, now: Time, inflight: f64) {
        let elapsed = self.min_rtt.is_none_or(|rtt| ns(now.since(self.phase_at)) > rtt);
        let gain = CYCLE[self.phase];
        let is_over = if gain > 1.0 {
            let filled = self.bdp(gain).is_some_and(|bdp| inflight >= bdp);
            elapsed && (self.loss_in_phase || filled)
        } else if gain < 1.0 {
            elapsed || self.bdp(1.0).is_some_and(|bdp| inflight <= bdp)
        } else {
            elapsed
        };
        if is_over {
            self.phase = (self.phase + 1) % CYCLE.len();
            self.phase_at = now;
            self.loss_in_phase = false;
        }
    }

    fn update_min_rtt(&mut self, now: Time, a: &Ack<'_>, inflight: f64, round_over: bool) {
        let expired =
            self.min_rtt.is_some() && ns(now.since(self.min_rtt_at)) > self.p.min_rtt_s * 1e9;
        if let Some(rtt) = a.fabric_rtt().map(ns)
            && (expired || self.min_rtt.is_none_or(|min| rtt <= min))
        {
            (self.min_rtt, self.min_rtt_at) = (Some(rtt.max(1.0)), now);
        }
        if expired && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.save_cwnd();
            self.probe_done_at = None;
        }
        if self.mode != Mode::ProbeRtt {
            return;
        }
        match self.probe_done_at {
            None if inflight <= MIN_PKTS * self.mtu => {
                self.probe_done_at = Some(now + dur(self.p.probe_rtt_ms * 1e6));
                self.probe_round_over = false;
                self.round_ends_at = a.delivery.map_or(0, |d| d.total_bytes);
            }
            Some(done) => {
                self.probe_round_over |= round_over;
                if self.probe_round_over && now >= done {
                    self.min_rtt_at = now;
                    self.cwnd = self.cwnd.max(self.prior_cwnd);
                    match self.full.filled {
                        true => self.enter_probe_bandwidth(now),
                        false => self.mode = Mode::Startup,
                    }
                }
            }
            None => {}
        }
    }

    fn save_cwnd(&mut self) {
        let undisturbed = self.recovery.is_none() && self.mode != Mode::ProbeRtt;
        self.prior_cwnd = if undisturbed { self.cwnd } else { self.prior_cwnd.max(self.cwnd) };
    }

    fn set_pacing(&mut self) {
        let bandwidth = match (self.bandwidth.max(), self.min_rtt) {
            (Some(bandwidth), _) => bandwidth,
            (None, Some(rtt)) => self.cwnd / rtt.max(1.0),
            (None, None) => return,
        };
        let to = self.p.pacing_margin * self.pacing_gain() * bandwidth * self.wire.correction();
        // Before the pipe is full, a lower estimate is only premature.
        if self.full.filled || self.pacing.is_none_or(|now| to > now) {
            self.pacing = Some(to.max(self.mtu / 1e9));
        }
    }

    fn set_cwnd(&mut self, acked: f64, inflight: f64) {
        let least = MIN_PKTS * self.mtu;
        let target = self.bdp(self.cwnd_gain()).map(|bdp| bdp + SPARE_PKTS * self.mtu);
        match (&self.recovery, target) {
            (Some(r), _) if self.rounds < r.first_round_ends => {
                self.cwnd = self.cwnd.max(inflight + acked);
            }
            (_, Some(target)) if self.full.filled => {
                self.cwnd = (self.cwnd + acked).min(target);
            }
            (_, Some(target)) if self.cwnd >= target => {}
            _ => self.cwnd += acked,
        }
        if self.p.max_bdps > 0.0
            && let Some(bdp) = self.base.bdp()
        {
            self.cwnd = self.cwnd.min(bdp * self.p.max_bdps);
        }
        self.cwnd = self.cwnd.max(least);
        if self.mode == Mode::ProbeRtt {
            self.cwnd = self.cwnd.min(least);
        }
    }
}

impl Controller for Bbr {
    fn cwnd_bytes(&self) -> u64 {
        whole(self.cwnd)
    }

    fn rate(&self) -> Option<Rate> {
        self.pacing.map(|r| rate(r.min(self.base.line())))
    }

    fn on_sent(&mut self, _now: Time, sent: &Sent) {
        self.wire.add(sent);
    }

    fn set_path(&mut self, line_rate: Rate, base_rtt: Dur) {
        self.base.set(line_rate, base_rtt);
        self.min_rtt = Some(ns(base_rtt).max(1.0));
    }

    fn on_ack(&mut self, now: Time, a: &Ack<'_>) {
        self.base.on_ack(a);
        if self.recovery.is_some_and(|r| a.sent_at > r.began) {
            self.recovery = None;
            self.cwnd = self.cwnd.max(self.prior_cwnd);
        }
        let round_over = self.sample(a);
        let inflight = float(a.inflight_bytes.saturating_sub(a.acked_bytes));
        self.change_mode(now, inflight);
        self.update_min_rtt(now, a, inflight, round_over);
        self.set_pacing();
        self.set_cwnd(float(a.acked_bytes), inflight);
    }

    fn on_loss(&mut self, now: Time, loss: &Loss) {
        let inflight = float(loss.inflight_bytes);
        self.loss_in_phase = true;
        match loss.kind {
            LossKind::Block => {}
            LossKind::Recovery | LossKind::BlockRecovery => {
                if self.recovery.is_none() {
                    self.save_cwnd();
                    let first_round_ends = self.rounds + 1;
                    self.recovery = Some(Recovery { began: now, first_round_ends });
                    self.cwnd = inflight.max(MIN_PKTS * self.mtu);
                }
            }
            LossKind::Timeout(_) => {
                self.save_cwnd();
                let first_round_ends = self.rounds;
                self.recovery = Some(Recovery { began: now, first_round_ends });
                self.full.bandwidth = 0.0;
                self.cwnd = MIN_PKTS * self.mtu;
            }
        }
    }
}

/// The pacing gains of ProbeBW: a round trip above the estimate, one below, six at it.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const CYCLE_LEN: u64 = 8;
/// Startup continues while the bandwidth grows by a quarter in three rounds.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// The smallest window: two packets in each direction, each acknowledged separately.
const MIN_PKTS: f64 = 4.0;
/// Addition to the target window for bursts of the sender and delayed acknowledgements.
const SPARE_PKTS: f64 = 16.0;

#[cfg(test)]
mod tests;
