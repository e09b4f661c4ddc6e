//! A simulated host: the engines and their applications behind a port that obeys pause frames. A
//! broken card also sends them continuously.

use crate::app::Traffic;
use crate::host_model::{Engines, HandoverCounters, HostCounters, PolledHost};
use spanwire_base::{Dur, Node, PortId, PortMask, RxMeta, Time, TxMeta};
use spanwire_switch::PfcGate;
use spanwire_transport::Host;
use spanwire_wire::{MacAddr, PfcFrame};

/// A simulated host.
#[derive(Debug)]
pub struct SimHost {
    gate: PfcGate<Engines<Host<Traffic>>>,
    storm: Option<Storm>,
    /// The storm has a frame that `take_ready` has not reported.
    has_unreported_frame: bool,
}

/// A PFC storm: a network card that sends pause frames continuously, whether it can receive or not.
///
/// # Source
/// Guo et al., "RDMA over Commodity Ethernet at Scale", SIGCOMM'16, 4.3: the PFC storm of a
/// broken card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Storm {
    /// The first pause frame.
    pub from: Time,
    /// No pause frame is sent at or after this; the last pause then expires.
    pub to: Time,
    /// Interval between pause frames, above 0.
    pub every: Dur,
    /// Paused priorities: bit i for priority i.
    pub priorities: u8,
    /// The card's address.
    pub mac: MacAddr,
    /// When the next frame is due.
    next: Time,
    is_due: bool,
}

impl Storm {
    /// A storm from `from` to `to`.
    #[must_use]
    pub fn new(from: Time, to: Time, every: Dur, priorities: u8, mac: MacAddr) -> Self {
        Self { from, to, every, priorities, mac, next: from, is_due: false }
    }

    fn timeout(&self) -> Option<Time> {
        (self.next < self.to).then_some(self.next)
    }

    fn handle_timeout(&mut self, now: Time) -> bool {
        if self.timeout().is_none_or(|at| at > now) {
            return false;
        }
        self.next = now + self.every;
        self.is_due = true;
        true
    }

    fn poll_transmit(&mut self, frame: &mut [u8]) -> Option<TxMeta> {
        let out = frame.first_chunk_mut::<{ PfcFrame::LEN }>()?;
        if !std::mem::take(&mut self.is_due) {
            return None;
        }
        PfcFrame { enabled: self.priorities, quanta: [u16::MAX; 8] }.emit(self.mac, out);
        Some(TxMeta::whole(PfcFrame::LEN))
    }
}

impl SimHost {
    pub(crate) fn new(gate: PfcGate<Engines<Host<Traffic>>>) -> Self {
        Self { gate, storm: None, has_unreported_frame: false }
    }

    /// The engine of each worker with its application.
    pub fn engines(&self) -> impl Iterator<Item = &Host<Traffic>> {
        self.gate.node().all().iter().map(PolledHost::node)
    }

    /// The same, mutable.
    pub fn engines_mut(&mut self) -> impl Iterator<Item = &mut Host<Traffic>> {
        self.gate.node_mut().all_mut().iter_mut().map(PolledHost::node_mut)
    }

    /// The counters of each worker's driver.
    pub fn driver_counters(&self) -> impl Iterator<Item = HostCounters> {
        self.gate.node().all().iter().map(PolledHost::counters)
    }

    /// The counters of hand-over between the workers; zero with one.
    #[must_use]
    pub fn handover_counters(&self) -> HandoverCounters {
        self.gate.node().handover()
    }

    /// The port that obeys pause frames.
    #[must_use]
    pub fn gate(&self) -> &PfcGate<Engines<Host<Traffic>>> {
        &self.gate
    }

    /// Starts a PFC storm.
    pub fn set_storm(&mut self, storm: Storm) {
        self.storm = Some(storm);
    }
}

impl Node for SimHost {
    fn handle_packet(&mut self, now: Time, port: PortId, frame: &[u8], meta: &RxMeta) {
        self.gate.handle_packet(now, port, frame, meta);
    }

    fn handle_timeout(&mut self, now: Time) {
        if let Some(storm) = &mut self.storm {
            self.has_unreported_frame |= storm.handle_timeout(now);
        }
        self.gate.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, port: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        let pause = self.storm.as_mut().and_then(|storm| storm.poll_transmit(frame));
        pause.or_else(|| self.gate.poll_transmit(now, port, frame))
    }

    fn poll_timeout(&self) -> Option<Time> {
        let storm = self.storm.as_ref().and_then(Storm::timeout);
        storm.into_iter().chain(self.gate.poll_timeout()).min()
    }

    fn take_ready(&mut self) -> PortMask {
        let mut ready = self.gate.take_ready();
        if std::mem::take(&mut self.has_unreported_frame) {
            ready.insert(PortId::HOST);
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storm__pauses_from_its_start_to_its_end() {
        let us = |n| Time::ZERO + Dur::from_us(n);
        let mut s = Storm::new(us(10), us(30), Dur::from_us(8), 0b1000, MacAddr([2; 6]));
        let mut frame = [0; 64];
        let mut sent = Vec::new();
        assert!(!s.handle_timeout(us(9)));
        while let Some(at) = s.timeout() {
            assert!(s.handle_timeout(at));
            let meta = s.poll_transmit(&mut frame).unwrap();
            assert_eq!(PfcFrame::parse(&frame[..meta.len]).unwrap().enabled, 0b1000);
            assert!(s.poll_transmit(&mut frame).is_none(), "one each time");
            sent.push(at);
        }
        assert_eq!(sent, [us(10), us(18), us(26)]);
    }
}
