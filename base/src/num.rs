//! The three integer conversions that cannot fail on supported machines, so that no `as` is needed
//! elsewhere.

const _: () = assert!(usize::BITS == 64, "Spanwire is built for 64-bit machines");

/// `u64` from `usize`: the same width.
#[must_use]
pub const fn u64_from(n: usize) -> u64 {
    n as u64
}

/// `usize` from `u64`: the same width on 64-bit machines, checked above at compile time.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "usize is 64 bits wide, asserted above")]
pub const fn usize_from(n: u64) -> usize {
    n as usize
}

/// `u32` from `usize`, for lengths that a limit already bounds below 4 GiB.
///
/// # Panics
/// If `n` does not fit, because the caller did not check its limit.
#[must_use]
pub fn u32_from(n: usize) -> u32 {
    u32::try_from(n).expect("a length under its limit fits 32 bits")
}
