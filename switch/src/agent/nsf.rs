//! NSF, Reflex's near-source feedback: pseudo-ACKs to senders whose packets are late at the border.

mod flows;

use super::config::{NsfClock, NsfConfig};
use super::passing::Passing;
use super::{Agent, AgentCounters, Order, OrderKind, Outbox, Queued};
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
    pub(crate) fn new(config: &NsfConfig, port: u8) -> Self {
        let (flows, config) = (Flows::new(config.flows), config.clone());
        Self { config, port, flows, seen: 0, late: 0, ordered: 0 }
    }
}

impl Agent for Nsf {
    #[inline]
    fn on_queued(&mut self, now: Time, passing: &Passing, _: Queued, out: &mut Outbox) {
        let Some(data) = passing.sr else { return };
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
        if step == Step::PseudoAck && !out.is_full() {
            self.ordered += 1;
            let (psn, echo_ps, hop_limit) = (data.psn, data.sent_ps, passing.hop_limit);
            let kind = OrderKind::PseudoAck { psn, echo_ps, hop_limit };
            out.push(Order { ends: passing.ends, sender: passing.source_qpn, kind });
        }
    }

    fn handle_timeout(&mut self, _: Time, _: u64, _: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn counters(&self, now: Time) -> AgentCounters {
        AgentCounters {
            kind: "nsf",
            port: self.port,
            counters: vec![
                ("data_pkts", self.seen),
                ("late_pkts", self.late),
                ("pseudo_acks_due", self.ordered),
                ("flows_evicted", self.flows.evicted),
            ],
            gauges: vec![("flows", u64_from(self.flows.len(now)))],
        }
    }
}

/// Bytes of a flow in its table.
pub(super) const ENTRY_BYTES: usize = flows::BYTES;

#[cfg(test)]
mod tests;
