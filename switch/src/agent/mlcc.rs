//! MLCC at the switch that connects a datacenter to others (DCI): near telemetry of flows that
//! leave, and credit for flows that come in.

pub(crate) mod config;
mod flows;

use super::passing::{FlowEnds, Passing};
use super::{Agent, AgentCounters, Departing, Outbox, Placement, Ports, Queued, Rework};
use arrayvec::ArrayVec;
use config::MlccConfig;
pub(crate) use flows::RateChange;
use flows::{Flow, Flows};
use spanwire_base::{Rate, Time, u32_from, u64_from, usize_from};
use spanwire_wire::{IntCredit, Qpn, SrCredit};
use std::net::IpAddr;

/// MLCC at the ports of one switch: those that lead outside, and all others.
#[derive(Debug)]
pub(crate) struct Mlcc {
    config: MlccConfig,
    /// The rate of each port.
    rates: Vec<Rate>,
    flows: Flows,
    changes: ArrayVec<RateChange, CHANGES_MAX>,
    out: u64,
    near: u64,
    data: u64,
    credits: u64,
    stale: u64,
    unknown: u64,
}

/// The part of a flow's near telemetry that is not in its packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reflected {
    pub(crate) ends: FlowEnds,
    pub(crate) sender: Qpn,
    pub(crate) hop_limit: u8,
}

/// A flow that comes in through a DCI switch with MLCC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MlccFlow {
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub dest: IpAddr,
    /// The sender's queue pair.
    pub sender: Qpn,
    /// Bytes of the flow in the switch.
    pub waiting_bytes: u64,
    /// The rate at which it is let in.
    pub rate: Rate,
}

impl Mlcc {
    /// The agent of a validated configuration, at ports of these rates.
    pub(crate) fn new(config: &MlccConfig, rates: Vec<Rate>) -> Self {
        Self {
            flows: Flows::new(config.flows),
            config: config.clone(),
            rates,
            changes: ArrayVec::new(),
            out: 0,
            near: 0,
            data: 0,
            credits: 0,
            stale: 0,
            unknown: 0,
        }
    }

    /// The next rate that is to change.
    pub(crate) fn pop_change(&mut self) -> Option<RateChange> {
        self.changes.pop()
    }

    /// A packet with this tag leaves for another datacenter: what its near telemetry needs, if the
    /// flow's last was an interval ago.
    pub(crate) fn reflect(&mut self, now: Time, tag: u32) -> Option<Reflected> {
        let flow = self.flows.get_mut(place_of(tag)?);
        if now < flow.near_at {
            return None;
        }
        flow.near_at = now + self.config.rtt_d;
        self.near += 1;
        Some(Reflected { ends: flow.ends, sender: flow.sender, hop_limit: flow.hop_limit })
    }

    /// The flows that come in and have sent within a second.
    pub(crate) fn flows(&self, now: Time) -> impl Iterator<Item = MlccFlow> {
        self.flows.live(now).filter(|flow| flow.is_incoming).map(|flow| MlccFlow {
            source: flow.ends.source_address(),
            dest: flow.ends.dest_address(),
            sender: flow.sender,
            waiting_bytes: flow.queued_bytes,
            rate: flow.rate,
        })
    }

    fn is_outside(&self, port: u8) -> bool {
        self.config.outside.contains(&port)
    }

    /// The rate of a port; validation requires one.
    fn line(&self, port: u8) -> Rate {
        self.rates[usize::from(port)]
    }

    /// Credit in an acknowledgement that leaves.
    fn on_credit(&mut self, now: Time, key: u64, credit: &SrCredit) {
        let Some(at) = self.flows.find(now, key) else {
            self.unknown += 1;
            return;
        };
        let line = self.line(self.flows.get(at).port);
        let flow = self.flows.get_mut(at);
        if !flow.is_incoming {
            self.unknown += 1;
            return;
        }
        // An older one was overtaken. One that differs by more is of a new sequence, or follows a
        // forged one, which so blocks nothing.
        let is_older =
            |last: u32| (1..=REORDERED_ROUNDS).contains(&last.wrapping_sub(credit.credit));
        if flow.credit.is_some_and(is_older) {
            self.stale += 1;
            return;
        }
        self.credits += 1;
        flow.credit = Some(credit.credit);
        let bps = u64::from(credit.rate_kbps) * 1000;
        let least = line.as_bps() / LEAST_PART;
        flow.rate = Rate::from_bps(bps.clamp(least, line.as_bps()).max(1));
        let change = flow.change(key);
        self.push(change);
    }

    fn push(&mut self, change: RateChange) {
        let pushed = self.changes.try_push(change);
        debug_assert!(pushed.is_ok(), "they are popped after each packet");
    }
}

impl Agent for Mlcc {
    fn on_arrival(
        &mut self,
        now: Time,
        passing: &Passing,
        ports: Ports,
        sender: Option<Qpn>,
    ) -> Placement {
        let (from, to) = (self.is_outside(ports.from), self.is_outside(ports.to));
        if from == to {
            return Placement::default();
        }
        if let (true, Some(credit)) = (to, passing.ack.and_then(|ack| ack.credit)) {
            self.on_credit(now, passing.acked_key(), &credit);
            return Placement::default();
        }
        let (true, Some(sender)) = (passing.asks_credit, sender) else {
            return Placement::default();
        };
        *(if to { &mut self.out } else { &mut self.data }) += 1;
        // Any host may send data that bear the addresses of a flow of the other direction.
        let key = passing.sender_key(sender);
        let key = if to { !key } else { key };
        let rate = self.config.initial.unwrap_or(self.line(ports.to)).min(self.line(ports.to));
        let new = || Flow::new(passing, sender, from, rate);
        let Some(at) = self.flows.see(now, key, new) else { return Placement::default() };
        // Those of its first packet may be forged, and stay as long as it sends.
        let flow = self.flows.get_mut(at);
        (flow.ends, flow.hop_limit) = (passing.ends, passing.hop_limit);
        Placement { tag: u32_from(at) + 1, flow: from.then_some(key), ..Placement::default() }
    }

    fn on_queued(&mut self, _: Time, _: &Passing, queued: Queued, _: &mut Outbox) {
        let Some(at) = place_of(queued.placement.tag) else { return };
        let flow = self.flows.get_mut(at);
        flow.queued_pkts += 1;
        let Some(key) = queued.placement.flow else { return };
        flow.queued_bytes += queued.own_bytes;
        // Its queue is new there.
        if (flow.port, flow.queue) != (queued.port, queued.queue) {
            (flow.port, flow.queue) = (queued.port, queued.queue);
            let change = flow.change(key);
            self.push(change);
        }
    }

    fn on_departure(&mut self, _: Time, leaving: &Departing) -> Rework {
        let Some(at) = place_of(leaving.tag) else { return Rework::Nothing };
        let is_outgoing = self.is_outside(leaving.port);
        let flow = self.flows.get_mut(at);
        flow.queued_pkts = flow.queued_pkts.saturating_sub(1);
        if is_outgoing {
            return leaving.sr.map_or(Rework::Nothing, Rework::Reflect);
        }
        flow.queued_bytes = flow.queued_bytes.saturating_sub(leaving.bytes);
        Rework::Begin(IntCredit {
            credit: flow.credit.unwrap_or(0),
            waiting_bytes: u32::try_from(flow.queued_bytes).unwrap_or(u32::MAX),
        })
    }

    fn handle_timeout(&mut self, _: Time, _: u64, _: &mut Outbox) {}

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn counters(&self, now: Time) -> AgentCounters {
        AgentCounters {
            kind: "mlcc",
            port: self.config.outside.first().copied().unwrap_or(0),
            counters: vec![
                ("data_out_pkts", self.out),
                ("data_in_pkts", self.data),
                ("near_due", self.near),
                ("credits", self.credits),
                ("credits_stale", self.stale),
                ("credits_unknown", self.unknown),
                ("flow_collisions", self.flows.collisions),
            ],
            gauges: vec![
                ("flows", u64_from(self.flows.live(now).count())),
                ("waiting_bytes", self.flows.live(now).map(|flow| flow.queued_bytes).sum()),
            ],
        }
    }
}

impl FlowEnds {
    fn source_address(&self) -> IpAddr {
        super::feedback::address_of(self.is_v6, self.source)
    }

    fn dest_address(&self) -> IpAddr {
        super::feedback::address_of(self.is_v6, self.dest)
    }
}

/// The rounds by which an acknowledgement may be overtaken.
const REORDERED_ROUNDS: u32 = 64;
/// Changes of one packet: one of its own flow, or one of the flow that it acknowledges.
const CHANGES_MAX: usize = 2;
/// A credit rate is at least that part of the port's: one that was forged, or that the receiver
/// computed while it was overloaded, holds no queue for ever.
const LEAST_PART: u64 = 10_000;

/// Bytes of a flow in its table.
pub(super) const ENTRY_BYTES: usize = flows::BYTES;

/// The place of a flow whose packets have this tag.
fn place_of(tag: u32) -> Option<usize> {
    tag.checked_sub(1).map(|place| usize_from(place.into()))
}

#[cfg(test)]
mod tests;
