//! The agents of one switch.

use super::api::{
    Agent, AgentCounters, Departing, Effects, Needs, Order, OrderTo, Placement, Ports, Queued,
    Scope, Site, Thresholds,
};
use super::ecn::trace::EcnStep;
use super::feedback::{self, FRAME_MAX, Limit};
use super::kind::Kind;
use super::mlcc::report::MlccFlow;
use super::passing::{FlowEnds, Passing};
use super::qpns::Qpns;
use crate::config::SwitchConfig;
use crate::queue::QueueView;
use arrayvec::ArrayVec;
use spanwire_base::Time;
use spanwire_wire::{IntStack, Qpn};

/// The agents of a switch.
#[derive(Debug)]
pub(crate) struct Agents {
    all: Vec<Placed>,
    /// The agent of each port: an index into `all`.
    by_port: Vec<Option<u8>>,
    pub(crate) qpns: Qpns,
    /// The earliest timer, or an earlier time.
    next_at: Option<Time>,
    /// One of them sees packets before they are queued.
    pub(crate) sees_arrivals: bool,
    /// One of them reads the telemetry of packets.
    pub(crate) reads_telemetry: bool,
}

/// An agent at its ports.
#[derive(Debug)]
struct Placed {
    /// The first.
    port: u8,
    needs: Needs,
    agent: Kind,
    limit: Limit,
    counters: FeedbackCounters,
}

/// Feedback of one agent.
#[derive(Clone, Copy, Debug, Default)]
struct FeedbackCounters {
    made: u64,
    no_qpn: u64,
    limited: u64,
    no_route: u64,
}

/// The timer of an agent.
pub(crate) struct Turn {
    /// The agent's first port.
    pub(crate) port: u8,
    /// The effects, without feedback.
    pub(crate) effects: Effects,
    /// Frames come before the next timer.
    pub(crate) is_last: bool,
}

/// Feedback that one agent orders in a turn. More that is due waits for the next turn.
pub(crate) type Orders = ArrayVec<Order, 64>;

/// A frame of feedback.
pub(crate) struct Made {
    frame: [u8; FRAME_MAX],
    len: usize,
}

impl Made {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.frame[..self.len]
    }
}

impl Agents {
    /// The agents of a validated configuration, if it has any, with the normal and the controlled
    /// queue of each port.
    pub(crate) fn new(config: &SwitchConfig, controlled: &[Option<(u8, u8)>]) -> Option<Box<Self>> {
        let mut all: Vec<Placed> = Vec::new();
        let mut by_port = vec![None; config.ports.len()];
        let every: Vec<u8> = (0..=u8::MAX).take(config.ports.len()).collect();
        for agent in &config.agents {
            let needs = agent.params().needs();
            let chunk = match needs.scope {
                Scope::Port => agent.ports().chunks(1),
                Scope::Ports => agent.ports().chunks(every.len()),
                Scope::Switch => every.chunks(every.len()),
            };
            for ports in chunk {
                let index = u8::try_from(all.len()).expect("at most one a port");
                ports.iter().for_each(|port| by_port[usize::from(*port)] = Some(index));
                let agent = agent.agent(&Site { ports, all: &config.ports, controlled });
                let (limit, counters) = Default::default();
                all.push(Placed { port: ports[0], needs, agent, limit, counters });
            }
        }
        (!all.is_empty()).then(|| {
            Box::new(Self {
                sees_arrivals: all.iter().any(|at| at.needs.arrivals),
                reads_telemetry: all.iter().any(|at| at.needs.telemetry),
                all,
                by_port,
                qpns: Qpns::new(config.feedback_flows),
                next_at: None,
            })
        })
    }

    #[inline]
    fn index(&self, port: u8) -> Option<usize> {
        self.by_port.get(usize::from(port)).copied().flatten().map(usize::from)
    }

    /// A packet was forwarded: its placement by the agent at a port, one of both `ports`, and the
    /// effects. `None` if there is no agent, or it is that of the port `to` too, which sees the
    /// packet there.
    #[inline]
    pub(crate) fn on_arrival(
        &mut self,
        now: Time,
        passing: &Passing,
        ports: Ports,
        port: u8,
    ) -> Option<(Placement, Effects)> {
        let index = self.index(port)?;
        if !self.all[index].needs.arrivals
            || port == ports.from && self.index(ports.to) == Some(index)
        {
            return None;
        }
        let at = &mut self.all[index];
        let sender = match passing.is_data {
            true => passing.source_qpn.or_else(|| self.qpns.find(&passing.ends)),
            false => None,
        };
        let arrived = at.agent.on_arrival(now, passing, ports, sender);
        self.note(index);
        Some(arrived)
    }

    /// A packet was queued at a port.
    #[inline]
    pub(crate) fn on_queued(&mut self, now: Time, passing: &Passing, queued: Queued) -> Effects {
        let Some(index) = self.index(queued.port) else { return Effects::NONE };
        let at = &mut self.all[index];
        if at.needs.queue.is_some_and(|own| own != queued.queue) {
            return Effects::NONE;
        }
        at.limit.on_passed(passing.wire_bytes);
        let effects = at.agent.on_queued(now, passing, queued);
        self.note(index);
        effects
    }

    /// A packet with the tag of an agent leaves by a port of it.
    #[inline]
    pub(crate) fn on_departure(&mut self, now: Time, leaving: &Departing) -> Effects {
        let Some(index) = self.index(leaving.port) else { return Effects::NONE };
        let effects = self.all[index].agent.on_departure(now, leaving);
        self.note(index);
        effects
    }

    /// The queues whose lengths are to be metered: port and queue.
    pub(crate) fn metered(&self) -> impl Iterator<Item = (usize, usize)> {
        let of = |(port, index): (usize, &Option<u8>)| {
            let Needs { meter, queue, .. } = self.all[usize::from((*index)?)].needs;
            queue.filter(|_| meter).map(|queue| (port, usize::from(queue)))
        };
        self.by_port.iter().enumerate().filter_map(of)
    }

    /// The thresholds with which queues begin.
    pub(crate) fn thresholds(&self) -> impl Iterator<Item = Thresholds> {
        self.all.iter().flat_map(|at| at.agent.thresholds())
    }

    /// Freezes the thresholds of the agent at a port, or lets them change again; false if it has no
    /// thresholds.
    pub(crate) fn set_hold(&mut self, port: u8, hold: bool) -> bool {
        self.index(port).is_some_and(|index| self.all[index].agent.set_hold(hold))
    }

    /// The decisions about thresholds, if they are recorded.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &EcnStep> {
        self.all.iter().flat_map(|at| at.agent.steps())
    }

    /// The flows that are let in at rates of their own.
    pub(crate) fn rated_flows(&self, now: Time) -> impl Iterator<Item = MlccFlow> {
        self.all.iter().flat_map(move |at| at.agent.rated_flows(now))
    }

    /// Notes the timer of an agent that was called.
    #[inline]
    fn note(&mut self, index: usize) {
        let Some(due) = self.all[index].agent.poll_timeout() else { return };
        if self.next_at.is_none_or(|at| due < at) {
            self.next_at = Some(due);
        }
    }

    /// The next time for [`Agents::handle_timeout`].
    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.next_at
    }

    /// Handles the timer of one agent, if one is due, with the queues of ports as `view` gives
    /// them. Appends the feedback that it orders.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Time,
        view: impl Fn(u8, u8) -> QueueView,
        orders: &mut Orders,
    ) -> Option<Turn> {
        self.next_at.filter(|at| *at <= now)?;
        let is_due = |at: &Placed| at.agent.poll_timeout().is_some_and(|due| due <= now);
        let found = self.all.iter_mut().find(|at| is_due(at));
        let turn = found.map(|at| {
            let queue = at.needs.queue.unwrap_or(0);
            loop {
                let mut effects = at.agent.handle_timeout(now, |port| view(port, queue));
                let order = effects.feedback.take();
                orders.extend(order);
                if order.is_none() || orders.is_full() || !is_due(at) {
                    break Turn { port: at.port, effects, is_last: at.needs.slow_timers };
                }
            }
        });
        self.next_at = self.all.iter().filter_map(|at| at.agent.poll_timeout()).min();
        turn
    }

    /// The frame of an order of the agent at a port, unless the sender is unknown or the limit is
    /// reached. `packet` is that which was queued, `stack` the telemetry of that which leaves.
    pub(crate) fn make(
        &mut self,
        port: u8,
        order: &Order,
        packet: Option<&Passing>,
        stack: Option<&IntStack<'_>>,
    ) -> Option<Made> {
        let index = self.index(port)?;
        let at = &mut self.all[index];
        let (ends, sender): (FlowEnds, Option<Qpn>) = match order.to {
            OrderTo::Packet => packet.map(|packet| (packet.ends, packet.source_qpn))?,
            OrderTo::Place(place) => at.agent.flow_at(place)?,
        };
        let Some(qpn) = sender.or_else(|| self.qpns.find(&ends)) else {
            at.counters.no_qpn += 1;
            return None;
        };
        let mut frame = [0; FRAME_MAX];
        let len = feedback::write(order.kind, &ends, qpn, stack, &mut frame)?;
        if !at.limit.take(crate::link::wire_bytes(len, 0)) {
            at.counters.limited += 1;
            return None;
        }
        Some(Made { frame, len })
    }

    /// Records whether a frame of the agent at a port has a route.
    pub(crate) fn on_sent(&mut self, port: u8, has_route: bool) {
        let Some(index) = self.index(port) else { return };
        let counters = &mut self.all[index].counters;
        *(if has_route { &mut counters.made } else { &mut counters.no_route }) += 1;
    }

    /// The counters and gauges of every agent.
    pub(crate) fn counters(&self, now: Time) -> Vec<AgentCounters> {
        let of = |at: &Placed| {
            let mut counters = at.agent.counters(now);
            let FeedbackCounters { made, no_qpn, limited, no_route } = at.counters;
            for counters in counters.iter_mut().filter(|_| at.needs.feedback) {
                counters.counters.extend([
                    ("feedback_tx", made),
                    ("feedback_no_qpn", no_qpn),
                    ("feedback_limited", limited),
                    ("feedback_no_route", no_route),
                    ("qpns_evicted", self.qpns.evicted()),
                ]);
            }
            counters
        };
        self.all.iter().flat_map(of).collect()
    }
}
