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
        // Length and identification, and the checksum of IPv4's header.
        let (fields, of_one_packet) = match frame.get(ETHERTYPE..ETHERTYPE + 2)? {
            [0x08, 0x00] if *frame.get(23)? == PROTOCOL => (38, [16..20, 24..26]),
            [0x86, 0xdd] if *frame.get(20)? == PROTOCOL => (58, [18..20, 0..0]),
            _ => return None,
        };
        head[..fields].copy_from_slice(frame.get(..fields)?);
        of_one_packet.into_iter().for_each(|range| head[range].fill(0));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of an IPv4 frame with UDP from this port, with this TOS and identification.
    fn v4(port: u8, tos: u8, id: u8) -> Vec<u8> {
        let mut frame = vec![7; 50];
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        (frame[15], frame[19], frame[23], frame[35]) = (tos, id, PROTOCOL, port);
        // Length and checksum of a packet.
        (frame[17], frame[24]) = (id.wrapping_mul(3), id.wrapping_mul(5));
        frame
    }

    fn v6(port: u8, traffic_class: u8, len: u8) -> Vec<u8> {
        let mut frame = vec![7; 70];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        (frame[15], frame[19], frame[20], frame[55]) = (traffic_class, len, PROTOCOL, port);
        frame
    }

    #[test]
    fn is_of__compares_addresses_ports_and_traffic_class_only() {
        for frame in [v4, v6] {
            let run = Run::of(&frame(1, 2, 3), 1_000);
            assert!(run.is_of(&frame(1, 2, 4)));
            assert!(!run.is_of(&frame(2, 2, 3)), "another port");
            assert!(!run.is_of(&frame(1, 3, 3)), "marked");
        }
        assert!(!Run::of(&v4(1, 2, 3), 1_000).is_of(&v6(1, 2, 3)));
    }

    #[test]
    fn is_of__a_frame_without_udp_is_of_no_run() {
        let mut tcp = v4(1, 2, 3);
        tcp[23] = 6;
        for frame in
            [vec![], vec![0; 60], tcp, v4(1, 2, 3)[..37].to_vec(), v6(1, 2, 3)[..57].to_vec()]
        {
            assert!(!Run::of(&frame, 60).is_of(&frame), "{frame:?}");
        }
    }

    #[test]
    fn take__a_run_has_one_length_but_for_a_shorter_last_frame() {
        let frame = v4(1, 2, 3);
        let mut run = Run::of(&frame, 1_000);
        assert!(!run.take(1_001, 64), "longer");
        assert!(run.take(1_000, 64) && run.take(600, 64));
        assert!(!run.take(600, 64), "behind a shorter one");
    }

    #[test]
    fn take__a_run_is_limited_in_frames_and_bytes() {
        let frame = v4(1, 2, 3);
        let taken = |len, frames_max| {
            let mut run = Run::of(&frame, len);
            (0..).take_while(|_| run.take(len, frames_max)).count() + 1
        };
        assert_eq!(taken(100, 64), 64);
        assert_eq!(taken(100, 1), 1);
        assert_eq!(taken(9_000, 64), 7);
        assert_eq!(taken(70_000, 64), 1);
    }
}
