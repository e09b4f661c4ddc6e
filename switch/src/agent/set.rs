//! The agents of one switch.

mod mlcc;

use super::config::{AGENTS_MAX, AgentConfig};
use super::ecn::{Change, Ecn, EcnStep, QueueView};
use super::feedback::{self, FRAME_MAX, Limit};
use super::kind::Kind;
use super::mlcc::Mlcc;
use super::ndt::Ndt;
use super::nsf::Nsf;
use super::pacc::Pacc;
use super::passing::Passing;
use super::qpns::Qpns;
use super::{
    Agent, AgentCounters, Departing, Hold, Order, OrderKind, Outbox, Placement, Ports, Queued,
    Rework,
};
use crate::config::SwitchConfig;
use arrayvec::ArrayVec;
use spanwire_base::Time;
use spanwire_wire::{IntRecords, NearKind, SrNearRepr};

/// The agents of a switch, each at a port.
#[derive(Debug)]
pub(crate) struct Agents {
    at_ports: Vec<AtPort>,
    /// The agent of each port: an index into `at_ports`.
    by_port: Vec<Option<u8>>,
    pub(crate) qpns: Qpns,
    /// The earliest timer, or an earlier time.
    next_at: Option<Time>,
    /// Orders of one agent that are no frames yet, and its index.
    orders: Outbox,
    orders_of: usize,
    /// The agents that choose and hold queues: indices into `at_ports`.
    choosing: ArrayVec<u8, AGENTS_MAX>,
}

/// An agent at a port, or at several.
#[derive(Debug)]
struct AtPort {
    /// The first.
    port: u8,
    /// The queue that it watches; `None`: all.
    queue: Option<u8>,
    agent: Kind,
    limit: Limit,
    counters: FeedbackCounters,
}

impl AgentConfig {
    /// Bytes of a flow in its table.
    #[must_use]
    pub const fn entry_bytes(&self) -> usize {
        match self {
            Self::Pacc(_) => super::pacc::ENTRY_BYTES,
            Self::Nsf(_) => super::nsf::ENTRY_BYTES,
            Self::Ndt(_) => super::ndt::ENTRY_BYTES,
            Self::Ecn(_) => super::ecn::ENTRY_BYTES,
            Self::Mlcc(_) => super::mlcc::ENTRY_BYTES,
        }
    }
}

/// Feedback of one agent.
#[derive(Clone, Copy, Debug, Default)]
struct FeedbackCounters {
    made: u64,
    no_qpn: u64,
    limited: u64,
    no_route: u64,
}

/// The result of [`Agents::handle_timeout`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handled {
    /// No timer was due.
    Nothing,
    /// One was.
    Timer,
    /// One that takes so long that frames come before the next.
    Inferred,
}

/// A frame of feedback, and the agent that ordered it.
pub(crate) struct Made {
    pub(crate) frame: [u8; FRAME_MAX],
    pub(crate) len: usize,
    at: usize,
}

impl Agents {
    /// The agents of a validated configuration, if it has any, with the normal and the controlled
    /// queue of each port.
    pub(crate) fn new(config: &SwitchConfig, controlled: &[Option<(u8, u8)>]) -> Option<Box<Self>> {
        if config.agents.is_empty() {
            return None;
        }
        let mut at_ports: Vec<AtPort> = Vec::new();
        let mut by_port = vec![None; config.ports.len()];
        let mut add = |ports: &[u8], queue: Option<u8>, agent: Kind| {
            let index = u8::try_from(at_ports.len()).expect("at most one a port");
            ports.iter().for_each(|port| by_port[usize::from(*port)] = Some(index));
            let (limit, counters) = Default::default();
            at_ports.push(AtPort { port: ports[0], queue, agent, limit, counters });
        };
        for agent in &config.agents {
            match agent {
                AgentConfig::Pacc(pacc) => pacc.ports.iter().for_each(|port| {
                    add(&[*port], Some(pacc.queue), Kind::Pacc(Box::new(Pacc::new(pacc, *port))));
                }),
                AgentConfig::Nsf(nsf) => nsf.outside.iter().for_each(|port| {
                    add(&[*port], None, Kind::Nsf(Nsf::new(nsf, *port)));
                }),
                AgentConfig::Ndt(ndt) => {
                    let of = |port: u8| controlled[usize::from(port)].expect("it was added").1;
                    add(&ndt.inside, None, Kind::Ndt(Box::new(Ndt::new(ndt, of))));
                }
                AgentConfig::Ecn(ecn) => {
                    let rate = |port: u8| config.ports[usize::from(port)].rate.expect("validated");
                    add(&ecn.ports, Some(ecn.queue), Kind::Ecn(Box::new(Ecn::new(ecn, rate))));
                }
                AgentConfig::Mlcc(mlcc) => {
                    let all: Vec<u8> = (0..=u8::MAX).take(config.ports.len()).collect();
                    let rates = config.ports.iter().map(|port| port.rate.expect("validated"));
                    let agent = Mlcc::new(mlcc, rates.collect());
                    add(&all, None, Kind::Mlcc(Box::new(agent)));
                }
            }
        }
        let qpns = Qpns::new(config.feedback_flows);
        let choosing = (0..).zip(&at_ports).filter(|(_, at)| at.agent.chooses());
        let choosing = choosing.map(|(index, _)| index).collect();
        let (next_at, orders, orders_of) = (None, Outbox::new(), 0);
        Some(Box::new(Self { at_ports, by_port, qpns, next_at, orders, orders_of, choosing }))
    }

    /// Tells the agents of the ports of a packet that it was forwarded; the queue that it is to
    /// take.
    #[inline]
    pub(crate) fn on_arrival(&mut self, now: Time, passing: &Passing, ports: Ports) -> Placement {
        if self.choosing.is_empty() {
            return Placement::default();
        }
        let of = |port: u8| self.by_port.get(usize::from(port)).copied().flatten();
        let (from, to) = (of(ports.from), of(ports.to));
        // One agent at both ports hears of the packet once.
        if let Some(from) = from.filter(|from| Some(*from) != to) {
            self.arrive(now, passing, ports, from);
        }
        to.map_or_else(Placement::default, |to| self.arrive(now, passing, ports, to))
    }

    #[inline]
    fn arrive(&mut self, now: Time, passing: &Passing, ports: Ports, index: u8) -> Placement {
        let at = &mut self.at_ports[usize::from(index)];
        if !at.agent.chooses() {
            return Placement::default();
        }
        let sender = match passing.is_data {
            true => passing.source_qpn.or_else(|| self.qpns.find(&passing.ends)),
            false => None,
        };
        let placement = at.agent.on_arrival(now, passing, ports, sender);
        self.note(index.into());
        placement
    }

    /// Tells the agent of a port that a packet with its tag leaves there; what is to be done with
    /// its telemetry.
    pub(crate) fn on_departure(&mut self, now: Time, leaving: &Departing) -> Rework {
        let Some(index) = self.by_port[usize::from(leaving.port)] else { return Rework::Nothing };
        let rework = self.at_ports[usize::from(index)].agent.on_departure(now, leaving);
        self.note(index.into());
        rework
    }

    /// True if an agent watches this queue of a port.
    #[inline]
    pub(crate) fn watches(&self, port: u8, queue: u8) -> bool {
        self.by_port[usize::from(port)]
            .is_some_and(|at| self.at_ports[usize::from(at)].queue.is_none_or(|own| own == queue))
    }

    /// Tells the agent of a port about a packet that was queued there.
    #[inline]
    pub(crate) fn on_queued(&mut self, now: Time, passing: &Passing, queued: Queued) {
        let Some(index) = self.by_port[usize::from(queued.port)] else { return };
        let index = usize::from(index);
        let at = &mut self.at_ports[index];
        at.limit.on_passed(passing.wire_bytes);
        at.agent.on_queued(now, passing, queued, &mut self.orders);
        self.orders_of = index;
        self.note(index);
    }

    /// The next queue that is held, or released, since the last call.
    #[inline]
    pub(crate) fn pop_hold(&mut self) -> Option<Hold> {
        let at_ports = &mut self.at_ports;
        self.choosing.iter().find_map(|index| match &mut at_ports[usize::from(*index)].agent {
            Kind::Ndt(ndt) => ndt.pop_hold(),
            Kind::Pacc(_) | Kind::Nsf(_) | Kind::Ecn(_) | Kind::Mlcc(_) => None,
        })
    }

    /// The next thresholds that are to change.
    pub(crate) fn pop_change(&mut self) -> Option<Change> {
        self.ecn_mut().find_map(Ecn::pop_change)
    }

    /// The queues whose lengths are to be metered: port and queue.
    pub(crate) fn metered(&self) -> impl Iterator<Item = (usize, usize)> {
        let of = |(port, index): (usize, &Option<u8>)| {
            let at = &self.at_ports[usize::from((*index)?)];
            matches!(at.agent, Kind::Ecn(_)).then_some((port, usize::from(at.queue?)))
        };
        self.by_port.iter().enumerate().filter_map(of)
    }

    /// Freezes the thresholds of the agent at a port, or lets them change again; false if it has no
    /// thresholds.
    pub(crate) fn set_hold(&mut self, port: u8, hold: bool) -> bool {
        let index = self.by_port.get(usize::from(port)).copied().flatten();
        let at = index.and_then(|index| self.at_ports.get_mut(usize::from(index)));
        let Some(AtPort { agent: Kind::Ecn(ecn), .. }) = at else { return false };
        ecn.set_hold(hold);
        true
    }

    /// The decisions about thresholds, if they are recorded.
    pub(crate) fn ecn_steps(&self) -> impl Iterator<Item = &EcnStep> {
        self.at_ports.iter().flat_map(|at| match &at.agent {
            Kind::Ecn(ecn) => ecn.steps(),
            Kind::Pacc(_) | Kind::Nsf(_) | Kind::Ndt(_) | Kind::Mlcc(_) => &[],
        })
    }

    fn ecn_mut(&mut self) -> impl Iterator<Item = &mut Ecn> {
        self.at_ports.iter_mut().filter_map(|at| match &mut at.agent {
            Kind::Ecn(ecn) => Some(&mut **ecn),
            Kind::Pacc(_) | Kind::Nsf(_) | Kind::Ndt(_) | Kind::Mlcc(_) => None,
        })
    }

    /// Notes the timer of an agent that was called.
    #[inline]
    fn note(&mut self, index: usize) {
        let Some(due) = self.at_ports[index].agent.poll_timeout() else { return };
        if self.next_at.is_none_or(|at| due < at) {
            self.next_at = Some(due);
        }
    }

    /// The next time for [`Agents::handle_timeout`].
    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.next_at
    }

    /// Handles a timer that is due, with the queues of ports as `view` gives them: its orders are
    /// [`Agents::pop`]ped then.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Time,
        view: impl Fn(u8, u8) -> QueueView,
    ) -> Handled {
        if self.next_at.is_none_or(|at| at > now) {
            return Handled::Nothing;
        }
        let is_due = |at: &AtPort| at.agent.poll_timeout().is_some_and(|due| due <= now);
        let found = self.at_ports.iter().position(is_due);
        let mut handled = Handled::Nothing;
        if let Some(index) = found {
            let at = &mut self.at_ports[index];
            let queue = at.queue.unwrap_or(0);
            self.orders_of = index;
            handled = match &mut at.agent {
                Kind::Ecn(ecn) => {
                    ecn.on_timer(now, |port| view(port, queue));
                    Handled::Inferred
                }
                agent => {
                    agent.handle_timeout(now, view(at.port, queue).bytes, &mut self.orders);
                    Handled::Timer
                }
            };
        }
        let due = self.at_ports.iter().filter_map(|at| at.agent.poll_timeout());
        self.next_at = due.min();
        handled
    }

    /// True if there are orders that are no frames yet.
    #[inline]
    pub(crate) fn has_orders(&self) -> bool {
        !self.orders.is_empty()
    }

    /// The next frame of feedback of the agent that was called last.
    pub(crate) fn pop(&mut self) -> Option<Made> {
        // Feedback of one turn goes to different flows: its order does not matter.
        while let Some(order) = self.orders.pop() {
            let made = self.make(self.orders_of, &order);
            if made.is_some() {
                return made;
            }
        }
        None
    }

    /// Records whether a frame has a route.
    pub(crate) fn on_sent(&mut self, made: &Made, has_route: bool) {
        let counters = &mut self.at_ports[made.at].counters;
        *(if has_route { &mut counters.made } else { &mut counters.no_route }) += 1;
    }

    /// The counters and gauges of every agent.
    pub(crate) fn counters(&self, now: Time) -> Vec<AgentCounters> {
        let of = |at: &AtPort| {
            if let Kind::Ecn(ecn) = &at.agent {
                return ecn.all_counters(now).collect();
            }
            let mut counters = at.agent.counters(now);
            let FeedbackCounters { made, no_qpn, limited, no_route } = at.counters;
            counters.counters.extend([
                ("feedback_tx", made),
                ("feedback_no_qpn", no_qpn),
                ("feedback_limited", limited),
                ("feedback_no_route", no_route),
                ("qpns_evicted", self.qpns.evicted()),
            ]);
            vec![counters]
        };
        self.at_ports.iter().flat_map(of).collect()
    }

    /// The frame of an order, unless the sender is unknown or the limit is reached.
    fn make(&mut self, index: usize, order: &Order) -> Option<Made> {
        let at = &mut self.at_ports[index];
        let Some(qpn) = order.sender.or_else(|| self.qpns.find(&order.ends)) else {
            at.counters.no_qpn += 1;
            return None;
        };
        let mut frame = [0; FRAME_MAX];
        let len = match order.kind {
            OrderKind::Cnp => feedback::cnp(&order.ends, qpn, &mut frame)?,
            OrderKind::PseudoAck { psn, echo_ps, hop_limit } => {
                let near = SrNearRepr {
                    kind: NearKind::PseudoAck,
                    psn,
                    hop_limit,
                    echo_ps,
                    int: IntRecords::NONE,
                };
                feedback::near(&order.ends, qpn, &near, &mut frame)?
            }
        };
        if !at.limit.take(crate::link::wire_bytes(len, 0)) {
            at.counters.limited += 1;
            return None;
        }
        Some(Made { frame, len, at: index })
    }
}
