//! Transmission: runs of frames that one send carries.

use super::checksum::IDENTIFICATION_AT;
use super::headers::{ETHERNET, Flow};
use super::sys::PARTS_MAX;
use super::{UdpPort, address::Address, control::Control, sources, sys};
use spanwire_base::{Time, u64_from};
use std::io;
use std::net::IpAddr;
use std::ops::Range;

/// A committed frame.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    /// Its buffer.
    pub(super) number: usize,
    /// Its UDP payload in the buffer.
    pub(super) payload: Range<usize>,
    pub(super) flow: Flow,
    /// The identification that its checksum is sealed for.
    pub(super) id: u16,
}

impl UdpPort {
    /// Sends queued frames until the kernel accepts no more.
    pub(super) fn send_queued(&mut self, now: Time) -> io::Result<()> {
        let mut control = Control::new();
        // Frames of a run that the kernel rejected as one; they are sent one by one.
        let mut singly = 0_usize;
        while let Some(first) = self.queued.front() {
            let (wanted, is_v6) = (first.flow.src_port, first.flow.src.is_ipv6());
            let Some(source) = self.sources.find(now, wanted, is_v6) else {
                self.counters.tx_no_source += 1;
                self.forget(1);
                continue;
            };
            let count = if singly > 0 || !self.segmentation { 1 } else { self.run_len() };
            singly = singly.saturating_sub(1);
            self.seal(count, source);
            match self.send_run(count, source, &mut control) {
                Ok(()) => self.on_sent(count),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.counters.tx_again += 1;
                    return Ok(());
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if count > 1 && is_about_segments(&e) => {
                    singly = count;
                    self.on_unsegmented(&e);
                }
                Err(e) => {
                    self.on_rejected(&e);
                    self.forget(1);
                    self.check_device()?;
                }
            }
        }
        Ok(())
    }

    /// Frames at the head of the queue that one send may carry: of one flow and one length, but for
    /// a shorter last one.
    fn run_len(&self) -> usize {
        let mut frames = self.queued.iter();
        let Some(first) = frames.next() else { return 0 };
        let segment = first.payload.len();
        let (mut count, mut bytes) = (1, segment);
        for next in frames {
            let len = next.payload.len();
            bytes += len;
            let fits = count < PARTS_MAX && bytes <= RUN_BYTES_MAX && (1..=segment).contains(&len);
            if !fits || next.flow != first.flow {
                break;
            }
            count += 1;
            if len < segment {
                break;
            }
        }
        count
    }

    /// Adjusts checksums of the first `count` frames to the source port and to the identifications
    /// that they will have.
    fn seal(&mut self, count: usize, source: usize) {
        let port = self.sources.port(source);
        for (id, queued) in (0u16..).zip(self.queued.iter_mut().take(count)) {
            let buffer = &mut self.buffers[queued.number * self.room..][..self.room];
            let Some(packet) = buffer.get_mut(ETHERNET..queued.payload.end) else { continue };
            if queued.flow.src_port != port {
                self.counters.tx_other_source += 1;
                if let Some(adjuster) = &mut self.tx_adjuster {
                    let at = queued.flow.src_port_at();
                    adjuster.adjust(packet, at, queued.flow.src_port ^ port);
                }
                queued.flow.src_port = port;
            }
            if queued.flow.src.is_ipv4() && queued.id != id {
                if let Some(adjuster) = &mut self.tx_adjuster {
                    adjuster.adjust(packet, IDENTIFICATION_AT, queued.id ^ id);
                }
                queued.id = id;
            }
        }
    }

    fn send_run(&self, count: usize, source: usize, control: &mut Control) -> io::Result<()> {
        let Some(first) = self.queued.front() else { return Ok(()) };
        let flow = &first.flow;
        *control = Control::new();
        describe(flow, self.device, control);
        if count > 1 {
            let segment = u16::try_from(first.payload.len()).map_err(io::Error::other)?;
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        }
        let to = Address::new(sources::scoped(flow.dst, flow.dst_port, self.device));
        let parts = self
            .queued
            .iter()
            .take(count)
            .map(|queued| &self.buffers[queued.number * self.room..][queued.payload.clone()]);
        sys::send(self.sources.socket(source), &to, control, parts)
    }

    fn on_sent(&mut self, count: usize) {
        self.counters.tx_calls += 1;
        self.counters.tx_frames += u64_from(count);
        let bytes: usize = self.queued.iter().take(count).map(|queued| queued.payload.end).sum();
        self.counters.tx_bytes += u64_from(bytes);
        self.refused_runs = if count > 1 { 0 } else { self.refused_runs };
        self.forget(count);
    }

    /// Counts a rejected run. A kernel or device without segmentation is not asked for ever.
    fn on_unsegmented(&mut self, error: &io::Error) {
        self.counters.tx_unsegmented += 1;
        self.refused_runs += 1;
        if self.refused_runs >= REFUSED_RUNS_MAX {
            self.segmentation = false;
            tracing::info!(%error, "UDP_SEGMENT is not possible here: packets leave one by one");
        }
    }

    fn on_rejected(&mut self, error: &io::Error) {
        match error.raw_os_error() {
            Some(libc::EMSGSIZE) => self.counters.tx_too_long += 1,
            Some(libc::ENOBUFS | libc::ENOMEM) => self.counters.tx_no_memory += 1,
            _ => {
                if self.counters.tx_rejected == 0 {
                    tracing::debug!(%error, "the kernel rejected a packet");
                }
                self.counters.tx_rejected += 1;
            }
        }
    }

    /// Removes the first `count` frames from the queue and frees their buffers.
    fn forget(&mut self, count: usize) {
        let gone = self.queued.drain(..count.min(self.queued.len()));
        self.free.extend(gone.map(|queued| queued.number));
    }
}

/// The control messages for the header fields of `flow`.
fn describe(flow: &Flow, device: Option<u32>, control: &mut Control) {
    let ifindex = device.unwrap_or(0).to_ne_bytes();
    let (tos, hop_limit) = (u32::from(flow.tos), u32::from(flow.hop_limit));
    let hop_limit = Some(hop_limit.to_ne_bytes()).filter(|_| hop_limit > 0);
    match flow.src {
        IpAddr::V4(src) => {
            // struct in_pktinfo: the interface, the source address, and one only for reception.
            let mut info = [0; 12];
            info[..4].copy_from_slice(&ifindex);
            info[4..8].copy_from_slice(&src.octets());
            control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            control.push(libc::IPPROTO_IP, libc::IP_TOS, &tos.to_ne_bytes());
            if let Some(ttl) = hop_limit {
                control.push(libc::IPPROTO_IP, libc::IP_TTL, &ttl);
            }
        }
        IpAddr::V6(src) => {
            // struct in6_pktinfo: the source address and the interface.
            let mut info = [0; 20];
            info[..16].copy_from_slice(&src.octets());
            info[16..].copy_from_slice(&ifindex);
            control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            control.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &tos.to_ne_bytes());
            if let Some(hops) = hop_limit {
                control.push(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &hops);
            }
        }
    }
}

/// Errors of a kernel, device or route that does not segment, or not at this length.
fn is_about_segments(error: &io::Error) -> bool {
    let errors = [libc::EINVAL, libc::EIO, libc::EOPNOTSUPP, libc::ENOPROTOOPT, libc::EMSGSIZE];
    error.raw_os_error().is_some_and(|errno| errors.contains(&errno))
}

/// UDP payload of a send over IPv6 without a jumbogram; over IPv4 it is 65,507.
const RUN_BYTES_MAX: usize = 65_487;
/// Consecutive rejected runs after which the port sends no more of them.
const REFUSED_RUNS_MAX: u32 = 8;
