//! Agents: what a switch does beside queueing and marking.
//!
//! An agent watches ports of its switch. It originates feedback for the senders of the packets
//! that pass there, by a rule of its own, or changes how their queues mark. It declares its
//! [needs](api::Needs) and returns [effects](api::Effects): the switch sees to both without regard
//! to its kind. It reads no clock, uses no floats on the packet path and
//! allocates nothing there once it is made.
//!
//! | room | what |
//! |---|---|
//! | [`api`] | the interface of agents: needs, packets, effects |
//! | [`kind`] | the kinds of agents, a line for each |
//! | [`config`] | the agents of one switch, as they are configured |
//! | `checks` | checks of parameters |
//! | [`set`] | the agents of one switch, as they run |
//! | [`passing`] | what an agent sees of a packet |
//! | [`qpns`] | the queue pair that sent a packet, to which feedback goes |
//! | [`feedback`] | frames of feedback, and their limit |
//! | `sets` | tables of flows |
//! | [`pacc`] | PACC |
//! | [`nsf`] | the near-source feedback of Reflex |
//! | [`ndt`] | the near-destination throttling of Reflex |
//! | [`ecn`] | marking thresholds by reinforcement learning |
//! | [`mlcc`] | MLCC at the border of a datacenter |

pub(crate) mod api;
mod checks;
pub(crate) mod config;
pub(crate) mod ecn;
pub(crate) mod feedback;
pub(crate) mod kind;
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
