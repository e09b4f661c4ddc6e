//! The system calls of UDP sockets. All `unsafe` of [`super`] is here.

use super::address::Address;
use super::control::Control;
use spanwire_mem::Lent;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The result of a [`receive`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Received {
    /// Bytes of payload in the buffer.
    pub(super) len: usize,
    /// The payload or the control messages were longer than their buffer.
    pub(super) truncated: bool,
}

/// Opens a non-blocking UDP socket.
pub(super) fn open(is_v6: bool) -> io::Result<OwnedFd> {
    let family = if is_v6 { libc::AF_INET6 } else { libc::AF_INET };
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes no pointers.
    let fd = unsafe { libc::socket(family, kind, libc::IPPROTO_UDP) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, open, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds a socket.
pub(super) fn bind(socket: &OwnedFd, address: &Address) -> io::Result<()> {
    let bytes = address.as_bytes();
    // SAFETY: the kernel reads `bytes`, which are borrowed for the call.
    let result = unsafe { libc::bind(socket.as_raw_fd(), bytes.as_ptr().cast(), len_of(bytes)?) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets the classic BPF program that selects a socket of the group of `socket`.
pub(super) fn attach_reuseport(socket: &OwnedFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF);
    let size = libc::socklen_t::try_from(size_of_val(&program)).map_err(io::Error::other)?;
    let (fd, value) = (socket.as_raw_fd(), (&raw const program).cast());
    // SAFETY: the kernel reads `size` bytes of the structure and copies the `len` instructions that
    // it refers to, which are borrowed for the call.
    let result = unsafe { libc::setsockopt(fd, level, name, value, size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Bytes to send, in at most [`PARTS_MAX`] parts.
pub(super) struct Parts<'a>(Vec<Part<'a>>);

impl Default for Parts<'_> {
    fn default() -> Self {
        Self(Vec::with_capacity(PARTS_MAX))
    }
}

/// A part of what is sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'a> {
    Own(&'a [u8]),
    Lent(&'a Lent),
}

impl<'a> Parts<'a> {
    pub(super) fn push(&mut self, part: &'a [u8]) {
        if !part.is_empty() {
            self.0.push(Part::Own(part));
        }
    }

    pub(super) fn push_lent(&mut self, part: &'a Lent) {
        self.0.push(Part::Lent(part));
    }

    /// All parts, copied.
    #[cfg(feature = "fuzzing")]
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for part in &self.0 {
            match part {
                Part::Own(bytes) => all.extend_from_slice(bytes),
                Part::Lent(bytes) => bytes.copies(&mut [0; 64], |each| all.extend_from_slice(each)),
            }
        }
        all
    }
}

/// Sends the concatenation of `parts`.
pub(super) fn send(
    socket: &OwnedFd,
    to: &Address,
    control: &Control,
    parts: &Parts<'_>,
) -> io::Result<()> {
    let mut vectors = [EMPTY; PARTS_MAX];
    let count = parts.0.len();
    for (vector, part) in vectors[..count].iter_mut().zip(&parts.0) {
        *vector = match part {
            Part::Own(bytes) => {
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
            }
            Part::Lent(bytes) => bytes.iovec(),
        };
    }
    let (to, control) = (to.as_bytes(), control.as_bytes());
    let mut header = message();
    header.msg_name = to.as_ptr().cast_mut().cast();
    header.msg_namelen = len_of(to)?;
    header.msg_iov = vectors.as_mut_ptr();
    header.msg_iovlen = count;
    header.msg_control = control.as_ptr().cast_mut().cast();
    header.msg_controllen = control.len();
    // SAFETY: the kernel reads address, control messages, vectors and parts, all borrowed for the
    // call and as long as given; it writes none of them. Lent memory may change meanwhile: only the
    // kernel reads it here.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives one datagram, or several that the kernel has coalesced.
pub(super) fn receive(
    socket: &OwnedFd,
    into: &mut [u8],
    from: &mut Address,
    control: &mut Control,
) -> io::Result<Received> {
    let mut vector = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut header = message();
    {
        let (from, control) = (from.buffer(), control.buffer());
        header.msg_name = from.as_mut_ptr().cast();
        header.msg_namelen = len_of(from)?;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = control.len();
    }
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    // SAFETY: the kernel writes at most the lengths given of address, control messages and payload,
    // all borrowed mutably for the call and valid with any content.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    from.set_len(usize::try_from(header.msg_namelen).unwrap_or(0));
    control.set_len(header.msg_controllen);
    let truncated = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
    Ok(Received { len: len.min(into.len()), truncated })
}

fn message() -> libc::msghdr {
    // SAFETY: all fields are integers and pointers, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

fn len_of(bytes: &[u8]) -> io::Result<libc::socklen_t> {
    libc::socklen_t::try_from(bytes.len()).map_err(io::Error::other)
}

const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// The segments that every kernel with UDP_SEGMENT sends in a call (`UDP_MAX_SEGMENTS`).
pub const SEGMENTS_MAX: usize = 64;
/// Each with its lent payload and what is before that, and what is behind the last.
const PARTS_MAX: usize = 2 * SEGMENTS_MAX + 1;

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_mem::Region;
    use std::io::ErrorKind;
    use std::net::UdpSocket;

    #[test]
    fn send__what_receive_returns() {
        let socket = open(false).expect("a socket");
        let any: std::net::SocketAddr = "127.0.0.1:0".parse().expect("an address");
        bind(&socket, &Address::new(any)).expect("a free port");
        let peer = UdpSocket::bind(any).expect("a free port");
        let to = Address::new(peer.local_addr().expect("bound"));
        let region = Region::zeroed(8);
        region.copy_in(5, b"b").expect("within");
        let lent = region.lend(5, 1).expect("within");
        let mut parts = Parts::default();
        parts.push(b"a");
        parts.push_lent(&lent);
        parts.push(b"");
        parts.push(b"c");
        send(&socket, &to, &Control::new(), &parts).expect("loopback");
        let mut bytes = [0; 8];
        let (len, from) = peer.recv_from(&mut bytes).expect("sent");
        assert_eq!(bytes[..len], *b"abc");
        peer.send_to(b"longer", from).expect("loopback");
        let (mut from, mut control) = (Address::empty(), Control::new());
        let received = receive(&socket, &mut bytes[..4], &mut from, &mut control);
        assert_eq!(received.expect("sent"), Received { len: 4, truncated: true });
        assert_eq!(from.get(), peer.local_addr().ok());
        let none = receive(&socket, &mut bytes, &mut from, &mut control).expect_err("empty");
        assert_eq!(none.kind(), ErrorKind::WouldBlock);
        let taken = open(false).expect("a socket");
        let refused = bind(&taken, &to).expect_err("taken");
        assert_eq!(refused.kind(), ErrorKind::AddrInUse);
    }
}
