//! The path of each packet, selected by the load balancer, and the reports of ACKs and losses to
//! the balancer.

use super::Tx;
use super::paths::Echo;
use super::plan::{PlannedPacket, TransmissionKind};
use super::sent::ack_info::{PacketOutcome, PathEvent};
use crate::qp::flow::Flow;
use spanwire_base::Time;
use spanwire_loadbalance::{Entropy, LossKind, Outgoing, PathLoss};

impl Tx {
    /// The source port of the packet to send; none without a load balancer.
    #[inline]
    pub(in crate::sr) fn pick_path(
        &mut self,
        now: Time,
        planned: &PlannedPacket,
        bytes: u32,
        flow: Option<&mut Flow>,
    ) -> Option<u16> {
        let paths = self.paths.as_mut()?;
        let retransmit = planned.kind != TransmissionKind::First;
        let lost_on = self.sent.path(planned.number).filter(|_| retransmit);
        let picked = paths.balancer.pick(&Outgoing {
            now,
            psn: planned.number,
            bytes,
            retransmit,
            lost_on: lost_on.map(Entropy::from_port),
            in_flight_bytes: self.sent.in_flight_bytes(),
        });
        if let Some(flow) = flow.filter(|_| picked.rerouted) {
            flow.on_path_change();
        }
        Some(picked.entropy.port())
    }

    /// Reports path events to the balancer: arrivals first, then losses.
    #[inline]
    pub(super) fn report_to_balancer(&mut self, now: Time, echo: Option<Echo>, lost_by: LossKind) {
        if self.paths.is_some() {
            self.report_paths(now, echo, lost_by);
        }
    }

    #[inline(never)]
    fn report_paths(&mut self, now: Time, mut echo: Option<Echo>, lost_by: LossKind) {
        let Some(paths) = &mut self.paths else { return };
        if lost_by == LossKind::Timeout {
            paths.balancer.on_timeout(now);
        }
        let mut events = self.sent.take_path_events();
        for arrived in events.iter().filter(|event| event.outcome == PacketOutcome::Arrived) {
            if let Some(echo) = &mut echo {
                paths.on_arrived(now, arrived, echo);
            }
        }
        for lost in events.iter().filter(|event| event.outcome != PacketOutcome::Arrived) {
            let kind = lost.outcome.loss_kind(lost_by);
            let &PathEvent { pkts: packets, bytes, sent_at, .. } = lost;
            let path = Entropy::from_port(lost.path);
            paths.balancer.on_loss(now, &PathLoss { path, packets, bytes, sent_at, kind });
        }
        events.clear();
        self.sent.recycle_path_events(events);
    }
}
