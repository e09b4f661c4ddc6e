//! Erasure coding as a parameter: data and parity packets of a block.

use spanwire_transport::ErasureCoding;
use std::fmt;

/// The blocks of an erasure code, or none: `off`, `8,2`, or `8,2,1-4`. In the last form the number
/// of parity packets adapts to the measured loss, between 1 and 4.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EcChoice(pub Option<EcBlocks>);

/// The shape of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EcBlocks {
    /// Source packets of a whole block, 1..=62.
    pub data: u8,
    /// Parity packets, 1..=32; at most 64 together with the source packets.
    pub parity: u8,
    /// The minimum and maximum parity packets if they adapt to the loss.
    pub adaptive: Option<(u8, u8)>,
}

impl EcChoice {
    /// The expected form of the text.
    pub(super) const EXPECTED: &str =
        "off, or packets of data and parity such as 8,2, and a range for it such as 8,2,1-4";

    /// Parses the text; `None` if it is not a valid block.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text == OFF {
            return Some(Self(None));
        }
        let mut parts = text.split(',').map(str::trim);
        let (data, parity) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let adaptive = match parts.next() {
            None => None,
            Some(range) => {
                let (least, most) = range.split_once('-')?;
                Some((least.parse().ok()?, most.parse().ok()?))
            }
        };
        let blocks = EcBlocks { data, parity, adaptive };
        (parts.next().is_none() && blocks.is_valid()).then_some(Self(Some(blocks)))
    }
}

impl EcBlocks {
    /// The queue pair attribute: always on, by the fastest scheme.
    #[must_use]
    pub fn coding(&self) -> ErasureCoding {
        let coding = ErasureCoding::new(self.data, self.parity);
        self.adaptive.map_or(coding, |(least, most)| coding.adaptive(least, most))
    }

    fn is_valid(&self) -> bool {
        let (least, most) = self.adaptive.unwrap_or((self.parity, self.parity));
        let fits = self.data >= 1 && u16::from(self.data) + u16::from(most) <= BLOCK_MAX;
        fits && (1..=PARITY_MAX).contains(&least)
            && (least..=most).contains(&self.parity)
            && most <= PARITY_MAX
    }
}

impl fmt::Display for EcChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(EcBlocks { data, parity, adaptive }) = self.0 else { return f.write_str(OFF) };
        write!(f, "{data},{parity}")?;
        match adaptive {
            Some((least, most)) => write!(f, ",{least}-{most}"),
            None => Ok(()),
        }
    }
}

const OFF: &str = "off";
/// Limits of the engine.
const BLOCK_MAX: u16 = 64;
const PARITY_MAX: u8 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse__takes_what_display_writes_and_nothing_that_cannot_be() {
        for text in ["off", "8,2", "4,2", "16,4", "62,2", "32,32", "8,2,1-4"] {
            let choice = EcChoice::parse(text).unwrap();
            assert_eq!(choice.to_string(), text);
            assert!(choice.0.is_none_or(|blocks| blocks.coding().is_valid()), "{text}");
        }
        for text in [
            "",
            "on",
            "8",
            "8,0",
            "0,2",
            "63,2",
            "8,33",
            "8,2,",
            "8,2,1",
            "8,2,3-4",
            "8,2,4-1",
            "8,2,0-4",
            "62,2,1-4",
            "8,2,1-4,5",
            "-1,2",
            "300,2",
        ] {
            assert_eq!(EcChoice::parse(text), None, "{text}");
        }
    }
}
