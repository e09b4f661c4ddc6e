//! Parameters by name: documented, ranged, whole numbers, set from text.

use std::fmt;

/// A parameter as people see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its name, with its unit: `suspend_ms`.
    pub name: &'static str,
    /// What it means, and where its default comes from.
    pub about: &'static str,
    /// Its default.
    pub default: u64,
    /// The smallest value allowed.
    pub min: u64,
    /// The largest.
    pub max: u64,
    /// What its values are called, from 0 on; none for a number.
    pub words: &'static [&'static str],
}

impl Field {
    /// `value` as text: its word, if it has one.
    #[must_use]
    pub fn text(&self, value: u64) -> String {
        let word = usize::try_from(value).ok().and_then(|index| self.words.get(index));
        word.map_or_else(|| value.to_string(), |word| (*word).to_owned())
    }
}

/// Why a policy cannot be what was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParamError {
    /// There is no policy of this name.
    NoPolicy {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// The policy has no parameter of this name.
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
        /// The words that it takes; none if it is a whole number.
        words: &'static [&'static str],
    },
    /// The value is not in its range.
    OutOfRange {
        /// The parameter.
        name: &'static str,
        /// What was given.
        value: u64,
        /// The smallest value allowed.
        min: u64,
        /// The largest.
        max: u64,
    },
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPolicy { name, known } => {
                write!(f, "no load balancing is called {name}; there are {}", known.join(", "))
            }
            Self::NoField { name, known } if known.is_empty() => {
                write!(f, "it has no parameter {name}, nor any other")
            }
            Self::NoField { name, known } => {
                write!(f, "it has no parameter {name}; it has {}", known.join(", "))
            }
            Self::NotASetting { text } => write!(f, "{text:?} is no KEY=VALUE"),
            Self::NotAValue { name, text, words: [] } => {
                write!(f, "{name} is a whole number, not {text:?}")
            }
            Self::NotAValue { name, text, words } => {
                write!(f, "{name} is one of {}, not {text:?}", words.join(", "))
            }
            Self::OutOfRange { name, value, min, max } => {
                write!(f, "{name} is {value}, but must be between {min} and {max}")
            }
        }
    }
}

impl std::error::Error for ParamError {}

/// Makes the struct `Params`, all `u64`, from one line for each parameter: its doc, name, default,
/// range and, if its values have names, these. The struct has `Default`, `FIELDS`, `values` and
/// `validate`.
macro_rules! params {
    (
        $(#[$struct_doc:meta])*
        struct;
        $(
            #[doc = $about:literal]
            $(#[doc = $more:literal])*
            $field:ident = $default:literal in $min:literal ..= $max:literal
                $(as $($word:literal)|+)?;
        )*
    ) => {
        $(#[$struct_doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Params {
            $(
                #[doc = $about]
                $(#[doc = $more])*
                #[doc = concat!(
                    "\n\nDefault ", stringify!($default), ", ",
                    stringify!($min), "..=", stringify!($max), "."
                )]
                pub $field: u64,
            )*
        }

        impl Default for Params {
            fn default() -> Self {
                Self { $($field: $default),* }
            }
        }

        impl Params {
            /// Every parameter, in the order of the struct.
            pub const FIELDS: &'static [$crate::params::Field] = &[
                $($crate::params::Field {
                    name: stringify!($field),
                    about: concat!($about $(, $more)*),
                    default: $default,
                    min: $min,
                    max: $max,
                    words: &[$($($word),+)?],
                }),*
            ];

            /// The values, in the order of [`Params::FIELDS`].
            #[must_use]
            pub fn values(&self) -> Vec<u64> {
                vec![$(self.$field),*]
            }

            /// Sets one by name; it is not checked before [`Params::validate`].
            pub(crate) fn put(&mut self, name: &str, value: u64) {
                match name {
                    $(stringify!($field) => self.$field = value,)*
                    _ => {}
                }
                let _ = value;
            }

            /// Checks every value against its range.
            ///
            /// # Errors
            /// The first that is outside.
            pub fn validate(&self) -> Result<(), $crate::params::ParamError> {
                $crate::params::check(Self::FIELDS, &self.values())
            }
        }
    };
}
pub(crate) use params;

/// The first value that is outside the range of its field.
pub(crate) fn check(fields: &[Field], values: &[u64]) -> Result<(), ParamError> {
    for (&Field { name, min, max, .. }, &value) in fields.iter().zip(values) {
        if !(min..=max).contains(&value) {
            return Err(ParamError::OutOfRange { name, value, min, max });
        }
    }
    Ok(())
}

/// Which field is meant, and the value that the text is.
pub(crate) fn parse(
    fields: &'static [Field],
    name: &str,
    text: &str,
) -> Result<(&'static Field, u64), ParamError> {
    let Some(field) = fields.iter().find(|field| field.name == name) else {
        let known = fields.iter().map(|field| field.name).collect();
        return Err(ParamError::NoField { name: name.to_owned(), known });
    };
    let text = text.trim();
    let word = (0..).zip(field.words).find(|(_, word)| **word == text).map(|(value, _)| value);
    let value = word.or_else(|| text.parse().ok()).ok_or_else(|| ParamError::NotAValue {
        name: field.name,
        text: text.to_owned(),
        words: field.words,
    })?;
    check(std::slice::from_ref(field), &[value])?;
    Ok((field, value))
}
