//! A side connection: lines of JSON over a stream socket. Higher layers parse the lines.

use crate::lines::{Lines, TooLong};
use crate::socket::Socket;
use serde::Serialize;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// A stream socket that sends and receives lines.
#[derive(Debug)]
pub struct SideConnection {
    socket: Box<dyn Socket>,
    /// Bytes received and not yet taken.
    lines: Lines,
}

/// An error of a side connection.
#[derive(Debug)]
pub enum SideError {
    /// The socket failed.
    Io(io::Error),
    /// The peer closed it, or the kernel gave up the peer (`ETIMEDOUT`).
    Closed,
    /// No line arrived in time.
    Silent,
    /// The peer's line is too long.
    TooLong(TooLong),
}

impl SideConnection {
    /// A side connection over `socket`; a line has at most `line_max` bytes.
    pub fn new(socket: impl Socket + 'static, line_max: usize) -> Self {
        Self { socket: Box::new(socket), lines: Lines::new(line_max) }
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &dyn Socket {
        &*self.socket
    }

    /// Sets the length limit of a line, in bytes.
    pub fn set_line_max(&mut self, bytes: usize) {
        self.lines.set_max(bytes);
    }

    /// Sends `message` as one line. May wait as long as the socket's write timeout.
    ///
    /// # Errors
    /// The socket failed.
    pub fn send(&self, message: &impl Serialize) -> io::Result<()> {
        self.socket.set_nonblocking(false)?;
        self.write(message)
    }

    /// Sends `message` unless that would block. Errors are ignored, because the connection ends.
    pub fn send_last(&self, message: &impl Serialize) {
        let _ = self.socket.set_nonblocking(true);
        let _ = self.write(message);
    }

    /// The next line, without its end, until `deadline`.
    ///
    /// # Errors
    /// See [`SideError`].
    pub fn recv_line(&mut self, deadline: Instant) -> Result<Vec<u8>, SideError> {
        self.socket.set_nonblocking(false)?;
        loop {
            if let Some(line) = self.take_line()? {
                return Ok(line);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            // The kernel rejects a timeout of zero.
            if left < Duration::from_millis(1) {
                // This process may have been suspended while the line arrived.
                return self.try_line()?.ok_or(SideError::Silent);
            }
            self.socket.set_read_timeout(Some(left))?;
            self.fill()?;
        }
    }

    /// The next line, without its end, if it has arrived.
    ///
    /// # Errors
    /// [`SideError`], except [`SideError::Silent`].
    pub fn try_line(&mut self) -> Result<Option<Vec<u8>>, SideError> {
        // Lines received are taken before more is read, so that memory is bounded by a line.
        if let Some(line) = self.take_line()? {
            return Ok(Some(line));
        }
        self.socket.set_nonblocking(true)?;
        self.fill()?;
        self.take_line()
    }

    /// Bytes of memory of received lines.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.lines.capacity()
    }

    fn write(&self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.socket.write_all(&line)
    }

    /// Reads once. No data, a read timeout and a signal are no errors.
    fn fill(&mut self) -> Result<(), SideError> {
        let mut piece = [0; PIECE_BYTES];
        match self.socket.read(&mut piece) {
            Ok(0) => Err(SideError::Closed),
            Ok(n) => {
                self.lines.push(&piece[..n]);
                Ok(())
            }
            Err(e) if is_given_up(&e) => Err(SideError::Closed),
            Err(e) if is_pause(&e) => Ok(()),
            Err(e) => Err(SideError::Io(e)),
        }
    }

    fn take_line(&mut self) -> Result<Option<Vec<u8>>, SideError> {
        let line = self.lines.take().map_err(SideError::TooLong)?;
        Ok(line.map(<[u8]>::to_vec))
    }
}

impl AsFd for SideConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<io::Error> for SideError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

impl fmt::Display for SideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => e.fmt(f),
            Self::Closed => f.write_str("the peer closed the side connection"),
            Self::Silent => f.write_str("nothing arrived in time on the side connection"),
            Self::TooLong(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for SideError {}

/// No data for now.
fn is_pause(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// True if the kernel ended the connection after `TCP_USER_TIMEOUT`. This error has the same kind
/// as a read timeout.
fn is_given_up(e: &io::Error) -> bool {
    e.raw_os_error() == Some(rustix::io::Errno::TIMEDOUT.raw_os_error())
}

/// The most bytes that one read takes.
pub const PIECE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn pair() -> (SideConnection, UnixStream) {
        let (a, b) = UnixStream::pair().unwrap();
        (SideConnection::new(a, 100), b)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    /// Only a hang takes so long.
    fn late() -> Instant {
        Instant::now() + Duration::from_secs(120)
    }

    #[test]
    fn recv_line__waits_until_the_deadline() {
        let (mut side, peer) = pair();
        assert!(matches!(side.recv_line(soon()), Err(SideError::Silent)));
        Socket::write_all(&peer, b"one\ntwo").unwrap();
        assert_eq!(side.recv_line(late()).unwrap(), b"one");
        assert!(matches!(side.recv_line(soon()), Err(SideError::Silent)));
        peer.shutdown_write();
        assert!(matches!(side.recv_line(late()), Err(SideError::Closed)));
    }

    #[test]
    fn recv_line__a_line_that_arrived_before_a_late_look_is_taken() {
        let (mut side, peer) = pair();
        Socket::write_all(&peer, b"one\n").unwrap();
        assert_eq!(side.recv_line(Instant::now()).unwrap(), b"one");
    }

    #[test]
    fn try_line__does_not_wait() {
        let (mut side, peer) = pair();
        assert_eq!(side.try_line().unwrap(), None);
        Socket::write_all(&peer, &[b'x'; 101]).unwrap();
        assert!(matches!(side.try_line(), Err(SideError::TooLong(TooLong(100)))));
    }

    #[test]
    fn send__is_a_line_and_the_last_one_does_not_wait() {
        let (mut side, peer) = pair();
        side.send(&"word").unwrap();
        side.send_last(&7);
        let mut bytes = [0; 100];
        let n = Socket::read(&peer, &mut bytes).unwrap();
        assert_eq!(&bytes[..n], b"\"word\"\n7\n");
        // A peer that does not read cannot block the last message.
        for _ in 0..10_000 {
            side.send_last(&"no one reads");
        }
        // Each call sets the blocking mode that it needs.
        Socket::write_all(&peer, b"a\n").unwrap();
        assert_eq!(side.recv_line(late()).unwrap(), b"a");
    }
}
