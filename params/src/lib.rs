//! Named parameters with documentation, default and range, set from text.
//!
//! An algorithm declares its parameters with [`params!`](crate::params!): a struct of plain values
//! with a [`Field`] for each. [`choices!`](crate::choices!) makes an enum of algorithms that are
//! chosen by name, each with its parameters, as in `swift,beta=0.5`. The numbers of one enum are
//! all `f64` or all `u64`; flags are `bool`.
#![forbid(unsafe_code)]
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod macros;

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

/// The description of one parameter; `N` is the type of its numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field<N: 'static> {
    /// Its name, with its unit: `target_us`.
    pub name: &'static str,
    /// Its meaning, and the source of its default.
    pub about: &'static str,
    /// Its default.
    pub default: Value<N>,
    /// The kind of its values.
    pub kind: Kind<N>,
}

/// The kind of a parameter's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind<N: 'static> {
    /// A number in a range.
    Number {
        /// The smallest value allowed.
        min: N,
        /// The largest value allowed.
        max: N,
    },
    /// One of several names. The value is the index of its name.
    Named(&'static [&'static str]),
    /// A flag.
    Bool,
}

/// The value of one parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<N> {
    /// A number, or the index of a name.
    Number(N),
    /// A flag.
    Bool(bool),
}

/// The place of one parameter's value in its struct.
#[derive(PartialEq, Eq, Debug)]
pub enum Slot<'a, N> {
    /// Of a number, or of the index of a name.
    Number(&'a mut N),
    /// Of a flag.
    Bool(&'a mut bool),
}

/// The parameters that were set, whatever their values. An algorithm that scales its defaults to
/// the path keeps them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Explicit(u64);

impl Explicit {
    /// The parameter at this place of `FIELDS` was set.
    ///
    /// # Panics
    /// From the 64th on.
    pub fn add(&mut self, index: usize) {
        assert!(index < 64, "at most 64 parameters");
        self.0 |= 1 << index;
    }

    /// True if the parameter at this place was set.
    #[must_use]
    pub fn has(self, index: usize) -> bool {
        index < 64 && self.0 >> index & 1 == 1
    }
}

/// The type of a parameter's numbers.
pub trait Number: Copy + PartialOrd + fmt::Display + FromStr + From<u32> {
    /// The expected text, for error messages.
    const EXPECTED: &'static str;

    /// The number as a table shows it.
    fn short(self) -> String {
        self.to_string()
    }
}

/// An error in a name, a parameter or its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParamError {
    /// There is no choice of this name.
    NoChoice {
        /// The kind of choice: `congestion control`.
        what: &'static str,
        /// The unknown name.
        name: String,
        /// The known names.
        known: Vec<&'static str>,
    },
    /// The choice has no parameter of this name.
    NoField {
        /// The unknown name.
        name: String,
        /// The names of its parameters.
        known: Vec<&'static str>,
    },
    /// The text is not `KEY=VALUE`.
    NotASetting {
        /// The text.
        text: String,
    },
    /// The text is not a value of this parameter.
    NotAValue {
        /// The parameter.
        name: &'static str,
        /// The text.
        text: String,
        /// The expected values, as an object of "is".
        expected: String,
    },
    /// The value is not in its range.
    OutOfRange {
        /// The parameter.
        name: &'static str,
        /// The value.
        value: String,
        /// The smallest value allowed.
        min: String,
        /// The largest value allowed.
        max: String,
    },
}

impl<N: Number> Field<N> {
    /// The smallest and the largest number allowed; none for a flag.
    #[must_use]
    pub fn range(&self) -> Option<(N, N)> {
        match self.kind {
            Kind::Number { min, max } => Some((min, max)),
            Kind::Named(names) => {
                let last = u32::try_from(names.len().saturating_sub(1)).unwrap_or(u32::MAX);
                Some((N::from(0), N::from(last)))
            }
            Kind::Bool => None,
        }
    }

    /// `value` as text that reads back to the bit: its name, `true` or `false`, or the number.
    #[must_use]
    pub fn text(&self, value: Value<N>) -> String {
        match (value, self.kind) {
            (Value::Bool(flag), _) => flag.to_string(),
            (Value::Number(number), Kind::Named(names)) => {
                let mut indexed = (0..).zip(names);
                let name = indexed.find(|(index, _)| N::from(*index) == number);
                name.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
            }
            (Value::Number(number), _) => number.to_string(),
        }
    }

    /// The value that a text stands for: a number in range, a name or its index, or a flag.
    ///
    /// A flag is `true` or `false`; `on`, `off`, `1` and `0` are aliases.
    ///
    /// # Errors
    /// It is none of these, or not in range.
    pub fn parse(&self, text: &str) -> Result<Value<N>, ParamError> {
        let text = text.trim();
        let value = match self.kind {
            Kind::Bool => flag(text).map(Value::Bool),
            Kind::Named(names) => {
                let named = (0..).zip(names).find(|(_, name)| **name == text);
                let number = named.map(|(index, _)| N::from(index)).or_else(|| text.parse().ok());
                number.map(Value::Number)
            }
            Kind::Number { .. } => text.parse().ok().map(Value::Number),
        };
        let value = value.ok_or_else(|| ParamError::NotAValue {
            name: self.name,
            text: text.to_owned(),
            expected: match self.kind {
                Kind::Bool => "true or false".to_owned(),
                Kind::Named(names) => format!("one of {}", names.join(", ")),
                Kind::Number { .. } => N::EXPECTED.to_owned(),
            },
        })?;
        self.check(value).map(|()| value)
    }

    /// Checks a value against the range. NaN is outside every range.
    ///
    /// # Errors
    /// It is outside.
    pub fn check(&self, value: Value<N>) -> Result<(), ParamError> {
        let (Value::Number(value), Some((min, max))) = (value, self.range()) else {
            return Ok(());
        };
        if (min..=max).contains(&value) {
            return Ok(());
        }
        let [value, min, max] = [value, min, max].map(|n| n.to_string());
        Err(ParamError::OutOfRange { name: self.name, value, min, max })
    }
}

/// Sets one of several parameters from text; `slots` in the order of `fields`. Returns its place.
///
/// # Errors
/// There is no parameter of this name, or it cannot have this value; then nothing has changed.
///
/// # Panics
/// If the slot of a flag is that of a number, or the reverse.
pub fn set<N: Number>(
    fields: &[Field<N>],
    slots: Vec<Slot<'_, N>>,
    name: &str,
    text: &str,
) -> Result<usize, ParamError> {
    let mut places = fields.iter().zip(slots).enumerate();
    let Some((place, (field, slot))) = places.find(|(_, (field, _))| field.name == name) else {
        let known = fields.iter().map(|field| field.name).collect();
        return Err(ParamError::NoField { name: name.to_owned(), known });
    };
    match (slot, field.parse(text)?) {
        (Slot::Number(slot), Value::Number(number)) => *slot = number,
        (Slot::Bool(slot), Value::Bool(flag)) => *slot = flag,
        _ => panic!("the field and the slot of {name} differ in kind"),
    }
    Ok(place)
}

/// Checks every value against the range of its field.
///
/// # Errors
/// The first value that is outside.
pub fn validate<N: Number>(fields: &[Field<N>], values: &[Value<N>]) -> Result<(), ParamError> {
    fields.iter().zip(values).try_for_each(|(field, value)| field.check(*value))
}

/// The names and texts of the values that differ from those in `plain`.
#[must_use]
pub fn differences<N: Number>(
    fields: &[Field<N>],
    values: &[Value<N>],
    plain: &[Value<N>],
) -> Vec<(&'static str, String)> {
    let pairs = values.iter().zip(plain);
    // Texts differ where values are equal but not to the bit: 0 and -0.
    let texts = fields.iter().zip(pairs).map(|(f, (a, b))| (f.name, f.text(*a), f.text(*b)));
    texts.filter(|(_, text, plain)| text != plain).map(|(name, text, _)| (name, text)).collect()
}

/// Splits `NAME,KEY=VALUE,...` into the name and the settings.
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

/// Parameters as a table of Markdown, a row for each: name, value, range, and meaning with the
/// source of the default.
#[must_use]
pub fn table<N: Number>(fields: &[Field<N>], values: &[Value<N>]) -> String {
    let mut out = String::from("| parameter | default | range | |\n|---|---|---|---|\n");
    for (field, value) in fields.iter().zip(values) {
        let about = field.about.split_whitespace().collect::<Vec<_>>().join(" ");
        let range = match field.kind {
            Kind::Number { min, max } => format!("{} to {}", min.short(), max.short()),
            Kind::Named(names) => names.join(", "),
            Kind::Bool => "true, false".to_owned(),
        };
        let value = match (field.kind, *value) {
            (Kind::Number { .. }, Value::Number(number)) => number.short(),
            (_, value) => field.text(value),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(out, "| `{}` | {value} | {range} | {about} |", field.name);
    }
    out
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "true" | "on" | "1" => Some(true),
        "false" | "off" | "0" => Some(false),
        _ => None,
    }
}

impl<N> From<bool> for Value<N> {
    fn from(flag: bool) -> Self {
        Self::Bool(flag)
    }
}

impl<'a, N> From<&'a mut bool> for Slot<'a, N> {
    fn from(flag: &'a mut bool) -> Self {
        Self::Bool(flag)
    }
}

macro_rules! numbers {
    ($($N:ty)*) => {$(
        impl From<$N> for Value<$N> {
            fn from(number: $N) -> Self {
                Self::Number(number)
            }
        }

        impl<'a> From<&'a mut $N> for Slot<'a, $N> {
            fn from(number: &'a mut $N) -> Self {
                Self::Number(number)
            }
        }
    )*};
}

numbers!(u64 f64);

impl Number for u64 {
    const EXPECTED: &'static str = "a whole number";
}

impl Number for f64 {
    const EXPECTED: &'static str = "a number";

    /// The shorter of the plain and the scientific form, both exact: 1e6 rather than 1000000.
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
            Self::NotASetting { text } => write!(f, "{text:?} is not KEY=VALUE"),
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
