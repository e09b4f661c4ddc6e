//! Checks of the engine's output.

use super::memory::{SECRET, SECRET_PERIOD};
use super::setup::{MTU, OUR_IP, PEER_IP, PEER_QPN};
use spanwire_wire::{BthRepr, OpClass, OpKind, Packet, Psn, Syndrome};

/// Requests sent and responses allowed.
pub(super) struct Output {
    /// One past the last PSN of a request.
    pub(super) snd_nxt: Psn,
    /// Responses that the packets received so far may cause.
    pub(super) replies_left: u64,
}

impl Output {
    /// Checks one frame against `epsn`, the PSN our responder expects.
    pub(super) fn check(&mut self, packet: &Packet<'_>, epsn: Psn) {
        let Packet { bth, ext, payload, .. } = packet;
        assert!(payload.len() <= spanwire_base::usize_from(MTU.bytes().into()));
        let props = bth.opcode.props();
        match props.class {
            OpClass::Request => {
                let packets = match ext.reth {
                    Some(reth) if props.kind == OpKind::ReadRequest => packets(reth.dma_len),
                    _ => 1,
                };
                let next = bth.psn.plus(packets);
                if self.snd_nxt.is_before(next) {
                    self.snd_nxt = next;
                }
            }
            OpClass::Response => {
                let left = self.replies_left.checked_sub(1);
                self.replies_left = left.expect("a response without a request");
                let names_missing =
                    ext.aeth.is_some_and(|a| !matches!(a.syndrome, Syndrome::Ack { .. }));
                let ahead = bth.psn.since(epsn);
                assert!(
                    ahead < 0 || ahead == 0 && names_missing,
                    "{} acknowledges PSN {} and expects {epsn:?}",
                    props.name,
                    bth.psn.get()
                );
                check_secret(payload);
            }
            OpClass::Notification => panic!("no notification is ever sent"),
        }
    }
}

/// Parses a frame that left for the peer.
pub(super) fn parse(frame: &[u8]) -> Packet<'_> {
    let packet = Packet::parse(frame).expect("a sent packet is accepted");
    let Packet { ip, bth, .. } = &packet;
    assert_eq!((ip.src(), ip.dst()), (OUR_IP, PEER_IP));
    assert_eq!((bth.dest_qp, bth.pkey), (PEER_QPN, BthRepr::DEFAULT_PKEY));
    packet
}

/// Checks that a response carries no memory that its peer may not read.
pub(super) fn check_secret(payload: &[u8]) {
    let follows =
        |a: u8, b: u8| a >= SECRET && b == SECRET + a.wrapping_sub(SECRET - 1) % SECRET_PERIOD;
    let is_secret = |w: &[u8]| w.windows(2).all(|pair| follows(pair[0], pair[1]));
    let leaks = payload.windows(8).any(is_secret);
    assert!(!leaks, "a response leaks memory without read access");
}

/// The number of PSNs of a READ.
pub(super) fn packets(len: u32) -> u32 {
    len.div_ceil(MTU.bytes()).max(1)
}
