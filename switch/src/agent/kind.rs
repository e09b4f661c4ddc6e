//! The kinds of agents.

use super::ecn::Ecn;
use super::mlcc::Mlcc;
use super::ndt::Ndt;
use super::nsf::Nsf;
use super::pacc::Pacc;
use super::passing::Passing;
use super::{Agent, AgentCounters, Departing, Outbox, Placement, Ports, Queued, Rework};
use spanwire_base::Time;
use spanwire_wire::Qpn;

/// An agent of any kind.
#[derive(Debug)]
pub(super) enum Kind {
    Pacc(Box<Pacc>),
    Nsf(Nsf),
    Ndt(Box<Ndt>),
    Ecn(Box<Ecn>),
    Mlcc(Box<Mlcc>),
}

impl Kind {
    /// True if it chooses queues, or looks at packets that come in by its ports: others need not
    /// hear of packets before they are queued.
    #[inline]
    pub(super) fn chooses(&self) -> bool {
        matches!(self, Self::Ndt(_) | Self::Mlcc(_))
    }
}

impl Agent for Kind {
    fn on_arrival(
        &mut self,
        now: Time,
        passing: &Passing,
        ports: Ports,
        sender: Option<Qpn>,
    ) -> Placement {
        match self {
            Self::Pacc(pacc) => pacc.on_arrival(now, passing, ports, sender),
            Self::Nsf(nsf) => nsf.on_arrival(now, passing, ports, sender),
            Self::Ndt(ndt) => ndt.on_arrival(now, passing, ports, sender),
            Self::Ecn(ecn) => ecn.on_arrival(now, passing, ports, sender),
            Self::Mlcc(mlcc) => mlcc.on_arrival(now, passing, ports, sender),
        }
    }

    #[inline]
    fn on_queued(&mut self, now: Time, passing: &Passing, queued: Queued, out: &mut Outbox) {
        match self {
            Self::Pacc(pacc) => pacc.on_queued(now, passing, queued, out),
            Self::Nsf(nsf) => nsf.on_queued(now, passing, queued, out),
            Self::Ndt(ndt) => ndt.on_queued(now, passing, queued, out),
            Self::Ecn(ecn) => ecn.on_queued(now, passing, queued, out),
            Self::Mlcc(mlcc) => mlcc.on_queued(now, passing, queued, out),
        }
    }

    fn on_departure(&mut self, now: Time, leaving: &Departing) -> Rework {
        match self {
            Self::Pacc(pacc) => pacc.on_departure(now, leaving),
            Self::Nsf(nsf) => nsf.on_departure(now, leaving),
            Self::Ndt(ndt) => ndt.on_departure(now, leaving),
            Self::Ecn(ecn) => ecn.on_departure(now, leaving),
            Self::Mlcc(mlcc) => mlcc.on_departure(now, leaving),
        }
    }

    fn handle_timeout(&mut self, now: Time, queue_bytes: u64, out: &mut Outbox) {
        match self {
            Self::Pacc(pacc) => pacc.handle_timeout(now, queue_bytes, out),
            Self::Nsf(nsf) => nsf.handle_timeout(now, queue_bytes, out),
            Self::Ndt(ndt) => ndt.handle_timeout(now, queue_bytes, out),
            Self::Ecn(ecn) => ecn.handle_timeout(now, queue_bytes, out),
            Self::Mlcc(mlcc) => mlcc.handle_timeout(now, queue_bytes, out),
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        match self {
            Self::Pacc(pacc) => pacc.poll_timeout(),
            Self::Nsf(nsf) => nsf.poll_timeout(),
            Self::Ndt(ndt) => ndt.poll_timeout(),
            Self::Ecn(ecn) => ecn.poll_timeout(),
            Self::Mlcc(mlcc) => mlcc.poll_timeout(),
        }
    }

    fn counters(&self, now: Time) -> AgentCounters {
        match self {
            Self::Pacc(pacc) => pacc.counters(now),
            Self::Nsf(nsf) => nsf.counters(now),
            Self::Ndt(ndt) => ndt.counters(now),
            Self::Ecn(ecn) => ecn.counters(now),
            Self::Mlcc(mlcc) => mlcc.counters(now),
        }
    }
}
