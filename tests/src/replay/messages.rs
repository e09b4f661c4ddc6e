//! The work requests behind a recorded requester's packets.

use super::packet::Sent;
use spanwire_transport::WrOp;
use spanwire_wire::{OpKind, Opcode, Psn};
use std::collections::BTreeMap;

/// A message that a side requested.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) first: Psn,
    /// Its number of PSNs.
    pub(super) pkts: u32,
    pub(super) op: WrOp,
    pub(super) kind: OpKind,
    /// Bytes sent or requested.
    pub(super) len: u32,
    pub(super) solicited: bool,
    /// The payload sent.
    pub(super) payload: Vec<u8>,
}

impl Message {
    /// True if it consumes a receive request of the peer.
    pub(super) fn consumes_recv(&self) -> bool {
        self.kind == OpKind::Send || matches!(self.op, WrOp::WriteImm { .. })
    }
}

/// The messages of one side's requests, in the order of their PSNs. Retransmissions are recognised
/// by their PSN and counted once. A READ may be retransmitted in part, so its first request counts.
/// Of other packets the last one counts, because the hand-made requester of capture 82 first sends
/// some that are to be dropped.
///
/// # Panics
/// If a message is incomplete.
pub(super) fn messages(requests: &[&Sent], mtu: u32) -> Vec<Message> {
    let mut by_psn: BTreeMap<u32, &Sent> = BTreeMap::new();
    for sent in requests {
        let held = by_psn.entry(sent.headers.bth.psn.get()).or_insert(sent);
        if held.headers.bth.opcode != Opcode::RcReadRequest {
            *held = sent;
        }
    }
    let mut found = Vec::new();
    let Some(mut next) = requests.first().map(|s| s.headers.bth.psn) else {
        return found;
    };
    while let Some(first) = by_psn.get(&next.get()) {
        let message = message(first, &by_psn, mtu);
        next = next.plus(message.pkts);
        found.push(message);
    }
    found
}

fn message(first: &Sent, by_psn: &BTreeMap<u32, &Sent>, mtu: u32) -> Message {
    let bth = &first.headers.bth;
    let kind = bth.opcode.props().kind;
    let mut message = Message {
        first: bth.psn,
        pkts: 1,
        op: WrOp::Send,
        kind,
        len: 0,
        solicited: false,
        payload: Vec::new(),
    };
    let remote = remote(first);
    match kind {
        OpKind::ReadRequest => {
            message.len = first.headers.ext.reth.expect("a READ has a RETH").dma_len;
            message.pkts = message.len.div_ceil(mtu).max(1);
            message.op = WrOp::Read { remote };
        }
        OpKind::Atomic => {
            let eth = first.headers.ext.atomic.expect("an atomic has an AtomicETH");
            message.len = 8;
            message.op = match bth.opcode {
                Opcode::RcFetchAdd => WrOp::FetchAdd { remote, add: eth.swap_or_add },
                _ => WrOp::CmpSwap { remote, compare: eth.compare, swap: eth.swap_or_add },
            };
        }
        _ => {
            let mut packet = first;
            loop {
                message.payload.extend_from_slice(&packet.payload);
                let props = packet.headers.bth.opcode.props();
                if props.last {
                    break;
                }
                let psn = packet.headers.bth.psn.next();
                packet = by_psn.get(&psn.get()).expect("every message is whole");
                message.pkts += 1;
            }
            message.len = spanwire_base::u32_from(message.payload.len());
            message.solicited = packet.headers.bth.solicited;
            message.op = match (kind, packet.headers.ext.imm) {
                (OpKind::Send, None) => WrOp::Send,
                (OpKind::Send, Some(imm)) => WrOp::SendImm { imm },
                (_, None) => WrOp::Write { remote },
                (_, Some(imm)) => WrOp::WriteImm { remote, imm },
            };
        }
    }
    message
}

fn remote(first: &Sent) -> spanwire_transport::RemoteAddr {
    let ext = &first.headers.ext;
    let named = ext.reth.map(|r| (r.va, r.rkey)).or(ext.atomic.map(|a| (a.va, a.rkey)));
    let (va, rkey) = named.unwrap_or_default();
    spanwire_transport::RemoteAddr { va, rkey }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{Host, Lane, captures};

    fn of(capture: &str, from: Host, mtu: u32) -> Vec<(Psn, u32, OpKind, u32, usize)> {
        let all = captures();
        let capture = all.iter().find(|c| c.name == capture).expect("a capture");
        let frames = capture.frames.iter().filter(|f| f.from == from);
        let sent = frames.filter_map(|f| f.packet.as_ref().ok());
        let requests: Vec<&Sent> = sent.filter(|s| s.lane() == Some(Lane::Requests)).collect();
        let each = |m: &Message| (m.first, m.pkts, m.kind, m.len, m.payload.len());
        messages(&requests, mtu).iter().map(each).collect()
    }

    #[test]
    fn messages__are_counted_once_and_run_across_the_wrap() {
        use OpKind::{Atomic, ReadRequest, Send, Write};
        let psn = Psn::new;
        let want = [
            (psn(0xff_fffd), 4, Send, 4000, 4000),
            (psn(1), 4, Send, 4000, 4000),
            (psn(5), 5, ReadRequest, 5000, 0),
            (psn(10), 3, Write, 3000, 3000),
            (psn(13), 1, Atomic, 8, 0),
        ];
        assert_eq!(of("44_psn_wrap", Host::A, 1024), want);
        assert_eq!(of("53_rnr_pipeline", Host::A, 1024).len(), 6, "74 packets of 6 SENDs");
        let tail = of("75_loss_read_last", Host::A, 1024);
        assert_eq!(tail.len(), 1, "retransmitted, not new: {tail:?}");
        assert_eq!(of("01_send_small", Host::B, 1024), []);
    }
}
