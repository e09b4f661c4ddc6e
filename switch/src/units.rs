//! Text forms of quantities: `"25Gbit"`, `"2ms"`, `"22MB"`, `"0.1%"`, `"9/10"`.
//!
//! A configuration file has strings with their unit, which avoids counting zeros and guessing
//! units. The parser uses integers, so values are exact to the last digit.

use serde::de::{self, Deserializer, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use spanwire_base::{Dur, Rate};
use spanwire_wire::MacAddr;
use std::fmt;
use std::marker::PhantomData;

/// A probability in parts per billion, 0..=10^9.
///
/// Written `"0.1%"`, `"300ppm"` or `"1600ppb"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Prob(u32);

/// A positive fraction such as `"9/10"`, or a whole number such as `"2"`. Each part 1..=10^6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ratio {
    num: u32,
    den: u32,
}

/// A quantity with a text form.
pub trait Human: Sized {
    /// The expected form, for error messages: `a rate such as "25Gbit"`.
    const EXPECTED: &'static str;

    /// Parses it; `None` if the text is invalid.
    fn parse(text: &str) -> Option<Self>;

    /// Formats it so that [`Human::parse`] returns the same value.
    fn show(&self) -> String;

    /// From a number without a unit, where its meaning is unambiguous.
    #[must_use]
    fn from_number(_n: u64) -> Option<Self> {
        None
    }

    /// The value of an explicit `null`, where it has one.
    #[must_use]
    fn nothing() -> Option<Self> {
        None
    }
}

impl Prob {
    /// Probability 0.
    pub const ZERO: Self = Self(0);
    /// Probability 1.
    pub const ONE: Self = Self(PPB);

    /// From parts per billion; `None` above 10^9.
    #[must_use]
    pub const fn from_ppb(ppb: u32) -> Option<Self> {
        if ppb <= PPB { Some(Self(ppb)) } else { None }
    }

    /// From parts per million.
    ///
    /// # Panics
    /// Above 10^6: for constants and tests; files use [`Human::parse`].
    #[must_use]
    pub const fn from_ppm(ppm: u32) -> Self {
        assert!(ppm <= 1_000_000, "a probability is at most one");
        Self(ppm * 1_000)
    }

    /// Parts per billion.
    #[must_use]
    pub const fn ppb(self) -> u32 {
        self.0
    }

    /// True if it is 0.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Ratio {
    /// `num / den`; `None` unless both are 1..=10^6.
    #[must_use]
    pub const fn new(num: u32, den: u32) -> Option<Self> {
        let fits = num >= 1 && num <= RATIO_MAX && den >= 1 && den <= RATIO_MAX;
        if fits { Some(Self { num, den }) } else { None }
    }

    /// The numerator.
    #[must_use]
    pub const fn num(self) -> u32 {
        self.num
    }

    /// The denominator.
    #[must_use]
    pub const fn den(self) -> u32 {
        self.den
    }

    /// This fraction of `n`, rounded down; saturates.
    #[must_use]
    pub fn of(self, n: u64) -> u64 {
        match n.checked_mul(u64::from(self.num)) {
            Some(product) => product / u64::from(self.den),
            None => {
                let wide = u128::from(n) * u128::from(self.num) / u128::from(self.den);
                u64::try_from(wide).unwrap_or(u64::MAX)
            }
        }
    }
}

impl Human for Rate {
    const EXPECTED: &'static str = "a rate such as \"25Gbit\" (bit, kbit, Mbit, Gbit, Tbit; a \
                                    second is meant)";

    fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix("/s").unwrap_or(text);
        let bps = scaled(text, BIT_UNITS)?;
        (bps > 0).then(|| Self::from_bps(bps))
    }

    fn show(&self) -> String {
        largest(self.as_bps(), BIT_UNITS)
    }
}

impl Human for Dur {
    const EXPECTED: &'static str = "a time such as \"2ms\" (ps, ns, us, ms, s)";

    fn parse(text: &str) -> Option<Self> {
        scaled(text, TIME_UNITS).map(Self::from_ps)
    }

    fn show(&self) -> String {
        largest(self.as_ps(), TIME_UNITS)
    }
}

/// Bytes: the only plain number with a text form.
impl Human for u64 {
    const EXPECTED: &'static str = "bytes, as a number or such as \"22MB\" (B, kB, MB, GB, KiB, \
                                    MiB, GiB)";

    fn parse(text: &str) -> Option<Self> {
        scaled(text, BYTE_UNITS)
    }

    fn show(&self) -> String {
        largest(*self, BYTE_UNITS)
    }

    fn from_number(n: u64) -> Option<Self> {
        Some(n)
    }
}

impl Human for Prob {
    const EXPECTED: &'static str = "a probability such as \"0.1%\", \"300ppm\" or \"1600ppb\"";

    fn parse(text: &str) -> Option<Self> {
        let ppb = scaled(text, PROB_UNITS)?;
        Self::from_ppb(u32::try_from(ppb).ok()?)
    }

    fn show(&self) -> String {
        largest(u64::from(self.0), PROB_UNITS)
    }

    fn from_number(n: u64) -> Option<Self> {
        (n == 0).then_some(Self::ZERO)
    }
}

impl Human for Ratio {
    const EXPECTED: &'static str = "a fraction such as \"9/10\", or a whole number";

    fn parse(text: &str) -> Option<Self> {
        let (num, den) = text.split_once('/').unwrap_or((text, "1"));
        Self::new(num.trim().parse().ok()?, den.trim().parse().ok()?)
    }

    fn show(&self) -> String {
        format!("{}/{}", self.num, self.den)
    }

    fn from_number(n: u64) -> Option<Self> {
        Self::new(u32::try_from(n).ok()?, 1)
    }
}

impl Human for MacAddr {
    const EXPECTED: &'static str = "a MAC address such as \"02:00:00:00:00:01\"";

    fn parse(text: &str) -> Option<Self> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let hex = |p: &&str| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit());
            let part = parts.next().filter(hex)?;
            *octet = u8::from_str_radix(part, 16).ok()?;
        }
        parts.next().is_none().then_some(Self(octets))
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// `"none"` is the text of `None`.
impl<T: Human> Human for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn parse(text: &str) -> Option<Self> {
        if text == "none" { Some(None) } else { T::parse(text).map(Some) }
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(|| "none".to_owned(), T::show)
    }

    fn from_number(n: u64) -> Option<Self> {
        T::from_number(n).map(Some)
    }

    fn nothing() -> Option<Self> {
        Some(None)
    }
}

/// For `#[serde(with = "units")]`: serializes a quantity as text.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<T: Human, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.show())
}

/// For `#[serde(with = "units")]`: deserializes a quantity from text.
///
/// # Errors
/// The value found, and [`Human::EXPECTED`].
pub fn deserialize<'de, T: Human, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(TextVisitor(PhantomData))
}

impl Serialize for Prob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Prob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer)
    }
}

impl Serialize for Ratio {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer)
    }
}

struct TextVisitor<T>(PhantomData<T>);

impl<T: Human> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::parse(text.trim()).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_unit<E: de::Error>(self) -> Result<T, E> {
        T::nothing().ok_or_else(|| E::invalid_type(de::Unexpected::Unit, &self))
    }

    fn visit_u64<E: de::Error>(self, n: u64) -> Result<T, E> {
        T::from_number(n).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(n), &self))
    }

    fn visit_i64<E: de::Error>(self, n: i64) -> Result<T, E> {
        let number = u64::try_from(n).ok().and_then(T::from_number);
        number.ok_or_else(|| E::invalid_value(de::Unexpected::Signed(n), &self))
    }
}

/// Parses digits, optionally with a decimal point, and a unit: the exact number of base units.
/// `None` for an unknown unit, too many decimals or an overflow.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() {
        return None;
    }
    let mut total = whole.parse::<u64>().ok()?.checked_mul(factor)?;
    let mut place = factor;
    for digit in part.chars() {
        if !place.is_multiple_of(10) {
            return None;
        }
        place /= 10;
        total = total.checked_add(u64::from(digit.to_digit(10)?) * place)?;
    }
    Some(total)
}

/// `n` in the largest unit that leaves no fraction.
fn largest(n: u64, units: &[(&str, u64)]) -> String {
    let fits = |(_, factor): &&(&str, u64)| n.is_multiple_of(*factor) && (n > 0 || *factor == 1);
    let best = units.iter().filter(fits).max_by_key(|(_, factor)| *factor);
    best.map_or_else(|| n.to_string(), |(name, factor)| format!("{}{name}", n / factor))
}

const PPB: u32 = 1_000_000_000;
const RATIO_MAX: u32 = 1_000_000;

const BIT_UNITS: &[(&str, u64)] = &[
    ("bit", 1),
    ("kbit", 1_000),
    ("Mbit", 1_000_000),
    ("Gbit", 1_000_000_000),
    ("Tbit", 1_000_000_000_000),
];
const TIME_UNITS: &[(&str, u64)] =
    &[("ps", 1), ("ns", 1_000), ("us", 1_000_000), ("ms", 1_000_000_000), ("s", 1_000_000_000_000)];
const BYTE_UNITS: &[(&str, u64)] = &[
    ("B", 1),
    ("KB", 1_000),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];
const PROB_UNITS: &[(&str, u64)] = &[("ppb", 1), ("ppm", 1_000), ("%", 10_000_000)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_ppb__ends_at_one() {
        assert_eq!(Prob::from_ppb(PPB), Some(Prob::ONE));
        assert_eq!(Prob::from_ppb(PPB + 1), None);
        assert_eq!(Prob::from_ppm(16).ppb(), 16_000);
    }

    #[test]
    fn of__is_exact_and_saturates() {
        let ratio = Ratio::new(9, 10).unwrap();
        assert_eq!(ratio.of(101), 90);
        assert_eq!(ratio.of(u64::MAX), 16_602_069_666_338_596_453);
        assert_eq!(Ratio::new(2, 1).unwrap().of(u64::MAX), u64::MAX);
        assert_eq!((Ratio::new(0, 1), Ratio::new(1, 0)), (None, None));
    }

    #[test]
    fn parse__accepts_the_usual_forms() {
        assert_eq!(Rate::parse("25Gbit"), Some(Rate::from_gbps(25)));
        assert_eq!(Rate::parse("2.5 Gbit/s"), Some(Rate::from_bps(2_500_000_000)));
        assert_eq!(Dur::parse("1.5us"), Some(Dur::from_ns(1_500)));
        assert_eq!(u64::parse("1MiB"), Some(1_048_576));
        assert_eq!(Prob::parse("0.0016%"), Some(Prob::from_ppm(16)));
        assert_eq!(Prob::parse("75ppm"), Some(Prob::from_ppm(75)));
        assert_eq!(Ratio::parse("1/8"), Ratio::new(1, 8));
        assert_eq!(MacAddr::parse("02:00:0a:FF:00:01"), Some(MacAddr([2, 0, 10, 255, 0, 1])));
        assert_eq!(Option::<Rate>::parse("none"), Some(None));
    }

    #[test]
    fn parse__rejects_ambiguous_forms() {
        for text in ["25", "25G", "25Gb", "", "Gbit", ".5Gbit", "1.2.3Gbit", "0bit", "-1Gbit"] {
            assert_eq!(Rate::parse(text), None, "{text}");
        }
        for text in ["0.5ps", "1.0005ns", "1e3us", "99999999999s"] {
            assert_eq!(Dur::parse(text), None, "{text}");
        }
        for text in ["101%", "1", "0.00000001%"] {
            assert_eq!(Prob::parse(text), None, "{text}");
        }
        for text in ["02:00:00:00:00", "02:00:00:00:00:01:02", "2:0:0:0:0:1", "+2:00:00:00:00:01"] {
            assert_eq!(MacAddr::parse(text), None, "{text}");
        }
    }

    #[test]
    fn show__is_the_inverse_of_parse() {
        assert_eq!(Rate::from_gbps(25).show(), "25Gbit");
        assert_eq!(Dur::from_ns(1_500).show(), "1500ns");
        assert_eq!(Dur::ZERO.show(), "0ps");
        for ppb in [0, 1, 16_000, 10_000_000, PPB] {
            let prob = Prob::from_ppb(ppb).unwrap();
            assert_eq!(Prob::parse(&prob.show()), Some(prob), "{}", prob.show());
        }
        for bytes in [0, 1, 1_000, 1_024, 22_400_515, 1 << 30] {
            assert_eq!(u64::parse(&bytes.show()), Some(bytes), "{}", bytes.show());
        }
    }

    #[test]
    fn deserialize__errors_have_the_expected_form() {
        #[derive(Deserialize, Debug)]
        struct One {
            #[serde(with = "crate::units")]
            rate: Rate,
            #[serde(with = "crate::units", default)]
            delay: Option<Dur>,
        }
        let one: One = serde_json::from_str(r#"{"rate": "1Gbit"}"#).unwrap();
        assert_eq!((one.rate, one.delay), (Rate::from_gbps(1), None));
        let two: One = serde_json::from_str(r#"{"rate": "2bit", "delay": null}"#).unwrap();
        assert_eq!(two.delay, None);
        assert!(serde_json::from_str::<One>(r#"{"rate": null}"#).is_err());
        let error = serde_json::from_str::<One>(r#"{"rate": 5}"#).unwrap_err().to_string();
        assert!(error.contains("a rate such as \"25Gbit\""), "{error}");
    }
}
