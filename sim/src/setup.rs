//! What hosts, queue pairs and switches of a network are like.

use crate::congestion::Congestion;
use crate::params::EcBlocks;
use crate::topology::{PathInfo, Topology};
use spanwire_base::{Dur, Rate, Time, u32_from};
use spanwire_loadbalance::Choice;
use spanwire_switch::{PfcConfig, PortConfig, QueueConfig, Spread};
use spanwire_transport::{Agreed, Config, ErasureCoding, Mtu, Offer, agree};
use spanwire_wire::{BLOCK_REPORTS_MAX, SACK_WORDS_MAX};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What hosts, queue pairs and switches of a network are like. All are alike, but for what hosts
/// speak.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Decides keys, numbers, hashes, faults, bytes: everything that is drawn.
    pub seed: u64,
    /// Path MTU of every queue pair.
    pub mtu: Mtu,
    /// What hosts offer to speak when they connect. Default [`Offer::SILENT`], which is RC.
    pub offer: Offer,
    /// Hosts that offer something else, by their numbers.
    pub other_offers: BTreeMap<u32, Offer>,
    /// Packets are IPv6 instead of IPv4.
    pub ipv6: bool,
    /// Elements of each scatter-gather list, 1..=16; an atomic has one.
    pub sges: u32,
    /// Payload is left out of frames, and memory has no bytes.
    pub elided: bool,
    /// Longest message, 8..=2^30. Default 1 MiB.
    pub message_bytes: u32,
    /// Messages of a flow under way at once, 1..=8192. Default 4.
    pub outstanding: u32,
    /// The window of one queue pair in packets, 1..=65536.
    pub window_pkts: u32,
    /// A request packet asks for an acknowledgement at least this often, at least 1; no less often
    /// than once a window.
    pub ack_interval_pkts: u32,
    /// Longest stretch of a READ asked for at once, in packets, at least 1; no longer than fits
    /// the window beside what did not ask for an acknowledgement.
    pub read_chunk_pkts: u32,
    /// Local ACK timeout, rounded up to 4.096 us x 2^n. Default 1 ms.
    pub timeout: Dur,
    /// Retransmissions without progress before a queue pair gives up, 0..=7.
    pub retry_cnt: u8,
    /// READs and atomics outstanding, 1..=255.
    pub rd_atomic: u8,
    /// Longest message that a mix sends inline, 0..=1024.
    pub inline_bytes: u32,
    /// Receives of a flow posted at once, or of a host when they are shared; 1..=8192.
    pub recvs: u32,
    /// Receives are posted again this long after they were used.
    pub recv_delay: Dur,
    /// Flows of a host share one receive queue.
    pub shared_recvs: bool,
    /// Periodic draining of send queues (SQD). Default none.
    pub drains: Option<Drains>,
    /// DSCP of every packet, 0..=63; its class is an eighth of it. Default 26, class 3: the custom
    /// for RoCE.
    pub dscp: u8,
    /// Congestion control of queue pairs. Default none.
    pub congestion: Congestion,
    /// How SR queue pairs spread packets over paths. Default none: one path each.
    pub balance: Option<Choice>,
    /// Blocks of an erasure code that SR queue pairs send. Default none.
    pub erasure: Option<EcBlocks>,
    /// Hosts whose SR queue pairs do otherwise in both respects, by their numbers.
    pub other_sends: BTreeMap<u32, Sends>,
    /// Bytes that running parities may take: of what one queue pair receives, and of all that one
    /// peer sends. Defaults as in [`Config`].
    pub block_bytes: [u64; 2],
    /// Ports of switches; rate and address are each port's own, the headroom of PFC follows from
    /// each link.
    pub port: PortConfig,
    /// Ports of longer links neither send nor obey pause frames: the headroom that loses nothing is
    /// what fits on the link both ways, 22 MB for 0.9 ms at 100 Gbit/s. Default 100 us.
    pub pfc_delay_max: Dur,
    /// The shared buffer of each switch.
    pub buffer_bytes: u64,
    /// How switches choose among equal ways.
    pub spread: Spread,
    /// Hosts obey pause frames. Switches send them if `port` says so.
    pub host_pfc: bool,
    /// Bytes that each frame costs on a link beside its own.
    pub overhead_bytes: u32,
}

/// Periodic draining of send queues: a queue pair goes to SQD, and back to RTS on `SQ_DRAINED`. At
/// each host one at a time, round robin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drains {
    /// The interval, above 0.
    pub every: Dur,
    /// None begins at or after this.
    pub until: Time,
}

/// How SR queue pairs of a host send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sends {
    /// Blocks of an erasure code.
    pub erasure: Option<ErasureCoding>,
    /// How packets are spread over paths.
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
            balance: None,
            erasure: None,
            other_sends: BTreeMap::new(),
            block_bytes: [plain.block_bytes_qp, plain.block_bytes_peer],
            port: PortConfig::default(),
            pfc_delay_max: Dur::from_us(100),
            buffer_bytes: 32_000_000,
            spread: Spread::Hash,
            host_pfc: false,
            overhead_bytes: 24,
        }
    }
}

impl Setup {
    /// Lossless: switches send pause frames for the class of the data, hosts obey them, and queues
    /// are bound by the shared buffer alone.
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

    /// What a host offers to speak.
    #[must_use]
    pub fn offer_of(&self, host: u32) -> Offer {
        self.other_offers.get(&host).copied().unwrap_or(self.offer)
    }

    /// How a host's SR queue pairs send.
    pub(crate) fn sends_of(&self, host: u32) -> Sends {
        let all =
            || Sends { erasure: self.erasure.map(|blocks| blocks.coding()), balance: self.balance };
        self.other_sends.get(&host).copied().unwrap_or_else(all)
    }

    /// What two hosts speak with each other; `None` when one insists on what the other does not.
    #[must_use]
    pub fn agreed(&self, [a, b]: [u32; 2]) -> Option<Agreed> {
        agree(&self.offer_of(a), &self.offer_of(b))
    }

    /// The segments of two hosts that speak SR with each other, in bytes.
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

    /// The traffic class of every packet. Who marks or listens to marks gets packets that may be
    /// marked; elsewhere they say that nobody would react.
    pub(crate) fn traffic_class(&self) -> u8 {
        let marks = self.port.queues.iter().any(|q| q.ecn.is_some() || q.phantom.is_some());
        let ecn = if marks || self.congestion.is_on() { ECT_0 } else { 0 };
        self.dscp << 2 | ecn
    }

    /// The round trip of a full packet between two hosts on a path without queues, answered at
    /// once.
    pub(crate) fn base_rtt(&self, hosts: [u32; 2], path: &PathInfo) -> Dur {
        let payload = self.full_payload(hosts);
        path.base_rtt(payload + self.data_overhead(hosts), self.ack_bytes(hosts))
    }

    /// What the shortest acknowledgement between two hosts takes of a link, in bytes.
    pub(crate) fn ack_bytes(&self, hosts: [u32; 2]) -> u64 {
        let ack = if self.sr_segment(hosts).is_some() { SR_ACK_MIN_BYTES } else { AETH_BYTES };
        ack + self.headers()
    }

    /// Payload of a full packet between two hosts, in bytes.
    pub(crate) fn full_payload(&self, hosts: [u32; 2]) -> u64 {
        self.sr_segment(hosts).unwrap_or(self.mtu.bytes()).into()
    }

    /// What every packet of data between two hosts takes of a link beside its payload, in bytes.
    /// RETH and immediate data, which only some have, are not counted.
    pub(crate) fn data_overhead(&self, hosts: [u32; 2]) -> u64 {
        let sr = if self.sr_segment(hosts).is_some() { SR_BYTES } else { 0 };
        self.headers() + sr
    }

    /// What every packet takes of a link: Ethernet, IP, UDP, BTH, ICRC and what a link adds.
    fn headers(&self) -> u64 {
        let ipv6 = if self.ipv6 { IPV6_BYTES } else { 0 };
        HEADER_BYTES + ipv6 + u64::from(self.overhead_bytes)
    }

    /// The engine's limits for a host with this offer, a port of `line_rate`, `qps` queue pairs and
    /// `cqe` completions to come.
    pub(crate) fn engine(&self, offer: Offer, line_rate: Rate, qps: usize, cqe: u32) -> Config {
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
            // Queue pairs are limited one by one.
            endpoint_window_pkts: qps.saturating_mul(window).min(1 << 24),
            ack_req_interval_pkts,
            read_chunk_pkts,
            reorder_pkts: offer.sr.map_or(plain.reorder_pkts, |sr| sr.reorder_pkts.max(256)),
            block_bytes_qp,
            block_bytes_peer,
            elide_payload: self.elided,
            line_rate,
            ..plain
        }
    }

    /// The code of the local ACK timeout: the shortest that is not shorter.
    pub(crate) fn timeout_code(&self) -> u8 {
        (1..31).find(|n| TIMEOUT_UNIT * (1 << n) >= self.timeout).unwrap_or(31)
    }

    /// The longest frame, with its telemetry if there is any, as it is in memory.
    pub(crate) fn frame_buffer_bytes(&self) -> usize {
        let payload = if self.elided { 0 } else { self.payload_bytes() as usize };
        let trailer = if self.port.int { TRAILER_BYTES } else { 0 };
        let longest = (HEADERS_BYTES + payload).max(self.acknowledgement_bytes());
        // Whole cache lines, and no more of them than needed: many frames are under way at once.
        (longest + trailer).next_multiple_of(64)
    }

    /// The longest frame on the wire, without what a switch adds, in bytes.
    pub(crate) fn max_frame_bytes(&self) -> u32 {
        let speaks_sr = self.acknowledgement_bytes() > 0;
        let sr = HEADERS_BYTES + self.payload_bytes() as usize;
        let sr = if speaks_sr { u32_from(sr.max(SR_ACK_BYTES)) } else { 0 };
        self.mtu.max_frame_bytes().max(sr)
    }

    /// An acknowledgement of SR with all that it can tell is longer than headers are; zero when
    /// nobody sends one.
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
/// The longest header of SR data: that of an atomic.
const SR_DATA_BYTES: usize = 24 + 28;
/// The most that an SR packet carries.
const SEGMENT_MAX: u32 = 65_280;
/// ECT(0): the sender reacts to marks.
///
/// # Source
/// RFC 3168 5.
const ECT_0: u8 = 0b10;
/// Ethernet, IPv4, UDP, BTH and ICRC: what every packet has.
const HEADER_BYTES: u64 = 14 + 20 + 8 + 12 + 4;
/// By how much an IPv6 header is longer.
const IPV6_BYTES: u64 = 20;
/// What every packet of data has beside that in SR.
const SR_BYTES: u64 = 24;
/// What an acknowledgement of RC has beside that.
const AETH_BYTES: u64 = 4;
/// And one of SR that misses nothing.
const SR_ACK_MIN_BYTES: u64 = 60;
/// An SR acknowledgement with all that it can tell.
const SR_ACK_BYTES: usize =
    14 + 40 + 8 + 12 + 60 + 12 * (SACK_WORDS_MAX + 1) + 8 + 4 + 16 * BLOCK_REPORTS_MAX + 4;
/// Room for telemetry records of every switch on the longest way.
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
            Setup::default().engine(Offer::SILENT, Rate::from_gbps(10), qps, 5).validate().unwrap();
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
