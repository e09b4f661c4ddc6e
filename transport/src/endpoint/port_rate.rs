//! The rate limit of the port, which all queue pairs share.

use crate::config::Config;
use spanwire_base::{Dur, Time, TxMeta, u32_from, u64_from};
use spanwire_pacer::TokenBucket;

/// A token bucket above those of the queue pairs. It delays every packet, so a packet that waits
/// for it has not been written, and no timer runs for it.
#[derive(Debug)]
pub(super) struct PortPacer {
    bucket: TokenBucket,
    /// A queue pair may have a packet that waits for the bucket.
    is_waiting: bool,
    /// Of queue pairs whose peers acknowledge only by request (RC): the most bytes between two such
    /// requests, and the shortest timeout by which one must have left.
    ack_req: Option<(u64, Dur)>,
}

impl PortPacer {
    /// None without [`Config::port_rate`].
    pub(super) fn new(config: &Config) -> Option<Box<Self>> {
        let rate = config.port_rate?;
        let mut bucket = TokenBucket::new(BURST_BYTES, config.catch_up);
        bucket.set_quantum(config.pacing_quantum);
        bucket.set_rate(Time::ZERO, Some(rate));
        Some(Box::new(Self { bucket, is_waiting: false, ack_req: None }))
    }

    /// A packet may leave now. `has_next`: there may be one.
    pub(super) fn may_send(&mut self, now: Time, has_next: bool) -> bool {
        let is_due = self.bucket.is_due(now);
        self.is_waiting = !is_due && has_next;
        if self.is_waiting {
            self.bucket.set_awaited();
        }
        is_due
    }

    /// A packet left.
    pub(super) fn on_sent(&mut self, now: Time, meta: &TxMeta) {
        let frame_bytes = u32_from(meta.len).saturating_add(meta.elided_bytes);
        let wire_bytes = frame_bytes.max(FRAME_BYTES_MIN).saturating_add(WIRE_BYTES);
        self.bucket.on_sent(now, wire_bytes);
    }

    /// Packets that are left wait for the rate, not for the link.
    pub(super) fn is_limiting(&self, now: Time) -> bool {
        self.bucket.is_awaited() || !self.bucket.is_due(now)
    }

    /// With `qps` queue pairs that take turns, a timer could expire before a packet that requests
    /// an ACK has left.
    pub(super) fn is_slow(&self, qps: usize, config: &Config) -> bool {
        let Some((interval_bytes, timeout)) = self.ack_req else { return false };
        let turn_bytes = u64::from(config.turn_bytes);
        let turns = 1 + interval_bytes / turn_bytes;
        self.bucket.time_for(u64_from(qps) * turns * turn_bytes) > timeout / SLOW_PART
    }

    /// A packet could have left, and there was none.
    pub(super) fn on_idle(&mut self) {
        self.bucket.set_idle();
    }

    /// True once after a packet that waited may leave.
    pub(super) fn take_due(&mut self, now: Time) -> bool {
        self.next().is_some_and(|at| at <= now) && std::mem::take(&mut self.is_waiting)
    }

    /// A queue pair requests ACKs at least once in so many bytes, and its timer must not expire
    /// between two of them.
    pub(super) fn limit_unacknowledged(&mut self, (bytes, timeout): (u64, Dur)) {
        let (most, least) = self.ack_req.unwrap_or((bytes, timeout));
        self.ack_req = Some((most.max(bytes), least.min(timeout)));
    }

    /// When a packet that waits may leave.
    pub(super) fn next(&self) -> Option<Time> {
        self.is_waiting.then(|| self.bucket.next())
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
