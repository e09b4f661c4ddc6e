//! Upper bounds of times in a drawn network.

use crate::host_model::{HostModel, handover_lateness};
use crate::liveness::{LivenessBounds, SWIFT_WINDOW_PARTS, has_part_windows};
use crate::plan::Plan;
use crate::setup::{AgentSetup, Setup};
use crate::topology::Topology;
use crate::workload::Flow;
use spanwire_base::{Dur, Rate, Time, u64_from};
use spanwire_switch::{AgentConfig, PauseRound};
use spanwire_transport::Config;

impl Setup {
    /// True if faults of this length may cause a queue pair to fail, or short rings at any time.
    pub(super) fn gives_up(&self, faults: Dur) -> bool {
        self.retry_cnt < 7 || timeout(self) * RETRY_TIMEOUTS_MIN <= faults || self.starves()
    }

    /// True if a ring has less room than a data packet and an acknowledgement of each flow. A flow
    /// may then lose all its transmissions to others, or wait for longer than its timeouts until
    /// the others have sent, with or without faults.
    pub(super) fn starves(&self) -> bool {
        let frame = u64::from(self.max_frame_bytes());
        let room = |host: &HostModel| host.rx_room(frame).min(host.tx_room(frame));
        self.host.as_ref().is_some_and(|host| room(host) < 2 * FLOWS_MAX)
    }

    /// The same of a receive ring with room for four packets of each flow, if the host may be later
    /// than a timeout: windows fill it before the host looks. Seed 7000863371 fails with 64 places
    /// and not with 128.
    pub(super) fn may_starve(&self) -> bool {
        let frame = u64::from(self.max_frame_bytes());
        let is_short = |host: &HostModel| {
            host.rx_room(frame) <= 4 * FLOWS_MAX && host.delay_max() > timeout(self)
        };
        self.starves() || self.host.as_ref().is_some_and(is_short)
    }
}

/// The local ACK timeout after rounding.
pub(super) fn timeout(setup: &Setup) -> Dur {
    Dur::from_ns(4_096) * (1 << setup.timeout_code())
}

/// The longest time from an arrival or a deadline until the driver of a host has processed it, with
/// hand-over between workers; zero for ideal hosts with one.
fn host_delay_max(setup: &Setup) -> Dur {
    let handover = if setup.workers > 1 { handover_lateness().max() } else { Dur::ZERO };
    setup.host.as_ref().map_or(Dur::ZERO, HostModel::delay_max) + handover
}

/// The longest time until the driver of a host has sent a due packet: it may sleep whenever its
/// transmit ring is full, and every other flow has a turn before.
fn host_send_max(plan: &Plan) -> Dur {
    let Some(host) = &plan.setup.host else { return Dur::ZERO };
    let turn_pkts = u64::from(Config::default().turn_bytes) / REQUEST_BYTES_MIN;
    let pkts = turn_pkts.max(plan.setup.window_pkts.into()) * PKTS_PER_DATA_MAX;
    let room = host.tx_room(plan.setup.max_frame_bytes().into());
    host.delay_max() * (pkts * u64_from(plan.flows.len())).div_ceil(u64_from(room))
}

/// A timeout that may be shorter than the lateness of hosts. [`RETRY_TIMEOUTS_MIN`] of them are
/// longer than three round trips, so that lateness alone fails no queue pair.
pub(super) fn shortest_timeout(topology: &Topology, setup: &Setup) -> Dur {
    let network = longest_rtt(topology, &Setup { host: None, ..setup.clone() });
    network.max(longest_rtt(topology, setup) / 8)
}

/// Upper bound of the round trip without faults: every queue on the longest path is full in both
/// directions, a whole window is queued, and both hosts are as late as they can be.
pub(super) fn longest_rtt(topology: &Topology, setup: &Setup) -> Dur {
    let slowest =
        topology.links.iter().map(|l| l.rate_bps).min().map_or(Rate::from_gbps(1), Rate::from_bps);
    let farthest = topology.links.iter().map(|l| l.delay_ps).max().unwrap_or(0);
    let hops = if topology.switches.is_empty() { 1 } else { 6 };
    let queue: u64 = setup.port.queues.iter().map(|q| q.limit_bytes).sum();
    // The bytes queued on a path of any length are at most those that all flows have outstanding.
    let outstanding = u64::from(setup.window_pkts) * u64::from(setup.payload_bytes() + 100) * 10;
    let waiting = slowest.time_for(outstanding.min(queue * hops));
    let leaving = setup.host.as_ref().map_or(0, |host| u64_from(host.tx_ring));
    let leaving = leaving * u64::from(setup.workers);
    let leaving = slowest.time_for(leaving * u64::from(setup.max_frame_bytes() + 100));
    let host = host_delay_max(setup) + leaving;
    let (turns, paused) = throttling(setup, slowest, outstanding, hops);
    (Dur::from_ps(farthest) * hops + waiting * turns + host + paused) * 2 + Dur::from_us(300)
}

/// The times that a queue takes longer because NDT throttles it, its longest pauses, one at each
/// switch, or one before each packet of every flow, and the time in which MLCC lets `outstanding`
/// bytes in.
fn throttling(setup: &Setup, slowest: Rate, outstanding: u64, hops: u64) -> (u64, Dur) {
    let pkts = u64::from(setup.window_pkts) * u64_from(FLOWS_MAX);
    let of = |agent: &AgentSetup| match &agent.config {
        AgentConfig::Ndt(ndt) => {
            let pauses = if ndt.pause_round == PauseRound::Held { hops } else { pkts };
            Some((u64::from(ndt.weight) + 1, ndt.max_pause * pauses))
        }
        AgentConfig::Mlcc(mlcc) => {
            let initial = slowest.min(mlcc.initial.unwrap_or(slowest)).time_for(outstanding);
            let frame = slowest.time_for(u64::from(setup.max_frame_bytes() + 100));
            let credited = MLCC_RTT_D_MAX * (MLCC_PACKET_RTTS * pkts);
            Some((1, initial + credited + frame * MLCC_LEAST_PART))
        }
        _ => None,
    };
    setup.agents.iter().find_map(of).unwrap_or((1, Dur::ZERO))
}

/// The bounds of the liveness check.
pub(super) fn liveness_bounds(plan: &Plan, faults_end: Dur) -> LivenessBounds {
    let rates = plan.topology.links.iter().map(|link| link.rate_bps);
    let sends = host_send_max(plan);
    let rtt = longest_rtt(&plan.topology, &plan.setup) + sends * 2;
    LivenessBounds {
        timeout: timeout(&plan.setup),
        retry_cnt: plan.setup.retry_cnt,
        longest_rtt: rtt + FAULTS_DELAY_MAX,
        recv_delay: plan.setup.recv_delay,
        host_delay: host_delay_max(&plan.setup) + sends,
        slowest: Rate::from_bps(rates.min().unwrap_or(1_000_000_000)),
        faults_end: Time::ZERO + faults_end,
    }
}

/// How long a run lasts at most. With paths of unequal delay RC may need a timeout for each
/// message. To Swift the lateness of hosts is congestion: its window falls to a hundredth of a
/// packet, and each packet takes a hundred round trips, one after another. Packets of 64 bytes in a
/// window of two, with eight times as much parity, take half a minute for each 100 kB.
pub(super) fn run_time_max(plan: &Plan) -> Dur {
    let setup = &plan.setup;
    let rtt = longest_rtt(&plan.topology, setup);
    let late = match &setup.host {
        None => Dur::ZERO,
        Some(_) if has_part_windows(setup) => {
            let payload = plan.flows.iter().map(|flow| setup.full_payload([flow.src, flow.dst]));
            let payload = payload.min().unwrap_or(1).min(setup.message_bytes.into()).max(1);
            let pkts = |flow: &Flow| 2 * flow.bytes.div_ceil(payload) + 2;
            let most = plan.flows.iter().map(pkts).sum::<u64>();
            rtt * (SWIFT_WINDOW_PARTS * most).max(100_000)
        }
        Some(_) => rtt * 100_000,
    };
    let windows = plan.flows.iter().map(|flow| windows_of(setup, flow)).sum();
    let windowed = Dur::from_ps(rtt.as_ps().saturating_mul(windows));
    Dur::from_secs(60).max(timeout(setup) * 1_000).max(late).max(windowed)
}

/// The windows of data and parity that a flow takes, if each has a round trip.
fn windows_of(setup: &Setup, flow: &Flow) -> u64 {
    let ends = [flow.src, flow.dst];
    let payload = setup.full_payload(ends).min(setup.message_bytes.into()).max(1);
    let parity = |host| {
        let coding = setup.sends_of(host).erasure;
        coding.map_or(0, |coding| u64::from(coding.parity).div_ceil(coding.data.into()))
    };
    let most = ends.into_iter().map(parity).max().unwrap_or(0);
    (flow.bytes.div_ceil(payload) * (1 + most)).div_ceil(setup.window_pkts.max(1).into())
}

/// The shortest frame of a request, that of a READ. A turn of a queue pair is limited in bytes.
const REQUEST_BYTES_MIN: u64 = 74;
/// Maximum packets sent for each data packet: eight control packets may precede it.
const PKTS_PER_DATA_MAX: u64 = 9;
/// The largest `rtt_d_us` that is drawn.
const MLCC_RTT_D_MAX: Dur = Dur::from_us(22);
/// MLCC's law never sets less than the payload of a full packet in each `rtt_d_us`. A packet with
/// its headers takes at most eight times that, because the least payload is 64 bytes.
const MLCC_PACKET_RTTS: u64 = 8;
/// Switches do not verify the ICRC: a corrupted credit may set the least rate of the agent, this
/// part of the port's. One packet leaves at that rate, and its acknowledgement has a valid credit.
const MLCC_LEAST_PART: u64 = 10_000;
/// Maximum number of flows.
pub(super) const FLOWS_MAX: usize = 16;
/// Upper bound of the delay that jitter, reordering and a flap add to a round trip of at most six
/// links.
const FAULTS_DELAY_MAX: Dur = Dur::from_ms(4);
/// Minimum number of timeouts in eight failed transmissions. RC takes 27: 1, 2, and 4 for each of
/// six. SR takes three for each.
const RETRY_TIMEOUTS_MIN: u64 = 24;
/// Maximum of the same: SR fails when its timer expires next, four timeouts later.
pub(super) const RETRY_TIMEOUTS_MAX: u64 = 28;
