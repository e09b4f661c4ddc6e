//! Errors of a file of networks.

use spanwire_base::text::{printable, printable_within};
use std::fmt;

/// Why a file is not the model that is wanted.
#[derive(Clone, PartialEq, Debug)]
pub enum ModelError {
    /// It is longer than the limit.
    TooLong {
        /// Its bytes.
        bytes: u64,
    },
    /// It is not in the format safetensors.
    NotSafetensors(String),
    /// It lacks the description of a model, or has an invalid one.
    NoDescription(String),
    /// It has another version of the format.
    Format {
        /// The version.
        found: u32,
    },
    /// It is of another scheme.
    Scheme {
        /// That of the file.
        found: String,
        /// The one that is wanted.
        wanted: String,
    },
    /// Its networks read another state.
    State {
        /// That of the file.
        found: Vec<String>,
        /// The one that is wanted.
        wanted: Vec<String>,
    },
    /// Its networks choose among other actions.
    Actions {
        /// The first action that differs, by its place.
        place: usize,
        /// That of the file, if it has one there.
        found: Option<String>,
        /// The one that is wanted, if there is one.
        wanted: Option<String>,
    },
    /// It lacks a network.
    NoNetwork(String),
    /// A tensor has another type or shape.
    Shape {
        /// The tensor.
        tensor: String,
        /// Its type and shape.
        found: String,
        /// Those that are wanted.
        wanted: String,
    },
    /// A network has other widths.
    Widths {
        /// The network.
        network: String,
        /// Its widths.
        found: Vec<usize>,
        /// Those that are wanted.
        wanted: Vec<usize>,
    },
    /// A value is not finite.
    NotFinite {
        /// Its tensor.
        tensor: String,
        /// Its place there.
        place: usize,
    },
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes } => {
                write!(f, "has {bytes} bytes; a model has at most {MODEL_MAX_BYTES}")
            }
            Self::NotSafetensors(why) => {
                write!(f, "is not in the format safetensors: {}", printable(why))
            }
            Self::NoDescription(why) => {
                let why = printable(why);
                write!(f, "has no description of a model in its metadata, key \"spanwire\": {why}")
            }
            Self::Format { found } => {
                write!(f, "has version {found} of the format; this is version {FORMAT}")
            }
            Self::Scheme { found, wanted } => {
                write!(f, "is of the scheme {found:?}; wanted is {wanted:?}")
            }
            Self::State { found, wanted } => {
                let [found, wanted] =
                    [found, wanted].map(|names| printable_within(names.join(" "), STATE_CHARS_MAX));
                write!(f, "reads the state {found}; wanted is {wanted}")
            }
            Self::Actions { place, found, wanted } => {
                let text = |action: &Option<String>| {
                    action.as_ref().map_or_else(|| "none".to_owned(), |text| format!("{text:?}"))
                };
                let (found, wanted) = (text(found), text(wanted));
                write!(f, "has {found} as action {place}; wanted is {wanted}")
            }
            Self::NoNetwork(name) => write!(f, "has no network {name:?}"),
            Self::Shape { tensor, found, wanted } => {
                write!(f, "has {found} as tensor {tensor:?}; wanted is {wanted}")
            }
            Self::Widths { network, found, wanted } => {
                write!(f, "has a network {network:?} of widths {found:?}; wanted are {wanted:?}")
            }
            Self::NotFinite { tensor, place } => {
                write!(f, "has a value that is not finite, tensor {tensor:?} at {place}")
            }
        }
    }
}

impl std::error::Error for ModelError {}

/// The longest list of a state's values in an error.
const STATE_CHARS_MAX: usize = 2000;
/// The version of the format of files.
pub const FORMAT: u32 = 1;
/// Longest file of a model.
pub const MODEL_MAX_BYTES: usize = 1 << 20;
