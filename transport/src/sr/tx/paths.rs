//! The load balancer of a queue pair, and its input from ACKs.

use super::sent::ack_info::PathEvent;
use crate::attr::Balance;
use spanwire_base::{Dur, RxMeta, Time};
use spanwire_loadbalance::{self as lb, Balancer, Entropy, PathAck};
use spanwire_wire::{Qpn, SrAckRepr};

/// The load balancer of one queue pair.
#[derive(Debug)]
pub(super) struct Paths {
    pub(super) balancer: Balancer,
    /// The peer's counts of received and of CE-marked packets, as of its last ACK.
    last_counts: (u32, u32),
}

/// The path and RTT of an ACK's newest packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Echo {
    /// Its path.
    path: u16,
    rtt: Option<Dur>,
    /// The part of the RTT that the hosts added, and how late this one was.
    host_delay: Dur,
    lateness: Dur,
}

impl Paths {
    pub(super) fn new(balance: &Balance, qpn: Qpn, base_rtt: Option<Dur>) -> Self {
        // Queue pairs of one application share a seed, but should not take the same paths.
        let seed = balance.seed ^ u64::from(qpn.get()).rotate_left(40);
        Self {
            balancer: Balancer::new(&balance.choice, &lb::Flow { seed, base_rtt }),
            last_counts: (0, 0),
        }
    }

    /// The balancer, for reports.
    pub(super) fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    /// The CE marks of recent packets: all set if all packets since the last ACK were marked, none,
    /// or the bitmap of the ACK.
    pub(super) fn marks(&mut self, ack: &SrAckRepr<'_>) -> u64 {
        let (rx, ce) = std::mem::replace(&mut self.last_counts, (ack.rx_pkts, ack.ce_pkts));
        let (rx, ce) = (ack.rx_pkts.wrapping_sub(rx), ack.ce_pkts.wrapping_sub(ce));
        match ack.marks {
            Some(marks) => marks,
            // A stale ACK counts backwards, and a misbehaving peer may send any counts.
            None if ce > 0 && ce == rx && rx < 1 << 31 => u64::MAX,
            None => 0,
        }
    }

    /// Reports arrived packets to the balancer.
    pub(super) fn on_arrived(&mut self, now: Time, event: &PathEvent, echo: &mut Echo) {
        let path = Entropy::from_port(event.path);
        // The RTT sample is of one packet.
        let rtt = if echo.path == path.port() { echo.rtt.take() } else { None };
        let &PathEvent { pkts: packets, bytes, marked, sent_at, .. } = event;
        let Echo { host_delay, lateness, .. } = *echo;
        let ack = PathAck { path, packets, bytes, marked, sent_at, rtt, host_delay, lateness };
        self.balancer.on_ack(now, &ack);
    }
}

impl Echo {
    /// The echo of `ack`, which is processed at `times.0` and arrived as `times.1` says.
    pub(super) fn of(times: (Time, RxMeta), ack: &SrAckRepr<'_>) -> Self {
        let (now, arrival) = times;
        let sent_at = Time::from_ps(ack.echo_ps);
        let rtt = (ack.ack_delay_ns != u32::MAX).then(|| arrival.at.since(sent_at));
        let slack = Dur::from_ns(ack.rx_delay_ns.into()) + arrival.at.since(arrival.earliest);
        let ack_delay = rtt.map_or(Dur::ZERO, |_| Dur::from_ns(ack.ack_delay_ns.into()));
        let lateness = now.since(arrival.at) + slack;
        Self { path: ack.path, rtt, host_delay: ack_delay + slack, lateness }
    }
}
