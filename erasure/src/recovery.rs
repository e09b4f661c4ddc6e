//! The decoder: recovery of lost packets.

use crate::code::{Code, Scheme};
use crate::columns::Columns;
use crate::gf;
use crate::sum::{self, Sum, Terms};
use std::{array, fmt};

/// The coefficients by which the lost data packets of a block are sums of its other packets.
///
/// It is independent of the bytes: blocks of one code with the same losses have the same one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recovery {
    code: Code,
    missing: Columns,
    /// The same as a list, valid up to `losses`.
    lost: [u8; Code::PARITY_MAX],
    losses: u8,
    solution: Solution,
}

/// A packet of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
    /// The data packet of this column.
    Data(u8),
    /// The parity packet of this row.
    Parity(u8),
}

/// More data packets are lost than parity packets arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooFew {
    /// Data packets that are missing.
    pub lost: usize,
    /// Parity packets that arrived.
    pub parity: usize,
}

/// The parameters of the coefficients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Solution {
    /// One packet from P: a sum.
    P,
    /// One packet, i, from Q.
    Q {
        /// 2^-i
        scale: u8,
    },
    /// Two packets, i < j, from P and Q.
    PQ {
        /// 2^(j - i) / (2^(j - i) + 1)
        a: u8,
        /// Logarithm of 2^-i / (2^(j - i) + 1).
        log_b: u8,
    },
    /// Any packets, by the inverse of a Cauchy submatrix, which has a closed form.
    Cauchy {
        /// Bit r: parity packet r is used. There are as many as losses.
        rows: u32,
        /// Logarithms of the common factors of the coefficients of each lost packet.
        weights: [u8; Code::PARITY_MAX],
    },
}

impl Code {
    /// Computes how the available packets combine to the missing ones.
    ///
    /// # Arguments
    /// - `packets`: data packets of the block, [`Code::x`] at most: fewer in a short one.
    /// - `data`: the data packets available. Columns from `packets` on are ignored.
    /// - `parity`: bit r: parity packet r is available. Bits from [`Code::y`] on are ignored.
    ///
    /// # Errors
    /// Fewer packets are available than the block has data packets.
    ///
    /// # Panics
    /// `packets` is more than [`Code::x`].
    ///
    /// # Cost
    /// O(losses^2) operations in the field, by closed forms; a few table lookups for PQ.
    #[inline]
    pub fn recovery(&self, packets: usize, data: Columns, parity: u32) -> Result<Recovery, TooFew> {
        assert!(packets <= self.x(), "{packets} packets in a block of {}", self.x());
        let parity = parity & (u32::MAX >> (32 - self.y()));
        let missing = Columns::below(packets).without(&data);
        let (losses, available) = (missing.len(), parity.count_ones() as usize);
        if losses > available {
            return Err(TooFew { lost: losses, parity: available });
        }
        let mut lost = [0; Self::PARITY_MAX];
        for (lost, column) in lost.iter_mut().zip(missing.iter()) {
            *lost = column;
        }
        let solution = match (self.scheme(), &lost[..losses]) {
            (Scheme::PQ, [] | [_]) if parity & 1 != 0 || losses == 0 => Solution::P,
            (Scheme::PQ, [i]) => Solution::Q { scale: gf::inv(gf::exp((*i).into())) },
            (Scheme::PQ, [i, j, ..]) => {
                let apart = gf::exp(usize::from(j - i));
                let log_b = log_of([], [gf::exp((*i).into()), apart ^ 1]);
                Solution::PQ { a: gf::div(apart, apart ^ 1), log_b }
            }
            (Scheme::CAUCHY, lost) => self.cauchy(lost, parity),
            _ => unreachable!("no loss is covered above"),
        };
        let losses = u8::try_from(losses).expect("no more losses than parity packets");
        Ok(Recovery { code: *self, missing, lost, losses, solution })
    }

    /// Selects the first available parity packets.
    fn cauchy(&self, lost: &[u8], parity: u32) -> Solution {
        let mut rows = parity;
        while rows.count_ones() as usize > lost.len() {
            rows &= !(1 << (31 - rows.leading_zeros()));
        }
        let mut weights = [0; Self::PARITY_MAX];
        for (weight, &i) in weights.iter_mut().zip(lost) {
            let above = bits(rows).map(|row| i ^ self.element(row));
            *weight = log_of(above, lost.iter().filter(|j| **j != i).map(|j| i ^ j));
        }
        Solution::Cauchy { rows, weights }
    }
}

impl Recovery {
    /// The columns of the lost packets, lowest first; `out` below has the same order.
    #[must_use]
    #[inline]
    pub fn lost(&self) -> &[u8] {
        &self.lost[..usize::from(self.losses)]
    }

    /// True if a packet contributes to the lost ones. Lost packets do not, nor do available parity
    /// packets that are not needed.
    #[must_use]
    #[inline]
    pub fn uses(&self, source: Source) -> bool {
        match (source, self.solution) {
            (Source::Data(column), _) => self.losses > 0 && !self.missing.contains(column),
            (Source::Parity(0), Solution::P) => self.losses > 0,
            (Source::Parity(1), Solution::Q { .. }) => true,
            (Source::Parity(row), Solution::PQ { .. }) => row < 2,
            (Source::Parity(row), Solution::Cauchy { rows, .. }) => {
                rows.checked_shr(row.into()).is_some_and(|rows| rows & 1 != 0)
            }
            _ => false,
        }
    }

    /// Adds the contribution of a packet to the lost ones: `out[i] ^= c * packet`, in any order.
    /// Each packet that [is used](Self::uses) must be added once; others change nothing. Then `out`
    /// holds the lost packets, provided it was zero before the first.
    ///
    /// # Arguments
    /// - `out`: one for each [lost](Self::lost) packet. Each may be as short as its packet was: a
    ///   longer packet would add bytes after its end that sum to zero.
    ///
    /// # Panics
    /// `out` has another number of packets.
    ///
    /// # Cost
    /// One pass over the packet and `out` for each two lost packets; no allocation.
    pub fn add(&self, source: Source, packet: &[u8], out: &mut [impl AsMut<[u8]>]) {
        assert_eq!(out.len(), self.lost().len(), "one output packet for each lost packet");
        if !self.uses(source) {
            return;
        }
        let kernel = self.code.kernel();
        let weight = self.weight(source);
        let factor = |i| self.coefficient(i, source, weight);
        let mut i = 0;
        for pair in out.chunks_mut(2) {
            if let [a, b] = &mut *pair
                && reach(a, packet) == reach(b, packet)
            {
                let len = reach(a, packet);
                let dst = [&mut a.as_mut()[..len], &mut b.as_mut()[..len]];
                kernel.add::<2, false>(&packet[..len], [factor(i), factor(i + 1)], dst);
            } else {
                for (i, out) in (i..).zip(pair) {
                    let len = reach(out, packet);
                    let (packet, dst) = (&packet[..len], [&mut out.as_mut()[..len]]);
                    match self.solution {
                        Solution::P => kernel.add::<1, true>(packet, [1], dst),
                        _ => kernel.add::<1, false>(packet, [factor(i)], dst),
                    }
                }
            }
            i += 2;
        }
    }

    /// Recovers all lost packets at once, which is faster than one by one if all are in the cache.
    ///
    /// # Arguments
    /// - `data`: the packets by their column; those of lost and never sent packets are ignored.
    /// - `parity`: the parity packets by their row; those of unavailable packets are ignored.
    /// - `out`: one for each [lost](Self::lost) packet, at least as long as the packet was. Longer
    ///   ones are padded with zeros. Their content is overwritten.
    ///
    /// # Panics
    /// `out` has another number of packets.
    ///
    /// # Cost
    /// For each two lost packets one pass over all that are used; no allocation.
    pub fn write(&self, data: &[&[u8]], parity: &[&[u8]], out: &mut [impl AsMut<[u8]>]) {
        assert_eq!(out.len(), self.lost().len(), "one output packet for each lost packet");
        let first_is_one = self.solution == Solution::P;
        let block = Block { recovery: self, data, parity };
        sum::write(self.code.kernel(), out, first_is_one, &block);
    }

    /// The logarithm of the common factor of a packet's coefficients in all lost ones; for Cauchy
    /// codes.
    #[inline]
    fn weight(&self, source: Source) -> u8 {
        let Solution::Cauchy { rows, .. } = self.solution else {
            return 0;
        };
        let e = self.element(source);
        let others = bits(rows).map(|row| e ^ self.code.element(row)).filter(|apart| *apart != 0);
        log_of(self.lost().iter().map(|i| e ^ i), others)
    }

    /// The coefficient of a used packet in the `i`-th lost one.
    #[inline]
    fn coefficient(&self, i: usize, source: Source, weight: u8) -> u8 {
        match (self.solution, source) {
            (Solution::P, _) => 1,
            (Solution::Q { scale }, Source::Parity(_)) => scale,
            (Solution::Q { scale }, Source::Data(column)) => gf::mul(scale, gf::exp(column.into())),
            // The second lost packet is the first, plus P, plus all others.
            (Solution::PQ { log_b, .. }, Source::Parity(1)) => gf::exp(log_b.into()),
            (Solution::PQ { a, .. }, Source::Parity(_)) => a ^ u8::from(i == 1),
            (Solution::PQ { a, log_b }, Source::Data(column)) => {
                a ^ gf::exp(usize::from(log_b) + usize::from(column)) ^ u8::from(i == 1)
            }
            (Solution::Cauchy { weights, .. }, source) => {
                let apart = gf::log(self.lost[i] ^ self.element(source));
                gf::exp(usize::from(weights[i]) + usize::from(weight) + gf::ORDER - apart)
            }
        }
    }

    #[inline]
    fn element(&self, source: Source) -> u8 {
        match source {
            Source::Data(column) => column,
            Source::Parity(row) => self.code.element(row.into()),
        }
    }
}

/// The packets of a decoding.
struct Block<'a> {
    recovery: &'a Recovery,
    data: &'a [&'a [u8]],
    parity: &'a [&'a [u8]],
}

impl Terms for Block<'_> {
    #[inline]
    fn add_to<'a, const ROWS: usize, const FIRST_IS_ONE: bool>(
        &'a self,
        row: usize,
        sum: &mut Sum<'a, '_, ROWS, FIRST_IS_ONE>,
    ) {
        let recovery = self.recovery;
        let mut add = |source, packet| {
            if recovery.uses(source) {
                let weight = recovery.weight(source);
                let factor = |r| recovery.coefficient(row + r, source, weight);
                sum.add(packet, array::from_fn(factor));
            }
        };
        for (column, packet) in (0..=u8::MAX).zip(self.data) {
            add(Source::Data(column), *packet);
        }
        for (row, packet) in (0..=u8::MAX).zip(self.parity) {
            add(Source::Parity(row), *packet);
        }
    }
}

impl fmt::Display for TooFew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} data packets are lost, {} parity packets are available",
            self.lost, self.parity
        )
    }
}

impl std::error::Error for TooFew {}

/// The length of the part of a packet that contributes to `out`.
#[inline]
fn reach(out: &mut impl AsMut<[u8]>, packet: &[u8]) -> usize {
    out.as_mut().len().min(packet.len())
}

/// The logarithm of a quotient of products of elements that are not zero, 0..=254.
#[inline]
fn log_of(above: impl IntoIterator<Item = u8>, below: impl IntoIterator<Item = u8>) -> u8 {
    let above: usize = above.into_iter().map(gf::log).sum();
    let below: usize = below.into_iter().map(|a| gf::ORDER - gf::log(a)).sum();
    u8::try_from((above + below) % gf::ORDER).expect("a remainder of 255")
}

/// The indices of the bits that are set, lowest first.
#[inline]
fn bits(mut word: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        let some = word != 0;
        word &= word.wrapping_sub(1);
        some.then_some(bit)
    })
}

#[cfg(test)]
mod tests;
