//! PACC: CNPs to the senders of a long queue, by a law of its length and growth.

pub(crate) mod config;
mod flows;
mod law;

use super::api::{Agent, AgentCounters, Effects, Order, OrderKind, OrderTo, Queued, Site};
use super::passing::{FlowEnds, Passing};
use crate::queue::QueueView;
use config::PaccConfig;
use flows::Flows;
use law::{Law, share, share_max};
use spanwire_base::{Dur, Time, u64_from};
use spanwire_wire::Qpn;

/// PACC at one queue.
///
/// Its timer runs only while packets pass: after a period without any it is as new. Periods begin
/// at multiples of their length.
#[derive(Debug)]
pub(crate) struct Pacc {
    config: PaccConfig,
    port: u8,
    law: Law,
    flows: Flows,
    share_max: u32,
    /// The end of the period, while packets pass.
    period_ends: Option<Time>,
    /// The next sample of the mean, if it has an interval of its own.
    sample_at: Option<Time>,
    /// A computation because the queue is above the threshold.
    edge_at: Option<Time>,
    is_above: bool,
    computed: u64,
    cnps_allotted: u64,
    cnps_ordered: u64,
    /// Of the last computation.
    queue_bytes: u64,
}

impl Pacc {
    /// The controller of one port, by a validated configuration.
    pub(crate) fn new(config: &PaccConfig, site: &Site<'_>) -> Self {
        Self {
            port: site.ports[0],
            law: Law::new(config),
            flows: Flows::new(config.flows, config.flow_bytes),
            share_max: share_max(config.period, config.spacing),
            period_ends: None,
            sample_at: None,
            edge_at: None,
            is_above: false,
            computed: 0,
            cnps_allotted: 0,
            cnps_ordered: 0,
            queue_bytes: 0,
            config: config.clone(),
        }
    }

    /// Starts the timers with the first packet after a pause.
    fn start(&mut self, now: Time) {
        self.period_ends = Some(next_multiple(now, self.config.period));
        self.sample_at = self.config.q_avg_every.map(|every| next_multiple(now, every));
    }

    /// Computes how many CNPs are due, and who gets them.
    fn compute(&mut self, now: Time, queue_bytes: u64) {
        self.computed += 1;
        self.queue_bytes = queue_bytes;
        let all = self.law.compute(queue_bytes);
        let sum = self.flows.counted();
        // The growth alone may demand some although no packet met a long queue.
        if all <= 0 || sum == 0 {
            return self.flows.forget_counts();
        }
        let (most, carry, mut allotted) = (self.share_max, self.config.carry, 0);
        self.flows.allot(now, |flow| {
            let carried = if carry { flow.carried } else { 0 };
            let (n, fraction) = share(all, flow.counted, sum, carried, most);
            allotted += u64::from(n);
            (n, fraction)
        });
        self.cnps_allotted += allotted;
    }

    /// Ends the period.
    fn end_period(&mut self, now: Time, queue_bytes: u64) {
        if self.config.q_avg_every.is_none() {
            self.law.on_sample(queue_bytes);
        }
        self.compute(now, queue_bytes);
        self.flows.end_period();
        let is_idle = self.flows.is_idle() && queue_bytes == 0;
        self.period_ends = (!is_idle).then(|| next_multiple(now, self.config.period));
        if is_idle {
            (self.sample_at, self.edge_at) = (None, None);
            self.law.reset();
        }
    }

    /// Computes because the queue has risen above the threshold, or is still there.
    fn on_edge(&mut self, now: Time, queue_bytes: u64) {
        self.edge_at = None;
        if self.config.q_avg_every.is_none() {
            // The mean of the period would be that before the burst.
            self.law.on_sample(queue_bytes);
        }
        self.compute(now, queue_bytes);
        self.is_above = queue_bytes > self.config.threshold_bytes;
        if self.config.every && self.is_above {
            self.edge_at = Some(now + self.config.spacing);
        }
    }
}

impl Agent for Pacc {
    #[inline]
    fn on_queued(&mut self, now: Time, passing: &Passing, queued: Queued) -> Effects {
        if self.period_ends.is_none() {
            self.start(now);
        }
        let is_above = queued.bytes > self.config.threshold_bytes;
        if passing.is_data {
            self.flows.on_packet(now, passing, is_above);
        }
        if is_above && !self.is_above && self.edge_at.is_none() {
            let is_due = self.config.edge || self.config.every;
            self.edge_at = is_due.then(|| now + self.config.spacing);
        }
        self.is_above = is_above;
        Effects::NONE
    }

    fn flow_at(&self, place: u32) -> Option<(FlowEnds, Option<Qpn>)> {
        Some(self.flows.at(place))
    }

    /// The next CNP that is due, if any is.
    fn handle_timeout(&mut self, now: Time, view: impl Fn(u8) -> QueueView) -> Effects {
        let queue_bytes = view(self.port).bytes;
        if let (Some(at), Some(every)) = (self.sample_at, self.config.q_avg_every)
            && at <= now
        {
            self.law.on_sample(queue_bytes);
            self.sample_at = Some(next_multiple(now, every));
        }
        if self.edge_at.is_some_and(|at| at <= now) {
            self.on_edge(now, queue_bytes);
        }
        if self.period_ends.is_some_and(|at| at <= now) {
            self.end_period(now, queue_bytes);
        }
        let due = self.flows.pop_due(now, self.config.spacing);
        self.cnps_ordered += u64::from(due.is_some());
        let cnp = |place| Order { to: OrderTo::Place(place), kind: OrderKind::Cnp };
        Effects::feedback(due.map(cnp))
    }

    fn poll_timeout(&self) -> Option<Time> {
        let due = self.flows.next_due();
        [self.period_ends, self.sample_at, self.edge_at, due].into_iter().flatten().min()
    }

    fn counters(&self, _: Time) -> Vec<AgentCounters> {
        vec![AgentCounters {
            kind: "pacc",
            port: self.port,
            counters: vec![
                ("computed", self.computed),
                ("cnps_allotted", self.cnps_allotted),
                ("cnps_due", self.cnps_ordered),
                ("flows_evicted", self.flows.evicted()),
            ],
            gauges: vec![
                ("flows", u64_from(self.flows.len())),
                ("queue_bytes", self.queue_bytes),
                ("queue_mean_bytes", self.law.mean_bytes()),
            ],
        }]
    }
}

/// The next multiple of `every`, after `now`.
fn next_multiple(now: Time, every: Dur) -> Time {
    let every = every.as_ps().max(1);
    Time::from_ps((now.as_ps() / every + 1).saturating_mul(every))
}

#[cfg(test)]
mod tests;
