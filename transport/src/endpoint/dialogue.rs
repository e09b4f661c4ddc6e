//! Whether the peers owe a reply.

use crate::counters::Counters;

/// Sent data and received messages before the endpoint waited last.
#[derive(Debug, Default)]
pub(super) struct Dialogue {
    sent_bytes: u64,
    received_messages: u64,
    /// Data was sent, and no message received since.
    asked: bool,
}

impl Dialogue {
    /// True if nothing was sent since the last message that was received. Compared once a wait, so
    /// that no packet pays for it.
    pub(super) fn update(&mut self, counters: &Counters) -> bool {
        let (sent, received) = (counters.tx_payload_bytes, counters.rx_messages);
        if received != self.received_messages {
            self.asked = false;
        } else if sent != self.sent_bytes {
            self.asked = true;
        }
        (self.sent_bytes, self.received_messages) = (sent, received);
        !self.asked
    }
}
