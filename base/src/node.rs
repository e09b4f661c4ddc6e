//! The seam between a protocol engine and the world it runs in.

use crate::Time;

/// One of a node's ports: 0 for a host, 0..[`PortMask::BITS`] for a switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PortId(u8);

/// A set of ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortMask(u128);

/// What a port knows of a received frame beside its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RxMeta {
    /// When the frame arrived: the hardware's time where there is one, else when it was taken from
    /// the ring. Never later than the `now` of the call that carries it.
    pub at: Time,
    /// Payload bytes that the frame has on the wire but not in the slice: see [`TxMeta`]. 0 on
    /// everything but a simulated link.
    pub elided_bytes: u32,
}

/// What a node says of a frame it has written.
///
/// A simulated frame may be *elided*: its payload is left out between the headers, whose length
/// fields still count it, and what follows the payload (pad excepted, the ICRC included). It takes
/// as long on a link and as much room in a queue as if it were whole. Only a host that was told to
/// elides; no real port ever sees such a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TxMeta {
    /// Bytes written, from the destination MAC to the end of the ICRC, no FCS. At most the length
    /// of the buffer that was offered.
    pub len: usize,
    /// Payload and pad bytes that stand for themselves and were not written.
    pub elided_bytes: u32,
}

/// One machine (a host or a switch) without I/O: bytes and time in, bytes and deadlines out.
///
/// The same node runs under a real driver (`io::step`) and in a simulated world. A driver must
/// keep this order:
///
/// 1. [`handle_packet`] for every frame received, then
/// 2. [`handle_timeout`] if [`poll_timeout`] is due, then
/// 3. for each port in [`take_ready`], [`poll_transmit`] into a frame buffer it has *already*
///    reserved, until it returns `None` or there is no buffer left. A port left unfinished for want
///    of buffers stays the driver's to come back to: the node reports it only once.
///
/// `now` never decreases from call to call. No method blocks, reads a clock or fails: what the
/// network gets wrong is counted, not reported.
///
/// [`handle_packet`]: Node::handle_packet
/// [`handle_timeout`]: Node::handle_timeout
/// [`poll_timeout`]: Node::poll_timeout
/// [`poll_transmit`]: Node::poll_transmit
/// [`take_ready`]: Node::take_ready
pub trait Node {
    /// Takes one received Ethernet frame (no FCS). The bytes are hostile. The reference does not
    /// outlive the call.
    fn handle_packet(&mut self, now: Time, port: PortId, frame: &[u8], meta: RxMeta);

    /// Does what was due at or before `now`. Calling it early is harmless.
    fn handle_timeout(&mut self, now: Time);

    /// Writes the next frame that may leave `port` now into `frame` and says how long it is, or
    /// returns `None`, consumes nothing and writes nothing that counts.
    fn poll_transmit(&mut self, now: Time, port: PortId, frame: &mut [u8]) -> Option<TxMeta>;

    /// False promises that [`Node::poll_transmit`] has nothing for this port until
    /// [`Node::take_ready`] names it again, so that a driver need not ask once more to hear `None`.
    /// True promises nothing.
    fn may_have_frame(&self, port: PortId) -> bool {
        let _ = port;
        true
    }

    /// When [`Node::handle_timeout`] wants to be called next; O(1). It may be early, never late.
    fn poll_timeout(&self) -> Option<Time>;

    /// The ports that may have a frame to send since the last call; clears the set.
    fn take_ready(&mut self) -> PortMask;
}

impl RxMeta {
    /// A frame whose bytes are all there, received at `at`.
    #[must_use]
    pub const fn whole(at: Time) -> Self {
        Self { at, elided_bytes: 0 }
    }
}

impl TxMeta {
    /// A frame of `len` bytes, all of them written.
    #[must_use]
    pub const fn whole(len: usize) -> Self {
        Self { len, elided_bytes: 0 }
    }

    /// Bytes on the wire, without preamble, FCS and gap.
    #[must_use]
    pub fn wire_len(&self) -> u64 {
        crate::u64_from(self.len) + u64::from(self.elided_bytes)
    }
}

impl PortId {
    /// The only port of a host.
    pub const HOST: Self = Self(0);

    /// The port of this number, or `None` at [`PortMask::BITS`] and above.
    #[must_use]
    pub const fn new(n: u8) -> Option<Self> {
        if (n as u32) < PortMask::BITS { Some(Self(n)) } else { None }
    }

    /// Its number.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl PortMask {
    /// How many ports a node may have.
    pub const BITS: u32 = 128;
    /// No port.
    pub const EMPTY: Self = Self(0);

    /// The set of one port.
    #[must_use]
    pub const fn of(port: PortId) -> Self {
        Self(1 << port.0)
    }

    /// True when no port is in the set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True when `port` is in the set.
    #[must_use]
    pub const fn has(self, port: PortId) -> bool {
        self.0 & (1 << port.0) != 0
    }

    /// Adds a port.
    pub fn insert(&mut self, port: PortId) {
        self.0 |= 1 << port.0;
    }

    /// Takes all ports of `other` in too.
    pub fn merge(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Takes the set, leaving it empty.
    pub fn take(&mut self) -> Self {
        core::mem::take(self)
    }

    /// Removes and returns the lowest port.
    pub fn pop(&mut self) -> Option<PortId> {
        if self.0 == 0 {
            return None;
        }
        let n = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        u8::try_from(n).ok().map(PortId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_mask__pops_in_ascending_order() {
        let mut m = PortMask::EMPTY;
        for n in [127, 3, 64] {
            m.insert(PortId::new(n).unwrap());
        }
        let order: Vec<usize> = std::iter::from_fn(|| m.pop()).map(PortId::index).collect();
        assert_eq!(order, [3, 64, 127]);
        assert!(m.is_empty());
    }

    #[test]
    fn port_id__has_a_limit() {
        assert!(PortId::new(127).is_some());
        assert!(PortId::new(128).is_none());
    }

    #[test]
    fn port_mask__take_empties() {
        let mut m = PortMask::of(PortId::HOST);
        assert!(m.take().has(PortId::HOST));
        assert!(m.is_empty());
    }
}
