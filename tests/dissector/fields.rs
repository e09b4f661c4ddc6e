//! Fields that tshark prints, and their expected values.

use spanwire_wire::{
    DropReason, IntCompactHop, IntHop, IntRecords, NakCode, Opcode, Packet, SrAckRepr, SrDataRepr,
    SrNearRepr,
};
use std::collections::BTreeMap;

/// Names of fields, in the order of the columns.
pub(crate) struct Columns(Vec<&'static str>);

impl Columns {
    pub(crate) fn all() -> Self {
        Self([PRESENT, PRESENT_COMPACT, WRONG, DERIVED].concat())
    }

    pub(crate) fn names(&self) -> &[&'static str] {
        &self.0
    }

    /// Parses a line of tshark, by name. Numbers have one form, regardless of their displayed base.
    pub(crate) fn read(&self, line: &str) -> BTreeMap<&'static str, String> {
        let values = line.split('\t').map(|all| {
            let each: Vec<String> = all.split(',').map(plain).collect();
            each.join(",")
        });
        self.0.iter().copied().zip(values).collect()
    }
}

/// Normalises a value: a number in decimal, a boolean as 0 or 1, anything else unchanged.
fn plain(value: &str) -> String {
    match value {
        "True" => "1".to_owned(),
        "False" => "0".to_owned(),
        _ => match value.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16)) {
            Some(Ok(number)) => number.to_string(),
            _ => value.to_owned(),
        },
    }
}

/// Expected values of a frame, by our own parser: every field of [`PRESENT`] and [`WRONG`].
pub(crate) fn expected(frame: &[u8]) -> BTreeMap<&'static str, String> {
    let mut want: BTreeMap<&'static str, String> = PRESENT
        .iter()
        .chain(PRESENT_COMPACT)
        .chain(WRONG)
        .map(|name| (*name, String::new()))
        .collect();
    let Ok(packet) = Packet::parse(frame) else { panic!("{frame:02x?} is not RoCE") };
    let psn = packet.bth.psn.get();
    let wrong = match packet.bth.opcode {
        opcode @ (Opcode::SrData | Opcode::SrParity) => {
            let parsed = match opcode {
                Opcode::SrData => SrDataRepr::parse(psn, packet.payload),
                _ => SrDataRepr::parse_parity(psn, packet.payload),
            };
            match parsed {
                Ok((header, data)) => {
                    put_data(&mut want, &header, data.len());
                    return want;
                }
                Err(reason) => reason,
            }
        }
        Opcode::SrAck => match SrAckRepr::parse(psn, packet.payload) {
            Ok(ack) => {
                put_ack(&mut want, &ack);
                return want;
            }
            Err(reason) => reason,
        },
        Opcode::SrNear => match SrNearRepr::parse(psn, packet.payload) {
            Ok(near) => {
                put_near(&mut want, &near);
                return want;
            }
            Err(reason) => reason,
        },
        _ => return want,
    };
    // The script may dissect a wrong packet partly, but must report that it is wrong.
    want.retain(|name, _| name.starts_with("_ws."));
    want.extend(complaint(wrong, packet.payload).map(|name| (name, "1".to_owned())));
    if wrong == DropReason::ExtTooShort {
        want.insert("_ws.malformed", "_ws.malformed".to_owned());
    }
    want
}

/// The script's name of a drop reason.
fn complaint(reason: DropReason, payload: &[u8]) -> Option<&'static str> {
    let words = payload.first().map_or(0, |b| b & 0xf);
    let has_odd_word = payload.len() >= 72 && words > 0 && !payload[63].is_multiple_of(64);
    Some(match reason {
        DropReason::SrVersion => "spanwire.sr.expert.version",
        DropReason::SrFeature => "spanwire.sr.expert.feature",
        DropReason::SrKind if has_odd_word => "spanwire.sr.expert.base",
        DropReason::SrKind => "spanwire.sr.expert.kind",
        DropReason::ExtTooShort => "spanwire.sr.expert.short",
        DropReason::UnexpectedPayload => "spanwire.sr.expert.rest",
        _ => return None,
    })
}

fn put_data(want: &mut BTreeMap<&'static str, String>, h: &SrDataRepr, data_len: usize) {
    let mut put = |name: &'static str, value: u64| _ = want.insert(name, value.to_string());
    put("spanwire.sr.version", 1);
    put("spanwire.sr.kind", h.kind as u64);
    put("spanwire.sr.psn", h.psn.into());
    put("spanwire.sr.first", h.first.into());
    put("spanwire.sr.last", h.last.into());
    put("spanwire.sr.retransmission", h.is_retransmission.into());
    put("spanwire.sr.path", h.path.into());
    put("spanwire.sr.sent", h.sent_ps);
    put("spanwire.sr.message", h.message.into());
    put("spanwire.sr.offset", h.offset.into());
    put("spanwire.sr.data_len", spanwire_base::u64_from(data_len));
    if let Some(reth) = h.reth {
        put("spanwire.sr.reth.va", reth.va);
        put("spanwire.sr.reth.rkey", reth.rkey.into());
        put("spanwire.sr.reth.len", reth.dma_len.into());
    }
    if let Some(atomic) = h.atomic {
        put("spanwire.sr.atomic.va", atomic.va);
        put("spanwire.sr.atomic.rkey", atomic.rkey.into());
        put("spanwire.sr.atomic.swap_or_add", atomic.swap_or_add);
        put("spanwire.sr.atomic.compare", atomic.compare);
    }
    for (name, value) in [
        ("spanwire.sr.imm", h.imm),
        ("spanwire.sr.ieth", h.ieth),
        ("spanwire.sr.receive", h.receive),
        ("spanwire.sr.answers", h.response_to),
    ] {
        if let Some(value) = value {
            put(name, value.into());
        }
    }
    if let Some(original) = h.original {
        put("spanwire.sr.original", original);
    }
    if let Some(block) = h.block {
        put("spanwire.sr.block.index", block.index.into());
        put("spanwire.sr.block.data", block.data.into());
        put("spanwire.sr.block.parity", block.parity.into());
        put("spanwire.sr.block.scheme", block.scheme.into());
        put("spanwire.sr.block.first", h.psn.wrapping_sub(block.index.into()).into());
    }
    if let Some(bytes) = h.block_bytes {
        put("spanwire.sr.block.bytes", bytes.into());
    }
    if let Some(qpn) = h.source_qpn {
        put("spanwire.sr.source_qpn", qpn.get().into());
    }
}

fn put_near(want: &mut BTreeMap<&'static str, String>, near: &SrNearRepr<'_>) {
    let mut put = |name: &'static str, value: u64| _ = want.insert(name, value.to_string());
    put("spanwire.sr.version", 1);
    put("spanwire.sr.near.kind", near.kind as u64);
    put("spanwire.sr.near.psn", near.psn.into());
    put("spanwire.sr.near.hop_limit", near.hop_limit.into());
    put("spanwire.sr.near.echo", near.echo_ps);
    put_int(want, &near.int);
}

fn put_int(want: &mut BTreeMap<&'static str, String>, int: &IntRecords<'_>) {
    let mut list = |name, all: Vec<u64>| {
        let all: Vec<String> = all.iter().map(u64::to_string).collect();
        want.insert(name, all.join(","));
    };
    if !int.is_empty() {
        list("spanwire.sr.ack.int.hops", vec![spanwire_base::u64_from(int.len())]);
        list("spanwire.sr.ack.int.format", vec![int.format().to_u8().into()]);
    }
    let hops: Vec<IntHop> = int.hops().collect();
    let compact: Vec<IntCompactHop> = int.compact_hops().collect();
    let units = |hop: &IntCompactHop| u64::from(hop.queue) * u64::from(IntCompactHop::BYTES);
    let queues = hops.iter().map(|hop| hop.queue_bytes.into()).chain(compact.iter().map(units));
    let rates = hops.iter().map(|hop| hop.link_rate_mbps);
    let rates = rates.chain(compact.iter().map(IntCompactHop::link_rate_mbps));
    list("spanwire.sr.ack.int.time", hops.iter().map(|hop| hop.time_ps).collect());
    list("spanwire.sr.ack.int.tx_bytes", hops.iter().map(|hop| hop.tx_bytes).collect());
    list("spanwire.sr.ack.int.queue_bytes", queues.collect());
    list("spanwire.sr.ack.int.rate", rates.map(u64::from).collect());
    list("spanwire.sr.ack.int.wrapped_time", compact.iter().map(|h| h.time.into()).collect());
    list("spanwire.sr.ack.int.wrapped_tx", compact.iter().map(|h| h.tx.into()).collect());
}

fn put_ack(want: &mut BTreeMap<&'static str, String>, ack: &SrAckRepr<'_>) {
    let words = ack.words.as_slice();
    let (arrived, missing) = counts(ack);
    let mut put = |name: &'static str, value: u64| _ = want.insert(name, value.to_string());
    put("spanwire.sr.version", 1);
    put("spanwire.sr.ack.words", spanwire_base::u64_from(words.len()));
    put("spanwire.sr.ack.next", ack.next.into());
    put("spanwire.sr.ack.newest", ack.newest.into());
    put("spanwire.sr.ack.path", ack.path.into());
    put("spanwire.sr.ack.reason", ack.reason as u64);
    put("spanwire.sr.ack.hop_limit", ack.hop_limit.into());
    put("spanwire.sr.ack.echo", ack.echo_ps);
    put("spanwire.sr.ack.hold", ack.ack_delay_ns.into());
    put("spanwire.sr.ack.delay", ack.rx_delay_ns.into());
    put("spanwire.sr.ack.rx_pkts", ack.rx_pkts.into());
    put("spanwire.sr.ack.ce_pkts", ack.ce_pkts.into());
    put("spanwire.sr.ack.rx_bytes", ack.rx_bytes);
    put("spanwire.sr.ack.ce_bytes", ack.ce_bytes);
    put("spanwire.sr.ack.psn_limit", ack.psn_limit.into());
    put("spanwire.sr.ack.receive_limit", ack.receive_limit.into());
    put("spanwire.sr.ack.arrived", arrived);
    put("spanwire.sr.ack.missing", missing);
    if let Some(nak) = ack.nak {
        put("spanwire.sr.ack.refused.psn", nak.psn.into());
        let code = match nak.code {
            NakCode::SequenceError => 0,
            NakCode::InvalidRequest => 1,
            NakCode::RemoteAccess => 2,
            NakCode::RemoteOperational => 3,
            NakCode::InvalidRd => 4,
        };
        put("spanwire.sr.ack.refused.code", code);
    }
    let blocks = ack.blocks.as_slice();
    if !blocks.is_empty() {
        put("spanwire.sr.ack.blocks", spanwire_base::u64_from(blocks.len()));
    }
    if let Some(credit) = ack.credit {
        put("spanwire.sr.ack.credit", credit.credit.into());
        put("spanwire.sr.ack.credit.rate", credit.rate_kbps.into());
        put("spanwire.sr.ack.credit.suggested", credit.suggested_kbps.into());
    }
    if let Some(marks) = ack.marks {
        put("spanwire.sr.ack.marks", marks);
    }
    let mut list = |name, each: &mut dyn Iterator<Item = u64>| {
        let all: Vec<String> = each.map(|value| value.to_string()).collect();
        want.insert(name, all.join(","));
    };
    list("spanwire.sr.ack.word.base", &mut words.iter().map(|word| word.base.into()));
    list("spanwire.sr.ack.word.bits", &mut words.iter().map(|word| word.bits));
    list("spanwire.sr.ack.block.first", &mut blocks.iter().map(|block| block.first.into()));
    list("spanwire.sr.ack.block.kind", &mut blocks.iter().map(|block| block.kind as u64));
    list("spanwire.sr.ack.block.data", &mut blocks.iter().map(|block| block.data.into()));
    list("spanwire.sr.ack.block.bits", &mut blocks.iter().map(|block| block.bits));
    if ack.nak.is_some() {
        want.insert("spanwire.sr.expert.refused", "1".to_owned());
    }
    put_int(want, &ack.int);
}

/// Numbers of packets from `next` on that the SACK words acknowledge, and of those missing below
/// the highest.
fn counts(ack: &SrAckRepr<'_>) -> (u64, u64) {
    let mut sack_bits = BTreeMap::new();
    for word in ack.words.as_slice() {
        for i in 0..64u32 {
            let ahead = word.base.wrapping_add(i).wrapping_sub(ack.next);
            if ahead < 1 << 31 {
                sack_bits.insert(ahead, word.bits >> i & 1 == 1);
            }
        }
    }
    let arrived: Vec<u32> = sack_bits.iter().filter(|(_, here)| **here).map(|(n, _)| *n).collect();
    let highest = arrived.last().copied().unwrap_or(0);
    let missing = sack_bits.iter().filter(|(n, here)| !**here && **n < highest).count();
    (spanwire_base::u64_from(arrived.len()), spanwire_base::u64_from(missing))
}

/// Fields that must occur in the capture with a value other than 0.
pub(crate) const PRESENT: &[&str] = &[
    "spanwire.sr.version",
    "spanwire.sr.kind",
    "spanwire.sr.psn",
    "spanwire.sr.first",
    "spanwire.sr.last",
    "spanwire.sr.retransmission",
    "spanwire.sr.sent",
    "spanwire.sr.message",
    "spanwire.sr.offset",
    "spanwire.sr.data_len",
    "spanwire.sr.reth.va",
    "spanwire.sr.reth.rkey",
    "spanwire.sr.reth.len",
    "spanwire.sr.atomic.va",
    "spanwire.sr.atomic.rkey",
    "spanwire.sr.atomic.swap_or_add",
    "spanwire.sr.atomic.compare",
    "spanwire.sr.imm",
    "spanwire.sr.ieth",
    "spanwire.sr.receive",
    "spanwire.sr.answers",
    "spanwire.sr.original",
    "spanwire.sr.block.index",
    "spanwire.sr.block.data",
    "spanwire.sr.block.parity",
    "spanwire.sr.block.scheme",
    "spanwire.sr.block.first",
    "spanwire.sr.block.bytes",
    "spanwire.sr.path",
    "spanwire.sr.source_qpn",
    "spanwire.sr.near.kind",
    "spanwire.sr.near.psn",
    "spanwire.sr.near.hop_limit",
    "spanwire.sr.near.echo",
    "spanwire.sr.ack.path",
    "spanwire.sr.ack.blocks",
    "spanwire.sr.ack.block.first",
    "spanwire.sr.ack.block.kind",
    "spanwire.sr.ack.block.data",
    "spanwire.sr.ack.block.bits",
    "spanwire.sr.ack.marks",
    "spanwire.sr.ack.credit",
    "spanwire.sr.ack.credit.rate",
    "spanwire.sr.ack.credit.suggested",
    "spanwire.sr.ack.words",
    "spanwire.sr.ack.next",
    "spanwire.sr.ack.newest",
    "spanwire.sr.ack.reason",
    "spanwire.sr.ack.hop_limit",
    "spanwire.sr.ack.echo",
    "spanwire.sr.ack.hold",
    "spanwire.sr.ack.rx_pkts",
    "spanwire.sr.ack.ce_pkts",
    "spanwire.sr.ack.rx_bytes",
    "spanwire.sr.ack.ce_bytes",
    "spanwire.sr.ack.psn_limit",
    "spanwire.sr.ack.receive_limit",
    "spanwire.sr.ack.word.base",
    "spanwire.sr.ack.word.bits",
    "spanwire.sr.ack.arrived",
    "spanwire.sr.ack.missing",
    "spanwire.sr.ack.int.hops",
    "spanwire.sr.ack.int.time",
    "spanwire.sr.ack.int.tx_bytes",
    "spanwire.sr.ack.int.queue_bytes",
    "spanwire.sr.ack.int.rate",
    "spanwire.sr.ack.refused.psn",
    "spanwire.sr.ack.refused.code",
    "spanwire.sr.expert.version",
    "spanwire.sr.expert.feature",
    "spanwire.sr.expert.kind",
    "spanwire.sr.expert.short",
    "spanwire.sr.expert.base",
    "spanwire.sr.expert.rest",
    "spanwire.sr.expert.refused",
];

/// Fields that must occur in the capture with compact telemetry with a value other than 0.
pub(crate) const PRESENT_COMPACT: &[&str] = &[
    "spanwire.sr.ack.int.format",
    "spanwire.sr.ack.int.wrapped_time",
    "spanwire.sr.ack.int.wrapped_tx",
];

/// Fields that are always 0 in our packets, and errors that no packet may have.
const WRONG: &[&str] = &["spanwire.sr.ack.delay", "_ws.lua.error", "_ws.malformed"];

/// Fields derived from other packets of the capture.
pub(crate) const DERIVED: &[&str] =
    &["spanwire.sr.again", "spanwire.sr.ack.echo_frame", "spanwire.sr.ack.rtt"];
