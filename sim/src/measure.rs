//! What completion times are taken of.

use serde::Serialize;

/// What completion times are taken of, and up to when.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Of flows: from the first post until the last byte is at the receiver.
    #[default]
    Arrival,
    /// Of flows: from the first post until the requester has its last completion, about half a
    /// round trip later. What an application that sends waits for.
    Completion,
    /// Of messages, each: from its post to its completion.
    Messages,
}

impl Measure {
    /// By the word of a scenario's parameter.
    pub(crate) fn of(word: &str) -> Self {
        match word {
            "sender" => Self::Completion,
            "messages" => Self::Messages,
            _ => Self::Arrival,
        }
    }
}
