//! The SR header, which follows the BTH.

use crate::nak::nak_name;
use spanwire_wire::{
    AckReason, BlockReportKind, DropReason, IntCompactHop, IntRecords, NearKind, Opcode, SrAckRepr,
    SrDataRepr, SrKind, SrNearRepr,
};
use std::fmt::{self, Display, Formatter};

/// The header of an SR packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub enum Sr<'a> {
    /// Data, or parity of an FEC block.
    Data(SrDataRepr),
    /// An acknowledgement.
    Ack(SrAckRepr<'a>),
    /// Feedback of a switch.
    Near(SrNearRepr<'a>),
}

impl<'a> Sr<'a> {
    /// Parses the header in `bytes`, which follow a BTH with this opcode and PSN; `None` if the
    /// opcode is not of SR.
    #[must_use]
    pub fn read(opcode: Opcode, psn: u32, bytes: &'a [u8]) -> Option<Result<Self, DropReason>> {
        match opcode {
            Opcode::SrData => {
                Some(SrDataRepr::parse(psn, bytes).map(|(header, _)| Self::Data(header)))
            }
            Opcode::SrParity => {
                Some(SrDataRepr::parse_parity(psn, bytes).map(|(header, _)| Self::Data(header)))
            }
            Opcode::SrAck => Some(SrAckRepr::parse(psn, bytes).map(Self::Ack)),
            Opcode::SrNear => Some(SrNearRepr::parse(psn, bytes).map(Self::Near)),
            _ => None,
        }
    }

    /// Bytes of the header.
    #[must_use]
    pub fn header_len(&self) -> usize {
        match self {
            Self::Data(header) => header.header_len(),
            Self::Ack(ack) => ack.header_len(),
            Self::Near(near) => near.header_len(),
        }
    }
}

impl Display for Sr<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data(header) => write_data(f, header),
            Self::Ack(ack) => write_ack(f, ack),
            Self::Near(near) => write_near(f, near),
        }
    }
}

fn write_data(f: &mut Formatter<'_>, h: &SrDataRepr) -> fmt::Result {
    let position = match (h.first, h.last) {
        (true, true) => "Only",
        (true, false) => "First",
        (false, true) => "Last",
        (false, false) => "Middle",
    };
    write!(f, "{} {position} psn {:#010x} message {}", kind_name(h.kind), h.psn, h.message)?;
    write!(f, " offset {} sent {} ps", h.offset, h.sent_ps)?;
    if h.is_retransmission {
        write!(f, " retransmission")?;
    }
    if let Some(reth) = &h.reth {
        write!(f, "  va {:#018x} rkey {:#010x} len {}", reth.va, reth.rkey, reth.dma_len)?;
    }
    if let Some(atomic) = &h.atomic {
        write!(f, "  va {:#018x} rkey {:#010x}", atomic.va, atomic.rkey)?;
        match h.kind {
            SrKind::CmpSwap => {
                write!(f, " compare {:#x} swap {:#x}", atomic.compare, atomic.swap_or_add)?;
            }
            _ => write!(f, " add {:#x}", atomic.swap_or_add)?,
        }
    }
    if let Some(imm) = h.imm {
        write!(f, "  imm {imm:#010x}")?;
    }
    if let Some(rkey) = h.ieth {
        write!(f, "  invalidate rkey {rkey:#010x}")?;
    }
    if let Some(receive) = h.receive {
        write!(f, "  receive {receive}")?;
    }
    if let Some(message) = h.response_to {
        write!(f, "  answers {message}")?;
    }
    if let Some(original) = h.original {
        write!(f, " original {original:#x}")?;
    }
    if let Some(qpn) = h.source_qpn {
        write!(f, "  from {qpn}")?;
    }
    let Some(block) = &h.block else { return Ok(()) };
    write!(f, "  block {:#010x}", h.psn.wrapping_sub(block.index.into()))?;
    match (block.is_parity(), h.block_bytes) {
        (false, _) => write!(f, " data {} of {}+{}", block.index, block.data, block.parity),
        (true, Some(bytes)) => {
            let row = block.index - block.data;
            write!(f, " parity {row} of {}+{}, {bytes} bytes of data", block.data, block.parity)
        }
        (true, None) => write!(f, " parity given up"),
    }
}

fn write_ack(f: &mut Formatter<'_>, ack: &SrAckRepr<'_>) -> fmt::Result {
    write!(f, "next {:#010x} newest {:#010x} ({})", ack.next, ack.newest, reason_name(ack.reason))?;
    for word in ack.words.as_slice() {
        write!(f, " {:#010x}:{:016x}", word.base, word.bits)?;
    }
    write!(f, "  echo {} ps hold {} ns", ack.echo_ps, ack.ack_delay_ns)?;
    write!(f, "  received {} CE {}", ack.rx_pkts, ack.ce_pkts)?;
    write!(f, "  limits psn {:#010x} receive {}", ack.psn_limit, ack.receive_limit)?;
    write_hops(f, &ack.int)?;
    if let Some(credit) = &ack.credit {
        write!(f, "  credit {} at {} kbit/s", credit.credit, credit.rate_kbps)?;
        write!(f, " suggests {} kbit/s", credit.suggested_kbps)?;
    }
    for report in ack.blocks.as_slice() {
        let kind = match report.kind {
            BlockReportKind::Nack => "SHORT, counts",
            BlockReportKind::Settled => "settled",
            BlockReportKind::Recovered => "rebuilt",
        };
        write!(f, "  block {:#010x} {kind} {:#x}", report.first, report.bits)?;
    }
    match &ack.nak {
        Some(nak) => write!(f, "  REFUSES {:#010x}: {}", nak.psn, nak_name(nak.code)),
        None => Ok(()),
    }
}

fn write_hops(f: &mut Formatter<'_>, int: &IntRecords<'_>) -> fmt::Result {
    for hop in int.hops() {
        write!(f, "  hop {} ps sent {} queue {}", hop.time_ps, hop.tx_bytes, hop.queue_bytes)?;
        write!(f, " at {} Mbit/s", hop.link_rate_mbps)?;
    }
    int.compact_hops().try_for_each(|hop| write_compact_hop(f, &hop))
}

/// Writes a compact record in the units of a full one; time and bytes sent have wrapped.
fn write_compact_hop(f: &mut Formatter<'_>, hop: &IntCompactHop) -> fmt::Result {
    let bytes = |units: u64| u64::from(IntCompactHop::BYTES) * units;
    let time_ps = u64::from(hop.time) * IntCompactHop::TIME_PS;
    let (tx, queue) = (bytes(hop.tx.into()), bytes(hop.queue.into()));
    write!(f, "  compact hop {time_ps} ps sent {tx} queue {queue}")?;
    write!(f, " at {} Mbit/s", hop.link_rate_mbps())
}

fn write_near(f: &mut Formatter<'_>, near: &SrNearRepr<'_>) -> fmt::Result {
    let kind = match near.kind {
        NearKind::PseudoAck => "pseudo-ACK",
        NearKind::Telemetry => "near telemetry",
    };
    write!(f, "{kind} psn {:#010x} hop limit {}", near.psn, near.hop_limit)?;
    write!(f, "  echo {} ps", near.echo_ps)?;
    write_hops(f, &near.int)
}

fn kind_name(kind: SrKind) -> &'static str {
    match kind {
        SrKind::Send => "SEND",
        SrKind::Write => "WRITE",
        SrKind::ReadRequest => "READ Request",
        SrKind::ReadResponse => "READ Response",
        SrKind::FetchAdd => "FetchAdd",
        SrKind::CmpSwap => "CmpSwap",
        SrKind::AtomicResponse => "Atomic Response",
    }
}

fn reason_name(reason: AckReason) -> &'static str {
    match reason {
        AckReason::Count => "count",
        AckReason::Time => "time",
        AckReason::Gap => "gap",
        AckReason::Requested => "asked",
        AckReason::Limit => "limit moved",
        AckReason::Nak => "refused",
        AckReason::Block => "block",
        AckReason::NoReceive => "no receive request",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_wire::{
        BlockReport, BlockRepr, IntHop, IntRecords, NakCode, Qpn, RethRepr, SackWord, SrCredit,
        SrNak,
    };

    #[test]
    fn display__of_data_and_acknowledgements() {
        let write = SrDataRepr {
            last: false,
            offset: 64,
            sent_ps: 5,
            reth: Some(RethRepr { va: 0x1000, rkey: 9, dma_len: 64 }),
            ..SrDataRepr::new(SrKind::Write, 0xff00_0001, 7)
        };
        assert_eq!(
            Sr::Data(write).to_string(),
            "WRITE First psn 0xff000001 message 7 offset 64 sent 5 ps  \
             va 0x0000000000001000 rkey 0x00000009 len 64"
        );
        let mut ack = SrAckRepr {
            next: 0x100,
            newest: 0x102,
            reason: AckReason::Nak,
            nak: Some(SrNak { psn: 0x100, code: NakCode::RemoteAccess }),
            ..SrAckRepr::default()
        };
        ack.words.push(SackWord { base: 0x100, bits: 4 });
        assert_eq!(
            Sr::Ack(ack).to_string(),
            "next 0x00000100 newest 0x00000102 (refused) 0x00000100:0000000000000004  \
             echo 0 ps hold 0 ns  received 0 CE 0  limits psn 0x00000000 receive 0  \
             REFUSES 0x00000100: remote access error"
        );
    }

    #[test]
    fn display__of_telemetry_in_both_formats() {
        let hop = IntHop {
            time_ps: (1 << 40) + 32_000,
            tx_bytes: (1 << 27) + 256,
            queue_bytes: 100,
            link_rate_mbps: 25_000,
        };
        let (mut full, mut compact) = (vec![1, 0, 0, 0], vec![1, 1, 0, 0]);
        let (mut long, mut short) = ([0; 24], [0; 8]);
        hop.emit(&mut long);
        IntCompactHop::from(&hop).emit(&mut short);
        full.extend(long);
        compact.extend(short);
        let shown =
            |int| Sr::Ack(SrAckRepr { int: IntRecords::parse(int), ..SrAckRepr::default() });
        let text = shown(&full).to_string();
        let expected = "  hop 1099511659776 ps sent 134217984 queue 100 at 25000 Mbit/s";
        assert!(text.ends_with(expected), "{text}");
        let text = shown(&compact).to_string();
        // 2^40 ps less 65 wraps of 16.777216 ms.
        let expected = "  compact hop 8992608000 ps sent 256 queue 128 at 25000 Mbit/s";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn display__of_credit() {
        let credit = SrCredit { credit: 7, rate_kbps: 9_500_000, suggested_kbps: 25_000_000 };
        let text = Sr::Ack(SrAckRepr { credit: Some(credit), ..SrAckRepr::default() }).to_string();
        let expected = "  credit 7 at 9500000 kbit/s suggests 25000000 kbit/s";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn display__of_blocks() {
        let position = BlockRepr { index: 1, data: 8, parity: 2, scheme: 1 };
        let send = SrDataRepr {
            receive: Some(3),
            block: Some(position),
            ..SrDataRepr::new(SrKind::Send, 0x101, 7)
        };
        let shown = |header| Sr::Data(header).to_string();
        assert!(shown(send).ends_with("  block 0x00000100 data 1 of 8+2"), "{}", shown(send));
        let row = SrDataRepr {
            psn: 0x109,
            block: Some(BlockRepr { index: 9, ..position }),
            block_bytes: Some(11_000),
            ..send
        };
        let expected = "  block 0x00000100 parity 1 of 8+2, 11000 bytes of data";
        assert!(shown(row).ends_with(expected), "{}", shown(row));
        let empty = SrDataRepr { block_bytes: None, ..row };
        assert!(shown(empty).ends_with("  block 0x00000100 parity given up"));
        let mut ack = SrAckRepr::default();
        for kind in [BlockReportKind::Nack, BlockReportKind::Settled] {
            ack.blocks.push(BlockReport { first: 0x100, kind, data: 8, bits: 0x2ff });
        }
        let expected = "  block 0x00000100 SHORT, counts 0x2ff  block 0x00000100 settled 0x2ff";
        assert!(Sr::Ack(ack).to_string().ends_with(expected));
    }

    #[test]
    fn display__of_feedback() {
        let near = SrNearRepr {
            kind: NearKind::PseudoAck,
            psn: 7,
            hop_limit: 62,
            echo_ps: 9,
            int: IntRecords::NONE,
        };
        assert_eq!(Sr::Near(near).to_string(), "pseudo-ACK psn 0x00000007 hop limit 62  echo 9 ps");
        let int = IntRecords::parse(&[1, 1, 0, 0, 0, 0, 0, 0x10, 0, 2, 0, 3]);
        let telemetry = SrNearRepr { kind: NearKind::Telemetry, int, ..near };
        let expected = "near telemetry psn 0x00000007 hop limit 62  echo 9 ps  compact hop 16000 \
                        ps sent 256 queue 384 at 0 Mbit/s";
        assert_eq!(Sr::Near(telemetry).to_string(), expected);
        let named = SrDataRepr {
            source_qpn: Some(Qpn::new(0x1234)),
            ..SrDataRepr::new(SrKind::Send, 1, 0)
        };
        assert!(Sr::Data(named).to_string().ends_with("  from 0x1234"), "{}", Sr::Data(named));
    }

    #[test]
    fn read__rejects_other_opcodes() {
        assert_eq!(Sr::read(Opcode::RcAck, 0, &[0; 100]), None);
        let short = Some(Err(DropReason::ExtTooShort));
        assert_eq!(Sr::read(Opcode::SrData, 0, &[0x10]), short);
        assert_eq!(Sr::read(Opcode::SrAck, 0, &[0x10]), short);
        assert_eq!(Sr::read(Opcode::SrParity, 0, &[0x10]), short);
        assert_eq!(Sr::read(Opcode::SrNear, 0, &[0x10]), short);
    }
}
