//! Each class of hostile packet has one counter, and no other effect.

use super::{seal, selective};
use crate::testing::{Fate, Op, Pair};
use crate::{Access, DropReason, QpAttr, QpCaps, QpInit, QpState};
use spanwire_base::{Dur, Node, PortId};
use spanwire_wire::{
    self as wire, AethRepr, AtomicAckEthRepr, AtomicEthRepr, BthRepr, DethRepr, ExtHeaders,
    NakCode, Opcode, Packet, Psn, Qpn, RethRepr, Syndrome,
};
use std::collections::BTreeSet;

/// Side 0 under attack. Of its packets, PSN 1000 is acknowledged; 1001..=1003 (a WRITE), 1004 (a
/// READ of one packet) and 1005 (an atomic) are not. It has received one WRITE and expects
/// [`EPSN`].
pub(super) struct Scene {
    pub(super) pair: Pair,
    pub(super) qpn: Qpn,
    pub(super) va: u64,
    pub(super) rkey: u32,
}

/// The expected effect of one class of packet.
pub(super) struct Class {
    name: &'static str,
    /// Frames delivered before.
    before: Vec<Vec<u8>>,
    frame: Vec<u8>,
    /// The counters that increase.
    counters: Vec<&'static str>,
    /// The peer gets an ACK or NAK.
    causes_ack: bool,
}

impl Scene {
    fn new() -> Self {
        Self::of(Pair::new())
    }

    pub(super) fn of(mut pair: Pair) -> Self {
        pair.post(0, 1, Op::Write, 0, 100);
        pair.post(1, 1, Op::Write, 0, 100);
        assert!(pair.run(Dur::from_secs(1)));
        pair.filter = Box::new(|_, _| Fate::Drop);
        pair.post(0, 2, Op::Write, 0, 700);
        pair.post(0, 3, Op::Read, 1000, 256);
        let (sge, remote) = (pair.ends[0].sge(2000, 8), pair.ends[1].remote(2000));
        let add = crate::WrOp::FetchAdd { remote, add: 1 };
        let (qpn, sges) = (pair.ends[0].qpns[0], [sge]);
        pair.ends[0].ep.post_send(qpn, &crate::WorkRequest::new(4, add, &sges)).unwrap();
        pair.step(0);
        pair.ends[0].wcs.clear();
        let own = pair.ends[0].remote(0);
        Self { pair, qpn, va: own.va, rkey: own.rkey }
    }

    pub(super) fn bth(&self, opcode: Opcode, psn: u32) -> BthRepr {
        BthRepr { ack_req: true, ..BthRepr::new(opcode, self.qpn, Psn::new(psn)) }
    }

    pub(super) fn send(&self, psn: u32) -> Vec<u8> {
        seal(self.bth(Opcode::RcSendOnly, psn), ExtHeaders::NONE, 64, 9)
    }

    fn write(&self, psn: u32, va: u64, rkey: u32) -> Vec<u8> {
        let ext = ExtHeaders { reth: Some(RethRepr { va, rkey, dma_len: 64 }), ..NONE };
        seal(self.bth(Opcode::RcWriteOnly, psn), ext, 64, 9)
    }

    fn read(&self, psn: u32, va: u64, rkey: u32) -> Vec<u8> {
        let ext = ExtHeaders { reth: Some(RethRepr { va, rkey, dma_len: 64 }), ..NONE };
        seal(self.bth(Opcode::RcReadRequest, psn), ext, 0, 0)
    }

    fn atomic(&self, psn: u32, va: u64, rkey: u32) -> Vec<u8> {
        let atomic = AtomicEthRepr { va, rkey, swap_or_add: 1, compare: 0 };
        let ext = ExtHeaders { atomic: Some(atomic), ..NONE };
        seal(self.bth(Opcode::RcFetchAdd, psn), ext, 0, 0)
    }

    fn ack(&self, psn: u32, syndrome: Syndrome) -> Vec<u8> {
        let ext = ExtHeaders { aeth: Some(AethRepr { syndrome, msn: 9 }), ..NONE };
        seal(self.bth(Opcode::RcAck, psn), ext, 0, 0)
    }

    fn read_response(&self, psn: u32, len: usize) -> Vec<u8> {
        let ext = ExtHeaders { aeth: Some(AethRepr { syndrome: ACK, msn: 9 }), ..NONE };
        seal(self.bth(Opcode::RcReadResponseOnly, psn), ext, len, 9)
    }

    fn atomic_ack(&self, psn: u32) -> Vec<u8> {
        let aeth = Some(AethRepr { syndrome: ACK, msn: 9 });
        let atomic_ack = Some(AtomicAckEthRepr { original: 9 });
        seal(self.bth(Opcode::RcAtomicAck, psn), ExtHeaders { aeth, atomic_ack, ..NONE }, 0, 0)
    }

    /// A packet of another transport service.
    fn alien(&self, opcode: Opcode) -> Vec<u8> {
        let deth = opcode.props().deth.then_some(DethRepr { qkey: 0x1111_1111, src_qp: Qpn::GSI });
        seal(self.bth(opcode, EPSN), ExtHeaders { deth, ..NONE }, 64, 9)
    }

    /// A valid SEND except for `change`, with correct IPv4 checksum and ICRC.
    fn bent(&self, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut frame = self.send(EPSN);
        change(&mut frame);
        if let Some(header) = frame.get_mut(14..34) {
            header[10..12].fill(0);
            let words = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
            let sum: u32 = words.sum();
            let folded = (sum & 0xffff) + (sum >> 16);
            let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap();
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        let len = frame.len();
        if wire::icrc(frame.get(14..len.saturating_sub(4)).unwrap_or_default()).is_some() {
            wire::seal(&mut frame, len);
        }
        frame
    }

    /// A datagram to the RoCEv2 port with this content.
    fn datagram(&self, inside: &[u8]) -> Vec<u8> {
        self.bent(|f| {
            f.truncate(42);
            f.extend(inside);
            let total = u16::try_from(f.len() - 14).unwrap();
            f[16..18].copy_from_slice(&total.to_be_bytes());
            f[38..40].copy_from_slice(&(total - 20).to_be_bytes());
        })
    }
}

/// Malformed frames, which `wire` refuses.
fn broken(s: &Scene) -> Vec<Class> {
    let right = s.send(EPSN);
    let with_opcode = |opcode: u8| s.bent(|f| f[BTH] = opcode);
    let mut icrc = right.clone();
    icrc[BTH + 20] ^= 1;
    let mut checksum = right.clone();
    checksum[24] ^= 1;
    let rows = [
        ("cut in Ethernet", right[..13].to_vec(), "drop_ethernet_too_short"),
        ("cut in IPv4", right[..30].to_vec(), "drop_ip_too_short"),
        ("cut in the BTH", right[..50].to_vec(), "drop_ip_too_short"),
        ("cut in the ICRC", right[..right.len() - 1].to_vec(), "drop_ip_too_short"),
        ("ARP", s.bent(|f| f[12..14].copy_from_slice(&[8, 6])), "drop_not_ip"),
        ("a VLAN tag", s.bent(|f| f[12..14].copy_from_slice(&[0x81, 0])), "drop_not_ip"),
        ("version 5", s.bent(|f| f[14] = 0x55), "drop_bad_ip_version"),
        ("total length 10", s.bent(|f| f[16..18].copy_from_slice(&[0, 10])), "drop_bad_ip_length"),
        ("IP options", s.bent(|f| f[14] = 0x46), "drop_ip_options"),
        ("IP checksum", checksum, "drop_bad_ip_checksum"),
        ("first fragment", s.bent(|f| f[20] = 0x20), "drop_ip_fragment"),
        ("later fragment", s.bent(|f| f[21] = 0x10), "drop_ip_fragment"),
        ("TCP", s.bent(|f| f[23] = 6), "drop_not_udp"),
        ("half a UDP header", s.bent(|f| f[17] = 24), "drop_udp_too_short"),
        ("another port", s.bent(|f| f[37] = 0xb8), "drop_not_roce"),
        ("UDP length", s.bent(|f| f[39] ^= 1), "drop_bad_udp_length"),
        ("empty datagram", s.datagram(&[]), "drop_bth_too_short"),
        ("half a BTH", s.datagram(&[0; 10]), "drop_bth_too_short"),
        ("garbage", s.datagram(&[0xff; 77]), "drop_bad_tver"),
        ("version 1", s.bent(|f| f[BTH + 1] |= 1), "drop_bad_tver"),
        ("an XRC opcode", with_opcode(0xa4), "drop_unknown_opcode"),
        ("a manufacturer's opcode", with_opcode(0xff), "drop_unknown_opcode"),
        ("a WRITE without RETH", s.datagram(&only_bth(s, 0x0a)), "drop_ext_too_short"),
        ("a pad without payload", s.datagram(&padded_bth(s)), "drop_bad_pad"),
        ("an ACK with payload", with_opcode(0x11), "drop_unexpected_payload"),
        ("ICRC", icrc, "drop_bad_icrc"),
    ];
    rows.map(|(name, frame, counter)| dropped(name, frame, counter)).into()
}

/// A BTH with this opcode and room for an ICRC.
fn only_bth(s: &Scene, opcode: u8) -> Vec<u8> {
    let mut bth = s.send(EPSN)[BTH..BTH + 12].to_vec();
    bth[0] = opcode;
    bth.extend([0; 4]);
    bth
}

/// A SEND without payload that claims three bytes of pad.
fn padded_bth(s: &Scene) -> Vec<u8> {
    let mut bytes = only_bth(s, 0x04);
    bytes[1] |= 0x30;
    bytes
}

/// Valid frames in the wrong place.
fn misplaced(s: &mut Scene) -> Vec<Class> {
    let other = |s: &Scene, qpn, make: fn(&Scene) -> Vec<u8>| {
        make(&Scene { pair: Pair::new(), qpn, va: s.va, rkey: s.rkey })
    };
    let to_rtr = |s: &mut Scene, rtr: bool| {
        let end = &mut s.pair.ends[0];
        let init = QpInit::new(end.pd, end.cq, end.cq, QpCaps::default());
        let qpn = end.ep.create_qp(&init).unwrap();
        end.ep.modify_qp(qpn, &QpAttr::init(Access::ALL)).unwrap();
        if rtr {
            let av = crate::AddressVector::new(
                wire::MacAddr::new([2, 0, 0, 0, 0, 0]),
                wire::MacAddr::new([2, 0, 0, 0, 0, 1]),
                [10, 0, 0, 1].into(),
                [10, 0, 0, 2].into(),
            );
            let attr = QpAttr::rtr(Qpn::new(5), Psn::new(EPSN), crate::Mtu::B256, av);
            end.ep.modify_qp(qpn, &attr).unwrap();
        }
        qpn
    };
    let (init, rtr) = (to_rtr(s, false), to_rtr(s, true));
    let unknown = Qpn::new(s.qpn.get() ^ 0x40_0000);
    let send: fn(&Scene) -> Vec<u8> = |s| s.send(EPSN);
    let ack: fn(&Scene) -> Vec<u8> = |s| s.ack(1003, ACK);
    // The QPN is looked up first, because computing the ICRC is the most expensive step.
    let unsealed: fn(&Scene) -> Vec<u8> = |s| {
        let mut frame = s.send(EPSN);
        frame[BTH + 20] ^= 1;
        frame
    };
    vec![
        dropped("a wrong QPN", other(s, unknown, send), "drop_unknown_qpn"),
        dropped("QP1", other(s, Qpn::GSI, send), "drop_unknown_qpn"),
        dropped("from another address", s.bent(|f| f[29] = 9), "drop_wrong_peer"),
        dropped("to another address", s.bent(|f| f[33] = 9), "drop_wrong_peer"),
        dropped("another partition", s.bent(|f| f[BTH + 2] = 0x12), "drop_bad_pkey"),
        dropped("UC", s.alien(Opcode::UcSendOnly), "drop_wrong_service"),
        dropped("UD", s.alien(Opcode::UdSendOnly), "drop_wrong_service"),
        dropped("a wrong QPN, and no ICRC", other(s, unknown, unsealed), "drop_unknown_qpn"),
        dropped("before RTR", other(s, init, send), "drop_qp_not_receiving"),
        dropped("a response before RTS", other(s, rtr, ack), "drop_qp_not_sending"),
        counted("CNP", seal(s.bth(Opcode::Cnp, 0), NONE, 0, 0), &["rx_packets", "rp_cnp_handled"]),
        dropped("SR", selective::data(s, EPSN), "drop_wrong_service"),
        dropped("feedback of a switch", s.alien(Opcode::SrNear), "drop_wrong_service"),
    ]
}

/// Responses that were not requested, or not in this form.
fn responses(s: &Scene) -> Vec<Class> {
    let nak = |code| Syndrome::Nak(code);
    let mut rows: Vec<Class> = [
        ("an old ACK", s.ack(1000, ACK), "drop_stale_response"),
        ("an old NAK", s.ack(1000, nak(NakCode::RemoteAccess)), "drop_stale_response"),
        ("an old READ response", s.read_response(1000, 256), "drop_stale_response"),
        ("an ACK beyond what was sent", s.ack(1006, ACK), "drop_response_beyond_sent"),
        ("an ACK far beyond", s.ack(1000 + (1 << 22), ACK), "drop_response_beyond_sent"),
        (
            "a fatal NAK beyond",
            s.ack(1006, nak(NakCode::RemoteAccess)),
            "drop_response_beyond_sent",
        ),
        (
            "an RNR NAK beyond",
            s.ack(1006, Syndrome::RnrNak { timer: 1 }),
            "drop_response_beyond_sent",
        ),
        ("a READ response beyond", s.read_response(1006, 256), "drop_response_beyond_sent"),
        ("an atomic's ACK beyond", s.atomic_ack(1006), "drop_response_beyond_sent"),
        ("a READ response to a WRITE", s.read_response(1002, 256), "drop_response_to_nothing"),
        ("an atomic's ACK to a WRITE", s.atomic_ack(1002), "drop_response_to_nothing"),
        ("an atomic's ACK to a READ", s.atomic_ack(1004), "drop_response_to_nothing"),
        ("a short READ response", s.read_response(1004, 255), "drop_bad_response_length"),
        ("a long READ response", s.read_response(1004, 257), "drop_bad_response_length"),
        ("a reserved syndrome", s.ack(1002, Syndrome::from_u8(0x40)), "drop_bad_syndrome"),
        ("an undefined NAK", s.ack(1002, Syndrome::from_u8(0x6f)), "drop_bad_syndrome"),
        ("an invalid RD NAK", s.ack(1002, nak(NakCode::InvalidRd)), "drop_bad_syndrome"),
    ]
    .map(|(name, frame, counter)| dropped(name, frame, counter))
    .into();
    let repeated = s.ack(1002, nak(NakCode::SequenceError));
    let before = vec![repeated.clone()];
    rows.push(Class { before, ..dropped("a repeated NAK", repeated, "drop_repeated_nak") });
    let early = s.atomic_ack(1005);
    let before = vec![early.clone()];
    rows.push(Class {
        before,
        ..dropped("a response after the gap", early, "drop_after_response_gap")
    });
    rows
}

/// Requests at an unexpected PSN: whatever they name, nothing is looked up.
fn requests(s: &Scene) -> Vec<Class> {
    const DUPLICATE: &[&str] = &["rx_packets", "rx_payload_bytes", "duplicate_request"];
    const GAP: &[&str] = &["rx_packets", "rx_payload_bytes", "out_of_sequence"];
    let (past, future) = (EPSN - 1, EPSN + 5);
    let far = s.write(Psn::new(EPSN).plus(65_537).get(), s.va, s.rkey);
    let mut rows = vec![dropped("far ahead", far, "drop_beyond_psn_limit")];
    let targets = [
        ("a bad rkey", s.va, s.rkey ^ 1),
        ("out of bounds", s.va + (1 << 16), s.rkey),
        ("across the end", s.va + (1 << 16) - 63, s.rkey),
        ("a wrapping address", u64::MAX - 10, s.rkey),
    ];
    for (name, va, rkey) in targets {
        let (write, read) = (s.write(past, va, rkey), s.read(past, va, rkey));
        let atomic = s.atomic(past, va, rkey);
        rows.push(Class { causes_ack: true, ..counted(name, write, DUPLICATE) });
        rows.push(dropped(name, read, "drop_duplicate_read_forgotten"));
        rows.push(dropped(name, atomic, "drop_duplicate_atomic_forgotten"));
        let first = s.write(future, va, rkey);
        rows.push(Class { causes_ack: true, ..counted(name, first.clone(), GAP) });
        for next in [first.clone(), s.read(future, va, rkey), s.atomic(future, va, rkey)] {
            let before = vec![first.clone()];
            rows.push(Class { before, ..dropped(name, next, "drop_after_sequence_gap") });
        }
    }
    rows
}

impl Class {
    /// The peer gets an ACK.
    pub(super) fn with_ack(self) -> Self {
        Self { causes_ack: true, ..self }
    }
}

pub(super) fn dropped(name: &'static str, frame: Vec<u8>, counter: &'static str) -> Class {
    counted(name, frame, &[counter])
}

pub(super) fn counted(name: &'static str, frame: Vec<u8>, counters: &[&'static str]) -> Class {
    let counters = counters.to_vec();
    Class { name, before: Vec::new(), frame, counters, causes_ack: false }
}

pub(super) fn acks_sent(p: &mut Pair) -> usize {
    let (now, mut frame, mut acks) = (p.now, vec![0; 8192], 0);
    while let Some(meta) = p.ends[0].ep.poll_transmit(now, PortId::HOST, &mut frame) {
        let packet = Packet::parse(&frame[..meta.len]).unwrap();
        acks += usize::from(matches!(packet.bth.opcode, Opcode::RcAck | Opcode::SrAck));
    }
    acks
}

fn check(s: &mut Scene, class: &Class) {
    let name = class.name;
    for frame in &class.before {
        s.pair.inject(0, frame);
    }
    acks_sent(&mut s.pair);
    let cq = s.pair.ends[0].cq;
    while let Ok(Some(_)) = s.pair.ends[0].ep.poll_cq(cq) {}
    let memory = s.pair.ends[0].bytes(0, 1 << 16);
    let info = s.pair.ends[0].ep.query_qp(s.qpn).unwrap();
    let before = s.pair.ends[0].ep.counters().list();
    s.pair.inject(0, &class.frame);
    let after = s.pair.ends[0].ep.counters().list();
    let changed: BTreeSet<&str> = before
        .iter()
        .zip(&after)
        .filter(|(then, now)| then.1 != now.1)
        .map(|(then, _)| &*then.0)
        .collect();
    let payload = Packet::parse(&class.frame).map_or(0, |p| p.payload.len());
    let mut want: BTreeSet<&str> = class.counters.iter().copied().collect();
    if payload == 0 {
        want.remove("rx_payload_bytes");
    }
    assert_eq!(changed, want, "{name}");
    assert_eq!(acks_sent(&mut s.pair), usize::from(class.causes_ack), "{name}");
    assert_eq!(s.pair.ends[0].ep.query_qp(s.qpn), Some(info), "{name}");
    assert_eq!(info.state, QpState::Rts, "{name}");
    assert_eq!(s.pair.ends[0].ep.poll_cq(cq), Ok(None), "{name}");
    assert_eq!(s.pair.ends[0].bytes(0, 1 << 16), memory, "{name}");
}

#[test]
fn hostile__each_class_has_one_counter_and_no_other_effect() {
    let kinds: [fn(&mut Scene) -> Vec<Class>; 4] =
        [|s| broken(s), misplaced, |s| responses(s), |s| requests(s)];
    let mut seen = BTreeSet::new();
    for classes in kinds {
        for i in 0..classes(&mut Scene::new()).len() {
            let mut scene = Scene::new();
            let class = &classes(&mut scene)[i];
            check(&mut scene, class);
            seen.extend(class.counters.iter().copied());
        }
    }
    for i in 0..selective::classes(&selective::scene()).len() {
        let mut scene = selective::scene();
        let class = &selective::classes(&scene)[i];
        check(&mut scene, class);
        seen.extend(class.counters.iter().copied());
    }
    let wire = wire::DropReason::ALL.iter().map(|r| DropReason::Wire(*r));
    for reason in DropReason::OWN.into_iter().chain(wire) {
        let counter = format!("drop_{}", reason.name());
        assert!(seen.contains(&*counter), "no hostile packet is counted as {counter}");
    }
}

#[test]
fn hostile__at_the_expected_psn_the_queue_pair_fails_and_memory_does_not_change() {
    for i in 0..7 {
        let mut s = Scene::new();
        let (va, rkey) = (s.va, s.rkey);
        let frame = match i {
            0 => s.write(EPSN, va, rkey ^ 1),
            1 => s.write(EPSN, va + (1 << 16) - 63, rkey),
            2 => s.write(EPSN, u64::MAX - 10, rkey),
            3 => s.read(EPSN, va, rkey ^ 1),
            4 => s.read(EPSN, u64::MAX - 10, rkey),
            5 => s.atomic(EPSN, va, rkey ^ 1),
            _ => s.atomic(EPSN, va + (1 << 16) - 7, rkey),
        };
        let memory = s.pair.ends[0].bytes(0, 1 << 16);
        s.pair.inject(0, &frame);
        assert_eq!(s.pair.ends[0].ep.counters().tx_fatal_naks, 1, "{i}");
        assert_eq!(s.pair.ends[0].ep.query_qp(s.qpn).unwrap().state, QpState::Err, "{i}");
        assert_eq!(s.pair.ends[0].bytes(0, 1 << 16), memory, "{i}");
        assert_eq!(acks_sent(&mut s.pair), 1, "{i}");
        s.pair.inject(0, &frame);
        assert_eq!(acks_sent(&mut s.pair), 0, "{i}: one NAK is all it gets");
    }
}

#[test]
fn hostile__a_packet_after_a_gap_does_not_suppress_the_ack_before_it() {
    let mut pair = Pair::new();
    pair.post(0, 1, Op::Write, 0, 100);
    let (now, mut frame) = (pair.now, vec![0; 8192]);
    let host = PortId::HOST;
    let sent = pair.ends[0].ep.poll_transmit(now, host, &mut frame).unwrap();
    let ahead = Packet::parse(&frame[..sent.len]).unwrap().bth.psn.plus(1000);
    pair.inject(1, &frame[..sent.len]);
    // The same, from far ahead.
    frame[BTH + 9..BTH + 12].copy_from_slice(&ahead.get().to_be_bytes()[1..]);
    wire::seal(&mut frame, sent.len);
    pair.inject(1, &frame[..sent.len]);
    assert_eq!(pair.ends[1].ep.counters().out_of_sequence, 1);
    let nak = pair.ends[1].ep.poll_transmit(now, host, &mut frame).unwrap();
    pair.inject(0, &frame[..nak.len]);
    assert!(pair.run(Dur::from_secs(1)));
    assert_eq!(pair.ends[0].wcs.len(), 1);
    assert_eq!(pair.ends[0].ep.counters().local_ack_timeout_err, 0, "a timeout was needed");
}

pub(super) const NONE: ExtHeaders = ExtHeaders::NONE;
const ACK: Syndrome = Syndrome::Ack { credits: 31 };
/// The PSN that side 0 expects: one after the first.
pub(super) const EPSN: u32 = 0xff_fff1;
/// Offset of the BTH in a frame over IPv4.
const BTH: usize = 14 + 20 + 8;
