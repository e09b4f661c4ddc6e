//! Feedback of switches: the request, and the check of what arrives.

use super::Tx;
use spanwire_base::Time;
use spanwire_cc::PseudoAck;
use spanwire_wire::{Qpn, SrNearRepr};

impl Tx {
    /// Data packets carry `qpn`, our own, from now on. [`Tx::request_int`] computes the payload of
    /// full packets afterwards.
    pub(crate) fn request_near(&mut self, qpn: Qpn) {
        self.source_qpn = Some(qpn);
    }

    /// ACKs may carry a credit from now on: the peer knows MLCC.
    pub(crate) fn accept_credit(&mut self) {
        self.accepts_credit = true;
    }

    /// The sample of a pseudo-ACK that arrived at `arrival`, without the bytes sent since the
    /// previous one. `None` if no feedback was requested, or if the packet is not in flight since
    /// the echoed time: it was never sent, it was acknowledged or presumed lost, or it was sent
    /// again. A forger must know that time to the picosecond.
    pub(in crate::sr) fn near_sample(
        &self,
        near: &SrNearRepr<'_>,
        arrival: Time,
    ) -> Option<PseudoAck> {
        self.source_qpn?;
        let sent_at = Time::from_ps(near.echo_ps);
        if sent_at > arrival || !self.sent.is_in_flight_since(near.psn, sent_at) {
            return None;
        }
        let hops = match near.hop_limit {
            0 => None,
            left => self.hop_limit.checked_sub(left),
        };
        Some(PseudoAck { rtt: arrival.since(sent_at), sent_at, sent_bytes: 0, hops })
    }
}
