//! Entry points of the fuzz target `port` (`fuzz/README.md`): the two halves of a port without
//! their system calls.

use super::address::Address;
use super::checksum::{Adjuster, PacketChecksum};
use super::control::Control;
use super::counters::UdpCounters;
use super::rx::{HEADROOM, Look, Receiver};
use super::sources::{SOURCES_MAX, Sources};
use super::sys::Received;
use super::tx::Sender;
use crate::clock::TimeSource;
use crate::port::SlotToken;
use spanwire_base::{RxMeta, Time, TxMeta};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

/// The receive half of a port.
#[derive(Debug)]
pub struct PortReceiver {
    receiver: Receiver,
    counters: UdpCounters,
}

/// The result of a receive call: bytes as the kernel writes them, right or not.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// The sender's socket address.
    pub from: &'a [u8],
    /// Control messages.
    pub control: &'a [u8],
    /// The payload of one datagram, or of several that are coalesced: at most 65,536 bytes.
    pub payload: &'a [u8],
    /// The kernel has cut off payload or control messages.
    pub truncated: bool,
}

impl PortReceiver {
    /// A receiver that is bound to UDP port `port` at `local`, or at any address, of frames of at
    /// most `room` bytes. `null` takes the place of its socket.
    #[must_use]
    pub fn new(
        (local, port): (Option<IpAddr>, u16),
        room: usize,
        (checksum, any_id): (Option<PacketChecksum>, bool),
        null: OwnedFd,
    ) -> Self {
        let adjuster = checksum.map(Adjuster::new);
        let receiver = Receiver::new(null, (local, port), room, (adjuster, any_id));
        Self { receiver, counters: UdpCounters::default() }
    }

    /// Handles a receive call. Returns whether there are frames to deliver.
    ///
    /// # Panics
    /// If the payload is longer than the port's buffer.
    pub fn receive(&mut self, arrived: Arrived<'_>, clock: &dyn TimeSource) -> bool {
        let len = arrived.payload.len();
        self.receiver.buffer[HEADROOM..][..len].copy_from_slice(arrived.payload);
        let received = Received { len, truncated: arrived.truncated };
        let (mut from, mut control) = (Address::empty(), Control::new());
        let filled = |into: &mut [u8], bytes: &[u8]| {
            let len = bytes.len().min(into.len());
            into[..len].copy_from_slice(&bytes[..len]);
            len
        };
        let len = filled(from.buffer(), arrived.from);
        from.set_len(len);
        let len = filled(control.buffer(), arrived.control);
        control.set_len(len);
        let look = self.receiver.accept(received, (&from, &control), clock, &mut self.counters);
        look == Look::Run
    }

    /// Delivers the next frame, if there is one.
    pub fn deliver(&mut self, each: &mut dyn FnMut(&[u8], &RxMeta)) -> bool {
        self.receiver.deliver(each, &mut self.counters)
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> UdpCounters {
        self.counters
    }
}

/// The transmit half of a port.
#[derive(Debug)]
pub struct PortSender {
    sender: Sender,
    counters: UdpCounters,
    /// The descriptors that take the places of sockets, with their source ports.
    ports: Vec<(i32, u16)>,
}

/// The arguments of a send call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SendArgs {
    /// The UDP source port of the socket.
    pub source_port: u16,
    /// The destination.
    pub to: Option<SocketAddr>,
    /// Control messages: level, type and value.
    pub control: Vec<(i32, i32, Vec<u8>)>,
    /// The payload of each segment.
    pub parts: Vec<Vec<u8>>,
}

/// The segments of what is sent with these control messages.
fn segments(control: &Control, bytes: &[u8]) -> Vec<Vec<u8>> {
    let is_segment = |(level, kind, _): &(i32, i32, &[u8])| {
        (*level, *kind) == (libc::SOL_UDP, libc::UDP_SEGMENT)
    };
    let len = control.messages().find(is_segment).and_then(|(_, _, value)| {
        value.first_chunk::<2>().map(|bytes| usize::from(u16::from_ne_bytes(*bytes)))
    });
    if bytes.is_empty() {
        return vec![Vec::new()];
    }
    bytes.chunks(len.unwrap_or(bytes.len()).max(1)).map(<[u8]>::to_vec).collect()
}

impl PortSender {
    /// Number of source ports.
    pub const SOURCES: usize = SOURCES_MAX;

    /// A sender from these source ports of IPv6 or IPv4, whose sockets `null` replaces. Frames have
    /// at most `room` bytes.
    ///
    /// # Errors
    /// `null` cannot be duplicated.
    pub fn new(
        sources: [(u16, bool); SOURCES_MAX],
        room: usize,
        checksum: Option<PacketChecksum>,
        null: &OwnedFd,
    ) -> io::Result<Self> {
        let mut given = Vec::with_capacity(SOURCES_MAX);
        for (port, is_v6) in sources {
            given.push((port, is_v6, null.try_clone()?));
        }
        let ports = given.iter().map(|(port, _, fd)| (fd.as_raw_fd(), *port)).collect();
        let sources = Sources::given(given.into_iter());
        let sender = Sender::new(sources, None, room, checksum.map(Adjuster::new));
        Ok(Self { sender, counters: UdpCounters::default(), ports })
    }

    /// Commits a frame. Returns false if there is no buffer.
    ///
    /// # Panics
    /// If it is longer than the port's frames.
    pub fn commit(&mut self, frame: &[u8]) -> bool {
        let Some(slot): Option<SlotToken> = self.sender.take() else { return false };
        self.sender.bytes(&slot)[..frame.len()].copy_from_slice(frame);
        self.sender.commit(&slot, TxMeta::whole(frame.len()), None, &mut self.counters);
        true
    }

    /// Sends by `send`, whose errors are those of the kernel.
    ///
    /// # Panics
    /// If the port fails, for there is no interface that could be removed.
    pub fn flush(&mut self, send: &mut dyn FnMut(SendArgs) -> io::Result<()>) {
        let ports = &self.ports;
        let flushed =
            self.sender.flush_by(Time::ZERO, &mut self.counters, &mut |fd, to, control, parts| {
                let port = ports.iter().find(|(raw, _)| *raw == fd.as_raw_fd());
                let messages = control.messages();
                send(SendArgs {
                    source_port: port.map_or(0, |(_, port)| *port),
                    to: to.get(),
                    control: messages.map(|(l, k, value)| (l, k, value.to_vec())).collect(),
                    parts: segments(control, &parts.to_vec()),
                })
            });
        flushed.expect("there is no interface");
    }

    /// Frames that were committed and not sent, and buffers that are free.
    #[must_use]
    pub fn pending_and_free(&self) -> (usize, usize) {
        (self.sender.pending(), self.sender.free.len())
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> UdpCounters {
        self.counters
    }
}
