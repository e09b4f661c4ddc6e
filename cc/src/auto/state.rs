//! The phases of a flow.

use spanwire_base::Time;

/// The phase of a flow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum State {
    /// The window doubles in a round trip until a queue builds up.
    Startup,
    Avoidance,
    /// The window is small for a round trip.
    Drain {
        since: Time,
        /// The window and the delivery rate before.
        cwnd: f64,
        rate: f64,
        /// Intervals that began since then.
        intervals: u32,
    },
}
