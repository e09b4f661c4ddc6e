//! The side connection: one JSON object per line over TCP, by which two ends set up a connection.
//! It stays open for the lifetime of the connection (docs/protocol/stream-and-copy.md, "Setting
//! up").

use crate::channel::Local;
use crate::config::Shape;
use crate::error::SetupError;
use crate::shared::Kind;
use serde::{Deserialize, Serialize};
use spanwire_host::modes::Modes;
use spanwire_host::oob::WorkerOf;
use spanwire_host::queue_pair::QpParams;
use spanwire_host::side::{SideConnection, SideError};
use spanwire_host::socket::{Socket, TcpLimits};
use spanwire_host::text::printable;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Version of this exchange. Both ends must use the same one.
pub(crate) const VERSION: u32 = 3;

/// A message of the side connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum SideMessage {
    /// Identity, capabilities and receive ring of an end. The caller sends its hello first.
    Hello(Box<Hello>),
    /// The sender has sent the probes that the other end's hello asked for.
    Probed,
    /// The probes that have arrived at the queue of the sender's worker.
    Arrived {
        /// Their numbers.
        probes: Vec<u32>,
    },
    /// The sender's queue pair is connected. The caller sends it first.
    Ready,
    /// The connection is rejected.
    Reject {
        /// Reason, for people.
        reason: String,
        /// The reason may be gone in a moment: the caller may try again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        busy: bool,
    },
    /// The connection is aborted.
    Abort {
        /// Reason, for people.
        reason: String,
    },
}

impl SideMessage {
    /// The message in a sentence, without its content.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Hello(_) => "a hello",
            Self::Probed => "the end of probes",
            Self::Arrived { .. } => "the probes that arrived",
            Self::Ready => "ready",
            Self::Reject { .. } => "a rejection",
            Self::Abort { .. } => "an abort",
        }
    }
}

/// Identity, capabilities and receive ring of an end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    pub(crate) carries: Kind,
    /// The application protocol.
    #[serde(default)]
    pub(crate) protocol: String,
    /// The RoCE address.
    pub(crate) ip: IpAddr,
    pub(crate) path_mtu: u32,
    pub(crate) side_poll_port: Option<u16>,
    #[serde(default, skip_serializing_if = "Modes::is_empty")]
    pub(crate) modes: Modes,
    /// It receives packets that were sent as fragments: its port is on sockets.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) takes_fragments: bool,
    /// The worker of the connection, and how many there are.
    #[serde(default, flatten)]
    pub(crate) worker: WorkerOf,
    /// The number that probes of source ports are to be sent to; 0 if it only sends some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) probe_qpn: Option<u32>,
    pub(crate) qp: QpParams,
    pub(crate) ring: Ring,
}

/// The receive ring, and the limits that the end requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Ring {
    va: u64,
    rkey: u32,
    bytes: u32,
    fragment_bytes: u32,
    fragments: u32,
    max_message_bytes: u32,
}

/// The side connection of a connection.
#[derive(Debug)]
pub(crate) struct Side {
    lines: SideConnection,
    local: SocketAddr,
    peer: SocketAddr,
}

/// The result of polling the side connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Polled {
    Nothing,
    Message(SideMessage),
    /// The connection ended, or violated the protocol.
    End,
}

impl Hello {
    /// Parameters of the peer's channel, and the shape that the peer requests.
    pub(crate) fn local(&self) -> Local {
        let Ring { va, rkey, .. } = self.ring;
        Local { qp: self.qp, va, rkey }
    }

    /// The same hello with the queue pair and the ring of `local`.
    pub(crate) fn lending(mut self, local: &Local) -> Self {
        self.qp = local.qp;
        self.ring = Ring::of(local, self.shape());
        self
    }

    /// Bytes of memory in use.
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

impl Ring {
    pub(crate) fn of(local: &Local, shape: Shape) -> Self {
        let Local { va, rkey, .. } = *local;
        let Shape { ring_bytes: bytes, fragment_bytes, fragments, max_message_bytes } = shape;
        Self { va, rkey, bytes, fragment_bytes, fragments, max_message_bytes }
    }
}

impl Side {
    /// A side connection over `stream`. A peer that vanishes is detected within
    /// [`PEER_GONE_WITHIN`].
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        TCP_LIMITS.apply(&stream)?;
        let plain = |a: SocketAddr| SocketAddr::new(a.ip().to_canonical(), a.port());
        let (local, peer) = (plain(stream.local_addr()?), plain(stream.peer_addr()?));
        Ok(Self { lines: SideConnection::new(stream, LINE_BYTES_MAX), local, peer })
    }

    /// The local address; IPv4-mapped addresses as IPv4.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// The peer's address; IPv4-mapped addresses as IPv4.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn socket(&self) -> &dyn Socket {
        self.lines.socket()
    }

    pub(crate) fn send(&self, word: &SideMessage) -> io::Result<()> {
        self.lines.send(word)
    }

    /// Sends `word` if that does not block. Errors are ignored, because the connection ends.
    pub(crate) fn send_last(&self, word: &SideMessage) {
        self.lines.send_last(word);
    }

    /// The next message, until `deadline`. A rejection is returned as an error.
    pub(crate) fn recv(&mut self, deadline: Instant) -> Result<SideMessage, SetupError> {
        let begin = Instant::now();
        let line = self.lines.recv_line(deadline).map_err(|e| match e {
            SideError::Io(_) | SideError::Closed => SetupError::Closed,
            SideError::Silent => SetupError::Silent(begin.elapsed()),
            SideError::TooLong(e) => SetupError::Garbled(e.to_string()),
        })?;
        match parse(&line)? {
            SideMessage::Reject { reason, busy: true } => Err(SetupError::Busy(printable(reason))),
            SideMessage::Reject { reason, .. } | SideMessage::Abort { reason } => {
                Err(SetupError::Refused(printable(reason)))
            }
            word => Ok(word),
        }
    }

    /// Polls for a message.
    pub(crate) fn look(&mut self) -> Polled {
        match self.lines.try_line() {
            Ok(Some(line)) => parse(&line).map_or(Polled::End, Polled::Message),
            Ok(None) => Polled::Nothing,
            Err(_) => Polled::End,
        }
    }
}

impl AsFd for Side {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lines.as_fd()
    }
}

/// Parses a line.
pub(crate) fn parse(line: &[u8]) -> Result<SideMessage, SetupError> {
    // The message may quote the peer's bytes.
    serde_json::from_slice(line).map_err(|e| SetupError::Garbled(printable(e.to_string())))
}

/// Time limit for the detection of a peer that vanished without closing its sockets.
pub(crate) const PEER_GONE_WITHIN: Duration = Duration::from_secs(8);

const TCP_LIMITS: TcpLimits = TcpLimits {
    // A line fits the socket's buffer, so only a peer that does not read delays a write.
    write_within: Duration::from_secs(1),
    idle: Duration::from_secs(4),
    interval: Duration::from_secs(1),
    retries: 4,
    peer_gone_within: PEER_GONE_WITHIN,
};

/// The longest line, without its newline. A hello with every known mode has a tenth of that.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 10;

/// The error for an unexpected message.
pub(crate) fn unexpected(word: &SideMessage, due: &str) -> SetupError {
    SetupError::Garbled(format!("{} where {due} was due", word.kind()))
}

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
        Instant::now() + Duration::from_secs(120)
    }

    #[test]
    fn recv__messages_do_not_depend_on_read_boundaries() {
        let (mut side, raw) = pair();
        raw.write_all(b"{\"type\":\"ready\"}\n{\"type\":\"re").unwrap();
        assert_eq!(side.recv(late()).unwrap(), SideMessage::Ready);
        raw.write_all(b"ady\"}\n").unwrap();
        assert_eq!(side.recv(late()).unwrap(), SideMessage::Ready);
    }

    #[test]
    fn recv__distinguishes_errors() {
        let (mut side, raw) = pair();
        assert!(matches!(side.recv(soon()), Err(SetupError::Silent(_))));
        raw.write_all(b"GET / HTTP/1.1\n").unwrap();
        assert!(matches!(side.recv(late()), Err(SetupError::Garbled(_))));
        raw.write_all(b"{\"type\":\"reject\",\"reason\":\"no\\u001b[2J\"}\n").unwrap();
        assert!(matches!(side.recv(late()), Err(SetupError::Refused(r)) if r == "no\\u{1b}[2J"));
        raw.write_all(b"{\"type\":\"reject\",\"reason\":\"no\\u001b[2J\",\"busy\":true}\n")
            .unwrap();
        assert!(matches!(side.recv(late()), Err(SetupError::Busy(r)) if r == "no\\u{1b}[2J"));
        drop(raw);
        assert!(matches!(side.recv(late()), Err(SetupError::Closed)));
    }

    #[test]
    fn recv__rejects_a_line_without_end() {
        let (mut side, raw) = pair();
        let flood = std::thread::spawn(move || {
            // The other end closes the connection meanwhile.
            let _ = raw.write_all(&vec![b'x'; LINE_BYTES_MAX * 8]);
        });
        assert!(matches!(side.recv(late()), Err(SetupError::Garbled(_))));
        drop(side);
        flood.join().unwrap();
    }

    #[test]
    fn look__finds_a_message_nothing_and_the_end() {
        let (mut side, raw) = pair();
        assert_eq!(side.look(), Polled::Nothing);
        raw.write_all(b"{\"type\":\"abort\",\"reason\":\"x\"}\n").unwrap();
        let abort = SideMessage::Abort { reason: "x".into() };
        let deadline = late();
        while side.look() == Polled::Nothing {
            assert!(Instant::now() < deadline);
        }
        raw.write_all(b"{\"type\":\"abort\",\"reason\":\"x\"}\n").unwrap();
        drop(raw);
        let mut next = || loop {
            match side.look() {
                Polled::Nothing => assert!(Instant::now() < deadline),
                polled => break polled,
            }
        };
        assert_eq!([next(), next()], [Polled::Message(abort), Polled::End]);
    }
}
