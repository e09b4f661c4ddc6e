//! Weighted sums of packets of any lengths: shorter ones end in zeros.

use crate::gf;
use crate::kernel::Kernel;

/// `dst[r] = sum of factor(r, s) * s` over all `sources`, which are cut to the length of a row. The
/// factors of row 0 are one if `FIRST_IS_ONE`.
pub(crate) fn write<'a, S: Copy, const FIRST_IS_ONE: bool>(
    kernel: Kernel,
    dst: &mut [impl AsMut<[u8]>],
    sources: &(impl Iterator<Item = (S, &'a [u8])> + Clone),
    factor: impl Fn(usize, S) -> u8,
) {
    let mut row = 0;
    for rows in dst.chunks_mut(2) {
        let first_is_one = FIRST_IS_ONE && row == 0;
        if let [a, b] = &mut *rows
            && a.as_mut().len() == b.as_mut().len()
        {
            let factors = |s| [factor(row, s), factor(row + 1, s)];
            let sources = sources.clone().map(|(s, bytes)| (bytes, factors(s)));
            let dst = [a.as_mut(), b.as_mut()];
            match first_is_one {
                true => write_rows::<2, true>(kernel, sources, dst),
                false => write_rows::<2, false>(kernel, sources, dst),
            }
        } else {
            for (row, dst) in (row..).zip(rows) {
                let sources = sources.clone().map(|(s, bytes)| (bytes, [factor(row, s)]));
                let dst = [dst.as_mut()];
                match first_is_one && row == 0 {
                    true => write_rows::<1, true>(kernel, sources, dst),
                    false => write_rows::<1, false>(kernel, sources, dst),
                }
            }
        }
        row += 2;
    }
}

/// `p = sum of data[i]`, `q = sum of 2^i * data[i]`.
pub(crate) fn write_pq(kernel: Kernel, data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    let mut packets = data;
    let mut at = 0;
    // Horner's rule wants all packets up to the last one. As a rule they are equally long, or the
    // last one is shorter.
    while let Some(end) = packets.iter().map(|packet| packet.len()).min() {
        if end > at {
            kernel.horner(packets, at, &mut p[at..end], &mut q[at..end]);
            at = end;
        }
        match packets {
            [rest @ .., last] if last.len() <= at => packets = rest,
            _ => break,
        }
    }
    let rest =
        (0..).zip(packets).map(|(i, packet)| (&packet[at.min(packet.len())..], [1, gf::exp(i)]));
    write_rows::<2, true>(kernel, rest, [&mut p[at..], &mut q[at..]]);
}

/// `dst[r] = sum of factors[r] * source`; rows are of one length.
fn write_rows<'a, const ROWS: usize, const FIRST_IS_ONE: bool>(
    kernel: Kernel,
    mut sources: impl Iterator<Item = (&'a [u8], [u8; ROWS])>,
    mut dst: [&mut [u8]; ROWS],
) {
    let len = dst[0].len();
    let mut accumulate = false;
    loop {
        let mut group = Group { sources: [&[]; GROUP_MAX], factors: [[0; ROWS]; GROUP_MAX], n: 0 };
        for (source, factors) in sources.by_ref().take(GROUP_MAX) {
            group.sources[group.n] = &source[..source.len().min(len)];
            group.factors[group.n] = factors;
            group.n += 1;
        }
        let last = group.n < GROUP_MAX;
        let end = group.sum_up::<FIRST_IS_ONE>(kernel, &mut dst, accumulate);
        if !accumulate {
            for row in &mut dst {
                row[end..].fill(0);
            }
        }
        if last {
            return;
        }
        accumulate = true;
    }
}

/// Sources that are read together.
struct Group<'a, const ROWS: usize> {
    sources: [&'a [u8]; GROUP_MAX],
    factors: [[u8; ROWS]; GROUP_MAX],
    /// How many there are.
    n: usize,
}

impl<const ROWS: usize> Group<'_, ROWS> {
    /// Writes or adds the sums, as far as the longest source reaches; says how far that is.
    fn sum_up<const FIRST_IS_ONE: bool>(
        mut self,
        kernel: Kernel,
        dst: &mut [&mut [u8]; ROWS],
        accumulate: bool,
    ) -> usize {
        let mut at = 0;
        // From the end of one source to the end of the next longer one.
        while let Some(end) = self.sources[..self.n].iter().map(|source| source.len()).min() {
            if end > at {
                let (sources, factors) = (&self.sources[..self.n], &self.factors[..self.n]);
                let rows = dst.each_mut().map(|row| &mut row[at..end]);
                kernel.sum::<ROWS, FIRST_IS_ONE>(sources, factors, at, rows, accumulate);
                at = end;
            }
            let mut i = 0;
            while i < self.n {
                if self.sources[i].len() > at {
                    i += 1;
                    continue;
                }
                self.n -= 1;
                self.sources.swap(i, self.n);
                self.factors.swap(i, self.n);
            }
        }
        at
    }
}

/// More than a block of the default code has. Larger blocks read and write their sums once more for
/// each further group.
const GROUP_MAX: usize = 16;
