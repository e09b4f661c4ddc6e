//! The immediate data of a channel's messages.

/// The immediate of a fragment (a WRITE): the low bits of its number.
pub(crate) fn of_fragment(number: u64) -> u32 {
    low(number, u32::MAX.into())
}

/// A control message (a SEND without payload): two bits of kind, thirty of count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Control {
    /// Credit: the total number of fragments taken.
    Credit(u32),
    /// The end after this total number of fragments.
    Finish(u32),
    /// The application has taken everything up to the other end's `Finish`.
    Drained,
}

impl Control {
    pub(crate) fn credit(taken: u64) -> Self {
        Self::Credit(low(taken, COUNT_MASK))
    }

    pub(crate) fn finish(fragments: u64) -> Self {
        Self::Finish(low(fragments, COUNT_MASK))
    }

    pub(crate) fn emit(self) -> u32 {
        match self {
            Self::Credit(count) => count,
            Self::Finish(count) => 1 << KIND_SHIFT | count,
            Self::Drained => 2 << KIND_SHIFT,
        }
    }

    pub(crate) fn parse(imm: u32) -> Option<Self> {
        let count = imm & COUNT;
        match imm >> KIND_SHIFT {
            0 => Some(Self::Credit(count)),
            1 => Some(Self::Finish(count)),
            2 if count == 0 => Some(Self::Drained),
            _ => None,
        }
    }
}

/// Distance of `count`, the low 30 bits of a number, from the number `from`; at most 2^30 - 1.
pub(crate) fn ahead(count: u32, from: u64) -> u64 {
    (count.wrapping_sub(low(from, COUNT_MASK)) & COUNT).into()
}

fn low(number: u64, mask: u64) -> u32 {
    u32::try_from(number & mask).expect("a mask of at most 32 bits")
}

const KIND_SHIFT: u32 = 30;
const COUNT: u32 = (1 << KIND_SHIFT) - 1;
const COUNT_MASK: u64 = (1 << KIND_SHIFT) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_fragment__is_the_number_modulo_32_bits() {
        for (number, imm) in [(0, 0), (7, 7), (0xffff_ffff, u32::MAX), (0x1_0000_0002, 2)] {
            assert_eq!(of_fragment(number), imm);
        }
    }

    #[test]
    fn parse__inverts_emit_and_rejects_the_rest() {
        for control in [Control::credit(0x1_7fff_ffff), Control::finish(7), Control::Drained] {
            assert_eq!(Control::parse(control.emit()), Some(control));
        }
        for imm in [0x8000_0001, 0xc000_0000, u32::MAX] {
            assert_eq!(Control::parse(imm), None, "{imm:#x}");
        }
    }

    #[test]
    fn ahead__wraps_at_30_bits() {
        assert_eq!(ahead(2, (1 << 30) - 1), 3);
        assert_eq!(ahead(0, 5 << 30), 0);
        assert_eq!(ahead(0, 1), (1 << 30) - 1, "what is behind is very far ahead");
    }
}
