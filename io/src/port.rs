//! The packet port: reception and transmission of frames. Everything that moves frames implements
//! [`Port`]; faults and captures wrap a port, and are never flags inside an engine.

use crate::clock::TimeSource;
use spanwire_base::{LentPayload, RxMeta, Time, TxBurst, TxMeta};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A token for one transmit buffer of a port: move-only, created and consumed by the port. Its
/// number is meaningful only to that port.
#[derive(Debug)]
pub struct SlotToken(u64);

impl SlotToken {
    /// A token with the port's own number of the buffer (an offset, an index).
    #[must_use]
    pub fn new(id: u64) -> Self {
        Self(id)
    }

    /// The port's own number of the buffer.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.0
    }
}

/// Maximum frames per step and direction.
///
/// Both are bounded so that neither direction starves the other or the timers: under a flood of
/// input ACKs still leave every 64 frames, and with a full send queue ACKs are still received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Maximum frames received, at least 1. Default 64, the weight of a NAPI poll in Linux.
    pub rx: usize,
    /// Maximum frames sent, at least 1. Default 64, so that sending keeps up with receiving.
    pub tx: usize,
}

/// A source and sink of frames: an AF_XDP socket, one end of a pipe, or a wrapper around another
/// port.
///
/// One thread owns a port. Ordinary congestion (a full ring, a dropped frame) is counted and is no
/// error; an `Err` means that the port has failed (the interface was removed).
pub trait Port {
    /// Passes up to `max` received frames to `each`, oldest first, and frees the buffers
    /// afterwards: no reference outlives the call. Returns the number of frames.
    ///
    /// The port reads `clock` after it has looked into its ring, so that no frame is dated before
    /// its arrival.
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize;

    /// Takes a transmit buffer, or `None` if all are in flight. Prefer [`reserve`], which cannot
    /// leak the token.
    fn slot_take(&mut self) -> Option<SlotToken>;

    /// The bytes of a taken buffer: at least [`Port::frame_room`] long.
    fn slot_bytes(&mut self, slot: &SlotToken) -> &mut [u8];

    /// Queues the first `meta.len` bytes of the buffer for sending; [`Port::flush`] sends.
    ///
    /// # Panics
    /// If `meta.len` is longer than the buffer.
    fn slot_commit(&mut self, slot: SlotToken, meta: TxMeta);

    /// True for a port that sends lent payload from where it is: the driver then lets its node
    /// lend. A port that reads or changes frames is none.
    fn sends_lent(&self) -> bool {
        false
    }

    /// As [`Port::slot_commit`], for a frame with lent payload. No reference to it survives the
    /// next [`Port::flush`]. By default it is copied into the buffer.
    ///
    /// # Panics
    /// As [`Port::slot_commit`], or if the payload is not within the frame.
    fn slot_commit_lent(&mut self, slot: SlotToken, meta: TxMeta, lent: LentPayload) {
        copy_lent(&lent, self.slot_bytes(&slot));
        self.slot_commit(slot, meta);
    }

    /// Returns an unused buffer.
    fn slot_release(&mut self, slot: SlotToken);

    /// Sends queued frames. It is called once a step, even without new frames, because a port may
    /// still hold earlier ones (AF_XDP's EAGAIN).
    ///
    /// # Errors
    /// The port has failed.
    fn flush(&mut self, now: Time) -> io::Result<()>;

    /// The longest frame this port carries in one buffer, in bytes without FCS, both ways.
    fn frame_room(&self) -> usize;

    /// Frames committed but not known to be sent: while it is not zero the driver must keep calling
    /// [`Port::flush`].
    fn tx_pending(&self) -> usize {
        0
    }

    /// Sleeps until a frame arrives, a transmit buffer may be free or `timeout` has passed.
    ///
    /// # Errors
    /// The port has failed.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;

    /// Checks that the port is attached, without waiting for a frame: for an owner that does not
    /// drive it.
    ///
    /// # Errors
    /// The port has failed.
    fn check_attached(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Frames of a step of the driver.
    fn budget(&self) -> Budget {
        Budget::default()
    }

    /// A descriptor that poll(2) reports readable when a frame has arrived, for sleeping on several
    /// ports at once. `None` for a port without one, or one that holds frames that no descriptor
    /// reports: a driver of several ports polls it periodically.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self { rx: 64, tx: 64 }
    }
}

/// The transmit side of a port that wraps another one, `inner`, and differs only in committing a
/// frame; with `but_flush`, also in sending.
#[macro_export]
macro_rules! slots_of_inner {
    () => {
        $crate::slots_of_inner!(but_flush);

        fn flush(&mut self, now: spanwire_base::Time) -> std::io::Result<()> {
            self.inner.flush(now)
        }
    };
    (but_flush) => {
        fn slot_take(&mut self) -> Option<$crate::port::SlotToken> {
            self.inner.slot_take()
        }

        fn slot_bytes(&mut self, slot: &$crate::port::SlotToken) -> &mut [u8] {
            self.inner.slot_bytes(slot)
        }

        fn slot_release(&mut self, slot: $crate::port::SlotToken) {
            self.inner.slot_release(slot);
        }

        fn frame_room(&self) -> usize {
            self.inner.frame_room()
        }

        fn tx_pending(&self) -> usize {
            self.inner.tx_pending()
        }

        fn check_attached(&mut self) -> std::io::Result<()> {
            self.inner.check_attached()
        }

        fn budget(&self) -> $crate::port::Budget {
            self.inner.budget()
        }
    };
}
pub use slots_of_inner;

/// A port selected at run time (with or without capture or faults) is a port.
impl<P: Port + ?Sized> Port for Box<P> {
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize {
        (**self).rx_burst(clock, max, each)
    }

    fn slot_take(&mut self) -> Option<SlotToken> {
        (**self).slot_take()
    }

    fn slot_bytes(&mut self, slot: &SlotToken) -> &mut [u8] {
        (**self).slot_bytes(slot)
    }

    fn slot_commit(&mut self, slot: SlotToken, meta: TxMeta) {
        (**self).slot_commit(slot, meta);
    }

    fn sends_lent(&self) -> bool {
        (**self).sends_lent()
    }

    fn slot_commit_lent(&mut self, slot: SlotToken, meta: TxMeta, lent: LentPayload) {
        (**self).slot_commit_lent(slot, meta, lent);
    }

    fn slot_release(&mut self, slot: SlotToken) {
        (**self).slot_release(slot);
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        (**self).flush(now)
    }

    fn frame_room(&self) -> usize {
        (**self).frame_room()
    }

    fn tx_pending(&self) -> usize {
        (**self).tx_pending()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        (**self).wait(timeout)
    }

    fn check_attached(&mut self) -> io::Result<()> {
        (**self).check_attached()
    }

    fn budget(&self) -> Budget {
        (**self).budget()
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        (**self).poll_fd()
    }
}

/// A reserved transmit buffer: write the frame to [`Slot::bytes`]; [`Slot::commit`] sends it, and
/// dropping it returns the buffer.
pub struct Slot<'a>(Burst<'a>);

/// Reserves a transmit buffer of `port`, or `None` if all are in flight.
///
/// Reserve *before* polling the engine for a packet: a packet already built would have to be kept
/// if the ring were full.
pub fn reserve(port: &mut dyn Port) -> Option<Slot<'_>> {
    let mut burst = Burst::new(port, 1);
    burst.buffer()?;
    Some(Slot(burst))
}

impl Slot<'_> {
    /// The buffer to write the frame into.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.0.buffer().unwrap_or_default()
    }

    /// Queues the frame for sending.
    ///
    /// # Panics
    /// If `meta.len` is longer than the buffer, or payload was elided: no real link carries that.
    pub fn commit(mut self, meta: TxMeta) {
        self.0.commit(meta, None);
    }
}

/// The transmit buffers of `port` for at most `left` frames of a step.
pub(crate) struct Burst<'a> {
    port: &'a mut dyn Port,
    token: Option<SlotToken>,
    lends: bool,
    left: usize,
    /// Frames committed.
    pub(crate) sent: usize,
    /// The port had no buffer for a frame.
    pub(crate) is_full: bool,
}

impl<'a> Burst<'a> {
    pub(crate) fn new(port: &'a mut dyn Port, left: usize) -> Self {
        let lends = port.sends_lent();
        Self { port, token: None, lends, left, sent: 0, is_full: false }
    }
}

impl TxBurst for Burst<'_> {
    fn buffer(&mut self) -> Option<&mut [u8]> {
        if self.token.is_none() {
            if self.left == 0 {
                return None;
            }
            self.token = self.port.slot_take();
            self.is_full = self.token.is_none();
        }
        self.token.as_ref().map(|token| self.port.slot_bytes(token))
    }

    fn commit(&mut self, meta: TxMeta, lent: Option<LentPayload>) {
        assert_eq!(meta.elided_bytes, 0, "only simulated links carry elided frames");
        let token = self.token.take().expect("a frame is in a buffer");
        match lent {
            Some(lent) => self.port.slot_commit_lent(token, meta, lent),
            None => self.port.slot_commit(token, meta),
        }
        self.sent += 1;
        self.left -= 1;
    }

    fn lends(&self) -> bool {
        self.lends
    }
}

impl Drop for Burst<'_> {
    fn drop(&mut self) {
        if let Some(token) = self.token.take() {
            self.port.slot_release(token);
        }
    }
}

/// Copies lent payload to its place in `frame`.
pub(crate) fn copy_lent(lent: &LentPayload, frame: &mut [u8]) {
    lent.bytes.copy_out(0, &mut frame[lent.at..lent.at + lent.bytes.len()]);
}
