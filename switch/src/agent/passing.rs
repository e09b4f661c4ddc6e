//! The fields of a passing packet that agents read.

use crate::parse::{ParsedFrame, ParsedIp, halves};
use spanwire_wire::{
    IntStack, MacAddr, OpKind, Opcode, Qpn, ROCE_PORT, SrAckPassing, SrDataPassing,
};

/// A RoCE packet that passes a switch, as far as agents read it. Nothing is checked but that the
/// fields are there: the ICRC is not computed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passing {
    /// The flow's addresses and queue pairs.
    pub(crate) ends: FlowEnds,
    /// A hash of the pair of addresses.
    pub(crate) pair: u64,
    /// It carries data, and its sender reacts to congestion.
    pub(crate) is_data: bool,
    /// The sender's QPN, which SR data may carry.
    pub(crate) source_qpn: Option<Qpn>,
    /// SR data, not parity.
    pub(crate) sr: Option<SrData>,
    /// SR parity.
    pub(crate) is_parity: bool,
    /// An SR acknowledgement.
    pub(crate) ack: Option<SrAckPassing>,
    /// SR data that asks for credit: its telemetry is of version 2 (MLCC).
    pub(crate) asks_credit: bool,
    /// TTL or hop limit on arrival.
    pub(crate) hop_limit: u8,
    /// Its wire length.
    pub(crate) wire_bytes: u64,
}

/// The fields of SR data that agents read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SrData {
    pub(crate) psn: u32,
    /// When it was sent, by its sender's clock, ps.
    pub(crate) sent_ps: u64,
}

/// The two ends of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlowEnds {
    /// MAC addresses of the frame, as it arrived.
    pub(crate) source_mac: MacAddr,
    pub(crate) dest_mac: MacAddr,
    pub(crate) is_v6: bool,
    /// IP addresses; those of IPv4 are in the upper 32 bits.
    pub(crate) source: u128,
    pub(crate) dest: u128,
    /// UDP source port.
    pub(crate) source_port: u16,
    /// The receiver's QPN.
    pub(crate) dest_qpn: Qpn,
}

impl Default for FlowEnds {
    fn default() -> Self {
        Self {
            source_mac: MacAddr::default(),
            dest_mac: MacAddr::default(),
            is_v6: false,
            source: 0,
            dest: 0,
            source_port: 0,
            dest_qpn: Qpn::new(0),
        }
    }
}

impl Passing {
    /// The packet of a frame with these headers; `None` if it is no RoCE packet with a whole BTH.
    #[inline]
    pub(crate) fn of(frame: &[u8], seen: &ParsedFrame, wire_bytes: u64) -> Option<Self> {
        let ip = seen.ip.as_ref()?;
        let [s1, s0, d1, d0] = ip.ports.to_be_bytes();
        if ip.protocol != UDP || u16::from_be_bytes([d1, d0]) != ROCE_PORT {
            return None;
        }
        let at = ETHERNET_BYTES + ip_header_bytes(frame, ip) + UDP_BYTES;
        let bth: &[u8; BTH_BYTES] = frame.get(at..)?.first_chunk()?;
        let opcode = Opcode::from_u8(bth[0])?;
        let kind = opcode.props().kind;
        let is_data = matches!(
            kind,
            OpKind::Send | OpKind::Write | OpKind::ReadResponse | OpKind::SrData | OpKind::SrParity
        );
        let psn_low = u32::from_be_bytes([0, bth[9], bth[10], bth[11]]);
        let header = match kind {
            OpKind::SrData => SrDataPassing::of(psn_low, &frame[at + BTH_BYTES..]),
            _ => None,
        };
        let ack = match kind {
            OpKind::SrAck => SrAckPassing::of(&frame[at + BTH_BYTES..]),
            _ => None,
        };
        let is_parity = kind == OpKind::SrParity;
        let source_qpn = header.and_then(|data| data.source_qpn);
        let sr = header.map(|data| SrData { psn: data.psn, sent_ps: data.sent_ps });
        let ends = FlowEnds {
            source_mac: seen.src,
            dest_mac: seen.dst,
            is_v6: ip.is_v6,
            source: ip.src,
            dest: ip.dst,
            source_port: u16::from_be_bytes([s1, s0]),
            dest_qpn: Qpn::new(u32::from_be_bytes([0, bth[5], bth[6], bth[7]])),
        };
        let hop_limit = ip.ttl;
        Some(Self {
            ends,
            pair: pair_hash(ends.source, ends.dest),
            is_data,
            source_qpn,
            sr,
            is_parity,
            ack,
            asks_credit: false,
            hop_limit,
            wire_bytes,
        })
    }

    /// As it is, with whether its telemetry, in the frame with so many elided bytes, asks for
    /// credit.
    pub(crate) fn with_stack(self, frame: &[u8], elided_bytes: u32) -> Self {
        let may_ask = self.sr.is_some() && self.source_qpn.is_some();
        let stack = || IntStack::find(frame, elided_bytes);
        Self { asks_credit: may_ask && stack().is_some_and(|s| s.credit().is_some()), ..self }
    }

    /// A hash of the addresses of a flow and the queue pair that sends it.
    #[inline]
    pub(crate) fn sender_key(&self, sender: Qpn) -> u64 {
        fold(self.pair ^ u64::from(sender.get()), SENDER_SEED)
    }

    /// As [`Passing::sender_key`], of the flow that an acknowledgement is about.
    #[inline]
    pub(crate) fn acked_key(&self) -> u64 {
        let ends = &self.ends;
        fold(pair_hash(ends.dest, ends.source) ^ u64::from(ends.dest_qpn.get()), SENDER_SEED)
    }

    /// A hash of the addresses and the receiver's queue pair.
    #[inline]
    pub(crate) fn flow_key(&self) -> u64 {
        fold(self.pair ^ u64::from(self.ends.dest_qpn.get()), FLOW_SEED)
    }

    /// A hash of the pair of addresses.
    #[inline]
    pub(crate) fn pair_key(&self) -> u64 {
        self.pair
    }
}

impl FlowEnds {
    /// The last byte of an IPv4 source address.
    #[cfg(test)]
    pub(crate) fn source_number(&self) -> u8 {
        self.source.to_be_bytes()[3]
    }
}

/// A hash of an ordered pair of addresses.
#[inline]
pub(crate) fn pair_hash(source: u128, dest: u128) -> u64 {
    fold(address_hash(source) ^ SOURCE_SEED, address_hash(dest) ^ DEST_SEED)
}

#[inline]
fn address_hash(address: u128) -> u64 {
    let [high, low] = halves(address);
    fold(high ^ SOURCE_SEED, low ^ FLOW_SEED)
}

/// Both halves of a product: a hash of two words in one multiplication.
#[inline]
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let [high, low] = halves(u128::from(a) * u128::from(b));
    high ^ low
}

/// Bytes of the IP header of a frame that was parsed.
#[inline]
fn ip_header_bytes(frame: &[u8], ip: &ParsedIp) -> usize {
    match ip.is_v6 {
        true => 40,
        false => frame.get(ETHERNET_BYTES).map_or(20, |first| usize::from(first & 0x0f) * 4),
    }
}

const ETHERNET_BYTES: usize = 14;
const UDP_BYTES: usize = 8;
const BTH_BYTES: usize = 12;
const UDP: u8 = 17;
/// Any odd words.
const SOURCE_SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const DEST_SEED: u64 = 0xbf58_476d_1ce4_e5b9;
const SENDER_SEED: u64 = 0x94d0_49bb_1331_11eb;
const FLOW_SEED: u64 = 0x8ebc_6af0_9c88_c6e3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{roce_frame, roce_frame_of, roce_frame_v6};
    use proptest::prelude::*;

    fn of(frame: &[u8]) -> Option<Passing> {
        Passing::of(frame, &ParsedFrame::of(frame)?, 1000)
    }

    #[test]
    fn of__reads_addresses_and_queue_pair_of_both_versions() {
        for frame in [roce_frame(3, 64), roce_frame_v6(3, 64)] {
            let packet = spanwire_wire::Packet::parse(&frame).unwrap();
            let passing = of(&frame).expect("a RoCE packet");
            assert!(passing.is_data && passing.source_qpn.is_none());
            let ends = passing.ends;
            assert_eq!((ends.dest_qpn, ends.source_port), (packet.bth.dest_qp, 0xc000));
            assert_eq!((ends.source_mac, ends.dest_mac), (packet.eth.src, packet.eth.dst));
        }
        let [a, b] = [roce_frame(3, 0), roce_frame(4, 0)].map(|frame| of(&frame).unwrap());
        assert_ne!(a.pair_key(), b.pair_key());
        let other = of(&roce_frame_of(3, 0xc001, 0)).unwrap();
        assert_eq!(a.pair_key(), other.pair_key(), "flows are pairs of addresses");
    }

    #[test]
    fn of__other_packets_are_none() {
        let mut frame = roce_frame(3, 64);
        frame[37] = 0xb8;
        assert!(of(&frame).is_none(), "another UDP port");
        let mut frame = roce_frame(3, 64);
        frame[42] = 0x3f;
        assert!(of(&frame).is_none(), "an opcode that is not supported");
        let frame = roce_frame(3, 64);
        for cut in 0..54 {
            assert!(of(&frame[..cut]).is_none(), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn of__never_panics(
            mut frame in prop::collection::vec(any::<u8>(), 0..120),
            plausible in any::<bool>(),
        ) {
            let real = roce_frame(1, 60);
            if plausible && frame.len() >= 54 {
                frame[..42].copy_from_slice(&real[..42]);
            }
            _ = of(&frame);
        }
    }
}
