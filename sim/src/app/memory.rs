//! A host's memory: message slots, their expected bytes, and the comparison.

use spanwire_base::{Rng, u32_from, u64_from, usize_from};
use spanwire_mem::Region;
use spanwire_transport::{MemoryRegion, RemoteAddr, Sge};

/// A registered region. If it is blank it has no bytes, and every comparison succeeds.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) region: Region,
    pub(crate) mr: MemoryRegion,
    pub(crate) is_blank: bool,
}

/// Consecutive slots of one size, each followed by a guard that no operation may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Slots {
    /// Offset of the first in the region.
    at: u64,
    count: u32,
    /// Bytes of one, without its guard.
    bytes: u32,
}

/// Allocates slots of a region that is created later.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allocator {
    next: u64,
}

impl Allocator {
    /// Allocates `count` slots of `bytes` each.
    pub(crate) fn slots(&mut self, count: u32, bytes: u32) -> Slots {
        let slots = Slots { at: self.next, count, bytes };
        self.next = self.next.saturating_add(u64::from(count).saturating_mul(slots.stride()));
        slots
    }

    /// Size of the region in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.next
    }
}

impl Slots {
    /// The offset of message `i`'s slot; slots are used round robin.
    pub(crate) fn of(&self, i: u64) -> u64 {
        assert!(self.count > 0, "messages of this kind were planned for");
        self.at + i % u64::from(self.count) * self.stride()
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Aligned to 8 bytes for atomics.
    fn stride(&self) -> u64 {
        u64::from(self.bytes).next_multiple_of(8) + GUARD_BYTES
    }
}

impl Memory {
    /// Writes the guards behind slots, for [`Memory::check_guards`].
    pub(crate) fn guard(&self, slots: &Slots) {
        for i in 0..slots.count {
            self.write(slots.of(i.into()) + slots.stride() - GUARD_BYTES, &GUARD);
        }
    }

    /// True if no guard has been overwritten.
    pub(crate) fn check_guards(&self, slots: &Slots) -> bool {
        let intact = |i: u32| {
            let mut found = GUARD;
            self.read(slots.of(i.into()) + slots.stride() - GUARD_BYTES, &mut found);
            found == GUARD
        };
        self.is_blank || (0..slots.count).all(intact)
    }

    /// The SGEs for `len` bytes at an offset, in `pieces` elements.
    pub(crate) fn sges(&self, at: u64, len: u32, pieces: u32) -> Vec<Sge> {
        let cut = |i: u32| u64::from(len) * u64::from(i) / u64::from(pieces);
        let piece = |i: u32| {
            let (from, to) = (cut(i), cut(i + 1));
            let len = u32_from(usize_from(to - from));
            Sge { addr: self.mr.addr + at + from, len, lkey: self.mr.lkey }
        };
        (0..pieces).map(piece).collect()
    }

    /// The remote address of an offset.
    pub(crate) fn remote(&self, at: u64) -> RemoteAddr {
        let rkey = self.mr.rkey.expect("registered for remote access");
        RemoteAddr { va: self.mr.addr + at, rkey }
    }

    /// Writes the first `len` bytes of a stream at an offset.
    pub(crate) fn fill(&self, at: u64, seed: u64, len: u32) {
        if self.is_blank {
            return;
        }
        let mut rng = Rng::new(seed);
        let mut chunk = [0; CHUNK_BYTES];
        for done in (0..len as usize).step_by(CHUNK_BYTES) {
            let part = &mut chunk[..CHUNK_BYTES.min(len as usize - done)];
            rng.fill(part);
            self.write(at + u64_from(done), part);
        }
    }

    /// The first position at which `len` bytes at an offset differ from a stream.
    pub(crate) fn first_mismatch(&self, at: u64, seed: u64, len: u32) -> Option<u32> {
        if self.is_blank {
            return None;
        }
        let mut rng = Rng::new(seed);
        let (mut want, mut found) = ([0; CHUNK_BYTES], [0; CHUNK_BYTES]);
        for done in (0..len as usize).step_by(CHUNK_BYTES) {
            let n = CHUNK_BYTES.min(len as usize - done);
            rng.fill(&mut want[..n]);
            self.read(at + u64_from(done), &mut found[..n]);
            if want[..n] != found[..n] {
                let first = want.iter().zip(&found).position(|(w, f)| w != f);
                return Some(u32_from(done + first.unwrap_or(0)));
            }
        }
        None
    }

    /// The word at an offset, in native byte order.
    pub(crate) fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes);
        u64::from_ne_bytes(bytes)
    }

    /// The first `len` bytes of a stream.
    pub(crate) fn stream(seed: u64, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        Rng::new(seed).fill(&mut bytes);
        bytes
    }

    /// Corrupts the first byte of each slot, or the last of its guard.
    #[cfg(test)]
    pub(crate) fn corrupt(&self, slots: &Slots, guard: bool) {
        for at in (0..slots.count).map(|i| slots.of(i.into())) {
            let at = if guard { at + slots.stride() - 1 } else { at };
            let mut byte = [0];
            self.read(at, &mut byte);
            self.write(at, &[byte[0] ^ 1]);
        }
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.region.copy_in(usize_from(at), bytes).expect("slots lie inside their region");
    }

    fn read(&self, at: u64, bytes: &mut [u8]) {
        self.region.copy_out(usize_from(at), bytes).expect("slots lie inside their region");
    }
}

/// A multiple of 8, because [`Rng::fill`] consumes whole words; otherwise the stream would depend
/// on the chunk boundaries.
const CHUNK_BYTES: usize = 1024;
const GUARD_BYTES: u64 = 16;
const GUARD: [u8; 16] = *b"guard-bytes.....";

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(bytes: u64) -> Memory {
        let mr = MemoryRegion { lkey: 1, rkey: Some(2), addr: 1 << 40, len: bytes };
        Memory { region: Region::zeroed(usize_from(bytes)), mr, is_blank: false }
    }

    #[test]
    fn allocator__places_do_not_touch() {
        let mut a = Allocator::default();
        let (x, y) = (a.slots(3, 10), a.slots(2, 8));
        assert_eq!([0, 1, 2, 3].map(|i| x.of(i)), [0, 32, 64, 0]);
        assert_eq!([0, 1].map(|i| y.of(i)), [96, 120]);
        assert_eq!(a.bytes(), 144);
    }

    #[test]
    fn differs__finds_the_first_wrong_byte_in_any_chunk() {
        let m = memory(8192);
        m.fill(5, 9, 5000);
        assert_eq!(m.first_mismatch(5, 9, 5000), None);
        assert_eq!(m.first_mismatch(5, 9, 4999), None, "a prefix");
        assert!(m.first_mismatch(5, 8, 5000).is_some());
        assert_eq!(Memory::stream(9, 5000).len(), 5000);
        for at in [0, 1023, 1024, 4999] {
            let mut byte = [0];
            m.read(5 + at, &mut byte);
            m.write(5 + at, &[byte[0] ^ 1]);
            assert_eq!(m.first_mismatch(5, 9, 5000).map(u64::from), Some(at));
            m.write(5 + at, &byte);
        }
    }

    #[test]
    fn check_guards__notices_one_byte_too_many() {
        let mut a = Allocator::default();
        let slots = a.slots(2, 13);
        let m = memory(a.bytes());
        m.guard(&slots);
        m.fill(slots.of(1), 1, 13);
        assert!(m.check_guards(&slots));
        m.fill(slots.of(1), 1, 17);
        assert!(!m.check_guards(&slots));
    }
}
