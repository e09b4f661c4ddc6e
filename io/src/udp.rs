//! The UDP port: ordinary sockets of the kernel, without privilege.
//!
//! A fallback where [`crate::xdp`] is not possible, and faster than it where the kernel segments and
//! coalesces datagrams: `flush` joins frames of one flow and one length into one send (UDP_SEGMENT),
//! and a receive call returns a run of datagrams (UDP_GRO).
//!
//! The node still exchanges whole Ethernet frames. Of those to send, the headers become arguments of
//! the send; to those received, headers are written in place: over the end of the segment before,
//! which has been delivered. What follows the IP packet of a frame is not sent.
//!
//! Sockets are not connected, and DF is set. They hide IPv4's identification, which a checksum may
//! cover: see [`PacketChecksum`]. Congestion is counted, not reported: see [`UdpCounters`].

mod address;
mod checksum;
mod config;
mod control;
mod counters;
mod headers;
mod rx;
mod sources;
mod sys;
mod tx;

pub use checksum::PacketChecksum;
pub use config::{UdpConfig, UdpError};
pub use counters::UdpCounters;

use crate::clock::TimeSource;
use crate::net::Netlink;
use crate::poll::poll;
use crate::port::{Port, SlotToken};
use address::Address;
use af_xdp::sockopt;
use checksum::Adjuster;
use headers::Flow;
use rx::{Look, Run};
use sources::Sources;
use spanwire_base::{RxMeta, Time, TxMeta, u64_from, usize_from};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use tx::Queued;

/// A [`Port`] over UDP sockets. It receives datagrams to one UDP port, and sends any UDP frame.
#[derive(Debug)]
pub struct UdpPort {
    receiver: OwnedFd,
    sources: Sources,
    ifname: String,
    /// The interface that sockets which send are bound to; none for the loopback.
    device: Option<u32>,
    local: Option<IpAddr>,
    port: u16,
    /// Contiguous transmit buffers, each as long as the longest frame.
    buffers: Box<[u8]>,
    room: usize,
    /// Free buffers.
    free: Vec<usize>,
    /// Committed frames that the kernel has not accepted yet, oldest first.
    queued: VecDeque<Queued>,
    /// Receive buffer, and the run in it.
    received: Box<[u8]>,
    run: Option<Run>,
    /// The kernel's count of dropped datagrams.
    overflow: u32,
    tx_adjuster: Option<Adjuster>,
    rx_adjuster: Option<Adjuster>,
    segmentation: bool,
    /// Consecutive runs that the kernel rejected.
    refused_runs: u32,
    receive_buffer: u32,
    /// A time after which the socket was seen empty.
    empty_at: Time,
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
        let slots = (BUFFER_BYTES / room).clamp(SLOTS_MIN, SLOTS_MAX);
        let (receiver, receive_buffer) = open_receiver(config, link.ifindex)?;
        let sources = Sources::open(config, device)?;
        let adjuster = || config.checksum.map(Adjuster::new);
        tracing::info!(
            interface = config.ifname,
            local = ?config.local,
            source_port = sources.first_port(),
            receive_buffer,
            "UDP port open"
        );
        Ok(Self {
            receiver,
            sources,
            ifname: config.ifname.clone(),
            device,
            local: config.local,
            port: config.port,
            buffers: vec![0; slots * room].into(),
            room,
            free: (0..slots).rev().collect(),
            queued: VecDeque::with_capacity(slots),
            received: vec![0; rx::RECEIVE_BYTES].into(),
            run: None,
            overflow: 0,
            tx_adjuster: adjuster(),
            rx_adjuster: adjuster(),
            segmentation: true,
            refused_runs: 0,
            receive_buffer,
            empty_at: Time::ZERO,
            counters: UdpCounters::default(),
        })
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

    /// The UDP source port to prefer: each other one takes a socket and ends runs of segments.
    #[must_use]
    pub fn source_port(&self) -> u16 {
        self.sources.first_port()
    }

    /// An error if the interface was removed.
    fn check_device(&self) -> io::Result<()> {
        let Some(socket) = self.sources.first_socket().filter(|_| self.device.is_some()) else {
            return Ok(());
        };
        let name: io::Result<[u8; 16]> =
            sockopt::get(socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE);
        match name {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) => {
                let text = format!("interface {} is gone: {e}", self.ifname);
                Err(io::Error::new(e.kind(), text))
            }
            _ => Ok(()),
        }
    }
}

impl Port for UdpPort {
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], RxMeta),
    ) -> usize {
        let (mut count, mut calls) = (0, 0);
        while count < max {
            if self.deliver(each) {
                count += 1;
                continue;
            }
            // Discarded datagrams are bounded too, for the sake of timers and transmission.
            if calls >= max {
                break;
            }
            calls += 1;
            let began = clock.now();
            match self.read_run(clock) {
                Ok(Look::Run | Look::Discarded) => {}
                Ok(Look::Empty) => {
                    self.empty_at = began;
                    break;
                }
                Err(_) => {
                    self.counters.rx_errors += 1;
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
        let number = usize_from(slot.id());
        match Flow::read(&self.buffers[number * self.room..][..meta.len]) {
            Some((flow, payload)) => self.queued.push_back(Queued { number, payload, flow, id: 0 }),
            None => {
                self.counters.tx_not_udp += 1;
                self.free.push(number);
            }
        }
    }

    fn slot_release(&mut self, slot: SlotToken) {
        self.free.push(usize_from(slot.id()));
    }

    fn flush(&mut self, now: Time) -> io::Result<()> {
        if self.queued.is_empty() {
            return Ok(());
        }
        self.send_queued(now)
    }

    fn frame_room(&self) -> usize {
        self.room
    }

    fn tx_pending(&self) -> usize {
        self.queued.len()
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        if self.run.is_some() {
            return Ok(());
        }
        let (fd, events) = (self.receiver.as_raw_fd(), libc::POLLIN);
        let mut entry = [libc::pollfd { fd, events, revents: 0 }];
        match poll(&mut entry, timeout)? {
            // A socket whose interface was removed never becomes ready.
            0 => self.check_device(),
            _ => Ok(()),
        }
    }

    fn check_attached(&mut self) -> io::Result<()> {
        self.check_device()
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.receiver.as_fd()).filter(|_| self.run.is_none())
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
    let scope = Some(ifindex);
    sys::bind(&socket, &Address::new(sources::scoped(ip, config.port, scope)))?;
    Ok((socket, granted))
}

/// Transmit buffers: as many as fit the bytes, within the two bounds. The lower one is a burst of
/// the driver, the upper one more than the engine's default window.
const BUFFER_BYTES: usize = 4 << 20;
const SLOTS_MIN: usize = 128;
const SLOTS_MAX: usize = 512;

#[cfg(test)]
mod tests;
