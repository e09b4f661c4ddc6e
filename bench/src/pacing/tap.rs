//! A port that records the time at which each packet is passed to the kernel.

use spanwire_base::{RxMeta, Time, TxMeta};
use spanwire_host::fabric::{Link, link_of_inner};
use spanwire_io::clock::Clock;
use spanwire_io::clock::TimeSource;
use spanwire_io::port::{Port, SlotToken, slots_of_inner};
use spanwire_wire::{Packet, Qpn};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A data packet that was passed to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submitted {
    /// The time just before the ring's doorbell.
    pub at: Time,
    /// The peer's queue pair.
    pub qpn: Qpn,
    /// Its bytes on the wire, with preamble, frame check and gap.
    pub wire_bytes: u32,
}

/// The log of a tap, shared by its port's thread and a reader.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<Submitted>>>);

/// A port that records the times of its packets.
pub struct Tap<P> {
    inner: P,
    clock: Clock,
    /// Packets committed since the last doorbell.
    waiting: Vec<Submitted>,
    log: Log,
}

impl Log {
    /// Takes all entries, in order.
    #[must_use]
    pub fn take(&self) -> Vec<Submitted> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<P: Port> Tap<P> {
    /// Wraps `inner` and records its packets in `log`, in the time of `clock`.
    pub fn new(inner: P, clock: Clock, log: Log) -> Self {
        Self { inner, clock, waiting: Vec::new(), log }
    }
}

impl<P: Port> Port for Tap<P> {
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize {
        self.inner.rx_burst(clock, max, each)
    }

    slots_of_inner!(but_flush);

    fn slot_commit(&mut self, slot: SlotToken, meta: TxMeta) {
        let frame = &self.inner.slot_bytes(&slot)[..meta.len];
        if let Ok(packet) = Packet::parse_unverified(frame)
            && !packet.payload.is_empty()
        {
            let wire_bytes = u32::try_from(meta.len).unwrap_or(u32::MAX) + ETHERNET_BYTES;
            let (at, qpn) = (Time::ZERO, packet.bth.dest_qp);
            self.waiting.push(Submitted { at, qpn, wire_bytes });
        }
        self.inner.slot_commit(slot, meta);
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        if !self.waiting.is_empty() {
            let at = self.clock.now();
            let mut log = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
            log.extend(self.waiting.drain(..).map(|s| Submitted { at, ..s }));
        }
        self.inner.flush(now)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.inner.wait(timeout)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.poll_fd()
    }
}

impl<P: Link> Link for Tap<P> {
    fn counters(&self) -> Vec<(String, u64)> {
        self.inner.counters()
    }

    link_of_inner!(self, self.inner, self.inner);
}

/// Preamble, frame check and gap.
const ETHERNET_BYTES: u32 = 24;
