//! NDT, Reflex's near-destination throttling: flows that are congested behind the switch wait in a
//! queue of their own.

pub(crate) mod config;
mod flows;
mod order;
mod records;

use super::passing::Passing;
use super::{Agent, AgentCounters, Departing, Hold, Outbox, Placement, Ports, Queued, Rework};
use config::NdtConfig;
use flows::{Change, Flows};
use order::Order;
use records::Egress;
use spanwire_base::{Time, u32_from, u64_from, usize_from};
use spanwire_wire::{Qpn, SrAckPassing};

/// NDT at the ports that lead into a datacenter.
#[derive(Debug)]
pub(crate) struct Ndt {
    config: NdtConfig,
    inside: Vec<Inside>,
    flows: Flows,
    pauses: u64,
    data: u64,
    controlled: u64,
    isolated: u64,
    acks: u64,
    unmatched: u64,
    no_qpn: u64,
    no_place: u64,
}

/// A port that leads inside.
#[derive(Debug)]
struct Inside {
    port: u8,
    /// Its controlled queue.
    queue: u8,
    order: Order,
    /// The switch holds the controlled queue.
    is_held: bool,
    /// The end of its pause.
    paused_until: Option<Time>,
    /// A pause has ended, and no packet has left the controlled queue since.
    owes_round: bool,
}

impl Inside {
    /// Ends its pause.
    fn resume(&mut self) {
        self.owes_round |= self.paused_until.take().is_some();
    }
}

impl Ndt {
    /// Throttling by a validated configuration; `controlled` is the controlled queue of each of its
    /// ports.
    pub(crate) fn new(config: &NdtConfig, controlled: impl Fn(u8) -> u8) -> Self {
        let inside = |port: &u8| {
            let (port, queue) = (*port, controlled(*port));
            let order = Order::default();
            Inside { port, queue, order, is_held: false, paused_until: None, owes_round: false }
        };
        Self {
            config: config.clone(),
            inside: config.inside.iter().map(inside).collect(),
            flows: Flows::new(config.flows, config.inside.len()),
            pauses: 0,
            data: 0,
            controlled: 0,
            isolated: 0,
            acks: 0,
            unmatched: 0,
            no_qpn: 0,
            no_place: 0,
        }
    }

    /// The next of its queues that is to be held, or released, since the last call: for a pause, or
    /// because its next packet would overtake an older one of its flow.
    pub(crate) fn pop_hold(&mut self) -> Option<Hold> {
        self.inside.iter_mut().find_map(|inside| {
            let is_held = inside.paused_until.is_some() || inside.order.is_held();
            let Inside { port, queue, .. } = *inside;
            let was_held = std::mem::replace(&mut inside.is_held, is_held);
            (was_held != is_held).then_some(Hold { port, queue, is_held })
        })
    }

    fn index_of(&self, port: u8) -> Option<usize> {
        self.inside.iter().position(|inside| inside.port == port)
    }

    /// Measures the round trip from here to the receiver and back by an acknowledgement.
    fn on_ack(&mut self, now: Time, key: u64, ack: SrAckPassing) {
        // Acknowledgements of flows within the datacenter pass here too.
        let Some(at) = self.flows.find(key) else { return };
        self.acks += 1;
        let egress = self.flows.records(at).get(ack.newest);
        let Some(Egress::At(left_at) | Egress::Before(left_at)) = egress else {
            self.unmatched += 1;
            return;
        };
        // The network's part, as far as it is certain: without the time that the receiver took.
        let host_ns = u64::from(ack.ack_delay_ns) + u64::from(ack.rx_delay_ns);
        let trip_ps = now.since(left_at).as_ps().saturating_sub(host_ns * 1_000);
        let is_congested = trip_ps > self.config.threshold.as_ps();
        if !is_congested && matches!(egress, Some(Egress::Before(_))) {
            // It took longer than that, but how long is unknown.
            self.unmatched += 1;
            return;
        }
        if self.flows.set_congested(at, is_congested) == Change::Recovered {
            self.inside[usize::from(self.flows.port(at))].resume();
        }
    }

    /// Pauses the controlled queue of a port if too many of its active flows are congested.
    fn check_pause(&mut self, now: Time, index: u8) {
        self.flows.expire(now, self.config.active, index);
        let wide = |count: u32| u64::from(count) << 16;
        let (active, inside) = (self.flows.active(index), &mut self.inside[usize::from(index)]);
        let is_due = wide(active.congested) > self.config.ratio.of(wide(active.flows));
        if is_due && inside.paused_until.is_none() && !inside.owes_round {
            inside.paused_until = Some(now + self.config.max_pause);
            self.pauses += 1;
        }
    }
}

impl Agent for Ndt {
    fn on_arrival(
        &mut self,
        now: Time,
        passing: &Passing,
        ports: Ports,
        sender: Option<Qpn>,
    ) -> Placement {
        if self.index_of(ports.from).is_some() {
            if let Some(ack) = passing.ack {
                self.on_ack(now, passing.acked_key(), ack);
            }
            return Placement::default();
        }
        let Some(index) = self.index_of(ports.to) else { return Placement::default() };
        // Other packets have no round trip that is known, and stay where they are.
        if passing.sr.is_none() && !passing.is_parity {
            return Placement::default();
        }
        self.data += 1;
        let Some(sender) = sender else {
            self.no_qpn += 1;
            return Placement::default();
        };
        let own = number(index);
        let Some(at) = self.flows.see(now, passing.sender_key(sender), own) else {
            self.no_place += 1;
            return Placement::default();
        };
        let flow = self.flows.flow(at);
        let is_controlled = flow.is_controlled();
        if is_controlled {
            self.isolated += u64::from(!std::mem::replace(&mut flow.is_isolated, true));
            self.controlled += 1;
            self.check_pause(now, own);
        }
        let queue = is_controlled.then(|| self.inside[index].queue);
        Placement { queue, tag: u32_from(at) + 1, flow: None }
    }

    fn on_queued(&mut self, _: Time, _: &Passing, queued: Queued, _: &mut Outbox) {
        let (Some(at), Some(index)) = (place_of(queued.placement.tag), self.index_of(queued.port))
        else {
            return;
        };
        let own = number(index);
        let (flow, order) = (self.flows.flow(at), &mut self.inside[index].order);
        if queued.placement.queue.is_none() {
            flow.normal += 1;
            flow.last_normal = (own, order.push_normal());
            return;
        }
        flow.controlled += 1;
        order.push_controlled(match flow.last_normal {
            _ if flow.normal == 0 => 0,
            (port, number) if port == own => number,
            // It changed its port: behind all that is there.
            _ => order.normal_in,
        });
    }

    fn on_departure(&mut self, now: Time, leaving: &Departing) -> Rework {
        let (Some(at), Some(index)) = (place_of(leaving.tag), self.index_of(leaving.port)) else {
            return Rework::Nothing;
        };
        let (flow, inside) = (self.flows.flow(at), &mut self.inside[index]);
        if leaving.queue == inside.queue {
            flow.controlled -= 1;
            inside.order.pop_controlled();
            inside.owes_round = false;
        } else {
            flow.normal -= 1;
            inside.order.pop_normal();
        }
        if let Some(data) = leaving.sr {
            self.flows.records(at).set(data.psn, now, self.config.threshold / SPACINGS);
        }
        Rework::Nothing
    }

    fn handle_timeout(&mut self, now: Time, _: u64, _: &mut Outbox) {
        let is_over = |inside: &&mut Inside| inside.paused_until.is_some_and(|until| until <= now);
        self.inside.iter_mut().filter(is_over).for_each(Inside::resume);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.inside.iter().filter_map(|inside| inside.paused_until).min()
    }

    fn counters(&self, now: Time) -> AgentCounters {
        let [flows, active, congested] = self.flows.gauges(now, self.config.active);
        let paused = self.inside.iter().filter(|inside| inside.paused_until.is_some()).count();
        AgentCounters {
            kind: "ndt",
            port: self.inside.first().map_or(0, |inside| inside.port),
            counters: vec![
                ("data_pkts", self.data),
                ("controlled_pkts", self.controlled),
                ("flows_isolated", self.isolated),
                ("pauses", self.pauses),
                ("acks", self.acks),
                ("acks_unmatched", self.unmatched),
                ("data_no_qpn", self.no_qpn),
                ("data_no_place", self.no_place),
                ("flows_evicted", self.flows.evicted),
            ],
            gauges: vec![
                ("flows", flows),
                ("flows_active", active),
                ("flows_congested", congested),
                ("ports_paused", u64_from(paused)),
            ],
        }
    }
}

/// Records of egress times in a threshold: round trips are too long by at most so much.
const SPACINGS: u64 = 16;

/// The index of a port in one byte: there are at most as many.
fn number(index: usize) -> u8 {
    u8::try_from(index).expect("at most as many as ports")
}

/// The place of a flow whose packets have this tag.
fn place_of(tag: u32) -> Option<usize> {
    tag.checked_sub(1).map(|place| usize_from(place.into()))
}

/// Bytes of a flow in its table.
pub(super) const ENTRY_BYTES: usize = flows::BYTES;

#[cfg(test)]
mod tests;
