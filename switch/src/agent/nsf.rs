//! NSF, Reflex's near-source feedback: pseudo-ACKs to senders whose packets are late at the border.

pub(crate) mod config;
mod flows;

use super::api::{Agent, AgentCounters, Effects, Order, OrderKind, OrderTo, Queued, Site};
use super::passing::Passing;
use config::{NsfClock, NsfConfig};
use flows::{Flows, Step};
use spanwire_base::{Time, u64_from};

/// NSF at one port that leads outside.
#[derive(Debug)]
pub(crate) struct Nsf {
    config: NsfConfig,
    port: u8,
    flows: Flows,
    seen: u64,
    late: u64,
    ordered: u64,
}

impl Nsf {
    /// The feedback about one port, by a validated configuration.
    pub(crate) fn new(config: &NsfConfig, site: &Site<'_>) -> Self {
        let (port, flows) = (site.ports[0], Flows::new(config.flows));
        Self { config: config.clone(), port, flows, seen: 0, late: 0, ordered: 0 }
    }
}

impl Agent for Nsf {
    #[inline]
    fn on_queued(&mut self, now: Time, passing: &Passing, _: Queued) -> Effects {
        let Some(data) = passing.sr else { return Effects::NONE };
        self.seen += 1;
        // A clock that is behind the sender's, or a time that is no time, counts as no delay.
        let delay_ps = now.as_ps().saturating_sub(data.sent_ps);
        let is_relative = self.config.clock == NsfClock::Relative;
        let flow = self.flows.of(now, passing.flow_key());
        let delay_ps = match is_relative {
            true => flow.above_least(delay_ps).saturating_add(self.config.base.as_ps()),
            false => delay_ps,
        };
        let is_late = delay_ps > self.config.threshold.as_ps();
        self.late += u64::from(is_late);
        let step = flow.step(now, is_late, self.config.cool, self.config.interval);
        if step == Step::Nothing {
            return Effects::NONE;
        }
        self.ordered += 1;
        let kind = OrderKind::PseudoAck { data, hop_limit: passing.hop_limit };
        Effects::feedback(Some(Order { to: OrderTo::Packet, kind }))
    }

    fn counters(&self, now: Time) -> Vec<AgentCounters> {
        vec![AgentCounters {
            kind: "nsf",
            port: self.port,
            counters: vec![
                ("data_pkts", self.seen),
                ("late_pkts", self.late),
                ("pseudo_acks_due", self.ordered),
                ("flows_evicted", self.flows.evicted()),
            ],
            gauges: vec![("flows", u64_from(self.flows.len(now)))],
        }]
    }
}

#[cfg(test)]
mod tests;
