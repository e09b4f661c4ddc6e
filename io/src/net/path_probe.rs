//! A test whether packets of a length reach a host, which needs no privilege and no service there:
//! the host reports a datagram to a closed port by ICMP.

use super::error::NetError;
use af_xdp::sockopt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

/// The lengths of IP packets that were tested on a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathProbe {
    /// The longest one arrives.
    Arrives,
    /// The longest one does not, and this is the longest tested one that does.
    Narrower(u32),
    /// Not even a short one is answered.
    Unanswered,
}

impl PathProbe {
    /// Tests the path to `peer` through interface `ifindex` with IP packets of at most `longest`
    /// bytes. Takes a few seconds at most.
    ///
    /// # Errors
    /// No socket, or no route.
    pub fn run(peer: IpAddr, ifindex: u32, longest: u32) -> Result<Self, NetError> {
        let wrap = |e: io::Error| NetError::from_io(format!("test the path to {peer}"), &e);
        let arrives = |bytes, attempts| probe(peer, ifindex, bytes, attempts).map_err(wrap);
        if !arrives(SHORT, ATTEMPTS)? {
            return Ok(Self::Unanswered);
        }
        if arrives(longest, ATTEMPTS)? {
            return Ok(Self::Arrives);
        }
        for bytes in COMMON.into_iter().filter(|bytes| *bytes < longest) {
            if arrives(bytes, 1)? {
                return Ok(Self::Narrower(bytes));
            }
        }
        Ok(Self::Narrower(SHORT))
    }
}

/// True if an IP packet of `bytes` to a closed port of `peer` is answered.
fn probe(peer: IpAddr, ifindex: u32, bytes: u32, attempts: u32) -> io::Result<bool> {
    let (any, headers, level, option, how): (IpAddr, _, _, _, _) = match peer {
        IpAddr::V4(_) => {
            let probe = libc::IP_PMTUDISC_PROBE;
            (Ipv4Addr::UNSPECIFIED.into(), 28, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, probe)
        }
        IpAddr::V6(_) => {
            let (option, probe) = (libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE);
            (Ipv6Addr::UNSPECIFIED.into(), 48, libc::IPPROTO_IPV6, option, probe)
        }
    };
    let payload = vec![0; usize::try_from(bytes.saturating_sub(headers)).unwrap_or(0)];
    for attempt in 0..attempts {
        let socket = UdpSocket::bind((any, 0))?;
        let fd = socket.as_fd();
        sockopt::set(fd, level, option, &how)?;
        sockopt::set(fd, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, &ifindex)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        let port = CLOSED_PORT + u16::try_from(attempt).unwrap_or(0);
        socket.connect(match peer {
            IpAddr::V4(v4) => SocketAddr::new(v4.into(), port),
            IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, ifindex).into(),
        })?;
        let answered = socket.send(&payload).and_then(|_| socket.recv(&mut [0; 1]));
        match answered {
            Ok(_) => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => return Ok(true),
            // A router's report, or that of this host, which may be forged or old.
            Err(e) if e.raw_os_error() == Some(libc::EMSGSIZE) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

/// An IP packet that every path carries.
const SHORT: u32 = 256;
/// Lengths of IP packets that paths commonly carry, longest first (RFC 1191 7.1): jumbo frames,
/// FDDI, Ethernet, PPPoE, tunnels, IPv6's least, older links.
const COMMON: [u32; 9] = [8966, 4352, 1500, 1492, 1420, 1400, 1280, 1006, 576];
/// Datagrams of one length, because some are lost.
const ATTEMPTS: u32 = 3;
/// Time for an answer.
const TIMEOUT: Duration = Duration::from_millis(500);
/// The first port of traceroute: closed on most hosts.
const CLOSED_PORT: u16 = 33_434;

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::super::{LabConfig, Netlink, TwoHosts};
    use super::*;

    #[test]
    fn run__finds_the_length_that_arrives() {
        if testing::lacks_privilege("run") {
            return;
        }
        let hosts = TwoHosts::anonymous(&LabConfig::default()).expect("privileged");
        let test = |to: IpAddr| {
            let run = || PathProbe::run(to, hosts.a.ifindex, 1500);
            hosts.a.ns.run(run).expect("privileged").expect("a route")
        };
        let peers: [IpAddr; 2] = [hosts.b.v4.into(), hosts.b.v6.into()];
        for to in peers {
            assert_eq!(test(to), PathProbe::Arrives, "{to}");
        }
        // veth drops frames longer than the peer's MTU.
        let mut netlink = Netlink::open_in(&hosts.b.ns).expect("privileged");
        netlink.set_mtu(&hosts.b.ifname, 1300).expect("privileged");
        for to in peers {
            assert_eq!(test(to), PathProbe::Narrower(1280), "{to}");
        }
    }
}
