//! MLCC at the switch that connects a datacenter to others (DCI): near telemetry of flows that
//! leave, and credit for flows that come in.

pub(crate) mod config;
mod flows;
pub(crate) mod report;

use super::api::{
    Agent, AgentCounters, Departing, Effects, Order, OrderKind, OrderTo, Placement, Ports, Queued,
    Rework, Site,
};
use super::passing::{FlowEnds, Passing, SrData};
use config::MlccConfig;
use flows::{Flow, Flows};
use report::MlccFlow;
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
    out: u64,
    near: u64,
    data: u64,
    credits: u64,
    stale: u64,
    unknown: u64,
}

impl Mlcc {
    /// The agent of a validated configuration.
    pub(crate) fn new(config: &MlccConfig, site: &Site<'_>) -> Self {
        let rates = site.all.iter().map(|port| port.rate.expect("validated"));
        Self {
            flows: Flows::new(config.flows),
            config: config.clone(),
            rates: rates.collect(),
            out: 0,
            near: 0,
            data: 0,
            credits: 0,
            stale: 0,
            unknown: 0,
        }
    }

    /// A packet of a flow leaves for another datacenter: the order of its near telemetry, if the
    /// flow's last was an interval ago.
    fn reflect(&mut self, now: Time, at: usize, data: SrData) -> Option<Order> {
        let flow = self.flows.get_mut(at);
        if now < flow.near_at {
            return None;
        }
        flow.near_at = now + self.config.rtt_d;
        self.near += 1;
        let kind = OrderKind::Telemetry { data, hop_limit: flow.hop_limit };
        Some(Order { to: OrderTo::Place(u32_from(at)), kind })
    }

    fn is_outside(&self, port: u8) -> bool {
        self.config.outside.contains(&port)
    }

    /// The rate of a port; validation requires one.
    fn line(&self, port: u8) -> Rate {
        self.rates[usize::from(port)]
    }

    /// Credit in an acknowledgement that leaves.
    fn on_credit(&mut self, now: Time, key: u64, credit: &SrCredit) -> Effects {
        let Some(at) = self.flows.find(now, key) else {
            self.unknown += 1;
            return Effects::NONE;
        };
        let line = self.line(self.flows.get(at).port);
        let flow = self.flows.get_mut(at);
        if !flow.is_incoming {
            self.unknown += 1;
            return Effects::NONE;
        }
        // An older one was overtaken. One that differs by more is of a new sequence, or follows a
        // forged one, which so blocks nothing.
        let is_older =
            |last: u32| (1..=REORDERED_ROUNDS).contains(&last.wrapping_sub(credit.credit));
        if flow.credit.is_some_and(is_older) {
            self.stale += 1;
            return Effects::NONE;
        }
        self.credits += 1;
        flow.credit = Some(credit.credit);
        let bps = u64::from(credit.rate_kbps) * 1000;
        let least = line.as_bps() / LEAST_PART;
        flow.rate = Rate::from_bps(bps.clamp(least, line.as_bps()).max(1));
        Effects::rate(flow.change(key))
    }
}

impl Agent for Mlcc {
    fn on_arrival(
        &mut self,
        now: Time,
        passing: &Passing,
        ports: Ports,
        sender: Option<Qpn>,
    ) -> (Placement, Effects) {
        let nothing = (Placement::default(), Effects::NONE);
        let (from, to) = (self.is_outside(ports.from), self.is_outside(ports.to));
        if from == to {
            return nothing;
        }
        if let (true, Some(credit)) = (to, passing.ack.and_then(|ack| ack.credit)) {
            return (Placement::default(), self.on_credit(now, passing.acked_key(), &credit));
        }
        let (true, Some(sender)) = (passing.asks_credit, sender) else { return nothing };
        *(if to { &mut self.out } else { &mut self.data }) += 1;
        // Any host may send data that bear the addresses of a flow of the other direction.
        let key = passing.sender_key(sender);
        let key = if to { !key } else { key };
        let rate = self.config.initial.unwrap_or(self.line(ports.to)).min(self.line(ports.to));
        let new = || Flow::new(passing, sender, from, rate);
        let Some(at) = self.flows.see(now, key, new) else { return nothing };
        // Those of its first packet may be forged, and stay as long as it sends.
        let flow = self.flows.get_mut(at);
        (flow.ends, flow.hop_limit) = (passing.ends, passing.hop_limit);
        let (tag, flow) = (u32_from(at) + 1, from.then_some(key));
        (Placement { tag, flow, ..Placement::default() }, Effects::NONE)
    }

    #[inline]
    fn on_queued(&mut self, _: Time, _: &Passing, queued: Queued) -> Effects {
        let Some(at) = place_of(queued.placement.tag) else { return Effects::NONE };
        let flow = self.flows.get_mut(at);
        flow.queued_pkts += 1;
        let Some(key) = queued.placement.flow else { return Effects::NONE };
        flow.queued_bytes += queued.own_bytes;
        if (flow.port, flow.queue) == (queued.port, queued.queue) {
            return Effects::NONE;
        }
        // Its queue is new there.
        (flow.port, flow.queue) = (queued.port, queued.queue);
        Effects::rate(flow.change(key))
    }

    #[inline]
    fn on_departure(&mut self, now: Time, leaving: &Departing) -> Effects {
        let Some(at) = place_of(leaving.tag) else { return Effects::NONE };
        let is_outgoing = self.is_outside(leaving.port);
        let flow = self.flows.get_mut(at);
        flow.queued_pkts = flow.queued_pkts.saturating_sub(1);
        if is_outgoing {
            let Some(data) = leaving.sr else { return Effects::NONE };
            let feedback = self.reflect(now, at, data);
            return Effects { feedback, ..Effects::rework(Rework::Reflect) };
        }
        flow.queued_bytes = flow.queued_bytes.saturating_sub(leaving.bytes);
        Effects::rework(Rework::Begin(IntCredit {
            credit: flow.credit.unwrap_or(0),
            waiting_bytes: u32::try_from(flow.queued_bytes).unwrap_or(u32::MAX),
        }))
    }

    fn flow_at(&self, place: u32) -> Option<(FlowEnds, Option<Qpn>)> {
        let flow = self.flows.get(usize_from(place.into()));
        Some((flow.ends, Some(flow.sender)))
    }

    fn counters(&self, now: Time) -> Vec<AgentCounters> {
        vec![AgentCounters {
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
        }]
    }

    /// The flows that come in and have sent within a second.
    fn rated_flows(&self, now: Time) -> Vec<MlccFlow> {
        let of = |flow: &Flow| MlccFlow {
            source: flow.ends.source_address(),
            dest: flow.ends.dest_address(),
            sender: flow.sender,
            waiting_bytes: flow.queued_bytes,
            rate: flow.rate,
        };
        self.flows.live(now).filter(|flow| flow.is_incoming).map(of).collect()
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
/// A credit rate is at least that part of the port's: one that was forged, or that the receiver
/// computed while it was overloaded, holds no queue for ever.
const LEAST_PART: u64 = 10_000;

/// The place of a flow whose packets have this tag.
fn place_of(tag: u32) -> Option<usize> {
    tag.checked_sub(1).map(|place| usize_from(place.into()))
}

#[cfg(test)]
mod tests;
