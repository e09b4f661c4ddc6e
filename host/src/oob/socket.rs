//! The sockets below a side connection.

use super::REPLY_TIMEOUT;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// A byte stream whose blocking can be bounded.
pub(crate) trait Stream: Read + Write + AsFd + Send {
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;
    fn set_nonblocking(&self, on: bool) -> io::Result<()>;
    /// Ends our direction. An error would mean that there is nothing left to end.
    fn close(&self);
}

/// TCP keepalive and `TCP_USER_TIMEOUT`: the kernel probes an idle connection after
/// [`KEEPALIVE_IDLE`], and ends it after [`REPLY_TIMEOUT`] without acknowledgement.
///
/// # Errors
/// The socket is broken.
pub(crate) fn notice_dead_peer(stream: &TcpStream) -> io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    let every = KEEPALIVE_IDLE / 2;
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(every);
    socket.set_tcp_keepalive(&keepalive.with_retries(4))?;
    // It also bounds how long the probes go unanswered (tcp(7)).
    socket.set_tcp_user_timeout(Some(REPLY_TIMEOUT))
}

impl Stream for TcpStream {
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(timeout)
    }
    fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        self.set_nonblocking(on)
    }
    fn close(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Stream for UnixStream {
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(timeout)
    }
    fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        self.set_nonblocking(on)
    }
    fn close(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

/// How long a connection may be idle before the kernel sends a keepalive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::super::Oob;
    use super::*;

    #[test]
    fn tcp__a_dead_peer_is_noticed_by_the_kernel() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let watched = stream.try_clone().unwrap();
        let _oob = Oob::tcp(stream).unwrap();
        let socket = socket2::SockRef::from(&watched);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_IDLE);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(REPLY_TIMEOUT));
    }
}
