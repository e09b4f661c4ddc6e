//! The record of decisions, from which networks learn.

use super::action::Action;
use super::state::{History, STATE, Seen};

/// A decision about a port, recorded while it explores.
#[derive(Clone, PartialEq, Debug)]
pub struct EcnStep {
    /// The port.
    pub port: u8,
    /// Steps of a port with the same number follow each other interval by interval.
    pub series: u32,
    /// The state.
    pub state: [f32; STATE],
    /// The state of the last choice before.
    pub saved: [f32; STATE],
    /// The place of the action that was chosen, if the policy network was triggered.
    pub action: Option<u8>,
    /// The part of its capacity that the port sent in the interval that ended with the decision: a
    /// part of the reward of the decision before.
    pub sent: f32,
    /// How empty its queue was in that interval.
    pub empty: f32,
}

impl EcnStep {
    pub(super) fn new(
        port: u8,
        series: u32,
        state: &History,
        saved: &History,
        action: Option<Action>,
        seen: Seen,
    ) -> Self {
        Self {
            port,
            series,
            state: state.0,
            saved: saved.0,
            action: action.map(Action::place),
            sent: seen.sent,
            empty: seen.empty,
        }
    }
}
