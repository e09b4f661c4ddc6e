//! What a processor's registers can do: the seam between the [loops](super::loops), which are
//! written once, and the instruction sets.

/// Some bytes in a register, each an element of the field.
///
/// # Safety
/// Every method needs the instructions of the implementing type: it is called only from a function
/// with that `target_feature`, into which it and its caller are inlined. `load` and `store` beyond
/// that access `LEN` bytes from `at` on, which must lie within the slice.
pub(super) trait Vector: Copy {
    /// Bytes, at most [`LEN_MAX`].
    const LEN: usize;

    /// Added to each byte that is given to `double`, and to each that it returns: some instruction
    /// sets have less to do that way.
    const OFFSET: u8;

    /// A factor as multiplication wants it.
    type Factor: Copy;

    /// This byte everywhere.
    unsafe fn splat(byte: u8) -> Self;

    /// Reads the bytes from `at` on.
    unsafe fn load(from: &[u8], at: usize) -> Self;

    /// Writes the bytes from `at` on.
    unsafe fn store(self, to: &mut [u8], at: usize);

    /// The sums.
    unsafe fn xor(self, other: Self) -> Self;

    /// Each byte twice, but for [`OFFSET`](Self::OFFSET).
    unsafe fn double(self) -> Self;

    /// Prepares a factor.
    unsafe fn factor(c: u8) -> Self::Factor;

    /// The products.
    unsafe fn mul(self, factor: Self::Factor) -> Self;
}

/// The longest vector of all.
pub(super) const LEN_MAX: usize = 64;
