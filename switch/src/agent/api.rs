//! The interface of agents: their needs, the packets that they see, and the effects that they
//! return.

use super::ecn::trace::EcnStep;
use super::mlcc::report::MlccFlow;
use super::passing::{FlowEnds, Passing, SrData};
use crate::config::{EcnConfig, PortConfig};
use crate::error::ConfigError;
use crate::queue::QueueView;
use serde::Serialize;
use spanwire_base::{Rate, Time};
use spanwire_wire::{IntCredit, Qpn};

/// The parameters of a kind of agent.
pub(crate) trait Params {
    /// Bytes of a flow in its table.
    fn entry_bytes(&self) -> usize;

    /// Which ports it names.
    fn side(&self) -> AgentPorts;

    /// The ports that it names, at least one, each once.
    fn ports(&self) -> &[u8];

    fn ports_mut(&mut self) -> &mut Vec<u8>;

    /// Checks all ranges, for a switch with these ports.
    fn validate(&self, all: &[PortConfig]) -> Result<(), ConfigError>;

    /// Its needs.
    fn needs(&self) -> Needs;

    /// Makes thresholds that were chosen for ports of the rate `from` those of ports of the rate
    /// `to`, if they depend on it.
    fn scale(&mut self, _from: Rate, _to: Rate) {}

    /// As [`Agent::set_hold`].
    fn set_hold(&mut self, _: bool) {}
}

/// The ports that a configuration names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AgentPorts {
    /// Any: `ports`.
    Any,
    /// Those that lead out of the datacenter: `outside`.
    Outside,
    /// Likewise, and the switch has others: `outside`.
    OutsideOfSome,
    /// Those that lead into the datacenter: `inside`.
    Inside,
}

impl AgentPorts {
    /// The key of the configuration.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Any => "ports",
            Self::Outside | Self::OutsideOfSome => "outside",
            Self::Inside => "inside",
        }
    }
}

/// The needs of an agent, which the switch meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Needs {
    /// The ports that share one agent.
    pub(crate) scope: Scope,
    /// The queue of each of its ports whose packets it sees; `None`: all queues.
    pub(crate) queue: Option<u8>,
    /// It sees packets before they are queued, also those that come in by its ports.
    pub(crate) arrivals: bool,
    /// It orders feedback, which needs a queue of its own.
    pub(crate) feedback: bool,
    /// It reads the telemetry of packets.
    pub(crate) telemetry: bool,
    /// Its queue is metered.
    pub(crate) meter: bool,
    /// A timer takes so long that frames come before the next.
    pub(crate) slow_timers: bool,
    /// A controlled queue at each of its ports, beside this one, which gets this weight.
    pub(crate) controlled: Option<(u8, u32)>,
}

impl Needs {
    /// An agent of each port that sees the packets of all queues as they are queued.
    pub(crate) const NONE: Self = Self {
        scope: Scope::Port,
        queue: None,
        arrivals: false,
        feedback: false,
        telemetry: false,
        meter: false,
        slow_timers: false,
        controlled: None,
    };
}

/// The ports that share one agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// Each has its own.
    Port,
    /// All that the configuration names.
    Ports,
    /// All of the switch, which has no other agent.
    Switch,
}

/// The place of an agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'a> {
    /// Its ports, those of its [`Scope`].
    pub(crate) ports: &'a [u8],
    /// Every port of the switch.
    pub(crate) all: &'a [PortConfig],
    /// The normal and the controlled queue of each port, if it has both.
    pub(crate) controlled: &'a [Option<(u8, u8)>],
}

/// The rule of an agent at its ports.
pub(crate) trait Agent {
    /// A packet that came in by one port and was forwarded to another, of which at least one is the
    /// agent's, is about to be queued; `sender` is the queue pair that sent it, if known. The agent
    /// may choose another queue if it leaves by one of its ports. Called only if it needs arrivals.
    fn on_arrival(
        &mut self,
        _: Time,
        _: &Passing,
        _: Ports,
        _: Option<Qpn>,
    ) -> (Placement, Effects) {
        (Placement::default(), Effects::NONE)
    }

    /// A packet was queued at one of its ports.
    fn on_queued(&mut self, now: Time, passing: &Passing, queued: Queued) -> Effects;

    /// A packet that got a tag from [`Agent::on_arrival`] leaves by a port.
    fn on_departure(&mut self, _: Time, _: &Departing) -> Effects {
        Effects::NONE
    }

    /// The flow at a place that one of its orders names, and the queue pair that sends it, if it is
    /// known.
    fn flow_at(&self, _place: u32) -> Option<(FlowEnds, Option<Qpn>)> {
        None
    }

    /// Handles a timer that is due, with its queue at each of its ports as `view` gives it. The
    /// agent is called again as long as it stays due.
    fn handle_timeout(&mut self, _: Time, _view: impl Fn(u8) -> QueueView) -> Effects {
        Effects::NONE
    }

    /// When [`Agent::handle_timeout`] has something to do.
    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    /// Its counters, and its gauges at `now`: of all its ports together, or of each.
    fn counters(&self, now: Time) -> Vec<AgentCounters>;

    /// The thresholds with which its queues begin, if it chooses them.
    fn thresholds(&self) -> Vec<Thresholds> {
        Vec::new()
    }

    /// Freezes the thresholds, or lets them change again; false if it chooses none.
    fn set_hold(&mut self, _: bool) -> bool {
        false
    }

    /// Its decisions about thresholds, if they are recorded.
    fn steps(&self) -> &[EcnStep] {
        &[]
    }

    /// The flows that it lets in at rates of their own. O(places for flows).
    fn rated_flows(&self, _: Time) -> Vec<MlccFlow> {
        Vec::new()
    }
}

/// The counters and gauges of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct AgentCounters {
    /// Its kind, as in the configuration.
    pub kind: &'static str,
    /// The port that it watches.
    pub port: u8,
    /// Totals by name.
    pub counters: Vec<(&'static str, u64)>,
    /// Present values by name.
    pub gauges: Vec<(&'static str, u64)>,
}

/// The ports by which a packet came in and leaves. The former is none of the switch's if the packet
/// is feedback of another agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) from: u8,
    pub(crate) to: u8,
}

/// The queue of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Placement {
    /// Another one than that of its class.
    pub(crate) queue: Option<u8>,
    /// A number of the agent for the packet, given back when it is queued and when it leaves; 0:
    /// none.
    pub(crate) tag: u32,
    /// Its flow in queues by flow, if not by its 5-tuple.
    pub(crate) flow: Option<u64>,
}

/// A packet that was queued.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Queued {
    pub(crate) port: u8,
    pub(crate) queue: u8,
    pub(crate) placement: Placement,
    /// Bytes in its queue now, the packet included.
    pub(crate) bytes: u64,
    /// Bytes of the packet.
    pub(crate) own_bytes: u64,
}

/// A packet that leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Departing {
    pub(crate) port: u8,
    pub(crate) queue: u8,
    pub(crate) tag: u32,
    /// When it arrived.
    pub(crate) arrived_at: Time,
    /// Bytes of the packet in its queue.
    pub(crate) bytes: u64,
    /// It is SR data.
    pub(crate) sr: Option<SrData>,
}

/// The effects of one call, at most one of each.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Effects {
    /// A frame for the sender of a flow.
    pub(crate) feedback: Option<Order>,
    /// A queue does not send, or sends again.
    pub(crate) hold: Option<Hold>,
    /// A flow's queue has another rate.
    pub(crate) rate: Option<RateChange>,
    /// A queue has other thresholds.
    pub(crate) thresholds: Option<Thresholds>,
    /// The change of the telemetry of the packet that leaves.
    pub(crate) rework: Rework,
}

impl Effects {
    /// Nothing.
    pub(crate) const NONE: Self =
        Self { feedback: None, hold: None, rate: None, thresholds: None, rework: Rework::Nothing };

    pub(crate) fn feedback(order: Option<Order>) -> Self {
        Self { feedback: order, ..Self::NONE }
    }

    pub(crate) fn hold(hold: Option<Hold>) -> Self {
        Self { hold, ..Self::NONE }
    }

    pub(crate) fn rate(rate: RateChange) -> Self {
        Self { rate: Some(rate), ..Self::NONE }
    }

    pub(crate) fn rework(rework: Rework) -> Self {
        Self { rework, ..Self::NONE }
    }
}

/// Every call returns effects: in two cache lines they are copied without a call.
const _: () = assert!(size_of::<Effects>() <= 128);

/// Feedback to be made for the sender of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    pub(crate) to: OrderTo,
    pub(crate) kind: OrderKind,
}

/// The flow whose sender gets feedback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OrderTo {
    /// That of the packet that was queued.
    Packet,
    /// That at a place of the agent's: see [`Agent::flow_at`].
    Place(u32),
}

/// Kinds of feedback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OrderKind {
    /// A congestion notification of RoCEv2.
    Cnp,
    /// A pseudo-ACK about a packet with this hop limit on arrival.
    PseudoAck { data: SrData, hop_limit: u8 },
    /// The telemetry of a packet with this hop limit on arrival.
    Telemetry { data: SrData, hop_limit: u8 },
}

/// A queue that an agent holds, so that it does not send, or has released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hold {
    pub(crate) port: u8,
    pub(crate) queue: u8,
    pub(crate) is_held: bool,
}

/// The rate of a flow's queue is to change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RateChange {
    pub(crate) port: u8,
    pub(crate) queue: u8,
    /// The flow's key in the port's queues.
    pub(crate) flow: u64,
    pub(crate) rate: Rate,
}

/// Other marking thresholds for a queue, at the place where it marks now.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Thresholds {
    pub(crate) port: u8,
    pub(crate) queue: u8,
    pub(crate) ecn: EcnConfig,
}

/// The change of a packet's telemetry as it leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rework {
    /// Nothing.
    Nothing,
    /// It begins anew, with this credit; the switch's own record then says that nothing waits.
    Begin(IntCredit),
    /// It leaves the packet, the switch's own record included; feedback of it is ordered with it.
    Reflect,
}
