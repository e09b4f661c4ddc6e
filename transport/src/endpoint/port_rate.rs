//! The rate limit of the port, which all queue pairs share.

use super::Endpoint;
use crate::config::Config;
use spanwire_base::{Dur, Time, TxMeta, u32_from, u64_from};
use spanwire_pacer::TokenBucket;
use spanwire_wire::Qpn;

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
        bucket.set_rate(Time::ZERO, Some(rate));
        Some(Box::new(Self { bucket, is_waiting: false, ack_req: None }))
    }

    /// A packet may leave now. `has_next`: there may be one.
    fn may_send(&mut self, now: Time, has_next: bool) -> bool {
        let is_due = self.bucket.is_due(now);
        self.is_waiting = !is_due && has_next;
        if self.is_waiting {
            self.bucket.set_awaited();
        }
        is_due
    }

    /// A packet left.
    fn on_sent(&mut self, now: Time, meta: &TxMeta) {
        let frame_bytes = u32_from(meta.len).saturating_add(meta.elided_bytes);
        let wire_bytes = frame_bytes.max(FRAME_BYTES_MIN).saturating_add(WIRE_BYTES);
        self.bucket.on_sent(now, wire_bytes);
    }

    /// What is left to send waits for the rate, not for the link.
    fn is_limiting(&self, now: Time) -> bool {
        self.bucket.is_awaited() || !self.bucket.is_due(now)
    }

    /// With `qps` queue pairs that take turns, a timer could expire before a packet that requests
    /// an ACK has left.
    fn is_slow(&self, qps: usize, config: &Config) -> bool {
        let Some((interval_bytes, timeout)) = self.ack_req else { return false };
        let turn_bytes = u64::from(config.turn_bytes);
        let turns = 1 + interval_bytes / turn_bytes;
        self.bucket.time_for(u64_from(qps) * turns * turn_bytes) > timeout / SLOW_PART
    }

    /// When a packet that waits may leave.
    pub(super) fn next(&self) -> Option<Time> {
        self.is_waiting.then(|| self.bucket.next())
    }
}

impl Endpoint {
    /// As [`Endpoint::transmit`], at the rate of the port. Not inlined, since ports without a rate
    /// must not pay for it.
    #[inline(never)]
    pub(super) fn transmit_at_rate(&mut self, now: Time, frame: &mut [u8]) -> Option<TxMeta> {
        let port = self.port.as_mut()?;
        if !port.may_send(now, !self.schedule.is_empty()) {
            return None;
        }
        self.schedule.set_requests_acks(port.is_slow(self.qps.len(), &self.config));
        let sent = self.transmit(now, frame);
        let port = self.port.as_mut()?;
        let Some(meta) = &sent else {
            port.bucket.set_idle();
            return None;
        };
        port.on_sent(now, meta);
        if port.is_limiting(now)
            && let Some(entry) = self.qps.at_mut(self.schedule.last_sent())
        {
            entry.qp.on_port_paced(now);
        }
        sent
    }

    /// Wakes the driver once a packet that waited for the rate of the port may leave.
    #[inline(never)]
    pub(super) fn wake_port(&mut self, now: Time) {
        if let Some(port) = self.port.as_mut().filter(|port| port.next() <= Some(now))
            && std::mem::take(&mut port.is_waiting)
        {
            self.schedule.wake_driver();
        }
    }

    /// The attributes of a queue pair have changed: no timer of its may expire because packets that
    /// request no ACK have left, and one that does waits for the rate of the port.
    pub(super) fn limit_unacknowledged(&mut self, qpn: Qpn) {
        let qp = self.qps.at(self.slot_of(qpn)).map(|entry| &entry.qp);
        let interval = qp.and_then(|qp| qp.ack_req_interval(&self.config));
        if let Some((port, (bytes, timeout))) = self.port.as_mut().zip(interval) {
            let (most, least) = port.ack_req.unwrap_or((bytes, timeout));
            port.ack_req = Some((most.max(bytes), least.min(timeout)));
        }
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
