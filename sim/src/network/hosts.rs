//! Construction of a network's hosts: lays out memory, creates and connects queue pairs, and gives
//! the flows to the applications.

use super::error::{MEMORY_MAX, NetworkError};
use super::placement;
use crate::app::{
    Allocator, Draining, Incoming, Memory, Outgoing, Peer, Plan, Progress, Queue, Recvs, Slots,
    Traffic,
};
use crate::host::SimHost;
use crate::host_model::{Engines, PolledHost};
use crate::setup::Setup;
use crate::topology::{Port, Routes, Topology};
use crate::workload::{Flow, FlowOp};
use spanwire_base::{Rate, Rng, usize_from};
use spanwire_mem::Region;
use spanwire_switch::PfcGate;
use spanwire_transport::{
    Access, AddressVector, Balance, Config, CongestionControl, CqId, Endpoint, Host, PdId, QpAttr,
    QpCaps, QpInit, SrOptions, SrqId, SrqInit, WireMode,
};
use spanwire_wire::{Psn, Qpn};

/// A flow, its message plan, and its buffers at both ends.
struct FlowLayout {
    flow: Flow,
    /// The engines of the requester and of the responder.
    ends: [usize; 2],
    plan: Plan,
    /// At the requester.
    local: Slots,
    /// At the responder.
    targets: Slots,
    sources: Slots,
    word: Slots,
    recvs: Slots,
    received: u64,
}

/// Resources that an engine needs, counted before it is built.
#[derive(Clone, Default)]
struct EngineNeeds {
    memory: Allocator,
    qps: usize,
    cqe: u32,
    /// Messages that consume a receive of the shared queue.
    shared: u64,
    shared_slots: Slots,
}

/// An engine under construction.
struct EngineBuild {
    endpoint: Endpoint,
    traffic: Traffic,
    memory: Memory,
    pd: PdId,
    cq: CqId,
    srq: Option<SrqId>,
}

/// Hosts, and the queue pairs of each flow: the requester's and the responder's.
pub(super) type Hosts = (Vec<SimHost>, Vec<[Qpn; 2]>);

/// The hosts, in the order of the topology.
pub(super) fn build(
    topology: &Topology,
    routes: &Routes,
    flows: &[Flow],
    setup: &Setup,
) -> Result<Hosts, NetworkError> {
    let mut rng = Rng::new(setup.seed ^ HOST_SEEDS);
    let each = usize::from(setup.workers);
    let mut needs = vec![EngineNeeds::default(); topology.hosts.len() * each];
    let ends = placement::place(flows, setup.workers, setup.seed);
    let layout = flows.iter().zip(ends);
    let layout: Vec<FlowLayout> =
        layout.map(|(f, ends)| lay_out(f, ends, setup, &mut needs, &mut rng)).collect();
    let ports = topology.ports();
    // A host without a link never transmits, so any rate will do.
    let rate_of = |ports: &Vec<Port>| {
        ports.first().map_or(Rate::from_gbps(1), |p| topology.links[p.link].rate())
    };
    let shared = |need: &EngineNeeds| match setup.shared_recvs && need.shared > 0 {
        true => u64::from(setup.recvs).saturating_mul(setup.message_bytes.into()),
        false => 0,
    };
    let bytes = |need: &EngineNeeds| need.memory.bytes().saturating_add(shared(need));
    let memory = needs.iter().map(bytes).fold(0, u64::saturating_add);
    if memory > MEMORY_MAX && !setup.elided {
        return Err(NetworkError::Memory(memory));
    }
    let mut made = Vec::new();
    for ((host, needs), ports) in (0..).zip(needs.chunks_mut(each)).zip(&ports) {
        // One layout of QPNs, by which the workers of a host find each other's.
        let qps = needs.iter().map(|need| need.qps).max().unwrap_or(0);
        for (worker, need) in (0..).zip(needs) {
            if setup.shared_recvs && need.shared > 0 {
                need.shared_slots = need.memory.slots(setup.recvs, setup.message_bytes);
                need.cqe += setup.recvs;
            }
            let offer = setup.offer_of(host);
            let config = setup.engine(offer, worker, rate_of(ports), qps, need.cqe);
            made.push(make(need, config, setup, &mut rng).map_err(engine)?);
        }
    }
    // The place of each flow's requester at its host.
    let mut places = Vec::new();
    // The requester's and the responder's queue pair of each flow.
    let mut pairs: Vec<[Qpn; 2]> = Vec::new();
    for (index, layout) in (0..).zip(&layout) {
        let qpns = match layout.flow.reverse_of.map(|other| pairs[other as usize]) {
            Some([requester, responder]) => [responder, requester],
            None => {
                let choice = congestion(topology, routes, &layout.flow, setup);
                connect(layout, choice, &mut made, setup, &mut rng).map_err(engine)?
            }
        };
        places.push(add_flow(index, layout, qpns, &mut made, setup));
        pairs.push(qpns);
    }
    for (layout, place) in layout.iter().zip(places) {
        if let Some(before) = layout.flow.after {
            made[layout.ends[0]].traffic.add_trigger(before, place);
        }
    }
    let obeyed = if setup.host_pfc { 1 << (setup.dscp / 8) } else { 0 };
    let mut made = made.into_iter();
    let sim_host = |(host, ports): (u64, &Vec<Port>)| {
        let engines = drive(made.by_ref().take(each), host, setup);
        SimHost::new(PfcGate::new(engines, rate_of(ports), obeyed))
    };
    let of_hosts = &ports[..topology.hosts.len()];
    Ok(((0..).zip(of_hosts).map(sim_host).collect(), pairs))
}

/// The engines of a host behind their drivers.
fn drive(
    made: impl Iterator<Item = EngineBuild>,
    host: u64,
    setup: &Setup,
) -> Engines<Host<Traffic>> {
    let made: Vec<EngineBuild> = made.collect();
    let qpns = made[0].endpoint.config().qpn_workers();
    let seed = setup.seed.wrapping_mul(DRIVER_SEEDS) ^ host;
    let polled = |(worker, m): (u64, EngineBuild)| {
        let (engine, seed) = (Host::new(m.endpoint, m.traffic), seed ^ worker << 32);
        PolledHost::new(engine, setup.host.as_ref(), seed, setup.frame_buffer_bytes())
    };
    Engines::new((0..).zip(made).map(polled).collect(), qpns, seed ^ HANDOVER_SEEDS)
}

/// Allocates a flow's buffers at both ends.
fn lay_out(
    flow: &Flow,
    ends: [usize; 2],
    setup: &Setup,
    needs: &mut [EngineNeeds],
    rng: &mut Rng,
) -> FlowLayout {
    let (n, bytes) = (setup.outstanding, setup.message_bytes);
    let plan = Plan {
        op: flow.op,
        bytes: flow.bytes,
        message_bytes: bytes,
        inline_bytes: setup.inline_bytes,
        outstanding: n,
        sges: setup.sges,
        seed: rng.next_u64(),
    };
    let received = plan.received_count();
    let is_mix = flow.op == FlowOp::Mix;
    let here = &mut needs[ends[0]];
    here.qps += 1;
    here.cqe += n;
    // An atomic returns 8 bytes, however short messages are.
    let local = here.memory.slots(n, bytes.max(8));
    let there = &mut needs[ends[1]];
    there.qps += 1;
    let mut slots = |wanted: bool, count: u32, bytes: u32| match wanted {
        true => there.memory.slots(count, bytes),
        false => Slots::default(),
    };
    let targets = slots(is_mix || flow.op == FlowOp::Write, n, bytes);
    let sources = slots(is_mix || flow.op == FlowOp::Read, n, bytes);
    let word = slots(is_mix, 1, 8);
    let recv_bytes = if flow.op == FlowOp::Write { 0 } else { bytes };
    let places = u32::try_from(received).unwrap_or(u32::MAX).min(setup.recvs);
    let recvs = slots(!setup.shared_recvs && places > 0, places, recv_bytes);
    there.cqe += recvs.count();
    there.shared += received;
    FlowLayout { flow: *flow, ends, plan, local, targets, sources, word, recvs, received }
}

/// Builds an engine with its memory, without queue pairs.
fn make(
    need: &EngineNeeds,
    config: Config,
    setup: &Setup,
    rng: &mut Rng,
) -> Result<EngineBuild, String> {
    let config = config.validate().map_err(|e| e.to_string())?;
    let mut key_seed = [0; 32];
    rng.fill(&mut key_seed);
    let mut endpoint = Endpoint::new(config, key_seed);
    let pd = endpoint.alloc_pd().map_err(|e| e.to_string())?;
    let len = usize_from(need.memory.bytes());
    let region = match setup.elided {
        true => Region::blank(len),
        false => Region::try_zeroed(len).map_err(|e| e.to_string())?,
    };
    let mr = endpoint.reg_mr(pd, region.clone(), Access::ALL, Some(IOVA));
    let mr = mr.map_err(|e| e.to_string())?;
    let memory = Memory { region, mr, is_blank: setup.elided };
    let cq = endpoint.create_cq(need.cqe.max(1)).map_err(|e| e.to_string())?;
    let mut traffic = Traffic::new(memory.clone(), cq, setup.recv_delay);
    traffic.draining = setup.drains.map(Draining::new);
    let mut srq = None;
    if need.shared_slots.count() > 0 {
        let init = SrqInit { pd, max_wr: setup.recvs, max_sge: setup.sges };
        let id = endpoint.create_srq(&init).map_err(|e| e.to_string())?;
        let (slots, left, queue) = (need.shared_slots, need.shared, Queue::Shared(id));
        traffic.add_recvs(Recvs { slots, left, queue, sges: setup.sges });
        srq = Some(id);
    }
    Ok(EngineBuild { endpoint, traffic, memory, pd, cq, srq })
}

/// The congestion control of a flow's queue pairs.
fn congestion(
    topology: &Topology,
    routes: &Routes,
    flow: &Flow,
    setup: &Setup,
) -> CongestionControl {
    let path = topology.path(routes, flow.src, flow.dst).filter(|_| setup.congestion.is_on());
    path.map_or(CongestionControl::NONE, |path| {
        setup.congestion.of(setup.base_rtt([flow.src, flow.dst], &path))
    })
}

/// Creates and connects the queue pairs of a flow, the requester's first.
fn connect(
    layout: &FlowLayout,
    congestion: CongestionControl,
    made: &mut [EngineBuild],
    setup: &Setup,
    rng: &mut Rng,
) -> Result<[Qpn; 2], String> {
    let ends = [layout.flow.requester(), layout.flow.responder()];
    let [requester, responder] = layout.ends.map(|engine| make_qp(&mut made[engine], setup));
    let qpns = [requester?, responder?];
    let psns = [0, 1].map(|_| first_psn(rng));
    let agreed = setup.agreed(ends).expect("the flows were checked");
    // RC has neither erasure coding nor load balancing. Without a load balancer no seed is drawn,
    // so that the draws of other hosts do not change.
    let sends = ends.map(|host| setup.sends_of(host));
    let balances = sends.iter().any(|s| s.balance.is_some()) && agreed.mode() == WireMode::Sr;
    let seed = if balances { rng.next_u64() } else { 0 };
    for (me, peer) in [(0, 1), (1, 0)] {
        let [src_mac, dst_mac] = [me, peer].map(|end| Topology::host_mac(ends[end]));
        let [src_ip, dst_ip] = [me, peer].map(|end| setup.host_ip(ends[end]));
        let direct = AddressVector::new(src_mac, dst_mac, src_ip, dst_ip);
        let av = AddressVector { traffic_class: setup.traffic_class(), ..direct };
        let options = SrOptions {
            balance: sends[me].balance.map(|choice| Balance { choice, seed }),
            erasure: sends[me].erasure,
            ..SrOptions::default()
        };
        let wire = setup.with_telemetry(agreed.wire(&options, &congestion), &congestion);
        let rtr = QpAttr {
            wire: Some(wire),
            max_dest_rd_atomic: Some(setup.rd_atomic),
            min_rnr_timer: Some(RNR_TIMER),
            ..QpAttr::rtr(qpns[peer], psns[peer], setup.mtu, av)
        };
        let rts = QpAttr {
            max_rd_atomic: Some(setup.rd_atomic),
            timeout: Some(setup.timeout_code()),
            retry_cnt: Some(setup.retry_cnt),
            congestion: Some(congestion),
            ..QpAttr::rts(psns[me])
        };
        let endpoint = &mut made[layout.ends[me]].endpoint;
        for attr in [QpAttr::init(Access::ALL), rtr, rts] {
            endpoint.modify_qp(qpns[me], &attr).map_err(|e| e.to_string())?;
        }
    }
    Ok(qpns)
}

/// Adds a flow to both applications. Returns the place of the requester's end.
fn add_flow(
    index: u32,
    layout: &FlowLayout,
    qpns: [Qpn; 2],
    made: &mut [EngineBuild],
    setup: &Setup,
) -> usize {
    let FlowLayout { flow, ends, plan, local, targets, sources, word, recvs, received } = *layout;
    let [requester, qpn] = qpns;
    let there = &mut made[ends[1]];
    let (triggers, failed_at, finished) = (Vec::new(), None, None);
    let (next, received_bytes) = (0, 0);
    let areas = [targets, sources, word];
    let traffic = &mut there.traffic;
    let flow_end = Incoming {
        flow: index,
        qpn,
        plan,
        areas,
        may_stop: flow.stops_at.is_some(),
        triggers,
        failed_at,
        finished,
        next,
        received_bytes,
        delivered: Vec::new(),
    };
    traffic.add_incoming(flow_end);
    if !setup.shared_recvs {
        traffic.add_recvs(Recvs {
            slots: recvs,
            left: received,
            queue: Queue::Own(qpn),
            sges: setup.sges,
        });
    }
    let peer = Peer { memory: there.memory.clone(), targets, sources, word };
    let (qpn, progress) = (requester, Progress::default());
    let stops_at = flow.stops_at;
    let outgoing = Outgoing { flow: index, qpn, plan, stops_at, local, peer, progress };
    let start = flow.after.is_none().then_some(flow.start);
    made[ends[0]].traffic.add_outgoing(outgoing, start)
}

fn make_qp(made: &mut EngineBuild, setup: &Setup) -> Result<Qpn, String> {
    let caps = QpCaps {
        max_send_wr: setup.outstanding,
        max_recv_wr: setup.recvs,
        max_send_sge: setup.sges,
        max_recv_sge: setup.sges,
        max_inline_data: setup.inline_bytes,
    };
    let (pd, cq) = (made.pd, made.cq);
    let init = QpInit { srq: made.srq, ..QpInit::new(pd, cq, cq, caps) };
    made.endpoint.create_qp(&init).map_err(|e| e.to_string())
}

/// A random PSN, often one from which a short flow wraps around.
fn first_psn(rng: &mut Rng) -> Psn {
    let any = crate::workload::below(rng, 1 << 24);
    Psn::new(match rng.below(4) {
        0 => Psn::MASK - any % 64,
        _ => any,
    })
}

fn engine(e: String) -> NetworkError {
    NetworkError::Engine(e)
}

/// The virtual address of every engine's memory.
const IOVA: u64 = 1 << 40;
/// IBTA's code for 20 us.
const RNR_TIMER: u8 = 2;
/// Separates the draws of hand-over from those of drivers.
const HANDOVER_SEEDS: u64 = 0x6861_6e64_6f76_6572;
/// Separates the draws of drivers from others.
const DRIVER_SEEDS: u64 = 0x6472_6976_6572_7321;
/// Separates the draws of this module from others.
const HOST_SEEDS: u64 = 0x686f_7374_735f_6f66;
