//! Attributes of queue pairs: those of creation and those of `modify_qp`.

mod congestion;

pub use congestion::{CongestionControl, Preset};

use crate::coding::ErasureCoding;
use crate::cq::CqId;
use crate::ids::SrqId;
use crate::mr::{Access, PdId};
use crate::qp::state::QpState;
use spanwire_loadbalance::Choice;
use spanwire_wire::{EthernetRepr, IpRepr, MacAddr, Psn, Qpn};
use std::net::IpAddr;

/// The attributes of `create_qp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInit {
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
}

/// Sizes of a queue pair's queues. A zero receive queue is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpCaps {
    /// Send work requests, 1..=`Config::max_wr`.
    pub max_send_wr: u32,
    /// Receive requests, 0..=`Config::max_wr`.
    pub max_recv_wr: u32,
    /// SGEs of a send work request, 1..=16.
    pub max_send_sge: u32,
    /// SGEs of a receive request, 1..=16.
    pub max_recv_sge: u32,
    /// Inline bytes of a send work request, 0..=1024; that many are allocated for each.
    pub max_inline_data: u32,
}

/// The attributes that `modify_qp` sets; `None` keeps one. The table in `qp/transitions.rs` has
/// those of each transition, as in `ibv_modify_qp(3)`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct QpAttr {
    /// Next state.
    pub state: Option<QpState>,
    /// The peer's access rights to our memory through this queue pair.
    pub access: Option<Access>,
    /// Path MTU, the payload of every packet but a message's last.
    pub path_mtu: Option<Mtu>,
    /// The peer's queue pair.
    pub dest_qpn: Option<Qpn>,
    /// First PSN expected from the peer.
    pub rq_psn: Option<Psn>,
    /// First PSN sent.
    pub sq_psn: Option<Psn>,
    /// READs and atomics that may be outstanding at the peer, 0..=255. If more than the peer's
    /// `max_dest_rd_atomic`, the peer refuses them.
    pub max_rd_atomic: Option<u8>,
    /// READs and atomics that the peer may have outstanding, 0..=255: the number of responder
    /// resources.
    pub max_dest_rd_atomic: Option<u8>,
    /// Wait requested in an RNR NAK: IBTA's 5-bit code, e.g. 12 for 0.64 ms.
    pub min_rnr_timer: Option<u8>,
    /// Local ACK timeout: 4.096 us * 2^n for n in 1..=31; 0 is infinite.
    pub timeout: Option<u8>,
    /// Timeouts without progress before the queue pair fails, 0..=7.
    pub retry_cnt: Option<u8>,
    /// RNR NAKs of one request before the queue pair fails, 0..=6; 7 sets no limit.
    pub rnr_retry: Option<u8>,
    /// The path to the peer.
    pub av: Option<AddressVector>,
    /// The wire protocol of both ends; [`WireMode::Rc`] by default.
    pub wire_mode: Option<WireMode>,
    /// Payload bytes of a full packet in [`WireMode::Sr`], 64..=65280, limited by the path
    /// ([`Offer::segment_bytes`](crate::Offer::segment_bytes)). By default the path MTU. Each end
    /// chooses its own. Not for [`WireMode::Rc`].
    pub segment_bytes: Option<u32>,
    /// Packets beyond the lowest missing one that the peer accepts, as both ends agreed
    /// ([`SrTerms::reorder_pkts`](crate::SrTerms::reorder_pkts)), at least 256: the PSN limit until
    /// the first ACK. By default 256; a lower value than the peer's costs a round trip. Not for
    /// [`WireMode::Rc`].
    pub peer_reorder_pkts: Option<u32>,
    /// Packets have an ICRC, and it is checked; true by default. Without, its four bytes are zero
    /// and not looked at: nothing but a checksum of the layers below detects a corrupted packet.
    /// Both ends must agree on it ([`SrFeature::NoIcrc`](crate::SrFeature::NoIcrc)). Not for
    /// [`WireMode::Rc`].
    pub icrc: Option<bool>,
    /// Congestion control: window and rate; [`CongestionControl::default`] by default.
    pub congestion: Option<CongestionControl>,
    /// Weight in deficit round robin among the queue pairs of the endpoint, by bytes, 1..=255; 1 by
    /// default. Control packets are not counted.
    pub weight: Option<u8>,
    /// FEC of the data sent; none by default. Only for [`WireMode::Sr`], and only if the peer
    /// accepts blocks ([`SrFeature::Block`](crate::SrFeature::Block)); other peers drop them.
    /// Reception needs no attribute.
    pub erasure: Option<ErasureCoding>,
    /// Load balancing: the path of each packet. By default the address vector's source port. Only
    /// for [`WireMode::Sr`].
    pub balance: Option<Balance>,
    /// Feedback of switches (pseudo-ACKs) is requested: data carry the own QPN, and full packets
    /// are four bytes shorter. Only for [`WireMode::Sr`], and only if the peer accepts it
    /// ([`SrFeature::Near`](crate::SrFeature::Near)).
    /// [`Agreed::apply_to_rts`](crate::Agreed::apply_to_rts) sets it if congestion control uses
    /// feedback.
    pub near: Option<bool>,
    /// The peer knows MLCC ([`SrFeature::Mlcc`](crate::SrFeature::Mlcc)): its acknowledgements may
    /// carry a credit, and if congestion control uses credits and `near` is set, data request
    /// telemetry of version 2. Otherwise such an algorithm is replaced by `hpcc`. Only for
    /// [`WireMode::Sr`]. [`Agreed::apply_to_rts`](crate::Agreed::apply_to_rts) sets it if
    /// congestion control uses credits.
    pub credit: Option<bool>,
}

/// Load balancing of one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Balance {
    /// The policy with its parameters.
    pub choice: Choice,
    /// Seed of all random choices, combined with the QPN.
    pub seed: u64,
}

/// Wire protocol of a connection: packet format and loss recovery. Both ends must agree on it
/// before; the verbs are the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WireMode {
    /// RoCEv2 Reliable Connection, as adapters implement it: in order, go-back-N.
    #[default]
    Rc,
    /// Selective repeat: data are placed in any order and only lost packets are retransmitted
    /// (docs/protocol/sr.md, "What is different from RC"). Memory is written in any order as well:
    /// a write that must come later is fenced, or follows a completion.
    Sr,
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

impl WireMode {
    /// The name in set-up messages and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Sr => "sr",
        }
    }
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

    pub(crate) fn ethernet(&self) -> EthernetRepr {
        let v4 = self.src_ip.is_ipv4();
        let ethertype = if v4 { EthernetRepr::IPV4 } else { EthernetRepr::IPV6 };
        EthernetRepr { dst: self.dst_mac, src: self.src_mac, ethertype }
    }

    /// The IP header, or `None` when the addresses are of two versions.
    pub(crate) fn ip(&self) -> Option<IpRepr> {
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
    /// A queue pair with a receive queue of its own.
    #[must_use]
    pub fn new(pd: PdId, send_cq: CqId, recv_cq: CqId, caps: QpCaps) -> Self {
        Self { pd, send_cq, recv_cq, caps, srq: None }
    }
}

impl QpAttr {
    /// The transition RESET to INIT.
    #[must_use]
    pub fn init(access: Access) -> Self {
        Self { state: Some(QpState::Init), access: Some(access), ..Self::default() }
    }

    /// The transition INIT to RTR with common values: 16 outstanding READs and atomics of the peer,
    /// RNR timer 0.64 ms.
    #[must_use]
    pub fn rtr(dest_qpn: Qpn, rq_psn: Psn, path_mtu: Mtu, av: AddressVector) -> Self {
        Self {
            state: Some(QpState::Rtr),
            dest_qpn: Some(dest_qpn),
            rq_psn: Some(rq_psn),
            path_mtu: Some(path_mtu),
            av: Some(av),
            max_dest_rd_atomic: Some(16),
            min_rnr_timer: Some(12),
            ..Self::default()
        }
    }

    /// The transition RTR to RTS with common values: 16 outstanding READs and atomics, timeout 14
    /// (67 ms), 7 retries, unlimited RNR retries.
    #[must_use]
    pub fn rts(sq_psn: Psn) -> Self {
        Self {
            state: Some(QpState::Rts),
            sq_psn: Some(sq_psn),
            max_rd_atomic: Some(16),
            timeout: Some(14),
            retry_cnt: Some(7),
            rnr_retry: Some(7),
            ..Self::default()
        }
    }

    /// Applies the attributes that `newer` sets.
    pub(crate) fn merge(&mut self, newer: &Self) {
        let old = *self;
        *self = Self {
            state: newer.state.or(old.state),
            access: newer.access.or(old.access),
            path_mtu: newer.path_mtu.or(old.path_mtu),
            dest_qpn: newer.dest_qpn.or(old.dest_qpn),
            rq_psn: newer.rq_psn.or(old.rq_psn),
            sq_psn: newer.sq_psn.or(old.sq_psn),
            max_rd_atomic: newer.max_rd_atomic.or(old.max_rd_atomic),
            max_dest_rd_atomic: newer.max_dest_rd_atomic.or(old.max_dest_rd_atomic),
            min_rnr_timer: newer.min_rnr_timer.or(old.min_rnr_timer),
            timeout: newer.timeout.or(old.timeout),
            retry_cnt: newer.retry_cnt.or(old.retry_cnt),
            rnr_retry: newer.rnr_retry.or(old.rnr_retry),
            av: newer.av.or(old.av),
            wire_mode: newer.wire_mode.or(old.wire_mode),
            segment_bytes: newer.segment_bytes.or(old.segment_bytes),
            peer_reorder_pkts: newer.peer_reorder_pkts.or(old.peer_reorder_pkts),
            icrc: newer.icrc.or(old.icrc),
            congestion: newer.congestion.or(old.congestion),
            weight: newer.weight.or(old.weight),
            erasure: newer.erasure.or(old.erasure),
            balance: newer.balance.or(old.balance),
            near: newer.near.or(old.near),
            credit: newer.credit.or(old.credit),
        };
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
