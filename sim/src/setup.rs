//! Settings of a network's hosts, queue pairs and switches.

mod agents;
mod roles;
mod telemetry;

pub use agents::{AgentSetup, PortKind};
pub use roles::RoleSetup;
pub use telemetry::Telemetry;

use crate::congestion::Congestion;
use crate::host_model::HostModel;
use crate::params::EcBlocks;
use crate::topology::{PathInfo, Role, Topology};
use spanwire_base::{Dur, Rate, Time, u32_from};
use spanwire_loadbalance::Choice;
use spanwire_switch::{PfcConfig, PortConfig, QueueConfig, Spread};
use spanwire_transport::{Agreed, Config, ErasureCoding, Mtu, Offer, agree};
use spanwire_wire::{BLOCK_REPORTS_MAX, SACK_WORDS_MAX};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Settings of a network's hosts, queue pairs and switches. They apply to all hosts alike, except
/// for the maps by host.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seed of everything random: keys, QPNs, PSNs, hashes, faults, bytes.
    pub seed: u64,
    /// Path MTU of every queue pair.
    pub mtu: Mtu,
    /// The wire modes that hosts offer when they connect. Default [`Offer::SILENT`], which is RC.
    pub offer: Offer,
    /// Offers that differ from `offer`, by host.
    pub other_offers: BTreeMap<u32, Offer>,
    /// Packets are IPv6 instead of IPv4.
    pub ipv6: bool,
    /// Elements of each scatter-gather list, 1..=16; an atomic has one.
    pub sges: u32,
    /// Frames omit their payload, and memory has no bytes.
    pub elided: bool,
    /// The engines handle expected packets in fewer steps; the results are the same
    /// ([`Config::fast_paths`]). Default true.
    pub fast_paths: bool,
    /// Longest message, 8..=2^30. Default 1 MiB.
    pub message_bytes: u32,
    /// Outstanding messages of a flow, 1..=8192. Default 4.
    pub outstanding: u32,
    /// The window of one queue pair in packets, 1..=65536.
    pub window_pkts: u32,
    /// Maximum interval between AckReq bits, in packets, at least 1. The engine also requests an
    /// acknowledgement once a window.
    pub ack_interval_pkts: u32,
    /// Maximum READ requested at once, in packets, at least 1. The engine also limits it to the
    /// part of the window that unacknowledged packets leave.
    pub read_chunk_pkts: u32,
    /// Local ACK timeout, rounded up to 4.096 us x 2^n. Default 1 ms.
    pub timeout: Dur,
    /// Retransmissions without progress before a queue pair fails, 0..=7.
    pub retry_cnt: u8,
    /// READs and atomics outstanding, 1..=255.
    pub rd_atomic: u8,
    /// Longest message that a mix sends inline, 0..=1024.
    pub inline_bytes: u32,
    /// Receives posted at once, of a flow or of a shared receive queue; 1..=8192.
    pub recvs: u32,
    /// Delay between the completion of a receive and its reposting.
    pub recv_delay: Dur,
    /// The flows of a host share one receive queue.
    pub shared_recvs: bool,
    /// Periodic draining of send queues (SQD). Default none.
    pub drains: Option<Drains>,
    /// DSCP of every packet, 0..=63; its traffic class is an eighth of it. Default 26, class 3,
    /// which is customary for RoCE.
    pub dscp: u8,
    /// Congestion control of queue pairs. Default none.
    pub congestion: Congestion,
    /// Telemetry of SR queue pairs whose congestion control uses it.
    pub int: Telemetry,
    /// Load balancing of SR queue pairs. Default none: one path each.
    pub balance: Option<Choice>,
    /// Erasure coding of SR queue pairs. Default none.
    pub erasure: Option<EcBlocks>,
    /// Hosts whose SR queue pairs use other erasure coding and load balancing.
    pub other_sends: BTreeMap<u32, Sends>,
    /// Limits of memory for incomplete blocks, in bytes: of one receiving queue pair, and of all
    /// from one peer. Defaults as in [`Config`].
    pub block_bytes: [u64; 2],
    /// Settings of switch ports. Each port has its own rate and address, and its PFC headroom
    /// follows from its link.
    pub port: PortConfig,
    /// Settings of switches that differ from those of all, by role. Default none.
    pub roles: BTreeMap<Role, RoleSetup>,
    /// The rate of the port for which marking thresholds are given: those of other ports are in
    /// proportion to their rates. Default none: all ports have the same thresholds.
    pub marks_at: Option<Rate>,
    /// Agents of switches. Default none.
    pub agents: Vec<AgentSetup>,
    /// Switches know the queue pairs of every flow as it is connected. Default true; otherwise they
    /// learn from packets, as real ones do.
    pub qpns_known: bool,
    /// Minimum interval between two CNPs of a queue pair that receives marks, at least 1 us.
    /// Default as in [`Config`].
    pub cnp_interval: Dur,
    /// DSCP of CNPs, 0..=63. Default none: that of data.
    pub cnp_dscp: Option<u8>,
    /// Longest delay of a link with PFC. Lossless headroom is the bandwidth-delay product of both
    /// directions, 22 MB for 0.9 ms at 100 Gbit/s. Ports of longer links neither send nor obey
    /// pause frames. Default 100 us.
    pub pfc_delay_max: Dur,
    /// The shared buffer of each switch.
    pub buffer_bytes: u64,
    /// How switches select among equal-cost paths.
    pub spread: Spread,
    /// Hosts obey pause frames. Switches send them if `port` enables it.
    pub host_pfc: bool,
    /// Bytes of preamble, FCS and inter-frame gap per frame.
    pub overhead_bytes: u32,
    /// Engines of each host, 1..=16: the workers of one process behind its port, which hand frames
    /// over to each other. Default 1.
    pub workers: u8,
    /// The timing of hosts' drivers. Default none: frames and timers reach the engine at once.
    pub host: Option<HostModel>,
}

/// Periodic draining of send queues: a queue pair goes to SQD, and back to RTS on `SQ_DRAINED`.
/// Each host drains one queue pair at a time, round robin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drains {
    /// The interval, above 0.
    pub every: Dur,
    /// No drain begins at or after this.
    pub until: Time,
}

/// Sender options of a host's SR queue pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sends {
    /// Erasure coding.
    pub erasure: Option<ErasureCoding>,
    /// Load balancing.
    pub balance: Option<Choice>,
}

impl Default for Setup {
    fn default() -> Self {
        let plain = Config::default();
        Self {
            seed: 0,
            mtu: Mtu::B4096,
            offer: Offer::SILENT,
            other_offers: BTreeMap::new(),
            ipv6: false,
            sges: 1,
            elided: false,
            fast_paths: true,
            message_bytes: 1 << 20,
            outstanding: 4,
            window_pkts: 192,
            ack_interval_pkts: 16,
            read_chunk_pkts: 32,
            timeout: Dur::from_ms(1),
            retry_cnt: 7,
            rd_atomic: 16,
            inline_bytes: 0,
            recvs: 16,
            recv_delay: Dur::ZERO,
            shared_recvs: false,
            drains: None,
            dscp: 26,
            congestion: Congestion::default(),
            int: Telemetry::default(),
            balance: None,
            erasure: None,
            other_sends: BTreeMap::new(),
            block_bytes: [plain.block_bytes_qp, plain.block_bytes_peer],
            port: PortConfig::default(),
            roles: BTreeMap::new(),
            marks_at: None,
            agents: Vec::new(),
            qpns_known: true,
            cnp_interval: plain.cnp_interval,
            cnp_dscp: plain.cnp_dscp,
            pfc_delay_max: Dur::from_us(100),
            buffer_bytes: 32_000_000,
            spread: Spread::Hash,
            host_pfc: false,
            overhead_bytes: 24,
            workers: 1,
            host: None,
        }
    }
}

impl Setup {
    /// Lossless operation: switches send pause frames for the data's class, hosts obey them, and
    /// only the shared buffer limits queues.
    #[must_use]
    pub fn lossless(mut self) -> Self {
        let priorities = vec![self.dscp / 8];
        self.port.pfc = Some(PfcConfig { priorities, ..PfcConfig::default() });
        self.port.queues =
            vec![QueueConfig { limit_bytes: self.buffer_bytes, ..QueueConfig::default() }];
        self.host_pfc = true;
        self
    }

    /// A host's address.
    #[must_use]
    pub fn host_ip(&self, host: u32) -> IpAddr {
        match self.ipv6 {
            true => Topology::host_ip6(host).into(),
            false => Topology::host_ip(host).into(),
        }
    }

    /// The offer of a host.
    #[must_use]
    pub fn offer_of(&self, host: u32) -> Offer {
        self.other_offers.get(&host).copied().unwrap_or(self.offer)
    }

    /// Sender options of a host's SR queue pairs.
    pub(crate) fn sends_of(&self, host: u32) -> Sends {
        let all =
            || Sends { erasure: self.erasure.map(|blocks| blocks.coding()), balance: self.balance };
        self.other_sends.get(&host).copied().unwrap_or_else(all)
    }

    /// The wire mode that two hosts agree on; `None` if one requires a mode that the other does not
    /// support.
    #[must_use]
    pub fn agreed(&self, [a, b]: [u32; 2]) -> Option<Agreed> {
        agree(&self.offer_of(a), &self.offer_of(b))
    }

    /// The segment of two hosts that agree on SR, in bytes.
    pub(crate) fn sr_segment(&self, hosts: [u32; 2]) -> Option<u32> {
        match self.agreed(hosts) {
            Some(Agreed::Sr(terms)) => Some(terms.segment_bytes),
            Some(Agreed::Rc) | None => None,
        }
    }

    /// The longest payload of a packet between any two hosts, in bytes.
    pub(crate) fn payload_bytes(&self) -> u32 {
        let all = self.other_offers.values().chain([&self.offer]);
        let sr = all.filter_map(|offer| offer.sr).map(|sr| sr.segment_bytes.min(SEGMENT_MAX));
        sr.max().unwrap_or(0).max(self.mtu.bytes())
    }

    /// The traffic class of every packet. Packets are ECT if congestion control is on or a queue
    /// marks; otherwise they are Not-ECT, because no sender would react.
    pub(crate) fn traffic_class(&self) -> u8 {
        let mut queues = self.port_configs().flat_map(|port| &port.queues);
        let marks = queues.any(|q| q.ecn.is_some() || q.phantom.is_some());
        let ecn = if marks || self.congestion.is_on() { ECT_0 } else { 0 };
        self.dscp << 2 | ecn
    }

    /// Base RTT of a full packet between two hosts: empty queues, acknowledged immediately.
    pub(crate) fn base_rtt(&self, hosts: [u32; 2], path: &PathInfo) -> Dur {
        let payload = self.full_payload(hosts);
        path.base_rtt(payload + self.data_overhead(hosts), self.ack_bytes(hosts))
    }

    /// Wire bytes of the shortest acknowledgement between two hosts.
    pub(crate) fn ack_bytes(&self, hosts: [u32; 2]) -> u64 {
        let ack = if self.sr_segment(hosts).is_some() { SR_ACK_MIN_BYTES } else { AETH_BYTES };
        ack + self.headers()
    }

    /// Payload of a full packet between two hosts, in bytes.
    pub(crate) fn full_payload(&self, hosts: [u32; 2]) -> u64 {
        self.sr_segment(hosts).unwrap_or(self.mtu.bytes()).into()
    }

    /// Wire overhead of every data packet between two hosts, in bytes. RETH and immediate data,
    /// which only some packets have, are not counted.
    pub(crate) fn data_overhead(&self, hosts: [u32; 2]) -> u64 {
        let sr = if self.sr_segment(hosts).is_some() { SR_BYTES } else { 0 };
        self.headers() + sr + self.telemetry_bytes(hosts)
    }

    /// Wire overhead of every packet: Ethernet, IP, UDP, BTH, ICRC and the link's overhead.
    fn headers(&self) -> u64 {
        let ipv6 = if self.ipv6 { IPV6_BYTES } else { 0 };
        HEADER_BYTES + ipv6 + u64::from(self.overhead_bytes)
    }

    /// The limits of the engine of a host's worker `worker` with this offer, a port of `line_rate`,
    /// `qps` queue pairs and `cqe` outstanding completions.
    pub(crate) fn engine(
        &self,
        offer: Offer,
        worker: u8,
        line_rate: Rate,
        qps: usize,
        cqe: u32,
    ) -> Config {
        let plain = Config::default();
        let qps = u32_from(qps.max(1));
        let ack_req_interval_pkts = self.ack_interval_pkts.min(self.window_pkts);
        let read_chunk_max = self.window_pkts - (ack_req_interval_pkts - 1);
        let read_chunk_pkts = self.read_chunk_pkts.min(read_chunk_max);
        let window = self.window_pkts + read_chunk_pkts;
        let [block_bytes_qp, block_bytes_peer] = self.block_bytes;
        Config {
            max_qps: qps,
            max_cqs: 1,
            max_pds: 1,
            max_srqs: 1,
            max_mrs: 1,
            max_wr: 1 << 15,
            max_cqe: cqe.max(1),
            max_msg_bytes: self.message_bytes.max(8),
            qp_window_pkts: self.window_pkts,
            batches: self.host.as_ref().is_some_and(|host| host.sockets.is_some()),
            pacing_quantum: self.host.as_ref().map_or(Dur::ZERO, HostModel::pacing_quantum),
            receive_room_bytes: self.host.as_ref().and_then(HostModel::receive_room_bytes),
            // Only the window of each queue pair limits it.
            endpoint_window_pkts: qps.saturating_mul(window).min(1 << 24),
            ack_req_interval_pkts,
            read_chunk_pkts,
            reorder_pkts: offer.sr.map_or(plain.reorder_pkts, |sr| sr.reorder_pkts.max(256)),
            block_bytes_qp,
            block_bytes_peer,
            cnp_interval: self.cnp_interval,
            cnp_dscp: self.cnp_dscp,
            elide_payload: self.elided,
            fast_paths: self.fast_paths,
            int_hops: self.int.hops,
            int_format: self.int.format,
            worker,
            workers: self.workers,
            line_rate,
            ..plain
        }
    }

    /// The code of the local ACK timeout, rounded up.
    pub(crate) fn timeout_code(&self) -> u8 {
        (1..31).find(|n| TIMEOUT_UNIT * (1 << n) >= self.timeout).unwrap_or(31)
    }

    /// Buffer size for the longest frame with its telemetry.
    pub(crate) fn frame_buffer_bytes(&self) -> usize {
        let payload = if self.elided { 0 } else { self.payload_bytes() as usize };
        let trailer = if self.port_configs().any(|port| port.int) { TRAILER_BYTES } else { 0 };
        let longest = (HEADERS_BYTES + payload).max(self.acknowledgement_bytes());
        // Rounded up to cache lines and no further, because many frames are in flight at once.
        (longest + trailer).next_multiple_of(64)
    }

    /// The longest frame on the wire in bytes. Records of switches count only if they are on top.
    pub(crate) fn max_frame_bytes(&self) -> u32 {
        let speaks_sr = self.acknowledgement_bytes() > 0;
        let longest = self.payload_bytes() + self.telemetry_bytes_max();
        let sr = HEADERS_BYTES + longest as usize;
        let sr = if speaks_sr { u32_from(sr.max(SR_ACK_BYTES)) } else { 0 };
        self.mtu.max_frame_bytes().max(sr)
    }

    /// Length of the longest SR acknowledgement, which exceeds the headers; zero if no host offers
    /// SR.
    fn acknowledgement_bytes(&self) -> usize {
        let mut all = self.other_offers.values().chain([&self.offer]);
        if all.any(|offer| offer.sr.is_some()) { SR_ACK_BYTES } else { 0 }
    }
}

/// The unit of the local ACK timeout (IBTA C9-140).
const TIMEOUT_UNIT: Dur = Dur::from_ns(4_096);
/// Ethernet, IPv6, UDP, BTH, the longest extension headers, SR's among them, padding and the
/// ICRC.
const HEADERS_BYTES: usize = 14 + 40 + 8 + 12 + SR_DATA_BYTES + 3 + 4;
/// The longest SR data header: that of an atomic.
const SR_DATA_BYTES: usize = 24 + 28;
/// Maximum payload of an SR packet.
const SEGMENT_MAX: u32 = 65_280;
/// ECT(0): the sender reacts to marks.
///
/// # Source
/// RFC 3168 5.
const ECT_0: u8 = 0b10;
/// Ethernet, IPv4, UDP, BTH and ICRC of every packet.
const HEADER_BYTES: u64 = 14 + 20 + 8 + 12 + 4;
/// Length difference between an IPv6 and an IPv4 header.
const IPV6_BYTES: u64 = 20;
/// Further bytes of every SR data packet.
const SR_BYTES: u64 = 24;
/// Further bytes of an RC acknowledgement.
const AETH_BYTES: u64 = 4;
/// Further bytes of an SR acknowledgement without SACK blocks.
const SR_ACK_MIN_BYTES: u64 = 60;
/// Length of an SR acknowledgement with all its fields.
const SR_ACK_BYTES: usize =
    14 + 40 + 8 + 12 + 60 + 12 * (SACK_WORDS_MAX + 1) + 8 + 4 + 16 * BLOCK_REPORTS_MAX + 4;
/// Room for telemetry records of every switch on the longest path.
const TRAILER_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_code__is_the_shortest_that_is_long_enough() {
        let code = |us| Setup { timeout: Dur::from_us(us), ..Setup::default() }.timeout_code();
        assert_eq!((code(1), code(9), code(67_108), code(67_109)), (1, 2, 14, 15));
        assert_eq!(Setup { timeout: Dur::MAX, ..Setup::default() }.timeout_code(), 31);
    }

    #[test]
    fn engine__is_valid_for_any_number_of_queue_pairs() {
        for qps in [0, 1, 300, 60_000] {
            let config = Setup::default().engine(Offer::SILENT, 0, Rate::from_gbps(10), qps, 5);
            config.validate().unwrap();
        }
    }

    #[test]
    fn agreed__is_sr_in_the_smaller_segments_if_both_speak_it() {
        let sr = |segment_bytes| Offer::of(&Config::default(), Some(segment_bytes));
        let other_offers = [(1, Offer::SILENT), (2, sr(1400)), (3, sr(9000))];
        let other_offers = other_offers.into_iter().collect();
        let setup = Setup { offer: sr(4096), other_offers, ..Setup::default() };
        for (hosts, want) in [
            ([0, 1], None),
            ([1, 2], None),
            ([0, 4], Some(4096)),
            ([0, 2], Some(1400)),
            ([3, 2], Some(1400)),
            ([3, 0], Some(4096)),
        ] {
            assert_eq!(setup.sr_segment(hosts), want);
            assert_eq!(setup.agreed(hosts) == Some(Agreed::Rc), want.is_none());
        }
        assert_eq!(setup.payload_bytes(), 9000);
        assert!(setup.max_frame_bytes() > 9000 && setup.frame_buffer_bytes() > 9000);
        let elided = Setup { elided: true, ..setup };
        assert!((SR_ACK_BYTES..500).contains(&elided.frame_buffer_bytes()));
    }
}
