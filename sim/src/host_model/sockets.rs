//! A driver over UDP sockets: runs of segments share a system call, and buffers are bytes.

use spanwire_base::Dur;

/// The part of a [`HostModel`](super::HostModel) that a driver over UDP sockets has beside one over
/// rings: frames of a flow share a system call (UDP_SEGMENT, UDP_GRO), and the kernel's buffers are
/// limited in bytes.
///
/// A run is sent as `io`'s port forms it: frames of a flow and of one length, the last of which may
/// be shorter. It is received as the kernel coalesces it: such frames, each of which arrives within
/// `rx_call` of the one before, because the kernel still handles that. Only the first of them is
/// dated by its arrival; the others lie between it and the call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sockets {
    /// CPU time of a call that receives a run, beside that of its frames and bytes.
    pub rx_call: Dur,
    /// CPU time of a call that sends a run, beside that of its frames and bytes.
    pub tx_call: Dur,
    /// Maximum frames of a run, at least 1. The kernel's limit is 64.
    pub run_frames: u32,
    /// The receive buffer as the kernel grants it, in bytes. A frame that does not fit is lost,
    /// unless the buffer is empty. Each frame takes [`Sockets::SKB_BYTES`] besides its own.
    pub rx_bytes: u64,
    /// The send buffer likewise: a driver with no room in it waits.
    pub tx_bytes: u64,
}

/// The last run of a flow: the frames that another one may join.
#[derive(Clone, Debug)]
pub(super) struct Run {
    flow: Option<Flow>,
    /// Bytes of each frame but the last.
    segment: u32,
    frames: u32,
    bytes: u32,
    is_closed: bool,
}

/// The headers that are equal in all frames of a run, up to the UDP ports. Lengths, identification
/// and checksum are zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Flow([u8; FLOW_BYTES]);

impl Run {
    /// The run that begins with a frame of `len` bytes.
    pub(super) fn of(frame: &[u8], len: u64) -> Self {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        Self { flow: Flow::of(frame), segment: len, frames: 1, bytes: len, is_closed: false }
    }

    /// True if it has the same headers as `frame`.
    pub(super) fn is_of(&self, frame: &[u8]) -> bool {
        self.flow.is_some() && self.flow == Flow::of(frame)
    }

    /// Adds a frame of the run's flow of `len` bytes, if it may have one of this length and at most
    /// `frames_max` frames. Returns whether it did.
    pub(super) fn take(&mut self, len: u64, frames_max: u32) -> bool {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let bytes = self.bytes.saturating_add(len);
        let fits = self.frames < frames_max && bytes <= RUN_BYTES_MAX && len <= self.segment;
        if self.is_closed || !fits {
            return false;
        }
        (self.frames, self.bytes) = (self.frames + 1, bytes);
        self.is_closed = len < self.segment;
        true
    }
}

impl Flow {
    /// `None` for a frame that is no UDP packet.
    fn of(frame: &[u8]) -> Option<Self> {
        let mut head = [0; FLOW_BYTES];
        let (fields, of_one_packet) = match frame.get(ETHERTYPE..ETHERTYPE + 2)? {
            [0x08, 0x00] if *frame.get(23)? == PROTOCOL => (38, &[16..20, 24..26][..]),
            [0x86, 0xdd] if *frame.get(20)? == PROTOCOL => (58, &[18..20][..]),
            _ => return None,
        };
        head[..fields].copy_from_slice(frame.get(..fields)?);
        of_one_packet.iter().cloned().for_each(|range| head[range].fill(0));
        Some(Self(head))
    }
}

impl Sockets {
    /// Bytes that the kernel counts for a datagram besides its data: those of 64 bytes take 832 of
    /// a receive buffer in Linux 6.18. Longer ones may take up to their length more, and coalesced
    /// ones less.
    pub const SKB_BYTES: u64 = 768;

    /// Frames of `bytes` bytes that the receive buffer holds.
    pub(super) fn rx_frames(&self, bytes: u64) -> usize {
        usize::try_from(self.rx_bytes / (bytes + Self::SKB_BYTES)).unwrap_or(usize::MAX).max(1)
    }

    /// Frames of `bytes` bytes that the send buffer holds.
    pub(super) fn tx_frames(&self, bytes: u64) -> usize {
        usize::try_from(self.tx_bytes / (bytes + Self::SKB_BYTES)).unwrap_or(usize::MAX).max(1)
    }
}

/// The longest headers up to the UDP ports, those of IPv6.
const FLOW_BYTES: usize = 58;
const ETHERTYPE: usize = 12;
/// UDP.
const PROTOCOL: u8 = 17;
/// The longest run: a UDP payload, about.
const RUN_BYTES_MAX: u32 = 65_535;
