//! The results of a run, as data.

use crate::flow_report::FlowReport;
use crate::groups::GroupReport;
use crate::host::SimHost;
use crate::ids::NodeId;
use crate::measure::Measure;
use crate::network::{FlowProgress, Machine, Network};
use crate::papers::{MetricReport, Trace};
use crate::plan::Plan;
use crate::record::{Series, queue_names, to_f64, us};
use crate::sharing::SharingReport;
use crate::topology::PathInfo;
use crate::workload::{Flow, FlowOp};
use serde::Serialize;
use serde_json::Value;
use spanwire_base::{Dur, u32_from};
use spanwire_switch::QueueCounters;
use std::collections::BTreeMap;

/// The results of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The name of the scenario.
    pub scenario: String,
    /// Its seed.
    pub seed: u64,
    /// The event hash, 16 hexadecimal digits. Runs with equal hashes had the same events.
    pub event_hash: String,
    /// True if no check failed.
    pub checkers_ok: bool,
    /// Arrivals, serialisers that became free, and timers.
    pub events: u64,
    /// Frames transmitted on a link.
    pub packet_hops: u64,
    /// Virtual time of the last event, in us.
    pub simulated_us: f64,
    /// The subject of the completion times.
    pub measure: Measure,
    /// The ideal FCT in us, if the scenario defines one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ideal_us: Option<f64>,
    /// The flows, in the order given.
    pub flows: Vec<FlowReport>,
    /// The switch queues that were ever non-empty.
    pub queues: Vec<QueueReport>,
    /// Frames and packets dropped, by place and cause: `line_*`, `switch_*`, `host_*`. Zeros are
    /// omitted.
    pub drops: BTreeMap<String, u64>,
    /// The sum of all hosts' engine counters; zeros are omitted.
    pub engine: BTreeMap<String, u64>,
    /// The workers of hosts; absent if each host has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkersReport>,
    /// Pause frames that switches have sent.
    pub pfc_pauses: u64,
    /// The agents of switches; absent without.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentReport>,
    /// How flows shared a queue, in scenarios that measure it.
    #[serde(flatten)]
    pub sharing: Option<SharingReport>,
    /// Statistics of groups of flows, in scenarios that have groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupReport>,
    /// The metric of a paper's figure, in scenarios that measure one.
    #[serde(flatten)]
    pub metric: Option<MetricReport>,
    /// The queues and rates that the metric is about, at each sample. Empty without one.
    #[serde(skip)]
    pub over_time: Vec<Trace>,
    /// Violations, one sentence each.
    pub violations: Vec<String>,
    /// The time series, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<Series>,
}

/// The workers of hosts. Frames are those of all hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct WorkersReport {
    /// Workers of each host.
    pub each: u8,
    /// Frames that arrived at the queue of another worker and were handed over.
    pub handed: u64,
    /// Handed frames that their worker has received.
    pub received: u64,
    /// Frames that were dropped because the ring of their worker was full.
    pub dropped: u64,
}

/// An agent at a port of a switch.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AgentReport {
    /// The name of the switch.
    pub switch: String,
    /// Its kind.
    pub kind: &'static str,
    /// The port.
    pub port: u8,
    /// Totals by name; zeros are omitted.
    pub counters: BTreeMap<&'static str, u64>,
    /// Values at the end by name; zeros are omitted.
    pub gauges: BTreeMap<&'static str, u64>,
}

/// The results of a queue.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct QueueReport {
    /// `switch:port`, followed by `.queue` if the port has several.
    pub name: String,
    /// Its mean length over all samples.
    pub mean_bytes: f64,
    /// Frames dropped, for any cause.
    pub drops: u64,
    /// Frames marked, for any cause.
    pub marks: u64,
    /// The switch's counters of it, including `max_bytes`.
    #[serde(flatten)]
    pub counters: QueueCounters,
}

impl Report {
    pub(crate) fn new(
        plan: &Plan,
        network: &Network,
        mean_bytes: &[f64],
        violations: Vec<String>,
    ) -> Self {
        let counters = network.world.counters();
        let pauses = network.switches().map(|(_, switch)| {
            switch.counters().ports.iter().map(|port| port.pfc.pause_tx).sum::<u64>()
        });
        let flows = flows(network, plan.measure);
        Self {
            scenario: plan.scenario.clone(),
            seed: network.setup().seed,
            event_hash: format!("{:016x}", network.world.event_hash().value()),
            checkers_ok: violations.is_empty(),
            events: counters.events,
            packet_hops: counters.packet_hops,
            simulated_us: us(network.world.now()),
            measure: plan.measure,
            ideal_us: plan.ideal.map(|d| to_f64(d.as_ps()) / 1e6),
            groups: plan.groups.report(network.flows(), &flows),
            flows,
            queues: queues(network, mean_bytes),
            drops: drops(network),
            engine: engine(network),
            workers: workers(network),
            pfc_pauses: pauses.sum(),
            agents: agents(network),
            sharing: None,
            metric: None,
            over_time: Vec::new(),
            violations,
            series: None,
        }
    }
}

/// The agents that have done anything.
fn agents(network: &Network) -> Vec<AgentReport> {
    let nonzero = |all: Vec<(&'static str, u64)>| -> BTreeMap<_, _> {
        all.into_iter().filter(|(_, n)| *n > 0).collect()
    };
    let of = |(node, machine): (NodeId, &Machine)| {
        let agents = match machine {
            Machine::Host(_) => Vec::new(),
            Machine::Switch(switch) => switch.agents(network.world.now()),
        };
        let name = network.topology().name(u32_from(node.index())).to_owned();
        agents.into_iter().map(move |agent| AgentReport {
            switch: name.clone(),
            kind: agent.kind,
            port: agent.port,
            counters: nonzero(agent.counters),
            gauges: nonzero(agent.gauges),
        })
    };
    let all = network.world.nodes().flat_map(of);
    all.filter(|agent| !agent.counters.is_empty()).collect()
}

fn flows(network: &Network, measure: Measure) -> Vec<FlowReport> {
    let progress = network.progress();
    let messages = message_times(network, measure);
    let report = |((flow, p), messages_us): ((&Flow, &FlowProgress), Vec<f64>)| {
        let is_there = matches!(measure, Measure::Arrival | Measure::Deliveries);
        let end = if is_there { p.finished } else { p.completed };
        let fct = p.started.zip(end).map(|(from, to)| to.since(from));
        let fct_us = fct.map(|d| to_f64(d.as_ps()) / 1e6);
        let path = network.topology().path(network.routes(), flow.src, flow.dst);
        // The bytes of a mix are known only once it is complete, and it has no ideal FCT.
        let is_mix = flow.op == FlowOp::Mix;
        let bytes = if is_mix { p.done_bytes } else { flow.bytes };
        let ideal_fct =
            path.filter(|_| !is_mix).map(|path| ideal_fct(network, flow, &path, measure));
        FlowReport {
            src: flow.src,
            dst: flow.dst,
            bytes,
            op: flow.op,
            start_us: p.started.map(us),
            fct_us,
            messages_us,
            goodput_gbps: fct_us.filter(|us| *us > 0.0).map(|us| to_f64(bytes) * 8e-3 / us),
            slowdown: fct.zip(ideal_fct).map(|(f, a)| to_f64(f.as_ps()) / to_f64(a.as_ps().max(1))),
            is_timed: flow.stops_at.is_some(),
            failed: p.failed.map(spanwire_transport::WcStatus::name),
        }
    };
    network.flows().iter().zip(&progress).zip(messages).map(report).collect()
}

/// The times of each flow's messages in us, if `measure` is of messages.
fn message_times(network: &Network, measure: Measure) -> Vec<Vec<f64>> {
    let mut all: Vec<Vec<f64>> = vec![Vec::new(); network.flows().len()];
    let us = |d: Dur| to_f64(d.as_ps()) / 1e6;
    for host in network.engines() {
        let app = host.app();
        match measure {
            Measure::Messages => app.message_times().for_each(|(flow, took)| {
                all[flow as usize] = took.iter().copied().map(us).collect();
            }),
            Measure::Deliveries => app.deliveries().for_each(|(flow, at)| {
                all[flow as usize] = at.windows(2).map(|two| us(two[1].since(two[0]))).collect();
            }),
            Measure::Arrival | Measure::Completion => {}
        }
    }
    all
}

/// Ideal (unloaded) FCT: propagation, the first packet's serialisation at each link, the others' at
/// the bottleneck, and the acknowledgement's return if the requester's completion counts.
fn ideal_fct(network: &Network, flow: &Flow, path: &PathInfo, measure: Measure) -> Dur {
    let (setup, bytes) = (network.setup(), flow.bytes);
    let ends = [flow.src, flow.dst];
    let (mtu, overhead) = (setup.full_payload(ends), setup.data_overhead(ends));
    let there = path.ideal_fct(bytes.min(mtu) + overhead, bytes + bytes.div_ceil(mtu) * overhead);
    match measure {
        Measure::Arrival | Measure::Deliveries => there,
        _ => there + path.one_way(setup.ack_bytes(ends)),
    }
}

fn queues(network: &Network, mean_bytes: &[f64]) -> Vec<QueueReport> {
    let counters = network.switches().flat_map(|(_, switch)| {
        let ports = switch.counters().ports;
        ports.into_iter().flat_map(|port| port.queues).collect::<Vec<_>>()
    });
    let report = |((name, counters), mean_bytes): ((String, QueueCounters), &f64)| QueueReport {
        name,
        mean_bytes: *mean_bytes,
        drops: counters.dropped(),
        marks: counters.marked(),
        counters,
    };
    let all = queue_names(network).into_iter().zip(counters).zip(mean_bytes).map(report);
    all.filter(|q| q.counters.max_bytes > 0 || q.drops > 0).collect()
}

/// Every counter whose name begins with `drop_`. The lists of the switch and of the engine define
/// the causes.
fn drops(network: &Network) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    let mut add = |name: String, n: u64| {
        if n > 0 {
            *all.entry(name).or_default() += n;
        }
    };
    for id in network.world.links() {
        let counters = serde_json::to_value(network.world.line(id).counters());
        named_drops("line", &counters.unwrap_or_default(), &mut add);
    }
    for (_, switch) in network.switches() {
        let counters = serde_json::to_value(switch.counters());
        named_drops("switch", &counters.unwrap_or_default(), &mut add);
    }
    for sim_host in network.sim_hosts() {
        let counters = serde_json::to_value(sim_host.gate().counters());
        named_drops("host", &counters.unwrap_or_default(), &mut add);
        let rings = sim_host.driver_counters().map(|driver| driver.drop_rx_ring);
        add("host_rx_ring".to_owned(), rings.sum());
        add("host_handover_ring".to_owned(), sim_host.handover_counters().dropped);
        for (name, n) in sim_host.engines().flat_map(|engine| engine.endpoint().counters().list()) {
            if let Some(cause) = name.strip_prefix(DROP) {
                add(format!("host_{cause}"), n);
            }
        }
    }
    all
}

fn named_drops(place: &str, counters: &Value, add: &mut impl FnMut(String, u64)) {
    match counters {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.strip_prefix(DROP), value.as_u64()) {
                    (Some(cause), Some(n)) => add(format!("{place}_{cause}"), n),
                    _ => named_drops(place, value, add),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| named_drops(place, value, add)),
        _ => {}
    }
}

fn workers(network: &Network) -> Option<WorkersReport> {
    let each = Some(network.setup().workers).filter(|each| *each > 1)?;
    let none = WorkersReport { each, handed: 0, received: 0, dropped: 0 };
    Some(network.sim_hosts().map(SimHost::handover_counters).fold(none, |sum, of| WorkersReport {
        each,
        handed: sum.handed + of.handed,
        received: sum.received + of.received,
        dropped: sum.dropped + of.dropped,
    }))
}

fn engine(network: &Network) -> BTreeMap<String, u64> {
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for host in network.engines() {
        for (name, n) in host.endpoint().counters().list() {
            if n > 0 && !name.starts_with(DROP) {
                *all.entry(name).or_default() += n;
            }
        }
    }
    all
}

/// The prefix of every counter of drops.
const DROP: &str = "drop_";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Plan, Setup, Topology, Watch, workload::Flow};
    use spanwire_base::{Rate, Time};
    use spanwire_switch::{Impairments, Prob};

    #[test]
    fn report__a_flow_alone_has_no_slowdown() {
        let topology = Topology::dumbbell(1, Rate::from_gbps(10), Dur::from_us(1), Dur::from_us(5));
        for bytes in [1, 4096, 100_000] {
            let flows = vec![Flow::new(0, 1, Time::ZERO, bytes)];
            let setup = Setup { message_bytes: 1 << 20, ..Setup::default() };
            let plan = Plan::new("test", topology.clone(), flows, setup);
            let report = plan.run(Watch::default(), &mut ()).unwrap();
            let slowdown = report.flows[0].slowdown.unwrap();
            // The model omits RETH, immediate data and queueing of acknowledgements.
            assert!((0.99..1.02).contains(&slowdown), "{bytes} bytes: {slowdown}");
        }
    }

    #[test]
    fn report__names_every_cause_of_a_drop_where_it_was() {
        let topology = Topology::dumbbell(1, Rate::from_gbps(10), Dur::ZERO, Dur::ZERO);
        let flows = vec![Flow::new(0, 1, Time::ZERO, 1 << 20)];
        let mut setup = Setup::default();
        setup.port.queues[0].limit_bytes = 20_000;
        let (loss, corrupt) = (Prob::from_ppm(20_000), Prob::from_ppm(20_000));
        let bad = Impairments { loss, corrupt, ..Impairments::default() };
        // A slower link in the middle, so that a queue builds up.
        let mut plan = Plan::new("test", topology, flows, setup).with_fault(2, &bad);
        plan.topology.links[2].rate_bps = 1_000_000_000;
        let report = plan.run(Watch::default(), &mut ()).unwrap();
        for cause in ["line_loss", "switch_queue_full", "host_bad_icrc"] {
            assert!(report.drops.contains_key(cause), "{cause}: {:?}", report.drops);
        }
        assert!(report.drops.values().all(|n| *n > 0));
        let queued: u64 = report.queues.iter().map(|q| q.drops).sum();
        assert_eq!(report.drops["switch_queue_full"], queued);
    }

    #[test]
    fn report__is_one_object_with_the_fields_that_tools_read() {
        let topology = Topology::star(1, Rate::from_gbps(10), Dur::ZERO);
        let flows = vec![Flow::new(0, 1, Time::ZERO, 10_000)];
        let plan = Plan::new("test", topology, flows, Setup::default());
        let report = plan.run(Watch::default(), &mut ()).unwrap();
        let json = serde_json::to_value(&report).unwrap();
        for field in ["scenario", "seed", "event_hash", "checkers_ok", "events", "packet_hops"] {
            assert!(json.get(field).is_some(), "{field}");
        }
        for (list, fields) in [
            ("flows", &["src", "dst", "bytes", "fct_us", "goodput_gbps", "slowdown"][..]),
            ("queues", &["name", "max_bytes", "mean_bytes", "drops", "marks"][..]),
        ] {
            let first = &json[list][0];
            assert!(fields.iter().all(|field| first.get(field).is_some()), "{list}: {first}");
        }
        assert!(json["drops"].is_object() && json["violations"].is_array());
        assert!(json.get("series").is_none(), "not requested");
    }
}
