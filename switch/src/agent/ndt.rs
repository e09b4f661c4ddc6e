//! NDT, Reflex's near-destination throttling: flows that are congested behind the switch wait in a
//! queue of their own.

pub(crate) mod config;
mod flows;
mod order;
mod pause;
mod records;

use super::api::{Agent, AgentCounters, Departing, Effects, Hold, Placement, Ports, Queued, Site};
use super::passing::Passing;
use crate::queue::QueueView;
use config::{NdtConfig, PauseScope};
use flows::{Change, Flows};
use order::Order;
use pause::{End, Pause, PauseCounters, Round};
use records::Egress;
use spanwire_base::{Dur, Time, u32_from, u64_from, usize_from};
use spanwire_wire::{Qpn, SrAckPassing};
use std::ops::Range;

/// NDT at the ports that lead into a datacenter.
#[derive(Debug)]
pub(crate) struct Ndt {
    config: NdtConfig,
    inside: Vec<Inside>,
    /// Of each port, or one of all.
    pauses: Vec<Pause>,
    /// The next timer.
    due_at: Option<Time>,
    flows: Flows,
    longest_wait: Dur,
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
    /// The packets that leave before the next pause.
    round: Round,
    probe: Probe,
}

/// One packet of a queue that pauses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Probe {
    /// None is to leave.
    Never,
    /// One may leave from then on.
    At(Time),
    /// One may leave.
    Now,
}

impl Inside {
    /// Its controlled queue is to be held, or released, since the last call: for a pause, or
    /// because its next packet would overtake an older one of its flow.
    #[inline]
    fn hold(&mut self, is_paused: bool) -> Option<Hold> {
        let is_held = is_paused && self.probe != Probe::Now || self.order.is_held();
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
            let (order, round) = Default::default();
            Inside { port, queue, order, is_held: false, round, probe: Probe::Never }
        };
        let pauses = if config.pause_scope == PauseScope::Port { config.inside.len() } else { 1 };
        Self {
            config: config.clone(),
            inside: config.inside.iter().map(inside).collect(),
            pauses: vec![Pause::default(); pauses],
            due_at: None,
            flows: Flows::new(config.flows, config.inside.len()),
            longest_wait: Dur::ZERO,
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
        let index = usize::from(self.flows.port(at));
        self.resume(now, self.pause_of(index), End::Recovery);
        self.hold(index)
    }

    /// The pause of a port.
    #[inline]
    fn pause_of(&self, index: usize) -> usize {
        index.min(self.pauses.len() - 1)
    }

    /// The ports of a pause.
    fn ports_of(&self, pause: usize) -> Range<usize> {
        if self.pauses.len() == self.inside.len() { pause..pause + 1 } else { 0..self.inside.len() }
    }

    #[inline]
    fn hold(&mut self, index: usize) -> Option<Hold> {
        let is_paused = self.pauses[self.pause_of(index)].is_on();
        self.inside[index].hold(is_paused)
    }

    /// Pauses the controlled queue of a port, or those of all ports, if too many of their active
    /// flows are congested.
    fn check_pause(&mut self, now: Time, index: usize) {
        let pause = self.pause_of(index);
        let ports = self.ports_of(pause);
        let (mut active, mut congested) = (0, 0);
        for port in ports.clone() {
            let own = number(port);
            self.flows.expire(now, self.config.active, own);
            active += u64::from(self.flows.active(own).flows);
            congested += u64::from(self.flows.active(own).congested);
        }
        let inside = &mut self.inside[ports];
        if congested << 16 <= self.config.ratio.of(active << 16)
            || self.pauses[pause].is_on()
            || inside.iter().any(|inside| !inside.round.is_over())
        {
            return;
        }
        self.pauses[pause].begin(now, self.config.max_pause);
        if self.config.pause_probe {
            let probe = Probe::At(now + self.config.threshold);
            inside.iter_mut().for_each(|inside| inside.probe = probe);
        }
        self.set_due(self.others_at(now));
    }

    /// Ends a pause.
    fn resume(&mut self, now: Time, pause: usize, why: End) {
        if !self.pauses[pause].end(now, why) {
            return;
        }
        let ports = self.ports_of(pause);
        for inside in &mut self.inside[ports] {
            let held = inside.order.controlled_waits();
            inside.round = Round::new(self.config.pause_round, held, self.config.weight);
            inside.probe = Probe::Never;
        }
        self.set_due(self.others_at(now));
    }

    /// When the queues of other ports are held or released, if a pause is about several: a call
    /// returns one of them.
    fn others_at(&self, now: Time) -> Option<Time> {
        (self.pauses.len() < self.inside.len()).then_some(now)
    }

    /// Sets the timer to the earliest end of a pause, probe, or `at`.
    fn set_due(&mut self, at: Option<Time>) {
        let probe = |inside: &Inside| match inside.probe {
            Probe::At(at) => Some(at),
            Probe::Never | Probe::Now => None,
        };
        let ends = self.pauses.iter().filter_map(Pause::until);
        self.due_at = at.into_iter().chain(ends).chain(self.inside.iter().filter_map(probe)).min();
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
        self.check_pause(now, index);
        let queue = Some(self.inside[index].queue);
        (Placement { queue, tag, flow: None }, Effects::hold(self.hold(index)))
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
        Effects::hold(self.hold(index))
    }

    #[inline]
    fn on_departure(&mut self, now: Time, leaving: &Departing) -> Effects {
        let (Some(at), Some(index)) = (place_of(leaving.tag), self.index_of(leaving.port)) else {
            return Effects::NONE;
        };
        let (flow, inside) = (self.flows.flow(at), &mut self.inside[index]);
        let is_controlled = leaving.queue == inside.queue;
        inside.round.leave(is_controlled);
        if is_controlled {
            flow.controlled -= 1;
            inside.order.pop_controlled();
            self.longest_wait = self.longest_wait.max(now.since(leaving.arrived_at));
            if inside.probe == Probe::Now {
                inside.probe = Probe::At(now + self.config.threshold);
                self.set_due(None);
            }
        } else {
            flow.normal -= 1;
            inside.order.pop_normal();
        }
        let hold = self.hold(index);
        if let Some(data) = leaving.sr {
            self.flows.records(at).set(data.psn, now, self.config.threshold / SPACINGS);
        }
        Effects::hold(hold)
    }

    /// Ends the pauses that are over, lets probes leave, and holds or releases one queue.
    fn handle_timeout(&mut self, now: Time, _: impl Fn(u8) -> QueueView) -> Effects {
        for pause in 0..self.pauses.len() {
            if self.pauses[pause].until().is_some_and(|until| until <= now) {
                self.resume(now, pause, End::Timeout);
            }
        }
        for inside in &mut self.inside {
            if matches!(inside.probe, Probe::At(at) if at <= now) {
                inside.probe = Probe::Now;
            }
        }
        let hold = (0..self.inside.len()).find_map(|index| self.hold(index));
        // Again, until there is none.
        self.set_due(hold.map(|_| now));
        Effects::hold(hold)
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        self.due_at
    }

    fn counters(&self, now: Time) -> Vec<AgentCounters> {
        let [flows, active, congested] = self.flows.gauges(now, self.config.active);
        let paused = (0..self.inside.len()).filter(|at| self.pauses[self.pause_of(*at)].is_on());
        let paused = paused.count();
        let sum = |of: fn(&PauseCounters) -> u64| self.pauses.iter().map(|p| of(&p.counters)).sum();
        vec![AgentCounters {
            kind: "ndt",
            port: self.inside.first().map_or(0, |inside| inside.port),
            counters: vec![
                ("data_pkts", self.data),
                ("controlled_pkts", self.controlled),
                ("flows_isolated", self.isolated),
                ("pauses", sum(|c| c.begun)),
                ("pauses_recovered", sum(|c| c.recovered)),
                ("pauses_timed_out", sum(|c| c.timed_out)),
                ("paused_ns", sum(|c| c.time.as_ns())),
                ("longest_wait_ns", self.longest_wait.as_ns()),
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
