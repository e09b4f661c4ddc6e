//! The exit codes of `spanwire`: one table for all commands, the same as in docs/TOOLS.md.
//!
//! An error with its own code is a [`Failed`], or one of the error types that [`Exit::of`] knows.
//! All other errors exit with [`Exit::Failure`].

use serde::{Serialize, Serializer};
use spanwire_copy::connection::NotBegun;
use spanwire_copy::session::End;
use spanwire_host::fabric::Error;
use spanwire_host::oob::OobError;
use spanwire_host::oob::perftest::PerftestError;
use spanwire_stream::SetupError;
use std::fmt;
use std::io;
use std::process::ExitCode;

/// The outcome of a command. The discriminant is the exit code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Exit {
    /// The command completed without errors.
    Success = 0,
    /// The command could not run, or a check failed.
    Failure = 1,
    /// The command line, or a file that it names, is invalid.
    Usage = 2,
    /// The run completed, but missed a threshold of the command line.
    ThresholdMissed = 3,
    /// The peer does not respond, or stopped responding.
    PeerUnreachable = 4,
    /// Bytes differ, or the transfer is incomplete.
    TransferWrong = 5,
    /// `run`, `lab exec`: the command exists but cannot be run (a shell's code).
    CannotExec = 126,
    /// `run`, `lab exec`: the command does not exist (a shell's code).
    NoCommand = 127,
    /// SIGINT ended the command early: 128 + 2, a shell's code for a process that it killed.
    Interrupted = 130,
    /// SIGTERM ended the command early: 128 + 15.
    Terminated = 143,
}

/// An error that ends the process with an exit code of its own.
#[derive(Debug)]
pub struct Failed {
    exit: Exit,
    why: String,
}

impl Exit {
    /// All exit codes, ascending.
    pub const ALL: [Self; 10] = [
        Self::Success,
        Self::Failure,
        Self::Usage,
        Self::ThresholdMissed,
        Self::PeerUnreachable,
        Self::TransferWrong,
        Self::CannotExec,
        Self::NoCommand,
        Self::Interrupted,
        Self::Terminated,
    ];

    /// The exit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The meaning, as in docs/TOOLS.md.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Success => "done, and right",
            Self::Failure => "it could not run, or a check failed",
            Self::Usage => "wrong usage: the command line, or a file that it names",
            Self::ThresholdMissed => "a threshold was missed",
            Self::PeerUnreachable => "the peer does not answer, or stopped answering",
            Self::TransferWrong => "the transfer is wrong: bytes differ, or something is missing",
            Self::CannotExec => "`run`, `lab exec`: the command cannot be run",
            Self::NoCommand => "`run`, `lab exec`: there is no such command",
            Self::Interrupted => "interrupted by SIGINT",
            Self::Terminated => "terminated by SIGTERM",
        }
    }

    /// The exit code for `error`.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        if let Some(failed) = error.downcast_ref::<Failed>() {
            return failed.exit;
        }
        if let Some(PerftestError::Mtu { .. }) = error.downcast_ref() {
            return Self::Usage;
        }
        let unreachable = if let Some(why) = error.downcast_ref::<OobError>() {
            match why {
                OobError::Io(e) => is_unreachable(e),
                OobError::Closed | OobError::Silent(_) => true,
                _ => false,
            }
        } else if let Some(why) = error.downcast_ref::<PerftestError>() {
            match why {
                PerftestError::Io(e) => is_unreachable(e),
                PerftestError::Closed(_) | PerftestError::Silent(..) => true,
                _ => false,
            }
        } else if let Some(why) = error.downcast_ref::<SetupError>() {
            match why {
                SetupError::Io(_, e) => is_unreachable(e),
                SetupError::Silent(_) | SetupError::Closed | SetupError::Unreachable(_) => true,
                _ => false,
            }
        } else if let Some(NotBegun { end, .. }) = error.downcast_ref::<NotBegun>() {
            matches!(end, End::PeerGone(_) | End::Stalled(_))
        } else {
            false
        };
        if unreachable { Self::PeerUnreachable } else { Self::Failure }
    }
}

impl Failed {
    /// An error with message `why` and exit code `exit`.
    #[must_use]
    pub fn new(exit: Exit, why: impl fmt::Display) -> Self {
        Self { exit, why: why.to_string() }
    }

    /// An error with message `why` and the exit code of `cause`.
    #[must_use]
    pub fn with_cause(cause: impl Into<Error>, why: impl fmt::Display) -> Self {
        Self::new(Exit::of(&cause.into()), why)
    }

    /// An error with message `why` whose exit code follows from the network error `cause`.
    #[must_use]
    pub fn network(cause: &io::Error, why: impl fmt::Display) -> Self {
        let exit = if is_unreachable(cause) { Exit::PeerUnreachable } else { Exit::Failure };
        Self::new(exit, why)
    }
}

/// The JSON object in place of a report, if `error` is the outcome.
#[must_use]
pub fn error_json(error: &Error) -> serde_json::Value {
    serde_json::json!({ "ok": false, "error": error.to_string(), "exit": Exit::of(error) })
}

/// An error with exit code [`Exit::Usage`]; for `map_err`.
#[must_use]
pub fn usage(why: impl fmt::Display) -> Error {
    Failed::new(Exit::Usage, why).into()
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Failed {}

impl Serialize for Exit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.code())
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// True if the call failed because the peer is unreachable or closed the connection.
fn is_unreachable(e: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        e.kind(),
        Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::NotConnected
            | Kind::BrokenPipe
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::TimedOut
            | Kind::WouldBlock
            | Kind::UnexpectedEof
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn all__codes_are_distinct_and_ascend() {
        assert!(Exit::ALL.windows(2).all(|pair| pair[0].code() < pair[1].code()));
    }

    #[test]
    fn all__is_the_table_of_the_tools_document() {
        let tools = include_str!("../../docs/TOOLS.md");
        for exit in Exit::ALL {
            let row = format!("| {} | {} |", exit.code(), exit.meaning());
            assert!(tools.contains(&row), "docs/TOOLS.md lacks {row:?}");
        }
    }

    #[test]
    fn error_json__is_the_outcome_in_one_object() {
        let json = error_json(&usage("--mtu 7")).to_string();
        assert_eq!(json, r#"{"error":"--mtu 7","exit":2,"ok":false}"#);
    }

    #[test]
    fn of__distinguishes_silent_from_refusing_peers() {
        let io = |kind| io::Error::from(kind);
        let unreachable: [Error; 6] = [
            OobError::Closed.into(),
            OobError::Io(io(io::ErrorKind::ConnectionReset)).into(),
            SetupError::Silent(Duration::from_secs(1)).into(),
            SetupError::Io("reach", io(io::ErrorKind::ConnectionRefused)).into(),
            PerftestError::Closed("hello").into(),
            NotBegun::from(End::PeerGone("killed")).into(),
        ];
        for error in unreachable {
            assert_eq!(Exit::of(&error), Exit::PeerUnreachable, "{error}");
        }
        let failures: [Error; 5] = [
            OobError::Rejected("busy".into()).into(),
            SetupError::Refused("busy".into()).into(),
            SetupError::Io("listen", io(io::ErrorKind::AddrInUse)).into(),
            NotBegun::from(End::Interrupted).into(),
            "a sentence".into(),
        ];
        for error in failures {
            assert_eq!(Exit::of(&error), Exit::Failure, "{error}");
        }
    }

    #[test]
    fn of__an_error_with_a_code_of_its_own_keeps_it() {
        let usage = usage("--mtu 7");
        assert_eq!((Exit::of(&usage), usage.to_string()), (Exit::Usage, "--mtu 7".to_owned()));
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let failed = Failed::network(&refused, "cannot reach it");
        assert_eq!(Exit::of(&failed.into()), Exit::PeerUnreachable);
        let mtu = PerftestError::Mtu { wanted: 4096, largest: 1024 }.into();
        assert_eq!(Exit::of(&mtu), Exit::Usage);
    }
}
