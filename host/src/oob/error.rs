//! Errors of a side connection.

use super::{Message, VERSION};
use crate::side::SideError;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// An error of a side connection.
#[derive(Debug)]
pub enum OobError {
    /// The connection broke or timed out.
    Io(io::Error),
    /// The peer closed the connection.
    Closed,
    /// The peer sent nothing within this time.
    Silent(Duration),
    /// This end was stopped while it waited.
    Stopped,
    /// The peer sent a line that is no message.
    Garbled(String),
    /// The peer sent another message than the exchange requires.
    Unexpected {
        /// The required message.
        wanted: &'static str,
        /// The received message, as [`Message::kind`].
        got: &'static str,
    },
    /// The peer uses another version.
    Version(u32),
    /// The peer's numbers are out of their ranges.
    Invalid(String),
    /// The peer rejected the request.
    Rejected(String),
    /// The peer has too many clients for now.
    Busy(String),
    /// The peer's RoCE address is not the address of its TCP connection, the only one that is
    /// verified.
    ForeignAddress {
        /// The address of its TCP connection.
        shown: IpAddr,
        /// The RoCE address in its hello.
        claimed: IpAddr,
    },
}

impl OobError {
    /// The peer sent `got` where `wanted` was required.
    #[must_use]
    pub fn unexpected(wanted: &'static str, got: &Message) -> Self {
        Self::Unexpected { wanted, got: got.kind() }
    }
}

impl OobError {
    /// The error for `e` after a wait of at most `timeout`.
    pub(super) fn of(e: SideError, timeout: Duration) -> Self {
        match e {
            SideError::Io(e) => Self::Io(e),
            SideError::Closed => Self::Closed,
            SideError::Silent => Self::Silent(timeout),
            SideError::TooLong(e) => Self::Garbled(e.to_string()),
        }
    }
}

impl From<io::Error> for OobError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

impl fmt::Display for OobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => write!(f, "the side connection broke: {e}"),
            Self::Closed => f.write_str("the peer closed the side connection"),
            Self::Silent(t) => write!(f, "the peer said nothing for {t:?} on the side connection"),
            Self::Stopped => f.write_str("interrupted"),
            Self::Garbled(what) => write!(
                f,
                "the peer does not speak this protocol ({what}): is it spanwire, on the right port?"
            ),
            Self::Unexpected { wanted, got } => {
                write!(f, "the peer sent {got} where {wanted} was due")
            }
            Self::Version(v) => write!(
                f,
                "the peer speaks version {v} of the side connection, this is version {VERSION}: \
                 use the same spanwire on both ends"
            ),
            Self::Invalid(what) => write!(f, "the peer's numbers are invalid: {what}"),
            Self::Rejected(reason) => write!(f, "the peer refused: {reason}"),
            Self::Busy(reason) => write!(f, "the peer is busy: {reason}; try again later"),
            Self::ForeignAddress { shown, claimed } => write!(
                f,
                "a peer connected from {shown} wants its packets at {claimed}: not without \
                 --any-address"
            ),
        }
    }
}

impl std::error::Error for OobError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oob::{Job, JobKind, QpParams, Request};

    #[test]
    fn unexpected__is_a_sentence_without_the_message() {
        let job = Job { size: 1, ..Job::of(JobKind::Transfer { bytes: 1, seed: 7 }) };
        let qps = vec![QpParams { qpn: 17, psn: 99 }];
        let (congestion, erasure, balance) = (None, None, None);
        let request = Message::Request(Request { job, qps, congestion, erasure, balance });
        let error = OobError::unexpected("a hello", &request).to_string();
        assert_eq!(error, "the peer sent a request where a hello was due");
    }
}
