//! The near-source control loop by pseudo-ACKs, beside the end-to-end loop by ACKs (Reflex).

use crate::units::{dur, ns};
use crate::{Ack, PseudoAck};
use spanwire_base::Time;

/// The round trips of pseudo-ACKs to the nearby switch that sends them.
///
/// After the first pseudo-ACK a flow learns round trips from pseudo-ACKs only, because an ACK from
/// another datacenter is too late to reflect the queues nearby. A switch without a queue sends no
/// pseudo-ACKs, so a flow that was cut would never grow again. Therefore an end-to-end round trip
/// without a pseudo-ACK counts as one with the smallest near round trip.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Near {
    /// Smoothed and smallest round trip in nanoseconds, after the first pseudo-ACK.
    rtts: Option<(f64, f64)>,
    last_at: Time,
}

impl Near {
    /// True after the first pseudo-ACK, when the flow learns from pseudo-ACKs only.
    pub(crate) fn is_used(&self) -> bool {
        self.rtts.is_some()
    }

    /// The smoothed near round trip, ns.
    pub(crate) fn srtt_ns(&self) -> Option<f64> {
        self.rtts.map(|(srtt, _)| srtt)
    }

    /// The smallest near round trip, ns.
    pub(crate) fn base_ns(&self) -> Option<f64> {
        self.rtts.map(|(_, smallest)| smallest)
    }

    /// Applies a pseudo-ACK; returns its round trip, ns.
    pub(crate) fn on_pseudo_ack(&mut self, now: Time, a: &PseudoAck) -> f64 {
        let rtt = ns(a.rtt).max(1.0);
        self.last_at = now;
        self.rtts = Some(self.rtts.map_or((rtt, rtt), |(s, m)| (s + (rtt - s) / 8.0, m.min(rtt))));
        rtt
    }

    /// Applies an ACK from far away. Returns the round trip of an assumed pseudo-ACK, once for each
    /// `far_ns` without one.
    pub(crate) fn on_far_ack(&mut self, now: Time, a: &Ack<'_>, far_ns: f64) -> Option<f64> {
        let (_, smallest) = self.rtts?;
        let silent = now.since(self.last_at) >= dur(far_ns);
        if !silent || a.acked_bytes == 0 {
            return None;
        }
        self.last_at = now;
        Some(smallest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;
    use spanwire_base::Dur;

    #[test]
    fn on_far_ack__replaces_missing_pseudo_acks() {
        let mut near = Near::default();
        let ack = Ack { acked_bytes: 1, ..Ack::default() };
        assert_eq!(near.on_far_ack(at(0), &ack, 1e6), None);
        let sign = |us| PseudoAck { rtt: Dur::from_us(us), sent_at: at(0), sent_bytes: 0 };
        near.on_pseudo_ack(at(10), &sign(8));
        near.on_pseudo_ack(at(20), &sign(16));
        assert_eq!((near.base_ns(), near.srtt_ns()), (Some(8e3), Some(9e3)));
        assert_eq!(near.on_far_ack(at(1000), &ack, 1e6), None);
        assert_eq!(near.on_far_ack(at(1020), &ack, 1e6), Some(8e3));
        assert_eq!(near.on_far_ack(at(1021), &ack, 1e6), None, "once for each silent interval");
    }
}
