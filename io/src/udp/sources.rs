//! The sockets that send, one for each UDP source port.
//!
//! A source port is a path's entropy. A socket has one, so each entropy in use takes a socket, and
//! their number is limited.

use super::address::Address;
use super::config::{UdpConfig, UdpError};
use super::sys;
use af_xdp::sockopt;
use spanwire_base::{Dur, Rng, Time};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// The sockets that send.
#[derive(Debug)]
pub(super) struct Sources {
    ifname: String,
    local: Option<IpAddr>,
    /// The interface that sockets are bound to.
    device: Option<u32>,
    send_buffer: u32,
    /// Ports of the same process may use the same source ports.
    shares: bool,
    list: Vec<Source>,
    /// Ports that are not bound, and the source used instead.
    substitutes: [Option<(u16, bool, usize)>; SUBSTITUTES],
}

#[derive(Debug)]
struct Source {
    port: u16,
    is_v6: bool,
    socket: OwnedFd,
    used: Time,
    /// One of the first: never closed.
    stays: bool,
    /// It sends without DF, as [`Sources::set_fragments`] says.
    fragments: bool,
}

impl Sources {
    /// Binds the first source port, which is drawn from the preferred block; from 0xc000..=0xffff
    /// if its ports are taken.
    pub(super) fn open(config: &UdpConfig, device: Option<u32>) -> Result<Self, UdpError> {
        let mut this = Self {
            ifname: config.ifname.clone(),
            local: config.local,
            device,
            send_buffer: config.send_buffer,
            shares: config.group.is_some(),
            list: Vec::with_capacity(SOURCES_MAX),
            substitutes: [None; SUBSTITUTES],
        };
        let mut rng = Rng::new(config.seed);
        for attempt in 1.. {
            let (base, ports) = match attempt <= BLOCK_ATTEMPTS {
                true => (BLOCK_BASE, BLOCK_PORTS),
                false => (PORT_BASE, PORTS),
            };
            let port = base | u16::try_from(rng.below(ports.into())).expect("a u16");
            match this.open_first(port) {
                Ok(()) => break,
                Err(e) if e.kind() == io::ErrorKind::AddrInUse && attempt < ATTEMPTS => {}
                Err(source) => {
                    let what = format!("to send from port {port}");
                    return Err(UdpError::Socket { what, source });
                }
            }
        }
        Ok(this)
    }

    /// Sources that are given, as many as there may be: it binds no others.
    #[cfg(feature = "fuzzing")]
    pub(super) fn given(list: impl Iterator<Item = (u16, bool, OwnedFd)>) -> Self {
        let source = |(port, is_v6, socket)| Source::new(port, is_v6, socket, true);
        let list: Vec<Source> = list.map(source).collect();
        assert_eq!(list.len(), SOURCES_MAX);
        let (ifname, substitutes) = (String::new(), [None; SUBSTITUTES]);
        Self { ifname, local: None, device: None, send_buffer: 0, shares: false, list, substitutes }
    }

    /// The first source port.
    pub(super) fn first_port(&self) -> u16 {
        self.list.first().map_or(PORT_BASE, |source| source.port)
    }

    /// The source for packets from `port`: of that port, or a substitute if it cannot be bound.
    /// `None` if there is no source of that IP version.
    pub(super) fn find(&mut self, now: Time, port: u16, is_v6: bool) -> Option<usize> {
        let found = self.list.iter().position(|s| (s.port, s.is_v6) == (port, is_v6));
        let index = match found {
            Some(index) => index,
            None => self.find_substitute(now, port, is_v6)?,
        };
        self.list[index].used = now;
        Some(index)
    }

    pub(super) fn port(&self, index: usize) -> u16 {
        self.list[index].port
    }

    pub(super) fn socket(&self, index: usize) -> &OwnedFd {
        &self.list[index].socket
    }

    /// Lets datagrams of a source be fragmented, or not.
    pub(super) fn set_fragments(&mut self, index: usize, fragments: bool) {
        let source = &mut self.list[index];
        if source.fragments != fragments {
            // Both options exist in every kernel that the port runs on. If one failed, the kernel
            // would refuse what is too long, as before.
            let _ = set_fragments(&source.socket, source.is_v6, fragments);
            source.fragments = fragments;
        }
    }

    /// An error if the interface was removed.
    pub(super) fn check_device(&self) -> io::Result<()> {
        let Some(first) = self.list.first().filter(|_| self.device.is_some()) else {
            return Ok(());
        };
        let name: io::Result<[u8; 16]> =
            sockopt::get(&first.socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE);
        match name {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => {
                let text = format!("interface {} is gone: {e}", self.ifname);
                Err(io::Error::new(e.kind(), text))
            }
            _ => Ok(()),
        }
    }

    fn find_substitute(&mut self, now: Time, port: u16, is_v6: bool) -> Option<usize> {
        let slot = usize::from(port) % SUBSTITUTES;
        match self.substitutes[slot] {
            Some((known, known_v6, index)) if (known, known_v6) == (port, is_v6) => {
                return Some(index);
            }
            _ => {}
        }
        let place = self.place_for_new(now);
        let bound = place.and_then(|place| Some((place, self.bind(port, is_v6).ok()?)));
        if let Some((place, socket)) = bound {
            let source = Source::new(port, is_v6, socket, false);
            match self.list.get_mut(place) {
                Some(old) => *old = source,
                None => self.list.push(source),
            }
            self.substitutes = [None; SUBSTITUTES];
            return Some(place);
        }
        let of_version = || self.list.iter().enumerate().filter(|(_, s)| s.is_v6 == is_v6);
        let count = of_version().count();
        let nth = usize::from(port).checked_rem(count)?;
        let (index, _) = of_version().nth(nth)?;
        self.substitutes[slot] = Some((port, is_v6, index));
        Some(index)
    }

    /// Where a new source may go: the end of the list, or in place of one that is idle.
    fn place_for_new(&self, now: Time) -> Option<usize> {
        if self.list.len() < SOURCES_MAX {
            return Some(self.list.len());
        }
        let idle = self.list.iter().enumerate().filter(|(_, s)| !s.stays);
        let (index, oldest) = idle.min_by_key(|(_, s)| s.used)?;
        (now.since(oldest.used) >= IDLE).then_some(index)
    }

    fn open_first(&mut self, port: u16) -> io::Result<()> {
        let mut opened = Vec::new();
        for is_v6 in [false, true] {
            if self.local.is_some_and(|ip| ip.is_ipv6() != is_v6) {
                continue;
            }
            match self.bind(port, is_v6) {
                Ok(socket) => {
                    opened.push(Source::new(port, is_v6, socket, true));
                }
                // A machine without IPv6.
                Err(e) if is_v6 && !opened.is_empty() && is_without_family(&e) => {}
                Err(e) => return Err(e),
            }
        }
        self.list.append(&mut opened);
        Ok(())
    }

    fn bind(&self, port: u16, is_v6: bool) -> io::Result<OwnedFd> {
        if self.local.is_some_and(|ip| ip.is_ipv6() != is_v6) {
            return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
        }
        let socket = sys::open(is_v6)?;
        let any = match is_v6 {
            false => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            true => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let local = self.local.unwrap_or(any);
        if let Some(ifindex) = self.device {
            sockopt::set(&socket, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, &ifindex)?;
        }
        if is_v6 {
            sockopt::set(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1u32)?;
        }
        set_fragments(&socket, is_v6, false)?;
        request_buffer(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, self.send_buffer)?;
        // Nothing is received here; what a stranger sends must not take memory.
        sockopt::set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &1u32)?;
        if self.shares {
            super::group::share(&socket)?;
        }
        sys::bind(&socket, &Address::new(scoped(local, port, self.device)))?;
        Ok(socket)
    }
}

impl Source {
    fn new(port: u16, is_v6: bool, socket: OwnedFd, stays: bool) -> Self {
        Self { port, is_v6, socket, used: Time::ZERO, stays, fragments: false }
    }
}

/// Lets datagrams of a socket be fragmented, or not.
///
/// Without fragments: DF, and for unconnected sockets an identification that starts at 0 in each
/// call. The limit is the interface's MTU: an ICMP message, which may be forged, has no effect.
///
/// With fragments: no DF, so that routers may fragment over IPv4. Over IPv6 only this host may: to
/// the interface's MTU or the path MTU that it has learned from ICMP, which can only make fragments
/// shorter here. The receiver's port writes headers with DF and identification 0 whatever was sent,
/// so the checksum that covers them is the same.
fn set_fragments(socket: &OwnedFd, is_v6: bool, fragments: bool) -> io::Result<()> {
    let (level, option, how) = match (is_v6, fragments) {
        (false, true) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, IP_PMTUDISC_OMIT),
        (false, false) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
        (true, true) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT),
        (true, false) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
    };
    sockopt::set(socket, level, option, &how)
}

/// Sets a buffer's size: beyond the system's limit if this process may, else up to it.
pub(super) fn request_buffer(
    socket: &OwnedFd,
    force: libc::c_int,
    ask: libc::c_int,
    bytes: u32,
) -> io::Result<()> {
    sockopt::set(socket, libc::SOL_SOCKET, force, &bytes)
        .or_else(|_| sockopt::set(socket, libc::SOL_SOCKET, ask, &bytes))
}

/// A socket address, with the interface as the scope of a link-local one.
pub(super) fn scoped(ip: IpAddr, port: u16, device: Option<u32>) -> SocketAddr {
    match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            std::net::SocketAddrV6::new(v6, port, 0, device.unwrap_or(0)).into()
        }
        _ => SocketAddr::new(ip, port),
    }
}

pub(super) fn is_without_family(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::EAFNOSUPPORT) || e.kind() == io::ErrorKind::AddrNotAvailable
}

/// No DF, and fragments of the interface's MTU whatever path MTU the kernel has learned.
const IP_PMTUDISC_OMIT: libc::c_int = 5;
/// The preferred source ports, one for each queue pair or shared by some: as many paths as load
/// balancers commonly use, and few descriptors. They are above the ports that Linux gives to other
/// sockets by default, up to 60,999.
pub(super) const BLOCK_PORTS: u16 = 16;
const BLOCK_BASE: u16 = 0xfff0;
/// Sources of both IP versions: the block of one, and the first port of the other.
pub(super) const SOURCES_MAX: usize = 17;
/// Remembered ports without a socket; a power of two.
const SUBSTITUTES: usize = 64;
/// Ports tried for the first source, and those of them in the block.
const ATTEMPTS: u32 = 128;
const BLOCK_ATTEMPTS: u32 = 64;
/// Time without a packet after which another port may take a source's place: longer than a load
/// balancer takes to return to a path, and so long that binding sockets costs little.
const IDLE: Dur = Dur::from_ms(10);
/// Source ports of RoCEv2: 0xc000..=0xffff.
const PORT_BASE: u16 = 0xc000;
const PORTS: u16 = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn open(seed: u64) -> Sources {
        let local = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let config = UdpConfig { local, seed, ..UdpConfig::new("lo") };
        Sources::open(&config, None).expect("a port is free")
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Dur::from_secs(seconds)
    }

    #[test]
    fn open__avoids_ports_that_are_taken() {
        let first = open(7);
        let second = open(7);
        assert!(first.first_port() >= PORT_BASE && second.first_port() >= PORT_BASE);
        assert_ne!(first.first_port(), second.first_port());
    }

    #[test]
    fn open__leaves_room_for_all_ports_of_the_block() {
        let local = Some(IpAddr::V4(Ipv4Addr::new(127, 83, 7, 1)));
        for local in [None, local] {
            let config = UdpConfig { local, seed: 3, ..UdpConfig::new("lo") };
            let mut sources = Sources::open(&config, None).expect("a port is free");
            assert!(sources.first_port() >= BLOCK_BASE);
            let ip = local.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            for port in BLOCK_BASE..=u16::MAX {
                let index = sources.find(at(1), port, false).expect("a source");
                // Another process may have the port.
                let is_taken = || UdpSocket::bind((ip, port)).is_err();
                assert!(sources.port(index) == port || is_taken(), "{port:#x}");
            }
        }
    }

    #[test]
    fn find__binds_as_many_ports_as_allowed_and_then_substitutes() {
        let mut sources = open(9);
        let first = sources.first_port();
        let mut exact = 0;
        let wanted: Vec<u16> = (1..=40).map(|n| PORT_BASE | (first.wrapping_add(n * 97))).collect();
        for port in &wanted {
            let index = sources.find(at(1), *port, false).expect("a source");
            exact += usize::from(sources.port(index) == *port);
        }
        assert_eq!(sources.list.len(), SOURCES_MAX);
        assert!(exact <= SOURCES_MAX, "{exact}");
        let again = sources.find(at(1), wanted[39], false).expect("a source");
        assert_eq!(sources.find(at(1), wanted[39], false), Some(again), "the same substitute");
        assert_eq!(sources.find(at(1), first, false), Some(0));
        assert_eq!(sources.find(at(1), first, true), None, "no source of that version");
    }

    #[test]
    fn find__replaces_an_idle_source_but_not_the_first() {
        let mut sources = open(11);
        let first = sources.first_port();
        let ports: Vec<u16> = (1..=60).map(|n| PORT_BASE | (first.wrapping_add(n * 31))).collect();
        for port in &ports[..40] {
            sources.find(at(1), *port, false).expect("a source");
        }
        let new = ports[40..].iter().filter(|port| {
            let index = sources.find(at(3), **port, false).expect("a source");
            sources.port(index) == **port
        });
        assert!(new.count() > 0, "one of twenty ports is free");
        assert_eq!((sources.list.len(), sources.first_port()), (SOURCES_MAX, first));
    }
}
