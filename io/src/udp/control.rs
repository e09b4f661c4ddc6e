//! Control messages (cmsg(3)) of `sendmsg` and `recvmsg`, as bytes.

use super::headers::Flow;
use std::ffi::c_int;
use std::net::IpAddr;

/// A buffer of control messages, aligned for the kernel.
#[repr(C, align(8))]
#[derive(Clone, Debug)]
pub(super) struct Control {
    bytes: [u8; ROOM],
    len: usize,
}

impl Control {
    /// No control messages.
    pub(super) const fn new() -> Self {
        Self { bytes: [0; ROOM], len: 0 }
    }

    /// Appends a message.
    ///
    /// # Panics
    /// If it does not fit: the caller sends a fixed set of messages.
    pub(super) fn push(&mut self, level: c_int, kind: c_int, value: &[u8]) {
        let (at, len) = (self.len, HEADER + value.len());
        self.bytes[at..at + LEN_BYTES].copy_from_slice(&len.to_ne_bytes());
        self.bytes[at + LEN_BYTES..at + LEN_BYTES + 4].copy_from_slice(&level.to_ne_bytes());
        self.bytes[at + LEN_BYTES + 4..at + HEADER].copy_from_slice(&kind.to_ne_bytes());
        self.bytes[at + HEADER..at + len].copy_from_slice(value);
        self.len = at + len.next_multiple_of(ALIGN);
    }

    /// The messages in order: level, type and value. An invalid length ends them.
    pub(super) fn messages(&self) -> impl Iterator<Item = (c_int, c_int, &[u8])> {
        let mut rest = &self.bytes[..self.len.min(ROOM)];
        std::iter::from_fn(move || {
            let (len, after) = rest.split_first_chunk::<LEN_BYTES>()?;
            let (level, after) = after.split_first_chunk::<4>()?;
            let kind = after.first_chunk::<4>()?;
            let len = usize::from_ne_bytes(*len);
            let value = rest.get(HEADER..len)?;
            rest = rest.get(len.next_multiple_of(ALIGN)..).unwrap_or_default();
            Some((c_int::from_ne_bytes(*level), c_int::from_ne_bytes(*kind), value))
        })
    }

    /// The messages to send.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// All of the buffer, for messages to receive; [`Control::set_len`] says how many bytes.
    pub(super) fn buffer(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.len = len.min(ROOM);
    }
}

/// The value of a control message as an integer of its length.
pub(super) fn integer(value: &[u8]) -> Option<u32> {
    match value {
        [one] => Some((*one).into()),
        _ => value.first_chunk().map(|four| u32::from_ne_bytes(*four)),
    }
}

/// Every control message that a port receives, at their largest, with space to spare.
const ROOM: usize = 256;
/// `cmsg_len`, a `size_t`.
const LEN_BYTES: usize = size_of::<usize>();
/// `struct cmsghdr`, which `CMSG_ALIGN` does not lengthen.
const HEADER: usize = LEN_BYTES + 8;
const ALIGN: usize = size_of::<usize>();

const _: () = assert!(HEADER == size_of::<libc::cmsghdr>() && HEADER.is_multiple_of(ALIGN));

/// The control messages for the header fields of `flow`.
pub(super) fn describe(flow: &Flow, device: Option<u32>, control: &mut Control) {
    let ifindex = device.unwrap_or(0).to_ne_bytes();
    let (tos, hop_limit) = (u32::from(flow.tos), u32::from(flow.hop_limit));
    let hop_limit = Some(hop_limit.to_ne_bytes()).filter(|_| hop_limit > 0);
    match flow.src {
        IpAddr::V4(src) => {
            // struct in_pktinfo: the interface, the source address, and one only for reception.
            let mut info = [0; 12];
            info[..4].copy_from_slice(&ifindex);
            info[4..8].copy_from_slice(&src.octets());
            control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            control.push(libc::IPPROTO_IP, libc::IP_TOS, &tos.to_ne_bytes());
            if let Some(ttl) = hop_limit {
                control.push(libc::IPPROTO_IP, libc::IP_TTL, &ttl);
            }
        }
        IpAddr::V6(src) => {
            // struct in6_pktinfo: the source address and the interface.
            let mut info = [0; 20];
            info[..16].copy_from_slice(&src.octets());
            info[16..].copy_from_slice(&ifindex);
            control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            control.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &tos.to_ne_bytes());
            if let Some(hops) = hop_limit {
                control.push(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &hops);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn push__is_what_messages_reads() {
        let mut control = Control::new();
        control.push(0, 1, &[7]);
        control.push(41, 67, &300u32.to_ne_bytes());
        control.push(17, 103, &1400u16.to_ne_bytes());
        let read: Vec<_> = control.messages().collect();
        let four = 300u32.to_ne_bytes();
        let two = 1400u16.to_ne_bytes();
        assert_eq!(read, [(0, 1, &[7][..]), (41, 67, &four), (17, 103, &two)]);
        assert_eq!(control.as_bytes().len() % ALIGN, 0);
    }

    #[test]
    fn messages__end_at_an_invalid_length() {
        for len in [0, HEADER - 1, ROOM + 1, usize::MAX] {
            let mut control = Control::new();
            control.push(0, 1, &[7]);
            control.buffer()[..LEN_BYTES].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(control.messages().count(), 0, "{len}");
        }
        let mut control = Control::new();
        control.push(0, 1, &[7]);
        control.set_len(HEADER);
        assert_eq!(control.messages().count(), 0, "cut off");
        control.set_len(usize::MAX);
        assert_eq!(control.messages().count(), 1, "and zeros");
    }

    #[test]
    fn integer__has_one_byte_or_four() {
        assert_eq!(integer(&[3]), Some(3));
        assert_eq!(integer(&70_000u32.to_ne_bytes()), Some(70_000));
        assert_eq!(integer(&[1, 2]), None);
    }
}
