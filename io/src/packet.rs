//! The AF_PACKET port: any Ethernet interface, any frame up to its MTU, slowly.
//!
//! A fallback where [`crate::xdp`] is not possible: a driver or MTU without XDP support, or frames
//! longer than an AF_XDP chunk (path MTU 4096). It needs a system call and a copy for each frame in
//! both directions; for the engine it is an equivalent port.
//!
//! The socket gets copies: unlike an XDP program it cannot keep frames from the kernel. So the port
//! also binds UDP port 4791 of the namespace without reading it; otherwise the kernel would reply
//! to each RoCEv2 packet with "port unreachable". Another owner of that port, such as the kernel's
//! rxe, has the same effect. Both then receive every packet, so they must not have the same
//! addresses.

mod sys;

use crate::clock::TimeSource;
use crate::net::{NetError, Netlink};
use crate::port::{Port, SlotToken};
use af_xdp::steer::STEER_PORT;
use spanwire_base::{RxMeta, Time, TxMeta, u64_from, usize_from};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A [`Port`] on an interface by an AF_PACKET socket. Needs CAP_NET_RAW. It receives RoCEv2 (UDP
/// port 4791 over IPv4 without options or IPv6 without extension headers) and sends any frame.
#[derive(Debug)]
pub struct PacketPort {
    socket: OwnedFd,
    /// Prevents ICMP errors from the kernel; never read.
    _roce_port: Option<UdpSocket>,
    ifname: String,
    /// Contiguous transmit buffers, each as long as the longest frame.
    buffers: Box<[u8]>,
    room: usize,
    /// Free buffers.
    free: Vec<usize>,
    /// Committed frames that the kernel has not accepted yet: buffer and length, oldest first.
    queued: VecDeque<(usize, usize)>,
    /// Receive buffer.
    received: Box<[u8]>,
    /// An error that shows that the interface was removed; [`Port::flush`] reports it.
    gone: Option<io::Error>,
    /// A time after which the socket was seen empty.
    empty_at: Time,
    counters: PacketCounters,
}

/// The counters of a [`PacketPort`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketCounters {
    /// Frames delivered to the driver.
    pub rx_frames: u64,
    /// Bytes of those.
    pub rx_bytes: u64,
    /// Frames longer than the MTU, dropped: the kernel merged several (GRO on the interface, or
    /// segmentation offload of a peer on this machine).
    pub rx_too_long: u64,
    /// Frames that the kernel dropped because the socket's buffer was full.
    pub rx_overflow: u64,
    /// Frames that the kernel accepted.
    pub tx_frames: u64,
    /// Bytes of those.
    pub tx_bytes: u64,
    /// Frames lost because the kernel rejected them: a full queue, an interface that is down.
    pub tx_dropped: u64,
    /// Times the kernel accepted no more and frames remained queued.
    pub tx_again: u64,
    /// Times all transmit buffers were in use.
    pub tx_no_slot: u64,
}

/// The reason why a port cannot be opened.
#[derive(Debug)]
pub enum PacketError {
    /// The interface lookup failed.
    Net(NetError),
    /// The socket cannot be opened: CAP_NET_RAW is missing.
    Socket(io::Error),
    /// The interface is not Ethernet, or has no MTU.
    NotEthernet(String),
}

impl PacketPort {
    /// Opens a port on an interface of this thread's network namespace.
    ///
    /// # Errors
    /// See [`PacketError`].
    pub fn open(ifname: &str) -> Result<Self, PacketError> {
        let link = Netlink::open().and_then(|mut n| n.link(ifname)).map_err(PacketError::Net)?;
        if link.mac.is_none() {
            return Err(PacketError::NotEthernet(ifname.to_owned()));
        }
        let room = ETHERNET_HEADER_LEN + usize_from(link.mtu.into());
        let socket = sys::open(link.ifindex, BUFFER_BYTES).map_err(PacketError::Socket)?;
        Ok(Self {
            socket,
            _roce_port: bind_roce_port(),
            ifname: ifname.to_owned(),
            buffers: vec![0; SLOTS * room].into(),
            room,
            free: (0..SLOTS).collect(),
            queued: VecDeque::with_capacity(SLOTS),
            received: vec![0; room].into(),
            gone: None,
            empty_at: Time::ZERO,
            counters: PacketCounters::default(),
        })
    }

    /// The counters so far.
    pub fn counters(&mut self) -> PacketCounters {
        self.counters.rx_overflow += sys::take_drops(&self.socket);
        self.counters
    }

    /// Sends queued frames until the kernel accepts no more.
    fn send(&mut self) -> io::Result<()> {
        while let Some((number, len)) = self.queued.front().copied() {
            let begin = number * self.room;
            match sys::send(&self.socket, &self.buffers[begin..begin + len]) {
                Ok(()) => {
                    self.counters.tx_frames += 1;
                    self.counters.tx_bytes += u64_from(len);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.counters.tx_again += 1;
                    return Ok(());
                }
                Err(e) => {
                    self.counters.tx_dropped += 1;
                    self.check(&e)?;
                }
            }
            self.queued.pop_front();
            self.free.push(number);
        }
        Ok(())
    }

    /// Ignores an error that concerns one frame only; returns one that shows that the interface was
    /// removed.
    fn check(&self, error: &io::Error) -> io::Result<()> {
        if !sys::is_bound(&self.socket) {
            let text = format!("interface {} is gone: {error}", self.ifname);
            return Err(io::Error::new(error.kind(), text));
        }
        Ok(())
    }
}

impl Port for PacketPort {
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize {
        let began = clock.now();
        let mut count = 0;
        while count < max {
            match sys::receive(&self.socket, &mut self.received) {
                Ok(len) if len > self.room => self.counters.rx_too_long += 1,
                Ok(len) => {
                    self.counters.rx_frames += 1;
                    self.counters.rx_bytes += u64_from(len);
                    let meta = RxMeta::between(self.empty_at, clock.now());
                    each(&self.received[..len], &meta);
                    count += 1;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.empty_at = began;
                    break;
                }
                Err(e) => {
                    self.gone = self.check(&e).err();
                    break;
                }
            }
        }
        count
    }

    fn slot_take(&mut self) -> Option<SlotToken> {
        let number = self.free.pop();
        self.counters.tx_no_slot += u64::from(number.is_none());
        number.map(|number| SlotToken::new(u64_from(number)))
    }

    fn slot_bytes(&mut self, slot: &SlotToken) -> &mut [u8] {
        let begin = usize_from(slot.id()) * self.room;
        &mut self.buffers[begin..begin + self.room]
    }

    fn slot_commit(&mut self, slot: SlotToken, meta: TxMeta) {
        assert!(meta.len <= self.room, "{} bytes in a slot of {}", meta.len, self.room);
        self.queued.push_back((usize_from(slot.id()), meta.len));
    }

    fn slot_release(&mut self, slot: SlotToken) {
        self.free.push(usize_from(slot.id()));
    }

    fn flush(&mut self, _now: Time) -> io::Result<()> {
        if let Some(error) = self.gone.take() {
            return Err(error);
        }
        self.send()
    }

    fn frame_room(&self) -> usize {
        self.room
    }

    fn tx_pending(&self) -> usize {
        self.queued.len()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        sys::wait(&self.socket, !self.queued.is_empty(), timeout)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

/// Binds UDP port 4791 for both IP versions, so that the kernel has a socket for RoCEv2. `None` if
/// another socket has it.
fn bind_roce_port() -> Option<UdpSocket> {
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, STEER_PORT))
        .or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, STEER_PORT)));
    match socket {
        Ok(socket) => {
            // Its receive buffer fills up once and stays full.
            sys::keep_small(&socket);
            Some(socket)
        }
        Err(e) => {
            tracing::info!("UDP port {} is in use: {e}", STEER_PORT);
            None
        }
    }
}

impl fmt::Display for PacketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(e) => e.fmt(f),
            Self::Socket(e) => write!(f, "cannot open a packet socket (CAP_NET_RAW?): {e}"),
            Self::NotEthernet(ifname) => write!(f, "{ifname} is not an Ethernet interface"),
        }
    }
}

impl std::error::Error for PacketError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Net(e) => Some(e),
            Self::Socket(e) => Some(e),
            Self::NotEthernet(_) => None,
        }
    }
}

/// Transmit buffers: more than the engine's default window.
const SLOTS: usize = 256;
/// Socket buffer in each direction: three windows of the longest frames with the kernel's overhead.
/// An unprivileged process may be granted less.
const BUFFER_BYTES: u32 = 8 << 20;
/// Addresses and type.
const ETHERNET_HEADER_LEN: usize = 14;

#[cfg(test)]
mod tests;
