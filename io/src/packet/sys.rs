//! The system calls of a packet socket. All `unsafe` of [`super`] is here.

use crate::poll::poll;
use af_xdp::steer::STEER_PORT;
use af_xdp::{same_layout, sockopt};
use bytemuck::{Pod, Zeroable};
use std::ffi::c_int;
use std::io::{self, ErrorKind};
use std::mem::offset_of;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Opens a non-blocking packet socket on an interface that receives RoCEv2.
pub(super) fn open(ifindex: u32, buffer_bytes: u32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // Protocol 0: nothing is received before the filter is attached and the socket is bound.
    // SAFETY: socket takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, valid and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    attach_filter(&socket, &FILTER)?;
    sockopt::set(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1u32)?;
    for (force, ask) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        sockopt::set(&socket, libc::SOL_SOCKET, force, &buffer_bytes)
            .or_else(|_| sockopt::set(&socket, libc::SOL_SOCKET, ask, &buffer_bytes))?;
    }
    let mut address = empty_address();
    address.sll_ifindex =
        c_int::try_from(ifindex).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    address.sll_protocol = ETH_P_ALL.to_be();
    let address_ptr = (&raw const address).cast();
    // SAFETY: the kernel reads the length given of `address`, which is all of it.
    check(unsafe { libc::bind(socket.as_raw_fd(), address_ptr, address_len()) })?;
    Ok(socket)
}

/// True while the socket is bound: the kernel unbinds it when the interface is removed.
pub(super) fn is_bound(socket: &OwnedFd) -> bool {
    let mut address = empty_address();
    let mut len = address_len();
    // SAFETY: the kernel writes at most `len` bytes to `address`, which has as many.
    let result =
        unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut len) };
    result == 0 && address.sll_ifindex > 0
}

/// Sends one frame.
pub(super) fn send(socket: &OwnedFd, frame: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads the bytes of `frame`.
    let sent = unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives one frame and returns its length, which exceeds the buffer's if the frame was
/// truncated.
pub(super) fn receive(socket: &OwnedFd, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most the bytes of `into`, regardless of the returned length.
    let len = unsafe {
        libc::recv(socket.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), libc::MSG_TRUNC)
    };
    usize::try_from(len).map_err(|_| io::Error::last_os_error())
}

/// Sleeps until a frame arrives, there is room to send if `wants_room`, or the timeout expires.
pub(super) fn wait(socket: &OwnedFd, wants_room: bool, timeout: Duration) -> io::Result<()> {
    let events = if wants_room { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
    let mut entry = [libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 }];
    poll(&mut entry, timeout).map(drop)
}

/// Frames that the kernel dropped since the last call, for lack of room.
pub(super) fn take_drops(socket: &OwnedFd) -> u64 {
    let statistics: io::Result<Statistics> =
        sockopt::get(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS);
    statistics.map_or(0, |statistics| statistics.drops.into())
}

/// Minimises the receive buffer of a socket that is never read.
pub(super) fn keep_small(socket: &UdpSocket) {
    // The kernel raises it to its minimum; a failure only wastes memory.
    let _ = sockopt::set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &1u32);
}

/// `struct tpacket_stats` of linux/if_packet.h; not in libc.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Statistics {
    packets: u32,
    drops: u32,
}

const _: () = assert!(size_of::<Statistics>() == 8 && offset_of!(Statistics, drops) == 4);

/// `struct sock_fprog`, with its padding.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct FilterProgram {
    len: u16,
    pad: [u16; size_of::<usize>() / 2 - 1],
    /// The address of the instructions.
    filter: usize,
}

same_layout!(FilterProgram = libc::sock_fprog { len = len, filter = filter });

/// Attaches a classic BPF socket filter.
fn attach_filter(socket: &OwnedFd, filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = FilterProgram {
        len: u16::try_from(filter.len()).map_err(|_| io::Error::from(ErrorKind::InvalidInput))?,
        pad: Zeroable::zeroed(),
        filter: filter.as_ptr().expose_provenance(),
    };
    let (level, value) = (libc::SOL_SOCKET, bytemuck::bytes_of(&program));
    // SAFETY: the address is that of `len` instructions, which are borrowed for the call; the
    // kernel copies them.
    unsafe { sockopt::set_with_addresses(socket, level, libc::SO_ATTACH_FILTER, value) }
}

fn empty_address() -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).expect("17"),
        sll_protocol: 0,
        sll_ifindex: 0,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

fn address_len() -> libc::socklen_t {
    len_of(&empty_address())
}

fn len_of<T>(value: &T) -> libc::socklen_t {
    libc::socklen_t::try_from(size_of_val(value)).expect("a small struct")
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

const fn load_half(at: u32) -> libc::sock_filter {
    libc::sock_filter { code: 0x28, jt: 0, jf: 0, k: at }
}

const fn load_byte(at: u32) -> libc::sock_filter {
    libc::sock_filter { code: 0x30, jt: 0, jf: 0, k: at }
}

/// Continues if equal, skips `otherwise` instructions if not.
const fn equals(k: u32, otherwise: u8) -> libc::sock_filter {
    libc::sock_filter { code: 0x15, jt: 0, jf: otherwise, k }
}

/// Skips `then` instructions if any of the bits is set, continues if none is.
const fn has_bits(k: u32, then: u8) -> libc::sock_filter {
    libc::sock_filter { code: 0x45, jt: then, jf: 0, k }
}

const fn ret(bytes: u32) -> libc::sock_filter {
    libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: bytes }
}

const UDP: u32 = 17;
const ROCE: u32 = STEER_PORT as u32;

/// The filter of the AF_XDP steering program (`af_xdp/src/steer.bpf.c`) in classic BPF, but for any
/// address: the kernel keeps its own copy of each frame, to route or bridge it.
const FILTER: [libc::sock_filter; 18] = [
    load_half(12),
    equals(0x0800, 9),   // not IPv4: try IPv6
    load_byte(14),       // version and header length
    equals(0x45, 13),    // options
    load_byte(23),       // protocol
    equals(UDP, 11),     //
    load_half(20),       // flags and offset
    has_bits(0x3fff, 9), // a fragment
    load_half(36),       // destination port
    equals(ROCE, 7),     //
    ret(u32::MAX),       //
    equals(0x86dd, 5),   // not IPv6 either
    load_byte(20),       // next header
    equals(UDP, 3),      //
    load_half(56),       // destination port
    equals(ROCE, 1),     //
    ret(u32::MAX),       //
    ret(0),              //
];

const ETH_P_ALL: u16 = 3;
/// Frames sent by this machine are not received; of linux/if_packet.h, since Linux 4.20.
const PACKET_IGNORE_OUTGOING: c_int = 23;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attach_filter__the_kernel_drops_what_does_not_match() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback exists");
        socket.set_nonblocking(true).expect("a valid option");
        let to = socket.local_addr().expect("bound");
        let fd = OwnedFd::from(socket.try_clone().expect("a descriptor"));
        let mut bytes = [0; 8];
        attach_filter(&fd, &[ret(0)]).expect("a valid program");
        socket.send_to(b"dropped", to).expect("sent");
        // Loopback delivers within the call that sends.
        let empty = socket.recv(&mut bytes).expect_err("dropped");
        assert_eq!(empty.kind(), ErrorKind::WouldBlock);
        attach_filter(&fd, &[ret(u32::MAX)]).expect("a valid program");
        socket.send_to(b"taken", to).expect("sent");
        assert_eq!(socket.recv(&mut bytes).expect("taken"), 5);
        let none = attach_filter(&fd, &[]).expect_err("no program");
        assert_eq!(none.raw_os_error(), Some(libc::EINVAL));
    }
}
