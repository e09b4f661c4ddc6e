//! The codes: construction of parity packets.

use crate::gf;
use crate::kernel::Kernel;
use crate::sum::{self, Sum, Terms};
use std::{array, fmt};

/// The scheme of a code. Both ends of a connection agree on it, by number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// RAID-6: P is the sum of all data packets, Q that of 2^i times packet i; 1 or 2 parity
    /// packets.
    PQ,
    /// A Cauchy matrix: parity packet r is the sum of the data packets i over (x + r) - i; up to
    /// [`Code::PARITY_MAX`] parity packets.
    CAUCHY,
}

impl Scheme {
    /// The scheme for this many parity packets: PQ where it can, since it is faster.
    #[must_use]
    pub fn for_parity(y: usize) -> Self {
        if y <= PQ_PARITY_MAX { Self::PQ } else { Self::CAUCHY }
    }

    /// The scheme of this number; none if the number is unknown.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        [Self::PQ, Self::CAUCHY].into_iter().find(|scheme| scheme.id() == id)
    }

    /// Its number on the wire: 1 or 2.
    #[must_use]
    pub fn id(self) -> u8 {
        match self {
            Self::PQ => 1,
            Self::CAUCHY => 2,
        }
    }
}

/// A code (x, y): blocks of x data packets and y parity packets, any x of which suffice.
///
/// It is small and `Copy`, without precomputed tables.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Code {
    scheme: Scheme,
    x: u8,
    y: u8,
    kernel: Kernel,
}

/// The reason for which a code does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodeError {
    /// No data packets.
    NoData,
    /// No parity packets.
    NoParity,
    /// More parity packets than the scheme supports.
    TooMuchParity {
        /// The requested number.
        y: usize,
        /// The maximum.
        most: usize,
    },
    /// More data packets than the scheme supports with this many parity packets.
    TooMuchData {
        /// The requested number.
        x: usize,
        /// The maximum.
        most: usize,
    },
}

impl Default for Code {
    /// (8, 2) by P and Q: a fourth more bytes, and any two losses of ten can be recovered. The
    /// default of Uno 5.2.3.
    fn default() -> Self {
        Self { scheme: Scheme::PQ, x: 8, y: 2, kernel: Kernel::best() }
    }
}

impl Code {
    /// The most parity packets of any code.
    pub const PARITY_MAX: usize = 32;

    /// The code of `x` data packets and `y` parity packets, on the best kernel of this processor.
    ///
    /// # Arguments
    /// - `x`: 1..=255 for PQ, 1..=256 - `y` for CAUCHY: each packet has its own element of the
    ///   field.
    /// - `y`: 1..=2 for PQ, 1..=[`Code::PARITY_MAX`] for CAUCHY.
    ///
    /// # Errors
    /// `x` or `y` is out of range.
    pub fn new(scheme: Scheme, x: usize, y: usize) -> Result<Self, CodeError> {
        let (x_max, y_max) = match scheme {
            Scheme::PQ => (255, PQ_PARITY_MAX),
            Scheme::CAUCHY => (256usize.saturating_sub(y), Self::PARITY_MAX),
        };
        let kernel = Kernel::best();
        match (u8::try_from(x), u8::try_from(y)) {
            (Ok(0), _) => Err(CodeError::NoData),
            (_, Ok(0)) => Err(CodeError::NoParity),
            _ if y > y_max => Err(CodeError::TooMuchParity { y, most: y_max }),
            (Ok(x), Ok(y)) if usize::from(x) <= x_max => Ok(Self { scheme, x, y, kernel }),
            _ => Err(CodeError::TooMuchData { x, most: x_max }),
        }
    }

    /// The same code with another kernel.
    #[must_use]
    pub fn with_kernel(self, kernel: Kernel) -> Self {
        Self { kernel, ..self }
    }

    /// Its scheme.
    #[must_use]
    #[inline]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Data packets of a whole block, 1..=255.
    #[must_use]
    #[inline]
    pub fn x(&self) -> usize {
        usize::from(self.x)
    }

    /// Parity packets of any block, 1..=[`Code::PARITY_MAX`].
    #[must_use]
    #[inline]
    pub fn y(&self) -> usize {
        usize::from(self.y)
    }

    /// The kernel of this code.
    #[must_use]
    #[inline]
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// The coefficient of data packet `column` in parity packet `row`.
    ///
    /// # Panics
    /// There is no such row or column.
    #[must_use]
    #[inline]
    pub fn coefficient(&self, row: usize, column: u8) -> u8 {
        assert!(row < self.y() && column < self.x, "no such coefficient");
        match self.scheme {
            Scheme::PQ if row == 0 => 1,
            Scheme::PQ => gf::exp(usize::from(column)),
            Scheme::CAUCHY => gf::inv(self.element(row) ^ column),
        }
    }

    /// Adds a data packet to the parity of its block: `parity[r][..data.len()] ^= c * data`, in any
    /// order. Parity is zero before the first. Packets of zeros may be skipped.
    ///
    /// # Arguments
    /// - `column`: the packet's index in the block, below [`Code::x`].
    /// - `parity`: [`Code::y`] packets, each at least as long as `data`.
    ///
    /// # Panics
    /// If an argument is out of these limits.
    ///
    /// # Cost
    /// One pass over data and parity for each two parity packets; no allocation.
    #[inline]
    pub fn add(&self, column: u8, data: &[u8], parity: &mut [impl AsMut<[u8]>]) {
        assert!(column < self.x, "column {column} of a code of {} data packets", self.x);
        assert_eq!(parity.len(), self.y(), "the number of parity packets is that of the code");
        let kernel = self.kernel;
        let mut row = 0;
        for rows in parity.chunks_mut(2) {
            match rows {
                [p] if self.scheme == Scheme::PQ => {
                    kernel.add::<1, true>(data, [1], [head(p, data)]);
                }
                [p, q] if self.scheme == Scheme::PQ => {
                    let factors = [1, self.coefficient(1, column)];
                    kernel.add::<2, true>(data, factors, [head(p, data), head(q, data)]);
                }
                [a] => {
                    let factors = [self.coefficient(row, column)];
                    kernel.add::<1, false>(data, factors, [head(a, data)]);
                }
                [a, b] => {
                    let factors = [row, row + 1].map(|row| self.coefficient(row, column));
                    kernel.add::<2, false>(data, factors, [head(a, data), head(b, data)]);
                }
                _ => unreachable!("chunks of two have one or two"),
            }
            row += 2;
        }
    }

    /// Encodes a block at once, which is faster than packet by packet if all are in the cache.
    ///
    /// # Arguments
    /// - `data`: the block's packets in their order, [`Code::x`] at most, of any lengths: missing
    ///   bytes count as zeros.
    /// - `parity`: [`Code::y`] packets of one length, at least that of the longest data packet;
    ///   their content is overwritten.
    ///
    /// # Panics
    /// If an argument is out of these limits.
    ///
    /// # Cost
    /// For each two parity packets one pass over the data; no allocation.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [impl AsMut<[u8]>]) {
        assert!(data.len() <= self.x(), "{} packets in a block of {}", data.len(), self.x);
        assert_eq!(parity.len(), self.y(), "the number of parity packets is that of the code");
        let len = parity[0].as_mut().len();
        assert!(
            parity.iter_mut().all(|row| row.as_mut().len() == len),
            "parity packets have one length"
        );
        assert!(
            data.iter().all(|packet| packet.len() <= len),
            "parity is at least as long as the data"
        );
        if let (Scheme::PQ, [p, q]) = (self.scheme, &mut *parity) {
            return sum::write_pq(self.kernel, data, p.as_mut(), q.as_mut());
        }
        let first_is_one = self.scheme == Scheme::PQ;
        sum::write(self.kernel, parity, first_is_one, &Block { code: self, data });
    }

    /// The field element of a parity packet of CAUCHY; the elements of data packets are below it.
    #[inline]
    pub(crate) fn element(&self, row: usize) -> u8 {
        u8::try_from(self.x() + row).expect("x + y is 256 at most")
    }
}

/// The data packets of an encoding.
struct Block<'a> {
    code: &'a Code,
    data: &'a [&'a [u8]],
}

impl Terms for Block<'_> {
    #[inline]
    fn add_to<'a, const ROWS: usize, const FIRST_IS_ONE: bool>(
        &'a self,
        row: usize,
        sum: &mut Sum<'a, '_, ROWS, FIRST_IS_ONE>,
    ) {
        for (column, packet) in (0..=u8::MAX).zip(self.data) {
            sum.add(packet, array::from_fn(|r| self.code.coefficient(row + r, column)));
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PQ => "PQ",
            Self::CAUCHY => "CAUCHY",
        })
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.scheme, self.x, self.y)
    }
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoData => f.write_str("a block without data packets"),
            Self::NoParity => f.write_str("a code without parity packets"),
            Self::TooMuchParity { y, most } => {
                write!(f, "{y} parity packets; the maximum of the scheme is {most}")
            }
            Self::TooMuchData { x, most } => {
                write!(f, "{x} data packets in a block; the maximum is {most}")
            }
        }
    }
}

impl std::error::Error for CodeError {}

/// The part of a parity packet that `data` covers.
#[inline]
fn head<'a>(parity: &'a mut impl AsMut<[u8]>, data: &[u8]) -> &'a mut [u8] {
    let parity = parity.as_mut();
    assert!(data.len() <= parity.len(), "a data packet longer than parity");
    &mut parity[..data.len()]
}

const PQ_PARITY_MAX: usize = 2;

#[cfg(test)]
mod tests;
