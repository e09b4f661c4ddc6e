//! The side connection of a copy, in two halves: one thread reads, any may write.
//!
//! [`Oob`](crate::oob::Oob) is one object for one thread that switches blocking on and off; the
//! halves of one socket share that switch, so here reading is bounded by a timeout instead.

use super::message::Message;
use crate::oob::OobError;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The reading half.
#[derive(Debug)]
pub struct Listening {
    stream: TcpStream,
    /// Received and not yet taken: complete lines and the beginning of one.
    buffer: Vec<u8>,
    /// Bytes of `buffer` known to hold no line end.
    searched: usize,
}

/// The writing half.
#[derive(Debug)]
pub struct Speaking {
    stream: Mutex<TcpStream>,
}

/// Both halves over `stream`. A peer that is gone without a word is noticed within
/// [`PEER_GONE_WITHIN`].
///
/// # Errors
/// The socket is broken.
pub fn split(stream: TcpStream) -> io::Result<(Listening, Speaking)> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(PEER_GONE_WITHIN))?;
    let socket = SockRef::from(&stream);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_EVERY)
        .with_retries(KEEPALIVE_RETRIES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(PEER_GONE_WITHIN))?;
    let writer = stream.try_clone()?;
    let listening = Listening { stream, buffer: Vec::new(), searched: 0 };
    Ok((listening, Speaking { stream: Mutex::new(writer) }))
}

impl Listening {
    /// The next message, or `None` if none comes within `timeout`.
    ///
    /// # Errors
    /// See [`OobError`]; [`Message::Reject`] arrives as one.
    pub fn recv(&mut self, timeout: Duration) -> Result<Option<Message>, OobError> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(message) = self.take_line()? {
                return Ok(Some(message));
            }
            // The kernel takes no timeout of zero.
            let left = deadline.saturating_duration_since(Instant::now());
            if left < Duration::from_millis(1) {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut piece = [0; 16 << 10];
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(OobError::Closed),
                Ok(n) => self.buffer.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    // ETIMEDOUT of keepalive has the same kind as EAGAIN of the read timeout.
                    if e.raw_os_error() == Some(libc::ETIMEDOUT) {
                        return Err(OobError::Silent(PEER_GONE_WITHIN));
                    }
                }
                Err(e) if is_gone(&e) => return Err(OobError::Closed),
                Err(e) => return Err(OobError::Io(e)),
            }
        }
    }

    fn take_line(&mut self) -> Result<Option<Message>, OobError> {
        let fresh = &self.buffer[self.searched..];
        let Some(end) = fresh.iter().position(|b| *b == b'\n') else {
            self.searched = self.buffer.len();
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(OobError::Garbled(format!("a line above {LINE_BYTES_MAX} bytes")));
            }
            return Ok(None);
        };
        let line: Vec<u8> = self.buffer.drain(..=self.searched + end).collect();
        self.searched = 0;
        match serde_json::from_slice(&line) {
            Ok(Message::Reject { reason }) => Err(OobError::Rejected(reason)),
            Ok(message) => Ok(Some(message)),
            Err(e) => Err(OobError::Garbled(e.to_string())),
        }
    }
}

impl Speaking {
    /// Says `message`.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&self, message: &Message) -> Result<(), OobError> {
        let mut line = serde_json::to_vec(message).map_err(|e| OobError::Io(e.into()))?;
        line.push(b'\n');
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        match stream.write_all(&line) {
            Err(e) if is_gone(&e) => Err(OobError::Closed),
            Err(e) => Err(OobError::Io(e)),
            Ok(()) => Ok(()),
        }
    }

    /// Says `message` if that needs no waiting: a last word.
    pub fn send_last(&self, message: &Message) {
        // Whoever holds the lock is stuck in a write, so the peer is not reading either.
        let Ok(mut stream) = self.stream.try_lock() else {
            return;
        };
        if let Ok(line) = serde_json::to_string(message) {
            // Nobody is left to be told of a failure.
            let _ = stream.set_write_timeout(Some(LAST_WORD_WITHIN));
            let _ = stream.write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// What a peer's death looks like, beside the end of the stream.
fn is_gone(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted
    )
}

/// How soon a peer that vanished without closing its sockets is noticed at the latest.
pub const PEER_GONE_WITHIN: Duration = Duration::from_secs(8);

const KEEPALIVE_AFTER: Duration = Duration::from_secs(4);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(1);
const KEEPALIVE_RETRIES: u32 = 4;

const LAST_WORD_WITHIN: Duration = Duration::from_millis(200);

/// The longest line: a request with a thousand names.
const LINE_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (a, listener.accept().unwrap().0)
    }

    impl Listening {
        fn expect(&mut self, timeout: Duration) -> Result<Message, OobError> {
            self.recv(timeout)?.ok_or(OobError::Silent(timeout))
        }
    }

    const SOON: Duration = Duration::from_millis(20);
    const LATE: Duration = Duration::from_secs(5);

    #[test]
    fn recv__gives_messages_in_order_however_they_are_cut() {
        let (mut raw, b) = pair();
        let (mut b, _) = split(b).unwrap();
        raw.write_all(b"{\"type\":\"ready\"}\n{\"type\":\"finish\"}\n{\"type\":\"fin").unwrap();
        assert_eq!(b.expect(LATE).unwrap(), Message::Ready);
        assert_eq!(b.expect(LATE).unwrap(), Message::Finish);
        assert_eq!(b.recv(SOON).unwrap(), None);
        raw.write_all(b"ished\"}\n").unwrap();
        assert_eq!(b.expect(LATE).unwrap(), Message::Finished);
    }

    #[test]
    fn recv__says_what_is_wrong() {
        let (a, b) = pair();
        let mut raw = a.try_clone().unwrap();
        let (_, a) = split(a).unwrap();
        let (mut b, _) = split(b).unwrap();
        assert!(matches!(b.expect(SOON), Err(OobError::Silent(_))));
        raw.write_all(b"GET / HTTP/1.1\n").unwrap();
        assert!(matches!(b.expect(LATE), Err(OobError::Garbled(_))));
        a.send(&Message::Reject { reason: "no".into() }).unwrap();
        assert!(matches!(b.expect(LATE), Err(OobError::Rejected(r)) if r == "no"));
        drop((a, raw));
        assert!(matches!(b.expect(LATE), Err(OobError::Closed)));
    }

    #[test]
    fn recv__a_line_without_end_is_refused() {
        let (mut raw, b) = pair();
        let (mut b, _) = split(b).unwrap();
        let flood = std::thread::spawn(move || {
            // The other end hangs up in the middle of it.
            let _ = raw.write_all(&vec![b'x'; LINE_BYTES_MAX * 4]);
        });
        assert!(matches!(b.expect(LATE), Err(OobError::Garbled(_))));
        drop(b);
        flood.join().unwrap();
    }

    #[test]
    fn send__to_one_who_left_is_an_error() {
        let (a, b) = pair();
        let (_, a) = split(a).unwrap();
        drop(b);
        let gone = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            matches!(a.send(&Message::Ready), Err(OobError::Closed))
        });
        assert!(gone);
        a.send_last(&Message::Finish);
    }
}
