//! Busy polling on the receiver's core where the AF_XDP socket does not support it.
//!
//! On a veth the sender's core runs the receiver's half of the kernel work, unless the receiver
//! polls the interface's NAPI itself. An AF_XDP socket on veth cannot, because the kernel gives it
//! no NAPI id. A plain UDP socket on the same interface can, once it has received a packet and thus
//! the id. A `recv` with busy polling then runs the receive half on the caller's core, including
//! AF_XDP frames. This doubles the packet rate of a veth pair with a core a side.
//!
//! The id is that of the queue that the packet arrived on. On an interface with several queues that
//! may be another port's queue; polling then has no effect.

use af_xdp::sockopt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::Duration;

/// A UDP socket that only polls the interface's NAPI.
///
/// Two ends activate each other: each sends its [`SidePoll::local_port`] to its peer over an
/// existing channel, and [`greet`](SidePoll::greet)s the peer's port.
#[derive(Debug)]
pub struct SidePoll {
    socket: UdpSocket,
    local_port: u16,
}

impl SidePoll {
    /// Opens the socket on an address of the interface, at a port that the kernel selects. It
    /// receives only packets of that interface, so that it cannot poll another one.
    ///
    /// # Arguments
    /// - `local_ip`: an address of the interface; a link-local one is in its scope.
    /// - `ifindex`: the interface, in this thread's network namespace.
    ///
    /// # Errors
    /// The address is not local, there is no such interface, or busy polling is not supported.
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
        sockopt::set(&socket, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, &ifindex)?;
        let micros = u32::try_from(BUSY_POLL.as_micros()).expect("a few microseconds");
        sockopt::set(&socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &micros)?;
        let local_port = socket.local_addr()?.port();
        Ok(Self { socket, local_port })
    }

    /// The UDP port that the peer greets.
    #[must_use]
    pub fn local_port(&self) -> u16 {
        self.local_port
    }

    /// Sends a few small datagrams to the peer's side socket, which make it learn its NAPI id. They
    /// may be lost: repeat while the peer is not active.
    ///
    /// # Errors
    /// There is no route to the peer.
    pub fn greet(&self, peer: SocketAddr) -> io::Result<()> {
        for _ in 0..GREETINGS {
            match self.socket.send_to(b"spanwire", peer) {
                Ok(_) => {}
                // A full queue, or an ICMP error for an earlier greeting.
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

    /// True once the socket has learned its NAPI id from a packet.
    #[must_use]
    pub fn is_active(&self) -> bool {
        let id = sockopt::get(&self.socket, libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID);
        id.is_ok_and(|id: u32| id != 0)
    }

    /// Runs the interface's receive half once on this core, if the socket is active. Returns
    /// whether a datagram was received; its content is discarded.
    pub fn poll(&self) -> bool {
        // All errors (no datagram, or an ICMP error for a greeting) mean that nothing was received.
        self.socket.recv(&mut [0; 16]).is_ok()
    }
}

/// Any non-zero value will do: a non-blocking call polls once.
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
    fn bind__an_address_of_another_host_is_an_error() {
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
