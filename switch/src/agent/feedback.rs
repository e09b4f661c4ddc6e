//! Frames of feedback, and their limit.

use super::api::OrderKind;
use super::passing::{FlowEnds, SrData};
use crate::config::FEEDBACK_CLASS;
use spanwire_wire::{
    BthRepr, EthernetRepr, ExtHeaders, Headers, INT_ECHO_HEADER_LEN, INT_FULL_LEN, INT_MAX_HOPS,
    IntRecords, IntStack, IpRepr, MAX_FRAME_LEN, NearKind, Opcode, Psn, Qpn, SrNearRepr, UdpRepr,
    seal,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The DSCP of feedback.
pub(crate) const DSCP: u8 = FEEDBACK_CLASS << 3;
/// Bytes of the longest frame of feedback: telemetry of sixteen switches in full records, with
/// Ethernet, IPv6, UDP, BTH, the header and ICRC.
pub(crate) const FRAME_MAX: usize = 14 + 40 + 8 + 12 + 16 + 16 * 24 + 4;
const _: () = assert!(FRAME_MAX < MAX_FRAME_LEN);

/// Limits the feedback about a port to an eighth of the bytes that passed there: forged data cannot
/// make the switch an amplifier.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limit {
    passed_bytes: u64,
    feedback_bytes: u64,
}

impl Limit {
    /// Packets of `bytes` passed.
    #[inline]
    pub(crate) fn on_passed(&mut self, bytes: u64) {
        self.passed_bytes += bytes;
    }

    /// True if `bytes` of feedback may leave, which are counted then.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        let fits = (self.feedback_bytes + bytes) * PART <= self.passed_bytes;
        if fits {
            self.feedback_bytes += bytes;
        }
        fits
    }
}

/// Writes feedback to the queue pair `qpn`, the sender of a flow; returns its length. `stack` is
/// the telemetry of the packet that it is about, if it is about that.
pub(super) fn write(
    kind: OrderKind,
    ends: &FlowEnds,
    qpn: Qpn,
    stack: Option<&IntStack<'_>>,
    frame: &mut [u8; FRAME_MAX],
) -> Option<usize> {
    let (kind, data, hop_limit) = match kind {
        OrderKind::Cnp => return cnp(ends, qpn, frame),
        OrderKind::PseudoAck { data, hop_limit } => (NearKind::PseudoAck, data, hop_limit),
        OrderKind::Telemetry { data, hop_limit } => (NearKind::Telemetry, data, hop_limit),
    };
    let SrData { psn, sent_ps: echo_ps } = data;
    let mut echo = [0; INT_ECHO_HEADER_LEN + INT_MAX_HOPS as usize * INT_FULL_LEN];
    let int = match stack {
        None => IntRecords::NONE,
        Some(stack) => {
            let (header, records) = echo.split_at_mut(INT_ECHO_HEADER_LEN);
            header.copy_from_slice(&stack.echo_header());
            let len = stack.records().len();
            records.get_mut(..len)?.copy_from_slice(stack.records());
            IntRecords::parse(&echo[..INT_ECHO_HEADER_LEN + len])
        }
    };
    near(ends, qpn, &SrNearRepr { kind, psn, hop_limit, echo_ps, int }, frame)
}

/// Writes a CNP to the queue pair `qpn`, the sender of a flow; returns its length. It carries the
/// addresses of the receiver, because a queue pair accepts packets of its peer only.
fn cnp(ends: &FlowEnds, qpn: Qpn, frame: &mut [u8; FRAME_MAX]) -> Option<usize> {
    let headers = headers(ends, BthRepr::cnp(qpn))?;
    let len = headers.frame_len(0);
    headers.emit(frame, 0).ok()?;
    seal(frame, len);
    Some(len)
}

/// Writes SR NEAR, likewise.
fn near(
    ends: &FlowEnds,
    qpn: Qpn,
    near: &SrNearRepr<'_>,
    frame: &mut [u8; FRAME_MAX],
) -> Option<usize> {
    let bth = BthRepr::new(Opcode::SrNear, qpn, Psn::new(near.psn & Psn::MASK));
    let headers = headers(ends, bth)?;
    let len = headers.frame_len(near.header_len());
    let payload = headers.emit(frame, near.header_len()).ok()?;
    near.emit(&mut frame[payload]).ok()?;
    seal(frame, len);
    Some(len)
}

/// The headers of feedback to the sender of a flow.
fn headers(ends: &FlowEnds, bth: BthRepr) -> Option<Headers> {
    let [source, dest] = [ends.dest, ends.source].map(|address| address_of(ends.is_v6, address));
    let mut ip = IpRepr::new(source, dest)?;
    ip.set_dscp_ecn(DSCP << 2);
    Some(Headers {
        eth: EthernetRepr { dst: ends.source_mac, src: ends.dest_mac, ethertype: 0 },
        ip,
        udp: UdpRepr::new(ends.source_port),
        bth,
        ext: ExtHeaders::NONE,
    })
}

pub(super) fn address_of(is_v6: bool, address: u128) -> IpAddr {
    if is_v6 {
        return Ipv6Addr::from(address).into();
    }
    let [a, b, c, d, ..] = address.to_be_bytes();
    Ipv4Addr::new(a, b, c, d).into()
}

/// Feedback is at most the `PART`th part of what passed.
const PART: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::passing::Passing;
    use crate::parse::ParsedFrame;
    use crate::testing::{roce_frame, roce_frame_v6};
    use spanwire_wire::{Ecn, IntRecords, NearKind, Packet, dscp_of};

    #[test]
    fn cnp__is_a_valid_packet_from_the_receiver() {
        for frame in [roce_frame(3, 64), roce_frame_v6(3, 64)] {
            let data = Packet::parse(&frame).unwrap();
            let seen = ParsedFrame::of(&frame).unwrap();
            let ends = Passing::of(&frame, &seen, 0).unwrap().ends;
            let mut made = [0xee; FRAME_MAX];
            let len = cnp(&ends, Qpn::new(0x1234), &mut made).unwrap();
            let packet = Packet::parse(&made[..len]).expect("valid, with a valid ICRC");
            assert_eq!(packet.bth.opcode, Opcode::Cnp);
            assert!(packet.bth.becn && packet.bth.dest_qp == Qpn::new(0x1234));
            assert_eq!(packet.ip.src(), data.ip.dst());
            assert_eq!(packet.ip.dst(), data.ip.src());
            assert_eq!((packet.eth.src, packet.eth.dst), (data.eth.dst, data.eth.src));
            assert_eq!(packet.udp.src_port, data.udp.src_port);
            assert_eq!(packet.ip.ecn(), Ecn::NotEct);
            assert_eq!(dscp_of(&made[..len]), Some(DSCP));
            assert_eq!(ParsedFrame::of(&made[..len]).unwrap().class(), FEEDBACK_CLASS);
        }
    }

    #[test]
    fn near__is_a_valid_packet_to_the_sender() {
        let frame = roce_frame(3, 64);
        let ends = Passing::of(&frame, &ParsedFrame::of(&frame).unwrap(), 0).unwrap().ends;
        let repr = SrNearRepr {
            kind: NearKind::PseudoAck,
            psn: 0xab00_0001,
            hop_limit: 62,
            echo_ps: 77,
            int: IntRecords::NONE,
        };
        let mut made = [0xee; FRAME_MAX];
        let len = near(&ends, Qpn::new(0x1234), &repr, &mut made).unwrap();
        let packet = Packet::parse(&made[..len]).expect("valid, with a valid ICRC");
        assert_eq!((packet.bth.opcode, packet.bth.dest_qp), (Opcode::SrNear, Qpn::new(0x1234)));
        assert_eq!(SrNearRepr::parse(packet.bth.psn.get(), packet.payload), Ok(repr));
    }

    #[test]
    fn near__has_room_for_the_most_telemetry() {
        let frame = roce_frame_v6(3, 64);
        let ends = Passing::of(&frame, &ParsedFrame::of(&frame).unwrap(), 0).unwrap().ends;
        let records = [&[16, 0, 0, 0][..], &[7; 16 * 24]].concat();
        let repr = SrNearRepr {
            kind: NearKind::Telemetry,
            psn: 1,
            hop_limit: 62,
            echo_ps: 77,
            int: IntRecords::parse(&records),
        };
        let mut made = [0; FRAME_MAX];
        assert_eq!(near(&ends, Qpn::new(1), &repr, &mut made), Some(FRAME_MAX));
        let packet = Packet::parse(&made).expect("valid");
        let parsed = SrNearRepr::parse(packet.bth.psn.get(), packet.payload).unwrap();
        assert_eq!((parsed, parsed.int.hops().count()), (repr, 16));
    }

    #[test]
    fn limit__is_an_eighth_of_what_passed() {
        let mut limit = Limit::default();
        assert!(!limit.take(1));
        limit.on_passed(1000);
        assert!(limit.take(74) && limit.take(51));
        assert!(!limit.take(1));
        limit.on_passed(8);
        assert!(limit.take(1) && !limit.take(1));
    }
}
