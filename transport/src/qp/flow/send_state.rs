//! The state of a flow when a packet left, from which its delivery rate is sampled.

use spanwire_base::Time;

/// A packet of RC from whose acknowledgement the delivery rate is sampled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub(super) sent_at: Time,
    pub(super) state: SendTimeState,
    /// It is acknowledged once everything before this is: a READ request by its last response.
    pub(super) end: u64,
}

/// The delivery state when a packet was sent, from which its ACK yields a delivery rate sample
/// (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SendTimeState {
    pub(super) delivered_bytes: u64,
    pub(super) delivered_at: Time,
    pub(super) first_sent_at: Time,
    pub(super) is_app_limited: bool,
}

#[cfg(test)]
impl SendTimeState {
    pub(crate) fn delivered(delivered_bytes: u64) -> Self {
        Self { delivered_bytes, ..Self::default() }
    }
}
