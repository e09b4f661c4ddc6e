//! Liveness: a queue pair that has a request under way hears from its peer or fails in time, and in
//! a calm network its requests complete.
//!
//! With T the local ACK timeout, R the longest round trip, G the longest gap of a pacer, if there
//! is congestion control, and P the longest pause of a lossless link, a requester that hears
//! nothing has failed after
//!
//! - RC: S = (retry_cnt + 1) (4 T + G + P) + the RNR wait. Its waits are T, 2 T, 4 T, 4 T ...
//! - SRC: S = (retry_cnt + 2) (W + A + G + P) + 3 T (retry_cnt + 1), where a wait W is at most 4 T,
//!   or the RTO that round trips ask for if that is longer, and A is the longest wait between two
//!   questions for a receive request. The verdict takes at least 3 T for each transmission.
//!
//! Any packet for the queue pair counts as heard, so S says nothing of a peer that answers to no
//! avail. Therefore, in a calm network and while neither end has failed, the messages of a flow
//! that are known to be over grow more at the latest after S, and R and G for each packet that all
//! flows may have before them.

use crate::app::FlowState;
use crate::link::LinkId;
use crate::network::Network;
use crate::setup::Setup;
use crate::world::Observer;
use spanwire_base::{Dur, Rate, RxMeta, Time, TxMeta};
use spanwire_cc::Algorithm;
use spanwire_wire::Unverified;
use std::collections::{BTreeMap, BTreeSet};

/// What decides how long a queue pair may be silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// T.
    pub timeout: Dur,
    /// Retransmissions without progress before a queue pair gives up.
    pub retry_cnt: u8,
    /// R, queues included.
    pub longest_rtt: Dur,
    /// The slowest link.
    pub slowest: Rate,
    /// How long a receive request may be missing.
    pub recv_delay: Dur,
    /// From then on nothing goes wrong any more.
    pub calm_at: Time,
}

/// What is seen of the flows of a network, and whether it is too little.
#[derive(Debug)]
pub(crate) struct Liveness {
    patience: Patience,
    /// G, P and the packets of a message, with their parity.
    gap: Dur,
    pause: Dur,
    message_pkts: u64,
    /// The host at which each direction of a link ends, if it ends at one.
    hosts: Vec<Option<u32>>,
    /// When a queue pair of a host heard something last.
    heard: BTreeMap<(u32, u32), Time>,
    flows: Vec<Signs>,
}

/// What is seen of one flow.
#[derive(Clone, Copy, Debug, Default)]
struct Signs {
    /// Bytes of messages that were over when it was looked at last, and since when so many.
    done_bytes: u64,
    moved: Option<Time>,
}

impl Liveness {
    pub(crate) fn new(network: &Network, patience: Patience) -> Self {
        let setup = network.setup();
        let host_of = |link: LinkId| {
            let [_, (node, _)] = network.world.ends(link);
            let index = u32::try_from(node.index()).ok()?;
            network.topology().is_host(index).then_some(index)
        };
        // A READ request of RC is charged with what it asks for.
        let frame_bytes = u64::from(setup.max_frame_bytes()) + 100;
        let slow = Rate::from_bps(MIN_BPS).time_for(frame_bytes * u64::from(setup.read_chunk_pkts));
        let slow = if setup.congestion.is_on() { slow } else { Dur::ZERO };
        let part = (patience.longest_rtt + HOLD_MAX) * SWIFT_WINDOW_PARTS;
        let gap = if has_part_windows(setup) { slow.max(part) } else { slow };
        let pause = if setup.host_pfc { patience.slowest.time_for(PAUSE_BYTES) } else { Dur::ZERO };
        let payloads = network.flows().iter().map(|f| setup.full_payload([f.src, f.dst]));
        let shortest = payloads.min().unwrap_or(1);
        let message_pkts = 2 * u64::from(setup.message_bytes).div_ceil(shortest) + 2;
        Self {
            patience,
            gap,
            pause,
            message_pkts,
            hosts: network.world.links().map(host_of).collect(),
            heard: BTreeMap::new(),
            flows: vec![Signs::default(); network.flows().len()],
        }
    }

    /// S.
    fn silence(&self, is_src: bool) -> Dur {
        let Patience { timeout, longest_rtt, retry_cnt, .. } = self.patience;
        let tries = u64::from(retry_cnt) + 1;
        let hurdle = self.gap + self.pause;
        if !is_src {
            return (timeout * 4 + hurdle) * tries + RNR_WAIT;
        }
        let wait = (timeout * 4).max(longest_rtt * 5 + HOLD_MAX);
        let question = QUESTION_MAX.max(longest_rtt * 2 + HOLD_MAX);
        (wait + question + hurdle) * (tries + 1) + timeout * (3 * tries)
    }

    /// The longest time from one completion to the next in a calm network.
    fn progress(&self, setup: &Setup, is_src: bool) -> Dur {
        let flows = self.flows.len() as u64;
        let pkts = self.message_pkts * u64::from(setup.outstanding) * flows;
        self.silence(is_src)
            + (self.patience.longest_rtt + self.gap + self.patience.recv_delay) * pkts
    }

    /// What has been silent or has not moved for too long, one sentence each. O(flows).
    pub(crate) fn check(&mut self, network: &Network) -> Vec<String> {
        let responding = network.hosts().flat_map(|host| host.app().responding());
        let given_up = responding.filter(|state| state.failed_at.is_some()).map(|s| s.flow);
        let given_up: BTreeSet<u32> = given_up.collect();
        let mut found = Vec::new();
        for (host, node) in (0..).zip(network.hosts()) {
            for state in node.app().requesting() {
                let is_over = state.finished.is_some() || state.failed_at.is_some();
                if let Some(started) = state.started.filter(|_| !is_over) {
                    let answers = !given_up.contains(&state.flow);
                    found.extend(self.check_flow(network, host, &state, started, answers));
                }
            }
        }
        found
    }

    /// Looks at a flow under way; whether its responder still `answers`.
    fn check_flow(
        &mut self,
        network: &Network,
        host: u32,
        state: &FlowState,
        started: Time,
        answers: bool,
    ) -> Option<String> {
        let (now, setup, i) = (network.world.now(), network.setup(), state.flow as usize);
        let signs = &mut self.flows[i];
        if signs.moved.is_none() || signs.done_bytes < state.done_bytes {
            *signs = Signs { done_bytes: state.done_bytes, moved: Some(now) };
        }
        let moved = signs.moved.unwrap_or(now).max(self.patience.calm_at);
        let heard = self.heard.get(&(host, state.qpn.get())).map_or(started, |at| started.max(*at));
        let flow = &network.flows()[i];
        let is_src = setup.src_segment([flow.src, flow.dst]).is_some();
        let (silent, most) = (now.since(heard), self.silence(is_src));
        if silent > most {
            return Some(format!(
                "flow {i} has heard nothing for {silent:?} and has not failed, after {most:?}"
            ));
        }
        let (stalled, most) = (now.since(moved), self.progress(setup, is_src));
        (answers && stalled > most).then(|| {
            format!("flow {i} has not moved for {stalled:?} in a calm network, after {most:?}")
        })
    }
}

impl Observer for Liveness {
    fn on_sent(&mut self, _: Time, _: LinkId, _: &[u8], _: TxMeta) {}

    fn on_arrived(&mut self, now: Time, link: LinkId, frame: &[u8], meta: RxMeta) {
        let Some(host) = self.hosts[link.index()] else { return };
        let packet = Unverified::parse(frame, meta.elided_bytes as usize);
        if let Ok(qpn) = packet.map(|p| p.dest_qp().get()) {
            self.heard.insert((host, qpn), now);
        }
    }
}

/// Swift's window may be less than a packet.
fn has_part_windows(setup: &Setup) -> bool {
    let far = setup.congestion.far.map(|(_, algorithm)| algorithm);
    let all = [setup.congestion.algorithm, far];
    all.iter().flatten().any(|algorithm| matches!(algorithm, Algorithm::Swift(_)))
}

/// The smallest window of Swift is one packet by this.
const SWIFT_WINDOW_PARTS: u64 = 100;
/// The lowest rate of any congestion control.
const MIN_BPS: u64 = 1_000_000;
/// How long a receiver holds an acknowledgement back.
const HOLD_MAX: Dur = Dur::from_ms(1);
/// The longest wait between two questions for a receive request.
const QUESTION_MAX: Dur = Dur::from_ms(20);
/// Longer than what the RNR timer of the hosts asks for.
const RNR_WAIT: Dur = Dur::from_ms(1);
/// What a link could carry in the longest pause: 65,535 times 512 bits.
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

    /// What a run of 64 SENDs from one host to another reports.
    fn run(setup: Setup, patience: Patience, fault: &Impairments) -> Vec<String> {
        let topology = Topology::pair(Rate::from_gbps(10), Dur::from_us(1));
        let flow = Flow { op: FlowOp::Send, ..Flow::new(0, 1, Time::ZERO, 64_000) };
        let mut plan = Plan::new("test", topology, vec![flow], setup).with_fault(0, fault);
        plan.patience = Some(patience);
        plan.until = Time::ZERO + Dur::from_secs(4);
        plan.may_fail_until = plan.until;
        plan.run(Watch { series: false, check_every: 1 }, &mut ()).unwrap().violations
    }

    fn patience(timeout: Dur) -> Patience {
        Patience {
            timeout,
            retry_cnt: 2,
            longest_rtt: Dur::from_us(100),
            recv_delay: Dur::ZERO,
            slowest: Rate::from_gbps(10),
            calm_at: Time::ZERO,
        }
    }

    fn setup(is_src: bool, timeout: u32) -> Setup {
        let src = Offer::of(&Config::default(), Some(4096));
        let offer = if is_src { src } else { Offer::SILENT };
        let timeout = Dur::from_ns(4_096 << timeout);
        Setup { offer, timeout, retry_cnt: 2, message_bytes: 1000, ..Setup::default() }
    }

    #[test]
    fn check__a_queue_pair_that_is_silent_longer_than_its_timeouts_allow_is_noticed() {
        let dead = Impairments { loss: Prob::ONE, ..Impairments::default() };
        for is_src in [false, true] {
            let setup = setup(is_src, 16);
            let found = run(setup.clone(), patience(setup.timeout), &dead);
            assert_eq!(found, [] as [&str; 0], "it gave up in time");
            let found = run(setup.clone(), patience(setup.timeout / 64), &dead);
            assert!(found[0].contains("flow 0 has heard nothing for"), "{found:?}");
        }
    }

    #[test]
    fn check__a_peer_that_answers_to_no_avail_is_noticed() {
        for is_src in [false, true] {
            // The next receive request comes after the end of the run; the peer says it lacks one.
            let recv_delay = Dur::from_secs(5);
            let setup = Setup { recvs: 1, recv_delay, ..setup(is_src, 10) };
            let patience = patience(setup.timeout);
            let found = run(setup.clone(), patience, &Impairments::default());
            assert!(found[0].contains("flow 0 has not moved for"), "{found:?}");
            let found = run(setup, Patience { recv_delay, ..patience }, &Impairments::default());
            assert!(found[0].contains("flow 0 is not done at the end"), "{found:?}");
        }
    }
}
