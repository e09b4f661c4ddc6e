//! The rate limit of the port, which all queue pairs share.

use crate::config::Config;
use crate::qp::QueuePair;
use crate::schedule::WindowSpace;
use spanwire_base::{Time, TxMeta, u32_from, u64_from};
use spanwire_pacer::TokenBucket;

/// A token bucket above those of the queue pairs. It delays every packet, so a packet that waits
/// for it has not been written, and no timer runs for it.
#[derive(Debug)]
pub(super) struct PortPacer {
    bucket: TokenBucket,
    /// A queue pair may have a packet that waits for the bucket.
    is_waiting: bool,
    /// Queue pairs of the endpoint, each of which may have its turn before the next packet.
    qps: usize,
}

impl PortPacer {
    /// None without [`Config::port_rate`].
    pub(super) fn new(config: &Config) -> Option<Self> {
        let rate = config.port_rate?;
        let mut bucket = TokenBucket::new(BURST_BYTES, config.catch_up);
        bucket.set_rate(Time::ZERO, Some(rate));
        Some(Self { bucket, is_waiting: false, qps: 0 })
    }

    /// A packet may leave now. `has_next`: there may be one; `qps`: the endpoint's queue pairs.
    pub(super) fn may_send(&mut self, now: Time, has_next: bool, qps: usize) -> bool {
        self.qps = qps;
        let is_due = self.bucket.is_due(now);
        if !is_due && has_next {
            self.bucket.set_awaited();
        }
        self.is_waiting = !is_due && has_next;
        is_due
    }

    /// A packet left.
    pub(super) fn on_sent(&mut self, now: Time, meta: &TxMeta) {
        let frame_bytes = u32_from(meta.len).saturating_add(meta.elided_bytes);
        let wire_bytes = frame_bytes.max(FRAME_BYTES_MIN).saturating_add(WIRE_BYTES);
        self.bucket.on_sent(now, wire_bytes);
    }

    /// A packet could have left, and there was none.
    pub(super) fn on_idle(&mut self) {
        self.bucket.set_idle();
    }

    /// A packet of `qp` with data left. Its next one waits for the rate, not for the link, unless a
    /// burst is left.
    pub(super) fn on_data_sent(&mut self, now: Time, meta: &TxMeta, qp: &mut QueuePair) {
        self.on_sent(now, meta);
        if self.bucket.is_awaited() || !self.bucket.is_due(now) {
            qp.on_port_paced(now);
        }
    }

    /// Makes the next packet of `qp` request an ACK if its timer could expire before the next one
    /// that does, by its own interval, has left. No timer may expire because packets wait here.
    pub(super) fn limit_unacknowledged(
        &self,
        space: &mut WindowSpace,
        qp: &QueuePair,
        config: &Config,
    ) {
        let Some((interval_bytes, timeout)) = qp.ack_req_interval(config) else { return };
        let turn_bytes = u64::from(config.turn_bytes);
        let turns = 1 + interval_bytes / turn_bytes;
        let wait = self.bucket.time_for(u64_from(self.qps) * turns * turn_bytes);
        if wait > timeout / SLOW_PART {
            space.no_ack_req_pkts = 0;
        }
    }

    /// When a packet that waits may leave.
    pub(super) fn next(&self) -> Option<Time> {
        self.is_waiting.then(|| self.bucket.next())
    }

    /// True once a packet that waited may leave.
    pub(super) fn take_due(&mut self, now: Time) -> bool {
        let is_due = self.is_waiting && self.bucket.is_due(now);
        self.is_waiting &= !is_due;
        is_due
    }
}

/// Two of the longest packets of a path MTU of 4096.
const BURST_BYTES: u32 = 2 * 4300;
/// The wait for a packet that requests an ACK may take this part of the timeout, as in RC's own
/// pacing: the round trip and the lateness of hosts have the rest.
const SLOW_PART: u64 = 4;
/// Preamble, frame check and gap of Ethernet.
const WIRE_BYTES: u32 = 24;
/// Ethernet pads frames to this length, without the frame check.
const FRAME_BYTES_MIN: u32 = 60;
