//! The [`Vector`] trait: register operations, between the [loops](super::loops), which are written
//! once, and the instruction sets.

/// A register of bytes, each an element of the field.
///
/// # Safety
/// Every method needs the instructions of the implementing type: it is called only from a function
/// with that `target_feature`, into which it and its caller are inlined. In addition, `load` and
/// `store` access `LEN` bytes from `at` on, which must lie within the slice.
pub(super) trait Vector: Copy {
    /// Bytes, at most [`LEN_MAX`].
    const LEN: usize;

    /// An offset of each byte that `double` takes and returns: it makes doubling cheaper on some
    /// instruction sets.
    const OFFSET: u8;

    /// A factor in the form that multiplication needs.
    type Factor: Copy;

    /// A register with all bytes equal to `byte`.
    unsafe fn splat(byte: u8) -> Self;

    /// Reads the bytes from `at` on.
    unsafe fn load(from: &[u8], at: usize) -> Self;

    /// Writes the bytes from `at` on.
    unsafe fn store(self, to: &mut [u8], at: usize);

    /// The sum of each byte.
    unsafe fn xor(self, other: Self) -> Self;

    /// The double of each byte, offset by [`OFFSET`](Self::OFFSET).
    unsafe fn double(self) -> Self;

    /// Prepares a factor.
    unsafe fn factor(c: u8) -> Self::Factor;

    /// The product of each byte with the factor.
    unsafe fn mul(self, factor: Self::Factor) -> Self;
}

/// The longest vector of any kernel.
pub(super) const LEN_MAX: usize = 64;
