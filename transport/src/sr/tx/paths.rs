//! The load balancer of a queue pair, and what it learns from acknowledgements.

use super::sent::ack_info::PathEvent;
use crate::attr::Balance;
use spanwire_base::{Dur, Time};
use spanwire_loadbalance::{self as lb, Balancer, Entropy, PathAck};
use spanwire_wire::{Qpn, SrAckRepr};

/// The paths of one queue pair.
#[derive(Debug)]
pub(super) struct Paths {
    pub(super) balancer: Balancer,
    /// Packets that the peer had received, and received marked, when it last said.
    last_counts: (u32, u32),
}

/// What an acknowledgement says of its newest packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Echo {
    /// The path that it came by.
    path: u16,
    rtt: Option<Dur>,
}

impl Paths {
    pub(super) fn new(balance: &Balance, qpn: Qpn, base_rtt: Option<Dur>) -> Self {
        // Queue pairs of one application have one seed, and are not to take the same ways.
        let seed = balance.seed ^ u64::from(qpn.get()).rotate_left(40);
        Self {
            balancer: Balancer::new(&balance.choice, &lb::Flow { seed, base_rtt }),
            last_counts: (0, 0),
        }
    }

    /// For reports.
    pub(super) fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    /// Which packets came marked: all since the last acknowledgement, none, or those that it names.
    pub(super) fn marks(&mut self, ack: &SrAckRepr<'_>) -> u64 {
        let (rx, ce) = std::mem::replace(&mut self.last_counts, (ack.rx_pkts, ack.ce_pkts));
        let (rx, ce) = (ack.rx_pkts.wrapping_sub(rx), ack.ce_pkts.wrapping_sub(ce));
        match ack.marks {
            Some(marks) => marks,
            // An older one than the last counts backwards, and a liar as it likes.
            None if ce > 0 && ce == rx && rx < 1 << 31 => u64::MAX,
            None => 0,
        }
    }

    /// Packets arrived.
    pub(super) fn on_arrived(&mut self, now: Time, event: &PathEvent, echo: &mut Echo) {
        let path = Entropy::from_port(event.path);
        // The round trip is of one packet.
        let rtt = if echo.path == path.port() { echo.rtt.take() } else { None };
        let &PathEvent { pkts: packets, bytes, marked, sent_at, .. } = event;
        self.balancer.on_ack(now, &PathAck { path, packets, bytes, marked, sent_at, rtt });
    }
}

impl Echo {
    /// What `ack`, which came at `now`, says of its newest packet.
    pub(super) fn of(now: Time, ack: &SrAckRepr<'_>) -> Self {
        let sent_at = Time::from_ps(ack.echo_ps);
        let rtt = (ack.hold_ns != u32::MAX).then(|| now.since(sent_at));
        Self { path: ack.path, rtt }
    }
}
