//! The choice of completion times to report.

use serde::{Deserialize, Serialize};

/// Completion times to report: their subject and their end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// FCT: from the first post until the last byte is at the receiver.
    #[default]
    Arrival,
    /// FCT: from the first post until the requester's last completion, about half a round trip
    /// later. This is the FCT that a sending application observes.
    Completion,
    /// Latency of each message, from its post to its completion.
    Messages,
    /// Inter-delivery time of each message but the first, at the receiver. The longest is the gap
    /// that a failure causes.
    Deliveries,
}

impl Measure {
    /// True if each message is reported on its own.
    #[must_use]
    pub fn is_of_messages(self) -> bool {
        matches!(self, Self::Messages | Self::Deliveries)
    }

    /// Parses the word of a scenario's parameter.
    pub(crate) fn of(word: &str) -> Self {
        match word {
            "sender" => Self::Completion,
            "messages" => Self::Messages,
            _ => Self::Arrival,
        }
    }
}
