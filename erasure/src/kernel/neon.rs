//! 64-bit Arm: NEON, which every such processor has, 16 bytes at a time.

use super::vector::Vector;
use crate::gf::{self, REDUCTION};
use std::arch::aarch64::*;

/// 16 bytes.
#[derive(Clone, Copy)]
pub(super) struct Bytes16(uint8x16_t);

impl Vector for Bytes16 {
    const LEN: usize = 16;
    const OFFSET: u8 = 0;
    /// Products of low and of high halves.
    type Factor = [uint8x16_t; 2];

    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        // SAFETY: the caller's function has the instructions.
        unsafe { Self(vdupq_n_u8(byte)) }
    }

    #[inline(always)]
    unsafe fn load(from: &[u8], at: usize) -> Self {
        debug_assert!(at + Self::LEN <= from.len());
        // SAFETY: the caller's function has the instructions, and the bytes are in the slice.
        unsafe { Self(vld1q_u8(from.as_ptr().add(at))) }
    }

    #[inline(always)]
    unsafe fn store(self, to: &mut [u8], at: usize) {
        debug_assert!(at + Self::LEN <= to.len());
        // SAFETY: the caller's function has the instructions, and the bytes are in the slice.
        unsafe { vst1q_u8(to.as_mut_ptr().add(at), self.0) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the caller's function has the instructions.
        unsafe { Self(veorq_u8(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: the caller's function has the instructions.
        unsafe {
            let overflows = vcltzq_s8(vreinterpretq_s8_u8(self.0));
            let reduction = vandq_u8(overflows, vdupq_n_u8(REDUCTION));
            Self(veorq_u8(vshlq_n_u8::<1>(self.0), reduction))
        }
    }

    #[inline(always)]
    unsafe fn factor(c: u8) -> Self::Factor {
        let table = gf::nibbles(c);
        // SAFETY: the caller's function has the instructions, and the table has 32 bytes.
        unsafe { [vld1q_u8(table.as_ptr()), vld1q_u8(table.as_ptr().add(16))] }
    }

    #[inline(always)]
    unsafe fn mul(self, [low, high]: Self::Factor) -> Self {
        // SAFETY: the caller's function has the instructions.
        unsafe {
            let low = vqtbl1q_u8(low, vandq_u8(self.0, vdupq_n_u8(0x0f)));
            Self(veorq_u8(low, vqtbl1q_u8(high, vshrq_n_u8::<4>(self.0))))
        }
    }
}

super::entry::entry_points! { #[target_feature(enable = "neon")] Bytes16, 4 }
