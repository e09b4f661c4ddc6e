//! Running parity of blocks, and its memory limit.

use super::block::{Block, Sums, code};
use crate::blocks::BlockMemory;
use crate::payload::Payload;
use spanwire_base::u64_from;
use spanwire_erasure::{Code, Scheme};
use spanwire_wire::BlockRepr;
use std::net::IpAddr;

/// The memory of one queue pair's decoder; it also counts against the limit of its peer.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) peer: IpAddr,
    pub(super) limit_bytes: u64,
    pub(super) used_bytes: u64,
    /// Empty rows of closed blocks and the lists that held them, reused so that later blocks
    /// allocate nothing.
    spare: Vec<Vec<u8>>,
    spare_lists: Vec<Vec<Vec<u8>>>,
}

impl Memory {
    pub(super) fn new(peer: IpAddr, limit_bytes: u64) -> Self {
        let (spare, spare_lists) = (Vec::new(), Vec::new());
        Self { peer, limit_bytes, used_bytes: 0, spare, spare_lists }
    }

    /// A row of `len` zeros.
    pub(super) fn row(&mut self, len: usize) -> Vec<u8> {
        let mut row = self.spare.pop().unwrap_or_default();
        row.resize(len, 0);
        row
    }

    /// An empty list of rows.
    pub(super) fn list(&mut self) -> Vec<Vec<u8>> {
        self.spare_lists.pop().unwrap_or_default()
    }

    /// Keeps an unused row for reuse.
    pub(super) fn recycle_row(&mut self, mut row: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            row.clear();
            self.spare.push(row);
        }
    }

    /// Keeps an empty list of rows for reuse.
    pub(super) fn recycle_list(&mut self, list: Vec<Vec<u8>>) {
        debug_assert!(list.is_empty(), "rows are recycled separately");
        if self.spare_lists.len() < SPARE_MAX {
            self.spare_lists.push(list);
        }
    }

    /// Adds a packet to the running parity of its block; false if the parity must be dropped.
    pub(super) fn add(
        &mut self,
        b: &mut Block,
        place: &BlockRepr,
        data: Payload<'_>,
        memory: &mut BlockMemory,
    ) -> bool {
        let bytes = match (data, &b.sums) {
            (_, Sums::Dropped) => return false,
            (Payload::Bytes([]), _) => return true,
            (Payload::Elided(_), Sums::Empty | Sums::Elided) => {
                b.sums = Sums::Elided;
                return true;
            }
            (Payload::Bytes(bytes), Sums::Empty | Sums::Rows(_)) => bytes,
            (Payload::Elided(_), Sums::Rows(_)) | (Payload::Bytes(_), Sums::Elided) => {
                return false;
            }
        };
        let Some(code) = code(&b.block) else { return false };
        if !self.grow_rows(b, bytes.len(), memory) {
            return false;
        }
        let Sums::Rows(rows) = &mut b.sums else { return false };
        match place.index.checked_sub(place.data) {
            None => code.add(place.index, bytes, rows),
            Some(row) => {
                let Some(sum) = rows.get_mut(usize::from(row)) else { return false };
                // The sum of a row and a parity packet: P of a block with one source packet.
                one().add(0, bytes, std::slice::from_mut(sum));
            }
        }
        true
    }

    /// Extends all rows to at least `len` bytes; false if a memory limit prevents it.
    pub(super) fn grow_rows(
        &mut self,
        b: &mut Block,
        len: usize,
        memory: &mut BlockMemory,
    ) -> bool {
        let parity = usize::from(b.block.parity);
        if matches!(b.sums, Sums::Empty) {
            let mut rows = self.list();
            rows.extend((0..parity).map(|_| self.row(0)));
            b.sums = Sums::Rows(rows);
        }
        let Sums::Rows(rows) = &mut b.sums else { return false };
        let had = rows.first().map_or(0, Vec::len);
        if had >= len {
            return true;
        }
        let more = u64_from((len - had) * parity);
        if self.used_bytes + more > self.limit_bytes || !memory.take(self.peer, more) {
            return false;
        }
        self.used_bytes += more;
        rows.iter_mut().for_each(|row| row.resize(len, 0));
        true
    }

    /// Drops the running parity of a block.
    pub(super) fn drop_sums(&mut self, b: &mut Block, memory: &mut BlockMemory) {
        let Sums::Rows(mut rows) = std::mem::replace(&mut b.sums, Sums::Dropped) else { return };
        let bytes = u64_from(rows.iter().map(Vec::len).sum());
        self.used_bytes -= bytes;
        memory.give(self.peer, bytes);
        rows.drain(..).for_each(|row| self.recycle_row(row));
        self.recycle_list(rows);
    }
}

/// The code whose parity is the sum of its inputs.
fn one() -> Code {
    Code::new(Scheme::PQ, 1, 1).expect("one source packet and P")
}

/// The most spare rows, and the most spare lists.
const SPARE_MAX: usize = 8;
