//! Marking thresholds by reinforcement learning.
//!
//! At the end of each interval of a port its queue and its rate are a state. A small decision
//! network compares it with the state of the last choice; only if that one triggers, the large
//! policy network chooses other thresholds. Floats are in the timer only, in `state`, `policy` and
//! `trace`.

pub(crate) mod action;
pub(crate) mod config;
mod flows;
mod policy;
mod state;
pub(crate) mod trace;

pub use policy::EcnModel;
pub use state::{EcnReward, GAMMA};

use super::api::{Agent, AgentCounters, Effects, Queued, Site, Thresholds};
use super::passing::Passing;
use crate::queue::QueueView;
use action::{Action, unit_bytes};
use config::{EcnAgentConfig, EcnCpu};
use flows::Flows;
use policy::{Choice, Chooser};
use spanwire_base::{Dur, Rate, Time, u64_from};
use state::{History, Seen};
use trace::EcnStep;

/// The agent of the ports of one switch. They share weights and one processor, and nothing else.
#[derive(Debug)]
pub(crate) struct Ecn {
    config: EcnAgentConfig,
    chooser: Chooser,
    ports: Vec<AtPort>,
    /// The index of each port into `ports`.
    by_number: Vec<Option<u8>>,
    /// The earliest timer.
    next_at: Option<Time>,
    /// When the processor has worked off its decisions.
    free_at: Time,
    /// The decisions, if they are recorded.
    steps: Vec<EcnStep>,
    /// The number of the next series of intervals.
    next_series: u32,
}

/// One port.
#[derive(Debug)]
struct AtPort {
    port: u8,
    rate: Rate,
    unit_bytes: u64,
    /// The end of the interval, while packets pass.
    ends: Option<Time>,
    /// The beginning of the interval, and the queue then.
    began: Time,
    before: QueueView,
    /// The series of intervals without a pause; nothing is known of earlier ones.
    series: u32,
    history: History,
    /// The state of the last choice.
    saved: History,
    action: Action,
    /// A choice that the processor has not finished, and when it has.
    pending: Option<(Time, Action)>,
    flows: Flows,
    counters: Counters,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    decisions: u64,
    activations: u64,
    changes: u64,
    flops_decision: u64,
    flops_policy: u64,
    skipped: u64,
    nan: u64,
}

impl Ecn {
    /// The agent of a validated configuration.
    pub(crate) fn new(config: &EcnAgentConfig, site: &Site<'_>) -> Self {
        let rate_of = |port: u8| site.all[usize::from(port)].rate.expect("validated");
        let most = config.ports.iter().copied().max().unwrap_or(0);
        let mut by_number = vec![None; usize::from(most) + 1];
        for (index, port) in (0..).zip(&config.ports) {
            by_number[usize::from(*port)] = Some(index);
        }
        let ports = config.ports.iter().map(|port| AtPort::new(*port, rate_of(*port), config));
        let explore = config.explore.map(|explore| (explore.ppm, explore.seed));
        Self {
            chooser: Chooser::new(&config.model, explore),
            ports: ports.collect(),
            by_number,
            next_at: None,
            free_at: Time::ZERO,
            steps: Vec::new(),
            next_series: 0,
            config: config.clone(),
        }
    }

    /// A packet was queued at one of its ports.
    #[inline]
    fn on_packet(&mut self, now: Time, passing: &Passing, queued: Queued) {
        let index = self.by_number.get(usize::from(queued.port)).copied().flatten();
        let Some(at) = index.and_then(|index| self.ports.get_mut(usize::from(index))) else {
            return;
        };
        if passing.is_data {
            let idle = at.idle(now, &self.config);
            at.flows.on_packet(now, passing.flow_key(), passing.wire_bytes, idle);
        }
        if at.ends.is_none() {
            let ends = now + at.interval(now, &self.config);
            (at.began, at.ends, at.series) = (now, Some(ends), self.next_series);
            self.next_series = self.next_series.wrapping_add(1);
            at.history = History::default();
            self.next_at = Some(self.next_at.map_or(ends, |next| next.min(ends)));
        }
    }

    /// Handles the timer of one port; true if it has other thresholds then.
    fn handle_port(&mut self, now: Time, index: usize, queue: &QueueView) -> bool {
        let at = &mut self.ports[index];
        let before = at.action;
        if let Some((_, action)) = at.pending.take_if(|(done, _)| *done <= now) {
            at.action = action;
        }
        if at.ends.is_some_and(|ends| ends <= now) {
            let seen = at.end_interval(now, queue, &self.config);
            // An interval without a byte ends the series; so does a hold.
            if let Some(seen) = seen.filter(|_| !self.config.hold) {
                at.history.push(seen, at.action);
                self.decide(now, index, seen);
            }
        }
        self.ports[index].action != before
    }

    /// Decides about a port after an interval.
    fn decide(&mut self, now: Time, index: usize, seen: Seen) {
        let at = &mut self.ports[index];
        if at.pending.is_some() {
            at.counters.skipped += 1;
            return;
        }
        let (choice, cost) = self.chooser.choose(&at.history, &at.saved);
        at.counters.decisions += 1;
        at.counters.flops_decision += cost.decision;
        at.counters.flops_policy += cost.policy;
        at.counters.activations += u64::from(cost.policy > 0);
        if self.config.explore.is_some() && choice != Choice::NotFinite {
            let taken = if let Choice::Take(action) = choice { Some(action) } else { None };
            self.steps.push(EcnStep::new(at.port, at.series, &at.history, &at.saved, taken, seen));
        }
        let done = match self.config.cpu {
            EcnCpu::Zero => now,
            EcnCpu::Delay => {
                let cost = Dur::from_ns((cost.decision + cost.policy) / FLOPS_PER_NS);
                self.free_at = self.free_at.max(now) + cost;
                self.free_at
            }
        };
        let action = match choice {
            Choice::Keep => at.action,
            Choice::Take(action) => {
                at.saved = at.history;
                action
            }
            Choice::NotFinite => {
                at.counters.nan += 1;
                at.action
            }
        };
        at.counters.changes += u64::from(action != at.action);
        if done > now {
            at.pending = Some((done, action));
        } else {
            at.action = action;
        }
    }
}

impl Agent for Ecn {
    #[inline]
    fn on_queued(&mut self, now: Time, passing: &Passing, queued: Queued) -> Effects {
        self.on_packet(now, passing, queued);
        Effects::NONE
    }

    /// Handles the timer of one port: at most one inference.
    fn handle_timeout(&mut self, now: Time, view: impl Fn(u8) -> QueueView) -> Effects {
        let due = |(index, at): (usize, &AtPort)| Some((at.due()?, index));
        let found = self.ports.iter().enumerate().filter_map(due).min();
        let mut effects = Effects::NONE;
        if let Some((_, index)) = found.filter(|(due, _)| *due <= now) {
            let queue = view(self.ports[index].port);
            let is_changed = self.handle_port(now, index, &queue);
            let thresholds = self.ports[index].thresholds(self.config.queue);
            effects.thresholds = is_changed.then_some(thresholds);
        }
        self.next_at = self.ports.iter().filter_map(AtPort::due).min();
        effects
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        self.next_at
    }

    /// Those of each port.
    fn counters(&self, now: Time) -> Vec<AgentCounters> {
        self.ports.iter().map(|at| at.counters(now, &self.config)).collect()
    }

    fn thresholds(&self) -> Vec<Thresholds> {
        self.ports.iter().map(|at| at.thresholds(self.config.queue)).collect()
    }

    fn set_hold(&mut self, hold: bool) -> bool {
        self.config.hold = hold;
        true
    }

    fn steps(&self) -> &[EcnStep] {
        &self.steps
    }
}

impl AtPort {
    fn new(port: u8, rate: Rate, config: &EcnAgentConfig) -> Self {
        Self {
            port,
            rate,
            unit_bytes: unit_bytes(rate, config.rtt),
            ends: None,
            began: Time::ZERO,
            before: QueueView::default(),
            series: 0,
            history: History::default(),
            saved: History::default(),
            action: Action::INITIAL,
            pending: None,
            flows: Flows::new(config.flows),
            counters: Counters::default(),
        }
    }

    /// The present length of intervals.
    #[inline]
    fn interval(&self, now: Time, config: &EcnAgentConfig) -> Dur {
        config.interval_of(self.flows.is_long(now))
    }

    /// A flow without a packet for so long is forgotten.
    #[inline]
    fn idle(&self, now: Time, config: &EcnAgentConfig) -> Dur {
        self.interval(now, config) * IDLE_INTERVALS
    }

    fn due(&self) -> Option<Time> {
        self.pending.map(|(done, _)| done).into_iter().chain(self.ends).min()
    }

    /// Ends the interval; `None` if the port sent nothing and holds nothing, so that no other one
    /// begins.
    fn end_interval(
        &mut self,
        now: Time,
        queue: &QueueView,
        config: &EcnAgentConfig,
    ) -> Option<Seen> {
        let time = now.since(self.began);
        let sent = queue.sent_bytes - self.before.sent_bytes;
        let area = queue.area - self.before.area;
        (self.began, self.before) = (now, *queue);
        let is_active = sent > 0 || queue.bytes > 0;
        self.ends = is_active.then(|| now + self.interval(now, config));
        let mean = u64::try_from(area / u128::from(time.as_ps().max(1))).unwrap_or(u64::MAX);
        is_active.then(|| Seen::new(mean, self.unit_bytes, sent, self.rate.bytes_in(time)))
    }

    fn thresholds(&self, queue: u8) -> Thresholds {
        Thresholds { port: self.port, queue, ecn: self.action.thresholds(self.unit_bytes) }
    }

    fn counters(&self, now: Time, config: &EcnAgentConfig) -> AgentCounters {
        let Counters { decisions, activations, changes, skipped, nan, .. } = self.counters;
        let Counters { flops_decision, flops_policy, .. } = self.counters;
        let ecn = self.action.thresholds(self.unit_bytes);
        AgentCounters {
            kind: "ecn",
            port: self.port,
            counters: vec![
                ("decisions", decisions),
                ("activations", activations),
                ("changes", changes),
                ("flops_decision", flops_decision),
                ("flops_policy", flops_policy),
                ("cpu_ns", (flops_decision + flops_policy) / FLOPS_PER_NS),
                ("skipped", skipped),
                ("nan", nan),
                ("flows_evicted", self.flows.evicted()),
            ],
            gauges: vec![
                ("flows", u64_from(self.flows.len(now, self.idle(now, config)))),
                ("kmin_bytes", ecn.kmin_bytes),
                ("kmax_bytes", ecn.kmax_bytes),
                ("pmax_ppm", u64::from(ecn.pmax.ppb() / 1000)),
            ],
        }
    }
}

/// A flow is forgotten after so many intervals without a packet.
const IDLE_INTERVALS: u64 = 10;
/// The processor of a switch: 1 GFLOP/s.
const FLOPS_PER_NS: u64 = 1;

#[cfg(test)]
mod tests;
