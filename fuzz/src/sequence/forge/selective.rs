//! Forged SR packets, close to acceptable ones.

use super::blocks::{Position, reports};
use super::request::{dma_len, target};
use super::view::View;
use crate::sequence::layout::STEP_LEN;
use spanwire_base::u32_from;
use spanwire_wire::{
    AckReason, AtomicEthRepr, BlockRepr, IntFormat, IntRecords, NakCode, NearKind, Opcode,
    RethRepr, SackWord, SrAckRepr, SrCredit, SrDataRepr, SrKind, SrNak, SrNearRepr,
};

/// The part after the BTH: the low bits of the PSN, the header, and bytes of data.
pub(super) struct Body {
    pub(super) opcode: Opcode,
    pub(super) psn: u32,
    pub(super) header: Vec<u8>,
    pub(super) payload_len: usize,
    /// An offset of the bytes that its data are filled with.
    pub(super) fill_offset: u8,
}

/// The opcode of a step for an SR queue pair: mostly data and acknowledgements.
pub(super) fn opcode(op: u8) -> Opcode {
    match op {
        0xd8..0xe0 => Opcode::SrNear,
        0xe0.. => Opcode::ALL[usize::from(op - 0xe0) % Opcode::ALL.len()],
        0xa0.. => Opcode::SrAck,
        _ => Opcode::SrData,
    }
}

/// The body of a packet of data, or of parity.
pub(super) fn data(step: &[u8; STEP_LEN], view: &View<'_>) -> Body {
    let [_, op, base, distance, _, shape, ..] = *step;
    let psn = psn(view, base, distance);
    let Some(position) = Position::of(step, psn, view) else {
        return segment(step, view, psn, None);
    };
    let is_parity = position.place.is_parity();
    if is_parity && shape & 3 == 2 {
        return void_parity(op, psn, position.place);
    }
    segment(step, view, psn, Some(position))
}

/// A void parity packet, which only fills its PSN; sometimes with fields that it must not have.
fn void_parity(op: u8, psn: u32, place: BlockRepr) -> Body {
    let kind = if op & 0x40 == 0 { SrKind::Send } else { SrKind::Write };
    let receive = (op & 0x20 != 0).then_some(0);
    let header = SrDataRepr { block: Some(place), receive, ..SrDataRepr::new(kind, psn, 0) };
    body(Opcode::SrParity, &header, 0, 0)
}

fn body(opcode: Opcode, header: &SrDataRepr, payload_len: usize, fill_offset: u8) -> Body {
    let mut bytes = vec![0; header.header_len()];
    header.emit(&mut bytes).expect("the buffer has the reported length");
    Body { opcode, psn: header.psn, header: bytes, payload_len, fill_offset }
}

/// A segment of a message, or parity, which has the same header.
fn segment(step: &[u8; STEP_LEN], view: &View<'_>, psn: u32, position: Option<Position>) -> Body {
    let [_, op, base, _, _, shape, len, plot, at, dma, value] = *step;
    let kind = SrKind::ALL[usize::from(op) % SrKind::ALL.len()];
    let carries = matches!(kind, SrKind::Send | SrKind::Write | SrKind::ReadResponse);
    let payload_len = match shape & 3 {
        0 if !carries => 0,
        3 => 4 * usize::from(len),
        _ => usize::from(len),
    };
    let payload_len = position.filter(|_| carries).map_or(payload_len, |s| s.payload_len());
    let before = position.map_or(0, |s| s.before());
    let single = SrDataRepr::new(kind, psn, value.into());
    let last = shape & 8 == 0 && position.is_none_or(|s| s.is_last());
    let (va, rkey) = target(view.memory, plot, at);
    let va = va.wrapping_add(before.into());
    let requested = match (kind, dma, &position) {
        (SrKind::Write, _, Some(position)) => position.dma_len(dma),
        (SrKind::Write, 0..0xf0, None) => u32_from(payload_len),
        _ => dma_len(Opcode::RcReadRequest.props(), dma, 0, len),
    };
    let reth = RethRepr { va, rkey, dma_len: requested };
    let compare = if len & 1 == 0 { u64::from_ne_bytes([0x11; 8]) } else { 0 };
    let atomic = AtomicEthRepr { va, rkey, swap_or_add: len.into(), compare };
    let has_imm = shape & 0x10 != 0 && last;
    let takes_receive = kind == SrKind::Send || kind == SrKind::Write && has_imm;
    let header = SrDataRepr {
        first: shape & 4 == 0 && position.is_none_or(|s| s.is_first()),
        last,
        path: if base >> 4 & 1 == 0 { at.into() } else { 0xc000 | u16::from(at) },
        sent_ps: view.now_ps.saturating_sub(u64::from(value) << 20),
        offset: offset(kind, dma).wrapping_add(before),
        reth: matches!(kind, SrKind::Write | SrKind::ReadRequest).then_some(reth),
        atomic: matches!(kind, SrKind::FetchAdd | SrKind::CmpSwap).then_some(atomic),
        imm: (has_imm && takes_receive).then_some(7),
        ieth: (shape & 0x20 != 0 && last && !has_imm && kind == SrKind::Send).then_some(rkey),
        receive: takes_receive.then_some(u32::from(value & 0xf)),
        response_to: is_response(kind).then_some(value.into()),
        original: (kind == SrKind::AtomicResponse).then_some(len.into()),
        block: position.map(|s| s.place),
        block_bytes: position.filter(|s| s.place.is_parity()).map(|s| s.block_bytes(dma)),
        ..single
    };
    let is_parity = position.is_some_and(|s| s.place.is_parity());
    let opcode = if is_parity { Opcode::SrParity } else { Opcode::SrData };
    body(opcode, &header, payload_len, position.map_or(0, |s| s.place.index.wrapping_mul(7)))
}

/// The body of an acknowledgement.
pub(super) fn ack(step: &[u8; STEP_LEN], view: &View<'_>) -> Body {
    let [_, op, base, distance, _, words, len, newest, at, limits, refused] = *step;
    let next = psn(view, base, distance);
    let signed = |v: u8| u32::from_ne_bytes(i32::from(v.cast_signed()).to_ne_bytes());
    let newest = match newest & 3 {
        0 => next.wrapping_sub(1),
        1 => view.sr_snd_nxt.wrapping_sub(1),
        _ => view.sr_snd_una.wrapping_add(signed(newest) >> 2),
    };
    let knows_paths = base & 0x80 != 0;
    let echo = if len >> 6 == 3 { echo(len, at) } else { Vec::new() };
    let mut ack = SrAckRepr {
        next,
        newest,
        path: if knows_paths { view.outgoing.path(newest) } else { at.into() },
        reason: if base >> 4 == 0 { AckReason::Count } else { AckReason::Block },
        echo_ps: match at & 7 {
            7 => view.now_ps.wrapping_add(1 << (at >> 3)),
            6 => 0,
            _ => view.now_ps.saturating_sub(u64::from(at) << 24),
        },
        ack_delay_ns: if at & 0x80 == 0 { 0 } else { u32::MAX >> (at & 0x1f) },
        rx_pkts: u32::from(limits >> 3),
        ce_pkts: if knows_paths { u32::from(limits >> 3) >> (limits >> 6) } else { 0 },
        marks: knows_paths.then(|| 1 | u64::from_ne_bytes([len; 8]).rotate_right(words.into())),
        blocks: reports(step, view),
        psn_limit: match limits & 7 {
            0..4 => next.wrapping_add(256),
            4 => next,
            5 => next.wrapping_sub(1000),
            6 => view.sr_snd_nxt,
            _ => next.wrapping_add(1 << 31),
        },
        receive_limit: match limits >> 5 {
            0..4 => 16,
            4 => 0,
            5 => u32::MAX,
            _ => u32::from(limits & 7),
        },
        hop_limit: at,
        int: IntRecords::parse(&echo),
        ..SrAckRepr::default()
    };
    if refused & 3 == 2 {
        let rate = |v: u8| u32::from(v) << (refused >> 2 & 0x18);
        let credit = u32::from(refused >> 4).wrapping_sub(u32::from(at & 1));
        let (rate_kbps, suggested_kbps) = (rate(len), rate(limits));
        ack.credit = Some(SrCredit { credit, rate_kbps, suggested_kbps });
    }
    for i in 0..u32::from(words & 0xf) {
        let base = view.sr_snd_una.wrapping_add(i * 64) / 64 * 64;
        let base =
            if words & 0x10 == 0 { base } else { base.wrapping_add(signed(len).wrapping_mul(64)) };
        let bits = u64::from_ne_bytes([len; 8]).rotate_left(words.into()) >> (words >> 4 & 0xf);
        // Most bits beyond are cleared, or hardly any acknowledgement would be accepted.
        let room = view.sr_snd_nxt.wrapping_sub(base).cast_signed();
        let inside = u32::try_from(room).ok().and_then(|n| u64::MAX.checked_shr(64 - n.min(64)));
        let bits = if words & 0x20 == 0 { bits & inside.unwrap_or(0) } else { bits };
        ack.words.push(SackWord { base, bits });
    }
    let code = [NakCode::InvalidRequest, NakCode::RemoteAccess, NakCode::SequenceError];
    if refused & 3 == 3 {
        let psn = view.sr_snd_una.wrapping_add(u32::from(refused >> 4));
        ack.nak = Some(SrNak { psn, code: code[usize::from(op) % code.len()] });
    }
    let mut header = vec![0; ack.header_len()];
    ack.emit(&mut header).expect("the buffer has the reported length");
    Body { opcode: Opcode::SrAck, psn: ack.next, header, payload_len: 0, fill_offset: 0 }
}

/// The body of feedback of a switch. Every fourth echoes the time at which its packet left.
pub(super) fn near(step: &[u8; STEP_LEN], view: &View<'_>) -> Body {
    let [_, _, base, distance, _, shift, _, _, at, ..] = *step;
    let psn = psn(view, base, distance);
    let sent_ps = view.outgoing.sent_ps(psn).unwrap_or(view.now_ps);
    let echo_ps = match at & 3 {
        0 => sent_ps,
        1 => sent_ps.wrapping_add(1 << (shift & 0x3f)),
        2 => sent_ps.wrapping_sub(1 << (shift & 0x3f)),
        _ => view.now_ps,
    };
    let near = SrNearRepr {
        kind: NearKind::PseudoAck,
        psn,
        hop_limit: at,
        echo_ps,
        int: IntRecords::NONE,
    };
    let records = echo(shift, distance);
    let int = IntRecords::parse(&records);
    let near = match int.is_empty() || at & 4 == 0 {
        true => near,
        false => SrNearRepr { kind: NearKind::Telemetry, int, ..near },
    };
    let mut header = vec![0; near.header_len()];
    near.emit(&mut header).expect("the buffer has the reported length");
    Body { opcode: Opcode::SrNear, psn, header, payload_len: 0, fill_offset: 0 }
}

/// The echo of up to 16 ports: full records with every bit set, or compact ones of this byte.
fn echo(len: u8, byte: u8) -> Vec<u8> {
    let hops = (len & 0x1f).min(16);
    let (format, byte) = match len & 0x20 {
        0 => (IntFormat::Full, 0xff),
        _ => (IntFormat::Compact, byte),
    };
    let mut echo = vec![hops, format.to_u8(), 0, 0];
    echo.resize(echo.len() + usize::from(hops) * format.record_len(), byte);
    echo
}

fn is_response(kind: SrKind) -> bool {
    matches!(kind, SrKind::ReadResponse | SrKind::AtomicResponse)
}

fn offset(kind: SrKind, dma: u8) -> u32 {
    match dma {
        _ if !matches!(kind, SrKind::Send | SrKind::Write | SrKind::ReadResponse) => 0,
        0x81 => 1 << 31,
        0x82 => u32::MAX,
        0x85.. => 0,
        _ => 8 * u32::from(dma),
    }
}

fn psn(view: &View<'_>, base: u8, distance: u8) -> u32 {
    let from = match base & 3 {
        0 => view.sr_next,
        1 => view.sr_snd_una,
        2 => view.sr_snd_nxt,
        _ => return u32::from(distance) << 24,
    };
    // Single packets, windows, or turns of the 24-bit number space.
    let scale = [1, 1, 16, 0x100_0000][usize::from(base >> 2 & 3)];
    let distance = u32::from_ne_bytes(i32::from(distance.cast_signed()).to_ne_bytes());
    from.wrapping_add(distance.wrapping_mul(scale))
}
