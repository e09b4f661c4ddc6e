//! NDT, Reflex's near-destination throttling: flows that are congested behind the switch wait in a
//! queue of their own.

pub(crate) mod config;
mod flows;
mod order;
mod records;

use super::api::{Agent, AgentCounters, Departing, Effects, Hold, Placement, Ports, Queued, Site};
use super::passing::Passing;
use crate::queue::QueueView;
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

    /// Its controlled queue is to be held, or released, since the last call: for a pause, or
    /// because its next packet would overtake an older one of its flow.
    #[inline]
    fn hold(&mut self) -> Option<Hold> {
        let is_held = self.paused_until.is_some() || self.order.is_held();
        let Self { port, queue, .. } = *self;
        let was_held = std::mem::replace(&mut self.is_held, is_held);
        (was_held != is_held).then_some(Hold { port, queue, is_held })
    }
}

impl Ndt {
    /// Throttling by a validated configuration.
    pub(crate) fn new(config: &NdtConfig, site: &Site<'_>) -> Self {
        let inside = |port: &u8| {
            let controlled = site.controlled[usize::from(*port)];
            let (port, queue) = (*port, controlled.expect("it needs one").1);
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

    fn index_of(&self, port: u8) -> Option<usize> {
        self.inside.iter().position(|inside| inside.port == port)
    }

    /// Measures the round trip from here to the receiver and back by an acknowledgement.
    fn on_ack(&mut self, now: Time, key: u64, ack: SrAckPassing) -> Option<Hold> {
        // Acknowledgements of flows within the datacenter pass here too.
        let at = self.flows.find(key)?;
        self.acks += 1;
        let egress = self.flows.records(at).get(ack.newest);
        let Some(Egress::At(left_at) | Egress::Before(left_at)) = egress else {
            self.unmatched += 1;
            return None;
        };
        // The network's part, as far as it is certain: without the time that the receiver took.
        let host_ns = u64::from(ack.ack_delay_ns) + u64::from(ack.rx_delay_ns);
        let trip_ps = now.since(left_at).as_ps().saturating_sub(host_ns * 1_000);
        let is_congested = trip_ps > self.config.threshold.as_ps();
        if !is_congested && matches!(egress, Some(Egress::Before(_))) {
            // It took longer than that, but how long is unknown.
            self.unmatched += 1;
            return None;
        }
        if self.flows.set_congested(at, is_congested) != Change::Recovered {
            return None;
        }
        let inside = &mut self.inside[usize::from(self.flows.port(at))];
        inside.resume();
        inside.hold()
    }

    /// Pauses the controlled queue of a port if too many of its active flows are congested.
    fn check_pause(&mut self, now: Time, index: u8) -> Option<Hold> {
        self.flows.expire(now, self.config.active, index);
        let wide = |count: u32| u64::from(count) << 16;
        let (active, inside) = (self.flows.active(index), &mut self.inside[usize::from(index)]);
        let is_due = wide(active.congested) > self.config.ratio.of(wide(active.flows));
        if is_due && inside.paused_until.is_none() && !inside.owes_round {
            inside.paused_until = Some(now + self.config.max_pause);
            self.pauses += 1;
        }
        inside.hold()
    }
}

impl Agent for Ndt {
    fn on_arrival(
        &mut self,
        now: Time,
        passing: &Passing,
        ports: Ports,
        sender: Option<Qpn>,
    ) -> (Placement, Effects) {
        let nothing = (Placement::default(), Effects::NONE);
        if self.index_of(ports.from).is_some() {
            let Some(ack) = passing.ack else { return nothing };
            let hold = self.on_ack(now, passing.acked_key(), ack);
            return (Placement::default(), Effects::hold(hold));
        }
        let Some(index) = self.index_of(ports.to) else { return nothing };
        // Other packets have no round trip that is known, and stay where they are.
        if passing.sr.is_none() && !passing.is_parity {
            return nothing;
        }
        self.data += 1;
        let Some(sender) = sender else {
            self.no_qpn += 1;
            return nothing;
        };
        let own = number(index);
        let Some(at) = self.flows.see(now, passing.sender_key(sender), own) else {
            self.no_place += 1;
            return nothing;
        };
        let tag = u32_from(at) + 1;
        let flow = self.flows.flow(at);
        if !flow.is_controlled() {
            return (Placement { tag, ..Placement::default() }, Effects::NONE);
        }
        self.isolated += u64::from(!std::mem::replace(&mut flow.is_isolated, true));
        self.controlled += 1;
        let hold = self.check_pause(now, own);
        let queue = Some(self.inside[index].queue);
        (Placement { queue, tag, flow: None }, Effects::hold(hold))
    }

    #[inline]
    fn on_queued(&mut self, _: Time, _: &Passing, queued: Queued) -> Effects {
        let (Some(at), Some(index)) = (place_of(queued.placement.tag), self.index_of(queued.port))
        else {
            return Effects::NONE;
        };
        let own = number(index);
        let (flow, inside) = (self.flows.flow(at), &mut self.inside[index]);
        if queued.placement.queue.is_none() {
            flow.normal += 1;
            flow.last_normal = (own, inside.order.push_normal());
            return Effects::NONE;
        }
        flow.controlled += 1;
        inside.order.push_controlled(match flow.last_normal {
            _ if flow.normal == 0 => 0,
            (port, number) if port == own => number,
            // It changed its port: behind all that is there.
            _ => inside.order.normal_in,
        });
        Effects::hold(inside.hold())
    }

    #[inline]
    fn on_departure(&mut self, now: Time, leaving: &Departing) -> Effects {
        let (Some(at), Some(index)) = (place_of(leaving.tag), self.index_of(leaving.port)) else {
            return Effects::NONE;
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
        let hold = inside.hold();
        if let Some(data) = leaving.sr {
            self.flows.records(at).set(data.psn, now, self.config.threshold / SPACINGS);
        }
        Effects::hold(hold)
    }

    /// Ends the pause of one port.
    fn handle_timeout(&mut self, now: Time, _: impl Fn(u8) -> QueueView) -> Effects {
        let is_over = |inside: &&mut Inside| inside.paused_until.is_some_and(|until| until <= now);
        let found = self.inside.iter_mut().find(is_over);
        Effects::hold(found.and_then(|inside| {
            inside.resume();
            inside.hold()
        }))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.inside.iter().filter_map(|inside| inside.paused_until).min()
    }

    fn counters(&self, now: Time) -> Vec<AgentCounters> {
        let [flows, active, congested] = self.flows.gauges(now, self.config.active);
        let paused = self.inside.iter().filter(|inside| inside.paused_until.is_some()).count();
        vec![AgentCounters {
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
                ("flows_evicted", self.flows.evicted()),
            ],
            gauges: vec![
                ("flows", flows),
                ("flows_active", active),
                ("flows_congested", congested),
                ("ports_paused", u64_from(paused)),
            ],
        }]
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

#[cfg(test)]
mod tests;
