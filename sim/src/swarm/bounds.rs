//! Upper bounds of times in a drawn network.

use crate::liveness::LivenessBounds;
use crate::run::Plan;
use crate::setup::Setup;
use crate::topology::Topology;
use spanwire_base::{Dur, Rate, Time};

impl Setup {
    /// True if faults of this length may cause a queue pair to fail.
    pub(super) fn gives_up(&self, faults: Dur) -> bool {
        self.retry_cnt < 7 || timeout(self) * RETRY_TIMEOUTS_MIN <= faults
    }
}

/// The local ACK timeout after rounding.
pub(super) fn timeout(setup: &Setup) -> Dur {
    Dur::from_ns(4_096) * (1 << setup.timeout_code())
}

/// Upper bound of the round trip without faults: every queue on the longest path is full in both
/// directions, and a whole window is queued.
pub(super) fn longest_rtt(topology: &Topology, setup: &Setup) -> Dur {
    let slowest =
        topology.links.iter().map(|l| l.rate_bps).min().map_or(Rate::from_gbps(1), Rate::from_bps);
    let farthest = topology.links.iter().map(|l| l.delay_ps).max().unwrap_or(0);
    let hops = if topology.switches.is_empty() { 1 } else { 6 };
    let queue: u64 = setup.port.queues.iter().map(|q| q.limit_bytes).sum();
    // The bytes queued on a path of any length are at most those that all flows have outstanding.
    let outstanding = u64::from(setup.window_pkts) * u64::from(setup.payload_bytes() + 100) * 10;
    let waiting = slowest.time_for(outstanding.min(queue * hops));
    (Dur::from_ps(farthest) * hops + waiting) * 2 + Dur::from_us(300)
}

/// The bounds of the liveness check.
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

/// Upper bound of the delay that jitter, reordering and a flap add to a round trip of at most six
/// links.
const FAULTS_DELAY_MAX: Dur = Dur::from_ms(4);
/// Minimum number of timeouts in eight failed transmissions. RC takes 27: 1, 2, and 4 for each of
/// six. SR takes three for each.
const RETRY_TIMEOUTS_MIN: u64 = 24;
/// Maximum of the same: SR fails when its timer expires next, four timeouts later.
pub(super) const RETRY_TIMEOUTS_MAX: u64 = 28;
