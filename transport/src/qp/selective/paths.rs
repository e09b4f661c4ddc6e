//! Which way each packet takes, and what comes back of it.

use super::Selective;
use super::choose::{Sending, SendingKind};
use crate::attr::Balance;
use crate::qp::flow::Flow;
use crate::stream::sent::{Fate, OnPath};
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

impl Selective {
    /// Packets take the ways that this chooses from now on.
    pub(in crate::qp) fn set_balance(
        &mut self,
        balance: &Balance,
        qpn: Qpn,
        base_rtt: Option<Dur>,
    ) {
        self.paths = Some(Box::new(Paths::new(balance, qpn, base_rtt)));
        self.sent.watch_paths();
    }

    pub(in crate::qp) fn balancer(&self) -> Option<&Balancer> {
        self.paths.as_ref().map(|paths| paths.balancer())
    }

    /// The source port of the packet that leaves now. Who does not choose follows its peer, if that
    /// does: what arrived last came by a way that works. 0 if neither does.
    #[inline]
    pub(super) fn pick_path(
        &mut self,
        now: Time,
        sending: &Sending,
        bytes: u32,
        flow: Option<&mut Flow>,
    ) -> u16 {
        let Some(paths) = &mut self.paths else { return self.feedback.way_back() };
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
        picked.entropy.port()
    }

    /// Tells the balancer what has become of packets: what arrived first.
    #[inline]
    pub(super) fn tell_paths(&mut self, now: Time, echo: Option<Echo>, lost_by: LossKind) {
        if self.paths.is_some() {
            self.tell_balancer(now, echo, lost_by);
        }
    }

    #[inline(never)]
    fn tell_balancer(&mut self, now: Time, mut echo: Option<Echo>, lost_by: LossKind) {
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
