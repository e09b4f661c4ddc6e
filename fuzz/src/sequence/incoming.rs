//! Blocks from the peer: what may be recovered, settled and reported.

use spanwire_base::{u32_from, usize_from};
use spanwire_erasure::{Code, Columns, Scheme, Source};
use spanwire_wire::{BlockReport, BlockReportKind, BlockRepr, RethRepr, SrDataRepr};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Packets received in blocks.
#[derive(Default)]
pub(super) struct Incoming {
    blocks: BTreeMap<Name, Block>,
    /// Numbers of recovered packets.
    recovered: BTreeSet<u64>,
    /// Numbers that may have been settled or not: the engine determines the time.
    settled: BTreeSet<u64>,
}

/// A block's first number, its data and parity packets and its scheme. A peer that contradicts
/// itself may define several blocks with one first number.
type Name = (u64, u8, u8, u8);

#[derive(Default)]
struct Block {
    /// At its first packet, uncoded packets of its numbers had arrived: its parity is not kept.
    is_uncoded: bool,
    data: BTreeMap<u8, Vec<u8>>,
    rows: BTreeMap<u8, Vec<u8>>,
    /// The last parity header, and its length.
    whole: Option<(SrDataRepr, u32)>,
}

/// A segment that can be recovered.
pub(super) struct Recovered {
    pub(super) number: u64,
    pub(super) header: SrDataRepr,
    pub(super) bytes: Vec<u8>,
}

impl Incoming {
    /// A new packet was accepted. `has` is true for the numbers that arrived before.
    pub(super) fn on_packet(
        &mut self,
        number: u64,
        h: &SrDataRepr,
        payload: &[u8],
        has: impl Fn(u64) -> bool,
    ) {
        self.settled.remove(&number);
        let Some(place) = &h.block else { return };
        let name = name(number, place);
        let is_uncoded = || numbers(&name).any(|n| n != number && has(n));
        let fresh = || Block { is_uncoded: is_uncoded(), ..Block::default() };
        let block = self.blocks.entry(name).or_insert_with(fresh);
        match (place.index.checked_sub(place.data), h.block_bytes) {
            (None, _) => _ = block.data.insert(place.index, payload.to_vec()),
            (Some(row), Some(_)) => {
                block.rows.insert(row, payload.to_vec());
                block.whole = Some((*h, u32_from(payload.len())));
            }
            // A void parity packet.
            (Some(_), None) => {}
        }
    }

    /// The recoverable segments of a packet's block, lowest first: all lost data.
    ///
    /// # Panics
    /// If they are not recoverable.
    pub(super) fn recover(&self, number: u64, place: &BlockRepr) -> Vec<Recovered> {
        let name = name(number, place);
        let block = &self.blocks[&name];
        assert!(!block.is_uncoded, "{name:x?} was recovered, but its parity was not kept");
        let (whole, longest) = block.whole.expect("recovery needs parity");
        let scheme = Scheme::from_id(place.scheme).expect("recovery needs a known scheme");
        let code =
            Code::new(scheme, place.data.into(), place.parity.into()).expect("the code exists");
        let there = block.data.keys().fold(0, |bits, i| bits | 1 << i);
        let rows = block.rows.keys().fold(0, |bits, row| bits | 1 << row);
        let recovery = code.recovery(place.data.into(), Columns::from_bits(there), rows);
        let recovery = recovery.expect("recovery needs enough packets");
        let before = |i: u8| u32::from(i) * longest;
        let bytes = whole.block_bytes.expect("parity that is kept has its length");
        let len = |i: u8| {
            if i + 1 == place.data { bytes - before(i) } else { longest }
        };
        let lost = recovery.lost();
        let mut out: Vec<_> = lost.iter().map(|i| vec![0; usize_from(len(*i).into())]).collect();
        for (i, payload) in &block.data {
            recovery.add(Source::Data(*i), payload, &mut out);
        }
        for (row, payload) in &block.rows {
            recovery.add(Source::Parity(*row), payload, &mut out);
        }
        let recovered = lost.iter().zip(out).map(|(&i, bytes)| Recovered {
            number: name.0 + u64::from(i),
            header: SrDataRepr {
                reth: whole.reth.map(|reth| RethRepr {
                    va: reth.va.wrapping_add(before(i).into()),
                    dma_len: len(i),
                    ..reth
                }),
                // The end of a message is a property of its last segment.
                ieth: whole.ieth.filter(|_| i + 1 == place.data),
                ..whole
            },
            bytes,
        });
        recovered.collect()
    }

    /// A segment has been recovered.
    pub(super) fn on_recovered(&mut self, number: u64) {
        self.recovered.insert(number);
        self.settled.remove(&number);
    }

    /// Time has passed: packets that are no longer needed may have been settled.
    pub(super) fn time_passed(&mut self, has: impl Fn(u64) -> bool) {
        let parity = self.blocks.keys().filter(|name| data(name).all(&has)).flat_map(parity);
        self.settled.extend(parity.filter(|number| !has(*number)));
    }

    /// True if a number may have been settled.
    pub(super) fn may_be_settled(&self, number: u64) -> bool {
        self.settled.contains(&number)
    }

    /// A number was settled, as an observation proves.
    pub(super) fn was_settled(&mut self, number: u64) -> bool {
        self.settled.remove(&number)
    }

    /// True if a number may not be needed: it is parity of a block whose data have arrived.
    pub(super) fn may_be_idle(&self, number: u64, has: impl Fn(u64) -> bool) -> bool {
        let near = (number.saturating_sub(PKTS_MAX), 0, 0, 0)..=(number, u8::MAX, u8::MAX, u8::MAX);
        let mut near = self.blocks.range(near).map(|(name, _)| name);
        near.any(|name| parity(name).contains(&number) && data(name).all(&has))
    }

    /// Checks the report of a block; `near` is a number near it.
    pub(super) fn check_report(&self, r: &BlockReport, first: u64, has: impl Fn(u64) -> bool) {
        let of_it = self.blocks.keys().filter(|name| (name.0, name.1) == (first, r.data));
        let pkts = of_it.map(|name| name.1 + name.2).max();
        let pkts = pkts.unwrap_or_else(|| panic!("{r:?} of an unknown block"));
        let named = (0..64).filter(|i| r.bits >> i & 1 != 0);
        for (i, number) in named.map(|i| (i, first + i)) {
            let is_right = match r.kind {
                BlockReportKind::Nack => has(number),
                BlockReportKind::Settled => has(number) || self.may_be_settled(number),
                BlockReportKind::Recovered => i < r.data.into() && self.recovered.contains(&number),
            };
            assert!(is_right && i < pkts.into(), "{r:?} names {i}");
        }
        let is_short = r.bits.count_ones() < r.data.into();
        assert!(r.kind != BlockReportKind::Nack || is_short, "{r:?} of a complete block");
    }
}

fn name(number: u64, place: &BlockRepr) -> Name {
    (number - u64::from(place.index), place.data, place.parity, place.scheme)
}

fn data(name: &Name) -> Range<u64> {
    name.0..name.0 + u64::from(name.1)
}

fn parity(name: &Name) -> Range<u64> {
    data(name).end..numbers(name).end
}

fn numbers(name: &Name) -> Range<u64> {
    name.0..name.0 + u64::from(name.1 + name.2)
}

const PKTS_MAX: u64 = 64;
