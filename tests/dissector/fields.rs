//! What tshark is asked for, and what it must say.

use spanwire_wire::{DropReason, IntHop, NakCode, Opcode, Packet, SrcAckRepr, SrcDataRepr};
use std::collections::BTreeMap;

/// Names of fields, in the order of the columns.
pub(crate) struct Columns(Vec<&'static str>);

impl Columns {
    pub(crate) fn all() -> Self {
        Self([TOLD, WRONG, DERIVED].concat())
    }

    pub(crate) fn names(&self) -> &[&'static str] {
        &self.0
    }

    /// A line of tshark's, by name. Numbers in one form, whatever base they are shown in.
    pub(crate) fn read(&self, line: &str) -> BTreeMap<&'static str, String> {
        let values = line.split('\t').map(|all| {
            let each: Vec<String> = all.split(',').map(plain).collect();
            each.join(",")
        });
        self.0.iter().copied().zip(values).collect()
    }
}

/// A number in decimal, a truth as 0 or 1, anything else as it is.
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

/// What must be said of a frame, by our own parser: every field of [`TOLD`] and [`WRONG`].
pub(crate) fn expected(frame: &[u8]) -> BTreeMap<&'static str, String> {
    let mut want: BTreeMap<&'static str, String> =
        TOLD.iter().chain(WRONG).map(|name| (*name, String::new())).collect();
    let Ok(packet) = Packet::parse(frame) else { panic!("{frame:02x?} is not RoCE") };
    let psn = packet.bth.psn.get();
    let wrong = match packet.bth.opcode {
        opcode @ (Opcode::SrcData | Opcode::SrcParity) => {
            let parsed = match opcode {
                Opcode::SrcData => SrcDataRepr::parse(psn, packet.payload),
                _ => SrcDataRepr::parse_parity(psn, packet.payload),
            };
            match parsed {
                Ok((header, data)) => {
                    tell_data(&mut want, &header, data.len());
                    return want;
                }
                Err(reason) => reason,
            }
        }
        Opcode::SrcAck => match SrcAckRepr::parse(psn, packet.payload) {
            Ok(ack) => {
                tell_ack(&mut want, &ack);
                return want;
            }
            Err(reason) => reason,
        },
        _ => return want,
    };
    // As far as it can be read is the script's own affair; that something is wrong is not.
    want.retain(|name, _| name.starts_with("_ws."));
    want.extend(complaint(wrong, packet.payload).map(|name| (name, "1".to_owned())));
    if wrong == DropReason::ExtTooShort {
        want.insert("_ws.malformed", "_ws.malformed".to_owned());
    }
    want
}

/// The script's word for a reason of ours.
fn complaint(reason: DropReason, payload: &[u8]) -> Option<&'static str> {
    let words = payload.first().map_or(0, |b| b & 0xf);
    let has_odd_word = payload.len() >= 72 && words > 0 && !payload[63].is_multiple_of(64);
    Some(match reason {
        DropReason::SrcVersion => "spanwire.src.expert.version",
        DropReason::SrcFeature => "spanwire.src.expert.feature",
        DropReason::SrcKind if has_odd_word => "spanwire.src.expert.base",
        DropReason::SrcKind => "spanwire.src.expert.kind",
        DropReason::ExtTooShort => "spanwire.src.expert.short",
        DropReason::UnexpectedPayload => "spanwire.src.expert.rest",
        _ => return None,
    })
}

fn tell_data(want: &mut BTreeMap<&'static str, String>, h: &SrcDataRepr, data_len: usize) {
    let mut put = |name: &'static str, value: u64| _ = want.insert(name, value.to_string());
    put("spanwire.src.version", 1);
    put("spanwire.src.kind", h.kind as u64);
    put("spanwire.src.psn", h.psn.into());
    put("spanwire.src.first", h.first.into());
    put("spanwire.src.last", h.last.into());
    put("spanwire.src.retransmission", h.is_retransmission.into());
    put("spanwire.src.path", h.path.into());
    put("spanwire.src.sent", h.sent_ps);
    put("spanwire.src.message", h.message.into());
    put("spanwire.src.offset", h.offset.into());
    put("spanwire.src.data_len", spanwire_base::u64_from(data_len));
    if let Some(reth) = h.reth {
        put("spanwire.src.reth.va", reth.va);
        put("spanwire.src.reth.rkey", reth.rkey.into());
        put("spanwire.src.reth.len", reth.dma_len.into());
    }
    if let Some(atomic) = h.atomic {
        put("spanwire.src.atomic.va", atomic.va);
        put("spanwire.src.atomic.rkey", atomic.rkey.into());
        put("spanwire.src.atomic.swap_or_add", atomic.swap_or_add);
        put("spanwire.src.atomic.compare", atomic.compare);
    }
    for (name, value) in [
        ("spanwire.src.imm", h.imm),
        ("spanwire.src.ieth", h.ieth),
        ("spanwire.src.receive", h.receive),
        ("spanwire.src.answers", h.answers),
    ] {
        if let Some(value) = value {
            put(name, value.into());
        }
    }
    if let Some(original) = h.original {
        put("spanwire.src.original", original);
    }
    if let Some(block) = h.block {
        put("spanwire.src.block.index", block.index.into());
        put("spanwire.src.block.data", block.data.into());
        put("spanwire.src.block.parity", block.parity.into());
        put("spanwire.src.block.scheme", block.scheme.into());
        put("spanwire.src.block.first", h.psn.wrapping_sub(block.index.into()).into());
    }
    if let Some(bytes) = h.block_bytes {
        put("spanwire.src.block.bytes", bytes.into());
    }
}

fn tell_ack(want: &mut BTreeMap<&'static str, String>, ack: &SrcAckRepr<'_>) {
    let words = ack.words.as_slice();
    let (arrived, missing) = counts(ack);
    let mut put = |name: &'static str, value: u64| _ = want.insert(name, value.to_string());
    put("spanwire.src.version", 1);
    put("spanwire.src.ack.words", spanwire_base::u64_from(words.len()));
    put("spanwire.src.ack.next", ack.next.into());
    put("spanwire.src.ack.newest", ack.newest.into());
    put("spanwire.src.ack.path", ack.path.into());
    put("spanwire.src.ack.reason", ack.reason as u64);
    put("spanwire.src.ack.hop_limit", ack.hop_limit.into());
    put("spanwire.src.ack.echo", ack.echo_ps);
    put("spanwire.src.ack.hold", ack.hold_ns.into());
    put("spanwire.src.ack.delay", ack.delay_ns.into());
    put("spanwire.src.ack.rx_pkts", ack.rx_pkts.into());
    put("spanwire.src.ack.ce_pkts", ack.ce_pkts.into());
    put("spanwire.src.ack.rx_bytes", ack.rx_bytes);
    put("spanwire.src.ack.ce_bytes", ack.ce_bytes);
    put("spanwire.src.ack.psn_limit", ack.psn_limit.into());
    put("spanwire.src.ack.receive_limit", ack.receive_limit.into());
    put("spanwire.src.ack.arrived", arrived);
    put("spanwire.src.ack.missing", missing);
    if let Some(refusal) = ack.refusal {
        put("spanwire.src.ack.refused.psn", refusal.psn.into());
        let code = match refusal.code {
            NakCode::SequenceError => 0,
            NakCode::InvalidRequest => 1,
            NakCode::RemoteAccess => 2,
            NakCode::RemoteOperational => 3,
            NakCode::InvalidRd => 4,
        };
        put("spanwire.src.ack.refused.code", code);
    }
    let hops: Vec<IntHop> = ack.int.iter().map(IntHop::parse).collect();
    if !hops.is_empty() {
        put("spanwire.src.ack.int.hops", spanwire_base::u64_from(hops.len()));
    }
    let blocks = ack.blocks.as_slice();
    if !blocks.is_empty() {
        put("spanwire.src.ack.blocks", spanwire_base::u64_from(blocks.len()));
    }
    if let Some(marks) = ack.marks {
        put("spanwire.src.ack.marks", marks);
    }
    let mut list = |name, each: &mut dyn Iterator<Item = u64>| {
        let all: Vec<String> = each.map(|value| value.to_string()).collect();
        want.insert(name, all.join(","));
    };
    list("spanwire.src.ack.word.base", &mut words.iter().map(|word| word.base.into()));
    list("spanwire.src.ack.word.bits", &mut words.iter().map(|word| word.bits));
    list("spanwire.src.ack.int.time", &mut hops.iter().map(|hop| hop.time_ps));
    list("spanwire.src.ack.int.tx_bytes", &mut hops.iter().map(|hop| hop.tx_bytes));
    list("spanwire.src.ack.int.queue_bytes", &mut hops.iter().map(|hop| hop.queue_bytes.into()));
    list("spanwire.src.ack.int.rate", &mut hops.iter().map(|hop| hop.link_rate_mbps.into()));
    list("spanwire.src.ack.block.first", &mut blocks.iter().map(|block| block.first.into()));
    list("spanwire.src.ack.block.word", &mut blocks.iter().map(|block| block.word as u64));
    list("spanwire.src.ack.block.data", &mut blocks.iter().map(|block| block.data.into()));
    list("spanwire.src.ack.block.bits", &mut blocks.iter().map(|block| block.bits));
    if ack.refusal.is_some() {
        want.insert("spanwire.src.expert.refused", "1".to_owned());
    }
}

/// Packets from `next` on that the words say have arrived, and those missing below the highest.
fn counts(ack: &SrcAckRepr<'_>) -> (u64, u64) {
    let mut told = BTreeMap::new();
    for word in ack.words.as_slice() {
        for i in 0..64u32 {
            let ahead = word.base.wrapping_add(i).wrapping_sub(ack.next);
            if ahead < 1 << 31 {
                told.insert(ahead, word.bits >> i & 1 == 1);
            }
        }
    }
    let arrived: Vec<u32> = told.iter().filter(|(_, here)| **here).map(|(n, _)| *n).collect();
    let highest = arrived.last().copied().unwrap_or(0);
    let missing = told.iter().filter(|(n, here)| !**here && **n < highest).count();
    (spanwire_base::u64_from(arrived.len()), spanwire_base::u64_from(missing))
}

/// Fields that a capture must have at least once, other than 0.
pub(crate) const TOLD: &[&str] = &[
    "spanwire.src.version",
    "spanwire.src.kind",
    "spanwire.src.psn",
    "spanwire.src.first",
    "spanwire.src.last",
    "spanwire.src.retransmission",
    "spanwire.src.sent",
    "spanwire.src.message",
    "spanwire.src.offset",
    "spanwire.src.data_len",
    "spanwire.src.reth.va",
    "spanwire.src.reth.rkey",
    "spanwire.src.reth.len",
    "spanwire.src.atomic.va",
    "spanwire.src.atomic.rkey",
    "spanwire.src.atomic.swap_or_add",
    "spanwire.src.atomic.compare",
    "spanwire.src.imm",
    "spanwire.src.ieth",
    "spanwire.src.receive",
    "spanwire.src.answers",
    "spanwire.src.original",
    "spanwire.src.block.index",
    "spanwire.src.block.data",
    "spanwire.src.block.parity",
    "spanwire.src.block.scheme",
    "spanwire.src.block.first",
    "spanwire.src.block.bytes",
    "spanwire.src.path",
    "spanwire.src.ack.path",
    "spanwire.src.ack.blocks",
    "spanwire.src.ack.block.first",
    "spanwire.src.ack.block.word",
    "spanwire.src.ack.block.data",
    "spanwire.src.ack.block.bits",
    "spanwire.src.ack.marks",
    "spanwire.src.ack.words",
    "spanwire.src.ack.next",
    "spanwire.src.ack.newest",
    "spanwire.src.ack.reason",
    "spanwire.src.ack.hop_limit",
    "spanwire.src.ack.echo",
    "spanwire.src.ack.hold",
    "spanwire.src.ack.rx_pkts",
    "spanwire.src.ack.ce_pkts",
    "spanwire.src.ack.rx_bytes",
    "spanwire.src.ack.ce_bytes",
    "spanwire.src.ack.psn_limit",
    "spanwire.src.ack.receive_limit",
    "spanwire.src.ack.word.base",
    "spanwire.src.ack.word.bits",
    "spanwire.src.ack.arrived",
    "spanwire.src.ack.missing",
    "spanwire.src.ack.int.hops",
    "spanwire.src.ack.int.time",
    "spanwire.src.ack.int.tx_bytes",
    "spanwire.src.ack.int.queue_bytes",
    "spanwire.src.ack.int.rate",
    "spanwire.src.ack.refused.psn",
    "spanwire.src.ack.refused.code",
    "spanwire.src.expert.version",
    "spanwire.src.expert.feature",
    "spanwire.src.expert.kind",
    "spanwire.src.expert.short",
    "spanwire.src.expert.base",
    "spanwire.src.expert.rest",
    "spanwire.src.expert.refused",
];

/// Fields that are 0 in what we send so far, and what no packet may have.
const WRONG: &[&str] = &["spanwire.src.ack.delay", "_ws.lua.error", "_ws.malformed"];

/// What follows from other packets of the capture.
pub(crate) const DERIVED: &[&str] =
    &["spanwire.src.again", "spanwire.src.ack.echo_frame", "spanwire.src.ack.rtt"];
