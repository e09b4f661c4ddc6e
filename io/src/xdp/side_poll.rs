//! Receiving on one's own core where the AF_XDP socket cannot ask for it.
//!
//! On a veth the sender's core does the receiver's half of the kernel work, unless the receiver
//! polls the interface's NAPI itself. An AF_XDP socket on veth cannot: the kernel gives it no NAPI
//! id. A plain UDP socket on the same interface can, once one packet has told it the id: a
//! `recv` with busy polling then runs the receive half on the caller's core, AF_XDP frames
//! included. This doubles the packet rate of a veth pair with a core a side.
//!
//! The id is that of the queue the packet came by. On an interface with several queues that may be
//! another port's queue; polling then does no harm and no good.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// A UDP socket that is only there to poll the interface's NAPI.
///
/// Two ends make use of each other: each tells its peer [`SidePoll::local_port`] by whatever
/// channel they have, and [`greet`](SidePoll::greet)s the peer's.
#[derive(Debug)]
pub struct SidePoll {
    socket: UdpSocket,
    local_port: u16,
}

impl SidePoll {
    /// Opens the socket on an address of the interface, at a port the kernel chooses. Only packets
    /// that arrive by that interface reach it, so another one cannot divert the polling.
    ///
    /// # Arguments
    /// - `local_ip`: an address of the interface; a link-local one is taken in its scope.
    /// - `ifindex`: the interface, in this thread's network namespace.
    ///
    /// # Errors
    /// The address is not the machine's, there is no such interface, or busy polling is not to be
    /// had.
    pub fn bind(local_ip: IpAddr, ifindex: u32) -> io::Result<Self> {
        let address = match local_ip {
            IpAddr::V4(_) => SocketAddr::new(local_ip, 0),
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                SocketAddrV6::new(ip, 0, 0, ifindex).into()
            }
            IpAddr::V6(_) => SocketAddr::new(local_ip, 0),
        };
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        set_option(&socket, libc::SO_BINDTOIFINDEX, ifindex)?;
        let micros = u32::try_from(BUSY_POLL.as_micros()).expect("a few microseconds");
        set_option(&socket, libc::SO_BUSY_POLL, micros)?;
        let local_port = socket.local_addr()?.port();
        Ok(Self { socket, local_port })
    }

    /// The UDP port the peer is to greet.
    #[must_use]
    pub fn local_port(&self) -> u16 {
        self.local_port
    }

    /// Sends a few small datagrams to the peer's side socket, so that it learns its NAPI id. They
    /// may be lost: greet again while the peer is not active.
    ///
    /// # Errors
    /// There is no way to the peer.
    pub fn greet(&self, peer: SocketAddr) -> io::Result<()> {
        for _ in 0..GREETINGS {
            match self.socket.send_to(b"spanwire", peer) {
                Ok(_) => {}
                // A full queue, or word that an earlier greeting found nobody.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::ConnectionRefused
                    ) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether a packet has told the socket which NAPI to poll.
    #[must_use]
    pub fn is_active(&self) -> bool {
        napi_id(&self.socket) != 0
    }

    /// Runs the interface's receive half once on this core, if the socket is active. Returns
    /// whether a datagram was there; its bytes mean nothing and are gone.
    pub fn poll(&self) -> bool {
        // Errors (nothing there, or ICMP about a greeting) are all the same: nothing was received.
        self.socket.recv(&mut [0; 16]).is_ok()
    }
}

fn set_option(socket: &UdpSocket, name: libc::c_int, value: u32) -> io::Result<()> {
    let len = libc::socklen_t::try_from(size_of::<u32>()).expect("4");
    let value_ptr = std::ptr::from_ref(&value).cast();
    // SAFETY: the kernel reads the four bytes of `value`, which outlives the call.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, value_ptr, len) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn napi_id(socket: &UdpSocket) -> u32 {
    let mut id = 0u32;
    let mut len = libc::socklen_t::try_from(size_of::<u32>()).expect("4");
    let id_ptr = std::ptr::from_mut(&mut id).cast();
    // SAFETY: the kernel writes at most `len` bytes to `id`, which has as many.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_INCOMING_NAPI_ID,
            id_ptr,
            &raw mut len,
        )
    };
    if result < 0 { 0 } else { id }
}

/// Non-zero is what counts: a call that does not wait polls once, however long this is.
const BUSY_POLL: Duration = Duration::from_micros(20);
const GREETINGS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn bind__takes_a_port_and_is_not_active_before_a_packet() {
        let side = SidePoll::bind(Ipv4Addr::LOCALHOST.into(), 1).expect("loopback");
        assert_ne!(side.local_port(), 0);
        assert!(!side.is_active());
        assert!(!side.poll());
    }

    #[test]
    fn bind__an_address_of_somebody_else_is_an_error() {
        let elsewhere = Ipv4Addr::new(192, 0, 2, 1);
        assert!(SidePoll::bind(elsewhere.into(), 1).is_err());
    }

    #[test]
    fn greet__reaches_the_peers_socket() {
        let a = SidePoll::bind(Ipv4Addr::LOCALHOST.into(), 1).expect("loopback");
        let b = SidePoll::bind(Ipv4Addr::LOCALHOST.into(), 1).expect("loopback");
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), b.local_port());
        a.greet(address).expect("loopback is up");
        assert!(b.poll() && b.poll() && b.poll());
        assert!(!b.poll());
    }
}
