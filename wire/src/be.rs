//! Big-endian fields of a fixed-size header.
//!
//! A header is an array here, not a slice: the length is in the type and the offsets are literals.
//! So the compiler removes every bounds check, and no accessor can panic on input.

/// The `M` bytes at `at`, which the callers keep inside the header.
#[inline]
const fn field<const N: usize, const M: usize>(b: &[u8; N], at: usize) -> [u8; M] {
    let mut out = [0; M];
    let mut i = 0;
    while i < M {
        out[i] = b[at + i];
        i += 1;
    }
    out
}

#[inline]
pub(crate) const fn u16_at<const N: usize>(b: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes(field(b, at))
}

/// A 24-bit field, as PSNs, QPNs and MSNs are.
#[inline]
pub(crate) const fn u24_at<const N: usize>(b: &[u8; N], at: usize) -> u32 {
    let [hi, mid, lo] = field(b, at);
    u32::from_be_bytes([0, hi, mid, lo])
}

#[inline]
pub(crate) const fn u32_at<const N: usize>(b: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes(field(b, at))
}

#[inline]
pub(crate) const fn u64_at<const N: usize>(b: &[u8; N], at: usize) -> u64 {
    u64::from_be_bytes(field(b, at))
}

/// Any field of whole bytes, such as an address.
#[inline]
pub(crate) const fn bytes_at<const N: usize, const M: usize>(b: &[u8; N], at: usize) -> [u8; M] {
    field(b, at)
}

/// Writes a field of whole bytes; integers go through `to_be_bytes`.
#[inline]
pub(crate) fn put<const N: usize, const M: usize>(b: &mut [u8; N], at: usize, v: [u8; M]) {
    b[at..at + M].copy_from_slice(&v);
}

/// Writes the low 24 bits of `v`.
#[inline]
pub(crate) fn put_u24<const N: usize>(b: &mut [u8; N], at: usize, v: u32) {
    let [_, hi, mid, lo] = v.to_be_bytes();
    put(b, at, [hi, mid, lo]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: [u8; 9] = [0, 1, 2, 3, 4, 5, 6, 7, 8];

    #[test]
    fn field__reads_most_significant_byte_first() {
        assert_eq!(u16_at(&B, 1), 0x0102);
        assert_eq!(u24_at(&B, 6), 0x06_0708);
        assert_eq!(u32_at(&B, 5), 0x0506_0708);
        assert_eq!(u64_at(&B, 1), 0x0102_0304_0506_0708);
        assert_eq!(bytes_at::<9, 2>(&B, 3), [3, 4]);
    }

    #[test]
    fn put_u24__preserves_adjacent_bytes() {
        let mut b = [9; 5];
        put_u24(&mut b, 1, 0xff01_0203);
        assert_eq!(b, [9, 1, 2, 3, 9]);
    }
}
