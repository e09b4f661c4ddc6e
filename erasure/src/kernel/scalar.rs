//! No vector instructions: eight bytes per word.

use super::vector::Vector;
use crate::gf::{self, REDUCTION};

/// Eight bytes.
#[derive(Clone, Copy)]
pub(super) struct Word(u64);

impl Vector for Word {
    const LEN: usize = 8;
    const OFFSET: u8 = 0;
    type Factor = &'static [u8; 32];

    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        Self(u64::from(byte) * LOW_BITS)
    }

    #[inline(always)]
    unsafe fn load(from: &[u8], at: usize) -> Self {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&from[at..at + 8]);
        Self(u64::from_ne_bytes(bytes))
    }

    #[inline(always)]
    unsafe fn store(self, to: &mut [u8], at: usize) {
        to[at..at + 8].copy_from_slice(&self.0.to_ne_bytes());
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }

    #[inline(always)]
    unsafe fn double(self) -> Self {
        let (high, low) = ((self.0 >> 7) & LOW_BITS, (self.0 & !HIGH_BITS) << 1);
        Self(low ^ (high * u64::from(REDUCTION)))
    }

    #[inline(always)]
    unsafe fn factor(c: u8) -> Self::Factor {
        gf::nibbles(c)
    }

    #[inline(always)]
    unsafe fn mul(self, factor: Self::Factor) -> Self {
        let mut bytes = self.0.to_ne_bytes();
        for byte in &mut bytes {
            *byte = factor[usize::from(*byte & 15)] ^ factor[usize::from(16 | (*byte >> 4))];
        }
        Self(u64::from_ne_bytes(bytes))
    }
}

const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = LOW_BITS << 7;

super::entry::entry_points! { Word, 2 }
