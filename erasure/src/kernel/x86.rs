//! x86: SSSE3 (2006) and AVX2 (2013), by two lookups of half bytes for each product; GFNI (2019),
//! which multiplies bytes by a matrix of bits, with AVX2 or AVX-512.

/// Doubling is a shift, then an xor with 0x1d if the highest bit was set. A shuffle of a table
/// filled with 0x1d gives zero for a byte whose highest bit is set and 0x1d for others. That is the
/// opposite: it is 0x1d too much in every byte. With z = a + k this gives
/// 2 z + 0x1d = 2 a + (2 k + 0x1d). The sum equals 2 a + k for k = 0x0b, whose highest bit is not
/// set either. So the test of the bit costs nothing.
const OFFSET: u8 = 0x0b;
const _: () = assert!(OFFSET << 1 ^ crate::gf::REDUCTION == OFFSET && OFFSET < 0x80);

/// 16 bytes at a time.
pub(super) mod ssse3 {
    use crate::gf::{self, REDUCTION};
    use crate::kernel::vector::Vector;
    use std::arch::x86_64::*;

    #[derive(Clone, Copy)]
    pub(in crate::kernel) struct Bytes16(__m128i);

    impl Vector for Bytes16 {
        const LEN: usize = 16;
        const OFFSET: u8 = super::OFFSET;
        /// Products of low and of high halves.
        type Factor = [__m128i; 2];

        #[inline(always)]
        unsafe fn splat(byte: u8) -> Self {
            // SAFETY: the caller's function has the instructions.
            unsafe { Self(_mm_set1_epi8(byte.cast_signed())) }
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
                let reduction = _mm_shuffle_epi8(_mm_set1_epi8(REDUCTION.cast_signed()), self.0);
                Self(_mm_xor_si128(_mm_add_epi8(self.0, self.0), reduction))
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

    crate::kernel::entry::entry_points! { #[target_feature(enable = "ssse3")] Bytes16, 2 }
}

/// 32 bytes at a time.
pub(super) mod avx2 {
    use crate::gf::{self, REDUCTION};
    use crate::kernel::vector::Vector;
    use std::arch::x86_64::*;

    #[derive(Clone, Copy)]
    pub(in crate::kernel) struct Bytes32(pub(super) __m256i);

    impl Vector for Bytes32 {
        const LEN: usize = 32;
        const OFFSET: u8 = super::OFFSET;
        /// Products of low and of high halves, twice each: a shuffle stays within 16 bytes.
        type Factor = [__m256i; 2];

        #[inline(always)]
        unsafe fn splat(byte: u8) -> Self {
            // SAFETY: the caller's function has the instructions.
            unsafe { Self(_mm256_set1_epi8(byte.cast_signed())) }
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
                let reduction = _mm256_set1_epi8(REDUCTION.cast_signed());
                let reduction = _mm256_shuffle_epi8(reduction, self.0);
                Self(_mm256_xor_si256(_mm256_add_epi8(self.0, self.0), reduction))
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

    crate::kernel::entry::entry_points! { #[target_feature(enable = "avx2")] Bytes32, 4 }
}

/// 32 bytes at a time, and products by one instruction.
pub(super) mod gfni {
    use super::avx2::Bytes32;
    use crate::gf;
    use crate::kernel::vector::Vector;
    use std::arch::x86_64::*;

    /// Like [`Bytes32`], except for products.
    #[derive(Clone, Copy)]
    pub(in crate::kernel) struct Bytes32Gfni(Bytes32);

    impl Vector for Bytes32Gfni {
        const LEN: usize = 32;
        const OFFSET: u8 = 0;
        /// A matrix for each eight bytes, all the same.
        type Factor = __m256i;

        #[inline(always)]
        unsafe fn splat(byte: u8) -> Self {
            // SAFETY: the caller's function has the instructions.
            unsafe { Self(Bytes32::splat(byte)) }
        }

        #[inline(always)]
        unsafe fn load(from: &[u8], at: usize) -> Self {
            // SAFETY: the caller's function has the instructions, and the bytes are in the slice.
            unsafe { Self(Bytes32::load(from, at)) }
        }

        #[inline(always)]
        unsafe fn store(self, to: &mut [u8], at: usize) {
            // SAFETY: the caller's function has the instructions, and the bytes are in the slice.
            unsafe { self.0.store(to, at) }
        }

        #[inline(always)]
        unsafe fn xor(self, other: Self) -> Self {
            // SAFETY: the caller's function has the instructions.
            unsafe { Self(self.0.xor(other.0)) }
        }

        #[inline(always)]
        unsafe fn double(self) -> Self {
            // SAFETY: the caller's function has the instructions.
            unsafe { self.mul(Self::factor(2)) }
        }

        #[inline(always)]
        unsafe fn factor(c: u8) -> Self::Factor {
            // SAFETY: the caller's function has the instructions.
            unsafe { _mm256_set1_epi64x(gf::matrix(c).cast_signed()) }
        }

        #[inline(always)]
        unsafe fn mul(self, factor: Self::Factor) -> Self {
            // SAFETY: the caller's function has the instructions.
            unsafe { Self(Bytes32(_mm256_gf2p8affine_epi64_epi8::<0>(self.0.0, factor))) }
        }
    }

    crate::kernel::entry::entry_points! { #[target_feature(enable = "avx2,gfni")] Bytes32Gfni, 4 }
}

/// 64 bytes at a time, and products by one instruction. If two threads share a core, halving the
/// number of instructions gains more than a single thread shows.
pub(super) mod avx512 {
    use crate::gf;
    use crate::kernel::vector::Vector;
    use std::arch::x86_64::*;

    #[derive(Clone, Copy)]
    pub(in crate::kernel) struct Bytes64(__m512i);

    impl Vector for Bytes64 {
        const LEN: usize = 64;
        const OFFSET: u8 = 0;
        /// A matrix for each eight bytes, all the same.
        type Factor = __m512i;

        #[inline(always)]
        unsafe fn splat(byte: u8) -> Self {
            // SAFETY: the caller's function has the instructions.
            unsafe { Self(_mm512_set1_epi8(byte.cast_signed())) }
        }

        #[inline(always)]
        unsafe fn load(from: &[u8], at: usize) -> Self {
            debug_assert!(at + Self::LEN <= from.len());
            // SAFETY: the caller's function has the instructions, and the bytes are in the slice.
            unsafe { Self(_mm512_loadu_si512(from.as_ptr().add(at).cast())) }
        }

        #[inline(always)]
        unsafe fn store(self, to: &mut [u8], at: usize) {
            debug_assert!(at + Self::LEN <= to.len());
            // SAFETY: the caller's function has the instructions, and the bytes are in the slice.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().add(at).cast(), self.0) }
        }

        #[inline(always)]
        unsafe fn xor(self, other: Self) -> Self {
            // SAFETY: the caller's function has the instructions.
            unsafe { Self(_mm512_xor_si512(self.0, other.0)) }
        }

        #[inline(always)]
        unsafe fn double(self) -> Self {
            // SAFETY: the caller's function has the instructions.
            unsafe { self.mul(Self::factor(2)) }
        }

        #[inline(always)]
        unsafe fn factor(c: u8) -> Self::Factor {
            // SAFETY: the caller's function has the instructions.
            unsafe { _mm512_set1_epi64(gf::matrix(c).cast_signed()) }
        }

        #[inline(always)]
        unsafe fn mul(self, factor: Self::Factor) -> Self {
            // SAFETY: the caller's function has the instructions.
            unsafe { Self(_mm512_gf2p8affine_epi64_epi8::<0>(self.0, factor)) }
        }
    }

    crate::kernel::entry::entry_points! {
        #[target_feature(enable = "avx512f,avx512bw,gfni")] Bytes64, 2
    }
}
