//! A checksum that covers header fields which a socket sets or hides.
//!
//! RoCEv2's ICRC covers IPv4's identification. The kernel numbers the segments of one send from 0
//! and hides the number from the receiver. A sender must therefore seal each segment for the number
//! that it will have, and a receiver must find out which number it had.

/// The port's knowledge of a checksum in the last four bytes of each IP packet, least
/// significant byte first. It must be linear, as a CRC is.
#[derive(Clone, Copy, Debug)]
pub struct PacketChecksum {
    /// The state of the checksum behind an IP and UDP header, `outer`: all that it depends on
    /// before the payload. `None` if `outer` is something else.
    pub prefix: fn(outer: &[u8]) -> Option<u32>,
    /// The XOR of the computed and the sent checksum of a packet, of which `rest` are the bytes
    /// behind the UDP header; zero if that is right. `None` if the packet has none.
    pub residue: fn(prefix: u32, rest: &[u8]) -> Option<u32>,
    /// The change of the checksum for each bit of a field of 16 bits, big-endian, at an offset in
    /// an IP packet: its bytes up to the checksum, then the offset.
    pub change: fn(covered_len: usize, at: usize) -> [u32; 16],
}

/// A checksum with recently computed changes, which depend on a packet's length only.
#[derive(Debug)]
pub(super) struct Adjuster {
    checksum: PacketChecksum,
    recent: [Change; RECENT],
}

#[derive(Clone, Copy, Debug, Default)]
struct Change {
    covered_len: usize,
    at: usize,
    bits: [u32; 16],
}

impl Adjuster {
    pub(super) fn new(checksum: PacketChecksum) -> Self {
        Self { checksum, recent: [Change::default(); RECENT] }
    }

    /// Adjusts the checksum of `packet` after bits of the field at `at` have been inverted: those
    /// that are set in `difference`. A packet without a checksum keeps none.
    pub(super) fn adjust(&mut self, packet: &mut [u8], at: usize, difference: u16) {
        if !is_sealed(packet) {
            return;
        }
        let Some(covered_len) = covered(packet.len(), at) else { return };
        let change = combine(self.change(covered_len, at), difference);
        let (_, checksum) = packet.split_at_mut(covered_len);
        for (byte, change) in checksum.iter_mut().zip(change.to_le_bytes()) {
            *byte ^= change;
        }
    }

    /// The identification with which the checksum of an IPv4 packet is right; probably `predicted`.
    /// `None` if there is none, or if it is another and above `max`. `prefix` is
    /// [`Adjuster::prefix`] of the packet's headers with identification 0.
    #[inline]
    pub(super) fn identify(
        &mut self,
        packet: &[u8],
        prefix: u32,
        (predicted, max): (u16, u16),
    ) -> Option<u16> {
        let covered_len = covered(packet.len(), IDENTIFICATION_AT)?;
        let residue = (self.checksum.residue)(prefix, packet.get(V4_OUTER..)?)?;
        let change = self.change(covered_len, IDENTIFICATION_AT);
        if residue == combine(change, predicted) {
            return Some(predicted);
        }
        solve(change, residue).filter(|id| *id <= max)
    }

    /// The checksum's state behind an IP and UDP header.
    pub(super) fn prefix(&self, outer: &[u8]) -> Option<u32> {
        (self.checksum.prefix)(outer)
    }

    fn change(&mut self, covered_len: usize, at: usize) -> &[u32; 16] {
        let entry = &mut self.recent[(covered_len / 4 + at) % RECENT];
        if (entry.covered_len, entry.at) != (covered_len, at) {
            let bits = (self.checksum.change)(covered_len, at);
            *entry = Change { covered_len, at, bits };
        }
        &entry.bits
    }
}

/// The packet at the end of `frame` has a checksum: it is not zero. Of 2^32 packets with one, one
/// is taken for a packet without.
pub(super) fn is_sealed(frame: &[u8]) -> bool {
    frame.last_chunk::<CHECKSUM_BYTES>().is_some_and(|sum| *sum != [0; CHECKSUM_BYTES])
}

/// Bytes of a packet up to its checksum, if the field at `at` is among them.
fn covered(packet_len: usize, at: usize) -> Option<usize> {
    packet_len.checked_sub(CHECKSUM_BYTES).filter(|covered| at + 2 <= *covered)
}

fn combine(bits: &[u32; 16], difference: u16) -> u32 {
    let mut left = difference;
    let mut change = 0;
    while left != 0 {
        change ^= bits[usize::from(left.trailing_zeros().to_le_bytes()[0])];
        left &= left - 1;
    }
    change
}

/// The bits whose changes combine to `residue`, by Gaussian elimination.
fn solve(bits: &[u32; 16], residue: u32) -> Option<u16> {
    // A combination of changes by its highest bit, and the bits that make it.
    let mut basis = [(0_u32, 0_u16); 32];
    let reduce = |basis: &[(u32, u16); 32], mut value: u32, mut made_of: u16| {
        while value != 0 {
            let (other, others_bits) = basis[top(value)];
            if other == 0 {
                break;
            }
            value ^= other;
            made_of ^= others_bits;
        }
        (value, made_of)
    };
    for (bit, change) in bits.iter().enumerate() {
        let (value, made_of) = reduce(&basis, *change, 1 << bit);
        if value != 0 {
            basis[top(value)] = (value, made_of);
        }
    }
    let (left, made_of) = reduce(&basis, residue, 0);
    (left == 0).then_some(made_of)
}

/// The number of the highest bit that is set.
fn top(value: u32) -> usize {
    usize::from(value.ilog2().to_le_bytes()[0])
}

/// Bytes of an IPv4 header without options and a UDP header.
const V4_OUTER: usize = 28;
/// Offset of the identification in an IPv4 header.
pub(super) const IDENTIFICATION_AT: usize = 4;
/// The highest identification that a receiver accepts by default: twice the segments of a send. The
/// more it accepts, the fewer bits of the checksum protect a packet; with these 128 it is 25 of 32.
pub(super) const IDENTIFICATION_MAX: u16 = 127;
const CHECKSUM_BYTES: usize = 4;
const RECENT: usize = 64;

/// A linear checksum for tests.
#[cfg(test)]
pub(super) mod testing {
    use super::PacketChecksum;

    pub(in super::super) const SUM: PacketChecksum = PacketChecksum {
        prefix: |outer| Some(sum(outer)),
        residue: |prefix, rest| {
            let (covered, sent) = rest.split_last_chunk::<4>()?;
            Some(covered.iter().fold(prefix, add) ^ u32::from_le_bytes(*sent))
        },
        change: |covered_len, at| {
            let of = |bit: usize| {
                let mut bytes = vec![0; covered_len];
                bytes[0] = if at == 40 { 0x60 } else { 0x45 };
                bytes[at + usize::from(bit < 8)] = 1 << (bit % 8);
                sum(&bytes)
            };
            std::array::from_fn(of)
        },
    };

    /// Rotations and XOR over the fields that tests change, and the payload.
    pub(in super::super) fn sum(covered: &[u8]) -> u32 {
        let is_v4 = covered.first().is_some_and(|byte| byte >> 4 == 4);
        let ports = if is_v4 { 20..24 } else { 40..44 };
        let identification = if is_v4 { 4..6 } else { 0..0 };
        let payload = ports.start + 8..covered.len();
        let places = identification.chain(ports).chain(payload);
        places.map(|at| covered.get(at).unwrap_or(&0)).fold(0, add)
    }

    fn add(sum: u32, byte: &u8) -> u32 {
        sum.rotate_left(11) ^ u32::from(*byte)
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{SUM, sum};
    use super::*;

    fn packet(len: usize, id: u16) -> Vec<u8> {
        let mut packet: Vec<u8> = (0..len).map(|n| (n * 7).to_le_bytes()[0]).collect();
        packet[0] = 0x45;
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        let covered = len - CHECKSUM_BYTES;
        let sum = sum(&packet[..covered]);
        packet[covered..].copy_from_slice(&sum.to_le_bytes());
        packet
    }

    #[test]
    fn adjust__makes_the_checksum_that_of_the_changed_field() {
        let mut adjuster = Adjuster::new(SUM);
        for (len, id) in [(60, 1u16), (1500, 63), (60, 0x8001), (32, 0xffff)] {
            let mut adjusted = packet(len, 0);
            adjusted[4..6].copy_from_slice(&id.to_be_bytes());
            adjuster.adjust(&mut adjusted, IDENTIFICATION_AT, id);
            assert_eq!(adjusted, packet(len, id));
        }
        let mut short = [1, 2, 3];
        adjuster.adjust(&mut short, IDENTIFICATION_AT, 1);
        assert_eq!(short, [1, 2, 3]);
    }

    #[test]
    fn solve__finds_a_combination_or_none() {
        let bits: [u32; 16] =
            std::array::from_fn(|n| 0x9e37_79b9_u32.rotate_left(5 * u32::try_from(n).unwrap()) | 1);
        for wanted in [0, 1, 0x8000, 0xffff, 0x1234] {
            let found = solve(&bits, combine(&bits, wanted)).expect("it is a combination");
            assert_eq!(combine(&bits, found), combine(&bits, wanted));
        }
        let few: [u32; 16] = std::array::from_fn(|n| 1 << n);
        assert_eq!((solve(&few, 0x8001), solve(&few, 1 << 16)), (Some(0x8001), None));
        assert_eq!(solve(&[0; 16], 1), None, "nothing changes anything");
    }

    #[test]
    fn identify__finds_the_identification_or_none() {
        let mut adjuster = Adjuster::new(SUM);
        let prefix = adjuster.prefix(&packet(200, 0)[..V4_OUTER]).expect("headers");
        for (id, predicted) in [(0, 0u16), (5, 5), (5, 0), (0, 5), (127, 3), (500, 500)] {
            let arrived = packet(200, id);
            let limits = (predicted, IDENTIFICATION_MAX);
            assert_eq!(adjuster.identify(&arrived, prefix, limits), Some(id));
        }
        for id in [IDENTIFICATION_MAX + 1, 0x9be7, u16::MAX] {
            let beyond = packet(200, id);
            assert_eq!(adjuster.identify(&beyond, prefix, (0, IDENTIFICATION_MAX)), None);
            assert_eq!(adjuster.identify(&beyond, prefix, (0, u16::MAX)), Some(id));
        }
        assert_eq!(adjuster.identify(&[0x45; 7], prefix, (0, u16::MAX)), None);
    }
}
