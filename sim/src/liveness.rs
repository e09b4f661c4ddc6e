//! Liveness: a queue pair with an outstanding request receives packets from its peer or fails
//! within a bound, and after the faults have ended its requests complete within another.
//!
//! Let T be the local ACK timeout, R the longest round trip, G the longest pacing gap (zero without
//! congestion control) and P the longest PFC pause (zero unless lossless). H is the longest time
//! that a host's driver takes to process a timer and to send the packets that it made due; zero if
//! hosts are ideal. R includes that of both hosts. A requester that receives nothing fails within
//!
//! - RC: S = (retry_cnt + 1) (4 T + G + P + H) + the RNR wait. Successive timeouts are T, 2 T, 4 T,
//!   4 T ..., and the timer of a late host is handled late.
//! - SR: S = (retry_cnt + 2) (W + A + G + P + H) + 3 T (retry_cnt + 1). W is 4 T, the longest
//!   RTO, and A the longest interval between probes for a receive request. `RETRY_EXC_ERR` takes at
//!   least 3 T for each transmission.
//!
//! Every packet for the queue pair counts, so S does not bound a peer that keeps answering without
//! progress. After the faults, while neither end has failed, the completed bytes of a flow grow at
//! least once in S plus R + G for each packet that all flows may have queued before it.

use crate::app::FlowState;
use crate::ids::LinkId;
use crate::network::Network;
use crate::setup::Setup;
use crate::world::Observer;
use spanwire_base::{Dur, Rate, RxMeta, Time, TxMeta};
use spanwire_cc::Algorithm;
use spanwire_wire::Unverified;
use std::collections::{BTreeMap, BTreeSet};

/// Parameters of the liveness bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LivenessBounds {
    /// T, the local ACK timeout.
    pub timeout: Dur,
    /// Retransmissions without progress before a queue pair fails.
    pub retry_cnt: u8,
    /// R, with full queues.
    pub longest_rtt: Dur,
    /// The slowest link.
    pub slowest: Rate,
    /// H, the longest time from a deadline to the departure of the packets that it made due.
    pub host_delay: Dur,
    /// The longest time for which a receiver has no receive request posted.
    pub recv_delay: Dur,
    /// The end of all faults.
    pub faults_end: Time,
}

/// The liveness check of a network.
#[derive(Debug)]
pub(crate) struct Liveness {
    bounds: LivenessBounds,
    /// G, P, and the packets of a message with their parity.
    gap: Dur,
    pause: Dur,
    message_pkts: u64,
    /// The host at the end of each direction of a link; `None` for a switch.
    hosts: Vec<Option<u32>>,
    /// When each queue pair of a host last received a packet.
    received_at: BTreeMap<(u32, u32), Time>,
    flows: Vec<FlowProgress>,
}

/// The progress of one flow.
#[derive(Clone, Copy, Debug, Default)]
struct FlowProgress {
    /// Completed bytes, and when they last grew.
    done_bytes: u64,
    progress_at: Option<Time>,
}

impl Liveness {
    pub(crate) fn new(network: &Network, bounds: LivenessBounds) -> Self {
        let setup = network.setup();
        let host_of = |link: LinkId| {
            let [_, (node, _)] = network.world.ends(link);
            let index = u32::try_from(node.index()).ok()?;
            network.topology().is_host(index).then_some(index)
        };
        // The pacer charges a READ request of RC with its response.
        let frame_bytes = u64::from(setup.max_frame_bytes()) + 100;
        let slow = Rate::from_bps(MIN_BPS).time_for(frame_bytes * u64::from(setup.read_chunk_pkts));
        let slow = if setup.congestion.is_on() { slow } else { Dur::ZERO };
        let part = (bounds.longest_rtt + HOLD_MAX) * SWIFT_WINDOW_PARTS;
        let gap = if has_part_windows(setup) { slow.max(part) } else { slow };
        let pause = if setup.host_pfc { bounds.slowest.time_for(PAUSE_BYTES) } else { Dur::ZERO };
        let payloads = network.flows().iter().map(|f| setup.full_payload([f.src, f.dst]));
        let shortest = payloads.min().unwrap_or(1);
        let message_pkts = 2 * u64::from(setup.message_bytes).div_ceil(shortest) + 2;
        Self {
            bounds,
            gap,
            pause,
            message_pkts,
            hosts: network.world.links().map(host_of).collect(),
            received_at: BTreeMap::new(),
            flows: vec![FlowProgress::default(); network.flows().len()],
        }
    }

    /// S.
    fn failure_detection_max(&self, is_sr: bool) -> Dur {
        let LivenessBounds { timeout, longest_rtt, retry_cnt, .. } = self.bounds;
        let hold = self.gap + self.pause + self.bounds.host_delay;
        failure_detection_max(is_sr, timeout, retry_cnt, longest_rtt, hold)
    }

    /// The longest time between completions after the faults have ended.
    fn progress(&self, setup: &Setup, is_sr: bool) -> Dur {
        let flows = self.flows.len() as u64;
        let pkts = self.message_pkts * u64::from(setup.outstanding) * flows;
        self.failure_detection_max(is_sr)
            + (self.bounds.longest_rtt + self.gap + self.bounds.recv_delay) * pkts
    }

    /// Flows that exceed a bound, one sentence each. O(flows).
    pub(crate) fn check(&mut self, network: &Network) -> Vec<String> {
        let responding = network.engines().flat_map(|host| host.app().responding());
        let failed_responders =
            responding.filter(|state| state.failed_at.is_some()).map(|s| s.flow);
        let failed_responders: BTreeSet<u32> = failed_responders.collect();
        let mut found = Vec::new();
        for (host, node) in network.numbered_engines() {
            for state in node.app().requesting() {
                let is_over = state.finished.is_some() || state.failed_at.is_some();
                if let Some(started) = state.started.filter(|_| !is_over) {
                    let responder_alive = !failed_responders.contains(&state.flow);
                    found.extend(self.check_flow(network, host, &state, started, responder_alive));
                }
            }
        }
        found
    }

    /// Checks an unfinished flow. `responder_alive`: its responder has not failed.
    fn check_flow(
        &mut self,
        network: &Network,
        host: u32,
        state: &FlowState,
        started: Time,
        responder_alive: bool,
    ) -> Option<String> {
        let (now, setup, i) = (network.world.now(), network.setup(), state.flow as usize);
        let progress = &mut self.flows[i];
        if progress.progress_at.is_none() || progress.done_bytes < state.done_bytes {
            *progress = FlowProgress { done_bytes: state.done_bytes, progress_at: Some(now) };
        }
        let progress_at = progress.progress_at.unwrap_or(now).max(self.bounds.faults_end);
        let received_at =
            self.received_at.get(&(host, state.qpn.get())).map_or(started, |at| started.max(*at));
        let flow = &network.flows()[i];
        let is_sr = setup.sr_segment([flow.src, flow.dst]).is_some();
        let (idle, most) = (now.since(received_at), self.failure_detection_max(is_sr));
        if idle > most {
            return Some(format!(
                "flow {i} has received nothing for {idle:?} and has not failed; at most {most:?}"
            ));
        }
        let (stalled, most) = (now.since(progress_at), self.progress(setup, is_sr));
        (responder_alive && stalled > most).then(|| {
            format!(
                "flow {i} has completed nothing for {stalled:?}, without faults; at most {most:?}"
            )
        })
    }
}

impl Observer for Liveness {
    fn on_sent(&mut self, _: Time, _: LinkId, _: &[u8], _: TxMeta) {}

    fn on_arrived(&mut self, now: Time, link: LinkId, frame: &[u8], meta: RxMeta) {
        let Some(host) = self.hosts[link.index()] else { return };
        let packet = Unverified::parse(frame, meta.elided_bytes as usize);
        if let Ok(qpn) = packet.map(|p| p.dest_qp().get()) {
            self.received_at.insert((host, qpn), now);
        }
    }
}

/// S of the module's description: how long a requester receives nothing before it fails. T is
/// `timeout`, R `longest_rtt`. `hold` is G + P + H, the longest wait of a due packet for its pacer,
/// a pause or the driver.
#[must_use]
pub fn failure_detection_max(
    is_sr: bool,
    timeout: Dur,
    retry_cnt: u8,
    longest_rtt: Dur,
    hold: Dur,
) -> Dur {
    let tries = u64::from(retry_cnt) + 1;
    if !is_sr {
        return (timeout * 4 + hold) * tries + RNR_WAIT;
    }
    let probe_interval = PROBE_MAX.max(longest_rtt * 2 + HOLD_MAX);
    (timeout * 4 + probe_interval + hold) * (tries + 1) + timeout * (3 * tries)
}

/// True if Swift's window may be less than a packet.
pub(crate) fn has_part_windows(setup: &Setup) -> bool {
    let far = setup.congestion.far.map(|(_, algorithm)| algorithm);
    let all = [setup.congestion.algorithm, far];
    all.iter().flatten().any(|algorithm| matches!(algorithm, Algorithm::Swift(_)))
}

/// Swift's smallest window is one packet divided by this.
pub(crate) const SWIFT_WINDOW_PARTS: u64 = 100;
/// The lowest rate of any congestion control.
const MIN_BPS: u64 = 1_000_000;
/// The longest delay of an acknowledgement.
const HOLD_MAX: Dur = Dur::from_ms(1);
/// The longest interval between probes for a receive request.
const PROBE_MAX: Dur = Dur::from_ms(20);
/// An upper bound of the simulated hosts' RNR timer.
const RNR_WAIT: Dur = Dur::from_ms(1);
/// Bytes that a link could carry during the longest pause: 65,535 quanta of 512 bits.
///
/// # Source
/// IEEE 802.1Qbb, the pause time of a priority.
const PAUSE_BYTES: u64 = 65_535 * 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Flow, FlowOp};
    use crate::{Plan, Setup, Topology, Watch};
    use spanwire_switch::{Impairments, Prob};
    use spanwire_transport::{Config, Offer};

    /// Violations of a run of 64 SENDs from one host to another.
    fn run(setup: Setup, bounds: LivenessBounds, fault: &Impairments) -> Vec<String> {
        let topology = Topology::pair(Rate::from_gbps(10), Dur::from_us(1));
        let flow = Flow { op: FlowOp::Send, ..Flow::new(0, 1, Time::ZERO, 64_000) };
        let mut plan = Plan::new("test", topology, vec![flow], setup).with_fault(0, fault);
        plan.liveness = Some(bounds);
        plan.until = Time::ZERO + Dur::from_secs(4);
        plan.may_fail_until = plan.until;
        plan.run(Watch { series: false, check_every: 1 }, &mut ()).unwrap().violations
    }

    fn bounds(timeout: Dur) -> LivenessBounds {
        LivenessBounds {
            timeout,
            retry_cnt: 2,
            longest_rtt: Dur::from_us(100),
            host_delay: Dur::ZERO,
            recv_delay: Dur::ZERO,
            slowest: Rate::from_gbps(10),
            faults_end: Time::ZERO,
        }
    }

    fn setup(is_sr: bool, timeout: u32) -> Setup {
        let sr = Offer::of(&Config::default(), Some(4096));
        let offer = if is_sr { sr } else { Offer::SILENT };
        let timeout = Dur::from_ns(4_096 << timeout);
        Setup { offer, timeout, retry_cnt: 2, message_bytes: 1000, ..Setup::default() }
    }

    #[test]
    fn check__a_queue_pair_that_is_silent_longer_than_its_timeouts_allow_is_noticed() {
        let dead = Impairments { loss: Prob::ONE, ..Impairments::default() };
        for is_sr in [false, true] {
            let setup = setup(is_sr, 16);
            let found = run(setup.clone(), bounds(setup.timeout), &dead);
            assert_eq!(found, [] as [&str; 0], "the queue pair failed in time");
            let found = run(setup.clone(), bounds(setup.timeout / 64), &dead);
            assert!(found[0].contains("flow 0 has received nothing for"), "{found:?}");
        }
    }

    #[test]
    fn check__a_peer_that_responder_alive_to_no_avail_is_noticed() {
        for is_sr in [false, true] {
            // The next receive request comes after the end of the run; until then the peer sends
            // RNR NAKs.
            let recv_delay = Dur::from_secs(5);
            let setup = Setup { recvs: 1, recv_delay, ..setup(is_sr, 10) };
            let bounds = bounds(setup.timeout);
            let found = run(setup.clone(), bounds, &Impairments::default());
            assert!(found[0].contains("flow 0 has completed nothing for"), "{found:?}");
            let found =
                run(setup, LivenessBounds { recv_delay, ..bounds }, &Impairments::default());
            assert!(found[0].contains("flow 0 is not done at the end"), "{found:?}");
        }
    }
}
