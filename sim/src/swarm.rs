//! The swarm: everything is drawn from a seed. Faults occur until a drawn time; afterwards every
//! flow must complete.
//!
//! Each kind of fault and of setting is disabled in many seeds, because one feature may mask a bug
//! in another (swarm testing: Groce et al., ISSTA'12).

mod agents;
mod bounds;
mod congestion;
mod describe;
mod draw;
mod faults;
mod hosts;
mod mlcc;
mod unorc;

use crate::host_model::HostModel;
use crate::plan::Plan;
use crate::report::Report;
use crate::run::Watch;
use crate::setup::{Drains, Setup};
use crate::topology::{FatTree, LeafSpine, Topology};
use crate::workload::{Flow, FlowOp, below};
use bounds::{
    FLOWS_MAX, RETRY_TIMEOUTS_MAX, liveness_bounds, longest_rtt, run_time_max, shortest_timeout,
    timeout,
};
use draw::Draw;
use spanwire_base::{Dur, Rate, Time, u32_from, u64_from, usize_from};
use spanwire_switch::{EcnConfig, Prob, QueueConfig, Ratio, Spread, TrimConfig};
use spanwire_transport::{Config, Mtu, Offer, SrFeatures, SrVersions};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of one seed.
#[derive(Clone, PartialEq, Debug)]
pub struct SwarmOutcome {
    /// The seed.
    pub seed: u64,
    /// The report of the run; `None` if it panicked, with the message on stderr.
    pub report: Option<Report>,
    /// Violations, one sentence each.
    pub violations: Vec<String>,
}

impl SwarmOutcome {
    /// The command that reproduces this seed.
    #[must_use]
    pub fn replay(&self) -> String {
        format!("spanwire sim swarm --seeds 1 --start {}", self.seed)
    }
}

/// Runs a seed to its end. A panic counts as a violation.
#[must_use]
pub fn swarm_run(seed: u64) -> SwarmOutcome {
    let watch = Watch { series: false, check_every: 500 };
    let run = AssertUnwindSafe(|| swarm_plan(seed).run(watch, &mut ()));
    let (report, violations) = match catch_unwind(run) {
        Ok(Ok(report)) => {
            let violations = report.violations.clone();
            (Some(report), violations)
        }
        Ok(Err(e)) => (None, vec![format!("the seed draws an invalid network: {e}")]),
        Err(_) => (None, vec!["something panicked".to_owned()]),
    };
    SwarmOutcome { seed, report, violations }
}

/// The draws of a seed, as pairs of a name and a description: network, hosts, offers, queue pairs,
/// congestion control, coding and balancing, switches, agents, each fault and each flow. It runs
/// nothing.
#[must_use]
pub fn swarm_describe(seed: u64) -> Vec<(String, String)> {
    describe::describe(&swarm_plan(seed))
}

/// The plan that a seed draws.
#[must_use]
pub fn swarm_plan(seed: u64) -> Plan {
    let mut draw = Draw::new(seed ^ SWARM);
    let mut uno = Draw::new(seed ^ UNORC);
    let drawn = draw.topology();
    let equal_paths = uno.equal_paths();
    let has_equal_ways = equal_paths.is_some();
    let mut topology = equal_paths.unwrap_or(drawn);
    let brief = Dur::from_us(draw.pick(&[500, 2_000, 5_000]));
    let mut late = Draw::new(seed ^ HOSTS);
    let drawn = late.host().map(|host| Draw::new(seed ^ SOCKETS).sockets(host));
    let drivers = Drivers { model: drawn, is_hurried: late.one_in(2) };
    // Late hosts notice shorter faults only rarely.
    let faults_end = brief + drivers.model.as_ref().map_or(Dur::ZERO, HostModel::delay_max);
    let mut other = Draw::new(seed ^ OFFERS);
    let spoken = other.offers(topology.host_count());
    let mut setup = draw.setup(seed, &topology, faults_end, spoken, drivers);
    (setup.ipv6, setup.sges) = (other.one_in(3), other.count(&[1, 1, 2, 5, 16]));
    setup.drains = other.one_in(4).then(|| {
        let every = Dur::from_us(other.pick(&[5, 50, 500]));
        Drains { every, until: Time::ZERO + brief * 2 }
    });
    Draw::new(seed ^ CONGESTION).congestion(&mut setup, &topology);
    Draw::new(seed ^ TELEMETRY).telemetry(&mut setup);
    uno.unorc(&mut setup, topology.host_count());
    Draw::new(seed ^ agents::SEED).agents(&mut setup, &mut topology);
    Draw::new(seed ^ agents::ECN_SEED).ecn(&mut setup, &topology);
    Draw::new(seed ^ mlcc::SEED).mlcc(&mut setup, &mut topology);
    // Fast paths are a kind of setting too; each seed has the same result with and without them.
    setup.fast_paths = seed.is_multiple_of(2);
    let gives_up = setup.gives_up(faults_end);
    let flows = draw.flows(topology.host_count(), setup.message_bytes, faults_end, gives_up);
    let timeout = timeout(&setup);
    setup.workers = Draw::new(seed ^ WORKERS).pick(&[1, 1, 2, 4]);
    let mut plan = Plan::new("swarm", topology, flows, setup);
    plan.faults_end = Some(Time::ZERO + faults_end);
    let bounds = liveness_bounds(&plan, faults_end);
    plan.liveness = Some(bounds);
    let lasts = run_time_max(&plan);
    plan.until = Time::ZERO + lasts;
    plan.max_events = 20_000_000;
    plan.sample_every = lasts / 60_000;
    let may_starve = plan.setup.may_starve();
    if gives_up || may_starve {
        // A queue pair may fail for faults of this length, even after they have ended. In SR a
        // responder may fail first; its requester then gets no response and fails too.
        let late = bounds.host_delay * u64::from(bounds.retry_cnt + 1);
        let detected = timeout * RETRY_TIMEOUTS_MAX + late;
        plan.may_fail_until = match may_starve {
            true => plan.until,
            false => Time::ZERO + faults_end + detected * 2,
        };
    }
    let kinds = draw.kinds();
    for link in 0..plan.topology.links.len() {
        for backwards in [false, true] {
            if !draw.one_in(3) {
                let impairments = draw.impairments(kinds, faults_end);
                plan.faults.push(crate::plan::Fault { link, backwards, impairments });
            }
        }
    }
    if has_equal_ways {
        uno.dead_path(&mut plan, faults_end);
    }
    plan
}

/// The drivers of all hosts.
struct Drivers {
    model: Option<HostModel>,
    /// The local ACK timeout may be shorter than their lateness.
    is_hurried: bool,
}

impl Draw {
    fn topology(&mut self) -> Topology {
        let gbps = [1, 10, 25, 100, 400];
        let us = [0, 1, 1, 5, 50];
        let rates = [0, 1].map(|_| Rate::from_gbps(self.pick(&gbps)));
        let delays = [0, 1].map(|_| Dur::from_us(self.pick(&us)));
        let mut topology = match self.below(6) {
            0 => Topology::pair(rates[0], delays[0]),
            1 => Topology::star(self.count(&[1, 2, 4, 7]), rates[0], delays[0]),
            2 => Topology::dumbbell(self.count(&[1, 2, 4]), rates[0], delays[0], delays[1]),
            3 => Topology::fat_tree(&FatTree::of_k(2, rates[0], delays[0])),
            4 => Topology::fat_tree(&FatTree::of_k(4, rates[0], delays[0])),
            _ => Topology::leaf_spine(&LeafSpine {
                leaves: self.count(&[2, 3]),
                hosts_per_leaf: self.count(&[1, 3]),
                spines: self.count(&[1, 2, 4]),
                links_per_spine: self.count(&[1, 2]),
                host_rate: rates[0],
                fabric_rate: rates[1],
                host_delay: delays[0],
                fabric_delay: delays[1],
            }),
        };
        // Equal-cost paths may differ in rate and delay.
        if self.one_in(3) {
            for link in &mut topology.links {
                link.rate_bps = Rate::from_gbps(self.pick(&gbps)).as_bps();
                link.delay_ps = Dur::from_us(self.pick(&us)).as_ps();
            }
        }
        topology
    }

    /// The offers of hosts: all RC, all the same SR, or one for each host.
    fn offers(&mut self, hosts: u32) -> (Offer, BTreeMap<u32, Offer>) {
        match self.below(4) {
            0 => (Offer::SILENT, BTreeMap::new()),
            1 => (self.sr_offer(), BTreeMap::new()),
            _ => {
                let others = (1..hosts).map(|host| (host, self.offer()));
                let mut others: BTreeMap<u32, Offer> = others.collect();
                let first = self.sr_offer();
                // A later version that has dropped today's, and one that supports both.
                let versions = self.pick(&[&[1][..], &[2], &[1, 2]]);
                if let Some(sr) = others.get_mut(&1).and_then(|offer| offer.sr.as_mut()) {
                    sr.versions = SrVersions::of(versions.iter().copied());
                    sr.features = SrFeatures::of(["block", "int"]);
                }
                (first, others)
            }
        }
    }

    /// The offer of one host.
    fn offer(&mut self) -> Offer {
        if self.one_in(3) { Offer::SILENT } else { self.sr_offer() }
    }

    fn sr_offer(&mut self) -> Offer {
        let segment = self.count(&[64, 256, 1_000, 1_408, 4_096, 4_096, 9_000]);
        let reorder_pkts = self.count(&[256, 300, 4_096, 65_536]);
        Offer::of(&Config { reorder_pkts, ..Config::default() }, Some(segment))
    }

    fn setup(
        &mut self,
        seed: u64,
        topology: &Topology,
        faults_end: Dur,
        (offer, other_offers): (Offer, BTreeMap<u32, Offer>),
        drivers: Drivers,
    ) -> Setup {
        let mut setup = Setup {
            seed,
            host: drivers.model,
            offer,
            other_offers,
            mtu: self.pick(&Mtu::ALL),
            elided: self.one_in(4),
            message_bytes: self.count(&[1, 8, 64, 300, 2_000, 8_192, 10_000, 60_000]),
            outstanding: self.count(&[1, 2, 3, 8, 32]),
            window_pkts: self.count(&[1, 2, 8, 32, 192]),
            ack_interval_pkts: self.count(&[1, 2, 16]),
            read_chunk_pkts: self.count(&[1, 4, 32]),
            retry_cnt: self.pick(&[7, 7, 7, 2]),
            rd_atomic: self.pick(&[1, 2, 4, 16]),
            inline_bytes: self.count(&[0, 64, 300, 1024]),
            recvs: self.count(&[1, 2, 16]),
            recv_delay: Dur::from_us(self.pick(&[0, 0, 3, 50])),
            dscp: self.pick(&[0, 26, 26, 46]),
            spread: self.pick(&[Spread::Hash, Spread::Hash, Spread::Random, Spread::RoundRobin]),
            ..Setup::default()
        };
        let limit_bytes = self.pick(&[20_000, 100_000, 1_000_000]);
        setup.port.queues = vec![QueueConfig { limit_bytes, ..QueueConfig::default() }];
        if self.one_in(2) {
            setup.buffer_bytes = self.pick(&[8_000_000, 32_000_000]);
            setup.pfc_delay_max = Dur::from_us(5);
            setup = setup.lossless();
            if let Some(pfc) = &mut setup.port.pfc {
                pfc.alpha = self.pick(&[Ratio::new(1, 8), Ratio::new(1, 400)]).unwrap_or(pfc.alpha);
            }
        } else {
            self.queues(&mut setup);
        }
        let times = self.pick(&[1, 1, 2, 8]);
        setup.timeout = match drivers.is_hurried && setup.retry_cnt == 7 {
            true => shortest_timeout(topology, &setup) * times,
            false => longest_rtt(topology, &setup) * times,
        };
        // A queue pair that fails takes the shared receives that it holds with it.
        setup.shared_recvs = self.one_in(3) && !setup.gives_up(faults_end);
        setup
    }

    /// ECN marking, trimming, a second queue, a limited share of the buffer.
    fn queues(&mut self, setup: &mut Setup) {
        let first = &mut setup.port.queues[0];
        if self.one_in(3) {
            first.ecn = Some(EcnConfig {
                kmin_bytes: 5_000,
                kmax_bytes: 15_000,
                pmax: Prob::from_ppm(500_000),
                at: self
                    .pick(&[spanwire_switch::MarkAt::Enqueue, spanwire_switch::MarkAt::Dequeue]),
            });
        }
        if self.one_in(3) {
            first.alpha = Ratio::new(1, 2);
        }
        if self.one_in(3) {
            first.trim = Some(TrimConfig { dscp: 40, queue: 1 });
            let urgent = QueueConfig { priority: 1, ..QueueConfig::default() };
            setup.port.queues.push(urgent);
        }
    }

    fn flows(
        &mut self,
        hosts: u32,
        message_bytes: u32,
        faults_end: Dur,
        gives_up: bool,
    ) -> Vec<Flow> {
        let n = self.count(&[1, 3, 6, u32_from(FLOWS_MAX)]);
        let ops = [FlowOp::Mix, FlowOp::Mix, FlowOp::Write, FlowOp::Send, FlowOp::Read];
        let same = self.one_in(3).then(|| below(&mut self.0, hosts));
        let mut flows: Vec<Flow> = Vec::new();
        for _ in 0..n {
            let src = below(&mut self.0, hosts);
            let other = below(&mut self.0, hosts - 1);
            let dst = other + u32::from(other >= src);
            // Occasionally an incast.
            let dst = same.filter(|d| *d != src).unwrap_or(dst);
            let start = Time::from_ps(self.below(faults_end.as_ps() / 2));
            let shift = self.below(8);
            // Limits the number of messages.
            let most = (u64::from(message_bytes) * 200).min(1_000_000);
            let bytes = 1 + self.below((most >> shift).max(1));
            let op = self.pick(&ops);
            let mut flow = Flow { op, ..Flow::new(src, dst, start, bytes) };
            // The failure of a queue pair also ends the flow in the other direction.
            let other = u64_from(flows.len()).checked_sub(1).filter(|_| !gives_up);
            if let Some(other) = other.filter(|_| self.one_in(3)) {
                flow = reversed(flow, &flows, u32_from(usize_from(other)));
            }
            let Flow { src, .. } = flow;
            let before = flows.iter().rposition(|f| f.dst == src && f.op != FlowOp::Read);
            if op != FlowOp::Read && self.one_in(3) {
                flow.after = before.map(u32_from);
            }
            flows.push(flow);
        }
        flows
    }
}

/// Puts the flow onto the queue pairs of another flow in the other direction, if that is valid.
fn reversed(flow: Flow, before: &[Flow], other: u32) -> Flow {
    let of = &before[other as usize];
    let taken = of.reverse_of.is_some() || before.iter().any(|f| f.reverse_of == Some(other));
    let (from, to) = (of.responder(), of.requester());
    let (src, dst) = if flow.op == FlowOp::Read { (to, from) } else { (from, to) };
    if taken { flow } else { Flow { src, dst, reverse_of: Some(other), ..flow } }
}

/// Separates the draws of offers and wire modes from all others, so that a seed keeps its network.
const OFFERS: u64 = 0x6f66_6665_7273_5f6f;
/// Separates the draws of congestion control.
const CONGESTION: u64 = 0x636f_6e67_6573_7469;
/// Separates the draws of telemetry.
const TELEMETRY: u64 = 0x7465_6c65_6d65_7472;
/// Separates the draws of host models.
const HOSTS: u64 = 0x686f_7374_735f_6f66;
/// Separates the draws of UDP sockets.
const SOCKETS: u64 = 0x736f_636b_6574_735f;
/// Separates the draws of erasure coding and load balancing.
const UNORC: u64 = 0x756e_6f72_635f_6f66;
/// Separates the draw of workers, which is after all that depend on the bounds of a run.
const WORKERS: u64 = 0x776f_726b_6572_735f;
/// Separates the swarm's draws from those of the network, which has the same seed.
const SWARM: u64 = 0x7377_6172_6d5f_6f66;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::Sends;
    use spanwire_cc::Algorithm;
    use spanwire_erasure::Scheme;
    use spanwire_loadbalance::Choice;
    use spanwire_progress::Polling;
    use spanwire_switch::{AgentConfig, EcnCpu};
    use spanwire_transport::{CodingWhen, ErasureCoding, WireMode};
    use spanwire_wire::IntFormat;

    #[test]
    fn swarm_plan__reaches_every_kind_of_everything() {
        let plans: Vec<Plan> = (0..300).map(swarm_plan).collect();
        let some = |f: fn(&Plan) -> bool| assert!(plans.iter().any(f));
        some(|p| p.setup.shared_recvs);
        some(|p| p.setup.elided);
        some(|p| p.setup.ipv6 && p.setup.sges == 16);
        some(|p| p.setup.message_bytes == 1);
        some(|p| p.setup.drains.is_some() && p.setup.shared_recvs);
        some(|p| p.faults.iter().any(|f| f.impairments.loss == Prob::from_ppm(600_000)));
        some(|p| p.setup.host_pfc);
        some(|p| p.setup.port.queues.len() > 1);
        some(|p| p.setup.spread == Spread::Random);
        some(|p| p.setup.port.int && p.setup.congestion.measures_rtt);
        let asks = |p: &Plan, format, on_top| {
            let uses = p.setup.congestion.algorithm.is_some_and(|cc| cc.wants_int());
            let int = p.setup.int;
            p.setup.port.int && uses && (int.format, int.on_top) == (format, on_top)
        };
        for (format, on_top) in
            IntFormat::ALL.into_iter().flat_map(|f| [false, true].map(|on_top| (f, on_top)))
        {
            assert!(plans.iter().any(|p| asks(p, format, on_top)), "{format:?} {on_top}");
        }
        some(|p| p.setup.port.queues[0].phantom.is_some());
        let is_used = |name: &str| {
            let algorithm = Algorithm::named(name).ok();
            plans.iter().any(|p| p.setup.congestion.algorithm == algorithm)
        };
        let unused: Vec<_> = Algorithm::known().into_iter().filter(|name| !is_used(name)).collect();
        assert_eq!(unused, ["mlcc"], "its parameters are drawn");
        let has_mlcc = |p: &Plan| {
            let algorithm = p.setup.congestion.algorithm;
            algorithm.is_some_and(|algorithm| algorithm.name() == "mlcc")
        };
        let has_its_agent = |p: &&Plan| {
            p.setup.agents.iter().any(|agent| matches!(agent.config, AgentConfig::Mlcc(_)))
        };
        assert!(plans.iter().filter(has_its_agent).any(has_mlcc));
        some(|p| p.setup.congestion.far.is_some());
        some(|p| !p.setup.congestion.is_on());
        some(|p| p.setup.host.is_none());
        for workers in [1, 2, 4] {
            assert!(plans.iter().any(|p| p.setup.workers == workers), "{workers} workers");
        }
        some(|p| p.setup.workers == 4 && p.setup.host.is_some() && p.setup.shared_recvs);
        for name in ["veth", "adaptive", "busy", "busy-poll", "udp"] {
            let preset = HostModel::named(name);
            assert!(plans.iter().any(|p| p.setup.host == preset), "{name}");
        }
        let models = |f: fn(&HostModel) -> bool| {
            assert!(plans.iter().filter_map(|p| p.setup.host.as_ref()).any(f));
        };
        models(|m| !m.timestamps);
        models(|m| (m.batch, m.rx_ring) == (1, 2));
        models(|m| m.batch < 64 && m.polling == Polling::Adaptive);
        models(|m| m.sockets.as_ref().is_some_and(|s| s.rx_bytes == 4_608 && s.run_frames > 2));
        models(|m| m.wakeup.max() == Dur::from_ms(50) && m.stall.max() == Dur::from_ms(100));
        some(|p| p.setup.host.as_ref().is_some_and(|m| p.setup.timeout < m.delay_max()));
        let sends: Vec<Sends> =
            plans.iter().flat_map(|p| p.setup.other_sends.values().copied()).collect();
        let codes = |f: fn(&ErasureCoding) -> bool| {
            assert!(sends.iter().filter_map(|s| s.erasure.as_ref()).any(f));
        };
        codes(|c| c.scheme == Scheme::PQ && c.adaptive.is_some());
        codes(|c| c.scheme == Scheme::CAUCHY && c.parity > 4);
        codes(|c| matches!(c.when, CodingWhen::BaseRtt(_)));
        codes(|c| (c.data, c.parity) == (8, 2) && c.when == CodingWhen::Always);
        for name in Choice::known() {
            let choice = Choice::named(name).ok();
            assert!(sends.iter().any(|s| s.balance == choice), "{name}");
        }
        let agents = |f: fn(&AgentConfig) -> bool| {
            assert!(plans.iter().flat_map(|p| &p.setup.agents).any(|agent| f(&agent.config)));
        };
        agents(|agent| matches!(agent, AgentConfig::Pacc(pacc) if pacc.every));
        agents(|agent| matches!(agent, AgentConfig::Nsf(nsf) if nsf.cool == 0));
        agents(|agent| matches!(agent, AgentConfig::Ndt(_)));
        agents(|agent| matches!(agent, AgentConfig::Ecn(ecn) if ecn.cpu == EcnCpu::Delay));
        some(|p| p.setup.agents.len() == 2 && !p.setup.qpns_known);
        some(|p| p.setup.block_bytes.contains(&0));
        some(|p| p.faults.iter().any(|f| f.impairments.blackhole.len() == 1));
        some(|p| p.faults.is_empty());
        some(|p| p.faults.iter().any(|f| f.impairments.reorder.is_some()));
        some(|p| p.faults.iter().any(|f| f.impairments.flap.is_some()));
        some(|p| p.flows.iter().any(|f| f.after.is_some()));
        some(|p| p.flows.iter().any(|f| f.reverse_of.is_some()));
        some(|p| p.may_fail_until > Time::ZERO);
        some(|p| p.may_fail_until == Time::ZERO);
        let spoken = |p: &Plan| -> Vec<Option<u32>> {
            p.flows.iter().map(|f| p.setup.sr_segment([f.src, f.dst])).collect()
        };
        let [mut rc, mut sr, mut both, mut segments] = [0; 4];
        for plan in &plans {
            let mut spoken = spoken(plan);
            let is_sr = spoken.iter().filter(|s| s.is_some()).count();
            rc += u32::from(is_sr == 0);
            sr += u32::from(is_sr == spoken.len());
            both += u32::from((1..spoken.len()).contains(&is_sr));
            spoken.sort_unstable();
            spoken.dedup();
            segments += u32::from(spoken.len() > 2);
        }
        assert!([rc, sr, both, segments].iter().all(|n| *n > 15), "{rc} {sr} {both} {segments}");
        some(|p| {
            p.setup.agreed([0, 1]).is_some_and(|a| a.mode() == WireMode::Rc)
                && p.setup.offer_of(0).sr.is_some()
                && p.setup.offer_of(1).sr.is_some()
        });
    }

    #[test]
    fn swarm_run__a_seed_does_the_same_again() {
        for seed in 0..5 {
            let [a, b] = [seed, seed].map(swarm_run);
            assert_eq!(a, b);
            assert_eq!(a.violations, [] as [&str; 0], "{}", a.replay());
        }
    }

    #[test]
    fn swarm_describe__names_what_the_plan_has() {
        let mut kinds = [false; 3];
        for seed in 0..60 {
            let plan = swarm_plan(seed);
            let text = swarm_describe(seed);
            let of = |name: &str| {
                let all = text.iter().filter(|(n, _)| n == name).map(|(_, t)| t.as_str());
                all.collect::<Vec<_>>()
            };
            let [control] = of("congestion control")[..] else { panic!("{text:?}") };
            match plan.setup.congestion.algorithm {
                Some(algorithm) => assert!(control.starts_with(algorithm.name()), "{control}"),
                None => assert_eq!(control, "none"),
            }
            kinds[0] |= plan.setup.congestion.algorithm.is_some();
            assert_eq!(of("hosts") == ["ideal"], plan.setup.host.is_none());
            kinds[1] |= plan.setup.host.is_some();
            assert_eq!(of("fault").len(), plan.faults.len());
            kinds[2] |= of("fault").iter().any(|fault| fault.contains("loss"));
            assert_eq!(of("agent").len(), plan.setup.agents.len());
            assert_eq!(of(&format!("flow {}", plan.flows.len() - 1)).len(), 1);
            let hosts = format!("{} hosts", plan.topology.hosts.len());
            assert!(of("network")[0].starts_with(&hosts), "{text:?}");
        }
        assert_eq!(kinds, [true; 3]);
    }
}
