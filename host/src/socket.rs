//! Stream sockets of side connections: TCP between hosts, a socket pair inside one process.

use socket2::{SockRef, TcpKeepalive};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A stream socket that can be made non-blocking.
pub trait Socket: AsFd + Send + Sync + std::fmt::Debug {
    /// Reads into `bytes`.
    ///
    /// # Errors
    /// As [`Read::read`].
    fn read(&self, bytes: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// As [`Write::write_all`].
    fn write_all(&self, bytes: &[u8]) -> io::Result<()>;

    /// Sets the time limit of a read; `None` for no limit.
    ///
    /// # Errors
    /// The time is zero.
    fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;

    /// Makes reads and writes return [`io::ErrorKind::WouldBlock`] instead of blocking.
    ///
    /// # Errors
    /// The socket is broken.
    fn set_nonblocking(&self, on: bool) -> io::Result<()>;

    /// Shuts our direction down. An error means that the connection is already gone.
    fn shutdown_write(&self);
}

macro_rules! socket {
    ($stream:ty) => {
        impl Socket for $stream {
            fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
                Read::read(&mut &*self, bytes)
            }

            fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
                Write::write_all(&mut &*self, bytes)
            }

            fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.set_read_timeout(timeout)
            }

            fn set_nonblocking(&self, on: bool) -> io::Result<()> {
                self.set_nonblocking(on)
            }

            fn shutdown_write(&self) {
                let _ = self.shutdown(Shutdown::Write);
            }
        }
    };
}

socket!(TcpStream);
socket!(UnixStream);

/// Time limits that the kernel enforces on a TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpLimits {
    /// The time limit of a write.
    pub write_within: Duration,
    /// Idle time before the first keepalive probe. Unit 1 s.
    pub idle: Duration,
    /// Interval of keepalive probes. Unit 1 s.
    pub interval: Duration,
    /// Unanswered keepalive probes that end the connection.
    pub retries: u32,
    /// `TCP_USER_TIMEOUT`: time limit for unacknowledged bytes and probes (tcp(7)).
    pub peer_gone_within: Duration,
}

impl TcpLimits {
    /// Sets these limits on `stream`, and TCP_NODELAY.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn apply(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(self.write_within))?;
        let socket = SockRef::from(stream);
        let keepalive = TcpKeepalive::new().with_time(self.idle).with_interval(self.interval);
        socket.set_tcp_keepalive(&keepalive.with_retries(self.retries))?;
        socket.set_tcp_user_timeout(Some(self.peer_gone_within))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apply__the_kernel_has_the_limits() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let limits = TcpLimits {
            write_within: Duration::from_secs(3),
            idle: Duration::from_secs(10),
            interval: Duration::from_secs(5),
            retries: 4,
            peer_gone_within: Duration::from_secs(30),
        };
        limits.apply(&stream).unwrap();
        assert!(stream.nodelay().unwrap());
        assert_eq!(stream.write_timeout().unwrap(), Some(limits.write_within));
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), limits.idle);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), limits.interval);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), limits.retries);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(limits.peer_gone_within));
    }
}
