//! One packet of a request: opcode, headers, and the bytes that it carries.

use super::request::Request;
use crate::attr::Mtu;
use crate::verbs::{RemoteAddr, WrOp};
use spanwire_wire::{AtomicEthRepr, OpKind, Opcode, Psn};

/// The description of the next packet. `Requester::advance` takes effect once the packet is
/// written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) opcode: Opcode,
    pub(crate) psn: Psn,
    /// RETH of the first packet of a WRITE and of a READ request: address and DMA length.
    pub(crate) reth: Option<(RemoteAddr, u32)>,
    /// AtomicETH of an atomic.
    pub(crate) atomic: Option<AtomicEthRepr>,
    pub(crate) imm: Option<u32>,
    /// IETH of the last packet of a SEND with invalidate: the rkey.
    pub(crate) ieth: Option<u32>,
    pub(crate) solicited: bool,
    pub(crate) ack_req: bool,
    /// Index of the request in the queue, and the part of its bytes in this packet (none for a READ
    /// or an atomic).
    pub(crate) wqe: usize,
    pub(crate) is_inline: bool,
    pub(crate) offset: u32,
    pub(crate) len: u32,
    /// PSNs of the packet; of a READ request, its response packets.
    pub(crate) pkts: u32,
    /// It has been sent before.
    pub(crate) is_retransmission: bool,
}

/// The position of the requester when it describes a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    /// Index of the request in the queue.
    pub(crate) wqe: usize,
    /// The packet's unwrapped number, and its PSN on the wire.
    pub(crate) number: u64,
    pub(crate) psn: Psn,
    /// PSNs of the packet; of a READ request, its response packets.
    pub(crate) pkts: u32,
    /// The packet must have AckReq, whatever its type.
    pub(crate) ack_req: bool,
    pub(crate) is_retransmission: bool,
}

impl Segment {
    /// The packet of `request` at position `at`.
    // One caller; out of line, the result would be returned through memory.
    #[inline]
    pub(crate) fn new(request: &Request, at: &Position, mtu: Mtu) -> Self {
        let wqe = &request.wqe;
        let offset = request.offset_of(at.number, mtu);
        let len = (wqe.len - offset).min(at.pkts.saturating_mul(mtu.bytes()));
        let place = Place {
            first: at.number == request.first,
            last: at.number + u64::from(at.pkts) == request.end(),
        };
        let opcode = place.opcode(wqe.op);
        let is_rd_atomic = wqe.op.is_rd_atomic();
        let reth = match wqe.op {
            WrOp::Read { remote } => {
                let va = remote.va.wrapping_add(offset.into());
                Some((RemoteAddr { va, ..remote }, len))
            }
            WrOp::FetchAdd { .. } | WrOp::CmpSwap { .. } => None,
            op => op.remote().filter(|_| place.first).map(|remote| (remote, wqe.len)),
        };
        Self {
            opcode,
            psn: at.psn,
            reth,
            atomic: wqe.op.operands(),
            ieth: match wqe.op {
                WrOp::SendInv { rkey } if opcode.props().ieth => Some(rkey),
                _ => None,
            },
            imm: wqe.op.imm().filter(|_| opcode.props().imm),
            solicited: wqe.solicited && place.last && wqe.op.completes_a_receive(),
            ack_req: at.ack_req || is_rd_atomic,
            wqe: at.wqe,
            is_inline: wqe.is_inline,
            offset,
            len: if is_rd_atomic { 0 } else { len },
            pkts: at.pkts,
            is_retransmission: at.is_retransmission,
        }
    }

    /// True for a READ request.
    pub(crate) fn is_read(&self) -> bool {
        self.opcode.props().kind == OpKind::ReadRequest
    }

    /// True for a packet that only its own response acknowledges.
    pub(crate) fn is_rd_atomic(&self) -> bool {
        matches!(self.opcode.props().kind, OpKind::ReadRequest | OpKind::Atomic)
    }
}

/// The position of a packet in its message.
#[derive(Clone, Copy)]
struct Place {
    first: bool,
    last: bool,
}

impl Place {
    fn opcode(self, op: WrOp) -> Opcode {
        use Opcode::{
            RcCmpSwap, RcFetchAdd, RcReadRequest, RcSendFirst, RcSendLast, RcSendLastImm,
            RcSendLastInv, RcSendMiddle, RcSendOnly, RcSendOnlyImm, RcSendOnlyInv, RcWriteFirst,
            RcWriteLast, RcWriteLastImm, RcWriteMiddle, RcWriteOnly, RcWriteOnlyImm,
        };
        let [first, middle, last, only] = match op {
            WrOp::Send => [RcSendFirst, RcSendMiddle, RcSendLast, RcSendOnly],
            WrOp::SendImm { .. } => [RcSendFirst, RcSendMiddle, RcSendLastImm, RcSendOnlyImm],
            WrOp::SendInv { .. } => [RcSendFirst, RcSendMiddle, RcSendLastInv, RcSendOnlyInv],
            WrOp::Write { .. } => [RcWriteFirst, RcWriteMiddle, RcWriteLast, RcWriteOnly],
            WrOp::WriteImm { .. } => [RcWriteFirst, RcWriteMiddle, RcWriteLastImm, RcWriteOnlyImm],
            WrOp::Read { .. } => [RcReadRequest; 4],
            WrOp::FetchAdd { .. } => [RcFetchAdd; 4],
            WrOp::CmpSwap { .. } => [RcCmpSwap; 4],
        };
        match (self.first, self.last) {
            (true, true) => only,
            (true, false) => first,
            (false, true) => last,
            (false, false) => middle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rc::requester::{Allowance, Next, Requester};
    use crate::verbs::{Sge, WorkRequest};

    const REMOTE: RemoteAddr = RemoteAddr { va: 0x1000, rkey: 5 };

    fn segments(op: WrOp, len: u32) -> Vec<Segment> {
        let mut r = Requester::new(4, 1, 0);
        r.start(Psn::new(0xff_ffff), 4);
        let sges = [Sge::default()];
        let wr = WorkRequest { solicited: true, ..WorkRequest::new(1, op, &sges) };
        r.post(&wr, len, Mtu::B256);
        let mut out = Vec::new();
        while let Next::Segment(s) = r.next(&Allowance::wide()) {
            r.advance(&s);
            out.push(s);
        }
        out
    }

    #[test]
    fn new__every_position_has_its_opcode() {
        use Opcode::*;
        let remote = REMOTE;
        let cases = [
            (WrOp::Send, [RcSendFirst, RcSendMiddle, RcSendLast, RcSendOnly]),
            (WrOp::SendImm { imm: 1 }, [RcSendFirst, RcSendMiddle, RcSendLastImm, RcSendOnlyImm]),
            (WrOp::Write { remote }, [RcWriteFirst, RcWriteMiddle, RcWriteLast, RcWriteOnly]),
            (
                WrOp::WriteImm { remote, imm: 1 },
                [RcWriteFirst, RcWriteMiddle, RcWriteLastImm, RcWriteOnlyImm],
            ),
        ];
        for (op, [first, middle, last, only]) in cases {
            let opcodes =
                |len| -> Vec<Opcode> { segments(op, len).iter().map(|s| s.opcode).collect() };
            assert_eq!(opcodes(600), [first, middle, last]);
            assert_eq!(opcodes(512), [first, last]);
            assert_eq!(opcodes(256), [only]);
            assert_eq!(opcodes(0), [only]);
        }
    }

    #[test]
    fn new__headers_are_in_the_packets_that_need_them() {
        let op = WrOp::WriteImm { remote: REMOTE, imm: 9 };
        let [a, b, c] = segments(op, 600)[..] else { panic!("three packets") };
        assert_eq!((a.reth, b.reth, c.reth), (Some((REMOTE, 600)), None, None));
        assert_eq!((a.imm, b.imm, c.imm), (None, None, Some(9)));
        assert_eq!((a.solicited, b.solicited, c.solicited), (false, false, true));
        assert_eq!((a.ack_req, b.ack_req, c.ack_req), (false, false, true));
        assert_eq!((a.offset, b.offset, c.offset), (0, 256, 512));
        assert_eq!((a.len, b.len, c.len), (256, 256, 88));
        let psns = [a, b, c].map(|s| s.psn.get());
        assert_eq!(psns, [0xff_ffff, 0, 1], "across the wrap");
    }

    #[test]
    fn new__only_requests_that_consume_a_receive_are_solicited() {
        let remote = REMOTE;
        let invalidate = WrOp::SendInv { rkey: 1 };
        for op in [WrOp::Send, invalidate, WrOp::WriteImm { remote, imm: 1 }] {
            assert!(segments(op, 8)[0].solicited, "{op:?}");
        }
        for op in [WrOp::Write { remote }, WrOp::FetchAdd { remote, add: 1 }] {
            assert!(!segments(op, 8)[0].solicited, "{op:?}");
        }
    }

    #[test]
    fn new__a_read_requests_chunks_and_has_no_payload() {
        let all = segments(WrOp::Read { remote: REMOTE }, 256 * 6 + 1);
        let got: Vec<_> = all.iter().map(|s| (s.reth, s.pkts, s.psn.get())).collect();
        let at = |va, len| {
            let rkey = REMOTE.rkey;
            Some((RemoteAddr { va, rkey }, len))
        };
        assert_eq!(got, [(at(0x1000, 1024), 4, 0xff_ffff), (at(0x1400, 513), 3, 3)]);
        assert!(all.iter().all(|s| s.ack_req && s.len == 0 && !s.solicited));
        let [zero] = segments(WrOp::Read { remote: REMOTE }, 0)[..] else { panic!("one packet") };
        assert_eq!((zero.reth, zero.pkts), (Some((REMOTE, 0)), 1));
    }
}
