//! What a queue pair is made of and what `modify_qp` sets.

use crate::coding::ErasureCoding;
use crate::cq::CqId;
use crate::ids::SrqId;
use crate::mr::{Access, PdId};
use crate::qp::state::QpState;
use spanwire_base::Dur;
use spanwire_cc::Algorithm;
use spanwire_loadbalance::Choice;
use spanwire_wire::{EthernetRepr, IpRepr, MacAddr, Psn, Qpn};
use std::net::IpAddr;

/// What `create_qp` needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInit {
    /// Protection domain of the queue pair and all memory it uses.
    pub pd: PdId,
    /// Where completions of the send queue go.
    pub send_cq: CqId,
    /// Where completions of the receive queue go; may be the same.
    pub recv_cq: CqId,
    /// Sizes of the queues.
    pub caps: QpCaps,
    /// Where receive requests come from, instead of a queue of its own; `max_recv_wr` and
    /// `max_recv_sge` mean nothing then.
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
    /// Bytes a send work request may carry inline, 0..=1024; that many are kept for each.
    pub max_inline_data: u32,
}

/// The attributes `modify_qp` sets; `None` leaves one as it is. Which ones a transition needs is
/// the table in `qp/state.rs`, as in `ibv_modify_qp(3)`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct QpAttr {
    /// Next state.
    pub state: Option<QpState>,
    /// What the peer may do to our memory through this queue pair.
    pub access: Option<Access>,
    /// Path MTU, the payload of every packet but a message's last.
    pub path_mtu: Option<Mtu>,
    /// The peer's queue pair.
    pub dest_qpn: Option<Qpn>,
    /// First PSN we expect from the peer.
    pub rq_psn: Option<Psn>,
    /// First PSN we send.
    pub sq_psn: Option<Psn>,
    /// READs and atomics we may have outstanding at the peer, 0..=255; no more than the peer's
    /// `max_dest_rd_atomic`, or it refuses them.
    pub max_rd_atomic: Option<u8>,
    /// READs and atomics the peer may have outstanding here, 0..=255; that many responder resources
    /// are kept.
    pub max_dest_rd_atomic: Option<u8>,
    /// What we ask a sender to wait when no receive request is posted: IBTA's 5-bit code, e.g. 12
    /// for 0.64 ms.
    pub min_rnr_timer: Option<u8>,
    /// Local ACK timeout: 4.096 us * 2^n for n in 1..=31; 0 waits for ever.
    pub timeout: Option<u8>,
    /// Retransmissions of one packet without progress before the queue pair gives up, 0..=7.
    pub retry_cnt: Option<u8>,
    /// RNR NAKs to one request before the queue pair gives up, 0..=6; 7 never gives up.
    pub rnr_retry: Option<u8>,
    /// The way to the peer.
    pub av: Option<AddressVector>,
    /// How both ends speak; [`WireMode::Rc`] when it is not given.
    pub wire_mode: Option<WireMode>,
    /// Payload bytes of a full packet in [`WireMode::Sr`], 64..=65280: any size that the path
    /// carries ([`Offer::segment_bytes`](crate::Offer::segment_bytes)). The path MTU when it is not
    /// given. Each end chooses its own. Not for [`WireMode::Rc`].
    pub segment_bytes: Option<u32>,
    /// Packets beyond the lowest missing one that the peer takes, as both ends agreed
    /// ([`SrTerms::reorder_pkts`](crate::SrTerms::reorder_pkts)), at least 256: so many leave
    /// before the peer has said anything. 256 when it is not given: more than that would cost a
    /// round trip. Not for [`WireMode::Rc`].
    pub peer_reorder_pkts: Option<u32>,
    /// What bounds how much is in flight and how fast it leaves, beside the windows of
    /// [`Config`](crate::Config), which alone do when it is not given.
    pub congestion: Option<CongestionControl>,
    /// Its share of the port among the queue pairs of its endpoint that have something to send, in
    /// bytes, 1..=255; 1 when it is not given. Acknowledgements are nobody's share.
    pub weight: Option<u8>,
    /// Data leave in blocks with parity; none when it is not given. Only for [`WireMode::Sr`], and
    /// only if the peer takes blocks ([`SrFeature::Block`](crate::SrFeature::Block)): it drops
    /// them if not. What is received needs nothing.
    pub erasure: Option<ErasureCoding>,
    /// Which path each packet takes; the address vector's source port when it is not given. Only
    /// for [`WireMode::Sr`].
    pub balance: Option<Balance>,
}

/// Load balancing of one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Balance {
    /// Which, with its parameters.
    pub choice: Choice,
    /// Decides every draw; mixed with the queue pair's number.
    pub seed: u64,
}

/// Congestion control of one queue pair.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CongestionControl {
    /// Which, with its parameters.
    pub algorithm: Algorithm,
    /// The round trip without any queue; the smallest that is measured when it is not given.
    pub base_rtt: Option<Dur>,
}

/// How the packets of a connection look and how losses are repaired. Both ends must agree before;
/// the verbs are the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WireMode {
    /// RoCEv2 Reliable Connection, as every adapter speaks it: in order, goes back on a loss.
    #[default]
    Rc,
    /// Selective repeat: data are placed in any order and only lost packets are retransmitted
    /// (docs/protocol/sr.md, "What is different from RC"). Memory is written in any order as well:
    /// a write that must come later is fenced, or follows a completion.
    Sr,
}

/// The way to the peer: what goes into the headers below the BTH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressVector {
    /// Our interface's MAC address.
    pub src_mac: MacAddr,
    /// The next hop's MAC address, from the kernel's neighbour table.
    pub dst_mac: MacAddr,
    /// Our address. Requests and responses from the peer must be addressed to it.
    pub src_ip: IpAddr,
    /// The peer's address, of the same IP version. Packets from elsewhere are dropped.
    pub dst_ip: IpAddr,
    /// UDP source port: the path's entropy. `None` derives it from both QPNs as Linux does, so
    /// that both ends use the same one.
    pub udp_src_port: Option<u16>,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
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
    /// Its name where ends meet and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Sr => "sr",
        }
    }
}

impl Mtu {
    /// All of them, ascending.
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

    /// The MTU of exactly this many payload bytes.
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

    /// The transition INIT to RTR with customary values: 16 READs and atomics accepted, RNR timer
    /// 0.64 ms.
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

    /// The transition RTR to RTS with customary values: 16 READs and atomics outstanding, timeout
    /// 14 (67 ms),
    /// 7 retries, RNR retries without end.
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

    /// Takes over what `newer` sets.
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
            congestion: newer.congestion.or(old.congestion),
            weight: newer.weight.or(old.weight),
            erasure: newer.erasure.or(old.erasure),
            balance: newer.balance.or(old.balance),
        };
    }
}

/// IPv6, UDP, BTH, RETH and ICRC.
const HEADERS_MAX_BYTES: u32 = 40 + 8 + 12 + 16 + 4;
/// A WRITE Only with immediate carries four more; Linux does not reserve them either.
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
