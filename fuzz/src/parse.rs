//! The parser on any bytes: it accepts or rejects, always for the same reason, never reads outside
//! the frame, and an accepted packet can be emitted.

use spanwire_wire::{
    AckReason, AtomicEthRepr, BlockReport, BlockReportKind, BlockRepr, BthRepr, DropReason,
    EthernetRepr, Headers, INT_COMPACT_LEN, INT_FULL_LEN, INT_MAX_HOPS, IntCredit, IntFormat,
    IntRecords, IntStack, IpRepr, Ipv4Repr, Ipv6Repr, KnownHeads, MacAddr, NakCode, NearKind,
    Opcode, Packet, PlainBth, Psn, RethRepr, SackWord, SrAckRepr, SrCredit, SrDataRepr, SrKind,
    SrNak, SrNearRepr, Template, UdpRepr, Unverified, int_restart_credit, peek_dest_qp, seal,
};

/// Parses `data` as a frame, and as the inner part of a frame with valid outer headers: the headers
/// after UDP, with a valid ICRC, once in IPv4 and once in IPv6.
///
/// # Panics
/// If the parser violates its contract.
pub fn run(data: &[u8]) {
    check(data);
    for ip in [v4(), v6()] {
        let Some(frame) = wrap(ip, data) else {
            return;
        };
        match Packet::parse(&frame) {
            Ok(packet) => assert_eq!((packet.eth, packet.ip, packet.udp), outside(ip)),
            Err(reason) => assert!(INSIDE.contains(&reason), "{reason} with valid outer headers"),
        }
        check(&frame);
    }
}

/// The properties for any bytes.
fn check(frame: &[u8]) {
    check_known(frame);
    let verified = Packet::parse(frame);
    let packet = match Packet::parse_unverified(frame) {
        Ok(packet) => packet,
        Err(reason) => {
            assert_eq!(verified, Err(reason));
            return;
        }
    };
    assert!(verified == Ok(packet) || verified == Err(DropReason::BadIcrc), "{verified:?}");
    let props = packet.bth.opcode.props();
    assert!(props.payload || packet.payload.is_empty());
    assert_eq!((packet.payload.len() + usize::from(packet.bth.pad)) % 4, 0);
    let ext = packet.ext;
    let has = [ext.reth.is_some(), ext.aeth.is_some(), ext.imm.is_some(), ext.ieth.is_some()];
    assert_eq!(has, [props.reth, props.aeth, props.imm, props.ieth]);
    let has = [ext.atomic.is_some(), ext.atomic_ack.is_some(), ext.deth.is_some()];
    assert_eq!(has, [props.atomic, props.atomic_ack, props.deth]);
    let headers = Headers::from(&packet);
    let at = headers.header_len();
    assert_eq!(frame.get(at..at + packet.payload.len()), Some(packet.payload));
    check_trailer(&packet, &frame[at + packet.payload.len() + usize::from(packet.bth.pad)..]);
    // The pad's bytes are arbitrary, and bytes after the packet are not part of it; everything else
    // must be emitted as it was parsed.
    let packet = Packet { trailer: &[], ..packet };
    let emitted = emit(&headers, packet.payload);
    let reparsed = Packet::parse(&emitted).expect("an emitted packet is accepted");
    let pad = emitted.len() - at - packet.payload.len() - ICRC_LEN;
    assert_eq!(reparsed, packet, "the packet changed in emitting");
    assert_eq!(pad, usize::from(packet.bth.pad));
    check_template(&headers, packet.payload);
    check_sr(&packet);
}

/// Checks that outer headers that were seen before change nothing: those of this frame, and those
/// of a good frame, of any length, before the rest of this one.
fn check_known(frame: &[u8]) {
    for ip in [v4(), v6()] {
        let transport_at = if matches!(ip, IpRepr::V4(_)) { 42 } else { 62 };
        let Some(good) = wrap(ip, frame.get(transport_at..).unwrap_or(frame)) else { continue };
        let mut mixed = good.clone();
        for (at, byte) in mixed.iter_mut().zip(frame).take(transport_at) {
            *at = *byte;
        }
        let mut heads = KnownHeads::default();
        for learned in [&good[..], frame] {
            for _ in 0..2 {
                if let Ok(packet) = Unverified::parse(learned, 0) {
                    heads.learn(learned, 0, &packet);
                }
            }
        }
        for frame in [&good[..], frame, &mixed[..]] {
            let general = Packet::parse(frame);
            if let Some(known) = heads.find(frame, 0) {
                let packet = known.parse();
                let verified = packet.and_then(|packet| known.verify(&packet).map(|()| packet));
                assert_eq!(verified.map(|packet| *packet.trusted()), general);
                assert_eq!(known.is_right(), general.is_ok());
                for p in [false, true].into_iter().filter_map(|is_only| known.plain_rc(is_only)) {
                    let of = Packet::parse_unverified(frame).expect("its headers are right");
                    let mut bth = BthRepr::new(p.opcode, of.bth.dest_qp, p.psn);
                    (bth.ack_req, bth.solicited, bth.pad) = (p.ack_req, p.solicited, of.bth.pad);
                    assert_eq!((of.bth, of.payload), (bth, p.payload));
                }
                if let Some(usual) = known.usual_sr_data() {
                    let packet = Packet::parse_unverified(frame).expect("its headers are right");
                    let sr = SrDataRepr::parse(packet.bth.psn.get(), packet.payload);
                    assert_eq!(sr, Ok((usual.header.into(), usual.payload)));
                }
            }
            if let Ok(packet) = general {
                assert_eq!(peek_dest_qp(frame), Some(packet.bth.dest_qp));
            }
        }
    }
}

/// Checks the trailer after the packet, whose ICRC `rest` begins with, and its telemetry.
fn check_trailer(packet: &Packet<'_>, rest: &[u8]) {
    assert_eq!(packet.trailer, &rest[ICRC_LEN..]);
    let Some(stack) = IntStack::parse(packet.trailer) else { return };
    assert_eq!(stack.version() == 2, stack.credit().is_some());
    let end = stack.header_len() + stack.records().len();
    assert_eq!(packet.trailer.get(stack.header_len()..end), Some(stack.records()));
    check_restart(packet.trailer, &stack);
    assert!(stack.len() <= INT_MAX_HOPS.into());
    assert_eq!(stack.hops().count() + stack.compact_hops().count(), stack.len());
    let mut emitted = Vec::new();
    for hop in stack.hops() {
        let mut record = [0; INT_FULL_LEN];
        hop.emit(&mut record);
        emitted.extend(record);
    }
    for hop in stack.compact_hops() {
        let mut record = [0; INT_COMPACT_LEN];
        hop.emit(&mut record);
        emitted.extend(record);
    }
    assert_eq!(emitted, stack.records());
    let echo = [&stack.echo_header(), stack.records()].concat();
    let echo = IntRecords::parse(&echo);
    assert_eq!((echo.len(), echo.hops().count()), (stack.len(), stack.hops().count()));
}

/// Checks that a stack behind an IP packet is emptied and gets a credit if it has one, and is left
/// alone otherwise.
fn check_restart(trailer: &[u8], stack: &IntStack<'_>) {
    let mut frame = vec![0; 34];
    (frame[12], frame[14], frame[17]) = (8, 0x45, 20);
    frame.extend(trailer);
    let (before, len) = (frame.clone(), frame.len());
    let credit = IntCredit { credit: u32::MAX, waiting_bytes: 7 };
    match int_restart_credit(&mut frame, len, 0, credit) {
        Some(end) => {
            let new = IntStack::find(&frame[..end], 0).expect("it is a stack");
            assert_eq!((new.len(), new.credit(), end), (0, Some(credit), 34 + new.header_len()));
            assert_eq!((new.max_hops(), new.format()), (stack.max_hops(), stack.format()));
            assert_eq!(frame[..34], before[..34]);
        }
        None => assert!(stack.credit().is_none() && frame == before),
    }
}

/// Checks the part after the BTH of an SR packet: parsing, emitting and parsing again give the
/// same. Reserved bits are arbitrary.
fn check_sr(packet: &Packet<'_>) {
    let (psn, bytes) = (packet.bth.psn.get(), packet.payload);
    match packet.bth.opcode {
        opcode @ (Opcode::SrData | Opcode::SrParity) => {
            let is_parity = opcode == Opcode::SrParity;
            let parse = if is_parity { SrDataRepr::parse_parity } else { SrDataRepr::parse };
            let Ok((header, data)) = parse(psn, bytes) else { return };
            assert_eq!(header.psn & Psn::MASK, psn);
            assert_eq!(bytes.len(), header.header_len() + data.len());
            assert_eq!(header.block.is_some_and(|block| block.is_parity()), is_parity);
            let mut emitted = vec![0; header.header_len()];
            header.emit(&mut emitted).expect("the buffer has the reported length");
            assert_eq!(parse(psn, &emitted), Ok((header, &[][..])));
            assert!(header.emit(&mut emitted[1..]).is_err(), "a buffer one byte too short");
        }
        Opcode::SrAck => {
            let Ok(ack) = SrAckRepr::parse(psn, bytes) else { return };
            assert_eq!(ack.next & Psn::MASK, psn);
            assert_eq!(bytes.len(), ack.header_len());
            assert!(ack.words.as_slice().iter().all(|w| w.base.is_multiple_of(64)));
            let mut emitted = vec![0; ack.header_len()];
            ack.emit(&mut emitted).expect("the buffer has the reported length");
            assert_eq!(SrAckRepr::parse(psn, &emitted), Ok(ack));
        }
        Opcode::SrNear => {
            let Ok(near) = SrNearRepr::parse(psn, bytes) else { return };
            assert_eq!(near.psn & Psn::MASK, psn);
            assert_eq!(bytes.len(), near.header_len());
            let mut emitted = vec![0; near.header_len()];
            near.emit(&mut emitted).expect("the buffer has the reported length");
            assert_eq!(SrNearRepr::parse(psn, &emitted), Ok(near));
        }
        _ => {}
    }
}

/// Seeds: the parts after UDP of an SR packet of each kind, and of acknowledgements with few and
/// many words.
#[must_use]
pub fn sr_seeds() -> Vec<(String, Vec<u8>)> {
    let mut seeds = Vec::new();
    for kind in SrKind::ALL {
        let header = sample(kind);
        let mut inside = bth(Opcode::SrData);
        inside.resize(BTH_LEN + header.header_len(), 0);
        header.emit(&mut inside[BTH_LEN..]).expect("the buffer has the reported length");
        inside.extend([7; 8]);
        seeds.push((format!("inside-sr-{kind:?}"), inside));
    }
    for (name, index, block_bytes) in [("data", 1, None), ("row", 8, Some(20)), ("void", 9, None)] {
        let block = Some(BlockRepr { index, data: 8, parity: 2, scheme: 1 });
        let is_parity = index >= 8;
        let header = match name {
            "void" => SrDataRepr { block, ..SrDataRepr::new(SrKind::Send, 7, 0) },
            _ => SrDataRepr { block, block_bytes, ..sample(SrKind::Write) },
        };
        let mut inside = bth(if is_parity { Opcode::SrParity } else { Opcode::SrData });
        inside.resize(BTH_LEN + header.header_len(), 0);
        header.emit(&mut inside[BTH_LEN..]).expect("the buffer has the reported length");
        inside.extend(block_bytes.map_or([0; 8].to_vec(), |_| vec![7; 12]));
        if name == "void" {
            inside.truncate(BTH_LEN + header.header_len());
        }
        seeds.push((format!("inside-sr-block-{name}"), inside));
    }
    let acks = [(0, false, 0, 0), (1, true, 1, 0), (15, false, 16, 0), (2, false, 5, 1)];
    for (words, is_refused, hops, format) in acks {
        let none = SrAckRepr::default();
        let nak = SrNak { psn: 1, code: NakCode::RemoteAccess };
        let nak = is_refused.then_some(nak);
        let reason = if is_refused { AckReason::Nak } else { AckReason::Gap };
        let echo = echo(hops, format);
        let mut ack = SrAckRepr { nak, reason, int: IntRecords::parse(&echo), ..none };
        for i in 0..hops.min(4) {
            let kind =
                [BlockReportKind::Nack, BlockReportKind::Settled, BlockReportKind::Recovered]
                    [usize::from(i) % 3];
            ack.blocks.push(BlockReport { first: i.into(), kind, data: 8, bits: 5 });
        }
        ack.marks = is_refused.then_some(6);
        ack.credit = (hops != 1).then_some(SrCredit { credit: 9, rate_kbps: 8, suggested_kbps: 7 });
        for i in 0..words {
            ack.words.push(SackWord { base: 64 * i, bits: 5 });
        }
        let mut inside = bth(Opcode::SrAck);
        inside.resize(BTH_LEN + ack.header_len(), 0);
        ack.emit(&mut inside[BTH_LEN..]).expect("the buffer has the reported length");
        seeds.push((format!("inside-sr-ack-{words}"), inside));
    }
    let near = SrNearRepr {
        kind: NearKind::PseudoAck,
        psn: 7,
        hop_limit: 63,
        echo_ps: 9,
        int: IntRecords::NONE,
    };
    let records = echo(3, 1);
    let int = IntRecords::parse(&records);
    let telemetry = SrNearRepr { kind: NearKind::Telemetry, int, ..near };
    for (name, near) in [("inside-sr-near", near), ("inside-sr-near-telemetry", telemetry)] {
        let mut inside = bth(Opcode::SrNear);
        inside.resize(BTH_LEN + near.header_len(), 0);
        near.emit(&mut inside[BTH_LEN..]).expect("the buffer has the reported length");
        seeds.push((name.to_owned(), inside));
    }
    seeds
}

/// The echo of `hops` records in the format with this number.
fn echo(hops: u8, format: u8) -> Vec<u8> {
    let record_len = IntFormat::from_u8(format).map_or(0, IntFormat::record_len);
    let mut echo = vec![hops, format, 0, 0];
    echo.resize(echo.len() + usize::from(hops) * record_len, 7);
    echo
}

/// A header with all optional parts of its kind.
fn sample(kind: SrKind) -> SrDataRepr {
    let (va, rkey) = (0x1000, 9);
    let reth = matches!(kind, SrKind::Write | SrKind::ReadRequest);
    let atomic = matches!(kind, SrKind::FetchAdd | SrKind::CmpSwap);
    let receives = matches!(kind, SrKind::Send | SrKind::Write);
    let is_response = matches!(kind, SrKind::ReadResponse | SrKind::AtomicResponse);
    SrDataRepr {
        reth: reth.then_some(RethRepr { va, rkey, dma_len: 8 }),
        atomic: atomic.then_some(AtomicEthRepr { va, rkey, swap_or_add: 1, compare: 2 }),
        imm: receives.then_some(3),
        receive: receives.then_some(4),
        response_to: is_response.then_some(5),
        original: (kind == SrKind::AtomicResponse).then_some(6),
        ..SrDataRepr::new(kind, 7, 8)
    }
}

fn bth(opcode: Opcode) -> Vec<u8> {
    let mut bytes = vec![0; BTH_LEN];
    bytes[0] = opcode.to_u8();
    bytes
}

/// Checks that the template's frame equals that of the headers, except for the UDP checksum, which
/// it omits.
fn check_template(headers: &Headers, payload: &[u8]) {
    let port = headers.udp.src_port;
    let headers = Headers { udp: UdpRepr::new(port), ..*headers };
    let mut template = Template::new(headers.eth, headers.ip, port);
    let whole = emit(&headers, payload);
    let BthRepr { opcode, dest_qp, psn, ack_req, solicited, .. } = headers.bth;
    let plain = PlainBth { ack_req, solicited, ..PlainBth::new(opcode, dest_qp, psn) };
    let bth = BthRepr { ack_req, solicited, ..BthRepr::new(opcode, dest_qp, psn) };
    let is_plain = opcode.ext_len() == 0 && BthRepr { pad: headers.bth.pad, ..bth } == headers.bth;
    // From the second time on, headers and a part of the ICRC are those that were kept.
    for _ in 0..3 {
        let mut frame = vec![0; whole.len()];
        let at = template
            .emit(&headers.bth, &headers.ext, payload.len(), &mut frame)
            .expect("the template and the headers have one length");
        if is_plain {
            let len = payload.len();
            let kept = template.emit_plain(plain, len, len, &mut frame).expect("the same length");
            assert_eq!(kept, (at.clone(), 0));
        }
        frame[at].copy_from_slice(payload);
        template.seal(&mut frame, whole.len());
        assert_eq!(frame, whole);
    }
}

fn emit(headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let len = headers.frame_len(payload.len());
    let mut frame = vec![0; len];
    let at = headers.emit(&mut frame, payload.len()).expect("the buffer has the reported length");
    frame[at].copy_from_slice(payload);
    seal(&mut frame, len);
    frame
}

/// `inside` after valid headers up to UDP, with a valid ICRC; `None` if it exceeds an IP packet.
fn wrap(ip: IpRepr, inside: &[u8]) -> Option<Vec<u8>> {
    let udp_len = UDP_LEN + inside.len() + ICRC_LEN;
    let total = u16::try_from(ip.header_len() + udp_len).ok()?;
    let udp_len = u16::try_from(udp_len).ok()?;
    let (eth_repr, _, udp_repr) = outside(ip);
    let (mut eth, mut udp) = ([0; 14], [0; UDP_LEN]);
    eth_repr.emit(&mut eth);
    udp_repr.emit(udp_len, &mut udp);
    let mut frame = eth.to_vec();
    match ip {
        IpRepr::V4(v4) => {
            let mut header = [0; 20];
            v4.emit(total, &mut header);
            frame.extend(header);
        }
        IpRepr::V6(v6) => {
            let mut header = [0; 40];
            v6.emit(udp_len, &mut header);
            frame.extend(header);
        }
    }
    frame.extend(udp);
    frame.extend(inside);
    frame.extend([0; ICRC_LEN]);
    // An ICRC needs at least a BTH to cover.
    if inside.len() >= BTH_LEN {
        let len = frame.len();
        seal(&mut frame, len);
    }
    Some(frame)
}

fn outside(ip: IpRepr) -> (EthernetRepr, IpRepr, UdpRepr) {
    let ethertype = match ip {
        IpRepr::V4(_) => EthernetRepr::IPV4,
        IpRepr::V6(_) => EthernetRepr::IPV6,
    };
    let (dst, src) = (MacAddr::new([2, 0, 0, 0, 0, 1]), MacAddr::new([2, 0, 0, 0, 0, 2]));
    (EthernetRepr { dst, src, ethertype }, ip, UdpRepr::new(0xc000))
}

fn v4() -> IpRepr {
    IpRepr::V4(Ipv4Repr::new([10, 0, 0, 2].into(), [10, 0, 0, 1].into()))
}

fn v6() -> IpRepr {
    IpRepr::V6(Ipv6Repr::new([0xfd; 16].into(), [0xfc; 16].into()))
}

/// Possible drop reasons after UDP if the ICRC is valid.
const INSIDE: [DropReason; 6] = [
    DropReason::BthTooShort,
    DropReason::BadTver,
    DropReason::UnknownOpcode,
    DropReason::ExtTooShort,
    DropReason::BadPad,
    DropReason::UnexpectedPayload,
];

const UDP_LEN: usize = 8;
const BTH_LEN: usize = 12;
const ICRC_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn run__on_random_bytes() {
        testing::random(20_000, 120, run);
    }

    #[test]
    fn run__on_regressions() {
        testing::regressions("parse", 0, run);
    }

    #[test]
    fn sr_seeds__are_accepted_by_the_parser() {
        for (name, inside) in sr_seeds() {
            let frame = wrap(v4(), &inside).expect("short");
            let packet = Packet::parse(&frame).expect("valid outer headers");
            let taken = match packet.bth.opcode {
                Opcode::SrData => SrDataRepr::parse(0, packet.payload).map(|_| ()),
                Opcode::SrParity => SrDataRepr::parse_parity(0, packet.payload).map(|_| ()),
                Opcode::SrNear => SrNearRepr::parse(0, packet.payload).map(|_| ()),
                _ => SrAckRepr::parse(0, packet.payload).map(|_| ()),
            };
            assert_eq!(taken, Ok(()), "{name}");
            run(&inside);
        }
    }

    #[test]
    fn run__reaches_packets_of_every_opcode() {
        for opcode in spanwire_wire::Opcode::ALL {
            let mut inside = vec![0; BTH_LEN + opcode.ext_len()];
            inside[0] = opcode.to_u8();
            let frame = wrap(v4(), &inside).expect("short");
            assert_eq!(Packet::parse(&frame).map(|p| p.bth.opcode), Ok(opcode));
            run(&inside);
        }
    }
}
