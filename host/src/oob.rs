//! The side connection of a job: two ends exchange queue pair numbers, keys and addresses before
//! the first packet, and the outcome after the last.
//!
//! The messages follow the exchange of the RDMA connection manager, so that it can
//! replace this module: [`Message::Request`] is its REQ, [`Message::Accept`] REP,
//! [`Message::Reject`] REJ, [`Message::Ready`] RTU, [`Message::Done`] DREQ and [`Message::Result`]
//! DREP. Each message is a line with one JSON object. The transport is TCP on the same interface
//! (the steering program leaves TCP to the kernel), or a socket pair inside one process.

mod coding;
mod congestion;
mod error;
mod job;
pub mod perftest;
mod worker;

pub use crate::modes::{ModeChoice, Modes, settle};
pub use crate::queue_pair::QpParams;
pub use coding::{Coding, CodingScheme, NO_SUCH_BLOCKS, balance_text, read_balance};
pub use congestion::{Congestion, congestion_control};
pub use error::OobError;
pub use job::{Job, JobKind, Op};
pub use worker::WorkerOf;

use crate::side::{SideConnection, SideError};
use crate::socket::{Socket, TcpLimits};
use crate::text::printable;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Version of this exchange. Both ends must use the same one.
pub const VERSION: u32 = 1;

/// The TCP port that `spanwire perf server` listens on.
pub const DEFAULT_PORT: u16 = 18_516;

/// A message of the exchange.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Message {
    /// Identity and capabilities of an end. The client sends its hello first.
    Hello(Hello),
    /// The sender has sent its probes to the queue pair number of the receiver's hello.
    Probed,
    /// The answer to [`Message::Probed`].
    Arrived {
        /// The probes that have arrived at the queue of the sender, by their index.
        probes: Vec<u32>,
    },
    /// The client requests a job.
    Request(Request),
    /// The server accepts the job.
    Accept(Accept),
    /// The server rejects the job and closes the connection.
    Reject {
        /// Reason, for people.
        reason: String,
        /// The reason may be gone in a moment: the client may try again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        busy: bool,
    },
    /// The sender's queue pairs are ready to receive. The client sends it first.
    Ready,
    /// The client has finished the job's traffic.
    Done,
    /// The server's outcome of the job.
    Result(Outcome),
}

impl Message {
    /// A rejection whose reason stays.
    #[must_use]
    pub fn reject(reason: impl Into<String>) -> Self {
        Self::Reject { reason: reason.into(), busy: false }
    }

    /// The message in a sentence, without its content.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Hello(_) => "a hello",
            Self::Probed => "probes",
            Self::Arrived { .. } => "the probes that arrived",
            Self::Request(_) => "a request",
            Self::Accept(_) => "an accept",
            Self::Reject { .. } => "a rejection",
            Self::Ready => "ready",
            Self::Done => "done",
            Self::Result(_) => "a result",
        }
    }
}

/// Identity and capabilities of an end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u32,
    /// The RoCE address.
    pub ip: IpAddr,
    /// Largest path MTU that it supports, in payload bytes.
    pub path_mtu: u32,
    /// UDP port of its side poll socket, which needs one datagram to learn its receive queue.
    pub side_poll_port: Option<u16>,
    /// The supported wire modes. Without this field the end supports RC only.
    #[serde(default, skip_serializing_if = "Modes::is_empty")]
    pub modes: Modes,
    /// It receives packets that were sent as fragments
    /// ([`AddressVector::takes_fragments`](spanwire_transport::AddressVector::takes_fragments)).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_fragments: bool,
    /// The worker of its process that speaks, and how many there are.
    #[serde(default, flatten)]
    pub worker: WorkerOf,
    /// The queue pair number at which it counts probes of source ports, 0 if it needs none. Absent
    /// from an end that needs none and that sends none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_qpn: Option<u32>,
}

/// A memory region that the peer may access.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryParams {
    /// Virtual address.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Bytes.
    pub len: u64,
}

/// The client's side of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// The job.
    pub job: Job,
    /// The client's queue pairs.
    pub qps: Vec<QpParams>,
    /// Congestion control for the server's packets, used if the server has none configured. Older
    /// servers ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<Congestion>,
    /// Erasure coding for the server's packets, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erasure: Option<Coding>,
    /// Load balancing for the server's packets, likewise: its name and parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub balance: Option<String>,
}

/// The server's side of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Accept {
    /// The server's queue pairs, in the order of the client's.
    pub qps: Vec<QpParams>,
    /// The server's memory.
    pub memory: MemoryParams,
}

/// The server's view of a finished job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// SHA-256 of its memory after a transfer, in hex.
    pub sha256: Option<String>,
    /// Messages it received (SEND).
    pub messages: u64,
    /// FETCH_ADDs of 1 that the server executed: the sum of its memory's words. Absent from older
    /// servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub atomics: Option<u64>,
    /// Times its receive buffer was full during the job: datagrams of UDP sockets, or runs of them,
    /// that the kernel dropped. Absent over another fabric and from older servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_overflows: Option<u64>,
}

/// A side connection.
pub struct Oob {
    side: SideConnection,
    /// The peer's address; `None` inside one process.
    peer_ip: Option<IpAddr>,
}

impl Oob {
    /// A side connection over TCP.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn tcp(stream: TcpStream) -> io::Result<Self> {
        TCP_LIMITS.apply(&stream)?;
        let peer_ip = Some(stream.peer_addr()?.ip().to_canonical());
        Ok(Self::over(stream, peer_ip))
    }

    /// Two connected ends inside one process.
    ///
    /// # Errors
    /// The system has no file descriptors left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = UnixStream::pair()?;
        Ok((Self::over(a, None), Self::over(b, None)))
    }

    fn over(socket: impl Socket + 'static, peer_ip: Option<IpAddr>) -> Self {
        Self { side: SideConnection::new(socket, LINE_BYTES_MAX), peer_ip }
    }

    /// The peer's address on this connection, which the TCP handshake has verified; `None` inside
    /// one process.
    #[must_use]
    pub fn peer_ip(&self) -> Option<IpAddr> {
        self.peer_ip
    }

    /// Sets the longest line that is accepted, in bytes, initially [`LINE_BYTES_MAX`]. A lower
    /// limit bounds the memory that a peer can occupy before its hello.
    pub fn set_line_max(&mut self, bytes: usize) {
        self.side.set_line_max(bytes);
    }

    /// Sends `message`.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self, message: &Message) -> Result<(), OobError> {
        Ok(self.side.send(message)?)
    }

    /// Sends `message` unless that would block. Errors are ignored, because the connection ends.
    pub fn send_last(&self, message: &Message) {
        self.side.send_last(message);
    }

    /// Waits for the next message, at most `timeout`.
    ///
    /// # Errors
    /// See [`OobError`]. [`Message::Reject`] is returned as one.
    pub fn recv(&mut self, timeout: Duration) -> Result<Message, OobError> {
        self.recv_unless(timeout, &|| false)
    }

    /// As [`Oob::recv`], but ends with [`OobError::Stopped`] once `stop` returns true.
    ///
    /// # Errors
    /// As [`Oob::recv`].
    pub fn recv_unless(
        &mut self,
        timeout: Duration,
        stop: &dyn Fn() -> bool,
    ) -> Result<Message, OobError> {
        let deadline = Instant::now() + timeout;
        loop {
            let now = Instant::now();
            match self.side.recv_line(deadline.min(now + STOP_POLL_INTERVAL)) {
                Ok(line) => return read(&line),
                Err(SideError::Silent) if stop() => return Err(OobError::Stopped),
                Err(SideError::Silent) if now < deadline => {}
                Err(e) => return Err(OobError::of(e, timeout)),
            }
        }
    }

    /// The next message, if one has arrived.
    ///
    /// # Errors
    /// See [`OobError`].
    pub fn try_recv(&mut self) -> Result<Option<Message>, OobError> {
        let line = self.side.try_line().map_err(|e| OobError::of(e, Duration::ZERO))?;
        line.as_deref().map(read).transpose()
    }
}

/// Parses a line.
///
/// # Errors
/// The line is no message, or is [`Message::Reject`], which is returned as an error.
pub fn read(line: &[u8]) -> Result<Message, OobError> {
    match serde_json::from_slice(line) {
        Ok(Message::Reject { reason, busy: true }) => Err(OobError::Busy(printable(reason))),
        Ok(Message::Reject { reason, .. }) => Err(OobError::Rejected(printable(reason))),
        Ok(message) => Ok(message),
        // The parser quotes the peer's bytes.
        Err(e) => Err(OobError::Garbled(printable(e.to_string()))),
    }
}

impl AsFd for Oob {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.side.as_fd()
    }
}

/// Timeout of each step of the exchange.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout of the peer's outcome after a run, which is ready unless the peer is suspended or
/// overloaded. A measurement is reported without it, so a user need not wait for long.
pub const OUTCOME_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval at which a waiting end checks whether it should stop.
pub const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// TCP limits of a side connection: keepalive probes start after 10 s without traffic.
pub(crate) const TCP_LIMITS: TcpLimits = TcpLimits {
    write_within: REPLY_TIMEOUT,
    idle: Duration::from_secs(10),
    interval: Duration::from_secs(5),
    retries: 4,
    peer_gone_within: REPLY_TIMEOUT,
};

/// The longest line: a request with thousands of queue pairs.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// The longest hello that is accepted: 16 KiB, forty times the length of ours.
pub const HELLO_BYTES_MAX: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a hang takes so long.
    const LATE: Duration = Duration::from_secs(120);

    fn request() -> Message {
        let job = Job {
            size: 1 << 20,
            depth: 8,
            ..Job::of(JobKind::Transfer { bytes: 1 << 30, seed: 7 })
        };
        Message::Request(Request {
            job,
            qps: vec![QpParams { qpn: 17, psn: 99 }],
            congestion: None,
            erasure: None,
            balance: None,
        })
    }

    #[test]
    fn tcp__keepalive_and_user_timeout_are_set() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let watched = stream.try_clone().unwrap();
        let _oob = Oob::tcp(stream).unwrap();
        let socket = socket2::SockRef::from(&watched);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(10));
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(REPLY_TIMEOUT));
    }

    #[test]
    fn recv__messages_do_not_depend_on_read_boundaries() {
        let (mut a, mut b) = Oob::pair().unwrap();
        a.send(&request()).unwrap();
        a.send(&Message::Ready).unwrap();
        assert_eq!(b.recv(LATE).unwrap(), request());
        assert_eq!(b.try_recv().unwrap(), Some(Message::Ready));
        assert_eq!(b.try_recv().unwrap(), None);
        a.side.socket().write_all(b"{\"type\":\"do").unwrap();
        assert_eq!(b.try_recv().unwrap(), None);
        a.side.socket().write_all(b"ne\"}\n").unwrap();
        assert_eq!(b.recv(LATE).unwrap(), Message::Done);
    }

    #[test]
    fn recv__distinguishes_errors() {
        let (mut a, mut b) = Oob::pair().unwrap();
        assert!(matches!(b.recv(Duration::from_millis(10)), Err(OobError::Silent(_))));
        a.side.socket().write_all(b"SSH-2.0-OpenSSH\n").unwrap();
        assert!(matches!(b.recv(LATE), Err(OobError::Garbled(_))));
        a.send(&Message::reject("no")).unwrap();
        assert!(matches!(b.recv(LATE), Err(OobError::Rejected(r)) if r == "no"));
        drop(a);
        assert!(matches!(b.recv(LATE), Err(OobError::Closed)));
    }

    #[test]
    fn recv__errors_have_no_control_characters_of_the_peer() {
        let (mut a, mut b) = Oob::pair().unwrap();
        a.send(&Message::reject("no\u{1b}[2J\nclient 10.0.0.9: done")).unwrap();
        let refused = b.recv(LATE).unwrap_err().to_string();
        assert_eq!(refused, "the peer refused: no\\u{1b}[2J\\nclient 10.0.0.9: done");
        a.side.socket().write_all(b"{\"type\":\"a\\u001b[2J\\nb\"}\n").unwrap();
        let garbled = b.recv(LATE).unwrap_err().to_string();
        assert!(garbled.contains("a\\u{1b}[2J\\nb"), "{garbled}");
        assert!(!garbled.chars().any(char::is_control), "{garbled:?}");
    }

    #[test]
    fn recv_unless__ends_by_message_stop_or_timeout() {
        let (mut a, mut b) = Oob::pair().unwrap();
        assert!(matches!(b.recv_unless(LATE, &|| true), Err(OobError::Stopped)));
        let long = STOP_POLL_INTERVAL * 3;
        assert!(matches!(b.recv_unless(long, &|| false), Err(OobError::Silent(t)) if t == long));
        a.send(&Message::Done).unwrap();
        // What has arrived counts, even if this end was suspended until its time was up.
        assert_eq!(b.recv_unless(Duration::ZERO, &|| true).unwrap(), Message::Done);
    }

    #[test]
    fn try_recv__reads_only_after_all_received_lines_are_taken() {
        let (a, mut b) = Oob::pair().unwrap();
        let many = b"{\"type\":\"ready\"}\n".repeat(1000);
        a.side.socket().write_all(&many).unwrap();
        drop(a);
        for _ in 0..1000 {
            assert_eq!(b.try_recv().unwrap(), Some(Message::Ready));
            assert!(b.side.capacity() < 16_384, "{}", b.side.capacity());
        }
        assert!(matches!(b.try_recv(), Err(OobError::Closed)));
    }

    #[test]
    fn recv__rejects_a_line_without_end() {
        let (a, mut b) = Oob::pair().unwrap();
        let flood = std::thread::spawn(move || {
            // The other end closes the connection meanwhile.
            let _ = a.side.socket().write_all(&vec![b'x'; LINE_BYTES_MAX * 2]);
        });
        assert!(matches!(b.recv(LATE), Err(OobError::Garbled(_))));
        drop(b);
        flood.join().unwrap();
    }
}
