//! Our own SR packets: their positions in blocks, the parity after them, and their paths.

use super::setup::Setup;
use spanwire_base::{u32_from, usize_from};
use spanwire_erasure::{Code, Scheme};
use spanwire_loadbalance::Entropy;
use spanwire_transport::ErasureCoding;
use spanwire_wire::{BlockRepr, Packet, SrDataRepr, SrKind};
use std::collections::BTreeMap;

/// Packets sent.
pub(super) struct Outgoing {
    erasure: Option<ErasureCoding>,
    balances: bool,
    /// The path of the last packet received, if valid: without a load balancer it is echoed.
    echoed_path: u16,
    /// By number: its position in a block, and the last transmission.
    sent: BTreeMap<u32, (Option<BlockRepr>, Last)>,
    /// The payloads of source packets in blocks at their first transmission, by number.
    first_payloads: BTreeMap<u32, Vec<u8>>,
    /// The incomplete block of the last new packet.
    open: Option<Open>,
    /// A packet could not be written: its block may have ended with the packet before.
    has_no_room: bool,
    has_no_memory: bool,
    has_failed: bool,
}

/// The last transmission of a packet: its path and time.
#[derive(Clone, Copy)]
struct Last {
    path: u16,
    sent_ps: u64,
}

struct Open {
    /// The position of its next packet.
    next: BlockRepr,
    /// The headers of its first and its latest data.
    first: SrDataRepr,
    latest: SrDataRepr,
    solicited: bool,
    data: Vec<Vec<u8>>,
}

impl Outgoing {
    pub(super) fn new(setup: &Setup) -> Self {
        let (erasure, balances) = (setup.erasure, setup.balance.is_some());
        let (echoed_path, sent, first_payloads) = (0, BTreeMap::new(), BTreeMap::new());
        Self {
            erasure,
            balances,
            echoed_path,
            sent,
            first_payloads,
            open: None,
            has_no_room: false,
            has_no_memory: false,
            has_failed: false,
        }
    }

    /// The position of a packet in its block, if it was in one.
    pub(super) fn place(&self, psn: u32) -> Option<BlockRepr> {
        self.sent.get(&psn).and_then(|(place, _)| *place)
    }

    /// The last path of a packet; 0 without a load balancer, or if it never left.
    pub(super) fn path(&self, psn: u32) -> u16 {
        self.sent.get(&psn).map_or(0, |(_, last)| last.path)
    }

    /// The time at which a packet was last sent.
    pub(super) fn sent_ps(&self, psn: u32) -> Option<u64> {
        self.sent.get(&psn).map(|(_, last)| last.sent_ps)
    }

    /// Packets of the incomplete block that have not left: the peer may know their numbers.
    pub(super) fn left_of_block(&self) -> i32 {
        self.open.as_ref().map_or(0, |open| i32::from(open.next.pkts() - open.next.index))
    }

    /// The queue pair has failed: an incomplete block remains so. Responses may begin others.
    pub(super) fn failed(&mut self) {
        if !std::mem::replace(&mut self.has_failed, true) {
            self.open = None;
        }
    }

    /// A buffer may have been too short for the next packet.
    pub(super) fn no_room(&mut self) {
        self.has_no_room = true;
    }

    /// A request may have memory that is not registered. It fails once those before it are
    /// complete; its block ends at once, since responses go on meanwhile.
    pub(super) fn no_memory(&mut self) {
        self.has_no_memory = true;
    }

    /// Checks a packet that left, for the first time or as a retransmission.
    pub(super) fn check(&mut self, p: &Packet<'_>, h: &SrDataRepr, payload: &[u8], is_new: bool) {
        match self.balances {
            true => assert_ne!(h.path, 0, "{h:?}"),
            false => assert_eq!(h.path, self.echoed_path, "{h:?}"),
        }
        self.check_path(p, h.path);
        if is_new {
            assert!(!h.is_retransmission, "{h:?}");
            self.check_new(p.bth.solicited, h, payload);
            if h.block.is_some_and(|place| !place.is_parity()) {
                self.first_payloads.insert(h.psn, payload.to_vec());
            }
        } else {
            let place = self.place(h.psn);
            assert_eq!(h.block, place, "{h:?} is a retransmission");
            // The peer adds those that are not marked to the sums of first transmissions.
            let is_same = self.first_payloads.get(&h.psn).is_some_and(|first| first == payload);
            assert_eq!(h.is_retransmission, !is_same, "{h:?}");
            if place.is_some_and(|place| place.is_parity()) {
                let empty = SrDataRepr { block: place, ..SrDataRepr::new(SrKind::Send, h.psn, 0) };
                let (path, sent_ps) = (h.path, h.sent_ps);
                let empty = SrDataRepr { path, sent_ps, is_retransmission: true, ..empty };
                assert_eq!(*h, empty, "its bytes are no longer stored");
            }
        }
        self.sent.insert(h.psn, (h.block, Last { path: h.path, sent_ps: h.sent_ps }));
    }

    /// A packet was accepted on this path.
    pub(super) fn on_received(&mut self, path: u16) {
        self.echoed_path = if Entropy::from_port(path).port() == path { path } else { 0 };
    }

    /// Checks that the source port is the path's, if it has one.
    pub(super) fn check_path(&self, p: &Packet<'_>, path: u16) {
        let is_port = Entropy::from_port(path).port() == path;
        assert!(!is_port || p.udp.src_port == path, "{path:#x} by {:#x}", p.udp.src_port);
    }

    fn check_new(&mut self, solicited: bool, h: &SrDataRepr, payload: &[u8]) {
        let may_end = std::mem::take(&mut self.has_no_room) || self.has_no_memory;
        if may_end && h.block.is_none_or(|place| place.index == 0) {
            self.open = None;
        }
        let Some(place) = h.block else {
            assert!(self.open.is_none(), "{h:?} within a block");
            return;
        };
        let mut open = match self.open.take() {
            Some(open) => open,
            None => {
                self.check_shape(&place);
                let data = Vec::new();
                Open { next: place, first: *h, latest: *h, solicited, data }
            }
        };
        assert_eq!(place, open.next, "{h:?}");
        if place.is_parity() {
            open.check_parity(solicited, h, payload);
        } else {
            assert!(place.index == 0 || h.message == open.first.message, "{h:?} of two messages");
            let longest = open.data.first().map_or(payload.len(), Vec::len);
            let is_last = place.index + 1 == place.data;
            assert!(payload.len() == longest || is_last && payload.len() < longest, "{h:?}");
            let is_full = self.erasure.is_some_and(|code| code.data == place.data);
            assert!(!is_last || is_full || h.last, "{h:?} ends a block that is short");
            open.data.push(payload.to_vec());
            (open.latest, open.solicited) = (*h, solicited);
        }
        open.next.index += 1;
        self.open = Some(open).filter(|open| open.next.index < place.pkts());
    }

    /// Checks that a block begins with the configured shape.
    fn check_shape(&self, place: &BlockRepr) {
        let code = self.erasure.expect("erasure coding is configured");
        let (least, most) = code.adaptive.unwrap_or((code.parity, code.parity));
        let parity = least.min(code.parity)..=most.max(code.parity);
        assert!(place.index == 0 && place.data <= code.data, "{place:?}");
        assert!(parity.contains(&place.parity) && place.scheme == code.scheme.id(), "{place:?}");
    }
}

impl Open {
    /// Checks that parity is that of the data that left, and covers all of it.
    fn check_parity(&self, solicited: bool, h: &SrDataRepr, payload: &[u8]) {
        let place = h.block.expect("parity has a block");
        let bytes = u32_from(self.data.iter().map(Vec::len).sum());
        let (first, latest) = (&self.first, &self.latest);
        let header = SrDataRepr {
            psn: h.psn,
            path: h.path,
            sent_ps: h.sent_ps,
            last: latest.last,
            reth: first.reth.map(|reth| spanwire_wire::RethRepr { dma_len: bytes, ..reth }),
            imm: latest.imm,
            ieth: latest.ieth,
            receive: latest.receive,
            block: h.block,
            block_bytes: Some(bytes),
            source_qpn: None,
            ..*first
        };
        assert_eq!((h, solicited), (&header, self.solicited));
        let scheme = Scheme::from_id(place.scheme).expect("the scheme is known");
        let code =
            Code::new(scheme, place.data.into(), place.parity.into()).expect("the code exists");
        let mut rows = vec![vec![0; self.data[0].len()]; place.parity.into()];
        for (column, data) in (0..).zip(&self.data) {
            code.add(column, data, &mut rows);
        }
        assert_eq!(payload, rows[usize_from((place.index - place.data).into())], "{h:?}");
    }
}
