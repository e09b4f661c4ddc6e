//! Typed values of parameters.

use super::bounds;
use super::{AgentChoice, CcChoice, EcChoice, LbChoice};
use spanwire_base::{Dur, Rate};
use spanwire_switch::{Human, Prob};
use std::fmt;
use std::ops::RangeInclusive;

/// A typed value.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A whole number in a range.
    Count {
        /// The number.
        n: u64,
        /// The smallest allowed.
        min: u64,
        /// The largest allowed.
        max: u64,
    },
    /// Bytes: `"64KiB"`.
    Bytes(u64),
    /// A rate: `"100Gbit"`.
    Rate(Rate),
    /// A time: `"2ms"`.
    Time(Dur),
    /// A probability: `"1%"`.
    Chance(Prob),
    /// Several times, separated by commas: `"20us,2ms"`.
    Times(Vec<Dur>),
    /// Several probabilities, separated by commas: `"0.1%,5%"`.
    Chances(Vec<Prob>),
    /// `true` or `false`.
    Flag(bool),
    /// A congestion control: `"unocc"`.
    Cc(CcChoice),
    /// A load balancer: `"unolb"`.
    Lb(LbChoice),
    /// Blocks of an erasure code: `"8,2"`.
    Ec(EcChoice),
    /// Parameters of agents: `"period=40us"`.
    Agents(AgentChoice),
    /// Any text.
    Text(String),
    /// One of several words.
    Word {
        /// The word.
        word: String,
        /// All that are allowed.
        of: Vec<&'static str>,
    },
}

impl Value {
    /// A count from 1 to `max`.
    #[must_use]
    pub const fn count(n: u64, max: u64) -> Self {
        Self::Count { n, min: 1, max }
    }

    /// Parses a value of the same type for the parameter `name`; `None` if the text is invalid or
    /// the value out of range.
    pub(super) fn parse(&self, name: &str, text: &str) -> Option<Self> {
        let is_time = |time: &Dur| bounds::time(name).contains(time);
        Some(match self {
            Self::Count { min, max, .. } => {
                let (min, max) = (*min, *max);
                let in_range = |n: &u64| (min..=max).contains(n) && bounds::is_count(name, *n);
                let n = text.parse().ok().filter(in_range)?;
                Self::Count { n, min, max }
            }
            Self::Bytes(_) => {
                let n = text.parse().ok().or_else(|| u64::parse(text));
                Self::Bytes(n.filter(|n| bounds::bytes(name).contains(n))?)
            }
            Self::Rate(_) => {
                Self::Rate(Rate::parse(text).filter(|rate| bounds::rate().contains(rate))?)
            }
            Self::Time(_) => Self::Time(Dur::parse(text).filter(is_time)?),
            Self::Chance(_) => Self::Chance(Prob::parse(text)?),
            Self::Times(_) => {
                Self::Times(list(text).filter(|times: &Vec<Dur>| times.iter().all(is_time))?)
            }
            Self::Chances(_) => Self::Chances(list(text)?),
            Self::Flag(_) => Self::Flag(text.parse().ok()?),
            Self::Cc(_) => Self::Cc(CcChoice::parse(text)?),
            Self::Lb(_) => Self::Lb(LbChoice::parse(text)?),
            Self::Ec(_) => Self::Ec(EcChoice::parse(text)?),
            Self::Agents(_) => Self::Agents(AgentChoice::parse(text)?),
            Self::Text(_) => Self::Text(text.to_owned()),
            Self::Word { of, .. } => {
                let word = of.iter().find(|w| **w == text)?;
                Self::Word { word: (*word).to_owned(), of: of.clone() }
            }
        })
    }

    /// The expected form and range of the parameter `name`.
    pub(super) fn expected(&self, name: &str) -> String {
        match self {
            Self::Count { min, max, .. } => match bounds::is_count(name, (*min).max(1)) {
                true => format!("a whole number from {min} to {max}"),
                false => format!("0, or a whole number from {} to {max}", bounds::SEGMENT_MIN),
            },
            Self::Bytes(_) => {
                let range = between(&bounds::bytes(name));
                format!("a number of bytes such as 64KiB or 1000000, {range}")
            }
            Self::Rate(_) => format!("{}, {}", Rate::EXPECTED, between(&bounds::rate())),
            Self::Time(_) => format!("{}, {}", Dur::EXPECTED, between(&bounds::time(name))),
            Self::Chance(_) => Prob::EXPECTED.to_owned(),
            Self::Times(_) => {
                let range = between(&bounds::time(name));
                format!("nothing, or one or several of {}, {range}", Dur::EXPECTED)
            }
            Self::Chances(_) => format!("nothing, or one or several of {}", Prob::EXPECTED),
            Self::Flag(_) => "true or false".to_owned(),
            Self::Cc(_) => format!("one of {}", CcChoice::known().join(", ")),
            Self::Lb(_) => format!("one of {}", LbChoice::known().join(", ")),
            Self::Ec(_) => EcChoice::EXPECTED.to_owned(),
            Self::Agents(_) => AgentChoice::EXPECTED.to_owned(),
            Self::Text(_) => "text".to_owned(),
            Self::Word { of, .. } => format!("one of {}", of.join(", ")),
        }
    }
}

/// For tests: the ends of the range of the parameter `name` as texts, and values beyond them.
#[cfg(test)]
pub(crate) fn ends(value: &Value, name: &str) -> ([String; 2], Vec<String>) {
    fn of<T: Human>(range: &RangeInclusive<T>, beyond: &[&str]) -> ([String; 2], Vec<String>) {
        let beyond = beyond.iter().map(|text| (*text).to_owned()).collect();
        ([range.start().show(), range.end().show()], beyond)
    }
    match value {
        Value::Count { min, max, .. } => {
            ([min.to_string(), max.to_string()], vec![(max + 1).to_string(), "-1".to_owned()])
        }
        Value::Bytes(_) => of(&bounds::bytes(name), &["0", "2000GiB"]),
        Value::Rate(_) => of(&bounds::rate(), &["1bit", "0bit", "20Tbit"]),
        Value::Time(_) => of(&bounds::time(name), &["2h", "-1s", "99999s"]),
        _ => ([value.to_string(), value.to_string()], Vec::new()),
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { n, .. } => write!(f, "{n}"),
            Self::Bytes(n) => f.write_str(&n.show()),
            Self::Rate(rate) => f.write_str(&rate.show()),
            Self::Time(time) => f.write_str(&time.show()),
            Self::Chance(chance) => f.write_str(&chance.show()),
            Self::Times(times) => f.write_str(&shown(times)),
            Self::Chances(chances) => f.write_str(&shown(chances)),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Cc(choice) => write!(f, "{choice}"),
            Self::Lb(choice) => write!(f, "{choice}"),
            Self::Ec(choice) => write!(f, "{choice}"),
            Self::Agents(choice) => write!(f, "{choice}"),
            Self::Text(text) => f.write_str(text),
            Self::Word { word, .. } => f.write_str(word),
        }
    }
}

/// Parses a list separated by commas; empty text is an empty list.
fn list<T: Human>(text: &str) -> Option<Vec<T>> {
    let parts = text.split(',').filter(|_| !text.is_empty());
    let number = |part: &str| part.parse().ok().and_then(T::from_number);
    parts.map(str::trim).map(|part| T::parse(part).or_else(|| number(part))).collect()
}

fn between<T: Human>(range: &RangeInclusive<T>) -> String {
    format!("from {} to {}", range.start().show(), range.end().show())
}

fn shown<T: Human>(list: &[T]) -> String {
    list.iter().map(Human::show).collect::<Vec<_>>().join(",")
}
