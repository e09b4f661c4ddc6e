//! `auto`: a window for any path, calibrated by what the path and the hosts show.
//!
//! The queueing delay of a decision interval is compared with a target. The interval is a round
//! trip or, on hosts that are late, as many as span their lateness. Its *minimum* delay counts:
//! lateness and bursts delay some packets, a standing queue delays all. The target is larger for
//! slow flows, so that flows with one bottleneck converge, and larger on noisy paths and late
//! hosts, whose delays are no congestion. The base round trip is kept true by short drains, which
//! synchronise among flows as in BBR. Marks act as in DCTCP. Losses count above a rate that no
//! queue of ours explains.
//!
//! # Source
//! Delay target and scaling with the rate: Swift (SIGCOMM'20). Drains: ProbeRTT of BBR
//! (draft-cardwell-iccrg-bbr-congestion-control) and LEDBAT++. Marks: RFC 8257. Acceleration with
//! the time since the last decrease: H-TCP. docs/decisions/0022 has the reasons and measurements.

mod base;
mod best;
mod calibrated;
mod compete;
mod control;
mod cubic;
mod interval;
mod losses;
mod others;
mod paths;
mod phases;
mod state;
mod train;

use crate::params::params;
use crate::units::{bytes_per_ns, float, ns, whole};
use crate::{Ack, Algorithm, Cc, Path};
use base::BaseRtt;
use best::BestRate;
use calibrated::{Calibrated, View};
use compete::Compete;
use interval::Interval;
use losses::{LOSS_DECREASE, Losses, Verdict};
use paths::Paths;
use spanwire_base::{Dur, Time};
use state::State;
use train::Train;

params! {
    /// Parameters of `auto`. No path needs them; they are for experiments.
    struct Params of f64;
    /// Initial window in packets.
    ///
    /// RFC 6928.
    initial_pkts = 10.0 in 1.0..=1e5;
    /// Minimum window in packets.
    ///
    /// RFC 8257: with one packet an ACK delay would stop the flow.
    min_pkts = 2.0 in 1.0..=100.0;
    /// Minimum delay target in microseconds, before scaling with the rate.
    target_us = 50.0 in 1.0..=1e6;
    /// The delay target in base round trips, up to `target_max_us`.
    target_rtts = 0.5 in 0.0..=10.0;
    /// Maximum of the part of the target that follows from the base round trip, in microseconds.
    /// Flows with longer round trips have this target, so that they can share a queue.
    target_max_us = 1000.0 in 1.0..=1e6;
    /// Scaling of the target with the rate: its factor is a half plus this, divided by the square
    /// root of the rate in units of 10 Mbit/s, at most 3.
    scaling = 1.5 in 0.0..=100.0;
    /// The target in mean differences between consecutive delays: noise of the path.
    noise = 3.0 in 0.0..=100.0;
    /// The target in mean latenesses of this host, up to 4 ms. A path has several hosts that wake
    /// up, and a busy one needs a queue while it is away.
    lateness = 10.0 in 0.0..=1e3;
    /// Additive increase in a round trip, in square roots of the window in packets.
    increase = 0.5 in 0.01..=100.0;
    /// The decrease for a delay above the target.
    ///
    /// Swift.
    beta = 0.8 in 0.01..=1.0;
    /// Milliseconds after the lowest delay was last seen, when the window is halved for a round
    /// trip to measure the base round trip anew: 500 base round trips if that is shorter, and at
    /// least 30.
    drain_ms = 1000.0 in 1.0..=1e6;
    /// The part of packets lost, beside those that the path loses by itself, that is tested for
    /// congestion.
    loss = 0.01 in 0.001..=1.0;
    /// Gain of the average of the marked fraction.
    ///
    /// RFC 8257 4.2.
    g = 0.0625 in 0.001..=1.0;
}

/// The controller of one flow. Bytes and nanoseconds.
#[derive(Clone, Debug)]
pub struct Auto {
    p: Params,
    mtu: f64,
    line: f64,
    base: BaseRtt,
    paths: Paths,
    state: State,
    cwnd: f64,
    srtt: Option<f64>,
    interval: Interval,
    last_delay: Option<f64>,
    /// Half of the mean difference between consecutive delays.
    noise: f64,
    /// Mean over intervals of the longest delay that both hosts added: ACK delay, and waits before
    /// processing.
    host_delay: f64,
    /// Mean over intervals of the longest wait of an ACK before this host processed it.
    stall: f64,
    /// Mean delay by the receiver's batches, as coalesced ACKs show them.
    batch: f64,
    /// Mean wait of ACKs before this host processed them.
    lateness: f64,
    /// The last decrease. Packets sent before it do not count.
    changed_at: Option<Time>,
    /// The lowest delay since the last drain, and when it was last seen.
    low: f64,
    low_at: Option<Time>,
    losses: Losses,
    /// Average of the marked fraction.
    alpha: f64,
    /// Delivery rate of the last interval, and the best in startup.
    rate: f64,
    best_rate: f64,
    /// The highest delivery rate of recent time.
    rates: BestRate,
    intervals_without_growth: u32,
    /// Consecutive delays above the target.
    train: Train,
    /// Factor of the target, above 1 if other traffic keeps a queue while this flow drains.
    pressure: f64,
    /// Other traffic that fills the queue.
    compete: Box<Compete>,
    /// Marks, and losses above the threshold, were seen.
    has_marks: bool,
    has_losses: bool,
    /// The algorithm that decides in congestion avoidance, if it is another one.
    other: Option<Box<Calibrated>>,
}

impl Auto {
    /// The controller of one flow.
    #[must_use]
    pub fn new(params: &Params, path: &Path) -> Self {
        let mtu = f64::from(path.mtu_bytes);
        Self {
            p: *params,
            mtu,
            line: bytes_per_ns(path.line_rate),
            base: BaseRtt::new(path.base_rtt.map(ns)),
            paths: Paths::default(),
            state: State::Startup,
            cwnd: params.initial_pkts * mtu,
            srtt: None,
            interval: Interval::default(),
            last_delay: None,
            noise: 0.0,
            host_delay: 0.0,
            stall: 0.0,
            batch: 0.0,
            lateness: 0.0,
            changed_at: None,
            low: f64::MAX,
            low_at: None,
            losses: Losses::new(params.loss),
            alpha: 1.0,
            rate: 0.0,
            best_rate: 0.0,
            rates: BestRate::new(RATE_WINDOW),
            intervals_without_growth: 0,
            train: Train::default(),
            pressure: 1.0,
            compete: Box::new(Compete::new()),
            has_marks: false,
            has_losses: false,
            other: None,
        }
    }

    /// `algorithm` in congestion avoidance, and `auto` otherwise.
    pub(crate) fn calibrated(algorithm: &Algorithm, path: &Path) -> Self {
        let other = Some(Box::new(Calibrated::new(algorithm, path)));
        Self { other, ..Self::new(&Params::default(), path) }
    }

    /// The path, once it is known.
    fn view(&self) -> Option<View> {
        let base = self.base.ns()?;
        Some(View { base, target: self.target(base).max(self.host_delay), rate: self.rate })
    }

    /// The queueing delay that counts as congestion.
    fn target(&self, base: f64) -> f64 {
        let units = (self.rate / RATE_UNIT).max(0.1);
        let factor = (0.5 + self.p.scaling / units.sqrt()).min(FACTOR_MAX);
        let target = self.unscaled_target(base) * factor;
        let longest = self.losses.queue_max().max(target / 8.0);
        ((target * self.pressure).min(target.max(base)) + self.batch).min(longest)
    }

    /// The target before scaling with the rate.
    fn unscaled_target(&self, base: f64) -> f64 {
        let of_noise = (self.p.noise * self.noise).min(NOISE_MAX);
        self.quiet_target(base).max(of_noise)
    }

    /// The target of a path without noise, before scaling with the rate.
    fn quiet_target(&self, base: f64) -> f64 {
        let p = &self.p;
        let of_path = (base * p.target_rtts).min(p.target_max_us * 1e3).max(p.target_us * 1e3);
        of_path.max((p.lateness * self.lateness).min(LATENESS_MAX))
    }

    /// The minimum length of an interval: several times what hosts add, so that its smallest delay
    /// is that of a host that was not late. Startup needs a decision each round trip.
    fn interval_min(&self) -> f64 {
        if self.state == State::Startup {
            return 0.0;
        }
        (8.0 * self.noise).max(4.0 * self.host_delay).min(INTERVAL_MAX)
    }

    /// Bytes by which the window grows in a round trip.
    fn increase(&self, now: Time) -> f64 {
        let pkts = (self.cwnd / self.mtu).max(1.0);
        let since = self.changed_at.map_or(0.0, |at| ns(now.since(at)));
        let periods =
            since / (4.0 * self.srtt.unwrap_or(0.0)).max(PERIOD_MIN).max(2.0 * self.interval_min());
        let bytes = self.p.increase * pkts.sqrt() * (1.0 + periods * periods) * self.mtu;
        bytes.min(self.cwnd / 8.0).max(self.mtu / 4.0)
    }

    /// The window that the path and the hosts hold, with the packets that the path loses: a longer
    /// one delivers no more.
    fn most(&self) -> f64 {
        let Some(base) = self.base.ns() else { return f64::INFINITY };
        let time = base + self.target(base) + self.host_delay;
        let sent = self.rates.get() / (1.0 - self.losses.of_path().min(0.9));
        GAIN_MAX * sent * time + SPARE_PKTS * self.mtu
    }

    /// Applies the delay of an acknowledgement.
    fn on_delay(&mut self, now: Time, a: &Ack<'_>, delay: f64) {
        self.srtt = Some(self.srtt.map_or(delay, |s| s + (delay - s) / 8.0));
        if let Some(last) = self.last_delay.replace(delay) {
            self.noise += ((delay - last).abs() / 2.0 - self.noise) / 16.0;
        }
        let late = ns(a.rx_delay) + ns(a.rtt_slack);
        self.lateness += (late - self.lateness) / 16.0;
        let batch = BATCHES * float(a.coalesced_bytes) / self.rates.get().max(RATE_UNIT);
        self.batch += (batch.min(BATCH_MAX) - self.batch) / 16.0;
        let Some(base) = self.base.ns() else { return };
        let is_above = delay - base > self.target(base).max(4.0 * self.noise);
        let arrival = ns(now.since(Time::ZERO)) - ns(a.rx_delay);
        self.train.add(is_above, arrival, float(a.acked_bytes));
    }

    /// Decides at the end of an interval.
    fn on_interval(&mut self, now: Time) {
        let i = self.interval;
        let (Some(began), Some(min)) = (i.began(), i.min_delay()) else { return };
        let base = self.base.on_interval(now, min);
        let min = self.paths.on_interval(now).unwrap_or(min);
        self.rate = i.rate(now);
        self.rates.add(now, self.rate, now.since(began) * RATE_INTERVALS);
        self.compete.on_rate(now, self.rate);
        self.stall += (i.wait() - self.stall) / 8.0;
        self.host_delay += (i.host_delay() - self.host_delay) / 8.0;
        let target = self.target(base);
        let queue = (min - base).max(0.0);
        if min <= self.low + (target / 16.0).max(2.0 * self.noise.min(1e6)) {
            (self.low, self.low_at) = (self.low.min(min), Some(now));
        }
        self.losses.on_interval(i.loss(self.mtu), self.rate);
        if let (Some(view), Some(other)) = (self.view(), &mut self.other) {
            other.on_interval(now, min, &view);
        }
        let marked = i.marked_fraction();
        self.has_marks |= marked > 0.0;
        self.has_losses |= self.losses.is_above();
        match self.state {
            State::Startup => self.on_startup_interval(now, base, (queue, target)),
            State::Drain { since, cwnd, rate, intervals } => {
                let intervals = intervals + u32::from(began >= since);
                self.state = State::Drain { since, cwnd, rate, intervals };
                // The queue of other flows that drain as well takes a further round trip to leave.
                if intervals >= 2 || intervals == 1 && queue <= target / 4.0 {
                    let after = (rate * self.busy_rtt(base)).min(cwnd).max(cwnd / 4.0);
                    self.end_drain(now, min, target, after);
                    if self.compete.on_drain(now, cwnd, queue < target / 4.0) {
                        self.cwnd = cwnd;
                    }
                }
            }
            State::Avoidance => {
                let age = ns(now.since(self.low_at.unwrap_or(now)));
                if age > self.drain_period(base) {
                    self.drain(now, self.cwnd, (self.rate * base).min(self.cwnd) / 2.0);
                } else if self.other_cc().is_some() {
                    self.report_losses(now, queue, target);
                } else if self.compete.is_on() {
                    self.compete(now, i.loss(self.mtu), marked);
                } else if self.changed_at.is_none_or(|at| began >= at) {
                    self.decrease(now, min, (queue, target), marked);
                }
            }
        }
        self.alpha += (marked - self.alpha) * self.p.g;
        self.cwnd = self.cwnd.max(self.p.min_pkts * self.mtu);
    }

    /// The other algorithm, while it decides.
    fn other_cc(&self) -> Option<&Cc> {
        self.other.as_ref().filter(|_| self.state == State::Avoidance)?.cc()
    }

    /// Reports losses to the other algorithm if they are congestion: packets were delayed as well.
    fn report_losses(&mut self, now: Time, queue: f64, target: f64) {
        let bytes = whole(self.losses.part() * self.cwnd);
        let state = self.loss_state(queue, target);
        if self.losses.judge(&state) == Verdict::Congestion
            && queue > state.queue_min
            && let Some(other) = &mut self.other
        {
            other.on_congestion(now, bytes, whole(self.cwnd));
        }
    }

    /// Applies an acknowledgement to the other algorithm, which starts when startup has ended.
    fn on_ack_of_other(&mut self, now: Time, a: &Ack<'_>) {
        let Some(view) = self.view() else { return };
        let Some(other) = &mut self.other else { return };
        other.see(a);
        if self.state != State::Avoidance {
            return;
        }
        other.start(&view);
        other.on_ack(now, a, &self.interval, &view);
        if let Some(window) = other.window(self.mtu) {
            self.cwnd = window;
        }
    }

    fn loss_state(&self, queue: f64, target: f64) -> losses::State {
        let queue_min = (target / 8.0).max(2.0 * self.noise.min(NOISE_MAX));
        losses::State { cwnd: self.cwnd, queue, queue_min }
    }

    /// Applies losses, marks, and the delay of a queue beyond its target.
    fn decrease(&mut self, now: Time, delay: f64, (queue, target): (f64, f64), marked: f64) {
        let by_delay = (self.p.beta * (queue - target) / delay.max(1.0)).clamp(0.0, 0.5);
        let by_marks = if marked > 0.0 { self.alpha.max(marked) / 2.0 } else { 0.0 };
        let by_loss = match self.losses.judge(&self.loss_state(queue, target)) {
            Verdict::None => 0.0,
            Verdict::Congestion => LOSS_DECREASE,
            Verdict::Path { cwnd } => {
                self.cwnd = self.cwnd.max(cwnd.min(self.most()));
                0.0
            }
        };
        let by = by_delay.max(by_marks).max(by_loss);
        if by > 0.0 {
            self.changed_at = Some(now);
            self.cwnd *= 1.0 - by;
        }
        self.observe_others(now, queue, target);
    }
}

/// 10 Mbit/s in bytes per nanosecond.
const RATE_UNIT: f64 = 0.001_25;
/// The largest factor of the target, that of a slow flow.
const FACTOR_MAX: f64 = 3.0;
/// Longest times that count as noise and as lateness, ns: rarer ones are no reason for a queue.
const NOISE_MAX: f64 = 4e6;
const LATENESS_MAX: f64 = 4e6;
const INTERVAL_MAX: f64 = 40e6;
/// A packet waits in the receiver for the end of the batch before it, and for that of its own.
const BATCHES: f64 = 2.0;
/// The longest delay by batches, ns: two of 128 packets of 4 KiB at 17 Gbit/s.
const BATCH_MAX: f64 = 500e3;
/// Maximum pacing gain of a host that is late: it catches up with what it did not send in time.
const PACING_GAIN_MAX: f64 = 3.0;
/// The highest delivery rate of this time counts, and of so many intervals.
const RATE_WINDOW: Dur = Dur::from_ms(500);
const RATE_INTERVALS: u64 = 10;
/// The longest window in products of that rate and the delay.
const GAIN_MAX: f64 = 1.25;
/// Packets that the window may have beside that.
const SPARE_PKTS: f64 = 4.0;
/// Timeouts in a row that are congestion.
const TIMEOUTS: u32 = 2;
/// The longest gap between packets of a window below one packet: it recovers within a second.
const GAP_MAX: Dur = Dur::from_ms(10);
/// Minimum period of the acceleration, ns.
const PERIOD_MIN: f64 = 10e6;
/// A round trip longer than any, ns.
const UNKNOWN_RTT: f64 = 1e9;

#[cfg(test)]
mod tests;
