//! Attributes of queue pairs: those of creation and those of `modify_qp`.

mod attributes;
mod congestion;
mod wire;

pub(crate) use attributes::Attr;
pub use attributes::QpAttr;
pub use congestion::{CongestionControl, Preset};
pub use wire::{Balance, SrOptions, Wire, WireMode};

use crate::cq::CqId;
use crate::ids::SrqId;
use crate::mr::PdId;
use spanwire_wire::{EthernetRepr, IpRepr, MacAddr, Template};
use std::net::IpAddr;

/// The type of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Service {
    /// Reliable connection: with one peer, whose acknowledgements complete the requests, over
    /// either [`Wire`].
    #[default]
    Rc,
}

/// The attributes of `create_qp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInit {
    /// The type, which determines the operations and the attributes of each transition.
    pub service: Service,
    /// Protection domain of the queue pair and all memory it uses.
    pub pd: PdId,
    /// Completion queue of the send queue.
    pub send_cq: CqId,
    /// Completion queue of the receive queue; may be the same.
    pub recv_cq: CqId,
    /// Sizes of the queues.
    pub caps: QpCaps,
    /// Shared receive queue in place of an own one; `max_recv_wr` and `max_recv_sge` are ignored
    /// then.
    pub srq: Option<SrqId>,
    /// A send request keeps its place in the queue until its completion, or that of a later one, is
    /// polled, as libibverbs has it: a completion queue with an entry for each place of its queue
    /// pairs never overruns. False by default: its place is free when it completes.
    pub places_until_polled: bool,
}

/// Sizes of a queue pair's queues. A queue of no requests is always full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpCaps {
    /// Send work requests, 0..=`Config::max_wr`.
    pub max_send_wr: u32,
    /// Receive requests, 0..=`Config::max_wr`.
    pub max_recv_wr: u32,
    /// SGEs of a send work request, 0..=16.
    pub max_send_sge: u32,
    /// SGEs of a receive request, 0..=16.
    pub max_recv_sge: u32,
    /// Inline bytes of a send work request, 0..=1024; that many are allocated for each.
    pub max_inline_data: u32,
}

/// The path to the peer: the headers below the BTH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressVector {
    /// Source MAC address.
    pub src_mac: MacAddr,
    /// The next hop's MAC address, from the kernel's neighbour table.
    pub dst_mac: MacAddr,
    /// Source address. Packets from the peer must be addressed to it.
    pub src_ip: IpAddr,
    /// The peer's address, of the same IP version. Packets from other sources are dropped.
    pub dst_ip: IpAddr,
    /// UDP source port: the path's entropy.
    pub udp_src_port: SourcePort,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
    /// The peer receives packets that were sent as fragments, and restores the headers that the
    /// ICRC covers: its port is on sockets ([`Config::fragments`](crate::Config::fragments)).
    pub takes_fragments: bool,
}

/// The UDP source port of a queue pair's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SourcePort {
    /// Derived from both QPNs as Linux does, so that both ends use the same one.
    #[default]
    Derived,
    /// This one.
    Fixed(u16),
    /// One of `count` (at least 1) by our QPN, for ports of the operating system that are few: of
    /// the block that begins at a multiple of `count` and holds `first`, which is that of QPN 0. As
    /// many consecutive queue pairs of an endpoint have as many ports.
    Among {
        /// The port of QPN 0.
        first: u16,
        /// The number of ports.
        count: u16,
    },
}

impl SourcePort {
    /// Part `index` of `parts` of the block of [`SourcePort::Among`], such that other parts have
    /// other ports. If there are more parts than ports, some share one. The other choices as they
    /// are.
    #[must_use]
    pub fn part(self, index: u32, parts: u32) -> Self {
        let Self::Among { first, count } = self else { return self };
        let parts = u16::try_from(parts.next_power_of_two()).unwrap_or(u16::MAX);
        let own = (count / parts.max(1)).max(1);
        let place = u16::try_from(index % u32::from(count.max(1) / own).max(1)).unwrap_or(0);
        let base = first - first % count.max(1);
        Self::Among { first: base + place * own + first % own, count: own }
    }
}

/// An InfiniBand path MTU: payload bytes of a full packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mtu {
    /// 256 bytes.
    B256,
    /// 512 bytes.
    B512,
    /// 1024 bytes: the largest on Ethernet of MTU 1500.
    B1024,
    /// 2048 bytes: the largest in one AF_XDP chunk.
    B2048,
    /// 4096 bytes.
    B4096,
}

impl Mtu {
    /// All path MTUs, ascending.
    pub const ALL: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// Payload bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::B256 => 256,
            Self::B512 => 512,
            Self::B1024 => 1024,
            Self::B2048 => 2048,
            Self::B4096 => 4096,
        }
    }

    /// The path MTU of exactly this many payload bytes.
    #[must_use]
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.bytes() == bytes)
    }

    /// The largest path MTU whose packets fit an interface of `link_mtu` bytes (what IP may fill),
    /// or `None` below 336.
    ///
    /// # Source
    /// The headers and the ICRC of the longest RoCEv2 packet take 80 bytes: IPv6 40, UDP 8, BTH 12,
    /// RETH 16, ICRC 4. Linux reserves the same (1500 gives 1024; seen on rxe).
    #[must_use]
    pub fn for_link(link_mtu: u32) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|m| m.bytes() + HEADERS_MAX_BYTES <= link_mtu)
    }

    /// The longest Ethernet frame (without FCS) of a packet at this MTU.
    #[must_use]
    pub const fn max_frame_bytes(self) -> u32 {
        14 + HEADERS_MAX_BYTES + IMM_BYTES + self.bytes()
    }
}

impl AddressVector {
    /// The path between these addresses with common values: traffic class 0, 64 hops, and the UDP
    /// source port of both QPNs.
    #[must_use]
    pub fn new(src_mac: MacAddr, dst_mac: MacAddr, src_ip: IpAddr, dst_ip: IpAddr) -> Self {
        let (udp_src_port, traffic_class, hop_limit) = (SourcePort::Derived, 0, 64);
        Self {
            src_mac,
            dst_mac,
            src_ip,
            dst_ip,
            udp_src_port,
            traffic_class,
            hop_limit,
            takes_fragments: false,
        }
    }

    /// The outer headers of packets by this path, with this source port; `None` when the addresses
    /// are of two IP versions.
    #[must_use]
    pub fn template(&self, src_port: u16) -> Option<Template> {
        Some(Template::new(self.ethernet(), self.ip()?, src_port))
    }

    fn ethernet(&self) -> EthernetRepr {
        let v4 = self.src_ip.is_ipv4();
        let ethertype = if v4 { EthernetRepr::IPV4 } else { EthernetRepr::IPV6 };
        EthernetRepr { dst: self.dst_mac, src: self.src_mac, ethertype }
    }

    /// The IP header, or `None` when the addresses are of two versions.
    fn ip(&self) -> Option<IpRepr> {
        let mut ip = IpRepr::new(self.src_ip, self.dst_ip)?;
        ip.set_dscp_ecn(self.traffic_class);
        match &mut ip {
            IpRepr::V4(v4) => v4.ttl = self.hop_limit,
            IpRepr::V6(v6) => v6.hop_limit = self.hop_limit,
        }
        Some(ip)
    }
}

impl Default for QpCaps {
    /// 128 requests each way with one SGE each, nothing inline.
    fn default() -> Self {
        Self {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        }
    }
}

impl QpInit {
    /// A reliable connection with a receive queue of its own.
    #[must_use]
    pub fn new(pd: PdId, send_cq: CqId, recv_cq: CqId, caps: QpCaps) -> Self {
        let (service, srq, places_until_polled) = (Service::Rc, None, false);
        Self { service, pd, send_cq, recv_cq, caps, srq, places_until_polled }
    }
}

/// IPv6, UDP, BTH, RETH and ICRC.
const HEADERS_MAX_BYTES: u32 = 40 + 8 + 12 + 16 + 4;
/// A WRITE Only with immediate has four more; Linux does not reserve them either.
const IMM_BYTES: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_link__matches_what_linux_chooses() {
        assert_eq!(Mtu::for_link(1500), Some(Mtu::B1024));
        assert_eq!(Mtu::for_link(4176), Some(Mtu::B4096));
        assert_eq!(Mtu::for_link(4175), Some(Mtu::B2048));
        assert_eq!(Mtu::for_link(336), Some(Mtu::B256));
        assert_eq!(Mtu::for_link(335), None);
    }

    #[test]
    fn from_bytes__inverts_bytes() {
        for m in Mtu::ALL {
            assert_eq!(Mtu::from_bytes(m.bytes()), Some(m));
        }
        assert_eq!(Mtu::from_bytes(1500), None);
    }
}
