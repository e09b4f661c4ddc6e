use super::*;
use proptest::prelude::*;

const BLOCK_REPR: BlockRepr = BlockRepr { index: 7, data: 8, parity: 2, scheme: 1 };
const RETH_REPR: RethRepr = RethRepr { va: 0x1122_3344_5566_7788, rkey: 9, dma_len: 77 };

/// A packet of every kind and every set of parts that there is.
fn samples() -> Vec<SrDataRepr> {
    let with_qpn = |sample| SrDataRepr { source_qpn: Some(Qpn::new(0x12_3456)), ..sample };
    let without = unnamed_samples();
    without.iter().copied().chain(without.iter().copied().map(with_qpn)).collect()
}

/// Likewise, without the sender's QPN.
fn unnamed_samples() -> Vec<SrDataRepr> {
    let base = |kind| SrDataRepr {
        path: 0x1234,
        sent_ps: u64::MAX - 1,
        ..SrDataRepr::new(kind, 0xab12_3456, 0xfeed_beef)
    };
    let send = SrDataRepr { receive: Some(5), ..base(SrKind::Send) };
    let write = SrDataRepr { reth: Some(RETH_REPR), ..base(SrKind::Write) };
    let operands = AtomicEthRepr { va: 8, rkey: 1, swap_or_add: 2, compare: 3 };
    let atomic = |kind| SrDataRepr { atomic: Some(operands), ..base(kind) };
    vec![
        SrDataRepr { last: false, ..send },
        SrDataRepr { is_retransmission: true, ..send },
        SrDataRepr { first: false, offset: 4096, ..send },
        SrDataRepr { imm: Some(1), ..send },
        SrDataRepr { ieth: Some(2), ..send },
        SrDataRepr { first: false, last: false, offset: 1, ..write },
        SrDataRepr { imm: Some(7), receive: Some(0), ..write },
        SrDataRepr { reth: Some(RETH_REPR), ..base(SrKind::ReadRequest) },
        SrDataRepr { response_to: Some(3), first: false, ..base(SrKind::ReadResponse) },
        atomic(SrKind::FetchAdd),
        atomic(SrKind::CmpSwap),
        SrDataRepr { response_to: Some(4), original: Some(6), ..base(SrKind::AtomicResponse) },
        SrDataRepr { block: Some(BLOCK_REPR), ..send },
        SrDataRepr { block: Some(BLOCK_REPR), imm: Some(1), ..send },
        SrDataRepr { block: Some(BLOCK_REPR), ieth: Some(1), ..send },
        SrDataRepr { block: Some(BLOCK_REPR), first: false, ..write },
        SrDataRepr { block: Some(BLOCK_REPR), imm: Some(7), receive: Some(0), ..write },
        SrDataRepr { block: Some(BLOCK_REPR), response_to: Some(3), ..base(SrKind::ReadResponse) },
    ]
}

/// Parity of each kind, and parity that only fills its PSN.
fn parity_samples() -> Vec<SrDataRepr> {
    let row = Some(BlockRepr { index: 9, ..BLOCK_REPR });
    let coded = unnamed_samples().into_iter().filter(|sample| sample.block.is_some());
    let empty = SrDataRepr { block: row, ..SrDataRepr::new(SrKind::Write, 5, 6) };
    coded
        .map(|sample| SrDataRepr { block: row, block_bytes: Some(10_000), ..sample })
        .chain([empty])
        .collect()
}

fn bytes_of(repr: &SrDataRepr) -> Vec<u8> {
    let mut out = vec![0xee; repr.header_len()];
    repr.emit(&mut out).unwrap();
    out
}

#[test]
fn parse__returns_what_was_emitted_and_the_rest() {
    for repr in samples() {
        let mut bytes = bytes_of(&repr);
        bytes.extend([1, 2, 3]);
        let (got, rest) = SrDataRepr::parse(0x12_3456, &bytes).unwrap();
        assert_eq!((got, rest), (repr, &[1u8, 2, 3][..]));
    }
}

#[test]
fn parse_parity__returns_what_was_emitted() {
    for repr in parity_samples() {
        let mut bytes = bytes_of(&repr);
        let payload = &[1, 2, 3][..];
        bytes.extend(payload);
        let low = repr.psn & 0xff_ffff;
        assert_eq!(SrDataRepr::parse_parity(low, &bytes), Ok((repr, payload)));
        assert_eq!(SrDataRepr::parse(low, &bytes), Err(DropReason::SrKind));
    }
    for repr in samples() {
        let mut bytes = bytes_of(&repr);
        bytes.push(1);
        assert_eq!(SrDataRepr::parse_parity(0, &bytes), Err(DropReason::SrKind));
    }
}

#[test]
fn usual__is_parsed_and_emitted_as_the_whole_header_or_not_at_all() {
    let flags = [(false, false), (true, false), (false, true), (true, true)];
    let of = |repr| flags.map(|(first, last)| SrDataRepr { first, last, ..repr });
    let mut usual = 0;
    for repr in samples().into_iter().flat_map(of) {
        let mut bytes = bytes_of(&repr);
        bytes.extend([1, 2, 3]);
        let low = repr.psn & 0xff_ffff;
        assert!(SrUsualRepr::parse(low, &bytes[..repr.header_len() - 1]).is_none());
        let Some((parsed, rest)) = SrUsualRepr::parse(low, &bytes) else { continue };
        assert_eq!((SrDataRepr::from(parsed), rest), (repr, &[1u8, 2, 3][..]));
        let mut out = vec![0xee; parsed.header_len()];
        parsed.emit(&mut out).unwrap();
        assert_eq!(out, bytes_of(&repr));
        for cut in 0..out.len() {
            assert_eq!(parsed.emit(&mut out[..cut]), Err(BufferTooShort));
        }
        usual += 1;
    }
    assert_eq!(usual, 4 * 4, "SEND, also later, WRITE, and a response to a READ");
}

#[test]
fn parse__rejects_every_truncation_and_emit_every_short_buffer() {
    for repr in samples() {
        let bytes = bytes_of(&repr);
        for cut in 0..bytes.len() {
            let got = SrDataRepr::parse(0, &bytes[..cut]);
            assert_eq!(got, Err(DropReason::ExtTooShort), "{cut} of {repr:?}");
            assert_eq!(repr.emit(&mut vec![0; cut]), Err(BufferTooShort));
        }
    }
}

#[test]
fn parse__accepts_only_the_parts_of_the_kind() {
    for repr in samples() {
        let bytes = bytes_of(&repr);
        let mut long = bytes.clone();
        long.resize(200, 0);
        for bits in (0..=KNOWN).filter(|bits| bits & !KNOWN == 0) {
            let mut other = long.clone();
            other[2..4].copy_from_slice(&bits.to_be_bytes());
            if let Ok((got, _)) = SrDataRepr::parse(0, &other) {
                assert_eq!(got.presence(), bits);
                let same = |s: &SrDataRepr| s.kind == repr.kind && s.presence() == bits;
                let known = samples().iter().any(same);
                assert!(known, "{bits:#b} with {repr:?}");
            }
        }
    }
}

#[test]
fn parse__rejects_unknown_versions_and_parts() {
    let mut bytes = bytes_of(&samples()[0]);
    bytes[0] = 2 << 4;
    assert_eq!(SrDataRepr::parse(0, &bytes), Err(DropReason::SrVersion));
    bytes[0] = VERSION << 4 | 7;
    assert_eq!(SrDataRepr::parse(0, &bytes), Err(DropReason::SrKind));
    bytes[0] = VERSION << 4;
    for bit in [7].into_iter().chain(11..16) {
        let mut other = bytes.clone();
        other[2..4].copy_from_slice(&(RECEIVE | 1u16 << bit).to_be_bytes());
        assert_eq!(SrDataRepr::parse(0, &other), Err(DropReason::SrFeature));
    }
}

proptest! {
    #[test]
    fn parse__never_panics_and_accepted_headers_round_trip(
        psn in 0u32..1 << 24,
        mut bytes in prop::collection::vec(any::<u8>(), 0..100),
        plausible in any::<bool>(),
    ) {
        if let (true, [first, _, hi, lo, flags, reserved, ..]) = (plausible, &mut bytes[..]) {
            *first = (VERSION << 4) | (*first % 7);
            (*hi, *flags, *reserved) = (*hi & 7, *flags & 0xc0, 0);
            *lo &= 0x7f;
        }
        let data = SrDataRepr::parse(psn, &bytes);
        let parity = SrDataRepr::parse_parity(psn, &bytes);
        prop_assert!(data.is_err() || parity.is_err());
        let usual = SrUsualRepr::parse(psn, &bytes);
        prop_assert!(usual.is_none_or(|(usual, rest)| Ok((usual.into(), rest)) == data));
        if let Ok((repr, rest)) = data.or(parity) {
            let len = bytes.len() - rest.len();
            prop_assert_eq!(len, repr.header_len());
            let (mut again, mut want) = (bytes_of(&repr), bytes[..len].to_vec());
            for header in [&mut again, &mut want] {
                header[4] &= 0xc0; // reserved bits are ignored
                header[5] = 0;
                if repr.source_qpn.is_some() {
                    header[len - 1] = 0;
                }
            }
            prop_assert_eq!(again, want);
        }
    }
}
