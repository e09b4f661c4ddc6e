//! Sets of the data packets of a block.

use std::iter;

/// A set of columns, 0..=255: data packets of a block by their index.
///
/// Four words, copied rather than shared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Columns([u64; 4]);

impl Columns {
    /// No column.
    pub const NONE: Self = Self([0; 4]);

    /// The columns of the bits of `bits`: bit 0 is column 0, and none is above 63.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self([bits, 0, 0, 0])
    }

    /// The columns below `n`; all 256 from there on.
    #[must_use]
    #[inline]
    pub fn below(n: usize) -> Self {
        let mut words = [0; 4];
        for (word, first) in words.iter_mut().zip([0, 64, 128, 192]) {
            *word = match n.saturating_sub(first) {
                0 => 0,
                bits @ 1..64 => (1 << bits) - 1,
                _ => u64::MAX,
            };
        }
        Self(words)
    }

    /// Inserts `column`. Returns true if it was absent.
    #[inline]
    pub fn insert(&mut self, column: u8) -> bool {
        let (word, bit) = place(column);
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    /// Removes `column`. Returns true if it was present.
    #[inline]
    pub fn remove(&mut self, column: u8) -> bool {
        let (word, bit) = place(column);
        let present = self.0[word] & bit != 0;
        self.0[word] &= !bit;
        present
    }

    /// True if `column` is in the set.
    #[must_use]
    #[inline]
    pub fn contains(&self, column: u8) -> bool {
        let (word, bit) = place(column);
        self.0[word] & bit != 0
    }

    /// The number of columns, 0..=256.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.0.iter().fold(0, |sum, word| sum + word.count_ones() as usize)
    }

    /// True if the set is empty.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// The columns of `self` that are not in `other`.
    #[must_use]
    #[inline]
    pub fn without(&self, other: &Self) -> Self {
        let mut words = self.0;
        for (word, out) in words.iter_mut().zip(other.0) {
            *word &= !out;
        }
        Self(words)
    }

    /// The columns, lowest first.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = u8> + use<> {
        [0, 64, 128, 192].into_iter().zip(self.0).flat_map(|(first, mut word)| {
            iter::from_fn(move || {
                // At most 63, since a bit is set.
                let bit = u8::try_from(word.trailing_zeros()).ok().filter(|_| word != 0)?;
                word &= word - 1;
                Some(first + bit)
            })
        })
    }
}

impl FromIterator<u8> for Columns {
    fn from_iter<I: IntoIterator<Item = u8>>(columns: I) -> Self {
        let mut set = Self::NONE;
        for column in columns {
            set.insert(column);
        }
        set
    }
}

#[inline]
fn place(column: u8) -> (usize, u64) {
    (usize::from(column / 64), 1 << (column % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn below__each_number_of_columns() {
        for n in 0..=256 {
            let set = Columns::below(n);
            assert_eq!(set.len(), n);
            assert!(set.iter().map(usize::from).eq(0..n), "{n}");
        }
        assert_eq!(Columns::below(1000), Columns::below(256));
        assert_eq!(Columns::below(8), Columns::from_bits(0xff));
    }

    #[test]
    fn insert_and_remove__match_a_tree() {
        let (mut set, mut tree) = (Columns::NONE, BTreeSet::new());
        let mut column = 7u8;
        for step in 0..2000u16 {
            column = column.wrapping_mul(5).wrapping_add(step.to_be_bytes()[1] ^ 1);
            if column.is_multiple_of(3) {
                assert_eq!(set.remove(column), tree.remove(&column));
            } else {
                assert_eq!(set.insert(column), tree.insert(column));
            }
            assert_eq!(set.contains(column), tree.contains(&column));
            assert_eq!(set.len(), tree.len());
            assert_eq!(set.is_empty(), tree.is_empty());
        }
        assert!(set.iter().eq(tree.iter().copied()));
        assert_eq!(tree.into_iter().collect::<Columns>(), set);
    }

    #[test]
    fn without__is_the_set_difference() {
        let set = Columns::below(70).without(&Columns::from_bits(!(1 << 5)));
        assert_eq!(set.iter().collect::<Vec<_>>(), [5, 64, 65, 66, 67, 68, 69]);
    }
}
