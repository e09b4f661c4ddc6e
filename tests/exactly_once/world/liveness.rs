//! Liveness: every request completes or fails within the bound of its retry counts and timeouts,
//! and without faults and with a living peer it completes.
//!
//! S is [`failure_detection_max`] times the number of queue pairs, because they share the
//! endpoint's window. R is the longest round trip. G is the longest pacing gap: the time at 1
//! Mbit/s of a packet, or of all that a READ of RC requests. For Swift, whose window may be a
//! hundredth of a packet, it is 100 times R and the ACK delay. After the faults the oldest request
//! completes within S, plus R and G for each packet of either end.

use super::World;
use spanwire_base::{Dur, Time};
use spanwire_sim::failure_detection_max;
use spanwire_transport::{WcStatus, WireMode};

/// Parameters of the liveness bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LivenessBounds {
    pub(super) mode: WireMode,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) qps: u64,
    /// A sender of any queue pair may have a window of less than a packet.
    pub(super) has_part_windows: bool,
    /// The longest round trip during the faults and without faults.
    pub(super) rtt: Dur,
    pub(super) fault_free_rtt: Dur,
}

/// The progress of one queue pair.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct QpProgress {
    /// When the last packet of the peer arrived.
    received_at: Time,
    /// When a request last completed.
    completed_at: Time,
    /// Number of completed requests.
    completed: usize,
    /// Start of the present period with an outstanding request.
    busy: Option<Time>,
}

impl LivenessBounds {
    fn t(&self) -> Dur {
        Dur::from_ns(4_096) * (1 << self.timeout)
    }

    /// S.
    pub(super) fn failure_detection_max(&self) -> Dur {
        let is_sr = self.mode == WireMode::Sr;
        failure_detection_max(is_sr, self.t(), self.retry_cnt, self.rtt, self.gap()) * self.qps
    }

    /// G.
    fn gap(&self) -> Dur {
        let for_window = (self.rtt + HOLD_MAX) * WINDOW_PARTS;
        if self.has_part_windows { RATE_GAP_MAX.max(for_window) } else { RATE_GAP_MAX }
    }

    /// The longest time between completions without faults.
    pub(super) fn progress_max(&self) -> Dur {
        self.failure_detection_max() + (self.fault_free_rtt + self.gap()) * PKTS_MAX
    }

    /// True if without faults a packet of a living peer arrives before the retry limit is reached.
    fn retries_suffice(&self) -> bool {
        self.t() * (4 * u64::from(self.retry_cnt) + 1) > (self.fault_free_rtt + self.gap()) * 2
    }
}

impl World {
    /// An intact frame for a queue pair arrived.
    pub(super) fn note_received(&mut self, side: usize, q: usize) {
        self.ends[side].qps[q].progress.received_at = self.now;
    }

    /// Checks every queue pair against its bounds.
    pub(super) fn check_alive(&mut self) {
        let (now, bounds) = (self.now, self.bounds);
        let faults_end = self.faults.faults_end();
        for side in [0, 1] {
            for q in 0..self.ends[side].qps.len() {
                let rts_at = [0, 1].map(|s: usize| self.ends[s].qps[q].rts_at()).into_iter().max();
                let from = rts_at.unwrap_or_default();
                let is_busy = self.model.is_busy(side, q) && from <= now;
                let model = &self.model.sides[side].qps[q];
                let (completed, posted, failed) =
                    (model.completed, model.posted.len(), model.failed);
                let progress = &mut self.ends[side].qps[q].progress;
                if !is_busy || progress.busy.is_none() || completed > progress.completed {
                    (progress.busy, progress.completed_at) = (is_busy.then_some(now), now);
                }
                progress.completed = completed;
                let Some(busy) = progress.busy else { continue };
                let (received_at, completed_at) =
                    (progress.received_at.max(busy), progress.completed_at.max(faults_end));
                let what =
                    || format!("queue pair {q} of side {side}, {completed} of {posted} completed");
                let idle = now.since(received_at);
                assert!(
                    idle <= bounds.failure_detection_max(),
                    "{}: has received nothing for {idle:?} and has not failed: {bounds:?}",
                    what()
                );
                let stalled = now.since(completed_at);
                assert!(
                    failed || stalled <= bounds.progress_max(),
                    "{}: no completion for {stalled:?} without faults: {bounds:?}",
                    what()
                );
            }
        }
    }

    /// A request failed with `status`: RETRY_EXC_ERR is wrong without faults and with a living
    /// peer.
    pub(super) fn check_failure(&self, side: usize, q: usize, status: WcStatus) {
        let (bounds, faults_end) = (self.bounds, self.faults.faults_end());
        let peer_has_failed = self.model.sides[1 - side].qps[q].failed;
        let is_wrong = status == WcStatus::RetryExcErr
            && !peer_has_failed
            && bounds.retries_suffice()
            && self.now > faults_end + bounds.failure_detection_max();
        assert!(
            !is_wrong,
            "queue pair {q} of side {side} failed though its peer is alive: {bounds:?}"
        );
    }
}

impl super::QpEnd {
    /// When it could send; the end of time in RTR.
    fn rts_at(&self) -> Time {
        if self.rts.is_some() { Time::MAX } else { Time::ZERO }
    }
}

/// The longest delay of an acknowledgement.
const HOLD_MAX: Dur = Dur::from_ms(1);
/// The longest pacing gap at 1 Mbit/s: a READ request of RC is charged with its response, 1536
/// bytes in six packets.
const RATE_GAP_MAX: Dur = Dur::from_ms(20);
/// Swift's smallest window is one packet divided by this.
const WINDOW_PARTS: u64 = 100;
/// Packets before the oldest request completes: its own with parity, and as many of the peer's.
const PKTS_MAX: u64 = 128;
