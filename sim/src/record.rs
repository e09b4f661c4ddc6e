//! Time series of a running network: queues, rates, windows.

mod agents;
mod dci;

pub use agents::AgentSeries;
use dci::DciProbe;
pub use dci::{DciFlowSeries, DciSeries};

use crate::network::Network;
use crate::workload::{Flow, FlowOp};
use serde::Serialize;
use spanwire_base::Time;
use spanwire_transport::WireMode;
use spanwire_wire::Qpn;

/// Time series of a network. Every list has one entry a sample.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Series {
    /// When each sample was taken, in us.
    pub at_us: Vec<f64>,
    /// By flow.
    pub flows: Vec<FlowSeries>,
    /// By switch queue; queues that were always empty are omitted.
    pub queues: Vec<QueueSeries>,
    /// By agent of a switch; those that have done nothing are omitted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentSeries>,
    /// Frames lost so far, on lines and in switches.
    pub drops: Vec<u64>,
    /// Pause frames that switches have sent so far.
    pub pauses: Vec<u64>,
    /// Jain's index of the flows that have begun. Empty unless the run measures sharing; `None`
    /// while fewer than two flows have begun.
    pub jain: Vec<Option<f64>>,
    /// Of a DCI switch, if the run's metric is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dci: Option<DciSeries>,
}

/// Time series of a flow.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct FlowSeries {
    /// The flow's place in the list of all.
    pub flow: u32,
    /// Payload that arrived in order since the previous sample, in Gbit/s. Every packet counts as
    /// one of mean length, and those of a mix as full ones.
    pub goodput_gbps: Vec<f64>,
    /// Payload acknowledged since the previous sample, in any order, in Gbit/s. Without congestion
    /// control it equals the goodput.
    pub acked_gbps: Vec<f64>,
    /// Unacknowledged packets in flight.
    pub in_flight_pkts: Vec<u64>,
    /// Bytes of messages completed at the requester since the start.
    pub done_bytes: Vec<u64>,
}

/// Time series of a queue.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct QueueSeries {
    /// The queue, as in [`QueueReport::name`](crate::QueueReport::name).
    pub name: String,
    /// Bytes in it.
    pub bytes: Vec<u64>,
    /// Frames marked since the start.
    pub marks: Vec<u64>,
    /// Frames dropped since the start.
    pub drops: Vec<u64>,
}

/// Time series that are kept, beside the mean length of each queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    /// None.
    Means,
    /// Rates of flows, and the bytes of the queue of this name: all that a metric needs. In a large
    /// network all series of a run are gigabytes.
    Rates(Option<String>),
    /// All.
    Everything,
}

/// Samples a network periodically.
#[derive(Debug)]
pub(crate) struct Recorder {
    keep: Keep,
    /// The place of the only queue that is kept.
    queue: Option<usize>,
    series: Series,
    /// By queue, in the order of [`queue_names`].
    sums: Vec<u128>,
    samples: u64,
    flows: Vec<Watched>,
    dci: Option<DciProbe>,
    last: Time,
}

/// A flow, its probes, and its values at the last sample.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// The host whose expected PSN shows what has arrived, and its queue pair.
    receiver: (usize, Qpn),
    /// The host that posted it.
    requester: (usize, Qpn),
    /// The host with the congestion window: in SR the sender of the data.
    window: (usize, Qpn),
    psn: u32,
    acked_bytes: u64,
}

impl Recorder {
    /// A recorder that keeps these series, and those of the DCI switch of this name, if any.
    pub(crate) fn new(network: &Network, keep: Keep, dci: Option<&str>) -> Self {
        let dci = dci.and_then(|name| DciProbe::new(network, name));
        let mut names = queue_names(network);
        let sums = vec![0; names.len()];
        let mut series = Series::default();
        let (mut flows, mut queue) = (Vec::new(), None);
        if let Keep::Rates(name) = &keep {
            let is_it = |own: &&String| name.as_ref().is_some_and(|name| is_queue(own, name));
            queue = names.iter().position(|own| is_it(&own));
            names.retain(|own| is_it(&own));
        }
        if keep != Keep::Means {
            let queue = |name| QueueSeries { name, ..QueueSeries::default() };
            series.queues = names.into_iter().map(queue).collect();
            let flow = |(flow, _)| FlowSeries { flow, ..FlowSeries::default() };
            series.flows = (0..).zip(network.flows()).map(flow).collect();
            flows = watched(network);
        }
        if keep == Keep::Everything {
            series.agents = AgentSeries::all(network);
        }
        Self { keep, queue, series, sums, samples: 0, flows, dci, last: Time::ZERO }
    }

    /// Takes a sample, of the series up to `until`. O(queues), and O(flows) when series are kept.
    pub(crate) fn sample(&mut self, network: &Network, until: Time) {
        let lengths = network.switches().flat_map(|(_, switch)| switch.queue_lengths());
        let now = network.world.now();
        let is_kept = self.keep != Keep::Means && now <= until;
        self.samples += 1;
        for (i, (sum, bytes)) in self.sums.iter_mut().zip(lengths).enumerate() {
            *sum += u128::from(bytes);
            match self.keep {
                Keep::Everything if is_kept => self.series.queues[i].bytes.push(bytes),
                Keep::Rates(_) if is_kept && self.queue == Some(i) => {
                    self.series.queues[0].bytes.push(bytes);
                }
                _ => {}
            }
        }
        if is_kept {
            self.series.at_us.push(us(now));
            if self.keep == Keep::Everything {
                self.sample_switches(network);
            }
            self.sample_flows(network);
            if let Some(dci) = &mut self.dci {
                dci.sample(network);
            }
            self.last = now;
        }
    }

    fn sample_switches(&mut self, network: &Network) {
        let mut queues = self.series.queues.iter_mut();
        let mut agents = self.series.agents.iter_mut();
        let (mut drops, mut pauses) = (0, 0);
        for (_, switch) in network.switches() {
            let counters = switch.counters();
            drops += counters.dropped();
            pauses += counters.ports.iter().map(|port| port.pfc.pause_tx).sum::<u64>();
            for queue in counters.ports.iter().flat_map(|port| &port.queues) {
                let series = queues.next().expect("one for each queue");
                series.marks.push(queue.marked());
                series.drops.push(queue.dropped());
            }
            for agent in switch.agents(network.world.now()) {
                agents.next().expect("one for each agent").push(&agent);
            }
        }
        self.series.pauses.push(pauses);
        let lines = network.world.links().map(|id| network.world.line(id).counters().dropped());
        self.series.drops.push(drops + lines.sum::<u64>());
    }

    fn sample_flows(&mut self, network: &Network) {
        let now = network.world.now();
        let hosts: Vec<_> = network.engines().collect();
        let ns = to_f64(now.since(self.last).as_ps()) / 1000.0;
        let flows = network.flows().iter().zip(&mut self.flows).zip(&mut self.series.flows);
        for ((flow, watched), series) in flows {
            let pkt_bits = mean_payload(network, flow) * 8.0;
            let psn = arrived_psn(hosts[watched.receiver.0].endpoint(), watched);
            let ahead = psn.wrapping_sub(watched.psn) & 0xff_ffff;
            // A requester that retransmits a READ resets its PSN, so the difference may be
            // negative. It counts as zero until the PSN has caught up.
            let pkts = if ahead < 1 << 23 { ahead } else { 0 };
            watched.psn = watched.psn.wrapping_add(pkts) & 0xff_ffff;
            let gbps = if ns > 0.0 { f64::from(pkts) * pkt_bits / ns } else { 0.0 };
            series.goodput_gbps.push(gbps);
            let info = hosts[watched.window.0].endpoint().query_qp(watched.window.1);
            let acked_bytes = info.as_ref().and_then(|i| Some(i.flow?.delivered_bytes));
            series.acked_gbps.push(match acked_bytes {
                Some(bytes) if ns > 0.0 => {
                    let before = std::mem::replace(&mut watched.acked_bytes, bytes);
                    to_f64(bytes.saturating_sub(before)) * 8.0 / ns
                }
                Some(_) => 0.0,
                None => gbps,
            });
            series.in_flight_pkts.push(info.map_or(0, |i| i.in_flight_pkts));
        }
        for state in hosts.iter().flat_map(|host| host.app().requesting()) {
            self.series.flows[state.flow as usize].done_bytes.push(state.done_bytes);
        }
    }

    /// The mean length of each queue, in the order of [`queue_names`].
    pub(crate) fn mean_bytes(&self) -> Vec<f64> {
        let samples = to_f64(self.samples.max(1));
        let of = |sum: &u128| to_f64(u64::try_from(*sum).unwrap_or(u64::MAX)) / samples;
        self.sums.iter().map(of).collect()
    }

    pub(crate) fn into_series(mut self) -> Series {
        self.series.queues.retain(|q| q.bytes.iter().chain(&q.drops).any(|n| *n > 0));
        self.series.agents.retain_mut(AgentSeries::retain_used);
        self.series.dci = self.dci.map(DciProbe::into_series);
        self.series
    }
}

/// Mean payload of a flow's packets in bytes. The last packet of a message may be shorter. A mix
/// has messages of any length; its packets count as full ones.
fn mean_payload(network: &Network, flow: &Flow) -> f64 {
    let setup = network.setup();
    let full = setup.full_payload([flow.src, flow.dst]);
    let message = u64::from(setup.message_bytes).min(flow.bytes);
    match flow.op {
        FlowOp::Mix => to_f64(full),
        _ => to_f64(message) / to_f64(message.div_ceil(full)),
    }
}

/// The name of every switch queue: `switch:port`, followed by `.queue` if the port has several.
pub(crate) fn queue_names(network: &Network) -> Vec<String> {
    let mut names = Vec::new();
    for (node, switch) in network.switches() {
        let here = network.topology().name(u32::try_from(node.index()).unwrap_or(u32::MAX));
        for (n, port) in switch.config().ports.iter().enumerate() {
            for q in 0..port.queues.len() {
                let queue = if port.queues.len() > 1 { format!(".{q}") } else { String::new() };
                names.push(format!("{here}:{n}{queue}"));
            }
        }
    }
    names
}

/// A queue has this name, without the number that [`queue_names`] adds if the port has several.
pub(crate) fn is_queue(own: &str, name: &str) -> bool {
    own == name || own.strip_suffix(".0") == Some(name)
}

/// The probes of each flow's progress.
fn watched(network: &Network) -> Vec<Watched> {
    let unset = (0, Qpn::new(0));
    let unset_watch =
        Watched { receiver: unset, requester: unset, window: unset, psn: 0, acked_bytes: 0 };
    let mut all = vec![unset_watch; network.flows().len()];
    let sends_answers = |flow: &Flow| {
        flow.op == FlowOp::Read && network.setup().sr_segment([flow.src, flow.dst]).is_some()
    };
    for (i, host) in network.engines().enumerate() {
        for state in host.app().requesting() {
            let flow = &mut all[state.flow as usize];
            flow.requester = (i, state.qpn);
            if !sends_answers(&network.flows()[state.flow as usize]) {
                flow.window = flow.requester;
            }
            if network.flows()[state.flow as usize].op == FlowOp::Read {
                flow.receiver = flow.requester;
            }
        }
        for state in host.app().responding() {
            let (flow, watched) =
                (&network.flows()[state.flow as usize], &mut all[state.flow as usize]);
            if flow.op != FlowOp::Read {
                watched.receiver = (i, state.qpn);
            }
            if sends_answers(flow) {
                watched.window = (i, state.qpn);
            }
        }
    }
    let hosts: Vec<_> = network.engines().collect();
    for watched in &mut all {
        watched.psn = arrived_psn(hosts[watched.receiver.0].endpoint(), watched);
    }
    all
}

/// The PSN up to which everything has arrived. At a responder it is the expected PSN, at the
/// requester of a READ the oldest PSN without a response. An SR responder numbers its responses
/// itself.
fn arrived_psn(endpoint: &spanwire_transport::Endpoint, watched: &Watched) -> u32 {
    let Some(info) = endpoint.query_qp(watched.receiver.1) else {
        return 0;
    };
    let is_sr = info.attr.mode() == WireMode::Sr;
    if is_sr || watched.receiver != watched.requester {
        return info.attr.rq_psn.map_or(0, spanwire_wire::Psn::get);
    }
    let sent = info.attr.sq_psn.map_or(0, spanwire_wire::Psn::get);
    let in_flight = u32::try_from(info.in_flight_pkts & 0xff_ffff).unwrap_or(0);
    sent.wrapping_sub(in_flight) & 0xff_ffff
}

/// Microseconds.
pub(crate) fn us(at: Time) -> f64 {
    to_f64(at.as_ps()) / 1e6
}

/// For display only: above 2^53 the last digits are lost.
#[expect(clippy::cast_precision_loss, reason = "figures for people, never computed with")]
pub(crate) fn to_f64(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use crate::workload::{Flow, FlowOp};
    use crate::{Plan, Report, Setup, Topology, Watch};
    use spanwire_base::{Dur, Rate, Time};
    use spanwire_transport::{Config, Offer, WireMode};

    fn run(op: FlowOp, mode: WireMode) -> Report {
        let topology = Topology::star(2, Rate::from_gbps(10), Dur::from_us(1));
        let of = |src| Flow { op, ..Flow::new(src, 2, Time::ZERO, 2 << 20) };
        let offer = Offer::of(&Config::default(), (mode == WireMode::Sr).then_some(4096));
        let setup = Setup { offer, ..Setup::default() };
        let plan = Plan::new("test", topology, vec![of(0), of(1)], setup);
        let plan = Plan { sample_every: Dur::from_us(100), ..plan };
        plan.run(Watch { series: true, ..Watch::default() }, &mut ()).unwrap()
    }

    #[test]
    fn sample__rates_add_up_to_the_bytes_for_any_requester() {
        let (rc, sr) = (WireMode::Rc, WireMode::Sr);
        for (op, mode) in
            [FlowOp::Write, FlowOp::Read].into_iter().flat_map(|op| [(op, rc), (op, sr)])
        {
            let report = run(op, mode);
            let series = report.series.unwrap();
            assert!(series.at_us.is_sorted() && series.at_us.len() > 30);
            for flow in &series.flows {
                let gaps = series.at_us.iter().zip([0.0].iter().chain(&series.at_us));
                let bits =
                    flow.goodput_gbps.iter().zip(gaps).map(|(g, (to, from))| g * (to - from));
                let bytes = bits.sum::<f64>() * 1000.0 / 8.0;
                assert!((bytes - f64::from(2 << 20)).abs() < 1.0, "{op:?} {mode:?}: {bytes}");
                assert_eq!(flow.in_flight_pkts.len(), series.at_us.len());
                assert_eq!(flow.done_bytes.len(), series.at_us.len());
                assert!(flow.done_bytes.is_sorted() && flow.done_bytes.last() == Some(&(2 << 20)));
                assert!(flow.in_flight_pkts.iter().any(|n| *n > 10));
            }
        }
    }

    #[test]
    fn sample__short_messages_count_with_their_bytes() {
        let topology = Topology::star(1, Rate::from_gbps(10), Dur::from_us(1));
        let flows = vec![Flow::new(0, 1, Time::ZERO, 100 * 6000)];
        for message_bytes in [60, 6000] {
            let setup = Setup { message_bytes, ..Setup::default() };
            let plan = Plan::new("test", topology.clone(), flows.clone(), setup);
            let report = plan.run(Watch { series: true, ..Watch::default() }, &mut ()).unwrap();
            let series = report.series.unwrap();
            let gaps = series.at_us.iter().zip([0.0].iter().chain(&series.at_us));
            let rates = series.flows[0].goodput_gbps.iter().zip(gaps);
            let bytes = rates.map(|(g, (to, from))| g * (to - from)).sum::<f64>() * 125.0;
            assert!((bytes - 600_000.0).abs() < 1.0, "{message_bytes}: {bytes}");
        }
    }

    #[test]
    fn sample__records_the_queue_before_the_receiver_and_its_mean() {
        let report = run(FlowOp::Write, WireMode::Rc);
        let series = report.series.unwrap();
        let seen = series.queues.iter().find(|q| q.name == "hub:2").unwrap();
        let most = *seen.bytes.iter().max().unwrap();
        let queue = report.queues.iter().find(|q| q.name == "hub:2").unwrap();
        assert!(most > 100_000 && queue.counters.max_bytes >= most);
        assert!(queue.mean_bytes > 0.0 && queue.mean_bytes < crate::record::to_f64(most));
        assert_eq!(seen.drops.last(), Some(&queue.drops));
    }
}
