//! Errors of opening an AF_XDP port.

use crate::net::{NetError, SocketOwner};
use af_xdp::steer::STEER_PORT;
use std::fmt;

/// The reason why an AF_XDP port could not be opened. The message names the step, the place, and
/// advice.
#[derive(Debug)]
#[non_exhaustive]
pub enum XdpError {
    /// A parameter is out of its range.
    Config {
        /// The field of [`XdpConfig`](super::XdpConfig).
        field: &'static str,
        /// The value and the rule it breaks.
        reason: String,
    },
    /// The interface does not exist or cannot be queried.
    Interface(NetError),
    /// Another program receives RoCEv2 at a UDP socket, which the steering program would cut off.
    PortTaken {
        /// The interface.
        ifname: String,
        /// The owner of the socket.
        owner: SocketOwner,
    },
    /// An AF_XDP or BPF operation failed.
    Socket(af_xdp::Error),
}

impl fmt::Display for XdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config { field, reason } => write!(f, "{field}: {reason}"),
            Self::Interface(error) => error.fmt(f),
            Self::PortTaken { ifname, owner } => write!(
                f,
                "{owner} has UDP port {STEER_PORT} on {ifname}: AF_XDP would take its packets \
                 (stop it first, or use another interface)"
            ),
            Self::Socket(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for XdpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config { .. } | Self::PortTaken { .. } => None,
            Self::Interface(error) => Some(error),
            Self::Socket(error) => Some(error),
        }
    }
}

impl From<NetError> for XdpError {
    fn from(error: NetError) -> Self {
        Self::Interface(error)
    }
}

impl From<af_xdp::Error> for XdpError {
    fn from(error: af_xdp::Error) -> Self {
        Self::Socket(error)
    }
}
