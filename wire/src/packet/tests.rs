use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::{
    AethRepr, AtomicAckEthRepr, AtomicEthRepr, BufferTooShort, DethRepr, Headers, MacAddr, Opcode,
    Psn, Qpn, RethRepr, Syndrome, Template, seal,
};

// ---- Packets that a sender may send ----

fn any_eth() -> impl Strategy<Value = EthernetRepr> {
    any::<([u8; 6], [u8; 6])>().prop_map(|(dst, src)| EthernetRepr {
        dst: MacAddr(dst),
        src: MacAddr(src),
        ethertype: 0,
    })
}

fn any_v4() -> impl Strategy<Value = IpRepr> {
    any::<(u32, u32, u8, u8, u16, bool)>().prop_map(|(src, dst, tos, ttl, id, df)| {
        IpRepr::V4(Ipv4Repr {
            src: src.into(),
            dst: dst.into(),
            dscp_ecn: tos,
            ttl,
            id,
            dont_fragment: df,
        })
    })
}

fn any_v6() -> impl Strategy<Value = IpRepr> {
    let flow = 0..1u32 << 20;
    (any::<(u128, u128, u8, u8)>(), flow).prop_map(|((src, dst, tos, hop_limit), flow_label)| {
        IpRepr::V6(Ipv6Repr {
            src: src.into(),
            dst: dst.into(),
            dscp_ecn: tos,
            hop_limit,
            flow_label,
        })
    })
}

fn any_udp() -> impl Strategy<Value = UdpRepr> {
    any::<(u16, u16)>()
        .prop_map(|(src_port, checksum)| UdpRepr { checksum, ..UdpRepr::new(src_port) })
}

fn any_bth() -> impl Strategy<Value = BthRepr> {
    let bits = any::<(bool, bool, bool, bool, bool, u16)>();
    let resv = (0..64u8, 0..128u8);
    (select(&Opcode::ALL[..]), bits, resv, any::<(u32, u32)>()).prop_map(
        |(opcode, (solicited, mig_req, fecn, becn, ack_req, pkey), (resv6, resv7), (qpn, psn))| {
            BthRepr {
                solicited,
                mig_req,
                pkey,
                fecn,
                becn,
                resv6,
                ack_req,
                resv7,
                ..BthRepr::new(opcode, Qpn::new(qpn), Psn::new(psn))
            }
        },
    )
}

/// Extension headers of every kind, reduced to an opcode's by [`only_for`].
fn all_exts() -> impl Strategy<Value = ExtHeaders> {
    let rdma = any::<(u64, u32, u32)>();
    let atomic = any::<(u64, u32, u64, u64, u64)>();
    let rest = any::<(u8, u32, u32, u32, u32, u32)>();
    (rdma, atomic, rest).prop_map(|(rdma, atomic, (syndrome, msn, imm, ieth, qkey, qpn))| {
        ExtHeaders {
            reth: Some(RethRepr { va: rdma.0, rkey: rdma.1, dma_len: rdma.2 }),
            aeth: Some(AethRepr { syndrome: Syndrome::from_u8(syndrome), msn: msn & 0xff_ffff }),
            atomic: Some(AtomicEthRepr {
                va: atomic.0,
                rkey: atomic.1,
                swap_or_add: atomic.2,
                compare: atomic.3,
            }),
            atomic_ack: Some(AtomicAckEthRepr { original: atomic.4 }),
            imm: Some(imm),
            ieth: Some(ieth),
            deth: Some(DethRepr { qkey, src_qp: Qpn::new(qpn) }),
        }
    })
}

fn only_for(opcode: Opcode, all: &ExtHeaders) -> ExtHeaders {
    let p = opcode.props();
    ExtHeaders {
        reth: all.reth.filter(|_| p.reth),
        aeth: all.aeth.filter(|_| p.aeth),
        atomic: all.atomic.filter(|_| p.atomic),
        atomic_ack: all.atomic_ack.filter(|_| p.atomic_ack),
        imm: all.imm.filter(|_| p.imm),
        ieth: all.ieth.filter(|_| p.ieth),
        deth: all.deth.filter(|_| p.deth),
    }
}

pub(crate) fn any_headers() -> impl Strategy<Value = Headers> {
    let ip = prop_oneof![any_v4(), any_v6()];
    (any_eth(), ip, any_udp(), any_bth(), all_exts()).prop_map(|(eth, ip, udp, bth, all)| Headers {
        eth,
        ip,
        udp,
        bth,
        ext: only_for(bth.opcode, &all),
    })
}

/// Small lengths of every pad, and the path MTUs with their neighbours.
pub(crate) fn any_len() -> impl Strategy<Value = usize> {
    let mtus: Vec<usize> =
        [256usize, 512, 1024, 2048, 4096].into_iter().flat_map(|m| m - 1..=m + 1).collect();
    prop_oneof![3 => 0..64usize, 1 => select(mtus)]
}

/// The sealed frame of `headers` with `len` patterned bytes, or none if the opcode takes none.
pub(crate) fn frame_of(headers: &Headers, len: usize) -> Vec<u8> {
    let len = if headers.bth.opcode.props().payload { len } else { 0 };
    let mut frame = vec![0xee; headers.frame_len(len)];
    let at = headers.emit(&mut frame, len).unwrap();
    for (i, b) in frame[at].iter_mut().enumerate() {
        *b = u8::try_from(i * 7 % 251).unwrap();
    }
    let total = frame.len();
    seal(&mut frame, total);
    frame
}

/// Every opcode over both IP versions, with fixed fields.
pub(crate) fn samples() -> Vec<Headers> {
    let v4 = IpRepr::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).unwrap();
    let v6 = IpRepr::new([0xfd, 0, 0, 0, 0, 0, 0, 1].into(), [0xfd, 0, 0, 0, 0, 0, 0, 2].into());
    let all = ExtHeaders {
        reth: Some(RethRepr { va: 1 << 40, rkey: 7, dma_len: 9 }),
        aeth: Some(AethRepr { syndrome: Syndrome::Ack { credits: 31 }, msn: 3 }),
        atomic: Some(AtomicEthRepr::default()),
        atomic_ack: Some(AtomicAckEthRepr { original: 5 }),
        imm: Some(0xdead_beef),
        ieth: Some(0x77),
        deth: Some(DethRepr { qkey: 0x1111_1111, src_qp: Qpn::new(9) }),
    };
    let mut out = Vec::new();
    for ip in [v4, v6.unwrap()] {
        for opcode in Opcode::ALL {
            out.push(Headers {
                eth: EthernetRepr::default(),
                ip,
                udp: UdpRepr::new(0xc000),
                bth: BthRepr::new(opcode, Qpn::new(17), Psn::new(0xff_fffe)),
                ext: only_for(opcode, &all),
            });
        }
    }
    out
}

/// The same headers and payload length with all but `kept` bytes of the payload elided, and the
/// number of elided bytes.
pub(crate) fn elided_of(headers: &Headers, len: usize, kept: usize) -> (Vec<u8>, usize) {
    let template = Template::new(headers.eth, headers.ip, headers.udp.src_port);
    let mut frame = vec![0xee; headers.frame_len(len)];
    let (at, elided) =
        template.emit_elided(&headers.bth, &headers.ext, len, kept, &mut frame).unwrap();
    let pad = if elided == 0 { len.wrapping_neg() % 4 } else { 0 };
    for (i, b) in frame[at.clone()].iter_mut().enumerate() {
        *b = u8::try_from(i * 7 % 251).unwrap();
    }
    let end = at.end + pad + icrc::LEN;
    frame.truncate(end);
    seal(&mut frame, end);
    (frame, elided)
}

#[test]
fn parse_elided__is_the_whole_packet_without_part_of_its_payload() {
    for headers in samples() {
        for (len, kept) in (0..9).flat_map(|len| (0..=len + 1).map(move |kept| (len, kept))) {
            let len = if headers.bth.opcode.props().payload { len } else { 0 };
            let (short, elided) = elided_of(&headers, len, kept);
            let whole = frame_of(&headers, len);
            assert_eq!(short.len() + elided, whole.len());
            let there = short.len() - icrc::LEN;
            assert_eq!(short[..there], whole[..there], "the bytes present are the same");
            let got = Packet::parse_elided(&short, elided).unwrap();
            let want = Packet::parse(&whole).unwrap();
            assert_eq!((got.payload_len(), want.payload_len()), (len, len));
            assert_eq!(got.payload, &want.payload[..len.min(kept)]);
            assert_eq!(Packet { payload: want.payload, elided_bytes: 0, ..got }, want);
            // Neither form is accepted as the other.
            assert_eq!(Packet::parse(&short).is_ok(), elided == 0);
            assert_eq!(Packet::parse_elided(&whole, elided).is_ok(), elided == 0);
        }
    }
}

#[test]
fn parse_elided__detects_flipped_bits_and_odd_lengths() {
    for headers in samples().into_iter().filter(|h| h.bth.opcode.props().payload) {
        let (short, elided) = elided_of(&headers, 6, 0);
        let mut bad = short.clone();
        *bad.last_mut().unwrap() ^= 1;
        assert_eq!(Packet::parse_elided(&bad, elided), Err(DropReason::BadIcrc));
        for wrong in [0, elided - 1, elided + 1, 65_535, usize::MAX] {
            assert!(Packet::parse_elided(&short, wrong).is_err(), "{wrong} of {headers:?}");
        }
        for cut in 0..short.len() {
            assert!(Packet::parse_elided(&short[..cut], elided).is_err());
        }
    }
}

// ---- Packets that a receiver must handle ----

/// Corrects the IPv4 header checksum, as a router or an attacker would.
pub(crate) fn mend_checksum(frame: &mut [u8]) {
    if frame[14] == 0x45 {
        frame[24..26].fill(0);
        let header = frame[14..34].first_chunk().unwrap();
        let checksum = !crate::ipv4::fold(crate::ipv4::sum(header));
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// True for the bits that the ICRC does not cover, listed independently of `icrc.rs`.
fn is_masked(v4: bool, byte: usize, bit: usize) -> bool {
    let udp = if v4 { 34 } else { 54 };
    let in_ip = match (v4, byte) {
        (true, 15 | 22) => true,
        (false, 14) => bit < 4,
        (false, 15..=17 | 21) => true,
        _ => false,
    };
    in_ip || byte < 12 || byte == udp + 6 || byte == udp + 7 || byte == udp + 8 + 4
}

#[test]
fn parse__detects_every_flipped_bit_that_is_covered() {
    for headers in samples() {
        let good = frame_of(&headers, 5);
        let v4 = matches!(headers.ip, IpRepr::V4(_));
        let before = Packet::parse(&good).unwrap();
        for byte in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[byte] ^= 1 << bit;
                if v4 && (24..26).contains(&byte) {
                    assert_eq!(Packet::parse(&bad), Err(DropReason::BadIpChecksum));
                    continue;
                }
                if v4 && (15..34).contains(&byte) {
                    let unmended = Packet::parse(&bad);
                    assert!(unmended.is_err(), "byte {byte} bit {bit} of {headers:?}");
                }
                mend_checksum(&mut bad);
                let after = Packet::parse(&bad);
                if is_masked(v4, byte, bit) {
                    let after = after.expect("a router may change this");
                    assert_ne!(after, before, "byte {byte} bit {bit} is lost");
                    assert_eq!(after.payload, before.payload);
                } else {
                    assert!(after.is_err(), "byte {byte} bit {bit} of {headers:?}");
                }
            }
        }
    }
}

#[test]
fn parse__rejects_every_truncation() {
    for headers in samples() {
        let frame = frame_of(&headers, 6);
        for cut in 0..frame.len() {
            let why = Packet::parse(&frame[..cut]).unwrap_err();
            let want = if cut < 14 { DropReason::EthernetTooShort } else { DropReason::IpTooShort };
            assert_eq!(why, want, "{cut} bytes of {headers:?}");
        }
    }
}

/// Truncates a frame and sets the IP and UDP lengths to match, so that the inner checks are
/// reached.
fn shorten(frame: &[u8], to: usize) -> Vec<u8> {
    let mut f = frame[..to].to_vec();
    let udp = if f[14] == 0x45 { 34 } else { 54 };
    let ip_len = u16::try_from(if udp == 34 { to - 14 } else { to - 54 }).unwrap();
    let at = if udp == 34 { 16 } else { 18 };
    f[at..at + 2].copy_from_slice(&ip_len.to_be_bytes());
    if let Some(len) = f.get_mut(udp + 4..udp + 6) {
        len.copy_from_slice(&u16::try_from(to - udp).unwrap().to_be_bytes());
    }
    mend_checksum(&mut f);
    f
}

#[test]
fn parse__names_the_layer_that_a_short_packet_ends_in() {
    for headers in samples() {
        let opcode = headers.bth.opcode;
        let frame = frame_of(&headers, 8);
        let udp = 14 + headers.ip.header_len();
        let (ib, ext) = (udp + 8, udp + 8 + 12);
        let payload = ext + opcode.ext_len();
        for to in udp..frame.len() {
            let want = match to {
                _ if to < ib => DropReason::UdpTooShort,
                _ if to < ext + 4 => DropReason::BthTooShort,
                _ if to < payload + 4 => DropReason::ExtTooShort,
                _ if !(to - payload).is_multiple_of(4) => DropReason::BadPad,
                _ => DropReason::BadIcrc,
            };
            assert_eq!(Packet::parse(&shorten(&frame, to)), Err(want), "{to} of {headers:?}");
        }
    }
}

#[test]
fn parse__accepts_link_padding() {
    for headers in samples() {
        let mut frame = frame_of(&headers, 0);
        frame.extend([0x5a; 9]);
        assert_eq!(Packet::parse(&frame).map(|p| p.bth.opcode), Ok(headers.bth.opcode));
    }
}

#[test]
fn parse__rejects_a_payload_after_an_opcode_without_one() {
    let ack = samples().into_iter().find(|h| h.bth.opcode == Opcode::RcAck).unwrap();
    let send = Headers {
        bth: BthRepr { opcode: Opcode::RcSendOnlyInv, ..ack.bth },
        ext: ExtHeaders { ieth: Some(0), ..ExtHeaders::NONE },
        ..ack
    };
    let mut frame = frame_of(&send, 4);
    frame[42] = Opcode::RcAck.to_u8();
    assert_eq!(Packet::parse(&frame), Err(DropReason::UnexpectedPayload));
}

#[test]
fn parse__rejects_more_pad_than_payload() {
    let send = samples().into_iter().find(|h| h.bth.opcode == Opcode::RcSendOnly).unwrap();
    let mut frame = frame_of(&send, 0);
    frame[43] |= 0x10;
    assert_eq!(Packet::parse(&frame), Err(DropReason::BadPad));
}

#[test]
fn parse__names_frames_of_other_protocols() {
    let mut arp = vec![0; 60];
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    let send = frame_of(&samples()[4], 16);
    let mut tcp = send.clone();
    tcp[23] = 6;
    mend_checksum(&mut tcp);
    let mut dns = send;
    dns[37] ^= 0xff;
    let cases = [(arp, DropReason::NotIp), (tcp, DropReason::NotUdp), (dns, DropReason::NotRoce)];
    for (frame, why) in cases {
        assert_eq!(Packet::parse(&frame), Err(why));
        assert!(why.is_not_roce());
    }
}

proptest! {
    #[test]
    fn parse__handles_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let unverified = Packet::parse_unverified(&bytes);
        match Packet::parse(&bytes) {
            Err(DropReason::BadIcrc) => prop_assert!(unverified.is_ok()),
            other => prop_assert_eq!(other, unverified),
        }
    }

    /// Random bytes fail in the first checks; a changed frame passes more of them.
    #[test]
    fn parse__handles_any_changed_frame(
        headers in any_headers(),
        len in any_len(),
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<Index>()),
        mend in any::<bool>(),
    ) {
        let mut frame = frame_of(&headers, len);
        let original = frame.clone();
        for (at, value) in changes {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        if mend {
            mend_checksum(&mut frame);
        }
        if let Some(cut) = cut {
            frame.truncate(cut.index(original.len()));
        }
        // Every accepted packet can be emitted, and parses to the same packet.
        if let Ok(packet) = Packet::parse_unverified(&frame) {
            let again = Headers::from(&packet);
            let mut copy = vec![0; again.frame_len(packet.payload.len())];
            let at = again.emit(&mut copy, packet.payload.len()).unwrap();
            copy[at].copy_from_slice(packet.payload);
            let total = copy.len();
            seal(&mut copy, total);
            prop_assert_eq!(Packet::parse(&copy), Ok(packet));
        }
    }

    #[test]
    fn parse__reads_what_emit_wrote(headers in any_headers(), len in any_len()) {
        let frame = frame_of(&headers, len);
        let packet = Packet::parse(&frame).unwrap();
        let len = if headers.bth.opcode.props().payload { len } else { 0 };
        prop_assert_eq!(packet.payload.len(), len);
        let mut payload = packet.payload.iter().enumerate();
        prop_assert!(payload.all(|(i, b)| usize::from(*b) == i * 7 % 251));
        prop_assert_eq!((len + usize::from(packet.bth.pad)) % 4, 0);

        let mut got = Headers::from(&packet);
        let v4 = matches!(headers.ip, IpRepr::V4(_));
        let ethertype = if v4 { EthernetRepr::IPV4 } else { EthernetRepr::IPV6 };
        prop_assert_eq!(got.eth.ethertype, ethertype);
        got.eth.ethertype = headers.eth.ethertype;
        got.bth.pad = headers.bth.pad;
        prop_assert_eq!(got, headers);
    }

    #[test]
    fn template__writes_what_headers_write(headers in any_headers(), len in any_len()) {
        let headers = Headers { udp: UdpRepr::new(headers.udp.src_port), ..headers };
        let len = if headers.bth.opcode.props().payload { len } else { 0 };
        let template = Template::new(headers.eth, headers.ip, headers.udp.src_port);
        let (mut a, mut b) = (vec![0xee; 4300], vec![0xee; 4300]);
        let at = template.emit(&headers.bth, &headers.ext, len, &mut a);
        prop_assert_eq!(&at, &headers.emit(&mut b, len));
        prop_assert_eq!(at.unwrap().start, template.header_len(&headers.bth));
        prop_assert_eq!(a, b);
        let mut short = vec![0; headers.frame_len(len) - 1];
        prop_assert_eq!(headers.emit(&mut short, len), Err(BufferTooShort));
    }
}

#[test]
fn parse__reads_every_opcode_version_and_short_length() {
    for headers in samples() {
        for len in 0..=64 {
            let frame = frame_of(&headers, len);
            let packet = Packet::parse(&frame).unwrap();
            let carried = if headers.bth.opcode.props().payload { len } else { 0 };
            assert_eq!((packet.payload.len(), packet.ext), (carried, headers.ext));
        }
    }
}
