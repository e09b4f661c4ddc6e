//! Agents: what a switch does beside queueing and marking.
//!
//! An agent watches ports of its switch. It originates feedback for the senders of the packets
//! that pass there, by a rule of its own, or changes how their queues mark. It reads no clock, uses
//! no floats on the packet path and allocates nothing there once it is made.
//!
//! | room | what |
//! |---|---|
//! | [`config`] | parameters with ranges |
//! | `checks` | checks of parameters |
//! | [`passing`] | what an agent sees of a packet |
//! | [`qpns`] | the queue pair that sent a packet, to which feedback goes |
//! | [`feedback`] | frames of feedback, and their limit |
//! | [`set`] | the agents of one switch |
//! | `kind` | the kinds of agents |
//! | `sets` | tables of flows |
//! | [`pacc`] | PACC |
//! | [`nsf`] | the near-source feedback of Reflex |
//! | [`ndt`] | the near-destination throttling of Reflex |
//! | [`ecn`] | marking thresholds by reinforcement learning |
//! | [`mlcc`] | MLCC at the border of a datacenter |

mod checks;
pub(crate) mod config;
pub(crate) mod ecn;
pub(crate) mod feedback;
mod kind;
pub(crate) mod mlcc;
pub(crate) mod ndt;
pub(crate) mod nsf;
pub(crate) mod pacc;
pub(crate) mod passing;
pub(crate) mod qpns;
pub(crate) mod set;
mod sets;
#[cfg(test)]
pub(crate) mod testing;

use arrayvec::ArrayVec;
use passing::{FlowEnds, Passing, SrData};
use serde::Serialize;
use spanwire_base::Time;
use spanwire_wire::{IntCredit, Qpn};

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

/// The rule of an agent at its ports.
pub(crate) trait Agent {
    /// A packet that came in by one port and was forwarded to another, of which at least one is the
    /// agent's, is about to be queued; `sender` is the queue pair that sent it, if known. The agent
    /// may choose another queue if it leaves by one of its ports.
    fn on_arrival(&mut self, _: Time, _: &Passing, _: Ports, _: Option<Qpn>) -> Placement {
        Placement::default()
    }

    /// A packet was queued at one of its ports.
    fn on_queued(&mut self, now: Time, passing: &Passing, queued: Queued, out: &mut Outbox);

    /// A packet that got a tag from [`Agent::on_arrival`] leaves by a port; what is to be done with
    /// its telemetry.
    fn on_departure(&mut self, _: Time, _: &Departing) -> Rework {
        Rework::Nothing
    }

    /// Handles the timers that are due; `queue_bytes` are those of its queue.
    fn handle_timeout(&mut self, now: Time, queue_bytes: u64, out: &mut Outbox);

    /// When [`Agent::handle_timeout`] has something to do.
    fn poll_timeout(&self) -> Option<Time>;

    /// Its counters, and its gauges at `now`.
    fn counters(&self, now: Time) -> AgentCounters;
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

/// The change of a packet's telemetry as it leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rework {
    /// Nothing.
    Nothing,
    /// It begins anew, with this credit; the switch's own record then says that nothing waits.
    Begin(IntCredit),
    /// It goes back to the sender of this packet, the switch's own record included, and leaves the
    /// packet.
    Reflect(SrData),
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
    /// Bytes of the packet in its queue.
    pub(crate) bytes: u64,
    /// It is SR data.
    pub(crate) sr: Option<SrData>,
}

/// A queue that an agent holds, so that it does not send, or has released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hold {
    pub(crate) port: u8,
    pub(crate) queue: u8,
    pub(crate) is_held: bool,
}

/// Feedback that agents have decided on, at most [`OUTBOX_MAX`] at a time.
pub(crate) type Outbox = ArrayVec<Order, OUTBOX_MAX>;

/// Feedback to be made for the sender of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// The flow.
    pub(crate) ends: FlowEnds,
    /// The queue pair that sends it, if its packet has said so.
    pub(crate) sender: Option<Qpn>,
    pub(crate) kind: OrderKind,
}

/// Kinds of feedback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OrderKind {
    /// A congestion notification of RoCEv2.
    Cnp,
    /// A pseudo-ACK about the packet with this PSN: the time that it was sent, in ps by its
    /// sender's clock, and its hop limit on arrival.
    PseudoAck { psn: u32, echo_ps: u64, hop_limit: u8 },
}

/// Feedback in one turn. More that is due waits for the next turn.
pub(crate) const OUTBOX_MAX: usize = 64;
