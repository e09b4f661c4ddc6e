//! Packets and time.

use super::Endpoint;
use crate::drop::DropReason;
use crate::qp::QueuePair;
use crate::qp::common::Shared;
use crate::timer::earlier;
use spanwire_base::{LentPayload, Node, PortId, PortMask, RxMeta, Time, TxMeta};
use spanwire_wire::Unverified;

impl Node for Endpoint {
    fn handle_packet(&mut self, now: Time, _: PortId, frame: &[u8], meta: RxMeta) {
        match Unverified::parse(frame, meta.elided_bytes as usize) {
            Err(reason) => self.counters.drop(DropReason::Wire(reason)),
            Ok(unverified) => {
                // The ICRC check costs more than parsing, so the QPN is looked up first.
                let handle = |qp: &mut QueuePair, sh: &mut Shared<'_>| {
                    let verified = match meta.checked.is_of(frame) || !qp.has_icrc() {
                        true => Ok(unverified.trusted()),
                        false => unverified.verify(),
                    };
                    match verified {
                        Ok(packet) => qp.handle_packet(now, meta, packet, sh),
                        Err(reason) => sh.counters.drop(DropReason::Wire(reason)),
                    }
                };
                if self.with_qp(unverified.dest_qp(), handle).is_none() {
                    self.counters.drop(DropReason::UnknownQpn);
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(slot) = self.timers.pop_due(now) {
            if let Some(qpn) = self.qps.at(slot).map(|e| e.qp.qpn()) {
                self.with_qp(qpn, |qp, sh| qp.handle_timeout(now, sh));
            }
        }
        self.wake_paced(now);
        if self.port.is_some() {
            self.wake_port(now);
        }
    }

    fn poll_transmit(&mut self, now: Time, _: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        match self.port {
            None => self.transmit(now, frame),
            Some(_) => self.transmit_at_rate(now, frame),
        }
    }

    fn poll_transmit_lending(
        &mut self,
        now: Time,
        _: PortId,
        frame: &mut [u8],
        lent: &mut Option<LentPayload>,
    ) -> Option<TxMeta> {
        self.lending.begin();
        let meta = match self.port {
            None => self.transmit(now, frame),
            Some(_) => self.transmit_at_rate(now, frame),
        };
        *lent = self.lending.end();
        meta
    }

    fn poll_timeout(&self) -> Option<Time> {
        let (timer, paced) = (self.timers.next(), self.pacer.next());
        let next = timer.into_iter().chain(paced).min();
        match &self.port {
            None => next,
            // A queue pair that waited may have been destroyed.
            Some(_) if self.schedule.is_empty() => next,
            Some(port) => earlier(next, port.next()),
        }
    }

    fn take_ready(&mut self) -> PortMask {
        match self.schedule.take_wake() {
            true => PortMask::of(PortId::HOST),
            false => PortMask::EMPTY,
        }
    }
}
