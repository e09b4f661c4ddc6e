//! The side connection: how two ends tell each other their queue pair numbers, keys and addresses
//! before the first packet, and how they end.
//!
//! The messages follow the RDMA connection manager's exchange, so that it can take this module's
//! place: [`Message::Request`] is its REQ, [`Message::Accept`] REP, [`Message::Reject`] REJ,
//! [`Message::Ready`] RTU, [`Message::Done`] DREQ and [`Message::Result`] DREP. One JSON object a
//! line, over TCP on the same interface (the steering program leaves TCP to the kernel), or over a
//! socket pair inside one process.

mod coding;
mod congestion;
mod error;
pub mod perftest;

pub use crate::modes::{ModeChoice, Modes, settle};
pub use crate::queue_pair::QpParams;
pub use coding::{Coding, CodingScheme, NO_SUCH_BLOCKS, read_balance};
pub use congestion::{Congestion, algorithm};
pub use error::OobError;

use crate::side::SideConnection;
use crate::socket::{Socket, TcpLimits};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Version of this exchange. Both ends must speak the same one.
pub const VERSION: u32 = 1;

/// The TCP port that `spanwire perf server` listens on.
pub const DEFAULT_PORT: u16 = 18_516;

/// Everything that is said.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Message {
    /// Both ends say who they are, the client first.
    Hello(Hello),
    /// The client asks for a job.
    Request(Request),
    /// The server takes it on.
    Accept(Accept),
    /// The server does not; the connection ends.
    Reject {
        /// Why, for people.
        reason: String,
    },
    /// The sender's queue pairs are ready; the client says so first.
    Ready,
    /// The client has finished the job's traffic.
    Done,
    /// What the server made of it.
    Result(Outcome),
}

/// Who an end is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u32,
    /// The RoCE address.
    pub ip: IpAddr,
    /// Largest path MTU it can carry, in payload bytes.
    pub path_mtu: u32,
    /// UDP port of its side poll socket, which wants a datagram to learn its receive queue.
    pub side_poll_port: Option<u16>,
    /// The wire modes it speaks; one that does not say speaks RC.
    #[serde(default, skip_serializing_if = "Modes::is_empty")]
    pub modes: Modes,
}

/// Memory the peer may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryParams {
    /// Virtual address.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Bytes.
    pub len: u64,
}

/// What moves the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// SEND into posted receives.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// The atomic FETCH_ADD, of 8 bytes.
    FetchAdd,
    /// The atomic CMP_SWAP, of 8 bytes.
    CmpSwap,
}

impl Op {
    /// An atomic operation, whose messages are of 8 bytes.
    #[must_use]
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CmpSwap)
    }

    /// A READ or an atomic: the peer keeps resources for each one outstanding.
    #[must_use]
    pub fn is_rd_atomic(self) -> bool {
        self == Self::Read || self.is_atomic()
    }
}

/// What a job measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum JobKind {
    /// `bytes` of seeded random data moved once; both ends hash theirs afterwards.
    Transfer {
        /// Bytes in all.
        bytes: u64,
        /// Seed of the data.
        seed: u64,
    },
    /// As many messages as will go for `duration_ms`.
    Bandwidth {
        /// How long, in milliseconds.
        duration_ms: u64,
    },
    /// One message at a time for `duration_ms`: SEND is answered with a SEND (ping-pong).
    Latency {
        /// How long, in milliseconds.
        duration_ms: u64,
    },
}

/// A job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Job {
    /// What is measured.
    #[serde(flatten)]
    pub kind: JobKind,
    /// What moves the data.
    pub op: Op,
    /// Bytes of a message, 1 or more.
    pub size: u32,
    /// Queue pairs, 1 or more.
    pub qps: u32,
    /// Messages outstanding on each queue pair.
    pub depth: u32,
    /// Path MTU in payload bytes.
    pub path_mtu: u32,
    /// Local ACK timeout exponent (4.096 us * 2^n).
    pub timeout: u8,
    /// Retransmissions without progress before giving up.
    pub retry_cnt: u8,
}

/// The client's side of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// The job.
    pub job: Job,
    /// The client's queue pairs.
    pub qps: Vec<QpParams>,
    /// Congestion control of what the server sends, where the server has none of its own. Servers
    /// older than this do without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<Congestion>,
    /// Erasure coding of what the server sends, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erasure: Option<Coding>,
    /// Load balancing of what the server sends, likewise: its name and parameters.
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

/// What the server saw of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// SHA-256 of its memory after a transfer, in hex.
    pub sha256: Option<String>,
    /// Messages it received (SEND).
    pub messages: u64,
    /// After FETCH_ADDs of 1, the sum of its memory's words: how many were carried out. Servers
    /// older than this do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub atomics: Option<u64>,
}

/// A side connection.
pub struct Oob {
    side: SideConnection,
    /// Where the peer is; `None` inside one process.
    peer_ip: Option<IpAddr>,
}

impl Oob {
    /// Over TCP.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn tcp(stream: TcpStream) -> io::Result<Self> {
        TCP_LIMITS.apply(&stream)?;
        let peer_ip = Some(stream.peer_addr()?.ip().to_canonical());
        Ok(Self::over(stream, peer_ip))
    }

    /// Two ends inside one process.
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

    /// The peer's address on this connection, which TCP has shown to be its own; `None` inside one
    /// process.
    #[must_use]
    pub fn peer_ip(&self) -> Option<IpAddr> {
        self.peer_ip
    }

    /// Sets the longest line that is taken, in bytes; what a peer that has not said who it is may
    /// make us keep is little. At first it is [`LINE_BYTES_MAX`].
    pub fn set_line_max(&mut self, bytes: usize) {
        self.side.set_line_max(bytes);
    }

    /// Says `message`.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self, message: &Message) -> Result<(), OobError> {
        Ok(self.side.send(message)?)
    }

    /// Waits for the next message, at most `timeout`.
    ///
    /// # Errors
    /// See [`OobError`]; [`Message::Reject`] arrives as one.
    pub fn recv(&mut self, timeout: Duration) -> Result<Message, OobError> {
        let line = self.side.recv_line(Instant::now() + timeout);
        read(&line.map_err(|e| OobError::of(e, timeout))?)
    }

    /// The next message if it is already there.
    ///
    /// # Errors
    /// See [`OobError`].
    pub fn try_recv(&mut self) -> Result<Option<Message>, OobError> {
        let line = self.side.try_line().map_err(|e| OobError::of(e, Duration::ZERO))?;
        line.as_deref().map(read).transpose()
    }
}

/// The message on a line.
///
/// # Errors
/// It is none; or it is [`Message::Reject`], which arrives as an error.
pub fn read(line: &[u8]) -> Result<Message, OobError> {
    match serde_json::from_slice(line) {
        Ok(Message::Reject { reason }) => Err(OobError::Rejected(reason)),
        Ok(message) => Ok(message),
        Err(e) => Err(OobError::Garbled(e.to_string())),
    }
}

impl AsFd for Oob {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.side.as_fd()
    }
}

/// How long an end waits for the next step of the exchange. Hashing a gigabyte fits.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Limits of the TCP connection of a side connection: probes after 10 s without traffic.
pub(crate) const TCP_LIMITS: TcpLimits = TcpLimits {
    write_within: REPLY_TIMEOUT,
    idle: Duration::from_secs(10),
    interval: Duration::from_secs(5),
    retries: 4,
    peer_gone_within: REPLY_TIMEOUT,
};

/// The longest line: a request with thousands of queue pairs.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// The longest hello that is taken: 16 KiB, forty times what ours has.
pub const HELLO_BYTES_MAX: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Message {
        let job = Job {
            kind: JobKind::Transfer { bytes: 1 << 30, seed: 7 },
            op: Op::Write,
            size: 1 << 20,
            qps: 1,
            depth: 8,
            path_mtu: 1024,
            timeout: 14,
            retry_cnt: 7,
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
    fn tcp__a_dead_peer_is_noticed_by_the_kernel() {
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
    fn recv__gives_messages_in_order_however_they_are_cut() {
        let (mut a, mut b) = Oob::pair().unwrap();
        a.send(&request()).unwrap();
        a.send(&Message::Ready).unwrap();
        assert_eq!(b.recv(REPLY_TIMEOUT).unwrap(), request());
        assert_eq!(b.try_recv().unwrap(), Some(Message::Ready));
        assert_eq!(b.try_recv().unwrap(), None);
        a.side.socket().write_all(b"{\"type\":\"do").unwrap();
        assert_eq!(b.try_recv().unwrap(), None);
        a.side.socket().write_all(b"ne\"}\n").unwrap();
        assert_eq!(b.recv(REPLY_TIMEOUT).unwrap(), Message::Done);
    }

    #[test]
    fn recv__says_what_is_wrong() {
        let (mut a, mut b) = Oob::pair().unwrap();
        let quick = Duration::from_millis(10);
        assert!(matches!(b.recv(quick), Err(OobError::Silent(_))));
        a.side.socket().write_all(b"SSH-2.0-OpenSSH\n").unwrap();
        assert!(matches!(b.recv(quick), Err(OobError::Garbled(_))));
        a.send(&Message::Reject { reason: "no".into() }).unwrap();
        assert!(matches!(b.recv(quick), Err(OobError::Rejected(r)) if r == "no"));
        drop(a);
        assert!(matches!(b.recv(quick), Err(OobError::Closed)));
    }

    #[test]
    fn try_recv__takes_what_came_before_it_reads_more() {
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
    fn recv__a_line_without_end_is_refused() {
        let (a, mut b) = Oob::pair().unwrap();
        let flood = std::thread::spawn(move || {
            // The other end hangs up in the middle of it.
            let _ = a.side.socket().write_all(&vec![b'x'; LINE_BYTES_MAX * 2]);
        });
        assert!(matches!(b.recv(REPLY_TIMEOUT), Err(OobError::Garbled(_))));
        drop(b);
        flood.join().unwrap();
    }
}
