//! Received feedback of switches: pseudo-ACKs and telemetry for congestion control.

use super::Sr;
use crate::drop::DropReason;
use crate::qp::common::{Common, Shared};
use spanwire_base::Time;
use spanwire_wire::{NearKind, Packet, SrNearRepr};

impl Sr {
    /// Processes feedback of a switch. Only congestion control uses it: it acknowledges no packet
    /// and has no effect on loss recovery.
    ///
    /// # Errors
    /// The packet is malformed, or the feedback is not about a transmission in flight.
    // Not inlined: it is rare.
    #[inline(never)]
    pub(super) fn on_near(
        &mut self,
        qp: &mut Common,
        now: Time,
        p: &Packet<'_>,
        sh: &mut Shared,
    ) -> Result<(), DropReason> {
        let near = SrNearRepr::parse(p.bth.psn.get(), p.payload).map_err(DropReason::Wire)?;
        let sample = self.tx.near_sample(&near, qp.arrival.at).ok_or(DropReason::NearStale)?;
        let flow = qp.flow.as_deref_mut();
        match near.kind {
            NearKind::PseudoAck => {
                sh.counters.rp_pseudo_acks += 1;
                flow.into_iter().for_each(|flow| flow.on_pseudo_ack(now, sample));
            }
            NearKind::Telemetry => {
                let is_requested = self.tx.int.allows_near(near.int.format());
                let flow = flow.filter(|_| is_requested).ok_or(DropReason::NearStale)?;
                sh.counters.rp_near_int += 1;
                flow.on_near_int((now, qp.arrival.at), near.int);
            }
        }
        Ok(())
    }
}
