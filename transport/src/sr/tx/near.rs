//! Feedback of switches: the request, and the check of what arrives.

use super::Tx;
use spanwire_base::Time;
use spanwire_cc::PseudoAck;
use spanwire_wire::SrNearRepr;

impl Tx {
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
