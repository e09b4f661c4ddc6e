//! Weighted sums of packets of any lengths; shorter ones count as padded with zeros.

use crate::gf;
use crate::kernel::Kernel;

/// The packets and factors of a set of sums.
pub(crate) trait Terms {
    /// Adds all packets to the sums of the rows from `row` on.
    fn add_to<'a, const ROWS: usize, const FIRST_IS_ONE: bool>(
        &'a self,
        row: usize,
        sum: &mut Sum<'a, '_, ROWS, FIRST_IS_ONE>,
    );
}

/// Writes a sum into each row, two at a time if they are of one length. Packets are cut to the
/// length of a row. The factors of row 0 are one if `first_is_one`.
#[inline]
pub(crate) fn write(
    kernel: Kernel,
    rows: &mut [impl AsMut<[u8]>],
    first_is_one: bool,
    terms: &impl Terms,
) {
    let mut row = 0;
    for rows in rows.chunks_mut(2) {
        if let [a, b] = &mut *rows
            && a.as_mut().len() == b.as_mut().len()
        {
            write_rows(kernel, [a.as_mut(), b.as_mut()], first_is_one && row == 0, row, terms);
        } else {
            for (row, dst) in (row..).zip(rows) {
                write_rows(kernel, [dst.as_mut()], first_is_one && row == 0, row, terms);
            }
        }
        row += 2;
    }
}

#[inline]
fn write_rows<const ROWS: usize>(
    kernel: Kernel,
    dst: [&mut [u8]; ROWS],
    first_is_one: bool,
    row: usize,
    terms: &impl Terms,
) {
    if first_is_one {
        let mut sum = Sum::<ROWS, true>::new(kernel, dst);
        terms.add_to(row, &mut sum);
        sum.finish();
    } else {
        let mut sum = Sum::<ROWS, false>::new(kernel, dst);
        terms.add_to(row, &mut sum);
        sum.finish();
    }
}

/// `p = sum of data[i]`, `q = sum of 2^i * data[i]`.
pub(crate) fn write_pq(kernel: Kernel, data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    let mut packets = data;
    let mut at = 0;
    // Horner's rule needs all packets up to the last one. Usually all are equally long, or the last
    // one is shorter.
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
    let mut sum = Sum::<2, true>::new(kernel, [&mut p[at..], &mut q[at..]]);
    for (i, packet) in packets.iter().enumerate() {
        sum.add(&packet[at.min(packet.len())..], [1, gf::exp(i)]);
    }
    sum.finish();
}

/// Partial sums: packets are collected, and read together.
pub(crate) struct Sum<'a, 'b, const ROWS: usize, const FIRST_IS_ONE: bool> {
    kernel: Kernel,
    /// The rows, of one length.
    dst: [&'b mut [u8]; ROWS],
    packets: [&'a [u8]; GROUP_MAX],
    factors: [[u8; ROWS]; GROUP_MAX],
    /// The number of packets.
    n: usize,
    /// The sums hold earlier packets.
    accumulate: bool,
}

impl<'a, 'b, const ROWS: usize, const FIRST_IS_ONE: bool> Sum<'a, 'b, ROWS, FIRST_IS_ONE> {
    #[inline]
    fn new(kernel: Kernel, dst: [&'b mut [u8]; ROWS]) -> Self {
        let (packets, factors) = ([&[][..]; GROUP_MAX], [[0; ROWS]; GROUP_MAX]);
        Self { kernel, dst, packets, factors, n: 0, accumulate: false }
    }

    /// Adds a packet, by a factor for each row.
    #[inline]
    pub(crate) fn add(&mut self, packet: &'a [u8], factors: [u8; ROWS]) {
        if self.n == GROUP_MAX {
            self.flush();
        }
        self.packets[self.n] = &packet[..packet.len().min(self.dst[0].len())];
        self.factors[self.n] = factors;
        self.n += 1;
    }

    #[inline]
    fn finish(mut self) {
        if self.n > 0 || !self.accumulate {
            self.flush();
        }
    }

    /// Writes or adds the sums of the packets, and clears the packets.
    fn flush(&mut self) {
        let mut at = 0;
        // From the end of one packet to the end of the next longer one.
        while let Some(end) = self.packets[..self.n].iter().map(|packet| packet.len()).min() {
            if end > at {
                let (packets, factors) = (&self.packets[..self.n], &self.factors[..self.n]);
                let rows = self.dst.each_mut().map(|row| &mut row[at..end]);
                let accumulate = self.accumulate;
                self.kernel.sum::<ROWS, FIRST_IS_ONE>(packets, factors, at, rows, accumulate);
                at = end;
            }
            self.forget_up_to(at);
        }
        if !self.accumulate {
            self.dst.iter_mut().for_each(|row| row[at..].fill(0));
            self.accumulate = true;
        }
    }

    /// Removes the packets that end at `at` or before.
    fn forget_up_to(&mut self, at: usize) {
        let mut i = 0;
        while i < self.n {
            if self.packets[i].len() > at {
                i += 1;
                continue;
            }
            self.n -= 1;
            self.packets.swap(i, self.n);
            self.factors.swap(i, self.n);
        }
    }
}

/// More than a block of the default code has. Larger blocks read and write their sums once for
/// each further group.
const GROUP_MAX: usize = 16;
