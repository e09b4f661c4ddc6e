//! The TCP connection to a perftest peer, read without blocking: queue pairs have to be driven
//! while the peer thinks.

use super::super::TCP_LIMITS;
use crate::socket::Socket;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
#[cfg(test)]
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connection to a perftest peer.
pub struct Exchange {
    socket: Box<dyn Socket>,
    is_client: bool,
    /// Bytes received and not yet taken.
    inbox: Vec<u8>,
    closed: bool,
}

/// What can go wrong with a perftest peer.
#[derive(Debug)]
pub enum PerftestError {
    /// The connection broke.
    Io(io::Error),
    /// The peer closed the connection where this was due.
    Closed(&'static str),
    /// The peer neither said this nor sent packets for so long.
    Silent(&'static str, Duration),
    /// The peer said something else where this was due.
    Garbled {
        /// What was due.
        step: &'static str,
        /// What came, made printable.
        got: String,
    },
    /// The peer is too old.
    OldVersion(String),
    /// The peer told no RoCE address.
    NoGid,
    /// The wanted path MTU is above what the interface carries.
    Mtu {
        /// What is wanted, in payload bytes.
        wanted: u32,
        /// The largest that fits.
        largest: u32,
    },
    /// We were told to stop.
    Stopped,
}

impl Exchange {
    /// Over TCP; `is_client` is true for the end that connected.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn tcp(stream: TcpStream, is_client: bool) -> io::Result<Self> {
        TCP_LIMITS.apply(&stream)?;
        Ok(Self::over(Box::new(stream), is_client))
    }

    /// Two ends inside one process: the client's and the server's.
    #[cfg(test)]
    pub(super) fn pair() -> (Self, Self) {
        let (a, b) = UnixStream::pair().expect("file descriptors are left");
        (Self::over(Box::new(a), true), Self::over(Box::new(b), false))
    }

    fn over(socket: Box<dyn Socket>, is_client: bool) -> Self {
        Self { socket, is_client, inbox: Vec::new(), closed: false }
    }

    /// This end connected, and so speaks first.
    #[must_use]
    pub fn is_client(&self) -> bool {
        self.is_client
    }

    /// Says `bytes`.
    ///
    /// # Errors
    /// [`PerftestError::Io`]: the connection broke, or the peer takes nothing.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), PerftestError> {
        self.socket.set_nonblocking(false)?;
        self.socket.write_all(bytes)?;
        Ok(())
    }

    /// The next `n` bytes if they are there, without waiting; `step` names what they are.
    ///
    /// # Errors
    /// [`PerftestError::Closed`] when they will not come, [`PerftestError::Io`].
    pub fn poll(&mut self, step: &'static str, n: usize) -> Result<Option<Vec<u8>>, PerftestError> {
        if self.inbox.len() < n {
            self.fill()?;
        }
        match self.inbox.len() {
            have if have >= n => Ok(Some(self.inbox.drain(..n).collect())),
            _ if self.closed => Err(PerftestError::Closed(step)),
            _ => Ok(None),
        }
    }

    /// The peer has closed its side. What it said before is still to be had.
    ///
    /// # Errors
    /// [`PerftestError::Io`].
    pub fn is_closed(&mut self) -> Result<bool, PerftestError> {
        self.fill()?;
        Ok(self.closed)
    }

    /// Says that nothing more will come from here. A connection that is gone already is no error.
    pub fn close(&mut self) {
        self.socket.shutdown_write();
    }

    /// Takes what has arrived, at most [`INBOX_BYTES_MAX`] at a time.
    fn fill(&mut self) -> Result<(), PerftestError> {
        let mut chunk = [0; 4096];
        self.socket.set_nonblocking(true)?;
        while !self.closed && self.inbox.len() < INBOX_BYTES_MAX {
            match self.socket.read(&mut chunk) {
                Ok(0) => self.closed = true,
                Ok(n) => self.inbox.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                // It went away without reading all we said.
                Err(e) if e.kind() == ErrorKind::ConnectionReset => self.closed = true,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

impl PerftestError {
    /// Something else came where `step` was due.
    pub(super) fn garbled(step: &'static str, got: &[u8]) -> Self {
        Self::Garbled { step, got: got.escape_ascii().to_string() }
    }
}

impl From<io::Error> for PerftestError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

impl fmt::Display for PerftestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => write!(f, "the connection to the perftest peer broke: {e}"),
            Self::Closed(step) => write!(
                f,
                "the peer closed the connection where {step} was due: {ALIKE}; its own output \
                 says more"
            ),
            Self::Silent(step, t) => {
                write!(f, "{t:?} without a word or a packet where {step} was due: {ALIKE}")
            }
            Self::Garbled { step, got } => {
                write!(f, "the peer said \"{got}\" where {step} was due: is it perftest? {ALIKE}")
            }
            Self::OldVersion(v) => write!(
                f,
                "the peer's perftest says version {v}; this works from 5.70 on, as perftest's own"
            ),
            Self::NoGid => f.write_str(
                "the peer told no GID, so it is not on RoCEv2: start it with -x and the index of \
                 its RoCE v2 GID (show_gids lists them)",
            ),
            Self::Mtu { wanted, largest } => {
                write!(f, "--mtu {wanted}: this end carries {largest}")
            }
            Self::Stopped => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for PerftestError {}

/// What usually is wrong, since nothing of this is negotiated.
const ALIKE: &str = "are both ends started with the same tool, size, iterations, queue pairs and \
                     direction, without -R and -a?";

/// What a peer may say ahead: its next message, and those of all queue pairs of a round.
const INBOX_BYTES_MAX: usize = 1 << 17;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poll__gives_whole_messages_however_they_are_cut() {
        let (mut a, mut b) = Exchange::pair();
        assert!(a.is_client() && !b.is_client());
        a.send(b"6.0").unwrap();
        assert_eq!(b.poll("x", 4).unwrap(), None);
        a.send(b"6more").unwrap();
        assert_eq!(b.poll("x", 4).unwrap(), Some(b"6.06".to_vec()));
        assert_eq!(b.poll("x", 4).unwrap(), Some(b"more".to_vec()));
    }

    #[test]
    fn poll__what_was_said_before_the_end_is_still_had() {
        let (mut a, mut b) = Exchange::pair();
        a.send(b"last").unwrap();
        a.close();
        assert!(b.is_closed().unwrap());
        assert_eq!(b.poll("x", 4).unwrap(), Some(b"last".to_vec()));
        assert!(matches!(b.poll("the keys", 4), Err(PerftestError::Closed("the keys"))));
        // Only one direction is closed.
        b.send(b"done").unwrap();
        assert_eq!(a.poll("x", 4).unwrap(), Some(b"done".to_vec()));
    }

    #[test]
    fn fill__a_flood_does_not_fill_our_memory() {
        let (mut a, mut b) = Exchange::pair();
        let flood = std::thread::spawn(move || {
            // The other end hangs up in the middle of it.
            let _ = a.send(&vec![b'x'; INBOX_BYTES_MAX * 4]);
        });
        for _ in 0..1000 {
            assert!(!b.is_closed().unwrap());
            assert!(b.inbox.len() < INBOX_BYTES_MAX + 4096);
        }
        drop(b);
        flood.join().unwrap();
    }
}
