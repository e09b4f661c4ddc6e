//! The state of an algorithm, for reports.

use spanwire_base::Dur;

/// The signals that an algorithm has chosen for its path, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// The signals, such as `delay`.
    pub chosen: &'static str,
    /// The reason, as a clause.
    pub reason: &'static str,
    /// The round trip without queues, configured or measured.
    pub base_rtt: Option<Dur>,
    /// The queueing delay above which the window shrinks.
    pub target: Option<Dur>,
}
