//! The packet port: where frames come from and go to. Everything that moves frames implements
//! [`Port`]; faults and captures are wrappers around one, never flags inside an engine.

use spanwire_base::{RxMeta, Time, TxMeta};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A token for one transmit buffer that a port has handed out: move-only, made and consumed by the
/// port alone. The number means something only to the port that made it.
#[derive(Debug)]
pub struct SlotToken(u64);

impl SlotToken {
    /// A token around a port's own number for the buffer (an offset, an index).
    #[must_use]
    pub fn new(id: u64) -> Self {
        Self(id)
    }

    /// The port's own number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.0
    }
}

/// A place packets come from and go to: an AF_XDP socket, one end of a pipe, or a wrapper around
/// another port.
///
/// One thread owns a port. Ordinary congestion (a full ring, a dropped frame) is a counter, not an
/// error; an `Err` means the port itself is gone (the interface was removed).
pub trait Port {
    /// Hands up to `max` received frames to `each`, oldest first, and takes the buffers back
    /// afterwards: no reference outlives the call. Returns how many frames were handed over.
    ///
    /// `now` stamps frames that carry no time of their own.
    fn rx_burst(&mut self, now: Time, max: usize, each: &mut dyn FnMut(&[u8], RxMeta)) -> usize;

    /// Takes a transmit buffer, or `None` when all are in flight. Prefer [`reserve`], which cannot
    /// leak the token.
    fn slot_take(&mut self) -> Option<SlotToken>;

    /// The bytes of a taken buffer: at least [`Port::frame_room`] long.
    fn slot_bytes(&mut self, slot: &SlotToken) -> &mut [u8];

    /// Queues the first `meta.len` bytes of the buffer for sending; [`Port::flush`] sends.
    ///
    /// # Panics
    /// If `meta.len` is longer than the buffer: the engine overran what it was offered.
    fn slot_commit(&mut self, slot: SlotToken, meta: TxMeta);

    /// Gives an unused buffer back.
    fn slot_release(&mut self, slot: SlotToken);

    /// Pushes queued frames to the machine; called once a step, also when nothing is new, because
    /// a port may still hold frames from before (AF_XDP's EAGAIN).
    ///
    /// # Errors
    /// The port cannot be used any more.
    fn flush(&mut self, now: Time) -> io::Result<()>;

    /// The longest frame this port carries in one buffer, in bytes without FCS, both ways.
    fn frame_room(&self) -> usize;

    /// Frames committed but not yet known to be sent: while it is not zero the driver must keep
    /// calling [`Port::flush`].
    fn tx_pending(&self) -> usize {
        0
    }

    /// Sleeps until a frame arrives, a transmit buffer may be free or `timeout` has passed.
    ///
    /// # Errors
    /// The port cannot be used any more.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;

    /// A descriptor that poll(2) calls readable when a frame has arrived, to sleep on several ports
    /// at once. `None` for a port that has none, or that holds frames no descriptor knows of: a
    /// driver of several ports then looks at it now and then.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The transmit side of a port around another one, `inner`, that changes nothing about it but
/// what happens to a frame when it is committed.
macro_rules! slots_of_inner {
    () => {
        fn slot_take(&mut self) -> Option<$crate::port::SlotToken> {
            self.inner.slot_take()
        }

        fn slot_bytes(&mut self, slot: &$crate::port::SlotToken) -> &mut [u8] {
            self.inner.slot_bytes(slot)
        }

        fn slot_release(&mut self, slot: $crate::port::SlotToken) {
            self.inner.slot_release(slot);
        }

        fn flush(&mut self, now: spanwire_base::Time) -> std::io::Result<()> {
            self.inner.flush(now)
        }

        fn frame_room(&self) -> usize {
            self.inner.frame_room()
        }

        fn tx_pending(&self) -> usize {
            self.inner.tx_pending()
        }
    };
}
pub(crate) use slots_of_inner;

/// A port chosen at run time (a capture or not, faults or not) is still a port.
impl<P: Port + ?Sized> Port for Box<P> {
    fn rx_burst(&mut self, now: Time, max: usize, each: &mut dyn FnMut(&[u8], RxMeta)) -> usize {
        (**self).rx_burst(now, max, each)
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

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        (**self).poll_fd()
    }
}

/// A reserved transmit buffer: [`Slot::bytes`] is where the frame is written, [`Slot::commit`]
/// sends it, dropping it gives it back.
pub struct Slot<'a> {
    port: &'a mut dyn Port,
    token: Option<SlotToken>,
}

/// Reserves a transmit buffer of `port`, or `None` when all are in flight.
///
/// Reserving comes *before* asking the engine for a packet: a packet that is already built when
/// the ring turns out to be full would have to be kept somewhere.
pub fn reserve(port: &mut dyn Port) -> Option<Slot<'_>> {
    let token = port.slot_take()?;
    Some(Slot { port, token: Some(token) })
}

impl Slot<'_> {
    /// The buffer to write the frame into.
    pub fn bytes(&mut self) -> &mut [u8] {
        match &self.token {
            Some(token) => self.port.slot_bytes(token),
            None => &mut [],
        }
    }

    /// Queues the frame for sending.
    ///
    /// # Panics
    /// If `meta.len` is longer than the buffer, or payload was elided: no real link carries that.
    pub fn commit(mut self, meta: TxMeta) {
        assert_eq!(meta.elided_bytes, 0, "only simulated links carry elided frames");
        if let Some(token) = self.token.take() {
            self.port.slot_commit(token, meta);
        }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if let Some(token) = self.token.take() {
            self.port.slot_release(token);
        }
    }
}
