//! The states of a queue pair.

use std::fmt;

/// State of a queue pair, as verbs have it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum QpState {
    /// After creation or reset: accepts no requests.
    #[default]
    Reset,
    /// Receive requests may be posted; packets are neither sent nor accepted.
    Init,
    /// Ready to receive: executes the peer's requests.
    Rtr,
    /// Ready to send as well.
    Rts,
    /// Send queue drained: requests that have begun are finished, no other begins. The peer's
    /// requests are executed as before.
    Sqd,
    /// Send queue error: posted send requests are flushed, the peer's requests are executed. Only
    /// unreliable services have it; a Reliable Connection goes to [`QpState::Err`] instead.
    Sqe,
    /// Failed or stopped: everything posted is flushed, packets are dropped.
    Err,
}

/// The reason why a queue pair was not modified; nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ModifyError {
    /// No queue pair has this number.
    UnknownQp,
    /// There is no such transition.
    BadTransition {
        /// The current state.
        from: QpState,
        /// The requested state.
        to: QpState,
    },
    /// The transition needs an attribute that was not given.
    Missing(&'static str),
    /// The attribute cannot be set in this transition.
    NotNow(&'static str),
    /// The attribute's value is out of its range.
    OutOfRange(&'static str),
    /// The attribute may only change once the send queue is drained
    /// ([`AsyncEvent::SqDrained`](crate::AsyncEvent::SqDrained)).
    NotDrained(&'static str),
}

impl QpState {
    /// The peer's requests are executed.
    pub(crate) fn receives(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqd | Self::Sqe)
    }

    /// Requests are sent, at least those that have begun, and their responses accepted.
    pub(crate) fn sends(self) -> bool {
        matches!(self, Self::Rts | Self::Sqd)
    }
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownQp => f.write_str("no queue pair has this number"),
            Self::BadTransition { from, to } => {
                write!(f, "a queue pair cannot go from {from:?} to {to:?}")
            }
            Self::Missing(name) => write!(f, "the transition needs the attribute {name}"),
            Self::NotNow(name) => write!(f, "{name} cannot be set in this transition"),
            Self::NotDrained(name) => {
                write!(f, "{name} can be set once the send queue is drained")
            }
            Self::OutOfRange(name) => write!(f, "{name} is out of its range"),
        }
    }
}

impl std::error::Error for ModifyError {}
