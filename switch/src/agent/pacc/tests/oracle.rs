//! The whole of PACC's agent in real numbers, in microseconds and kilobytes: which flow gets a CNP
//! and when.

use std::collections::BTreeMap;

/// The parameters of the test's agent, whose gains are multiples of 2^-16.
const PERIOD: u64 = 80;
const SPACING: u64 = 4;
const THRESHOLD: f64 = 125.0;
const BURST: f64 = 4.0;
const LEAST_BYTES: u64 = 4_000;
const ONE: f64 = 65_536.0;

#[derive(Clone, Copy, Default)]
struct Flow {
    counted: u64,
    carried: f64,
    left: f64,
    /// When it gets the next CNP if it has any left, and when it may get one at the earliest.
    due: u64,
    free_at: u64,
    bytes: u64,
    /// The period of `bytes`.
    period: u64,
}

/// The agent.
pub(super) struct Oracle {
    pub(super) edge: bool,
    pub(super) every: bool,
    pub(super) carry: bool,
    flows: BTreeMap<u8, Flow>,
    period: u64,
    ends: Option<u64>,
    edge_at: Option<u64>,
    is_above: bool,
    old: f64,
    mean: f64,
    /// A result was so near a whole number that integers may round it the other way.
    pub(super) is_ambiguous: bool,
}

impl Oracle {
    pub(super) fn new([edge, every, carry]: [bool; 3]) -> Self {
        Self {
            edge,
            every,
            carry,
            flows: BTreeMap::new(),
            period: 1,
            ends: None,
            edge_at: None,
            is_above: false,
            old: 0.0,
            mean: 0.0,
            is_ambiguous: false,
        }
    }

    /// A packet of `host` meets a queue of `queue` kilobytes.
    pub(super) fn push(&mut self, now: u64, host: u8, bytes: u64, queue: f64) {
        if self.ends.is_none() {
            (self.old, self.mean) = (0.0, 0.0);
            self.ends = Some((now / PERIOD + 1) * PERIOD);
        }
        let is_above = queue > THRESHOLD;
        let flow = self.flows.entry(host).or_default();
        if flow.period != self.period {
            let is_kept = flow.period + 1 == self.period && flow.bytes >= LEAST_BYTES;
            if !is_kept && flow.left <= 0.0 && flow.free_at <= now {
                flow.carried = 0.0;
            }
            (flow.period, flow.bytes) = (self.period, 0);
        }
        flow.bytes += bytes;
        flow.counted += u64::from(is_above);
        if is_above && !self.is_above && self.edge_at.is_none() && (self.edge || self.every) {
            self.edge_at = Some(now + SPACING);
        }
        self.is_above = is_above;
    }

    /// The CNPs until `until`, each with its time and host, while the queue is `queue`.
    pub(super) fn run(&mut self, until: u64, queue: f64) -> Vec<(u64, u8)> {
        let mut sent = Vec::new();
        loop {
            let due = self.flows.values().filter(|flow| flow.left > 0.0).map(|flow| flow.due);
            let next = due.chain(self.ends).chain(self.edge_at).min();
            let Some(now) = next.filter(|next| *next <= until) else { return sent };
            if self.edge_at == Some(now) {
                self.edge_at = None;
                self.sample(queue);
                self.compute(now, queue);
                self.is_above = queue > THRESHOLD;
                self.edge_at = (self.every && self.is_above).then_some(now + SPACING);
            }
            if self.ends == Some(now) {
                self.end_period(now, queue);
            }
            for (host, flow) in &mut self.flows {
                if flow.left > 0.0 && flow.due <= now {
                    sent.push((now, *host));
                    flow.left -= 1.0;
                    (flow.free_at, flow.due) = (now + SPACING, now + SPACING);
                }
            }
        }
    }

    fn end_period(&mut self, now: u64, queue: f64) {
        self.sample(queue);
        self.compute(now, queue);
        let has_sent = self.flows.values().any(|flow| flow.period == self.period);
        let is_owed = self.flows.values().any(|flow| flow.left > 0.0);
        self.period += 1;
        if has_sent || is_owed || queue > 0.0 {
            self.ends = Some(now + PERIOD);
        } else {
            (self.ends, self.edge_at) = (None, None);
        }
    }

    fn sample(&mut self, queue: f64) {
        self.mean += (queue - self.mean) * (0.9 * ONE).round() / ONE;
    }

    /// The law, and the shares of all flows.
    fn compute(&mut self, now: u64, queue: f64) {
        let [beta1, beta2] = [0.05, 0.1].map(|gain: f64| (gain * ONE).round() / ONE);
        let all = beta1 * (queue - THRESHOLD) + beta2 * (queue - self.old);
        self.old = queue;
        let sum: u64 = self.flows.values().map(|flow| flow.counted).sum();
        if sum > 0 {
            self.is_ambiguous |= (self.mean - BURST).abs() < 0.02 || all.abs() < 1e-3;
        }
        let is_due = self.mean > BURST && all > 0.0 && sum > 0;
        for flow in self.flows.values_mut() {
            let counted = std::mem::take(&mut flow.counted);
            if !is_due {
                continue;
            }
            flow.left = 0.0;
            if counted > 0 {
                let carried = if self.carry { flow.carried } else { 0.0 };
                let own = all * counted as f64 / sum as f64 + carried;
                self.is_ambiguous |= (own - own.round()).abs() < 2e-3;
                let most = (PERIOD / SPACING) as f64;
                let is_most = own.floor() > most;
                flow.left = if is_most { most } else { own.floor() };
                flow.carried = if is_most { 0.0 } else { own.fract() };
                flow.due = flow.free_at.max(now);
            }
        }
    }
}
