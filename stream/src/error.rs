//! Errors, each with a remedy in its message.

use spanwire_transport::WcStatus;
use std::fmt;
use std::io::{self, ErrorKind};
use std::time::Duration;

/// An error of a call on a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// Nothing has arrived, or there is no room. Wait for readiness and try again. Only from calls
    /// that do not block.
    WouldBlock,
    /// The call did not complete in time. Nothing was sent or taken; the connection stays open.
    TimedOut(Duration),
    /// The message exceeds the limit of this connection; nothing was sent.
    TooLong {
        /// Its bytes.
        bytes: usize,
        /// The limit that both ends agreed on.
        max: usize,
    },
    /// Sending was finished before.
    Finished,
    /// The connection is gone.
    Lost(Cause),
}

/// The cause of a connection's end. Data received before can still be taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The other process or machine is gone: the side connection closed without a reason, or the
    /// queue pair's retries are exhausted.
    PeerGone(&'static str),
    /// The other end closed the connection, after everything was delivered in both directions.
    PeerClosed,
    /// The other end aborted, with this reason.
    PeerAborted(String),
    /// This end aborted.
    Aborted(String),
    /// The other end violated the protocol.
    Protocol(&'static str),
    /// The queue pair failed with this status.
    QueuePair(WcStatus),
    /// The network (its interface, its worker) is gone, or was shut down.
    NetworkGone(String),
    /// This process was forked from the one that has the connection.
    Forked,
}

/// Why a connection, listener or network could not be set up.
#[derive(Debug)]
pub enum SetupError {
    /// A limit in the configuration, or one that the other end requests, is invalid.
    Config(String),
    /// A system call failed; the operation.
    Io(&'static str, io::Error),
    /// The other end rejected the connection, with this reason.
    Refused(String),
    /// The other end has too many handshakes for now, also after some tries; its words.
    Busy(String),
    /// The other end sent nothing in time.
    Silent(Duration),
    /// The other end closed the side connection during the handshake.
    Closed,
    /// The other end sent something that is not this protocol, or is invalid.
    Garbled(String),
    /// The other end uses another version.
    Version(u32),
    /// The other end's RoCE address is not the one it connected from.
    Address(std::net::IpAddr, std::net::IpAddr),
    /// One end requested messages and the other a byte stream.
    Kind,
    /// The ends named different application protocols: this end's, the other end's.
    Protocol(String, String),
    /// The ends have no wire mode in common.
    Mode(String),
    /// The path to the other end could not be resolved: no route, or no neighbour.
    Unreachable(String),
    /// The limit of connections in the configuration is reached; the field's name.
    Limit(&'static str),
    /// The interface cannot be used.
    Interface(String),
    /// The network was shut down, or its port is gone.
    NetworkGone(String),
    /// Over AF_XDP both ends of a connection have workers of one index: this end's, the other
    /// end's.
    Worker(u32, u32),
    /// The listener was closed by [`Closer::close`](crate::Closer::close).
    ListenerClosed,
}

impl Cause {
    /// The reason that is sent to the other end, without details of this host.
    pub(crate) fn for_peer(&self) -> String {
        match self {
            Self::Aborted(why) => why.clone(),
            Self::Protocol(what) => format!("you broke the protocol: {what}"),
            Self::QueuePair(status) => format!("the queue pair failed: {}", status.name()),
            Self::NetworkGone(_) | Self::Forked => "the network was shut down there".to_owned(),
            Self::PeerGone(_) | Self::PeerAborted(_) | Self::PeerClosed => {
                "you were gone".to_owned()
            }
        }
    }
}

impl From<WcStatus> for Cause {
    fn from(status: WcStatus) -> Self {
        match status {
            WcStatus::RetryExcErr => Self::PeerGone(
                "it does not answer any more (RETRY_EXC_ERR); is it up, and the way to it, for \
                 full-sized packets too? `spanwire doctor --dev NAME --peer ADDRESS` tests it",
            ),
            other => Self::QueuePair(other),
        }
    }
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Self {
        Self::Lost(cause)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::WouldBlock => ErrorKind::WouldBlock,
            Error::TimedOut(_) => ErrorKind::TimedOut,
            Error::TooLong { .. } => ErrorKind::InvalidInput,
            Error::Finished => ErrorKind::BrokenPipe,
            Error::Lost(Cause::PeerAborted(_)) => ErrorKind::ConnectionReset,
            Error::Lost(Cause::PeerClosed) => ErrorKind::BrokenPipe,
            Error::Lost(Cause::Protocol(_)) => ErrorKind::InvalidData,
            Error::Lost(_) => ErrorKind::ConnectionAborted,
        };
        io::Error::new(kind, error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldBlock => f.write_str("not ready: wait for readiness and try again"),
            Self::TimedOut(after) => write!(f, "not within {after:?}"),
            Self::TooLong { bytes, max } => write!(
                f,
                "a message of {bytes} bytes, this connection takes {max}: cut it, or raise \
                 max_message_bytes (and ring_bytes) at both ends"
            ),
            Self::Finished => f.write_str("sending was finished on this connection"),
            Self::Lost(cause) => cause.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeerGone(how) => write!(f, "the other end is gone: {how}"),
            Self::PeerClosed => f.write_str("the other end has closed the connection"),
            Self::PeerAborted(why) => write!(f, "the other end gave up: {why}"),
            Self::Aborted(why) => write!(f, "given up here: {why}"),
            Self::Protocol(what) => {
                write!(f, "the other end broke the protocol: {what}; is it the same spanwire?")
            }
            Self::QueuePair(status) => write!(f, "the queue pair failed with {}", status.name()),
            Self::NetworkGone(why) => write!(f, "the network is gone: {why}"),
            Self::Forked => f.write_str(
                "this process was forked from the one that has the connection: use it there, or \
                 open a network after fork",
            ),
        }
    }
}

impl std::error::Error for Cause {}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(what) => f.write_str(what),
            Self::Io(doing, e) => write!(f, "cannot {doing}: {e}"),
            Self::Refused(why) => write!(f, "the other end refused: {why}"),
            Self::Busy(why) => write!(f, "the other end is busy: {why}; try again later"),
            Self::Silent(after) => write!(f, "the other end said nothing for {after:?}"),
            Self::Closed => f.write_str(
                "the other end closed the side connection: is it the same program, and at work?",
            ),
            Self::Garbled(what) => write!(
                f,
                "the other end does not speak this protocol ({what}): is it spanwire, on the \
                 right port?"
            ),
            Self::Version(version) => write!(
                f,
                "the other end speaks version {version} of messages and streams: use the same \
                 spanwire on both ends"
            ),
            Self::Address(says, is) => write!(
                f,
                "the other end calls from {is} and names {says} as its RoCE address: allow it by \
                 any_address if that is meant"
            ),
            Self::Kind => {
                f.write_str("one end wants messages and the other a byte stream: open both alike")
            }
            Self::Protocol(ours, theirs) => write!(
                f,
                "this end speaks {ours:?} over the connection, the other {theirs:?}: are both \
                 the same program, of the same version?"
            ),
            Self::Mode(what) => f.write_str(what),
            Self::Unreachable(what) => write!(f, "no way to the other end: {what}"),
            Self::Limit(field) => {
                write!(f, "no more than {field} may exist: raise it in the configuration")
            }
            Self::Interface(what) => f.write_str(what),
            Self::Worker(ours, theirs) => write!(
                f,
                "worker {ours} here would meet worker {theirs} at the other end: name the same \
                 one, or none, and have as many workers at both ends"
            ),
            Self::ListenerClosed => f.write_str("the listener was closed"),
            Self::NetworkGone(why) => write!(f, "the network is gone: {why}"),
        }
    }
}

impl std::error::Error for SetupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(_, e) => Some(e),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from__error_kinds_match_std_io() {
        let kind = |e: Error| io::Error::from(e).kind();
        assert_eq!(kind(Error::WouldBlock), ErrorKind::WouldBlock);
        assert_eq!(kind(Error::TimedOut(Duration::ZERO)), ErrorKind::TimedOut);
        assert_eq!(kind(Error::Finished), ErrorKind::BrokenPipe);
        assert_eq!(kind(Cause::PeerGone("x").into()), ErrorKind::ConnectionAborted);
        assert_eq!(kind(Cause::PeerAborted("x".into()).into()), ErrorKind::ConnectionReset);
    }

    #[test]
    fn for_peer__omits_details_of_this_host() {
        let cause = Cause::NetworkGone("interface secret0 was removed".into());
        assert!(!cause.for_peer().contains("secret0"));
        assert_eq!(Cause::Aborted("enough".into()).for_peer(), "enough");
    }

    #[test]
    fn from__a_silent_peer_is_gone() {
        assert!(matches!(Cause::from(WcStatus::RetryExcErr), Cause::PeerGone(_)));
        assert_eq!(Cause::from(WcStatus::RemOpErr), Cause::QueuePair(WcStatus::RemOpErr));
    }
}
