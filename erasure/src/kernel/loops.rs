//! The loops over the bytes, once for all instruction sets.
//!
//! No vector access crosses the end of a slice: the bytes after the last whole vector are copied
//! into a padded vector and back. Everything is inlined into the entry points, whose target
//! features are those of `V`: a function call in between would pass vectors in memory.

use super::vector::{LEN_MAX, Vector};

/// `dst[r] ^= factors[r] * src` for each row, and `dst[0] ^= src` if `FIRST_IS_ONE`.
///
/// # Safety
/// The processor has the instructions of `V`. All of `dst` are as long as `src`.
#[inline(always)]
pub(super) unsafe fn add<V: Vector, const ROWS: usize, const FIRST_IS_ONE: bool>(
    src: &[u8],
    factors: [u8; ROWS],
    dst: [&mut [u8]; ROWS],
) {
    // SAFETY: the caller guarantees the instructions and the lengths; `at + N * LEN` is within
    // them by the conditions of the loops, and a pad is as long as the longest vector.
    unsafe {
        let mut ready = [V::factor(0); ROWS];
        for (ready, factor) in ready.iter_mut().zip(factors) {
            *ready = V::factor(factor);
        }
        let mut dst = dst;
        let mut at = 0;
        while src.len() - at >= 2 * V::LEN {
            add_vectors::<V, ROWS, FIRST_IS_ONE, 2>(src, ready, &mut dst, at);
            at += 2 * V::LEN;
        }
        if src.len() - at >= V::LEN {
            add_vectors::<V, ROWS, FIRST_IS_ONE, 1>(src, ready, &mut dst, at);
            at += V::LEN;
        }
        if at < src.len() {
            let src = pad(src, at);
            for (r, dst) in dst.iter_mut().enumerate() {
                let mut padded = pad(dst, at);
                let one = FIRST_IS_ONE && r == 0;
                let bytes = V::load(&src, 0);
                let product = if one { bytes } else { bytes.mul(ready[r]) };
                V::load(&padded, 0).xor(product).store(&mut padded, 0);
                unpad(&padded, dst, at);
            }
        }
    }
}

/// # Safety
/// As [`add`]; `N` vectors from `at` on are within the slices.
#[inline(always)]
unsafe fn add_vectors<V: Vector, const ROWS: usize, const FIRST_IS_ONE: bool, const N: usize>(
    src: &[u8],
    factors: [V::Factor; ROWS],
    dst: &mut [&mut [u8]; ROWS],
    at: usize,
) {
    // SAFETY: the caller's guarantees.
    unsafe {
        for n in 0..N {
            let at = at + n * V::LEN;
            let bytes = V::load(src, at);
            for r in 0..ROWS {
                let one = FIRST_IS_ONE && r == 0;
                let product = if one { bytes } else { bytes.mul(factors[r]) };
                V::load(dst[r], at).xor(product).store(dst[r], at);
            }
        }
    }
}

/// `dst[r] = sum of factors[s][r] * sources[s][at..]` for each row, or `^=` if `accumulate`; the
/// first row's factors are one if `FIRST_IS_ONE`. `N` vectors of each row at a time stay in
/// registers over all sources.
///
/// # Safety
/// The processor has the instructions of `V`. All of `dst` are of one length, and from `at` on each
/// source is as long. There are as many factors as sources.
#[inline(always)]
pub(super) unsafe fn sum<V: Vector, const ROWS: usize, const FIRST_IS_ONE: bool, const N: usize>(
    sources: &[&[u8]],
    factors: &[[u8; ROWS]],
    at: usize,
    dst: [&mut [u8]; ROWS],
    accumulate: bool,
) {
    // SAFETY: the caller guarantees the instructions and the lengths; `done + N * LEN` is within
    // them by the conditions of the loops, and a pad is as long as the longest vector.
    unsafe {
        let mut dst = dst;
        let len = dst.first().map_or(0, |row| row.len());
        let mut done = 0;
        while len - done >= N * V::LEN {
            sum_vectors::<V, ROWS, FIRST_IS_ONE, N>(
                sources, factors, at, &mut dst, done, accumulate,
            );
            done += N * V::LEN;
        }
        while len - done >= V::LEN {
            sum_vectors::<V, ROWS, FIRST_IS_ONE, 1>(
                sources, factors, at, &mut dst, done, accumulate,
            );
            done += V::LEN;
        }
        if done == len {
            return;
        }
        let mut sums = [V::splat(0); ROWS];
        for (source, factors) in sources.iter().zip(factors) {
            let bytes = V::load(&pad(&source[..at + len], at + done), 0);
            for r in 0..ROWS {
                let one = FIRST_IS_ONE && r == 0;
                let product = if one { bytes } else { bytes.mul(V::factor(factors[r])) };
                sums[r] = sums[r].xor(product);
            }
        }
        for r in 0..ROWS {
            let mut padded = if accumulate { pad(dst[r], done) } else { [0; LEN_MAX] };
            V::load(&padded, 0).xor(sums[r]).store(&mut padded, 0);
            unpad(&padded, dst[r], done);
        }
    }
}

/// # Safety
/// As [`sum`]; `N` vectors from `done` on are within the rows.
#[inline(always)]
unsafe fn sum_vectors<V: Vector, const ROWS: usize, const FIRST_IS_ONE: bool, const N: usize>(
    sources: &[&[u8]],
    factors: &[[u8; ROWS]],
    at: usize,
    dst: &mut [&mut [u8]; ROWS],
    done: usize,
    accumulate: bool,
) {
    // SAFETY: the caller's guarantees.
    unsafe {
        let mut sums = [[V::splat(0); ROWS]; N];
        if accumulate {
            for (n, sums) in sums.iter_mut().enumerate() {
                for (sum, row) in sums.iter_mut().zip(&*dst) {
                    *sum = V::load(row, done + n * V::LEN);
                }
            }
        }
        for (source, factors) in sources.iter().zip(factors) {
            let mut ready = [V::factor(0); ROWS];
            for r in 0..ROWS {
                ready[r] = V::factor(factors[r]);
            }
            for (n, sums) in sums.iter_mut().enumerate() {
                let bytes = V::load(source, at + done + n * V::LEN);
                for r in 0..ROWS {
                    let one = FIRST_IS_ONE && r == 0;
                    let product = if one { bytes } else { bytes.mul(ready[r]) };
                    sums[r] = sums[r].xor(product);
                }
            }
        }
        for (n, sums) in sums.into_iter().enumerate() {
            for (sum, row) in sums.into_iter().zip(&mut *dst) {
                sum.store(row, done + n * V::LEN);
            }
        }
    }
}

/// `p = sum of sources[j][at..]` and `q = sum of 2^j * sources[j][at..]`, by Horner: from the last
/// source to the first, double and add.
///
/// # Safety
/// The processor has the instructions of `V`. `p` and `q` are of one length, and from `at` on each
/// source is as long.
#[inline(always)]
pub(super) unsafe fn horner<V: Vector, const N: usize>(
    sources: &[&[u8]],
    at: usize,
    p: &mut [u8],
    q: &mut [u8],
) {
    // SAFETY: the caller guarantees the instructions and the lengths; `done + N * LEN` is within
    // them by the conditions of the loops, and a pad is as long as the longest vector.
    unsafe {
        let mut done = 0;
        while p.len() - done >= N * V::LEN {
            horner_vectors::<V, N>(sources, at, p, q, done);
            done += N * V::LEN;
        }
        while p.len() - done >= V::LEN {
            horner_vectors::<V, 1>(sources, at, p, q, done);
            done += V::LEN;
        }
        if done == p.len() {
            return;
        }
        let (mut sum, mut weighted) = (V::splat(0), V::splat(V::OFFSET));
        for source in sources.iter().rev() {
            let bytes = V::load(&pad(&source[..at + p.len()], at + done), 0);
            sum = sum.xor(bytes);
            weighted = weighted.double().xor(bytes);
        }
        for (vector, row) in [(sum, p), (weighted.xor(V::splat(V::OFFSET)), q)] {
            let mut padded = [0; LEN_MAX];
            vector.store(&mut padded, 0);
            unpad(&padded, row, done);
        }
    }
}

/// # Safety
/// As [`horner`]; `N` vectors from `done` on are within the rows.
#[inline(always)]
unsafe fn horner_vectors<V: Vector, const N: usize>(
    sources: &[&[u8]],
    at: usize,
    p: &mut [u8],
    q: &mut [u8],
    done: usize,
) {
    // SAFETY: the caller's guarantees.
    unsafe {
        let (mut sums, mut weighted) = ([V::splat(0); N], [V::splat(V::OFFSET); N]);
        for source in sources.iter().rev() {
            for (n, (sum, weighted)) in sums.iter_mut().zip(&mut weighted).enumerate() {
                let bytes = V::load(source, at + done + n * V::LEN);
                *sum = sum.xor(bytes);
                *weighted = weighted.double().xor(bytes);
            }
        }
        for (n, (sum, weighted)) in sums.into_iter().zip(weighted).enumerate() {
            sum.store(p, done + n * V::LEN);
            weighted.xor(V::splat(V::OFFSET)).store(q, done + n * V::LEN);
        }
    }
}

/// The bytes from `at` to the end, fewer than a vector, padded with zeros.
#[inline(always)]
fn pad(bytes: &[u8], at: usize) -> [u8; LEN_MAX] {
    let mut padded = [0; LEN_MAX];
    let rest = &bytes[at..];
    padded[..rest.len()].copy_from_slice(rest);
    padded
}

/// Copies the padded bytes back.
#[inline(always)]
fn unpad(padded: &[u8; LEN_MAX], bytes: &mut [u8], at: usize) {
    let rest = &mut bytes[at..];
    rest.copy_from_slice(&padded[..rest.len()]);
}
