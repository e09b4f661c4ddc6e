//! A link with loss in both directions: `FaultPort` for received frames, and the same for sent
//! ones.

use spanwire_base::{Rng, RxMeta, TxMeta};
use spanwire_io::clock::TimeSource;
use spanwire_io::fault::{FaultConfig, FaultPort};
use spanwire_io::port::{Port, SlotToken, slots_of_inner};
use std::io;
use std::time::Duration;

/// A port on a link with loss.
pub(crate) struct BadWire<P> {
    inner: FaultPort<P>,
    rng: Rng,
    loss_ppm: u32,
    is_cut: bool,
    lost: u64,
}

impl<P: Port> BadWire<P> {
    /// Loses `loss_ppm` frames of a million each way, decided by `seed`.
    pub(crate) fn new(inner: P, seed: u64, loss_ppm: u32) -> Self {
        let config = FaultConfig { seed, loss_ppm, ..FaultConfig::default() };
        let inner = FaultPort::new(inner, config).expect("a rate below a million");
        Self { inner, rng: Rng::new(!seed), loss_ppm, is_cut: false, lost: 0 }
    }

    /// Cuts the link permanently.
    pub(crate) fn cut(&mut self) {
        self.is_cut = true;
        self.inner.set_blackhole(true);
    }

    /// Frames lost so far: received, sent.
    pub(crate) fn lost(&self) -> (u64, u64) {
        (self.inner.counters().lost, self.lost)
    }
}

impl<P: Port> Port for BadWire<P> {
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize {
        self.inner.rx_burst(clock, max, each)
    }

    slots_of_inner!();

    fn slot_commit(&mut self, slot: SlotToken, meta: TxMeta) {
        let is_lost = self.rng.per_million(self.loss_ppm);
        self.lost += u64::from(is_lost);
        if is_lost || self.is_cut {
            self.inner.slot_release(slot);
        } else {
            self.inner.slot_commit(slot, meta);
        }
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.inner.wait(timeout)
    }
}
