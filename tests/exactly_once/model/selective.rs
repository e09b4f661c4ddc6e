//! What a packet of SRC must do: its bytes are in memory at once, what it completes happens when
//! everything before it has arrived.

use super::{Delivery, Kind, Message, Model};
use spanwire_transport::WcOpcode;
use spanwire_wire::{Packet, SrcDataRepr, SrcKind};
use std::collections::BTreeMap;

/// A peer's stream as it must have arrived.
#[derive(Default)]
pub(super) struct Stream {
    /// Packets beyond `next` that have arrived, and which message each ends, if it does.
    ahead: BTreeMap<u64, Option<u32>>,
    /// How many packets have arrived without a gap.
    next: u64,
}

impl Model {
    /// A packet of SRC arrives whole at `side`.
    pub(super) fn deliver_src(&mut self, side: usize, qp: usize, p: &Packet<'_>) {
        let (header, payload) =
            SrcDataRepr::parse(p.bth.psn.get(), p.payload).expect("an engine wrote it");
        // The 24 bits that were told, and eight below.
        let first = self.sides[1 - side].qps[qp].first_psn << 8;
        let here = &self.sides[side].qps[qp];
        // No world sends half of all numbers.
        let number = u64::from(header.psn.wrapping_sub(first));
        let is_new = number >= here.stream.next && !here.stream.ahead.contains_key(&number);
        if here.dead || !is_new {
            return;
        }
        let ends = match header.kind {
            SrcKind::ReadResponse | SrcKind::AtomicResponse => None,
            _ => {
                if !self.place_src(side, qp, &header, payload) {
                    return; // No receive: it will come again.
                }
                header.last.then_some(header.message)
            }
        };
        self.sides[side].qps[qp].stream.ahead.insert(number, ends);
        while let Some(ends) = self.sides[side].qps[qp].stream.pop_next() {
            if let Some(message) = ends {
                self.carry_out(side, qp, message as usize);
            }
        }
    }

    /// Puts a request's bytes where they belong; false when that is nowhere yet.
    fn place_src(&mut self, side: usize, qp: usize, h: &SrcDataRepr, payload: &[u8]) -> bool {
        let posted = &self.sides[1 - side].qps[qp].posted;
        let i = h.message as usize;
        let m = posted.get(i).cloned().unwrap_or_else(|| panic!("{h:?} was never posted"));
        let kind = match m.kind {
            Kind::Send => SrcKind::Send,
            Kind::Write | Kind::WriteImm => SrcKind::Write,
            Kind::Read => SrcKind::ReadRequest,
            Kind::FetchAdd(_) => SrcKind::FetchAdd,
            Kind::CmpSwap(..) => SrcKind::CmpSwap,
        };
        assert_eq!(h.kind, kind, "{m:?}");
        let uses = |m: &&Message| matches!(m.kind, Kind::Send | Kind::WriteImm);
        let receive = posted[..i].iter().filter(uses).count();
        let (at, len) = (h.offset as usize, payload.len());
        let to = match m.kind {
            Kind::Send => {
                assert_eq!(h.receive.map(|r| r as usize), Some(receive), "{m:?}");
                match self.sides[side].reach(qp, receive) {
                    Some(recv_at) => recv_at,
                    None => return false,
                }
            }
            Kind::WriteImm if h.last && self.sides[side].reach(qp, receive).is_none() => {
                return false;
            }
            Kind::Write | Kind::WriteImm => m.remote,
            Kind::Read | Kind::FetchAdd(_) | Kind::CmpSwap(..) => {
                assert_eq!(len, 0, "a request carries nothing");
                return true;
            }
        };
        assert_eq!(payload, &m.data[at..at + len], "{h:?}");
        assert_eq!((h.first, h.last), (at == 0, at + len == m.data.len()), "{h:?}");
        self.sides[side].memory[to + at..to + at + len].copy_from_slice(payload);
        true
    }

    /// Everything up to the end of message `i` has arrived.
    fn carry_out(&mut self, side: usize, qp: usize, i: usize) {
        let m = self.sides[1 - side].qps[qp].posted[i].clone();
        let q = &mut self.sides[side].qps[qp];
        assert_eq!(q.expected, i as u64, "messages end in the order of posting");
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
                    recv: recv.expect("it was there when its bytes were placed"),
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
                self.bring(1 - side, qp, i as u64, i, 0, data);
            }
            Kind::FetchAdd(_) | Kind::CmpSwap(..) => self.atomic(side, qp, i as u64, i, &m),
        }
    }
}

impl Stream {
    fn pop_next(&mut self) -> Option<Option<u32>> {
        let ends = self.ahead.remove(&self.next)?;
        self.next += 1;
        Some(ends)
    }
}

impl super::Side {
    /// Where the receive request number `receive` of a queue pair lies, if it is there.
    fn reach(&mut self, qp: usize, receive: usize) -> Option<usize> {
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
