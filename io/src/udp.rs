//! The UDP port: ordinary sockets of the kernel, without privilege.
//!
//! A fallback where [`crate::xdp`] is not possible, and faster than it where the kernel segments
//! and coalesces datagrams: `flush` joins frames of one flow and one length into one send
//! (UDP_SEGMENT), and a receive call returns a run of datagrams (UDP_GRO).
//!
//! The node still exchanges whole Ethernet frames. Of those to send, the headers become arguments
//! of the send; to those received, headers are written in place: over the end of the segment
//! before, which has been delivered. What follows the IP packet of a frame is not sent.
//!
//! Sockets are not connected, and DF is set. They hide IPv4's identification, which a checksum may
//! cover: see [`PacketChecksum`]. Congestion is counted, not reported: see [`UdpCounters`].

mod address;
mod checksum;
mod config;
mod control;
mod counters;
mod errors;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod group;
mod headers;
mod probe;
mod rx;
mod sources;
mod sys;
mod tx;

pub use checksum::PacketChecksum;
pub use config::{UdpConfig, UdpError, UdpGroup};
pub use counters::UdpCounters;
pub use probe::{UdpFeatures, probe_udp};
pub use sys::SEGMENTS_MAX;
pub use tx::SLOTS_MAX;

use crate::clock::TimeSource;
use crate::net::Netlink;
use crate::poll::poll;
use crate::port::{Budget, Port, SlotToken};
use address::Address;
use af_xdp::sockopt;
use checksum::Adjuster;
use rx::Receiver;
use sources::Sources;
use spanwire_base::{LentPayload, RxMeta, Time, TxMeta, usize_from};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use tx::Sender;

/// A [`Port`] over UDP sockets. It receives datagrams to one UDP port, and sends any UDP frame.
#[derive(Debug)]
pub struct UdpPort {
    receiver: Receiver,
    sender: Sender,
    /// Bytes of the longest frame.
    room: usize,
    receive_buffer: u32,
    counters: UdpCounters,
}

impl UdpPort {
    /// Opens a port on an interface of this thread's network namespace.
    ///
    /// # Errors
    /// See [`UdpError`].
    pub fn open(config: &UdpConfig) -> Result<Self, UdpError> {
        config.validate()?;
        let link = Netlink::open()?.link(&config.ifname)?;
        let device = (!link.loopback).then_some(link.ifindex);
        let ip_bytes = link.mtu.min(config.ip_bytes_max);
        let room = headers::ETHERNET + usize_from(ip_bytes.into());
        let (receiver, receive_buffer) = open_receiver(config, link.ifindex)?;
        let sources = Sources::open(config, device)?;
        tracing::info!(
            interface = config.ifname,
            local = ?config.local,
            source_port = sources.first_port(),
            receive_buffer,
            "UDP port open"
        );
        let adjuster = || config.checksum.map(Adjuster::new);
        let at = (config.local, config.port);
        Ok(Self {
            receiver: Receiver::new(receiver, at, room, (adjuster(), config.any_id)),
            sender: Sender::new(sources, device, room, adjuster()),
            room,
            receive_buffer,
            counters: UdpCounters::default(),
        })
    }

    /// Opens `count` ports at one address, as the only ones there. A send of several segments is
    /// received by one port, that of its first segment, and so are segments that the receiver's
    /// kernel has joined: those of one source port. Where the kernel has no such program, ports are
    /// chosen by the hash.
    ///
    /// # Errors
    /// See [`UdpError`].
    pub fn open_group(
        config: &UdpConfig,
        group: UdpGroup,
        count: u32,
    ) -> Result<Vec<Self>, UdpError> {
        config.validate()?;
        // Sockets of other programs that share the port by SO_REUSEPORT would be chosen, too.
        let link = Netlink::open()?.link(&config.ifname)?;
        drop(open_receiver(&UdpConfig { group: None, ..config.clone() }, link.ifindex)?);
        let of = |number| UdpConfig {
            group: Some(group),
            seed: config.seed.wrapping_add(number),
            ..config.clone()
        };
        (0..u64::from(count)).map(|number| Self::open(&of(number))).collect()
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> UdpCounters {
        self.counters
    }

    /// The receive buffer that the kernel has granted, in bytes, its own overhead included: twice
    /// the request, or twice `net.core.rmem_max`.
    #[must_use]
    pub fn receive_buffer(&self) -> u32 {
        self.receive_buffer
    }

    /// The source ports to prefer are this many, in the block that begins at a multiple of it and
    /// holds [`UdpPort::source_port`]. All ports prefer the same block, so that those that a peer
    /// echoes take no further sockets.
    pub const SOURCE_PORTS: u16 = sources::BLOCK_PORTS;

    /// The first UDP source port. Each other one takes a socket and ends runs of segments.
    #[must_use]
    pub fn source_port(&self) -> u16 {
        self.sender.sources.first_port()
    }
}

impl Port for UdpPort {
    /// Two runs of segments: a send costs the same for one packet as for a run.
    fn budget(&self) -> Budget {
        Budget { rx: 128, tx: 128 }
    }

    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize {
        self.receiver.burst(clock, max, each, &mut self.counters)
    }

    fn slot_take(&mut self) -> Option<SlotToken> {
        let slot = self.sender.take();
        self.counters.tx_no_slot += u64::from(slot.is_none());
        slot
    }

    fn slot_bytes(&mut self, slot: &SlotToken) -> &mut [u8] {
        self.sender.bytes(slot)
    }

    fn slot_commit(&mut self, slot: SlotToken, meta: TxMeta) {
        self.sender.commit(&slot, meta, None, &mut self.counters);
    }

    fn sends_lent(&self) -> bool {
        true
    }

    fn slot_commit_lent(&mut self, slot: SlotToken, meta: TxMeta, lent: LentPayload) {
        self.sender.commit(&slot, meta, Some(lent), &mut self.counters);
    }

    fn slot_release(&mut self, slot: SlotToken) {
        self.sender.release(&slot);
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        self.sender.flush(now, &mut self.counters)
    }

    fn frame_room(&self) -> usize {
        self.room
    }

    fn tx_pending(&self) -> usize {
        self.sender.pending()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        if self.receiver.has_run() {
            return Ok(());
        }
        let (fd, events) = (self.receiver.socket.as_raw_fd(), libc::POLLIN);
        let mut entry = [libc::pollfd { fd, events, revents: 0 }];
        match poll(&mut entry, timeout)? {
            // A socket whose interface was removed never becomes ready.
            0 => self.check_attached(),
            _ => Ok(()),
        }
    }

    fn check_attached(&mut self) -> io::Result<()> {
        self.sender.sources.check_device()
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.receiver.socket.as_fd()).filter(|_| !self.receiver.has_run())
    }
}

/// The socket that receives, and the size of its buffer.
fn open_receiver(config: &UdpConfig, ifindex: u32) -> Result<(OwnedFd, u32), UdpError> {
    let open = |ip: IpAddr| open_receiver_at(config, ip, ifindex);
    let (ip, opened) = match config.local {
        Some(ip) => (ip, open(ip)),
        None => match open(Ipv6Addr::UNSPECIFIED.into()) {
            Err(e) if sources::is_without_family(&e) => {
                (Ipv4Addr::UNSPECIFIED.into(), open(Ipv4Addr::UNSPECIFIED.into()))
            }
            opened => (Ipv6Addr::UNSPECIFIED.into(), opened),
        },
    };
    opened.map_err(|source| {
        let what = format!("to receive at {ip} port {} of {}", config.port, config.ifname);
        UdpError::Socket { what, source }
    })
}

fn open_receiver_at(config: &UdpConfig, ip: IpAddr, ifindex: u32) -> io::Result<(OwnedFd, u32)> {
    let is_v6 = ip.is_ipv6();
    let socket = sys::open(is_v6)?;
    let set = |level, name, value: u32| sockopt::set(&socket, level, name, &value);
    if config.local.is_none() {
        set(libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, ifindex)?;
    }
    // A socket for IPv6 takes the options of IPv4 too, for IPv4 packets.
    for option in [libc::IP_RECVTOS, libc::IP_RECVTTL, libc::IP_PKTINFO] {
        set(libc::IPPROTO_IP, option, 1)?;
    }
    if is_v6 {
        set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, u32::from(config.local.is_some()))?;
        for option in [libc::IPV6_RECVTCLASS, libc::IPV6_RECVHOPLIMIT, libc::IPV6_RECVPKTINFO] {
            set(libc::IPPROTO_IPV6, option, 1)?;
        }
        // RoCEv2 needs no UDP checksum, over IPv6 either (RFC 6935).
        set(libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1)?;
    }
    set(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
    set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
    // Older kernels deliver datagrams one by one.
    let _ = set(libc::SOL_UDP, libc::UDP_GRO, 1);
    let (force, ask) = (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF);
    sources::request_buffer(&socket, force, ask, config.receive_buffer)?;
    let granted = sockopt::get(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF)?;
    if config.group.is_some() {
        group::share(&socket)?;
    }
    let scope = Some(ifindex);
    sys::bind(&socket, &Address::new(sources::scoped(ip, config.port, scope)))?;
    if let Some(of) = config.group {
        group::select(&socket, of);
    }
    Ok((socket, granted))
}

#[cfg(test)]
mod tests;
