//! Packets and time.

use super::Endpoint;
use crate::drop::DropReason;
use crate::qp::QueuePair;
use crate::qp::common::Shared;
use crate::timer::earlier;
use spanwire_base::{Awaited, Node, PortId, PortMask, RxMeta, Time, TxBurst, TxMeta};
use spanwire_wire::{Unverified, peek_dest_qp};

impl Node for Endpoint {
    fn handle_packet(&mut self, now: Time, _: PortId, frame: &[u8], meta: &RxMeta) {
        if !self.shared.config.fast_paths || self.handle_known(now, frame, meta).is_none() {
            self.handle_new(now, frame, *meta);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.settle_timers();
        while let Some(slot) = self.timers.pop_due(now) {
            if let Some(qpn) = self.qps.at(slot).map(|e| e.qp.qpn()) {
                self.with_qp(qpn, |qp, sh| qp.handle_timeout(now, sh));
                self.settle_timers();
            }
        }
        self.wake_paced(now);
        if self.port.is_some() {
            self.wake_port(now);
        }
    }

    fn poll_transmit(&mut self, now: Time, _: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        self.settle();
        self.transmit_next(now, frame)
    }

    fn transmit_burst(&mut self, now: Time, _: PortId, burst: &mut dyn TxBurst) -> bool {
        self.settle();
        let has_runs = self.shared.config.fast_paths && self.port.is_none();
        while let Some(frame) = self.shared.begin(burst) {
            let written = self.transmit_next(now, frame);
            if self.shared.commit(burst, written).is_none() {
                return true;
            }
            if has_runs && self.is_at_run() {
                while self.transmit_run(now, burst) {}
            }
        }
        false
    }

    fn poll_timeout(&self) -> Option<Time> {
        let deadline = |slot: &u32| self.qps.at(*slot)?.qp.next_deadline();
        // At `Time::MAX`, where arithmetic saturates, no timer is armed.
        let touched = self.timers.touched().iter().filter_map(deadline).min();
        let timer = earlier(self.timers.next(), touched.filter(|at| *at < Time::MAX));
        let next = earlier(timer, self.pacer.next());
        match &self.port {
            None => next,
            // A queue pair that waited may have been destroyed.
            Some(_) if self.schedule.is_empty() && self.unsettled.is_none() => next,
            Some(port) => earlier(next, port.next()),
        }
    }

    fn awaited(&mut self) -> Awaited {
        self.settle();
        let is_answered = self.dialogue.update(&self.shared.counters);
        let is_paced = self.pacer.next().is_some();
        if is_paced || self.port.as_ref().is_some_and(|port| port.next().is_some()) {
            return Awaited::Departure;
        }
        match (self.schedule.has_in_flight(), is_answered) {
            (true, _) => Awaited::Ack,
            (false, false) => Awaited::Reply,
            (false, true) => Awaited::Anything,
        }
    }

    fn take_ready(&mut self) -> PortMask {
        self.settle_timers();
        match self.schedule.take_wake() {
            true => PortMask::of(PortId::HOST),
            false => PortMask::EMPTY,
        }
    }
}

impl Endpoint {
    #[inline]
    fn transmit_next(&mut self, now: Time, frame: &mut [u8]) -> Option<TxMeta> {
        match self.port {
            None => self.transmit(now, frame),
            Some(_) => self.transmit_at_rate(now, frame),
        }
    }

    /// Handles a frame with outer headers that its queue pair knows. `None`, and nothing has
    /// changed, for any other.
    #[inline]
    fn handle_known(&mut self, now: Time, frame: &[u8], meta: &RxMeta) -> Option<()> {
        let handle = |qp: &mut QueuePair, sh: &mut Shared| qp.handle_known(now, frame, meta, sh);
        self.with_qp_if(peek_dest_qp(frame)?, handle)
    }

    /// Handles any frame.
    // Not inlined: the packets of a known flow would have to save registers for it too.
    #[inline(never)]
    fn handle_new(&mut self, now: Time, frame: &[u8], meta: RxMeta) {
        match Unverified::parse(frame, meta.elided_bytes as usize) {
            Err(reason) => self.shared.counters.drop(DropReason::Wire(reason)),
            Ok(packet) => {
                // The ICRC check costs more than parsing, so the QPN is looked up first.
                let handle = |qp: &mut QueuePair, sh: &mut Shared| {
                    qp.handle_new(now, frame, meta, &packet, sh);
                };
                if self.with_qp(packet.dest_qp(), handle).is_none() {
                    self.shared.counters.drop(DropReason::UnknownQpn);
                }
            }
        }
    }
}
