//! Parameters by name: documented, ranged, set from text.
//!
//! An algorithm declares its own with [`params!`](crate::params!), a struct of plain numbers with a
//! [`Field`] for each. [`choices!`](crate::choices!) makes an enum of algorithms that are chosen by
//! name, each with its parameters, as in `swift,beta=0.5`. The numbers are `f64` or `u64`.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod macros;

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

/// A parameter as people see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field<N: 'static> {
    /// Its name, with its unit: `target_us`.
    pub name: &'static str,
    /// What it means, and where its default comes from.
    pub about: &'static str,
    /// Its default.
    pub default: N,
    /// The smallest value allowed.
    pub min: N,
    /// The largest.
    pub max: N,
    /// What its values are called, from 0 on; none for a number.
    pub words: &'static [&'static str],
}

/// What a parameter is.
pub trait Number: Copy + PartialOrd + fmt::Display + FromStr + From<u32> {
    /// What a text has to be, for the error that it is not.
    const EXPECTED: &'static str;

    /// From text, whatever the range.
    fn from_text(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    /// As a table has it.
    fn short(self) -> String {
        self.to_string()
    }
}

/// Why something cannot be what was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParamError {
    /// There is no choice of this name.
    NoChoice {
        /// What is chosen: `congestion control`.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// What was chosen has no parameter of this name.
    NoField {
        /// What was asked for.
        name: String,
        /// What it has.
        known: Vec<&'static str>,
    },
    /// The text is no `KEY=VALUE`.
    NotASetting {
        /// What was given.
        text: String,
    },
    /// The text is not a value of this parameter.
    NotAValue {
        /// The parameter.
        name: &'static str,
        /// What was given.
        text: String,
        /// What it takes, as an object of "is".
        expected: String,
    },
    /// The value is not in its range.
    OutOfRange {
        /// The parameter.
        name: &'static str,
        /// What was given.
        value: String,
        /// The smallest value allowed.
        min: String,
        /// The largest.
        max: String,
    },
}

impl<N: Number> Field<N> {
    /// `value` as text that reads back to the bit: its word, if it has one.
    #[must_use]
    pub fn text(&self, value: N) -> String {
        let word = (0..).zip(self.words).find(|(index, _)| N::from(*index) == value);
        word.map_or_else(|| value.to_string(), |(_, word)| (*word).to_owned())
    }

    /// The value that a text is: a number, or one of the words.
    ///
    /// # Errors
    /// It is neither, or not in range.
    pub fn parse(&self, text: &str) -> Result<N, ParamError> {
        let text = text.trim();
        let word = (0..).zip(self.words).find(|(_, word)| **word == text);
        let value = word.map(|(index, _)| N::from(index)).or_else(|| N::from_text(text));
        let value = value.ok_or_else(|| ParamError::NotAValue {
            name: self.name,
            text: text.to_owned(),
            expected: match self.words {
                [] => N::EXPECTED.to_owned(),
                words => format!("one of {}", words.join(", ")),
            },
        })?;
        self.check(value).map(|()| value)
    }

    /// Checks a value against the range. What is not a number is in none.
    ///
    /// # Errors
    /// It is outside.
    pub fn check(&self, value: N) -> Result<(), ParamError> {
        if (self.min..=self.max).contains(&value) {
            return Ok(());
        }
        let [value, min, max] = [value, self.min, self.max].map(|n| n.to_string());
        Err(ParamError::OutOfRange { name: self.name, value, min, max })
    }
}

/// Sets one of several parameters from text; `values` in the order of `fields`.
///
/// # Errors
/// There is none of this name, or it cannot have this value; then nothing has changed.
pub fn set<N: Number>(
    fields: &[Field<N>],
    values: Vec<&mut N>,
    name: &str,
    text: &str,
) -> Result<(), ParamError> {
    let Some((field, value)) = fields.iter().zip(values).find(|(field, _)| field.name == name)
    else {
        let known = fields.iter().map(|field| field.name).collect();
        return Err(ParamError::NoField { name: name.to_owned(), known });
    };
    *value = field.parse(text)?;
    Ok(())
}

/// Checks every value against the range of its field.
///
/// # Errors
/// The first that is outside.
pub fn validate<N: Number>(fields: &[Field<N>], values: &[N]) -> Result<(), ParamError> {
    fields.iter().zip(values).try_for_each(|(field, value)| field.check(*value))
}

/// The values that are others in `plain`, as text, with their names.
#[must_use]
pub fn differences<N: Number>(
    fields: &[Field<N>],
    values: &[N],
    plain: &[N],
) -> Vec<(&'static str, String)> {
    let pairs = values.iter().zip(plain);
    // As texts, which tell apart what is equal, but not to the bit: 0 and -0.
    let texts = fields.iter().zip(pairs).map(|(f, (a, b))| (f.name, f.text(*a), f.text(*b)));
    texts.filter(|(_, text, plain)| text != plain).map(|(name, text, _)| (name, text)).collect()
}

/// `text` as a name, and the `KEY=VALUE` behind commas.
pub fn split(
    text: &str,
) -> (&str, impl Iterator<Item = Result<(&str, &str), ParamError>> + use<'_>) {
    let mut parts = text.split(',').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let settings = parts.map(|part| match part.split_once('=') {
        Some((key, value)) => Ok((key.trim(), value.trim())),
        None => Err(ParamError::NotASetting { text: part.to_owned() }),
    });
    (name, settings)
}

/// Parameters as a table of Markdown, a row for each: name, value, range, what it means and where
/// its default is from.
#[must_use]
pub fn table<N: Number>(fields: &[Field<N>], values: &[N]) -> String {
    let mut out = String::from("| parameter | default | range | |\n|---|---|---|---|\n");
    for (field, value) in fields.iter().zip(values) {
        let about = field.about.split_whitespace().collect::<Vec<_>>().join(" ");
        let (value, range) = match field.words {
            [] => (value.short(), format!("{} to {}", field.min.short(), field.max.short())),
            words => (field.text(*value), words.join(", ")),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "| `{}` | {value} | {range} | {about} |", field.name);
    }
    out
}

impl Number for u64 {
    const EXPECTED: &'static str = "a whole number";
}

impl Number for f64 {
    const EXPECTED: &'static str = "a number (a flag is 0 or 1)";

    /// Flags may be words.
    fn from_text(text: &str) -> Option<Self> {
        match text {
            "true" | "on" => Some(1.0),
            "false" | "off" => Some(0.0),
            number => number.parse().ok(),
        }
    }

    /// As short as it is exact: 1e6 rather than 1000000.
    fn short(self) -> String {
        let (plain, scientific) = (format!("{self}"), format!("{self:e}"));
        if scientific.len() < plain.len() { scientific } else { plain }
    }
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoChoice { what, name, known } => {
                write!(f, "no {what} is called {name}; there are {}", known.join(", "))
            }
            Self::NoField { name, known } if known.is_empty() => {
                write!(f, "it has no parameter {name}, nor any other")
            }
            Self::NoField { name, known } => {
                write!(f, "it has no parameter {name}; it has {}", known.join(", "))
            }
            Self::NotASetting { text } => write!(f, "{text:?} is no KEY=VALUE"),
            Self::NotAValue { name, text, expected } => {
                write!(f, "{name} is {expected}, not {text:?}")
            }
            Self::OutOfRange { name, value, min, max } => {
                write!(f, "{name} is {value}, but must be between {min} and {max}")
            }
        }
    }
}

impl std::error::Error for ParamError {}

#[cfg(test)]
mod tests;
