//! Invalid packets of SR. On the wrong queue pair or at an unexpected PSN, each has one counter and
//! no other effect.

use super::classes::{Class, EPSN, NONE, Scene, counted, dropped};
use super::seal;
use crate::testing::{Fate, Op, Pair, PairConfig};
use spanwire_base::{Dur, Rng};
use spanwire_wire::{
    AckReason, AtomicEthRepr, IntRecords, NakCode, NearKind, Opcode, Psn, RethRepr, SackWord,
    SrAckRepr, SrCredit, SrDataRepr, SrKind, SrNak, SrNearRepr,
};

/// As for RC. Of side 0's packets, [`FIRST`] is acknowledged; the three after it (a WRITE), the
/// fourth (a READ, message 2) and the fifth (an atomic, message 3) are not. It expects [`NEXT`]
/// from its peer.
pub(super) fn scene() -> Scene {
    Scene::of(Pair::with(&PairConfig::sr()))
}

/// A frame with this header and `len` bytes of payload.
pub(super) fn frame(s: &Scene, header: &SrDataRepr, len: usize) -> Vec<u8> {
    let bth = s.bth(Opcode::SrData, header.psn & Psn::MASK);
    let mut frame = seal(bth, NONE, header.header_len() + len, 9);
    header.emit(&mut frame[AT..]).unwrap();
    resealed(frame)
}

/// Offset of SR's header in a frame.
pub(super) fn header_at(frame: &mut [u8]) -> &mut [u8] {
    &mut frame[AT..]
}

pub(super) fn resealed(mut frame: Vec<u8>) -> Vec<u8> {
    let len = frame.len();
    spanwire_wire::seal(&mut frame, len);
    frame
}

pub(super) fn write(s: &Scene, psn: u32, va: u64, rkey: u32) -> SrDataRepr {
    let reth = Some(RethRepr { va, rkey, dma_len: 64 });
    SrDataRepr { reth, last: false, ..SrDataRepr::new(SrKind::Write, psn, s.qpn.get()) }
}

/// A valid WRITE.
pub(super) fn data(s: &Scene, psn: u32) -> Vec<u8> {
    frame(s, &write(s, psn, s.va, s.rkey), 64)
}

fn bent(s: &Scene, at: usize, value: u8) -> Vec<u8> {
    let mut frame = data(s, NEXT + 2);
    frame[AT + at] = value;
    resealed(frame)
}

pub(super) fn right_ack(s: &Scene) -> SrAckRepr<'static> {
    SrAckRepr {
        next: FIRST + 1,
        newest: FIRST,
        psn_limit: FIRST + 1 + 65_536,
        receive_limit: 0,
        echo_ps: s.pair.now.as_ps(),
        ..SrAckRepr::default()
    }
}

pub(super) fn ack(s: &Scene, ack: &SrAckRepr<'_>) -> Vec<u8> {
    let bth = s.bth(Opcode::SrAck, ack.next & Psn::MASK);
    let mut frame = seal(bth, NONE, ack.header_len(), 0);
    ack.emit(&mut frame[AT..]).unwrap();
    resealed(frame)
}

fn bent_ack(s: &Scene, at: usize, value: u8) -> Vec<u8> {
    let mut frame = ack(s, &right_ack(s));
    frame[AT + at] = value;
    resealed(frame)
}

pub(super) fn classes(s: &Scene) -> Vec<Class> {
    let mut rows = broken(s);
    rows.extend(acks(s));
    rows.extend(requests(s));
    rows.extend(responses(s));
    let cnp = seal(s.bth(Opcode::Cnp, 0), NONE, 0, 0);
    rows.push(dropped("CNP", cnp, "drop_ignored_cnp"));
    rows.extend(feedback(s));
    rows.push(dropped("RC", s.send(EPSN), "drop_wrong_service"));
    rows
}

/// Feedback of switches, which this queue pair has not requested.
fn feedback(s: &Scene) -> Vec<Class> {
    let bent = |at: usize, value: u8, longer: usize| {
        let repr = near_of(FIRST + 1, s.pair.now.as_ps());
        let mut frame = near(s, &repr, longer);
        frame[AT + at] = value;
        resealed(frame)
    };
    let short = seal(s.bth(Opcode::SrNear, (FIRST + 1) & Psn::MASK), NONE, SrNearRepr::LEN - 4, 0);
    vec![
        dropped("feedback", near(s, &near_of(FIRST + 1, 0), 0), "drop_near_stale"),
        dropped("feedback of another kind", bent(0, 1 << 4 | 2, 0), "drop_sr_kind"),
        dropped("telemetry without records", bent(0, 1 << 4 | 1, 0), "drop_ext_too_short"),
        dropped("telemetry of no switch", bent(0, 1 << 4 | 1, 4), "drop_sr_kind"),
        dropped("a later version of feedback", bent(0, 2 << 4, 0), "drop_sr_version"),
        dropped("short feedback", short, "drop_ext_too_short"),
        dropped("feedback with payload", bent(3, 0, 4), "drop_unexpected_payload"),
    ]
}

fn near_of(psn: u32, echo_ps: u64) -> SrNearRepr<'static> {
    SrNearRepr { kind: NearKind::PseudoAck, psn, hop_limit: 62, echo_ps, int: IntRecords::NONE }
}

fn near(s: &Scene, repr: &SrNearRepr<'_>, longer: usize) -> Vec<u8> {
    let bth = s.bth(Opcode::SrNear, repr.psn & Psn::MASK);
    let mut frame = seal(bth, NONE, SrNearRepr::LEN + longer, 0);
    repr.emit(&mut frame[AT..]).unwrap();
    resealed(frame)
}

fn broken(s: &Scene) -> Vec<Class> {
    vec![
        dropped("a later version", bent(s, 0, 2 << 4 | 1), "drop_sr_version"),
        dropped("an undefined kind", bent(s, 0, 1 << 4 | 9), "drop_sr_kind"),
        dropped("a field of another kind", bent(s, 3, 1 | 1 << 5), "drop_sr_kind"),
        dropped("an unknown feature", bent(s, 2, 0x80), "drop_sr_feature"),
        dropped("an ACK's later version", bent_ack(s, 0, 2 << 4), "drop_sr_version"),
        dropped("an ACK's unknown feature", bent_ack(s, 3, 16), "drop_sr_feature"),
        dropped("an ACK without its telemetry", bent_ack(s, 3, 1), "drop_ext_too_short"),
        dropped("an ACK without its credit", bent_ack(s, 3, 2), "drop_ext_too_short"),
        dropped("an ACK of an undefined reason", bent_ack(s, 10, 99), "drop_sr_kind"),
        dropped("an ACK without its SACK words", bent_ack(s, 0, 1 << 4 | 3), "drop_ext_too_short"),
    ]
}

fn acks(s: &Scene) -> Vec<Class> {
    let right = right_ack(s);
    let word = |base, bits| {
        let mut ack = right;
        ack.words.push(SackWord { base, bits });
        ack
    };
    let beyond = [
        ("an ACK beyond what was sent", SrAckRepr { next: FIRST + 7, ..right }),
        ("a very old ACK", SrAckRepr { next: FIRST - (1 << 17), ..right }),
        ("a very old newest PSN", SrAckRepr { newest: FIRST - (1 << 17), ..right }),
        ("an ACK far beyond", SrAckRepr { next: FIRST + 1 + (1 << 30), ..right }),
        ("a newest beyond", SrAckRepr { newest: FIRST + 6, ..right }),
        ("a bit beyond", word(FIRST, 1 << 6)),
        ("a word beyond", word(FIRST + 64, 1)),
        ("an echo in the future", SrAckRepr { echo_ps: u64::MAX, ..right }),
    ];
    let mut rows: Vec<Class> =
        beyond.map(|(name, a)| dropped(name, ack(s, &a), "drop_response_beyond_sent")).into();
    let nak = |psn, code| {
        let (nak, reason) = (Some(SrNak { psn, code }), AckReason::Nak);
        ack(s, &SrAckRepr { nak, reason, ..right_ack(s) })
    };
    let credit = SrCredit { credit: 1, rate_kbps: 1, suggested_kbps: 1 };
    let credit = SrAckRepr { credit: Some(credit), ..right };
    rows.push(dropped("a credit without the feature", ack(s, &credit), "drop_sr_feature"));
    let code = NakCode::SequenceError;
    rows.push(dropped("an undefined NAK", nak(FIRST + 1, code), "drop_bad_syndrome"));
    const TAKEN: &[&str] = &["rx_packets"];
    let stale =
        SrAckRepr { next: FIRST - 100, newest: FIRST - 101, psn_limit: 0, echo_ps: 0, ..right };
    rows.push(counted("an old ACK", ack(s, &stale), TAKEN));
    for psn in [FIRST, FIRST + 6, 1 << 30] {
        // The sender may have missed the ACK, so another is sent.
        let frame = nak(psn, NakCode::RemoteAccess);
        let class = counted("a NAK of a completed or unsent request", frame, TAKEN);
        rows.push(class.with_ack());
    }
    rows
}

fn requests(s: &Scene) -> Vec<Class> {
    const DUPLICATE: &[&str] = &["rx_packets", "rx_payload_bytes", "duplicate_request"];
    const NO_RECEIVE: &[&str] = &["rx_packets", "rx_payload_bytes", "out_of_buffer"];
    let (past, ahead) = (NEXT - 1, NEXT + 5);
    let mut rows = vec![
        dropped("far ahead", data(s, NEXT.wrapping_add(65_536)), "drop_beyond_psn_limit"),
        dropped("very old", data(s, NEXT.wrapping_sub(65_601)), "drop_old_packet"),
        dropped("half the PSN space away", data(s, NEXT ^ 1 << 31), "drop_old_packet"),
        counted("a duplicate", data(s, past), DUPLICATE).with_ack(),
    ];
    for (name, va, rkey) in [
        ("a bad rkey", s.va, s.rkey ^ 1),
        ("out of bounds", s.va + (1 << 16), s.rkey),
        ("across the end", s.va + (1 << 16) - 63, s.rkey),
        ("a wrapping address", u64::MAX - 10, s.rkey),
    ] {
        // New packets of this class fail the queue pair: see `keys`.
        let duplicate = counted(name, frame(s, &write(s, past, va, rkey), 64), DUPLICATE);
        rows.push(duplicate.with_ack());
    }
    let send = SrDataRepr { receive: Some(0), ..SrDataRepr::new(SrKind::Send, ahead, 1) };
    let plain = write(s, ahead, s.va, s.rkey);
    let atomic = AtomicEthRepr { va: s.va, rkey: s.rkey, swap_or_add: 1, compare: 0 };
    let fetch = SrDataRepr { atomic: Some(atomic), ..SrDataRepr::new(SrKind::FetchAdd, ahead, 1) };
    let refused = [
        ("an offset that overflows", SrDataRepr { offset: u32::MAX, ..plain }),
        ("a receive of the past", SrDataRepr { receive: Some(u32::MAX), ..send }),
        ("an atomic with payload", fetch),
    ];
    rows.extend(refused.map(|(name, h)| dropped(name, frame(s, &h, 64), "drop_refused_ahead")));
    let other_len = frame(s, &plain, 65);
    rows.push(dropped("a length that is not the RETH's", other_len, "drop_refused_ahead"));
    for receive in [0, 1, 1 << 30] {
        let header = SrDataRepr { receive: Some(receive), ..send };
        let class = counted("a SEND without a receive request", frame(s, &header, 64), NO_RECEIVE);
        rows.push(class.with_ack());
    }
    rows
}

fn responses(s: &Scene) -> Vec<Class> {
    let read = |psn, message| {
        let response_to = Some(message);
        SrDataRepr { response_to, ..SrDataRepr::new(SrKind::ReadResponse, psn, message) }
    };
    let atomic = |psn, message| {
        let (response_to, original) = (Some(message), Some(7));
        let plain = SrDataRepr::new(SrKind::AtomicResponse, psn, message);
        SrDataRepr { response_to, original, ..plain }
    };
    let mut rows = Vec::new();
    for psn in [NEXT, NEXT + 1] {
        let nothing = [
            ("to a WRITE", read(psn, 1), 256),
            ("to a completed request", read(psn, 0), 256),
            ("to an unsent request", read(psn, 77), 256),
            ("of a READ to an atomic", read(psn, 3), 8),
            ("of an atomic to a READ", atomic(psn, 2), 0),
        ];
        rows.extend(
            nothing
                .map(|(name, h, len)| dropped(name, frame(s, &h, len), "drop_response_to_nothing")),
        );
        let wrong = [
            ("a short response", read(psn, 2), 255),
            ("a long response", read(psn, 2), 257),
            ("a response that overflows", SrDataRepr { offset: u32::MAX, ..read(psn, 2) }, 256),
            ("a response beyond the end", SrDataRepr { offset: 256, ..read(psn, 2) }, 1),
            ("a response without its end", SrDataRepr { last: false, ..read(psn, 2) }, 256),
            ("an atomic's ACK with payload", atomic(psn, 3), 8),
        ];
        rows.extend(
            wrong
                .map(|(name, h, len)| dropped(name, frame(s, &h, len), "drop_bad_response_length")),
        );
    }
    rows
}

/// An off-path attacker that knows both addresses, the QPN and an rkey sends every type of packet
/// with all PSNs outside of the window. docs/protocol/sr.md, "What an attacker can do", has the
/// probability of hitting the window. Nothing is refused, lost or delayed.
#[test]
fn hostile__random_psns_neither_reset_nor_stall() {
    let run = |sprays: u32| {
        let mut s = scene();
        s.pair.filter = Box::new(|_, _| Fate::Pass);
        let mut rng = Rng::new(5);
        let want = s.pair.ends[0].fill(0, 60_000, 8);
        for i in 0..20 {
            s.pair.post(0, 100 + i, Op::Write, 0, 60_000);
            s.pair.post_recv(0, 200 + i, 0, 64);
            s.pair.post(1, 300 + i, Op::Send, 0, 64);
        }
        let mut taken = 0;
        for step in 0.. {
            for _ in 0..sprays {
                let mut any = || u32::try_from(rng.below(1 << 32)).unwrap();
                let (psn, other) = (any(), any());
                // Both PSN sequences are near 0.
                if psn.wrapping_add(1 << 20) < 1 << 21 {
                    continue;
                }
                let received = s.pair.ends[0].ep.counters().rx_packets;
                let forged = spray(&s, psn, other);
                s.pair.inject(0, &forged);
                taken += s.pair.ends[0].ep.counters().rx_packets - received;
            }
            if s.pair.run(Dur::from_us(50)) || step > 10_000 {
                break;
            }
        }
        assert_eq!(taken, 0);
        assert!(s.pair.ends[1].bytes(0, 60_000) == want, "data differ");
        let wcs = &s.pair.ends[0].wcs;
        assert!(wcs.iter().all(|wc| wc.status == crate::WcStatus::Success), "{wcs:?}");
        let c = s.pair.ends[0].ep.counters();
        let repairs = [c.retransmitted_packets, c.local_ack_timeout_err, c.tail_loss_probes];
        (wcs.len(), s.pair.now, repairs)
    };
    assert_eq!(run(40), run(0), "the attack had an effect");
}

/// One of every type, as valid as possible.
fn spray(s: &Scene, psn: u32, other: u32) -> Vec<u8> {
    let reth = Some(RethRepr { va: s.va, rkey: s.rkey, dma_len: 64 });
    let atomic = AtomicEthRepr { va: s.va, rkey: s.rkey, swap_or_add: 1, compare: 0 };
    let header = |kind| SrDataRepr::new(kind, psn, other % 8);
    let send = SrDataRepr { receive: Some(other % 8), ..header(SrKind::Send) };
    match other % 7 {
        0 => frame(s, &SrDataRepr { reth, ..header(SrKind::Write) }, 64),
        1 => frame(s, &SrDataRepr { reth, ..header(SrKind::ReadRequest) }, 0),
        2 => frame(s, &send, 64),
        3 => frame(s, &SrDataRepr { atomic: Some(atomic), ..header(SrKind::FetchAdd) }, 0),
        4 => frame(s, &SrDataRepr { response_to: Some(2), ..header(SrKind::ReadResponse) }, 256),
        _ => {
            let nak = SrNak { psn: other, code: NakCode::RemoteAccess };
            let nak = (other % 7 == 5).then_some(nak);
            // Its content would stop the sender if it were accepted.
            let (psn_limit, receive_limit, rx_pkts) = (psn, 0, other);
            let right = right_ack(s);
            let newest = other;
            let stops = SrAckRepr { psn_limit, receive_limit, rx_pkts, nak, ..right };
            ack(s, &SrAckRepr { next: psn, newest, ..stops })
        }
    }
}

/// The PSNs of the first packet that side 0 sent, and of the next that it expects.
pub(super) const FIRST: u32 = 1000 << 8;
pub(super) const NEXT: u32 = ((EPSN - 1) << 8) + 1;
/// Offset of SR's header in a frame over IPv4.
const AT: usize = 14 + 20 + 8 + 12;
