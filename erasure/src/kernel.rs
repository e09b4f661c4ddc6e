//! The kernels: the operations on every byte, by the best instructions of the processor.

/// Calls an entry point of a kernel. The processor has its instructions, since no such kernel
/// exists otherwise. The caller upholds the entry point's other requirements.
macro_rules! dispatch {
    ($kernel:expr, $($call:tt)+) => {
        match $kernel.0 {
            Instructions::Scalar => scalar::$($call)+,
            #[cfg(target_arch = "x86_64")]
            Instructions::Ssse3 => x86::ssse3::$($call)+,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => x86::avx2::$($call)+,
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni => x86::gfni::$($call)+,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => x86::avx512::$($call)+,
            #[cfg(target_arch = "aarch64")]
            Instructions::Neon => neon::$($call)+,
        }
    };
}

mod entry;
mod loops;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(test)]
mod tests;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::fmt;

/// An instruction set for coding that this processor has.
///
/// All give the same bytes. A [`Code`](crate::Code) uses the best one by default; tests and
/// benchmarks select others.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kernel(Instructions);

/// From slow to fast. A value other than `Scalar` is constructed only by
/// [`Instructions::is_available`], which the calls of the entry points rely on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Instructions {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Ssse3,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Gfni,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Kernel {
    /// The fastest kernel of this processor. The standard library caches the detection.
    #[must_use]
    pub fn best() -> Self {
        Self::available().last().unwrap_or(Self(Instructions::Scalar))
    }

    /// All kernels of this processor, the slowest first; `scalar` is always included.
    pub fn available() -> impl Iterator<Item = Self> {
        ALL.iter().copied().filter(|set| set.is_available()).map(Self)
    }

    /// The kernel of this name; none if the processor lacks it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::available().find(|kernel| kernel.name() == name)
    }

    /// `scalar`, `ssse3`, `avx2`, `gfni` (with AVX2), `avx512` (with GFNI) or `neon`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Instructions::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Instructions::Ssse3 => "ssse3",
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni => "gfni",
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => "avx512",
            #[cfg(target_arch = "aarch64")]
            Instructions::Neon => "neon",
        }
    }

    /// `dst[r] ^= factors[r] * src`, and `dst[0] ^= src` if `FIRST_IS_ONE`, whatever its factor.
    ///
    /// # Panics
    /// The slices differ in length.
    #[inline]
    pub(crate) fn add<const ROWS: usize, const FIRST_IS_ONE: bool>(
        self,
        src: &[u8],
        factors: [u8; ROWS],
        dst: [&mut [u8]; ROWS],
    ) {
        assert!(dst.iter().all(|row| row.len() == src.len()), "rows of one length");
        // SAFETY: the lengths are equal.
        unsafe { dispatch!(self, add::<ROWS, FIRST_IS_ONE>(src, factors, dst)) }
    }

    /// `dst[r] = sum of factors[s][r] * sources[s][at..]`, or `^=` if `accumulate`; the first row's
    /// factors are one if `FIRST_IS_ONE`.
    ///
    /// # Panics
    /// The rows differ in length, a source ends before they do, or there are not as many factors as
    /// sources.
    #[inline]
    pub(crate) fn sum<const ROWS: usize, const FIRST_IS_ONE: bool>(
        self,
        sources: &[&[u8]],
        factors: &[[u8; ROWS]],
        at: usize,
        dst: [&mut [u8]; ROWS],
        accumulate: bool,
    ) {
        let len = dst[0].len();
        assert!(dst.iter().all(|row| row.len() == len), "rows of one length");
        assert!(
            sources.iter().all(|source| source.len() >= at + len),
            "sources at least as long as the rows"
        );
        assert_eq!(sources.len(), factors.len(), "a factor for each source");
        // SAFETY: the lengths were checked.
        unsafe { dispatch!(self, sum::<ROWS, FIRST_IS_ONE>(sources, factors, at, dst, accumulate)) }
    }

    /// `p = sum of sources[j][at..]`, `q = sum of 2^j * sources[j][at..]`.
    ///
    /// # Panics
    /// `p` and `q` differ in length, or a source ends before they do.
    #[inline]
    pub(crate) fn horner(self, sources: &[&[u8]], at: usize, p: &mut [u8], q: &mut [u8]) {
        assert_eq!(p.len(), q.len(), "rows of one length");
        assert!(
            sources.iter().all(|source| source.len() >= at + p.len()),
            "sources at least as long as the rows"
        );
        // SAFETY: the lengths were checked.
        unsafe { dispatch!(self, horner(sources, at, p, q)) }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Instructions {
    fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Ssse3 => is_x86_feature_detected!("ssse3"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Gfni => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("gfni")
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
        }
    }
}

const ALL: &[Instructions] = &[
    Instructions::Scalar,
    #[cfg(target_arch = "x86_64")]
    Instructions::Ssse3,
    #[cfg(target_arch = "x86_64")]
    Instructions::Avx2,
    #[cfg(target_arch = "x86_64")]
    Instructions::Gfni,
    #[cfg(target_arch = "x86_64")]
    Instructions::Avx512,
    #[cfg(target_arch = "aarch64")]
    Instructions::Neon,
];
