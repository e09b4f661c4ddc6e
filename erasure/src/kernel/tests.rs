//! Every kernel of this processor, compared with products computed one by one.

use super::*;
use crate::gf;

/// Reproducible bytes without a pattern.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56).to_le_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

/// Output rows within larger buffers: the bytes around them must not change.
struct Rows {
    before: Vec<Vec<u8>>,
    after: Vec<Vec<u8>>,
    range: std::ops::Range<usize>,
}

impl Rows {
    fn new(rows: usize, offset: usize, len: usize) -> Self {
        let before: Vec<_> = (0..rows).map(|r| noise(len + 2 * MARGIN, r as u64 + 99)).collect();
        let start = MARGIN + offset - 32;
        Self { after: before.clone(), before, range: start..start + len }
    }

    fn slices<const N: usize>(&mut self) -> [&mut [u8]; N] {
        let range = self.range.clone();
        let mut rows = self.after.iter_mut().map(|row| &mut row[range.clone()]);
        std::array::from_fn(|_| rows.next().unwrap())
    }

    /// Checks all rows: `wanted` maps row `r`, byte `i` and its old value to the new value.
    fn check(&self, what: &str, wanted: impl Fn(usize, usize, u8) -> u8) {
        for (r, (before, after)) in self.before.iter().zip(&self.after).enumerate() {
            for (at, (&before, &after)) in before.iter().zip(after).enumerate() {
                let inside = self.range.contains(&at);
                let wanted = if inside { wanted(r, at - self.range.start, before) } else { before };
                assert_eq!(after, wanted, "{what}: row {r}, byte {at} of {:?}", self.range);
            }
        }
    }
}

fn check_add<const ROWS: usize, const FIRST_IS_ONE: bool>(
    kernel: Kernel,
    offset: usize,
    src: &[u8],
) {
    let factors: [u8; ROWS] = std::array::from_fn(|r| noise(4, src.len() as u64)[r]);
    let mut rows = Rows::new(ROWS, 32 + offset % 7, src.len());
    kernel.add::<ROWS, FIRST_IS_ONE>(src, factors, rows.slices());
    rows.check(&format!("{kernel}, {ROWS} rows of {}", src.len()), |r, i, before| {
        let factor = if FIRST_IS_ONE && r == 0 { 1 } else { factors[r] };
        before ^ gf::mul(factor, src[i])
    });
}

#[test]
fn add__every_kernel_length_and_offset() {
    for kernel in Kernel::available() {
        for (len, offset) in (0..=200).flat_map(|len| [0, 1, 17, 31].map(|offset| (len, offset))) {
            let bytes = noise(offset + len, len as u64);
            check_add::<1, false>(kernel, offset, &bytes[offset..]);
            check_add::<1, true>(kernel, offset, &bytes[offset..]);
            check_add::<2, false>(kernel, offset, &bytes[offset..]);
            check_add::<2, true>(kernel, offset, &bytes[offset..]);
        }
    }
}

#[test]
fn add__every_product() {
    let all: Vec<u8> = (0..=255).collect();
    for (kernel, c) in Kernel::available().flat_map(|k| (0..=255).map(move |c| (k, c))) {
        let mut out = [vec![0; 256], vec![0; 256]];
        let [a, b] = out.each_mut().map(|row| &mut row[..]);
        kernel.add::<2, false>(&all, [c, 255 - c], [a, b]);
        for x in 0..=255u8 {
            let both = [out[0][usize::from(x)], out[1][usize::from(x)]];
            assert_eq!(both, [gf::mul(c, x), gf::mul(255 - c, x)], "{kernel}: {c} * {x}");
        }
    }
}

/// Sources of different lengths, all longer than `at + len`, at odd addresses.
fn sources(count: usize, at: usize, len: usize) -> Vec<Vec<u8>> {
    (0..count).map(|s| noise(at + len + s % 3, (s * 1000 + len) as u64)).collect()
}

fn check_sum<const ROWS: usize, const FIRST_IS_ONE: bool>(
    kernel: Kernel,
    count: usize,
    len: usize,
) {
    let at = len % 5;
    let owned = sources(count, at, len);
    let sources: Vec<&[u8]> = owned.iter().map(|s| &s[..]).collect();
    let factor = |s: usize, r| noise(2, s as u64 + 7)[r];
    let factors: Vec<[u8; ROWS]> =
        (0..count).map(|s| std::array::from_fn(|r| factor(s, r))).collect();
    for accumulate in [false, true] {
        let mut rows = Rows::new(ROWS, 32 + len % 11, len);
        kernel.sum::<ROWS, FIRST_IS_ONE>(&sources, &factors, at, rows.slices(), accumulate);
        rows.check(&format!("{kernel}, {ROWS} sums of {count}"), |r, i, before| {
            let of = |s: usize| if FIRST_IS_ONE && r == 0 { 1 } else { factors[s][r] };
            let start = if accumulate { before } else { 0 };
            (0..count).fold(start, |sum, s| sum ^ gf::mul(of(s), sources[s][at + i]))
        });
    }
}

#[test]
fn sum__every_kernel_and_length() {
    for kernel in Kernel::available() {
        for len in 0..=200 {
            let count = len % 10;
            check_sum::<1, false>(kernel, count, len);
            check_sum::<1, true>(kernel, count, len);
            check_sum::<2, false>(kernel, count, len);
            check_sum::<2, true>(kernel, count, len);
        }
    }
}

#[test]
fn horner__every_kernel_and_length() {
    for (kernel, len) in Kernel::available().flat_map(|k| (0..=200).map(move |len| (k, len))) {
        let (at, count) = (len % 5, len % 12);
        let owned = sources(count, at, len);
        let sources: Vec<&[u8]> = owned.iter().map(|s| &s[..]).collect();
        let mut rows = Rows::new(2, 32 + len % 13, len);
        let [p, q] = rows.slices();
        kernel.horner(&sources, at, p, q);
        rows.check(&format!("{kernel}, {count} sources of {len}"), |r, i, _| {
            (0..count).fold(0, |sum, s| sum ^ gf::mul(gf::exp(s * r), sources[s][at + i]))
        });
    }
}

#[test]
fn horner__more_sources_than_powers() {
    for kernel in Kernel::available() {
        let owned = sources(255, 0, 77);
        let sources: Vec<&[u8]> = owned.iter().map(|s| &s[..]).collect();
        let mut rows = Rows::new(2, 32, 77);
        let [p, q] = rows.slices();
        kernel.horner(&sources, 0, p, q);
        rows.check(&format!("{kernel}"), |r, i, _| {
            (0..255).fold(0, |sum, s| sum ^ gf::mul(gf::exp(s * r), sources[s][i]))
        });
    }
}

#[test]
fn available__scalar_first_and_best_last() {
    let names: Vec<_> = Kernel::available().map(Kernel::name).collect();
    assert_eq!(names[0], "scalar");
    assert_eq!(*names.last().unwrap(), Kernel::best().name());
    for name in names {
        assert_eq!(Kernel::named(name).unwrap().to_string(), name);
    }
    assert_eq!(Kernel::named("abacus"), None);
}

#[test]
#[should_panic(expected = "sources at least as long as the rows")]
fn sum__a_source_that_is_too_short_is_rejected() {
    let mut out = [0; 9];
    Kernel::best().sum::<1, false>(&[&[0; 10]], &[[1]], 2, [&mut out], false);
}

#[test]
#[should_panic(expected = "rows of one length")]
fn add__rows_of_other_lengths_are_rejected() {
    let (mut a, mut b) = ([0; 9], [0; 8]);
    Kernel::best().add::<2, false>(&[0; 9], [1, 2], [&mut a, &mut b]);
}

#[test]
#[should_panic(expected = "sources at least as long as the rows")]
fn horner__a_source_that_is_too_short_is_rejected() {
    let (mut p, mut q) = ([0; 9], [0; 9]);
    Kernel::best().horner(&[&[0; 9], &[0; 8]], 0, &mut p, &mut q);
}

const MARGIN: usize = 64;
