//! The TCP connection to a perftest peer. Reads do not block, because the queue pairs must be
//! driven while the exchange waits for the peer.

use super::super::TCP_LIMITS;
use crate::socket::Socket;
use crate::text::printable;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpStream};
#[cfg(test)]
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A connection to a perftest peer.
pub struct Exchange {
    socket: Box<dyn Socket>,
    /// The peer's address; `None` inside one process.
    pub(crate) peer_ip: Option<IpAddr>,
    is_client: bool,
    /// Bytes received and not yet taken.
    inbox: Vec<u8>,
    closed: bool,
}

/// An error of the exchange with a perftest peer.
#[derive(Debug)]
pub enum PerftestError {
    /// The connection broke.
    Io(io::Error),
    /// The peer closed the connection where this step was due.
    Closed(&'static str),
    /// For this time the peer sent neither this step nor packets.
    Silent(&'static str, Duration),
    /// The peer sent something else where this step was due.
    Garbled {
        /// The due step.
        step: &'static str,
        /// The received bytes, made printable.
        got: String,
    },
    /// The peer's version is too old.
    OldVersion(String),
    /// The peer's GID is empty.
    NoGid,
    /// The wanted path MTU is above what the interface carries.
    Mtu {
        /// The requested path MTU, in payload bytes.
        wanted: u32,
        /// The largest that fits.
        largest: u32,
    },
    /// The user interrupted the run.
    Stopped,
}

impl Exchange {
    /// An exchange over TCP; `is_client` is true for the end that connected.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn tcp(stream: TcpStream, is_client: bool) -> io::Result<Self> {
        TCP_LIMITS.apply(&stream)?;
        let peer_ip = Some(stream.peer_addr()?.ip().to_canonical());
        Ok(Self { peer_ip, ..Self::over(Box::new(stream), is_client) })
    }

    /// Two ends inside one process: the client's and the server's.
    #[cfg(test)]
    pub(super) fn pair() -> (Self, Self) {
        let (a, b) = UnixStream::pair().expect("file descriptors are left");
        (Self::over(Box::new(a), true), Self::over(Box::new(b), false))
    }

    fn over(socket: Box<dyn Socket>, is_client: bool) -> Self {
        Self { socket, peer_ip: None, is_client, inbox: Vec::new(), closed: false }
    }

    /// True if this end connected, and so sends first.
    #[must_use]
    pub fn is_client(&self) -> bool {
        self.is_client
    }

    /// Sends `bytes`.
    ///
    /// # Errors
    /// [`PerftestError::Io`]: the connection broke, or the peer does not read.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), PerftestError> {
        self.socket.set_nonblocking(false)?;
        self.socket.write_all(bytes)?;
        Ok(())
    }

    /// The next `n` bytes if they have arrived; `step` names them in errors.
    ///
    /// # Errors
    /// [`PerftestError::Closed`] if the peer has closed before them, [`PerftestError::Io`].
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

    /// True if the peer has closed its direction. Bytes received before can still be taken.
    ///
    /// # Errors
    /// [`PerftestError::Io`].
    pub fn is_closed(&mut self) -> Result<bool, PerftestError> {
        self.fill()?;
        Ok(self.closed)
    }

    /// Closes our direction. That the connection is already gone is no error.
    pub fn close(&mut self) {
        self.socket.shutdown_write();
    }

    /// Reads the received bytes, at most [`INBOX_BYTES_MAX`] at a time.
    fn fill(&mut self) -> Result<(), PerftestError> {
        let mut chunk = [0; 4096];
        self.socket.set_nonblocking(true)?;
        while !self.closed && self.inbox.len() < INBOX_BYTES_MAX {
            match self.socket.read(&mut chunk) {
                Ok(0) => self.closed = true,
                Ok(n) => self.inbox.extend_from_slice(&chunk[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                // The peer closed without reading everything.
                Err(e) if e.kind() == ErrorKind::ConnectionReset => self.closed = true,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

impl PerftestError {
    /// The error for other bytes where `step` was due.
    pub(super) fn garbled(step: &'static str, got: &[u8]) -> Self {
        Self::Garbled { step, got: printable(got) }
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

/// The usual cause, since the exchange negotiates none of these parameters.
const ALIKE: &str = "are both ends started with the same tool, size, iterations, queue pairs and \
                     direction, without -R and -a?";

/// Bytes that a peer may send ahead: its next message, and those of all queue pairs of a round.
const INBOX_BYTES_MAX: usize = 1 << 17;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poll__messages_do_not_depend_on_read_boundaries() {
        let (mut a, mut b) = Exchange::pair();
        assert!(a.is_client() && !b.is_client());
        a.send(b"6.0").unwrap();
        assert_eq!(b.poll("x", 4).unwrap(), None);
        a.send(b"6more").unwrap();
        assert_eq!(b.poll("x", 4).unwrap(), Some(b"6.06".to_vec()));
        assert_eq!(b.poll("x", 4).unwrap(), Some(b"more".to_vec()));
    }

    #[test]
    fn poll__bytes_before_the_close_can_be_taken() {
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
    fn fill__bounds_the_inbox() {
        let (mut a, mut b) = Exchange::pair();
        let flood = std::thread::spawn(move || {
            // The other end closes the connection meanwhile.
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
