//! x86: SSSE3 (2006) and AVX2 (2013), by two lookups of half bytes for each product.

/// 16 bytes at a time.
pub(super) mod ssse3 {
    use crate::gf::{self, REDUCTION};
    use crate::kernel::vector::Vector;
    use std::arch::x86_64::*;

    #[derive(Clone, Copy)]
    pub(in crate::kernel) struct Bytes16(__m128i);

    impl Vector for Bytes16 {
        const LEN: usize = 16;
        /// Products of low and of high halves.
        type Factor = [__m128i; 2];

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller's function has the instructions.
            unsafe { Self(_mm_setzero_si128()) }
        }

        #[inline(always)]
        unsafe fn load(from: &[u8], at: usize) -> Self {
            debug_assert!(at + Self::LEN <= from.len());
            // SAFETY: the caller's function has the instructions, and the bytes are in the slice.
            unsafe { Self(_mm_loadu_si128(from.as_ptr().add(at).cast())) }
        }

        #[inline(always)]
        unsafe fn store(self, to: &mut [u8], at: usize) {
            debug_assert!(at + Self::LEN <= to.len());
            // SAFETY: the caller's function has the instructions, and the bytes are in the slice.
            unsafe { _mm_storeu_si128(to.as_mut_ptr().add(at).cast(), self.0) }
        }

        #[inline(always)]
        unsafe fn xor(self, other: Self) -> Self {
            // SAFETY: the caller's function has the instructions.
            unsafe { Self(_mm_xor_si128(self.0, other.0)) }
        }

        #[inline(always)]
        unsafe fn double(self) -> Self {
            // SAFETY: the caller's function has the instructions.
            unsafe {
                let overflows = _mm_cmpgt_epi8(_mm_setzero_si128(), self.0);
                let reduction = _mm_set1_epi8(REDUCTION.cast_signed());
                let shifted = _mm_add_epi8(self.0, self.0);
                Self(_mm_xor_si128(shifted, _mm_and_si128(overflows, reduction)))
            }
        }

        #[inline(always)]
        unsafe fn factor(c: u8) -> Self::Factor {
            let table = gf::nibbles(c);
            // SAFETY: the caller's function has the instructions, and the table has 32 bytes.
            unsafe {
                let table: *const __m128i = table.as_ptr().cast();
                [_mm_loadu_si128(table), _mm_loadu_si128(table.add(1))]
            }
        }

        #[inline(always)]
        unsafe fn mul(self, [low, high]: Self::Factor) -> Self {
            // SAFETY: the caller's function has the instructions.
            unsafe {
                let half = _mm_set1_epi8(0x0f);
                let low = _mm_shuffle_epi8(low, _mm_and_si128(self.0, half));
                let halves = _mm_and_si128(_mm_srli_epi16(self.0, 4), half);
                Self(_mm_xor_si128(low, _mm_shuffle_epi8(high, halves)))
            }
        }
    }

    crate::kernel::entry_points! { #[target_feature(enable = "ssse3")] Bytes16, 2 }
}

/// 32 bytes at a time.
pub(super) mod avx2 {
    use crate::gf::{self, REDUCTION};
    use crate::kernel::vector::Vector;
    use std::arch::x86_64::*;

    #[derive(Clone, Copy)]
    pub(in crate::kernel) struct Bytes32(__m256i);

    impl Vector for Bytes32 {
        const LEN: usize = 32;
        /// Products of low and of high halves, twice each: a shuffle stays within 16 bytes.
        type Factor = [__m256i; 2];

        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the caller's function has the instructions.
            unsafe { Self(_mm256_setzero_si256()) }
        }

        #[inline(always)]
        unsafe fn load(from: &[u8], at: usize) -> Self {
            debug_assert!(at + Self::LEN <= from.len());
            // SAFETY: the caller's function has the instructions, and the bytes are in the slice.
            unsafe { Self(_mm256_loadu_si256(from.as_ptr().add(at).cast())) }
        }

        #[inline(always)]
        unsafe fn store(self, to: &mut [u8], at: usize) {
            debug_assert!(at + Self::LEN <= to.len());
            // SAFETY: the caller's function has the instructions, and the bytes are in the slice.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().add(at).cast(), self.0) }
        }

        #[inline(always)]
        unsafe fn xor(self, other: Self) -> Self {
            // SAFETY: the caller's function has the instructions.
            unsafe { Self(_mm256_xor_si256(self.0, other.0)) }
        }

        #[inline(always)]
        unsafe fn double(self) -> Self {
            // SAFETY: the caller's function has the instructions.
            unsafe {
                let overflows = _mm256_cmpgt_epi8(_mm256_setzero_si256(), self.0);
                let reduction = _mm256_set1_epi8(REDUCTION.cast_signed());
                let shifted = _mm256_add_epi8(self.0, self.0);
                Self(_mm256_xor_si256(shifted, _mm256_and_si256(overflows, reduction)))
            }
        }

        #[inline(always)]
        unsafe fn factor(c: u8) -> Self::Factor {
            let table = gf::nibbles(c);
            // SAFETY: the caller's function has the instructions, and the table has 32 bytes.
            unsafe {
                let table: *const __m128i = table.as_ptr().cast();
                let (low, high) = (_mm_loadu_si128(table), _mm_loadu_si128(table.add(1)));
                [_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high)]
            }
        }

        #[inline(always)]
        unsafe fn mul(self, [low, high]: Self::Factor) -> Self {
            // SAFETY: the caller's function has the instructions.
            unsafe {
                let half = _mm256_set1_epi8(0x0f);
                let low = _mm256_shuffle_epi8(low, _mm256_and_si256(self.0, half));
                let halves = _mm256_and_si256(_mm256_srli_epi16(self.0, 4), half);
                Self(_mm256_xor_si256(low, _mm256_shuffle_epi8(high, halves)))
            }
        }
    }

    crate::kernel::entry_points! { #[target_feature(enable = "avx2")] Bytes32, 2 }
}
