//! What one packet of a request looks like: opcode, headers, and the bytes it carries.

use super::requester::{Allowance, Wqe};
use crate::verbs::{RemoteAddr, WrOp};
use spanwire_wire::{Opcode, Psn};

/// The next packet, described. Nothing has changed yet: `Requester::advance` does that once the
/// packet is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) opcode: Opcode,
    pub(crate) psn: Psn,
    /// For a packet that starts a WRITE or asks for a READ: where, and the bytes it speaks of.
    pub(crate) reth: Option<(RemoteAddr, u32)>,
    pub(crate) imm: Option<u32>,
    pub(crate) solicited: bool,
    pub(crate) ack_req: bool,
    /// Request in the queue, and the part of its bytes this packet carries (none for a READ).
    pub(crate) wqe: usize,
    pub(crate) offset: u32,
    pub(crate) len: u32,
    /// PSNs it takes.
    pub(crate) pkts: u32,
    /// It was sent before.
    pub(crate) is_retransmission: bool,
}

/// Where the requester stands when it describes a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    /// Index of the request in the queue.
    pub(crate) wqe: usize,
    /// The packet's unwrapped number, and its PSN on the wire.
    pub(crate) number: u64,
    pub(crate) psn: Psn,
    /// PSNs it takes.
    pub(crate) pkts: u32,
    /// The packet must ask for an acknowledgement, whatever it is.
    pub(crate) asks: bool,
    pub(crate) is_retransmission: bool,
}

impl Segment {
    /// The packet of `wqe` at `at`, which is one of its own.
    pub(crate) fn new(wqe: &Wqe, at: &Position, may: &Allowance) -> Self {
        let offset = wqe.offset_of(at.number, may.mtu);
        let len = (wqe.len - offset).min(at.pkts.saturating_mul(may.mtu.bytes()));
        let place = Place {
            first: at.number == wqe.first,
            last: at.number + u64::from(at.pkts) == wqe.end(),
        };
        let opcode = place.opcode(wqe.op);
        let is_read = wqe.op.is_read();
        let reth = match wqe.op {
            WrOp::Read { remote } => {
                let va = remote.va.wrapping_add(offset.into());
                Some((RemoteAddr { va, ..remote }, len))
            }
            op => op
                .remote()
                .filter(|_| place.first)
                .map(|remote| (remote, wqe.len)),
        };
        Self {
            opcode,
            psn: at.psn,
            reth,
            imm: wqe.op.imm().filter(|_| opcode.props().imm),
            solicited: wqe.solicited && place.last && !is_read,
            ack_req: at.asks || is_read,
            wqe: at.wqe,
            offset,
            len: if is_read { 0 } else { len },
            pkts: at.pkts,
            is_retransmission: at.is_retransmission,
        }
    }
}

/// Where in its message a packet stands.
#[derive(Clone, Copy)]
struct Place {
    first: bool,
    last: bool,
}

impl Place {
    fn opcode(self, op: WrOp) -> Opcode {
        use Opcode::{
            RcReadRequest, RcSendFirst, RcSendLast, RcSendLastImm, RcSendMiddle, RcSendOnly,
            RcSendOnlyImm, RcWriteFirst, RcWriteLast, RcWriteLastImm, RcWriteMiddle, RcWriteOnly,
            RcWriteOnlyImm,
        };
        let [first, middle, last, only] = match op {
            WrOp::Send => [RcSendFirst, RcSendMiddle, RcSendLast, RcSendOnly],
            WrOp::SendImm { .. } => [RcSendFirst, RcSendMiddle, RcSendLastImm, RcSendOnlyImm],
            WrOp::Write { .. } => [RcWriteFirst, RcWriteMiddle, RcWriteLast, RcWriteOnly],
            WrOp::WriteImm { .. } => [RcWriteFirst, RcWriteMiddle, RcWriteLastImm, RcWriteOnlyImm],
            WrOp::Read { .. } => [RcReadRequest; 4],
        };
        match (self.first, self.last) {
            (true, true) => only,
            (true, false) => first,
            (false, true) => last,
            (false, false) => middle,
        }
    }
}
