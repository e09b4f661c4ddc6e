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
    /// Of messages, each but the first: from the delivery of the one before it to its own, at the
    /// receiver. The longest is the gap that a failure leaves.
    Deliveries,
}

impl Measure {
    /// Each message has a time of its own.
    #[must_use]
    pub fn is_of_messages(self) -> bool {
        matches!(self, Self::Messages | Self::Deliveries)
    }

    /// By the word of a scenario's parameter.
    pub(crate) fn of(word: &str) -> Self {
        match word {
            "sender" => Self::Completion,
            "messages" => Self::Messages,
            _ => Self::Arrival,
        }
    }
}
