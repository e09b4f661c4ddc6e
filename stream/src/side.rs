//! The side connection: one JSON object a line over TCP, by which two ends learn of each other what
//! a connection needs, and which lives as long as it does (docs/PROTOCOL.md, "Messages and
//! streams").

use crate::channel::Local;
use crate::config::Shape;
use crate::error::SetupError;
use crate::lines::{LINE_BYTES_MAX, Lines, PIECE_BYTES, TooLong};
use crate::shared::Kind;
use serde::{Deserialize, Serialize};
use socket2::{SockRef, TcpKeepalive};
use spanwire_host::modes::Modes;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

/// Version of this exchange. Both ends must speak the same one.
pub(crate) const VERSION: u32 = 1;

/// Everything that is said.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Word {
    /// Who an end is and what it lends; the caller speaks first.
    Hello(Box<Hello>),
    /// The caller's queue pair is connected.
    Ready,
    /// There will be no connection.
    Reject {
        /// Why, for people.
        reason: String,
    },
    /// The connection is given up.
    Abort {
        /// Why, for people.
        reason: String,
    },
}

/// Who an end is and what it lends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    pub(crate) carries: Kind,
    /// What the applications speak to each other.
    #[serde(default)]
    pub(crate) protocol: String,
    /// The RoCE address.
    pub(crate) ip: IpAddr,
    pub(crate) path_mtu: u32,
    pub(crate) side_poll_port: Option<u16>,
    #[serde(default, skip_serializing_if = "Modes::is_empty")]
    pub(crate) modes: Modes,
    pub(crate) qp: Qp,
    pub(crate) ring: Ring,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Qp {
    qpn: u32,
    psn: u32,
}

/// The receive ring, and what the end asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Ring {
    va: u64,
    rkey: u32,
    bytes: u32,
    fragment_bytes: u32,
    fragments: u32,
    max_message_bytes: u32,
}

/// The line-wise end of a TCP connection.
#[derive(Debug)]
pub(crate) struct Side {
    stream: TcpStream,
    /// Received and not yet taken.
    lines: Lines,
}

/// What a look at the side connection found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    Nothing,
    Word(Word),
    /// It ended, or is not what it should be.
    End,
}

impl Hello {
    /// What the other end's channel needs, and what it asks for.
    pub(crate) fn local(&self) -> Local {
        let (Qp { qpn, psn }, Ring { va, rkey, .. }) = (self.qp, self.ring);
        Local { qpn, psn, va, rkey }
    }

    /// The same with the queue pair and the ring that `local` names.
    pub(crate) fn lending(mut self, local: &Local) -> Self {
        self.qp = Qp::of(local);
        self.ring = Ring::of(local, self.shape());
        self
    }

    /// Bytes of the process's memory that it holds.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn heap_bytes(&self) -> usize {
        self.protocol.capacity() + self.modes.heap_bytes()
    }

    pub(crate) fn shape(&self) -> Shape {
        let Ring { bytes: ring_bytes, fragment_bytes, fragments, max_message_bytes, .. } =
            self.ring;
        Shape { ring_bytes, fragment_bytes, fragments, max_message_bytes }
    }
}

impl Qp {
    fn of(local: &Local) -> Self {
        Self { qpn: local.qpn, psn: local.psn }
    }
}

impl Ring {
    pub(crate) fn of(local: &Local, shape: Shape) -> Self {
        let Local { va, rkey, .. } = *local;
        let Shape { ring_bytes: bytes, fragment_bytes, fragments, max_message_bytes } = shape;
        Self { va, rkey, bytes, fragment_bytes, fragments, max_message_bytes }
    }
}

impl Side {
    /// Over `stream`. A peer that vanishes without a word is noticed within [`PEER_GONE_WITHIN`].
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_WITHIN))?;
        let socket = SockRef::from(&stream);
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_AFTER)
            .with_interval(KEEPALIVE_EVERY)
            .with_retries(KEEPALIVE_RETRIES);
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_user_timeout(Some(PEER_GONE_WITHIN))?;
        Ok(Self { stream, lines: Lines::default() })
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn send(&self, word: &Word) -> io::Result<()> {
        let mut line = serde_json::to_vec(word)?;
        line.push(b'\n');
        (&self.stream).write_all(&line)
    }

    /// Says `word` if that needs no waiting: nobody is left to be told of a failure.
    pub(crate) fn send_last(&self, word: &Word) {
        let _ = self.stream.set_nonblocking(true);
        let _ = self.send(word);
    }

    /// The next word, until `deadline`; a rejection arrives as an error.
    pub(crate) fn recv(&mut self, deadline: Instant) -> Result<Word, SetupError> {
        let begin = Instant::now();
        loop {
            match self.take_word()? {
                Some(Word::Reject { reason } | Word::Abort { reason }) => {
                    return Err(SetupError::Refused(printable(&reason)));
                }
                Some(word) => return Ok(word),
                None => {}
            }
            // The kernel takes no timeout of zero.
            let left = deadline.saturating_duration_since(Instant::now());
            if left < Duration::from_millis(1) {
                return Err(SetupError::Silent(begin.elapsed()));
            }
            let read = self.stream.set_read_timeout(Some(left)).and_then(|()| self.fill());
            match read {
                Ok(0) => return Err(SetupError::Closed),
                Ok(_) => {}
                Err(e) if is_pause(&e) => {}
                Err(_) => return Err(SetupError::Closed),
            }
        }
    }

    /// What has come, without waiting. The stream must not block.
    pub(crate) fn look(&mut self) -> Heard {
        loop {
            match self.take_word() {
                Ok(Some(word)) => return Heard::Word(word),
                Ok(None) => {}
                Err(_) => return Heard::End,
            }
            match self.fill() {
                Ok(0) => return Heard::End,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if is_pause(&e) => return Heard::Nothing,
                Err(_) => return Heard::End,
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut piece = [0; PIECE_BYTES];
        let count = self.stream.read(&mut piece)?;
        self.lines.push(&piece[..count]);
        Ok(count)
    }

    fn take_word(&mut self) -> Result<Option<Word>, SetupError> {
        parse(self.lines.take()?.as_deref())
    }
}

/// The word of a line, if there is one.
pub(crate) fn parse(line: Option<&[u8]>) -> Result<Option<Word>, SetupError> {
    // The message may quote the peer's bytes.
    let garbled = |e: serde_json::Error| SetupError::Garbled(printable(&e.to_string()));
    line.map(serde_json::from_slice).transpose().map_err(garbled)
}

impl From<TooLong> for SetupError {
    fn from(_: TooLong) -> Self {
        Self::Garbled(format!("a line above {LINE_BYTES_MAX} bytes"))
    }
}

/// Nothing more for now; ETIMEDOUT, which has the kind of a read timeout, is the end.
fn is_pause(e: &io::Error) -> bool {
    let gone = rustix::io::Errno::TIMEDOUT.raw_os_error();
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
        && e.raw_os_error() != Some(gone)
}

/// What a peer says for people, fit for a terminal and of bounded length.
pub(crate) fn printable(text: &str) -> String {
    let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    shown.take(REASON_CHARS_MAX).collect()
}

/// How soon a peer that vanished without closing its sockets is noticed at the latest.
pub(crate) const PEER_GONE_WITHIN: Duration = Duration::from_secs(8);

const KEEPALIVE_AFTER: Duration = Duration::from_secs(4);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(1);
const KEEPALIVE_RETRIES: u32 = 4;

/// A line fits the socket's buffer; a peer that does not read waits for no one.
const WRITE_WITHIN: Duration = Duration::from_secs(1);

/// Longer reasons are cut.
const REASON_CHARS_MAX: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Side, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Side::new(a).unwrap(), listener.accept().unwrap().0)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    fn late() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[test]
    fn recv__gives_words_however_they_are_cut() {
        let (mut side, mut raw) = pair();
        raw.write_all(b"{\"type\":\"ready\"}\n{\"type\":\"re").unwrap();
        assert_eq!(side.recv(late()).unwrap(), Word::Ready);
        raw.write_all(b"ady\"}\n").unwrap();
        assert_eq!(side.recv(late()).unwrap(), Word::Ready);
    }

    #[test]
    fn recv__says_what_is_wrong() {
        let (mut side, mut raw) = pair();
        assert!(matches!(side.recv(soon()), Err(SetupError::Silent(_))));
        raw.write_all(b"GET / HTTP/1.1\n").unwrap();
        assert!(matches!(side.recv(late()), Err(SetupError::Garbled(_))));
        raw.write_all(b"{\"type\":\"reject\",\"reason\":\"no\\u001b[2J\"}\n").unwrap();
        assert!(matches!(side.recv(late()), Err(SetupError::Refused(r)) if r == "no [2J"));
        drop(raw);
        assert!(matches!(side.recv(late()), Err(SetupError::Closed)));
    }

    #[test]
    fn recv__a_line_without_end_is_refused() {
        let (mut side, mut raw) = pair();
        let flood = std::thread::spawn(move || {
            // The other end hangs up in the middle of it.
            let _ = raw.write_all(&vec![b'x'; LINE_BYTES_MAX * 8]);
        });
        assert!(matches!(side.recv(late()), Err(SetupError::Garbled(_))));
        drop(side);
        flood.join().unwrap();
    }

    #[test]
    fn look__finds_a_word_nothing_and_the_end() {
        let (mut side, mut raw) = pair();
        side.stream().set_nonblocking(true).unwrap();
        assert_eq!(side.look(), Heard::Nothing);
        raw.write_all(b"{\"type\":\"abort\",\"reason\":\"x\"}\n").unwrap();
        let abort = Word::Abort { reason: "x".into() };
        let deadline = late();
        while side.look() == Heard::Nothing {
            assert!(Instant::now() < deadline);
        }
        raw.write_all(b"{\"type\":\"abort\",\"reason\":\"x\"}\n").unwrap();
        drop(raw);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!((side.look(), side.look()), (Heard::Word(abort), Heard::End));
    }
}
