//! Reception: datagrams, or runs of them that the kernel has coalesced, as frames.

use super::address::Address;
use super::checksum::{self, Adjuster, IDENTIFICATION_MAX};
use super::control::{Control, integer};
use super::counters::UdpCounters;
use super::headers::{ETHERNET, Flow, HEADER_MAX, Head};
use super::sys;
use crate::clock::TimeSource;
use spanwire_base::{Checked, RxMeta, Time, u64_from, usize_from};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

/// The receive half of a port: socket and buffer.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) socket: OwnedFd,
    /// The address that it is bound to, unless it is any.
    local: Option<IpAddr>,
    /// The UDP port that it is bound to.
    port: u16,
    /// The longest frame.
    room: usize,
    pub(super) buffer: Box<[u8]>,
    /// The run in the buffer.
    run: Option<Run>,
    /// The kernel's count of dropped datagrams.
    overflow: u32,
    adjuster: Option<Adjuster>,
    /// The highest identification of IPv4 packets.
    id_max: u16,
    /// A time after which the socket was seen empty.
    empty_at: Time,
}

/// A received run whose segments are not all delivered.
#[derive(Clone, Debug)]
struct Run {
    flow: Flow,
    /// The headers of each segment but the last.
    head: Head,
    /// The rest of the payload, in the receive buffer.
    start: usize,
    end: usize,
    /// Bytes of each segment but the last.
    segment: usize,
    /// The identification that the next segment probably has.
    id: u16,
    /// Arrival of the first segment, if the kernel dated it, and the time of the read.
    stamp: Option<Time>,
    earliest: Time,
    read_at: Time,
}

/// The fields of a received run that control messages carry.
#[derive(Clone, Copy, Default, Debug)]
struct Arrival {
    to: Option<IpAddr>,
    tos: u8,
    hop_limit: u8,
    segment: Option<usize>,
    overflow: Option<u32>,
    stamp_ns: Option<u64>,
}

/// The result of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Look {
    /// There is a run.
    Run,
    /// The datagram that arrived was discarded.
    Discarded,
    /// Nothing has arrived.
    Empty,
}

impl Receiver {
    pub(super) fn new(
        socket: OwnedFd,
        (local, port): (Option<IpAddr>, u16),
        room: usize,
        (adjuster, any_id): (Option<Adjuster>, bool),
    ) -> Self {
        Self {
            socket,
            local,
            port,
            room,
            buffer: vec![0; BUFFER_BYTES].into(),
            run: None,
            overflow: 0,
            adjuster,
            id_max: if any_id { u16::MAX } else { IDENTIFICATION_MAX },
            empty_at: Time::ZERO,
        }
    }

    /// True if it holds segments that the socket does not report.
    pub(super) fn has_run(&self) -> bool {
        self.run.is_some()
    }

    /// As [`Port::rx_burst`](crate::port::Port::rx_burst).
    pub(super) fn burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
        counters: &mut UdpCounters,
    ) -> usize {
        let (mut count, mut calls) = (0, 0);
        while count < max {
            if self.deliver(each, counters) {
                count += 1;
                continue;
            }
            // Discarded datagrams are bounded too, for the sake of timers and transmission.
            if calls >= max {
                break;
            }
            calls += 1;
            let began = clock.now();
            match self.read_run(clock, counters) {
                Ok(Look::Run | Look::Discarded) => {}
                Ok(Look::Empty) => {
                    self.empty_at = began;
                    break;
                }
                Err(_) => {
                    counters.rx_errors += 1;
                    break;
                }
            }
        }
        count
    }

    /// Delivers the next segment of the run. Returns whether there was one.
    pub(super) fn deliver(
        &mut self,
        each: &mut dyn FnMut(&[u8], &RxMeta),
        counters: &mut UdpCounters,
    ) -> bool {
        let Some(run) = &mut self.run else { return false };
        let len = run.segment.min(run.end - run.start);
        // The headers lie over the end of the segment before, which was delivered.
        let frame = &mut self.buffer[run.start - run.flow.header_len()..run.start + len];
        if len < run.segment {
            run.head = Head::new(&run.flow, datagram_len(len), self.adjuster.as_ref());
        }
        run.head.write(run.id, frame);
        let mut checked = Checked::NONE;
        if let Some((adjuster, prefix)) = self.adjuster.as_mut().zip(run.head.prefix) {
            if checksum::is_sealed(frame) {
                match adjuster.identify(&frame[ETHERNET..], prefix, (run.id, self.id_max)) {
                    Some(id) => {
                        if id != run.id {
                            run.id = id;
                            run.head.write(id, frame);
                        }
                        checked = Checked::of(frame);
                    }
                    None => counters.rx_unidentified += 1,
                }
            }
            run.id = run.id.wrapping_add(1);
        }
        let meta = match run.stamp.take() {
            Some(at) => {
                run.earliest = at;
                RxMeta::whole(at)
            }
            None => RxMeta::between(run.earliest, run.read_at),
        };
        let meta = RxMeta { checked, ..meta };
        counters.rx_frames += 1;
        counters.rx_bytes += u64_from(frame.len());
        each(frame, &meta);
        run.start += len;
        if run.start >= run.end {
            self.run = None;
        }
        true
    }

    /// Reads the next run.
    fn read_run(&mut self, clock: &dyn TimeSource, counters: &mut UdpCounters) -> io::Result<Look> {
        let (mut from, mut control) = (Address::empty(), Control::new());
        let into = &mut self.buffer[HEADROOM..];
        let received = match sys::receive(&self.socket, into, &mut from, &mut control) {
            Ok(received) => received,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Look::Empty),
            Err(e) => return Err(e),
        };
        counters.rx_calls += 1;
        Ok(self.accept(received, (&from, &control), clock, counters))
    }

    /// Makes what was received into the buffer the run to deliver, unless it is invalid.
    ///
    /// # Arguments
    /// - `(from, control)`: the sender's address and the control messages, which are any bytes.
    pub(super) fn accept(
        &mut self,
        received: sys::Received,
        (from, control): (&Address, &Control),
        clock: &dyn TimeSource,
        counters: &mut UdpCounters,
    ) -> Look {
        let arrival = Arrival::read(control);
        if let Some(overflow) = arrival.overflow {
            counters.rx_overflow += u64::from(overflow.wrapping_sub(self.overflow));
            self.overflow = overflow;
        }
        if received.truncated {
            counters.rx_truncated += 1;
            return Look::Discarded;
        }
        let (Some(from), Some(to)) = (from.get(), arrival.to.or(self.local)) else {
            counters.rx_malformed += 1;
            return Look::Discarded;
        };
        if from.is_ipv4() != to.is_ipv4() {
            counters.rx_malformed += 1;
            return Look::Discarded;
        }
        let flow = Flow {
            src: from.ip(),
            dst: to,
            src_port: from.port(),
            dst_port: self.port,
            tos: arrival.tos,
            hop_limit: arrival.hop_limit,
        };
        let segment = arrival.segment.unwrap_or(received.len).min(received.len).max(1);
        if segment + flow.header_len() > self.room {
            counters.rx_too_long += 1;
            return Look::Discarded;
        }
        if segment < received.len {
            counters.rx_coalesced += u64_from(received.len.div_ceil(segment));
        }
        let read_at = clock.now();
        let stamp = arrival.stamp_ns.and_then(|ns| clock.of_realtime_ns(ns));
        self.run = Some(Run {
            flow,
            head: Head::new(&flow, datagram_len(segment), self.adjuster.as_ref()),
            start: HEADROOM,
            end: HEADROOM + received.len,
            segment,
            id: 0,
            stamp: stamp.map(|at| at.min(read_at)),
            earliest: self.empty_at,
            read_at,
        });
        Look::Run
    }
}

fn datagram_len(len: usize) -> u16 {
    u16::try_from(len).expect("a datagram's length")
}

impl Arrival {
    fn read(control: &Control) -> Self {
        let mut this = Self::default();
        let byte = |value: &[u8]| integer(value).map_or(0, |n| n.to_le_bytes()[0]);
        for (level, kind, value) in control.messages() {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_TOS) => this.tos = byte(value),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => this.tos = byte(value),
                (libc::IPPROTO_IP, libc::IP_TTL) => this.hop_limit = byte(value),
                (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => this.hop_limit = byte(value),
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    // Interface and local address come before the packet's destination.
                    let to = value.get(8..).and_then(<[u8]>::first_chunk::<4>);
                    this.to = to.map(|bytes| Ipv4Addr::from(*bytes).into()).or(this.to);
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let to = value.first_chunk::<16>();
                    let to = to.map(|bytes| IpAddr::from(Ipv6Addr::from(*bytes)).to_canonical());
                    this.to = this.to.or(to);
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    this.segment = integer(value).map(|bytes| usize_from(bytes.into()));
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => this.overflow = integer(value),
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => this.stamp_ns = stamp(value),
                _ => {}
            }
        }
        this
    }
}

/// A `struct timespec` in nanoseconds since 1970.
fn stamp(value: &[u8]) -> Option<u64> {
    let (seconds, rest) = value.split_first_chunk::<8>()?;
    let nanos = rest.first_chunk::<8>()?;
    u64::from_ne_bytes(*seconds).checked_mul(1_000_000_000)?.checked_add(u64::from_ne_bytes(*nanos))
}

/// Bytes before the first segment, for its headers.
pub(super) const HEADROOM: usize = 64;
/// The receive buffer: the longest payload of coalesced datagrams behind the headroom.
const BUFFER_BYTES: usize = HEADROOM + 65_536;

const _: () = assert!(HEADER_MAX <= HEADROOM);
