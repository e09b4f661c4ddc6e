//! Resolution of the next hop's IP address to its MAC address: lookup in the kernel's neighbour
//! table, triggering its probes.

use super::address::family;
use super::error::{NetError, NetErrorKind};
use super::link::LinkInfo;
use super::netlink::{Netlink, RequestError};
use super::route::reach;
use super::sys;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

impl Netlink {
    /// Waits until the kernel has the MAC address of `next_hop`, and triggers its probes.
    pub(super) fn neighbour_mac(
        &mut self,
        dst: IpAddr,
        next_hop: IpAddr,
        link: &LinkInfo,
        timeout: Duration,
    ) -> Result<[u8; 6], NetError> {
        let start = Instant::now();
        let mut pause = FIRST_PAUSE;
        let mut provoked: Option<Instant> = None;
        let mut unsent = None;
        loop {
            let neighbour = self.neighbour(next_hop, link.ifindex).map_err(|r| {
                r.during(format!("look up the neighbour {next_hop}")).on(link.name.as_str())
            })?;
            if let Some(mac) = neighbour.usable_mac() {
                return Ok(mac);
            }
            let now = Instant::now();
            if provoked.is_none_or(|at| now.duration_since(at) >= PROBE_INTERVAL) {
                // Continue after an error: the kernel also reports the failure of an earlier
                // attempt this way. It is reported if no reply arrives.
                unsent = send_probe(dst, link).err();
                provoked = Some(now);
            }
            let waited = now.duration_since(start);
            if waited >= timeout {
                return Err(no_reply(dst, next_hop, link, &neighbour, timeout, unsent));
            }
            thread::sleep(pause.min(timeout - waited));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// The kernel's neighbour entry; one without state if there is none.
    fn neighbour(&mut self, addr: IpAddr, ifindex: u32) -> Result<Neighbour, RequestError> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(&addr);
        message.header.ifindex = ifindex;
        let destination = NeighbourAttribute::Destination(NeighbourAddress::from(addr));
        message.attributes.push(destination);
        let answers = match self.request(0, RouteNetlinkMessage::GetNeighbour(message)) {
            Ok(answers) => answers,
            Err(r) if r.errno() == Some(libc::ENOENT) => return Ok(Neighbour::ABSENT),
            Err(r) => return Err(r),
        };
        match answers.first() {
            Some(RouteNetlinkMessage::NewNeighbour(message)) => Ok(neighbour_of(message)),
            _ => Err(RequestError::Unreadable("the reply is not a neighbour".to_owned())),
        }
    }
}

/// The kernel's entry of a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Neighbour {
    state: NeighbourState,
    mac: Option<[u8; 6]>,
}

impl Neighbour {
    const ABSENT: Self = Self { state: NeighbourState::None, mac: None };

    /// The MAC address, if the kernel itself would use it now.
    fn usable_mac(&self) -> Option<[u8; 6]> {
        match self.state {
            NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
            | NeighbourState::Noarp => self.mac.filter(|mac| *mac != [0; 6]),
            _ => None,
        }
    }
}

fn neighbour_of(message: &NeighbourMessage) -> Neighbour {
    let mac = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => <[u8; 6]>::try_from(bytes.as_slice()).ok(),
        _ => None,
    });
    Neighbour { state: message.header.state, mac }
}

/// Makes the kernel resolve the next hop by sending a datagram to it.
fn send_probe(dst: IpAddr, link: &LinkInfo) -> io::Result<()> {
    let any: IpAddr = match dst {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    sys::bind_to_device(socket.as_fd(), &link.name)?;
    socket.set_nonblocking(true)?;
    let to: SocketAddr = match dst {
        IpAddr::V4(addr) => (addr, DISCARD_PORT).into(),
        IpAddr::V6(addr) => SocketAddrV6::new(addr, DISCARD_PORT, 0, link.ifindex).into(),
    };
    socket.send_to(&[], to).map(drop)
}

fn no_reply(
    dst: IpAddr,
    next_hop: IpAddr,
    link: &LinkInfo,
    neighbour: &Neighbour,
    timeout: Duration,
    unsent: Option<io::Error>,
) -> NetError {
    let role = if dst == next_hop { "it" } else { "its gateway" };
    let mut detail = format!(
        "{role}, {next_hop}, has the neighbour state {} after {timeout:?}",
        neighbour.state
    );
    if let Some(error) = unsent {
        detail.push_str(&format!("; the probe failed: {error}"));
    }
    let error = NetError::new(NetErrorKind::NeighbourSilent, reach(dst))
        .on(link.name.as_str())
        .detail(detail);
    if link.running {
        error
    } else {
        error.advise("set the interface up and check its cable: it has no carrier")
    }
}

/// The discard port, which sends no reply (RFC 863).
const DISCARD_PORT: u16 = 9;

/// Time to the first lookup after the probe: on a local link the reply takes some 100 us.
const FIRST_PAUSE: Duration = Duration::from_micros(200);

/// The longest interval between lookups.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Interval between probes. The kernel gives up on a neighbour after some probes and then waits for
/// new traffic, as from a retrying application.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usable_mac__by_state() {
        let mac = Some([2, 0, 0, 0, 0, 1]);
        for state in [
            NeighbourState::Reachable,
            NeighbourState::Stale,
            NeighbourState::Delay,
            NeighbourState::Probe,
            NeighbourState::Permanent,
            NeighbourState::Noarp,
        ] {
            assert_eq!(Neighbour { state, mac }.usable_mac(), mac);
            let zero = Some([0; 6]);
            assert_eq!(Neighbour { state, mac: zero }.usable_mac(), None);
        }
        for state in [NeighbourState::None, NeighbourState::Incomplete, NeighbourState::Failed] {
            assert_eq!(Neighbour { state, mac }.usable_mac(), None);
        }
    }

    #[test]
    fn neighbour_of__mac_of_six_bytes_only() {
        let mut message = NeighbourMessage::default();
        message.header.state = NeighbourState::Stale;
        for length in [0, 5, 6, 20] {
            let bytes = vec![1; length];
            message.attributes = vec![NeighbourAttribute::LinkLayerAddress(bytes)];
            assert_eq!(neighbour_of(&message).mac.is_some(), length == 6);
        }
    }
}
