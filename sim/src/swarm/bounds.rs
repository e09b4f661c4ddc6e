//! Upper bounds of times in a drawn network.

use crate::liveness::LivenessBounds;
use crate::run::Plan;
use crate::setup::Setup;
use crate::topology::Topology;
use spanwire_base::{Dur, Rate, Time};

impl Setup {
    /// Faults of this length may end a queue pair.
    pub(super) fn gives_up(&self, faults: Dur) -> bool {
        self.retry_cnt < 7 || timeout(self) * RETRY_TIMEOUTS_MIN <= faults
    }
}

/// The local ACK timeout as it will be.
pub(super) fn timeout(setup: &Setup) -> Dur {
    Dur::from_ns(4_096) * (1 << setup.timeout_code())
}

/// Longer than any answer takes in a calm network: every queue on the longest way full, both ways,
/// and all of a window behind one another.
pub(super) fn longest_rtt(topology: &Topology, setup: &Setup) -> Dur {
    let slowest =
        topology.links.iter().map(|l| l.rate_bps).min().map_or(Rate::from_gbps(1), Rate::from_bps);
    let farthest = topology.links.iter().map(|l| l.delay_ps).max().unwrap_or(0);
    let hops = if topology.switches.is_empty() { 1 } else { 6 };
    let queue: u64 = setup.port.queues.iter().map(|q| q.limit_bytes).sum();
    // What a way of any length holds back is at most what all flows may have under way.
    let outstanding = u64::from(setup.window_pkts) * u64::from(setup.payload_bytes() + 100) * 10;
    let waiting = slowest.time_for(outstanding.min(queue * hops));
    (Dur::from_ps(farthest) * hops + waiting) * 2 + Dur::from_us(300)
}

/// Parameters of the liveness check.
pub(super) fn liveness_bounds(plan: &Plan, faults_end: Dur) -> LivenessBounds {
    let rates = plan.topology.links.iter().map(|link| link.rate_bps);
    LivenessBounds {
        timeout: timeout(&plan.setup),
        retry_cnt: plan.setup.retry_cnt,
        longest_rtt: longest_rtt(&plan.topology, &plan.setup) + FAULTS_DELAY_MAX,
        recv_delay: plan.setup.recv_delay,
        slowest: Rate::from_bps(rates.min().unwrap_or(1_000_000_000)),
        faults_end: Time::ZERO + faults_end,
    }
}

/// What jitter and reordering add to a round trip of six links at most, and a flap.
const FAULTS_DELAY_MAX: Dur = Dur::from_ms(4);
/// How many timeouts pass at least until eight transmissions were in vain: in RC 27, which is 1 + 2
/// and 4 for each of six; in SR three for each.
const RETRY_TIMEOUTS_MIN: u64 = 24;
/// And at most: SR says so when its timer runs out next, which is four timeouts later.
pub(super) const RETRY_TIMEOUTS_MAX: u64 = 28;
