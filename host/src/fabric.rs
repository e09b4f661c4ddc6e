//! The fabric that a worker is attached to: an AF_XDP port or UDP sockets on an interface, or one
//! end of a pipe, optionally wrapped in emulated faults or a packet capture.

mod choice;
mod link;
mod packet_sizes;
mod udp;
mod workers;

pub use choice::FabricChoice;
pub use link::{Link, counters, link_of_inner, sum_counters};
pub use packet_sizes::PacketSizes;

use crate::modes::ModeChoice;
use serde::Serialize;
use spanwire_base::u32_from;
use spanwire_io::clock::Clock;
use spanwire_io::fault::{FaultConfig, FaultPort};
use spanwire_io::net::{LinkInfo, Netlink, resolve};
use spanwire_io::pcap::{CaptureError, PcapPort, PcapWriter};
use spanwire_io::pipe::{PipeConfig, PipePort, pipe};
use spanwire_io::port::Port;
use spanwire_io::xdp::{XdpConfig, XdpPreference};
use spanwire_transport::{AddressVector, Config, Mtu, Offer, SourcePort};
use spanwire_wire::MacAddr;
use std::net::IpAddr;
use std::ops::Deref;
use std::path::PathBuf;

/// Optional wrappers of a port.
#[derive(Clone, Debug, Default)]
pub struct Wrap {
    /// Faults on the receive side.
    pub faults: Option<FaultConfig>,
    /// A capture of both directions.
    pub pcap: Option<PathBuf>,
}

/// The kind of fabric, for reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fabric {
    /// AF_XDP sockets.
    AfXdp,
    /// UDP sockets of the kernel.
    Udp,
    /// Two ports back to back in one process.
    Pipe,
}

impl Fabric {
    /// "af_xdp", "udp" or "pipe", as in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AfXdp => "af_xdp",
            Self::Udp => "udp",
            Self::Pipe => "pipe",
        }
    }
}

/// The attachment of a worker.
pub struct Attachment {
    /// The port with its wrappers.
    pub port: Box<dyn Link + Send>,
    /// All that others than its driver need.
    pub terms: Terms,
}

/// Facts about an attachment, for those that do not have its port.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The clock of port and engine, which also stamps the capture.
    pub clock: Clock,
    /// The kind of fabric.
    pub fabric: Fabric,
    /// Why it is not AF_XDP, if [`FabricChoice::Auto`] decided so.
    pub fallback: Option<String>,
    /// AF_XDP's mode.
    pub xdp_mode: Option<&'static str>,
    /// Largest path MTU.
    pub path_mtu: Mtu,
    /// The receive buffer of UDP sockets in bytes, as the kernel grants it: its own overhead
    /// included.
    pub receive_buffer: Option<u32>,
    /// Bytes of the longest IP packet that fits both the link and one buffer of the port.
    pub ip_bytes: u32,
    /// The error of the capture in [`Wrap::pcap`], which also outlives the port.
    pub capture: Option<CaptureError>,
    /// The adapter chooses the queue of a packet by a hash of addresses and ports (RSS).
    pub rss: bool,
    /// SR packets are offered with an ICRC only.
    icrc: bool,
    /// The index of the interface.
    ifindex: Option<u32>,
    resolver: HopResolver,
}

/// How the next hop to a peer is resolved.
#[derive(Clone, Copy, Debug)]
pub enum HopResolver {
    /// By the kernel's route and neighbour tables, through this interface.
    Kernel {
        /// The interface's index.
        ifindex: u32,
    },
    /// By the kernel for each packet that a UDP socket sends; only the route is checked.
    Socket {
        /// The address that sockets are bound to.
        local: Option<IpAddr>,
        /// The interface that they are bound to.
        device: Option<u32>,
        /// The UDP source ports to send from.
        src_port: SourcePort,
    },
    /// The one peer at the other end of a pipe.
    Direct {
        /// Our MAC address.
        us: MacAddr,
        /// The peer's.
        peer: MacAddr,
    },
}

/// Both MAC addresses and the hop limit of a path, and its source port.
#[derive(Clone, Copy, Debug)]
pub struct Hop {
    /// Ours.
    pub src_mac: MacAddr,
    /// The next hop's.
    pub dst_mac: MacAddr,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// The UDP source port of packets.
    pub udp_src_port: SourcePort,
}

/// An error for users: what failed, where, and what to do.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

impl Deref for Attachment {
    type Target = Terms;

    fn deref(&self) -> &Terms {
        &self.terms
    }
}

impl Attachment {
    /// Offers SR packets without an ICRC, which a peer must offer, too.
    ///
    /// # Errors
    /// The fabric is not UDP sockets: only there the kernel's checksum protects the packets.
    pub fn without_icrc(self) -> Result<Self, Error> {
        match self.fabric {
            Fabric::Udp => Ok(Self { terms: Terms { icrc: false, ..self.terms }, ..self }),
            other => Err(format!(
                "packets without an ICRC need UDP sockets (--fabric udp), whose checksum protects \
                 them; this is {}",
                other.as_str()
            )
            .into()),
        }
    }

    /// Attaches to queue `queue` of interface `ifname` by AF_XDP, in the network namespace of the
    /// calling thread.
    ///
    /// # Errors
    /// No such interface, no privilege, the queue is taken, or the capture cannot be written.
    pub fn xdp(
        ifname: &str,
        queue: u32,
        preference: XdpPreference,
        wrap: &Wrap,
    ) -> Result<Self, Error> {
        Self::xdp_with(&XdpConfig { queue, preference, ..XdpConfig::new(ifname) }, wrap)
    }

    /// As [`Attachment::xdp`], with explicit ring sizes.
    ///
    /// # Errors
    /// As [`Attachment::xdp`], and invalid ring sizes.
    pub fn xdp_with(config: &XdpConfig, wrap: &Wrap) -> Result<Self, Error> {
        let mut ports = Self::xdp_workers(config, wrap, 1)?;
        Ok(ports.pop().expect("one worker has one"))
    }

    /// Two ends of a pipe inside this process.
    ///
    /// # Errors
    /// The capture cannot be written.
    pub fn pipe(wraps: [&Wrap; 2]) -> Result<(Self, Self), Error> {
        let (a, b) = pipe(PipeConfig::default());
        let macs = [1, 2].map(|n| MacAddr::new([2, 0x53, 0x57, 0, 0, n]));
        let end = |port: PipePort, wrap, us, peer| -> Result<Self, Error> {
            let path_mtu = widest(u32::MAX, port.frame_room()).expect("a pipe carries 4096");
            let ip_bytes = ip_room(port.frame_room());
            let clock = Clock::start();
            let (port, capture) = around(port, wrap, clock)?;
            let resolver = HopResolver::Direct { us, peer };
            let (fabric, xdp_mode) = (Fabric::Pipe, None);
            let terms = Terms {
                clock,
                fabric,
                fallback: None,
                xdp_mode,
                path_mtu,
                receive_buffer: None,
                ip_bytes,
                capture,
                rss: false,
                icrc: true,
                ifindex: None,
                resolver,
            };
            Ok(Self { port, terms })
        };
        Ok((end(a, wraps[0], macs[0], macs[1])?, end(b, wraps[1], macs[1], macs[0])?))
    }
}

impl Terms {
    /// The offer to a peer of an end at address `ip` with the engine configuration `config`, of the
    /// wire modes that `mode` permits, with IP packets of `ip_bytes` and at most
    /// `segment_bytes_max` in an SR packet.
    #[must_use]
    pub fn offer(
        &self,
        mode: ModeChoice,
        config: &Config,
        (ip, ip_bytes): (IpAddr, u32),
        segment_bytes_max: u32,
    ) -> Offer {
        let offer = mode.offer(config, ip_bytes, ip, segment_bytes_max);
        if self.icrc { offer } else { offer.without_icrc() }
    }

    /// SR packets have an ICRC, whatever the peer offers.
    #[must_use]
    pub fn has_icrc(&self) -> bool {
        self.icrc
    }

    /// AF_XDP's mode, or the name of the fabric: for lines on the terminal.
    #[must_use]
    pub fn mode_name(&self) -> &'static str {
        self.xdp_mode.unwrap_or(self.fabric.as_str())
    }

    /// Packets that were sent as fragments arrive, and the port restores their headers: over UDP
    /// sockets.
    #[must_use]
    pub fn takes_fragments(&self) -> bool {
        self.fabric == Fabric::Udp
    }

    /// The largest packets, of which those to a peer may be smaller.
    #[must_use]
    pub fn packet_sizes(&self) -> PacketSizes {
        PacketSizes { ip_bytes: self.ip_bytes, path_mtu: self.path_mtu, ifindex: self.ifindex }
    }

    /// Resolves the next hop to `peer`.
    ///
    /// # Errors
    /// No route through this interface, or no neighbour answers.
    pub fn hop(&self, peer: IpAddr) -> Result<Hop, Error> {
        self.resolver.hop(peer)
    }

    /// The resolver of next hops, for threads other than the port's.
    #[must_use]
    pub fn hop_resolver(&self) -> HopResolver {
        self.resolver
    }
}

impl Hop {
    /// The address vector of packets from `src_ip` to `dst_ip` by this hop.
    #[must_use]
    pub fn address_vector(
        &self,
        src_ip: IpAddr,
        dst_ip: IpAddr,
        traffic_class: u8,
    ) -> AddressVector {
        let Self { src_mac, dst_mac, hop_limit, udp_src_port } = *self;
        let common = AddressVector::new(src_mac, dst_mac, src_ip, dst_ip);
        AddressVector { udp_src_port, traffic_class, hop_limit, ..common }
    }
}

impl HopResolver {
    /// Resolves the next hop to `peer`. May wait for neighbour discovery.
    ///
    /// # Errors
    /// No route through this interface, or no neighbour answers.
    pub fn hop(self, peer: IpAddr) -> Result<Hop, Error> {
        match self {
            Self::Direct { us, peer } => {
                let udp_src_port = SourcePort::Derived;
                Ok(Hop { src_mac: us, dst_mac: peer, hop_limit: HOP_LIMIT, udp_src_port })
            }
            Self::Socket { local, device, src_port } => {
                Netlink::open()?.check_route(peer, local, device)?;
                // No Ethernet header leaves a socket.
                let none = MacAddr::new([0; 6]);
                let hop_limit = HOP_LIMIT;
                Ok(Hop { src_mac: none, dst_mac: none, hop_limit, udp_src_port: src_port })
            }
            Self::Kernel { ifindex } => {
                let next = resolve(peer, Some(ifindex))?;
                Ok(Hop {
                    src_mac: MacAddr::new(next.src_mac),
                    dst_mac: MacAddr::new(next.dst_mac),
                    hop_limit: next.hop_limit.unwrap_or(HOP_LIMIT),
                    udp_src_port: SourcePort::Derived,
                })
            }
        }
    }
}

/// The interface, or an error that lists the existing ones.
///
/// # Errors
/// There is no such interface.
pub fn interface(ifname: &str) -> Result<LinkInfo, Error> {
    let mut netlink = Netlink::open()?;
    netlink.link(ifname).map_err(|e| {
        let names: Vec<String> = netlink
            .links()
            .map(|links| links.into_iter().map(|l| l.name).collect())
            .unwrap_or_default();
        format!("{e} (interfaces here: {})", names.join(", ")).into()
    })
}

/// The largest path MTU whose packets fit both the link and one buffer of the port.
fn widest(link_mtu: u32, frame_room: usize) -> Option<Mtu> {
    let fits = |m: &Mtu| m.max_frame_bytes() as usize <= frame_room;
    let link = Mtu::for_link(link_mtu)?;
    Mtu::ALL.into_iter().rev().filter(|m| *m <= link).find(fits)
}

/// Bytes that a frame of `frame_room` bytes leaves for IP.
fn ip_room(frame_room: usize) -> u32 {
    u32_from(frame_room.saturating_sub(ETHERNET_BYTES))
}

fn around<P: Link + Send + 'static>(
    port: P,
    wrap: &Wrap,
    clock: Clock,
) -> Result<(Box<dyn Link + Send>, Option<CaptureError>), Error> {
    let port: Box<dyn Link + Send> = match &wrap.faults {
        Some(faults) => Box::new(FaultPort::new(port, *faults)?),
        None => Box::new(port),
    };
    let Some(path) = &wrap.pcap else {
        return Ok((port, None));
    };
    let writer = PcapWriter::create(path, clock.wall_start())
        .map_err(|e| format!("{}: cannot write the capture: {e}", path.display()))?;
    let port = PcapPort::new(port, writer);
    let error = port.capture_error();
    Ok((Box::new(port), Some(error)))
}

/// The Ethernet header, without tags.
const ETHERNET_BYTES: usize = 14;

/// Default hop limit of RoCE packets on Linux, unless the route sets one.
const HOP_LIMIT: u8 = 64;
