//! The path of each packet, chosen by the load balancer, and the reports that the balancer gets of
//! acknowledgements and losses.

use super::Tx;
use super::part::{Sending, SendingKind};
use super::sent::{Fate, OnPath};
use crate::attr::Balance;
use crate::qp::flow::Flow;
use spanwire_base::{Dur, Time};
use spanwire_loadbalance::{self as lb, Balancer, Entropy, LossKind, Outgoing, PathAck, PathLoss};
use spanwire_wire::{Qpn, SrAckRepr};

/// The paths of one queue pair.
#[derive(Debug)]
pub(super) struct Paths {
    balancer: Balancer,
    /// Packets that the peer had received, and received marked, when it last said.
    counted: (u32, u32),
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
            counted: (0, 0),
        }
    }

    /// For reports.
    pub(super) fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    /// Which packets came marked: all since the last acknowledgement, none, or those that it names.
    pub(super) fn marks(&mut self, ack: &SrAckRepr<'_>) -> u64 {
        let (rx, ce) = std::mem::replace(&mut self.counted, (ack.rx_pkts, ack.ce_pkts));
        let (rx, ce) = (ack.rx_pkts.wrapping_sub(rx), ack.ce_pkts.wrapping_sub(ce));
        match ack.marks {
            Some(marks) => marks,
            // An older one than the last counts backwards, and a liar as it likes.
            None if ce > 0 && ce == rx && rx < 1 << 31 => u64::MAX,
            None => 0,
        }
    }

    /// Packets arrived.
    fn on_arrived(&mut self, now: Time, told: &OnPath, echo: &mut Echo) {
        let path = Entropy::from_port(told.path);
        // The round trip is of one packet.
        let rtt = if echo.path == path.port() { echo.rtt.take() } else { None };
        let &OnPath { pkts: packets, bytes, marked, sent_at, .. } = told;
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

impl Tx {
    /// The source port of the packet that leaves now; none without a load balancer.
    #[inline]
    pub(in crate::sr) fn pick_path(
        &mut self,
        now: Time,
        sending: &Sending,
        bytes: u32,
        flow: Option<&mut Flow>,
    ) -> Option<u16> {
        let paths = self.paths.as_mut()?;
        let retransmit = sending.kind != SendingKind::New;
        let lost_on = self.sent.path(sending.number).filter(|_| retransmit);
        let picked = paths.balancer.pick(&Outgoing {
            now,
            psn: sending.number,
            bytes,
            retransmit,
            lost_on: lost_on.map(Entropy::from_port),
            in_flight_bytes: self.sent.in_flight_bytes(),
        });
        if let Some(flow) = flow.filter(|_| picked.moved) {
            flow.on_path_change();
        }
        Some(picked.entropy.port())
    }

    /// Tells the balancer what has become of packets: what arrived first.
    #[inline]
    pub(super) fn report_to_balancer(&mut self, now: Time, echo: Option<Echo>, lost_by: LossKind) {
        if self.paths.is_some() {
            self.report_paths(now, echo, lost_by);
        }
    }

    #[inline(never)]
    fn report_paths(&mut self, now: Time, mut echo: Option<Echo>, lost_by: LossKind) {
        let Some(paths) = &mut self.paths else { return };
        if lost_by == LossKind::Timeout {
            paths.balancer.on_timeout(now);
        }
        let mut told = self.sent.take_on_paths();
        for arrived in told.iter().filter(|told| told.fate == Fate::Arrived) {
            if let Some(echo) = &mut echo {
                paths.on_arrived(now, arrived, echo);
            }
        }
        for lost in told.iter().filter(|told| told.fate != Fate::Arrived) {
            let kind = if lost.fate == Fate::Settled { LossKind::Block } else { lost_by };
            let &OnPath { pkts: packets, bytes, sent_at, .. } = lost;
            let path = Entropy::from_port(lost.path);
            paths.balancer.on_loss(now, &PathLoss { path, packets, bytes, sent_at, kind });
        }
        told.clear();
        self.sent.give_on_paths(told);
    }
}
