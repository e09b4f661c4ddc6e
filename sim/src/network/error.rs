//! The error of building a network.

use crate::topology::TopologyError;
use std::fmt;

/// Why a network cannot be built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NetworkError {
    /// The topology is invalid.
    Topology(TopologyError),
    /// A flow is invalid: its place in the list, and the reason.
    Flow(usize, &'static str),
    /// The buffers of messages need more memory than the limit: how many bytes.
    Memory(u64),
    /// The engine rejects the settings.
    Engine(String),
    /// A switch rejects the settings.
    Switch(String),
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topology(e) => write!(f, "the topology is wrong: {e}"),
            Self::Flow(i, why) => write!(f, "flow {i} is wrong: {why}"),
            Self::Memory(bytes) => write!(
                f,
                "messages in flight need {} MiB of memory, and at most {} MiB are used: choose \
                 shorter ones, fewer outstanding, fewer flows, or the elided payload",
                bytes >> 20,
                MEMORY_MAX >> 20
            ),
            Self::Engine(e) => write!(f, "the hosts cannot be built: {e}"),
            Self::Switch(e) => write!(f, "the switches or links cannot be built: {e}"),
        }
    }
}

/// Limit of the buffers of messages of all hosts in bytes, if they have a payload.
pub(super) const MEMORY_MAX: u64 = 8 << 30;

impl std::error::Error for NetworkError {}
