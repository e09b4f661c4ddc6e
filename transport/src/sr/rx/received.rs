//! The received packet numbers of a stream: each packet once, in any order.

use crate::sr::number::{unwrap, wrap};
use spanwire_wire::{BLOCK_PKTS_MAX, SackWord, SackWords};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// The packets of a stream that have arrived.
///
/// Numbers have 64 bits; the 32 bits of the wire are unwrapped around [`Received::next`]. The
/// bitmap spans from the lowest missing packet to the highest received one. It has at most
/// `limit_pkts` bits and those of one block, whatever numbers a peer or an attacker sends.
#[derive(Debug)]
pub(crate) struct Received {
    /// The cumulative ACK point: the lowest number that has not arrived.
    next: u64,
    /// One past the highest number that has arrived.
    end: u64,
    /// The number of the packet received last, duplicates included.
    newest: u64,
    /// The bitmap from the word of `next` on; bits of numbers below `next` are set.
    words: VecDeque<u64>,
    limit_pkts: u64,
    /// The position in the rotation of words that do not fit into every ACK.
    rotation: u64,
    /// The lowest missing number that is needed; see [`Received::data_next`].
    data_next: u64,
    /// Ranges of parity that is not needed: first number to one past the last. None ends below
    /// `next`.
    skipped: BTreeMap<u64, u64>,
}

/// The classification of a packet by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrival {
    /// It is missing, until [`Received::insert`].
    Missing(u64),
    /// It has arrived before.
    Duplicate,
    /// It is older than any packet that its sender may still retransmit.
    Old,
    /// It is at or above the PSN limit.
    Beyond,
}

impl Received {
    /// A stream of which nothing has arrived, and whose first packet is `first`.
    pub(crate) fn new(first: u32, limit_pkts: u32) -> Self {
        // An offset of 2^32, so that numbers below `first` do not underflow.
        let next = u64::from(first) + (1 << 32);
        Self {
            next,
            end: next,
            newest: next,
            words: VecDeque::new(),
            limit_pkts: limit_pkts.into(),
            rotation: 0,
            data_next: next,
            skipped: BTreeMap::new(),
        }
    }

    /// Classifies a packet by its number; nothing changes.
    #[inline]
    pub(crate) fn classify(&self, psn: u32) -> Arrival {
        let number = unwrap(self.next, psn);
        match number {
            // A sender that has not sent settled parity may be one block further behind.
            n if n + self.limit_pkts + u64::from(BLOCK_PKTS_MAX) < self.next => Arrival::Old,
            n if n < self.next => Arrival::Duplicate,
            n if n >= self.limit() => Arrival::Beyond,
            n if self.contains(n) => Arrival::Duplicate,
            n => Arrival::Missing(n),
        }
    }

    /// The number of the packet `psn`, if it is the next one and none after it has arrived or is
    /// skipped.
    #[inline]
    pub(crate) fn expected(&self, psn: u32) -> Option<u64> {
        let next = self.next;
        let is_next = psn == wrap(next) && next == self.end && next == self.data_next;
        (is_next && next < self.limit() && self.skipped.is_empty()).then_some(next)
    }

    /// Records the arrival of the packet `number`, which was [`Arrival::Missing`].
    #[inline]
    pub(crate) fn insert(&mut self, number: u64) {
        debug_assert!(
            number >= self.next && number < self.settle_limit(),
            "it is classified first"
        );
        if number == self.next && number == self.end && self.skipped.is_empty() {
            return self.insert_next();
        }
        self.newest = number;
        let i = spanwire_base::usize_from(number / 64 - self.next / 64);
        if i >= self.words.len() {
            self.words.resize(i + 1, 0);
        }
        self.words[i] |= 1 << (number % 64);
        self.end = self.end.max(number + 1);
        if number == self.next {
            self.advance();
        } else if number == self.data_next {
            self.advance_data_next();
        }
    }

    /// As [`Received::insert`], of the next packet while none after it has arrived or is skipped.
    #[inline(always)]
    pub(crate) fn insert_next(&mut self) {
        self.newest = self.next;
        let bit = 1 << (self.next % 64);
        match self.words.front_mut() {
            Some(word) => *word |= bit,
            None => self.words.push_back(bit),
        }
        self.next += 1;
        (self.end, self.data_next) = (self.next, self.next);
        if self.next.is_multiple_of(64) {
            self.words.pop_front();
        }
    }

    /// Excludes the parity `run` from [`Received::data_next`]: its block needs it no longer.
    pub(crate) fn skip(&mut self, run: Range<u64>) {
        if run.end > self.next && run.end <= self.settle_limit() && !run.is_empty() {
            self.skipped.insert(run.start, run.end);
            self.advance_data_next();
        }
    }

    /// Treats missing packets of `run` as received, because they are lost and not needed. Returns
    /// those that were missing: bit i is `run.start + i`.
    ///
    /// # Panics
    /// With debug assertions, if the run is longer than 64.
    pub(crate) fn settle(&mut self, run: Range<u64>) -> u64 {
        debug_assert!(run.end - run.start <= 64, "a bit each");
        let mut missing = 0;
        for number in run.start..run.end.min(self.settle_limit()) {
            if number >= self.next && !self.contains(number) {
                missing |= 1 << (number - run.start);
                self.insert(number);
            }
        }
        missing
    }

    /// The bitmap of the 64 numbers from `first` on: bit i is set if `first + i` has arrived.
    pub(crate) fn block_bitmap(&self, first: u64) -> u64 {
        (0..64).fold(0, |bits, i| {
            let number = first + i;
            bits | u64::from(number < self.next || self.contains(number)) << i
        })
    }

    /// Records the duplicate `psn`, so that the next ACK includes its SACK word.
    pub(crate) fn on_duplicate(&mut self, psn: u32) {
        let number = unwrap(self.next, psn);
        if number >= self.next && self.contains(number) {
            self.newest = number;
        }
    }

    /// The cumulative ACK point: the lowest number that has not arrived.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The lowest missing number that is needed: [`Received::next`], or a higher one if
    /// [`Received::skip`] excludes parity. Operations before it are in order.
    pub(crate) fn data_next(&self) -> u64 {
        self.data_next
    }

    /// One past the highest number that has arrived.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The PSN limit: no number from it on is accepted.
    pub(crate) fn limit(&self) -> u64 {
        self.next + self.limit_pkts
    }

    /// A packet is missing below one that has arrived.
    pub(crate) fn has_gap(&self) -> bool {
        self.end > self.next
    }

    /// The SACK words of the next ACK: the word of the newest arrival, the highest words, and in
    /// rotation some of the words below them.
    pub(crate) fn words(&mut self) -> SackWords {
        let mut words = SackWords::default();
        if !self.has_gap() {
            return words;
        }
        let first = self.next / 64;
        let last = (self.end - 1) / 64;
        // A third of the ACK's room is for gaps further below.
        let recent = last.saturating_sub(RECENT_WORDS - 1).max(first)..=last;
        let newest = self.newest / 64;
        if newest >= first {
            self.push_word(newest, &mut words);
        }
        for word in recent.clone().rev().filter(|w| *w != newest) {
            self.push_word(word, &mut words);
        }
        let others = *recent.start() - first;
        if others > 0 {
            for _ in 0..others.min(ROTATING_WORDS) {
                self.rotation = (self.rotation + 1) % others;
                let word = first + self.rotation;
                if word != newest {
                    self.push_word(word, &mut words);
                }
            }
        }
        words
    }

    /// The limit of [`Received::settle`]: a block with a received packet may end beyond the PSN
    /// limit.
    fn settle_limit(&self) -> u64 {
        self.limit() + u64::from(BLOCK_PKTS_MAX)
    }

    fn push_word(&self, word: u64, words: &mut SackWords) {
        let bits = self.words[spanwire_base::usize_from(word - self.next / 64)];
        let all_below = word * 64 + 64 <= self.next;
        if bits != 0 && !all_below {
            words.push(SackWord { base: wrap(word * 64), bits });
        }
    }

    fn contains(&self, number: u64) -> bool {
        let i = spanwire_base::usize_from(number / 64 - self.next / 64);
        self.words.get(i).is_some_and(|word| word >> (number % 64) & 1 != 0)
    }

    /// Advances `next` past received packets.
    fn advance(&mut self) {
        while let Some(word) = self.words.front() {
            let from = self.next % 64;
            let run = u64::from((!(word >> from)).trailing_zeros()).min(64 - from);
            self.next += run;
            if from + run < 64 {
                break;
            }
            self.words.pop_front();
        }
        // Bits below `next` are set in its word, so that SACK words are reported whole.
        if !self.next.is_multiple_of(64) && self.words.is_empty() {
            self.words.push_back((1 << (self.next % 64)) - 1);
        }
        self.end = self.end.max(self.next);
        self.data_next = self.data_next.max(self.next);
        if !self.skipped.is_empty() {
            self.advance_data_next();
        }
    }

    /// Advances `data_next` past received packets and parity that is not needed.
    #[inline(never)]
    fn advance_data_next(&mut self) {
        while self.skipped.first_key_value().is_some_and(|(_, end)| *end <= self.next) {
            self.skipped.pop_first();
        }
        self.data_next = self.data_next.max(self.next);
        loop {
            let i = spanwire_base::usize_from(self.data_next / 64 - self.next / 64);
            let from = self.data_next % 64;
            let word = self.words.get(i).copied().unwrap_or(0);
            let run = u64::from((!(word >> from)).trailing_zeros()).min(64 - from);
            let passed = self.skipped.range(..=self.data_next).next_back().map(|(_, end)| *end);
            match passed.filter(|end| *end > self.data_next) {
                Some(end) => self.data_next = end,
                None if run > 0 => self.data_next += run,
                None => return,
            }
        }
    }
}

/// The highest words, which every ACK includes: 640 packets.
const RECENT_WORDS: u64 = 10;
/// Words further below in each ACK, beside that of the newest arrival.
const ROTATING_WORDS: u64 = 4;
const _: () = assert!(1 + RECENT_WORDS + ROTATING_WORDS <= 15, "the room of an acknowledgement");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// An oracle: the received numbers as a set.
    struct Oracle {
        first: u64,
        all: BTreeSet<u64>,
    }

    impl Oracle {
        fn next(&self) -> u64 {
            (self.first..).find(|n| !self.all.contains(n)).unwrap()
        }
    }

    fn numbers(words: &SackWords, near: u64) -> BTreeSet<u64> {
        let of = |w: &SackWord| {
            let base = unwrap(near, w.base);
            let bits = w.bits;
            (0..64).filter(move |i| bits >> i & 1 != 0).map(move |i| base + i)
        };
        words.as_slice().iter().flat_map(of).collect()
    }

    #[test]
    fn insert__in_order_leaves_no_sack_words() {
        for first in [0, 1, 63, 64, u32::MAX - 100] {
            let mut r = Received::new(first, 1000);
            for i in 0..300u32 {
                let Arrival::Missing(n) = r.classify(first.wrapping_add(i)) else { panic!("{i}") };
                r.insert(n);
                assert!(!r.has_gap());
                assert_eq!(r.words().as_slice(), []);
                assert_eq!(r.classify(first.wrapping_add(i)), Arrival::Duplicate);
            }
            assert_eq!(wrap(r.next()), first.wrapping_add(300));
            assert!(r.words.len() <= 1, "words of received packets are freed");
        }
    }

    #[test]
    fn classify__has_limits_on_both_sides() {
        let r = Received::new(5, 100);
        assert_eq!(r.classify(4), Arrival::Duplicate);
        assert_eq!(r.classify(5 + 100), Arrival::Beyond);
        assert!(matches!(r.classify(5 + 99), Arrival::Missing(_)));
        assert_eq!(r.classify(5u32.wrapping_sub(164)), Arrival::Duplicate);
        assert_eq!(r.classify(5u32.wrapping_sub(165)), Arrival::Old);
        assert_eq!(
            r.classify(5u32.wrapping_add(1 << 31)),
            Arrival::Old,
            "half of the number space is in the past"
        );
    }

    #[test]
    fn words__rotate_over_all_gaps() {
        let mut r = Received::new(0, 1 << 20);
        let missing = |n: u64| n.is_multiple_of(97);
        let base = r.next();
        for n in base..base + 64 * 200 {
            if !missing(n) && matches!(r.classify(wrap(n)), Arrival::Missing(_)) {
                r.insert(n);
            }
        }
        let mut words = BTreeSet::new();
        for _ in 0..60 {
            words.extend(numbers(&r.words(), base));
        }
        let all: BTreeSet<u64> = (r.next()..r.end).filter(|n| !missing(*n)).collect();
        assert!(words.is_superset(&all), "{} of {}", words.len(), all.len());
    }

    #[test]
    fn words__include_the_latest_duplicate() {
        let mut r = Received::new(0, 1 << 20);
        let base = r.next();
        // More gaps than SACK words fit into one ACK.
        for n in (base + 1..base + 64 * 200).filter(|n| !n.is_multiple_of(64)) {
            r.insert(n);
        }
        for duplicate in [base + 70, base + 64 * 100 + 1, base + 64 * 60 + 5] {
            r.on_duplicate(wrap(duplicate));
            assert!(numbers(&r.words(), base).contains(&duplicate));
        }
        r.on_duplicate(wrap(base));
        assert_eq!(r.newest, base + 64 * 60 + 5, "it has not arrived");
    }

    proptest! {
        #[test]
        fn received__agrees_with_a_set(
            first in prop_oneof![0u32..200, (u32::MAX - 200)..u32::MAX],
            arrivals in prop::collection::vec(0u32..400, 1..300),
        ) {
            let mut r = Received::new(first, 256);
            let mut oracle = Oracle { first: r.next(), all: BTreeSet::new() };
            for ahead in arrivals {
                let psn = first.wrapping_add(ahead);
                let next = oracle.next();
                let number = oracle.first + u64::from(ahead);
                let want = match number {
                    n if n + 256 + 64 < next => Arrival::Old,
                    n if n < next || oracle.all.contains(&n) => Arrival::Duplicate,
                    n if n >= next + 256 => Arrival::Beyond,
                    n => Arrival::Missing(n),
                };
                prop_assert_eq!(r.classify(psn), want);
                if let Arrival::Missing(n) = want {
                    r.insert(n);
                    oracle.all.insert(n);
                }
                prop_assert_eq!(r.next(), oracle.next());
                let words = numbers(&r.words(), r.next());
                let new: BTreeSet<u64> = oracle.all.range(r.next()..).copied().collect();
                prop_assert!(words.iter().all(|n| *n < r.next() || new.contains(n)));
                // A window of 256 fits into the words that every ACK includes.
                prop_assert!(new.iter().all(|n| words.contains(n)));
                prop_assert!(r.words.len() <= 256 / 64 + 2);
            }
        }

        #[test]
        fn data_next__skips_unneeded_parity(
            first in prop_oneof![0u32..200, (u32::MAX - 200)..u32::MAX],
            steps in prop::collection::vec((0u64..300, 0u64..8, 0u8..4), 1..300),
        ) {
            let mut r = Received::new(first, 400);
            let base = r.next();
            let (mut arrived, mut skipped) = (BTreeSet::new(), BTreeSet::new());
            for (ahead, len, step) in steps {
                // Runs do not overlap, as blocks do not.
                let run = base + ahead / 8 * 8..base + ahead / 8 * 8 + len;
                match (step, r.classify(wrap(base + ahead))) {
                    (0, _) if !skipped.contains(&run.start) => {
                        r.skip(run.clone());
                        skipped.extend(run);
                    }
                    (1, _) => {
                        let missing = r.settle(run.clone());
                        let want = run.clone().filter(|n| !arrived.contains(n));
                        let want = want.fold(0, |bits, n| bits | 1 << (n - run.start));
                        prop_assert_eq!(missing, want);
                        arrived.extend(run);
                    }
                    (_, Arrival::Missing(n)) => {
                        r.insert(n);
                        arrived.insert(n);
                    }
                    _ => {}
                }
                let next = (base..).find(|n| !arrived.contains(n)).unwrap();
                let mut needed = (base..).filter(|n| !arrived.contains(n) && !skipped.contains(n));
                let data_next = needed.next().unwrap();
                prop_assert_eq!((r.next(), r.data_next()), (next, data_next.max(next)));
                prop_assert!(r.skipped.values().all(|end| *end > r.next()));
            }
        }
    }
}
