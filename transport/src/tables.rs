//! Tables of fixed capacity: objects by a small number, and by a random key.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng;
use spanwire_base::u32_from;

/// Objects of one type under small reusable numbers, at most `capacity`.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    capacity: u32,
}

impl<T> Slab<T> {
    pub(crate) fn new(capacity: u32) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), capacity }
    }

    /// Inserts an object and returns its number, or returns the object if the table is full.
    pub(crate) fn insert(&mut self, object: T) -> Result<u32, T> {
        if self.len() >= self.capacity as usize {
            return Err(object);
        }
        let i = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32_from(self.slots.len() - 1)
        });
        self.slots[i as usize] = Some(object);
        Ok(i)
    }

    /// Changes the capacity. Objects beyond a smaller one stay.
    pub(crate) fn set_capacity(&mut self, capacity: u32) {
        self.capacity = capacity;
    }

    /// No object was ever inserted.
    pub(crate) fn is_untouched(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn remove(&mut self, i: u32) -> Option<T> {
        let object = self.slots.get_mut(i as usize)?.take()?;
        self.free.push(i);
        Some(object)
    }

    /// The number of objects.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn at(&self, i: u32) -> Option<&T> {
        self.slots.get(i as usize)?.as_ref()
    }

    pub(crate) fn at_mut(&mut self, i: u32) -> Option<&mut T> {
        self.slots.get_mut(i as usize)?.as_mut()
    }

    /// Every object with its number, in ascending order of numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0u32..).zip(&self.slots).filter_map(|(i, slot)| Some((i, slot.as_ref()?)))
    }
}

/// Objects of one worker under numbers that no other worker of the process has.
#[derive(Debug)]
pub(crate) struct WorkerSlab<T> {
    objects: Slab<T>,
    /// The number of the first object.
    first: u32,
}

impl<T> WorkerSlab<T> {
    /// A table of worker `worker` for at most `capacity` objects, which is at most 2^16.
    pub(crate) fn new(capacity: u32, worker: u8) -> Self {
        Self { objects: Slab::new(capacity), first: u32::from(worker) << 16 }
    }

    /// As [`Slab::insert`].
    pub(crate) fn insert(&mut self, object: T) -> Result<u32, T> {
        self.objects.insert(object).map(|i| self.first | i)
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.objects.remove(number.wrapping_sub(self.first))
    }

    pub(crate) fn at(&self, number: u32) -> Option<&T> {
        self.objects.at(number.wrapping_sub(self.first))
    }

    pub(crate) fn at_mut(&mut self, number: u32) -> Option<&mut T> {
        self.objects.at_mut(number.wrapping_sub(self.first))
    }

    /// True if the number is one of another worker.
    pub(crate) fn is_elsewhere(&self, number: u32) -> bool {
        number >> 16 != self.first >> 16
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = &T> {
        self.objects.iter().map(|(_, object)| object)
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(crate) fn set_capacity(&mut self, capacity: u32) {
        self.objects.set_capacity(capacity);
    }
}

/// Numbers under unpredictable 32-bit keys, with a lookup of one memory access.
///
/// The low bits of a key select its slot. Keys are drawn until one has a free slot, so there are no
/// collisions to search past. With at least twice as many slots as keys, that takes two draws on
/// average. The table doubles when it has fewer: keys in different slots stay so with one more bit.
/// All 32 bits are compared, so a guess succeeds with probability `keys in use / 2^32`.
#[derive(Debug)]
pub(crate) struct KeyTable {
    slots: Box<[Option<(u32, u32)>]>,
    mask: u32,
    used: u32,
}

impl KeyTable {
    /// A table with room for `capacity` keys (1..=2^20), if those are few, before it grows.
    pub(crate) fn new(capacity: u32) -> Self {
        let slots = (capacity.min(FIRST_KEYS) * 2).next_power_of_two();
        Self { slots: vec![None; slots as usize].into_boxed_slice(), mask: slots - 1, used: 0 }
    }

    /// Draws a key for `value`. The caller limits the number of keys, to at most 2^20.
    pub(crate) fn insert(&mut self, rng: &mut ChaCha20Rng, value: u32) -> u32 {
        self.used += 1;
        if self.used > u32_from(self.slots.len() / 2) {
            self.grow();
        }
        loop {
            let key = rng.next_u32();
            let slot = &mut self.slots[(key & self.mask) as usize];
            // Zero is excluded: it is the value of fields that were not set.
            if slot.is_none() && key != 0 {
                *slot = Some((key, value));
                return key;
            }
        }
    }

    /// Adds the key that another table has drawn for its `value`. False if another one is in its
    /// place.
    pub(crate) fn insert_drawn(&mut self, key: u32, value: u32) -> bool {
        if self.used + 1 > u32_from(self.slots.len() / 2) {
            self.grow();
        }
        let slot = &mut self.slots[(key & self.mask) as usize];
        let is_free = slot.is_none() && key != 0;
        if is_free {
            *slot = Some((key, value));
            self.used += 1;
        }
        is_free
    }

    #[cold]
    fn grow(&mut self) {
        let slots = vec![None; self.slots.len() * 2].into_boxed_slice();
        let old = std::mem::replace(&mut self.slots, slots);
        self.mask = self.mask << 1 | 1;
        for (key, value) in old.into_iter().flatten() {
            self.slots[(key & self.mask) as usize] = Some((key, value));
        }
    }

    /// The value of `key`.
    pub(crate) fn find(&self, key: u32) -> Option<u32> {
        let (held, value) = self.slots[(key & self.mask) as usize]?;
        (held == key).then_some(value)
    }

    pub(crate) fn remove(&mut self, key: u32) {
        if self.find(key).is_some() {
            self.used -= 1;
            self.slots[(key & self.mask) as usize] = None;
        }
    }
}

/// Keys for which a [`KeyTable`] has slots at first, 96 KiB.
const FIRST_KEYS: u32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::rand_core::SeedableRng;

    #[test]
    fn slab__reuses_numbers_and_enforces_its_capacity() {
        let mut s = Slab::new(2);
        assert_eq!((s.insert('a'), s.insert('b'), s.insert('c')), (Ok(0), Ok(1), Err('c')));
        assert_eq!(s.remove(0), Some('a'));
        assert_eq!(s.remove(0), None);
        assert_eq!(s.insert('d'), Ok(0));
        assert_eq!(s.iter().collect::<Vec<_>>(), [(0, &'d'), (1, &'b')]);
        assert_eq!((s.remove(0), s.len()), (Some('d'), 1));
        s.set_capacity(1);
        assert_eq!((s.insert('e'), s.at(1)), (Err('e'), Some(&'b')));
    }

    #[test]
    fn key_table__finds_its_keys_and_no_others() {
        let mut rng = ChaCha20Rng::from_seed([3; 32]);
        let mut t = KeyTable::new(100);
        let keys: Vec<u32> = (0..100).map(|v| t.insert(&mut rng, v)).collect();
        for (v, key) in (0u32..).zip(&keys) {
            assert_eq!(t.find(*key), Some(v));
            assert_eq!(t.find(key ^ 0x8000_0000), None, "same slot, other key");
        }
        t.remove(keys[7]);
        assert_eq!(t.find(keys[7]), None);
        t.remove(keys[8] ^ 0x8000_0000);
        assert_eq!(t.find(keys[8]), Some(8), "a wrong key removes nothing");
    }

    #[test]
    fn key_table__grows_with_use_and_keeps_its_keys() {
        let mut rng = ChaCha20Rng::from_seed([3; 32]);
        let mut t = KeyTable::new(1 << 16);
        let slots = |t: &KeyTable| t.slots.len();
        assert_eq!(slots(&t), 8192, "not reserved for all keys at once");
        let keys: Vec<u32> = (0..1 << 16).map(|v| t.insert(&mut rng, v)).collect();
        assert_eq!(slots(&t), 1 << 17);
        assert!((0..).zip(&keys).all(|(v, key)| t.find(*key) == Some(v)));
        keys.iter().for_each(|key| t.remove(*key));
        assert!(t.slots.iter().all(Option::is_none) && t.used == 0);
        for v in 0..1 << 16 {
            t.insert(&mut rng, v);
        }
        assert_eq!(slots(&t), 1 << 17, "as many keys as before need no more room");
    }
}
