//! The model of SR. A packet's bytes are placed in memory immediately. Its completion follows once
//! everything before it has arrived, except parity that is no longer needed. Recovered packets must
//! equal those sent.

use super::{Delivery, Kind, Message, Model, Pending, Source};
use spanwire_transport::WcOpcode;
use spanwire_wire::{BlockRepr, DropReason, Opcode, Packet, SrDataRepr, SrKind};
use std::collections::BTreeMap;

/// The expected receive state of a peer's stream.
#[derive(Default)]
pub(super) struct Stream {
    /// Packets beyond `next` that have arrived, and the message that each ends, if any.
    ahead: BTreeMap<u64, Option<u32>>,
    /// Number of packets that have arrived without a gap.
    next: u64,
    /// Blocks whose parity has partly arrived, by their first numbers: a bit for each row.
    parity: BTreeMap<u64, u64>,
    /// Packets that the peer sent, by number, whether they arrive or not.
    sent: BTreeMap<u64, (SrDataRepr, Vec<u8>)>,
}

/// The payload of a packet: received, or recovered by the engine and therefore equal to the first
/// transmission.
#[derive(Clone, Copy)]
enum Bytes<'a> {
    Came(&'a [u8]),
    Recovered(&'a [u8]),
}

impl Model {
    /// `side` sends an SR data or parity packet; it may be lost.
    pub(crate) fn send_sr(&mut self, side: usize, qp: usize, p: &Packet<'_>) {
        let (header, payload) = parse(p).expect("an engine wrote it");
        let q = &mut self.sides[side].qps[qp];
        let number = q.number(header.psn);
        match header.block.filter(BlockRepr::is_parity) {
            Some(block) if header.block_bytes.is_some() => {
                let first = number - u64::from(block.index);
                let data = (first..first + u64::from(block.data)).map(|n| &q.stream.sent[&n].1);
                let data: Vec<_> = data.collect();
                check_parity(&block, &header, payload, &data);
            }
            Some(_) => assert!(payload.is_empty(), "{header:?} abandons its number"),
            // Parity covers the first transmissions.
            None => {
                q.stream.sent.entry(number).or_insert_with(|| (header, payload.to_vec()));
            }
        }
    }

    /// An SR packet arrives intact at `side`.
    pub(super) fn deliver_sr(&mut self, side: usize, qp: usize, p: &Packet<'_>) {
        let (header, payload) = parse(p).expect("an engine wrote it");
        let number = self.sides[1 - side].qps[qp].number(header.psn);
        let here = &mut self.sides[side].qps[qp];
        if here.failed || here.stream.has(number) {
            return;
        }
        match header.block.filter(BlockRepr::is_parity) {
            Some(block) => {
                let first = number - u64::from(block.index);
                let is_row = u64::from(header.block_bytes.is_some());
                *here.stream.parity.entry(first).or_default() |= is_row << block.index;
                here.stream.ahead.insert(number, None);
            }
            None => {
                if !self.arrive(side, qp, number, &header, Bytes::Came(payload)) {
                    return; // RNR: it will be retransmitted.
                }
            }
        }
        self.advance(side, qp, header.block.map(|b| (number - u64::from(b.index), b)));
    }

    /// The engine at `side` has recovered `count` packets on the arrival of `p`. The engine may
    /// drop parity, but what it recovers must be right.
    pub(crate) fn recover_sr(&mut self, side: usize, qp: usize, p: &Packet<'_>, count: u64) {
        if count == 0 {
            return;
        }
        let (header, _) = parse(p).expect("an engine wrote it");
        let block = header.block.expect("recovery needs a block");
        let first = self.sides[1 - side].qps[qp].number(header.psn) - u64::from(block.index);
        let stream = &self.sides[side].qps[qp].stream;
        let data = first..first + u64::from(block.data);
        let lost: Vec<u64> = data.filter(|n| !stream.has(*n)).collect();
        let rows = stream.parity.get(&first).map_or(0, |rows| rows.count_ones()) as usize;
        assert!(lost.len() <= rows, "{lost:?} of {block:?} at {first} out of {rows} rows");
        for (i, number) in lost.into_iter().enumerate() {
            let (header, payload) = self.sides[1 - side].qps[qp].stream.sent[&number].clone();
            let arrived = self.arrive(side, qp, number, &header, Bytes::Recovered(&payload));
            let is_recovered = (i as u64) < count;
            assert_eq!(arrived, is_recovered, "{count} of {block:?} at {first}: number {number}");
            if !arrived {
                break;
            }
        }
        self.advance(side, qp, Some((first, block)));
    }

    /// A data or request packet has arrived. Returns false if it is not accepted.
    fn arrive(
        &mut self,
        side: usize,
        qp: usize,
        number: u64,
        header: &SrDataRepr,
        bytes: Bytes<'_>,
    ) -> bool {
        let ends = match header.kind {
            SrKind::ReadResponse | SrKind::AtomicResponse => None,
            _ if !self.place_sr(side, qp, header, bytes) => return false,
            _ => header.last.then_some(header.message),
        };
        self.sides[side].qps[qp].stream.ahead.insert(number, ends);
        true
    }

    /// Executes everything whose predecessors have arrived. Parity of a block with complete data is
    /// not waited for.
    fn advance(&mut self, side: usize, qp: usize, block: Option<(u64, BlockRepr)>) {
        let stream = &mut self.sides[side].qps[qp].stream;
        if let Some((first, block)) = block {
            let parity_at = first + u64::from(block.data);
            if (first..parity_at).all(|n| stream.has(n)) {
                for number in parity_at..first + u64::from(block.pkts()) {
                    if !stream.has(number) {
                        stream.ahead.insert(number, None);
                    }
                }
                stream.parity.remove(&first);
            }
        }
        while let Some(ends) = self.sides[side].qps[qp].stream.pop_next() {
            if let Some(message) = ends {
                self.carry_out(side, qp, message as usize);
            }
        }
    }

    /// Places a request's bytes in memory; returns false if there is no receive request yet.
    fn place_sr(&mut self, side: usize, qp: usize, h: &SrDataRepr, bytes: Bytes<'_>) -> bool {
        let (Bytes::Came(payload) | Bytes::Recovered(payload)) = bytes;
        let posted = &self.sides[1 - side].qps[qp].posted;
        let i = h.message as usize;
        let m = posted.get(i).cloned().unwrap_or_else(|| panic!("{h:?} was never posted"));
        let kind = match m.kind {
            Kind::Send => SrKind::Send,
            Kind::Write | Kind::WriteImm => SrKind::Write,
            Kind::Read => SrKind::ReadRequest,
            Kind::FetchAdd(_) => SrKind::FetchAdd,
            Kind::CmpSwap(..) => SrKind::CmpSwap,
        };
        assert_eq!(h.kind, kind, "{m:?}");
        let uses = |m: &&Message| matches!(m.kind, Kind::Send | Kind::WriteImm);
        let receive = posted[..i].iter().filter(uses).count();
        let (at, len) = (h.offset as usize, payload.len());
        let to = match m.kind {
            Kind::Send => {
                assert_eq!(h.receive.map(|r| r as usize), Some(receive), "{m:?}");
                match self.sides[side].recv_slot(qp, receive) {
                    Some(recv_at) => recv_at,
                    None => {
                        self.note_rnr_nak(1 - side, qp, i);
                        return false;
                    }
                }
            }
            Kind::WriteImm if h.last && self.sides[side].recv_slot(qp, receive).is_none() => {
                self.note_rnr_nak(1 - side, qp, i);
                return false;
            }
            Kind::Write | Kind::WriteImm => m.remote,
            Kind::Read | Kind::FetchAdd(_) | Kind::CmpSwap(..) => {
                assert_eq!(len, 0, "a request carries nothing");
                return true;
            }
        };
        assert!(at + len <= m.data.len(), "{h:?}");
        assert_eq!((h.first, h.last), (at == 0, at + len == m.data.len()), "{h:?}");
        let source = m.source.map(|s| Source { at: s.at + at, ..s });
        let source = source.filter(|s| !self.history[s.side].is_unchanged(s, len));
        match (bytes, source) {
            // The engine recovered it from packets, some of which may have read their source later.
            (Bytes::Recovered(_), Some(source)) => {
                let (at, data, source) = (to + at, m.data[at..at + len].to_vec(), Some(source));
                let (qp, number) = (qp, i as u64);
                self.sides[side].landed.push(Pending { qp, number, at, data, source });
            }
            _ => {
                self.check_payload(&m, at, payload);
                self.sides[side].memory[to + at..to + at + len].copy_from_slice(payload);
            }
        }
        true
    }

    /// Everything up to the end of message `i` has arrived.
    fn carry_out(&mut self, side: usize, qp: usize, i: usize) {
        let m = self.sides[1 - side].qps[qp].posted[i].clone();
        let q = &mut self.sides[side].qps[qp];
        assert_eq!(q.expected, i as u64, "messages complete in the order of posting");
        match m.kind {
            Kind::Write => q.expected += 1,
            Kind::Send | Kind::WriteImm => {
                q.expected += 1;
                q.received += 1;
                let recv = q.ahead.pop_front().or_else(|| q.recvs.pop_front());
                let opcode = match m.kind {
                    Kind::Send => WcOpcode::Recv,
                    _ => WcOpcode::RecvRdmaWithImm,
                };
                q.due.push_back(Delivery {
                    recv: recv.expect("it existed when its bytes were placed"),
                    opcode,
                    len: m.data.len(),
                    imm: m.imm,
                    invalidated: m.invalidates,
                    solicited: m.solicited,
                });
            }
            Kind::Read => {
                q.expected += 1;
                let data = self.sides[side].memory[m.remote..m.remote + m.data.len()].to_vec();
                self.expect_result(1 - side, qp, i as u64, i, 0, data);
            }
            Kind::FetchAdd(_) | Kind::CmpSwap(..) => self.atomic(side, qp, i as u64, i, &m),
        }
    }
}

impl super::Qp {
    /// The number of a packet that this end sent. No world uses half of all numbers.
    fn number(&self, psn: u32) -> u64 {
        // The 24 bits of the announced PSN, and eight below.
        u64::from(psn.wrapping_sub(self.first_psn << 8))
    }
}

impl Stream {
    fn has(&self, number: u64) -> bool {
        number < self.next || self.ahead.contains_key(&number)
    }

    fn pop_next(&mut self) -> Option<Option<u32>> {
        let ends = self.ahead.remove(&self.next)?;
        self.next += 1;
        Some(ends)
    }
}

/// Header and payload of a packet of data or parity.
fn parse<'a>(p: &Packet<'a>) -> Result<(SrDataRepr, &'a [u8]), DropReason> {
    match p.bth.opcode {
        Opcode::SrParity => SrDataRepr::parse_parity(p.bth.psn.get(), p.payload),
        _ => SrDataRepr::parse(p.bth.psn.get(), p.payload),
    }
}

/// Checks the length that parity states for its data, and P as their sum. Errors in other rows show
/// up in a recovery.
fn check_parity(block: &BlockRepr, header: &SrDataRepr, parity: &[u8], data: &[&Vec<u8>]) {
    let bytes: usize = data.iter().map(|d| d.len()).sum();
    assert_eq!(header.block_bytes.map(|n| n as usize), Some(bytes), "{block:?}");
    let longest = data.iter().map(|d| d.len()).max().unwrap_or(0);
    assert_eq!(parity.len(), longest, "{block:?}");
    if (block.scheme, block.index) == (PQ, block.data) {
        let byte = |i: usize| data.iter().filter_map(|d| d.get(i)).fold(0, |sum, byte| sum ^ byte);
        assert!((0..longest).all(|i| parity[i] == byte(i)), "P of {block:?}");
    }
}

/// The number of P and Q on the wire.
const PQ: u8 = 1;

impl super::Side {
    /// Location of the receive request number `receive` of a queue pair, if it exists.
    fn recv_slot(&mut self, qp: usize, receive: usize) -> Option<usize> {
        let q = &mut self.qps[qp];
        let i = receive - q.received;
        match &mut self.srq {
            None => q.recvs.get(i).map(|r| r.at),
            Some(shared) if q.ahead.len() + shared.len() <= i => None,
            Some(shared) => {
                while q.ahead.len() <= i {
                    q.ahead.extend(shared.pop_front());
                }
                q.ahead.get(i).map(|r| r.at)
            }
        }
    }
}
