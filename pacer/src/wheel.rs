//! A timing wheel of two levels over queue pairs.

use crate::links::{Ends, Links};
use spanwire_base::{Dur, Time, usize_from};

/// The configuration of a [`Wheel`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WheelConfig {
    /// The width of a slot of the fine level: the maximum delay of a packet. 1 ns to 1 ms, default
    /// 250 ns: less than a pass of a worker's loop takes.
    pub slot: Dur,
}

impl Default for WheelConfig {
    fn default() -> Self {
        Self { slot: Dur::from_ns(250) }
    }
}

/// The send times of queue pairs in slots of time. By default there are 4096 fine slots, 1 ms in
/// all, and 1024 coarse slots of that width each, 1 s. Times beyond this horizon wait in the last
/// slot and are then inserted again.
///
/// A queue pair has at most one entry. The entry is popped at the end of its slot: late by up to
/// one slot, never early. If it is due already, it is popped at once. Inserting, removing, the next
/// time and popping take O(1): bit maps of two levels record the slots in use. An entry is moved
/// once before it is popped, and once more for each horizon that passes before, or for each jump in
/// time beyond the horizon.
#[derive(Debug)]
pub struct Wheel {
    slot_ps: u64,
    links: Links,
    places: Vec<Place>,
    fine: Level<FINE_WORDS>,
    coarse: Level<COARSE_WORDS>,
    /// The number of the first fine slot that was not emptied.
    now_slot: u64,
    len: u32,
}

/// The position of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    level: In,
    /// The number of the fine slot at whose end it may send.
    due: u64,
    /// The number of its slot, in the width of its level.
    slot: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum In {
    Fine,
    Coarse,
    Neither,
}

/// The slots of one level, as lists and as a bit map.
#[derive(Debug)]
struct Level<const WORDS: usize> {
    lists: Vec<Ends>,
    taken: [u64; WORDS],
    words: u64,
}

impl Wheel {
    /// An empty wheel that begins at time zero.
    #[must_use]
    pub fn new(config: WheelConfig) -> Self {
        Self {
            slot_ps: config.slot.as_ps().clamp(1_000, 1_000_000_000),
            links: Links::default(),
            places: Vec::new(),
            fine: Level::new(),
            coarse: Level::new(),
            now_slot: 0,
            len: 0,
        }
    }

    /// Inserts `slot`, which may send from `at` on. Replaces its previous entry.
    pub fn insert(&mut self, slot: u32, at: Time) {
        self.remove(slot);
        if slot as usize >= self.places.len() {
            self.places.resize(slot as usize + 1, AWAY);
        }
        // Rounded up: at the end of a slot all its entries may leave.
        let due = at.as_ps().div_ceil(self.slot_ps);
        self.put(slot, due);
        self.len += 1;
    }

    /// Removes `slot`.
    pub fn remove(&mut self, slot: u32) {
        let Some(place) = self.places.get_mut(slot as usize) else { return };
        let Place { level, slot: of, .. } = std::mem::replace(place, AWAY);
        match level {
            In::Fine => self.fine.remove(&mut self.links, of, slot),
            In::Coarse => self.coarse.remove(&mut self.links, of, slot),
            In::Neither => return,
        }
        self.len -= 1;
    }

    /// Removes the next one that may send at `now`: by slots, within a slot in insertion order.
    pub fn pop_due(&mut self, now: Time) -> Option<u32> {
        let until = now.as_ps() / self.slot_ps;
        if self.len > 0 && until / FINE >= self.turn() + COARSE {
            self.jump(until);
        }
        while self.len > 0 {
            match self.fine.first_from(self.now_slot % FINE) {
                Some(i) if self.turn() * FINE + i <= until => {
                    self.now_slot = self.turn() * FINE + i;
                    let slot = self.fine.pop(&mut self.links, i)?;
                    self.places[slot as usize] = AWAY;
                    self.len -= 1;
                    return Some(slot);
                }
                Some(_) => break,
                None => match self.next_turn() {
                    Some(turn) if turn * FINE <= until => self.begin_turn(turn),
                    _ => break,
                },
            }
        }
        // All slots in between are empty.
        self.now_slot = self.now_slot.max(until);
        None
    }

    /// The time at which [`Wheel::pop_due`] may return an entry: never too late, and early by at
    /// most the width of a coarse slot for entries of the coarse level.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        let slot = match self.fine.first_from(self.now_slot % FINE) {
            Some(i) => self.turn() * FINE + i,
            None => self.next_turn()? * FINE,
        };
        Some(Time::from_ps(slot.saturating_mul(self.slot_ps)))
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// True if there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if `slot` has an entry.
    #[must_use]
    pub fn contains(&self, slot: u32) -> bool {
        self.places.get(slot as usize).is_some_and(|place| !matches!(place.level, In::Neither))
    }

    /// The current turn of the fine level.
    fn turn(&self) -> u64 {
        self.now_slot / FINE
    }

    fn put(&mut self, slot: u32, due: u64) {
        let at = due.max(self.now_slot);
        let place = if at / FINE == self.turn() {
            self.fine.push(&mut self.links, at % FINE, slot);
            Place { level: In::Fine, due, slot: at % FINE }
        } else {
            // Beyond the horizon: the last slot.
            let turn = (at / FINE).min(self.turn() + COARSE - 1) % COARSE;
            self.coarse.push(&mut self.links, turn, slot);
            Place { level: In::Coarse, due, slot: turn }
        };
        self.places[slot as usize] = place;
    }

    /// The next turn with an entry, due or beyond the horizon.
    fn next_turn(&self) -> Option<u64> {
        let here = self.turn() % COARSE;
        // The entries of the current turn were spread: its own slot is empty.
        let later = self.coarse.first_from(here).map(|i| i - here);
        let ahead = later.or_else(|| self.coarse.first_from(0).map(|i| i + COARSE - here))?;
        Some(self.turn() + ahead)
    }

    /// Advances to the fine slot `until` beyond the horizon, past all entries. Due entries are
    /// collected in one slot, in their order. The rest is inserted again once, not once for each
    /// horizon that passed.
    fn jump(&mut self, until: u64) {
        let (turn, mut all) = (self.turn(), Ends::default());
        while let Some(i) = self.fine.first_from(0) {
            self.fine.move_to(&mut self.links, i, &mut all);
        }
        for i in 1..=COARSE {
            self.coarse.move_to(&mut self.links, (turn + i) % COARSE, &mut all);
        }
        self.now_slot = until;
        while let Some(slot) = self.links.pop_front(&mut all) {
            let due = self.places[slot as usize].due;
            self.put(slot, due);
        }
    }

    /// Begins `turn` and spreads its coarse slot.
    fn begin_turn(&mut self, turn: u64) {
        self.now_slot = turn * FINE;
        // Entries still beyond the horizon go back into another slot than this.
        while let Some(slot) = self.coarse.pop(&mut self.links, turn % COARSE) {
            let due = self.places[slot as usize].due;
            self.put(slot, due);
        }
    }
}

impl<const WORDS: usize> Level<WORDS> {
    fn new() -> Self {
        Self { lists: vec![Ends::default(); WORDS * 64], taken: [0; WORDS], words: 0 }
    }

    fn push(&mut self, links: &mut Links, i: u64, slot: u32) {
        links.push_back(&mut self.lists[usize_from(i)], slot);
        self.taken[usize_from(i / 64)] |= 1 << (i % 64);
        self.words |= 1 << (i / 64);
    }

    fn remove(&mut self, links: &mut Links, i: u64, slot: u32) {
        links.remove(&mut self.lists[usize_from(i)], slot);
        self.update_bits(i);
    }

    fn pop(&mut self, links: &mut Links, i: u64) -> Option<u32> {
        let slot = links.pop_front(&mut self.lists[usize_from(i)]);
        self.update_bits(i);
        slot
    }

    /// Moves all entries of slot `i` to the end of `all`.
    fn move_to(&mut self, links: &mut Links, i: u64, all: &mut Ends) {
        while let Some(slot) = self.pop(links, i) {
            links.push_back(all, slot);
        }
    }

    /// Updates the bit map after a removal from slot `i`.
    fn update_bits(&mut self, i: u64) {
        if self.lists[usize_from(i)].is_empty() {
            let word = usize_from(i / 64);
            self.taken[word] &= !(1 << (i % 64));
            if self.taken[word] == 0 {
                self.words &= !(1 << (i / 64));
            }
        }
    }

    /// The first slot in use from `i` on.
    fn first_from(&self, i: u64) -> Option<u64> {
        let (word, bit) = (i / 64, i % 64);
        let rest = self.taken[usize_from(word)] >> bit;
        if rest != 0 {
            return Some(i + u64::from(rest.trailing_zeros()));
        }
        let later = self.words.checked_shr(u32::try_from(word).ok()? + 1).filter(|w| *w != 0)?;
        let word = word + 1 + u64::from(later.trailing_zeros());
        Some(word * 64 + u64::from(self.taken[usize_from(word)].trailing_zeros()))
    }
}

const FINE_WORDS: usize = 64;
const COARSE_WORDS: usize = 16;
/// Slots of the fine level.
const FINE: u64 = 4096;
/// Slots of the coarse level.
const COARSE: u64 = 1024;
const _: () = assert!(FINE_WORDS * 64 == 4096 && COARSE_WORDS * 64 == 1024, "a bit for each slot");
const AWAY: Place = Place { level: In::Neither, due: 0, slot: 0 };

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn at_us(us: u64) -> Time {
        Time::ZERO + Dur::from_us(us)
    }

    fn popped(wheel: &mut Wheel, now: Time) -> Vec<u32> {
        std::iter::from_fn(|| wheel.pop_due(now)).collect()
    }

    #[test]
    fn pop_due__late_by_less_than_a_slot_and_never_early() {
        let mut wheel = Wheel::new(WheelConfig::default());
        wheel.insert(3, Time::from_ps(1_000_001));
        assert_eq!(wheel.next(), Some(Time::from_ps(1_250_000)));
        assert_eq!(wheel.pop_due(Time::from_ps(1_249_999)), None);
        assert_eq!(wheel.pop_due(Time::from_ps(1_250_000)), Some(3));
        wheel.insert(4, Time::from_ps(1_000_000));
        assert_eq!(wheel.pop_due(Time::from_ps(1_250_000)), Some(4), "due already");
        assert!(wheel.is_empty() && wheel.next().is_none());
    }

    #[test]
    fn pop_due__by_slot_then_insertion_order() {
        let mut wheel = Wheel::new(WheelConfig::default());
        for (slot, us) in [(0, 9000), (1, 5), (2, 9000), (3, 700), (4, 5)] {
            wheel.insert(slot, at_us(us));
        }
        assert_eq!(popped(&mut wheel, at_us(10_000)), [1, 4, 3, 0, 2]);
    }

    #[test]
    fn pop_due__entries_beyond_the_horizon_are_reinserted() {
        let mut wheel = Wheel::new(WheelConfig::default());
        let due = Time::ZERO + Dur::from_secs(10);
        wheel.insert(7, due);
        let mut looks = 0;
        while let Some(next) = wheel.next().filter(|next| *next < due) {
            assert_eq!(wheel.pop_due(next), None);
            looks += 1;
            assert!(looks < 20);
        }
        assert_eq!(wheel.pop_due(due), Some(7));
    }

    #[test]
    fn pop_due__a_jump_beyond_the_horizon_moves_each_once() {
        let mut wheel = Wheel::new(WheelConfig { slot: Dur::from_ns(1) });
        // 4096 x 1024 slots of 1 ns are 4.2 ms: slot by slot, this would take years.
        let hour = Dur::from_secs(3600);
        wheel.insert(1, Time::MAX);
        wheel.insert(2, Time::ZERO + hour + Dur::from_us(3));
        wheel.insert(3, Time::ZERO + Dur::from_us(2));
        wheel.insert(4, Time::ZERO + Dur::from_ms(3));
        wheel.insert(5, Time::ZERO + Dur::from_us(1));
        assert_eq!(popped(&mut wheel, Time::ZERO + hour), [5, 3, 4]);
        assert_eq!(wheel.next(), Some(Time::ZERO + hour + Dur::from_us(3)));
        assert_eq!(popped(&mut wheel, Time::ZERO + hour + Dur::from_us(3)), [2]);
        wheel.insert(6, Time::MAX - Dur::from_ns(1));
        assert_eq!(popped(&mut wheel, Time::MAX), [6], "only the entry at Time::MAX is left");
        assert_eq!(wheel.next(), Some(Time::MAX));
    }

    #[test]
    fn insert__replaces_the_previous_entry() {
        let mut wheel = Wheel::new(WheelConfig::default());
        wheel.insert(7, at_us(5));
        wheel.insert(7, at_us(50_000));
        assert_eq!((wheel.len(), popped(&mut wheel, at_us(49_999))), (1, vec![]));
        wheel.insert(7, at_us(60_000));
        wheel.remove(7);
        wheel.remove(7);
        assert!(wheel.is_empty() && popped(&mut wheel, at_us(99_999)).is_empty());
    }

    proptest! {
        /// Compares with a sorted map of slot ends, over times from nanoseconds to many horizons.
        #[test]
        fn wheel__agrees_with_a_sorted_map(
            steps in proptest::collection::vec(
                (0..4_u8, 0..20_u32, 0..64_u32, any::<u64>()),
                1..300,
            ),
        ) {
            let mut wheel = Wheel::new(WheelConfig::default());
            let mut oracle: BTreeMap<u32, u64> = BTreeMap::new();
            let mut now = 0_u64;
            for (what, slot, shift, random) in steps {
                // Of every order of magnitude.
                let ps = random.checked_shr(24 + shift % 40).unwrap_or(0);
                match what {
                    0 | 1 => {
                        let at = (now / 2).saturating_add(ps);
                        wheel.insert(slot, Time::from_ps(at));
                        oracle.insert(slot, at.div_ceil(250_000));
                    }
                    2 => {
                        wheel.remove(slot);
                        oracle.remove(&slot);
                    }
                    _ => now = now.saturating_add(ps),
                }
                let until = now / 250_000;
                let mut got = popped(&mut wheel, Time::from_ps(now));
                got.sort_unstable();
                let due: Vec<u32> =
                    oracle.iter().filter(|(_, at)| **at <= until).map(|(s, _)| *s).collect();
                prop_assert_eq!(&got, &due);
                oracle.retain(|_, at| *at > until);
                prop_assert_eq!(wheel.len() as usize, oracle.len());
                prop_assert!(oracle.keys().all(|slot| wheel.contains(*slot)));
                prop_assert!(!wheel.contains(u32::MAX));
                let next = wheel.next().map(|t| t.as_ps() / 250_000);
                let first = oracle.values().min().copied();
                prop_assert_eq!(next.is_some(), first.is_some());
                if let (Some(next), Some(first)) = (next, first) {
                    prop_assert!(next <= first && next > until, "{next} {first} {until}");
                }
            }
        }
    }
}
