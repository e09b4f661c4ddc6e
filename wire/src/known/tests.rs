use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::packet::tests::{any_headers, any_len, elided_of, frame_of, mend_checksum, samples};
use crate::{BthRepr, Headers, Packet, PlainBth, SrDataRepr, Template, seal, seal_around};

/// Heads that have learned these frames, each twice.
fn learned(frames: &[(Vec<u8>, usize)]) -> KnownHeads {
    let mut heads = KnownHeads::default();
    for (frame, elided) in frames.iter().chain(frames) {
        let packet = Unverified::parse(frame, *elided).expect("a frame without a fault");
        heads.learn(frame, *elided, &packet);
    }
    heads
}

/// The packet, or why it is dropped, as the known heads find it; none if they do not know it.
fn known<'a>(
    heads: &KnownHeads,
    frame: &'a [u8],
    elided: usize,
) -> Option<Result<Packet<'a>, DropReason>> {
    let known = heads.find(frame, elided)?;
    let verified = known.parse().and_then(|packet| {
        known.verify(&packet)?;
        Ok(*packet.trusted())
    });
    if let Ok(packet) = &verified {
        let (ip, of) = (known.ip(), &packet.ip);
        assert_eq!(known.is_ce(), of.ecn() == Ecn::Ce);
        assert_eq!((ip.src(), ip.dst(), ip.dscp_ecn()), (of.src(), of.dst(), of.dscp_ecn()));
    }
    let plain = [false, true].map(|is_only| known.plain_rc(is_only));
    if let ([Some(plain), None] | [None, Some(plain)], Ok(packet)) = (plain, &verified) {
        let expected = PlainRc {
            opcode: packet.bth.opcode,
            psn: packet.bth.psn,
            ack_req: packet.bth.ack_req,
            solicited: packet.bth.solicited,
            payload: packet.payload,
            elided_bytes: packet.elided_bytes,
        };
        assert_eq!(plain, expected);
        let bth = BthRepr {
            ack_req: packet.bth.ack_req,
            solicited: packet.bth.solicited,
            pad: packet.bth.pad,
            ..BthRepr::new(packet.bth.opcode, packet.bth.dest_qp, packet.bth.psn)
        };
        assert_eq!(packet.bth, bth, "what a plain packet leaves out has its default");
        assert_ne!(known.is_valid(), Some(false));
        assert_eq!(known.is_only(), Some(plain.opcode == Opcode::RcSendOnly));
        assert_eq!(peek_dest_qp(frame), Some(packet.bth.dest_qp));
    }
    if let (Some(usual), Ok(packet)) = (known.usual_sr_data(), &verified) {
        let parsed = SrDataRepr::parse(packet.bth.psn.get(), packet.payload);
        let (header, payload) = parsed.expect("no fault in SR's header");
        assert_eq!(SrDataRepr::from(usual.header), header);
        let expected = UsualSrData {
            header: usual.header,
            ack_req: packet.bth.ack_req,
            solicited: packet.bth.solicited,
            payload,
            elided_bytes: packet.elided_bytes,
            ip_bytes: usize::from(len_field(frame).expect("over IP"))
                + if matches!(packet.ip, IpRepr::V6(_)) { ipv6::LEN } else { 0 },
            trailer: packet.trailer,
        };
        assert_eq!(usual, expected);
        assert_eq!((packet.bth.opcode, packet.bth.pkey), (Opcode::SrData, 0xffff));
    }
    Some(verified)
}

/// Asserts that the known heads find in `frame` what the general functions do, or nothing.
fn assert_same(heads: &KnownHeads, frame: &[u8], elided: usize) {
    if let Some(found) = known(heads, frame, elided) {
        assert_eq!(found, Packet::parse_elided(frame, elided));
    }
}

#[test]
fn find__knows_headers_from_the_second_packet_on() {
    for headers in samples() {
        let frame = frame_of(&headers, 64);
        let packet = Unverified::parse(&frame, 0).unwrap();
        let mut heads = KnownHeads::default();
        for _ in 0..2 {
            assert!(heads.find(&frame, 0).is_none());
            heads.learn(&frame, 0, &packet);
        }
        assert_eq!(known(&heads, &frame, 0), Some(Ok(*packet.trusted())));
        assert_eq!(known(&heads, &frame[..frame.len() - 1], 0), None, "it is cut");
        let padded = [&frame[..], &[7; 9]].concat();
        assert_eq!(known(&heads, &padded, 0), Some(Packet::parse(&padded)), "link padding");
        // The identification of IPv4 differs: the headers are known, and the whole ICRC is
        // computed.
        if let IpRepr::V4(ip) = headers.ip {
            let ip = IpRepr::V4(Ipv4Repr { id: ip.id + 7, ..ip });
            let frame = frame_of(&Headers { ip, ..headers }, 64);
            assert_eq!(known(&heads, &frame, 0), Some(Packet::parse(&frame)));
            assert_eq!(heads.find(&frame, 0).unwrap().is_valid(), None);
            let mut wrong = frame.clone();
            wrong[25] ^= 1;
            assert_eq!(known(&heads, &wrong, 0), None, "its checksum is wrong");
        }
        // Another packet of the same length: it is known, but not the first one any more.
        let mut other = frame_of(&Headers { udp: UdpRepr::new(0xc0de), ..headers }, 64);
        assert_eq!(known(&heads, &other, 0), None);
        heads.learn(&other, 0, &Unverified::parse(&other, 0).unwrap());
        assert_eq!((known(&heads, &other, 0), known(&heads, &frame, 0)), (None, None));
        other[40] = 9;
        assert_eq!(known(&heads, &other, 0), None);
    }
}

#[test]
fn find__takes_every_changed_bit_as_the_general_functions_do() {
    for headers in samples() {
        let (short, elided) = elided_of(&headers, 0, 0);
        for (frame, elided) in [(frame_of(&headers, 8), 0), (short, elided)] {
            let heads = learned(&[(frame.clone(), elided)]);
            assert!(heads.find(&frame, elided).is_some());
            for bit in 0..frame.len() * 8 {
                let mut changed = frame.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_same(&heads, &changed, elided);
                mend_checksum(&mut changed);
                assert_same(&heads, &changed, elided);
            }
            for len in 0..frame.len() {
                assert_same(&heads, &frame[..len], elided);
            }
        }
    }
}

#[test]
fn plain_rc__is_a_middle_packet_or_the_only_one_of_a_send() {
    let mut found = Vec::new();
    for headers in samples() {
        let frame = frame_of(&headers, 8);
        let heads = learned(&[(frame.clone(), 0)]);
        let known = heads.find(&frame, 0).expect("two packets");
        if let Some(plain) = known.is_only().and_then(|is_only| known.plain_rc(is_only)) {
            assert_eq!(plain.opcode, headers.bth.opcode);
            found.push(plain.opcode);
        }
    }
    let expected = [
        Opcode::RcSendMiddle,
        Opcode::RcSendOnly,
        Opcode::RcWriteMiddle,
        Opcode::RcReadResponseMiddle,
    ];
    assert_eq!(found, [expected, expected].concat(), "over IPv4 and IPv6");
}

#[test]
fn peek_dest_qp__of_short_and_other_frames_is_none() {
    for headers in samples() {
        let frame = frame_of(&headers, 0);
        assert_eq!(peek_dest_qp(&frame), Some(headers.bth.dest_qp));
        for len in 0..headers.header_len() - headers.bth.opcode.ext_len() {
            assert_eq!(peek_dest_qp(&frame[..len]), None);
        }
        let mut other = frame;
        other[12] = 0x88;
        assert_eq!(peek_dest_qp(&other), None);
    }
}

/// Payload bytes, elided or not, PSN, AckReq and solicited, a change of the source port.
fn any_plain() -> impl Strategy<Value = (usize, bool, u32, (bool, bool), u16)> {
    (any_len(), any::<bool>(), any::<u32>(), any::<(bool, bool)>(), 0..2u16)
}

/// The frame of these headers, finished by `template`.
fn sealed(template: &mut Template, headers: &Headers, len: usize) -> Vec<u8> {
    let len = if headers.bth.opcode.props().payload { len } else { 0 };
    let mut frame = frame_of(headers, len);
    let end = frame.len();
    frame[end - icrc::LEN..].fill(0);
    template.seal(&mut frame, end);
    frame
}

proptest! {
    #[test]
    fn find__is_the_general_function_or_nothing(
        all in prop::collection::vec((any_headers(), any_len()), 1..6),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 0..3),
        mends in any::<bool>(),
        at in any::<Index>(),
    ) {
        let frames: Vec<_> = all.iter().map(|(h, len)| (frame_of(h, *len), 0)).collect();
        let heads = learned(&frames);
        let mut frame = at.get(&frames).0.clone();
        assert_same(&heads, &frame, 0);
        for (i, byte) in changes {
            let i = i.index(frame.len());
            frame[i] = byte;
        }
        if mends {
            mend_checksum(&mut frame);
        }
        assert_same(&heads, &frame, 0);
        let len = frame.len();
        // An ICRC that is right for the changed headers.
        if frame.get(ethernet::LEN..len - icrc::LEN).and_then(icrc::icrc).is_some() {
            seal(&mut frame, len);
            assert_same(&heads, &frame, 0);
        }
    }

    #[test]
    fn find__handles_any_bytes(
        headers in any_headers(),
        len in any_len(),
        head in 0..70usize,
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        elided in 0..9usize,
    ) {
        let frame = frame_of(&headers, len);
        let heads = learned(&[(frame.clone(), 0)]);
        let any = [&frame[..head.min(frame.len())], &bytes[..]].concat();
        for elided in [0, elided] {
            assert_same(&heads, &any, elided);
            assert_same(&heads, &frame, elided);
        }
        let _ = peek_dest_qp(&any);
    }

    #[test]
    fn template_seal__is_seal(
        headers in any_headers(),
        lens in prop::collection::vec(any_len(), 1..6),
    ) {
        let headers = Headers { udp: UdpRepr { checksum: 0, ..headers.udp }, ..headers };
        let mut template = Template::new(headers.eth, headers.ip, headers.udp.src_port);
        for (round, len) in (0..4).flat_map(|round| lens.iter().map(move |len| (round, *len))) {
            let udp = UdpRepr::new(headers.udp.src_port ^ (round & 1));
            let bth = BthRepr { psn: Psn::new(round.into()), ..headers.bth };
            // A packet with and without congestion notification.
            let calm = BthRepr { fecn: false, becn: false, resv6: 0, ..bth };
            let bth = if round < 2 { bth } else { calm };
            let headers = Headers { udp, bth, ..headers };
            let wanted = frame_of(&headers, if bth.opcode.props().payload { len } else { 0 });
            assert_eq!(sealed(&mut template, &headers, len), wanted);
            let place = headers.header_len()..wanted.len() - icrc::LEN;
            let payload = &wanted[place.clone()];
            let mut around = wanted.clone();
            around[place.start..].fill(0xa5);
            let mut general = around.clone();
            let parts = |each: &mut dyn FnMut(&[u8])| payload.chunks(100).for_each(each);
            template.seal_around(&mut around, wanted.len(), place.clone(), parts);
            seal_around(&mut general, wanted.len(), place, parts);
            assert_eq!(around[wanted.len() - 4..], wanted[wanted.len() - 4..]);
            assert_eq!(around, general);
        }
    }

    #[test]
    fn emit_plain__is_emit(
        headers in any_headers(),
        packets in prop::collection::vec(any_plain(), 1..9),
    ) {
        prop_assume!(headers.bth.opcode.ext_len() == 0);
        let mut template = Template::new(headers.eth, headers.ip, headers.udp.src_port);
        for (len, elides, psn, (ack_req, solicited), port) in packets {
            let len = if headers.bth.opcode.props().payload { len } else { 0 };
            let kept = if elides { len % 8 } else { len };
            let udp = UdpRepr::new(headers.udp.src_port ^ port);
            template.set_src_port(udp.src_port);
            let BthRepr { opcode, dest_qp, .. } = headers.bth;
            let new = PlainBth::new(opcode, dest_qp, Psn::new(psn));
            let plain = PlainBth { ack_req, solicited, ..new };
            let bth = BthRepr { ack_req, solicited, ..BthRepr::new(opcode, dest_qp, plain.psn) };
            let (wanted, elided) = elided_of(&Headers { bth, udp, ..headers }, len, kept);
            for _ in 0..3 {
                let mut frame = vec![0x77; wanted.len()];
                let (place, got) = template.emit_plain(plain, len, kept, &mut frame).unwrap();
                prop_assert_eq!(got, elided);
                frame[place.clone()].copy_from_slice(&wanted[place]);
                let end = frame.len();
                template.seal(&mut frame, end);
                prop_assert_eq!(&frame, &wanted);
                let short = template.emit_plain(plain, len, kept, &mut frame[1..]);
                prop_assert_eq!(short, Err(crate::BufferTooShort));
            }
        }
    }
}
