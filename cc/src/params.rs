//! Parameters by name: documented, ranged, set from text.

use std::fmt;

/// A parameter as people see it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Field {
    /// Its name, with its unit: `target_us`.
    pub name: &'static str,
    /// What it means, and where its default comes from.
    pub about: &'static str,
    /// Its default.
    pub default: f64,
    /// The smallest value allowed.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// Why a parameter cannot have a value.
#[derive(Clone, PartialEq, Debug)]
pub enum ParamError {
    /// There is no congestion control of this name.
    NoAlgorithm {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// The congestion control has no parameter of this name.
    NoField {
        /// What was asked for.
        name: String,
        /// What it has.
        known: Vec<&'static str>,
    },
    /// The text is not a number.
    NotANumber {
        /// The parameter.
        name: &'static str,
        /// What was given.
        text: String,
    },
    /// The value is not in its range.
    OutOfRange {
        /// The parameter.
        name: &'static str,
        /// What was given.
        value: f64,
        /// The smallest value allowed.
        min: f64,
        /// The largest.
        max: f64,
    },
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAlgorithm { name, known } => {
                write!(f, "no congestion control is called {name}; there are {}", known.join(", "))
            }
            Self::NoField { name, known } if known.is_empty() => {
                write!(f, "it has no parameter {name}, nor any other")
            }
            Self::NoField { name, known } => {
                write!(f, "it has no parameter {name}; it has {}", known.join(", "))
            }
            Self::NotANumber { name, text } => {
                write!(f, "{name} is a number (a flag is 0 or 1), not {text:?}")
            }
            Self::OutOfRange { name, value, min, max } => {
                write!(f, "{name} is {value}, but must be between {min} and {max}")
            }
        }
    }
}

impl std::error::Error for ParamError {}

/// Makes the struct `Params`, all `f64`, from one line for each parameter: its doc, name, default
/// and range. The struct has `Default`, `FIELDS`, `get`, `set` and `validate`.
macro_rules! params {
    (
        $(#[$struct_doc:meta])*
        struct;
        $(
            #[doc = $about:literal]
            $(#[doc = $more:literal])*
            $field:ident = $default:literal in $min:literal ..= $max:literal;
        )*
    ) => {
        $(#[$struct_doc])*
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub struct Params {
            $(
                #[doc = $about]
                $(#[doc = $more])*
                #[doc = concat!(
                    "\n\nDefault ", stringify!($default), ", ",
                    stringify!($min), "..=", stringify!($max), "."
                )]
                pub $field: f64,
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
                }),*
            ];

            /// The values, in the order of [`Params::FIELDS`].
            #[must_use]
            pub fn values(&self) -> Vec<f64> {
                vec![$(self.$field),*]
            }

            /// Sets one by name; it is not checked before [`Params::validate`].
            pub(crate) fn put(&mut self, name: &str, value: f64) {
                match name {
                    $(stringify!($field) => self.$field = value,)*
                    _ => {}
                }
                let _ = value;
            }

            /// Checks every value against its range.
            ///
            /// # Errors
            /// The first that is outside, or is not a number.
            pub fn validate(&self) -> Result<(), $crate::params::ParamError> {
                $crate::params::check(Self::FIELDS, &self.values())
            }
        }
    };
}
pub(crate) use params;

/// The first value that is outside the range of its field.
pub(crate) fn check(fields: &[Field], values: &[f64]) -> Result<(), ParamError> {
    for (&Field { name, min, max, .. }, &value) in fields.iter().zip(values) {
        // What is not a number is in no range.
        if !(min..=max).contains(&value) {
            return Err(ParamError::OutOfRange { name, value, min, max });
        }
    }
    Ok(())
}

/// Which field is meant, and the number that the text is.
pub(crate) fn parse(
    fields: &'static [Field],
    name: &str,
    text: &str,
) -> Result<(&'static Field, f64), ParamError> {
    let Some(field) = fields.iter().find(|f| f.name == name) else {
        let known = fields.iter().map(|f| f.name).collect();
        return Err(ParamError::NoField { name: name.to_owned(), known });
    };
    let value = match text.trim() {
        "true" | "on" => 1.0,
        "false" | "off" => 0.0,
        number => number
            .parse()
            .map_err(|_| ParamError::NotANumber { name: field.name, text: text.to_owned() })?,
    };
    check(std::slice::from_ref(field), &[value])?;
    Ok((field, value))
}
