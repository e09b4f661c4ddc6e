//! The [`Node`] trait: the interface between a protocol engine and its driver.

use crate::Time;
use spanwire_mem::Lent;

/// One of a node's ports: 0 for a host, 0..[`PortMask::BITS`] for a switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PortId(u8);

/// A set of ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortMask(u128);

/// The metadata of a received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RxMeta {
    /// The arrival time of the frame: the timestamp of the hardware or of the kernel if there is
    /// one, else a time between its arrival and its delivery. Never earlier than the arrival, and
    /// never later than the `now` of the call.
    pub at: Time,
    /// A time before the arrival: when the ring was last seen empty. Equal to `at` if that is a
    /// timestamp.
    pub earliest: Time,
    /// Payload bytes that the frame has on the wire but not in the slice: see [`TxMeta`]. Always 0
    /// except on simulated links.
    pub elided_bytes: u32,
    /// The port has computed the packet's checksum, and it is right.
    pub checked: Checked,
}

/// The frame whose checksum a port has found right, if any.
///
/// The mark is of the bytes at one place. Received frames cannot be written, so network emulation
/// that changes one passes on a copy, of which [`Checked::is_of`] is false.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    address: usize,
    /// 0 for none.
    len: usize,
}

/// The metadata of a frame that a node has written.
///
/// A simulated frame may be *elided*: its payload and pad are omitted. The headers before, whose
/// length fields still count the payload, and the ICRC after it are present. The frame occupies a
/// link and a queue as if it were whole. Only hosts configured for it elide payload; no real
/// port sees such a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TxMeta {
    /// Bytes written, from the destination MAC to the end of the ICRC, no FCS. At most the length
    /// of the buffer.
    pub len: usize,
    /// Payload and pad bytes that were elided.
    pub elided_bytes: u32,
    /// The network may fragment the IP packet, although its header says otherwise: a port that can
    /// send it so does.
    pub may_fragment: MayFragment,
}

/// Whether the network may fragment a packet.
///
/// A number, because an enum around a `bool` takes its tag from there, which costs 1 % of the
/// engine's instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MayFragment(u32);

impl MayFragment {
    /// It may not.
    pub const NO: Self = Self(0);

    /// It may.
    #[must_use]
    pub const fn is_allowed(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for MayFragment {
    fn from(may: bool) -> Self {
        Self(may.into())
    }
}

/// Payload that a node has not copied into a frame.
#[derive(Clone, Debug)]
pub struct LentPayload {
    /// Offset of its place in the frame.
    pub at: usize,
    /// The bytes, as many as that place has.
    pub bytes: Lent,
}

/// The transmit buffers of a port in one step of its driver.
pub trait TxBurst {
    /// The buffer of the next frame, the same one until it is committed. `None` if there is none,
    /// or the step has sent enough.
    fn buffer(&mut self) -> Option<&mut [u8]>;

    /// Sends the frame in the buffer. The place of lent payload in it has unspecified content; all
    /// other bytes, the checksum included, are those of the whole frame.
    ///
    /// # Panics
    /// If there is no buffer, or `meta.len` is longer than it.
    fn commit(&mut self, meta: TxMeta, lent: Option<LentPayload>);

    /// The port can send memory where it is, so that a node may lend payload.
    fn lends(&self) -> bool {
        false
    }
}

/// The event for which a node without work waits. A driver estimates each kind of wait apart, to
/// choose between spinning and sleeping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Awaited {
    /// A frame of any peer, or a call of its application.
    #[default]
    Anything,
    /// The acknowledgement of packets in flight.
    Ack,
    /// A reply to an acknowledged message: none has been received since.
    Reply,
    /// The time of the next paced packet.
    Departure,
}

impl Awaited {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Anything, Self::Ack, Self::Reply, Self::Departure];
}

/// One machine (a host or a switch) without I/O: bytes and time in, bytes and deadlines out.
///
/// The same node runs under a real driver (`io::step`) and in a simulated world. A driver must
/// keep this order:
///
/// 1. [`handle_packet`] for every frame received, then
/// 2. [`handle_timeout`] if [`poll_timeout`] is due, then
/// 3. for each port in [`take_ready`], [`transmit_burst`]; or [`poll_transmit`] into a frame buffer
///    it has *already* reserved, until it returns `None` or no buffer is left. If buffers run out,
///    the driver must come back to the port itself: the node reports a ready port only once.
///
/// `now` never decreases from call to call. No method blocks, reads a clock or fails: errors of
/// the network are counted, not reported.
///
/// [`handle_packet`]: Node::handle_packet
/// [`handle_timeout`]: Node::handle_timeout
/// [`poll_timeout`]: Node::poll_timeout
/// [`poll_transmit`]: Node::poll_transmit
/// [`take_ready`]: Node::take_ready
/// [`transmit_burst`]: Node::transmit_burst
pub trait Node {
    /// Processes one received Ethernet frame (no FCS). The bytes are hostile. The reference does
    /// not outlive the call.
    fn handle_packet(&mut self, now: Time, port: PortId, frame: &[u8], meta: &RxMeta);

    /// Applies the timers due at or before `now`. May be called early.
    fn handle_timeout(&mut self, now: Time);

    /// Writes the next frame that may leave `port` now into `frame`. Returns `None` if there is
    /// none; then nothing is consumed and the content of `frame` is unspecified.
    fn poll_transmit(&mut self, now: Time, port: PortId, frame: &mut [u8]) -> Option<TxMeta>;

    /// Writes frames that may leave `port` now into the buffers of `burst`, in the order of
    /// [`Node::poll_transmit`]. True if there is no further one: as if that had returned `None`.
    /// False if `burst` has no further buffer.
    ///
    /// By default each frame is polled, and nothing is lent.
    fn transmit_burst(&mut self, now: Time, port: PortId, burst: &mut dyn TxBurst) -> bool {
        while let Some(frame) = burst.buffer() {
            match self.poll_transmit(now, port, frame) {
                Some(meta) => burst.commit(meta, None),
                None => return true,
            }
        }
        false
    }

    /// False guarantees that [`Node::poll_transmit`] returns `None` for this port until
    /// [`Node::take_ready`] returns it again, which saves the driver a call. True guarantees
    /// nothing.
    fn may_have_frame(&self, port: PortId) -> bool {
        let _ = port;
        true
    }

    /// The time at which [`Node::handle_timeout`] is due; O(1). It may be early, never late.
    fn poll_timeout(&self) -> Option<Time>;

    /// The event for which it waits if it has no work.
    fn awaited(&mut self) -> Awaited {
        Awaited::Anything
    }

    /// Another thread has published something for it.
    fn handle_ring(&mut self) {}

    /// True if it has nothing left to do: its worker ends it.
    fn is_finished(&self) -> bool {
        false
    }

    /// Its worker ends because of `why`; no other call follows.
    fn end(&mut self, _why: &str) {}

    /// The ports that may have a frame to send since the last call; clears the set.
    fn take_ready(&mut self) -> PortMask;
}

impl RxMeta {
    /// The metadata of a complete frame, received at `at`.
    #[must_use]
    pub const fn whole(at: Time) -> Self {
        Self { at, earliest: at, elided_bytes: 0, checked: Checked::NONE }
    }

    /// The metadata of a complete frame that arrived after `earliest` and not after `at`.
    #[must_use]
    pub fn between(earliest: Time, at: Time) -> Self {
        Self { at, earliest: earliest.min(at), elided_bytes: 0, checked: Checked::NONE }
    }
}

impl Checked {
    /// No frame.
    pub const NONE: Self = Self { address: 0, len: 0 };

    /// The mark of a frame whose checksum is right.
    #[must_use]
    pub fn of(frame: &[u8]) -> Self {
        Self { address: frame.as_ptr().addr(), len: frame.len() }
    }

    /// True if this is the frame that was marked, and not a copy of it.
    #[must_use]
    pub fn is_of(self, frame: &[u8]) -> bool {
        self.len > 0 && self == Self::of(frame)
    }
}

impl TxMeta {
    /// The metadata of a frame of `len` bytes without elided ones.
    #[must_use]
    pub const fn whole(len: usize) -> Self {
        Self { len, elided_bytes: 0, may_fragment: MayFragment::NO }
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

    /// The port of this number; `None` for [`PortMask::BITS`] and above.
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
    /// The maximum number of ports of a node.
    pub const BITS: u32 = 128;
    /// No port.
    pub const EMPTY: Self = Self(0);

    /// The set of one port.
    #[must_use]
    pub const fn of(port: PortId) -> Self {
        Self(1 << port.0)
    }

    /// True if the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if `port` is in the set.
    #[must_use]
    pub const fn has(self, port: PortId) -> bool {
        self.0 & (1 << port.0) != 0
    }

    /// Adds a port.
    pub fn insert(&mut self, port: PortId) {
        self.0 |= 1 << port.0;
    }

    /// Adds all ports of `other`.
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
    fn is_of__only_the_frame_that_was_marked() {
        let frame = [7; 64];
        let mark = Checked::of(&frame);
        assert!(mark.is_of(&frame));
        // A bit error is in a copy: nothing can be written through the reference.
        let copy = frame.to_vec();
        assert!(!mark.is_of(&copy));
        assert!(!mark.is_of(&frame[..63]) && !mark.is_of(&frame[1..]));
        assert!(!Checked::NONE.is_of(&frame) && !Checked::of(&[]).is_of(&[]));
    }

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
