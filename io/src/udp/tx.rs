//! Transmission: runs of frames that one send carries.

use super::address::Address;
use super::checksum::{Adjuster, IDENTIFICATION_AT};
use super::control::{Control, describe};
use super::counters::UdpCounters;
use super::errors::{count_rejected, is_about_segments, is_too_long};
use super::headers::{ETHERNET, Flow};
use super::sources::{self, Sources};
use super::sys::{self, Parts, SEGMENTS_MAX};
use crate::port::{SlotToken, copy_lent};
use spanwire_base::{Dur, LentPayload, Time, TxMeta, u64_from, usize_from};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

/// The transmit half of a port: buffers, queue and sockets.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) sources: Sources,
    /// The interface that the sockets are bound to; none for the loopback.
    device: Option<u32>,
    /// Contiguous buffers, each as long as the longest frame.
    buffers: Box<[u8]>,
    room: usize,
    /// Free buffers.
    pub(super) free: Vec<usize>,
    /// Committed frames that the kernel has not accepted yet, oldest first.
    queued: VecDeque<Queued>,
    /// Frames were committed behind those of another flow.
    is_mixed: bool,
    /// The flows of the queue, while they are brought together.
    flows: Vec<Flow>,
    committed: u64,
    /// The bytes between the lent payloads of a run.
    joints: Vec<u8>,
    adjuster: Option<Adjuster>,
    segmentation: bool,
    /// Consecutive runs that the kernel rejected.
    rejected_runs: u32,
    /// UDP payload of the shortest datagram that was longer than the interface's MTU, and when:
    /// longer ones are sent as fragments at once, for a while.
    too_long: Option<(usize, Time)>,
}

/// Sends the concatenation of parts from a socket to an address, as [`sys::send`].
pub(super) type SendCall<'s> =
    dyn FnMut(&OwnedFd, &Address, &Control, &Parts<'_>) -> io::Result<()> + 's;

/// A committed frame.
#[derive(Clone, Debug)]
struct Queued {
    /// Its buffer.
    number: usize,
    /// Its UDP payload in the buffer.
    payload: Range<usize>,
    /// Payload of the node that is not in the buffer, until the end of the next flush.
    lent: Option<LentPayload>,
    flow: Flow,
    /// The identification that its checksum is sealed for.
    id: u16,
    /// It is sent alone and without DF.
    may_fragment: bool,
    /// Rank of its flow in the queue, and its own in the order of commits.
    rank: usize,
    sequence: u64,
}

impl Sender {
    /// The transmit half for frames of at most `room` bytes.
    pub(super) fn new(
        sources: Sources,
        device: Option<u32>,
        room: usize,
        adjuster: Option<Adjuster>,
    ) -> Self {
        let slots = (BUFFER_BYTES / room).clamp(SLOTS_MIN, SLOTS_MAX);
        Self {
            sources,
            device,
            buffers: vec![0; slots * room].into(),
            room,
            free: (0..slots).rev().collect(),
            queued: VecDeque::with_capacity(slots),
            is_mixed: false,
            flows: Vec::with_capacity(FLOWS_MAX),
            committed: 0,
            joints: Vec::new(),
            adjuster,
            segmentation: true,
            rejected_runs: 0,
            too_long: None,
        }
    }

    pub(super) fn take(&mut self) -> Option<SlotToken> {
        self.free.pop().map(|number| SlotToken::new(u64_from(number)))
    }

    pub(super) fn bytes(&mut self, slot: &SlotToken) -> &mut [u8] {
        &mut self.buffers[usize_from(slot.id()) * self.room..][..self.room]
    }

    pub(super) fn release(&mut self, slot: &SlotToken) {
        self.free.push(usize_from(slot.id()));
    }

    pub(super) fn commit(
        &mut self,
        slot: &SlotToken,
        meta: TxMeta,
        lent: Option<LentPayload>,
        counters: &mut UdpCounters,
    ) {
        assert!(meta.len <= self.room, "{} bytes in a slot of {}", meta.len, self.room);
        let number = usize_from(slot.id());
        match Flow::read(&self.bytes(slot)[..meta.len]) {
            Some((flow, payload)) => {
                self.is_mixed |= self.queued.back().is_some_and(|last| last.flow != flow);
                let (id, rank, sequence) = (0, 0, self.committed);
                self.committed += 1;
                if let Some(lent) = &lent {
                    let end = lent.at + lent.bytes.len();
                    assert!(payload.start <= lent.at && end <= payload.end, "lent beyond a frame");
                }
                let may_fragment = meta.may_fragment.is_allowed()
                    || self.too_long.is_some_and(|(least, _)| payload.len() >= least);
                let queued =
                    Queued { number, payload, lent, flow, id, may_fragment, rank, sequence };
                self.queued.push_back(queued);
            }
            None => {
                counters.tx_not_udp += 1;
                self.free.push(number);
            }
        }
    }

    /// Frames that the kernel has not accepted yet.
    pub(super) fn pending(&self) -> usize {
        self.queued.len()
    }

    /// Sends queued frames until the kernel accepts no more.
    ///
    /// # Errors
    /// The interface was removed.
    pub(super) fn flush(&mut self, now: Time, counters: &mut UdpCounters) -> io::Result<()> {
        self.flush_by(now, counters, &mut |socket, to, control, parts| {
            sys::send(socket, to, control, parts)
        })
    }

    /// As [`Sender::flush`], by another system call than [`sys::send`].
    pub(super) fn flush_by(
        &mut self,
        now: Time,
        counters: &mut UdpCounters,
        send: &mut SendCall<'_>,
    ) -> io::Result<()> {
        self.bring_flows_together();
        self.too_long = self.too_long.filter(|(_, at)| now.since(*at) < TOO_LONG_FOR);
        let mut control = Control::new();
        // Frames of a run that the kernel rejected as one; they are sent one by one.
        let mut singly = 0_usize;
        while let Some(first) = self.queued.front() {
            let (wanted, is_v6) = (first.flow.src_port, first.flow.src.is_ipv6());
            let (may_fragment, len) = (first.may_fragment, first.payload.len());
            let Some(source) = self.sources.find(now, wanted, is_v6) else {
                counters.tx_no_source += 1;
                self.forget(1);
                continue;
            };
            let count = if singly > 0 || !self.segmentation { 1 } else { self.run_len() };
            singly = singly.saturating_sub(1);
            self.sources.set_fragments(source, may_fragment);
            self.seal(count, source, counters);
            match self.send_run(count, source, &mut control, send) {
                Ok(()) => self.on_sent(count, counters),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    counters.tx_again += 1;
                    self.copy_lent();
                    return Ok(());
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if count > 1 && is_about_segments(&e) => {
                    singly = count;
                    counters.tx_unsegmented += 1;
                    self.on_unsegmented(&e);
                }
                Err(e) if is_too_long(&e) && !may_fragment => {
                    // The interface's MTU was lowered: the receiver's kernel reassembles.
                    self.too_long = Some((len, now));
                    self.allow_fragments(len);
                }
                Err(e) => {
                    count_rejected(&e, counters);
                    self.forget(1);
                    self.sources.check_device()?;
                }
            }
        }
        Ok(())
    }

    /// Queued frames with at least this much UDP payload may be fragmented.
    fn allow_fragments(&mut self, payload_len: usize) {
        for queued in &mut self.queued {
            queued.may_fragment |= queued.payload.len() >= payload_len;
        }
    }

    /// Copies what the kernel has not accepted: no loan survives a flush.
    pub(super) fn copy_lent(&mut self) {
        for queued in &mut self.queued {
            if let Some(lent) = queued.lent.take() {
                copy_lent(&lent, &mut self.buffers[queued.number * self.room..][..self.room]);
            }
        }
    }

    /// Orders the queue by flow, so that frames of a flow form runs although a load balancer sends
    /// each over another path than the one before. The order within a flow stays; that between
    /// flows is the network's anyway.
    fn bring_flows_together(&mut self) {
        if !std::mem::take(&mut self.is_mixed) {
            return;
        }
        self.flows.clear();
        for queued in &mut self.queued {
            let known = self.flows.iter().position(|flow| *flow == queued.flow);
            queued.rank = known.unwrap_or(self.flows.len());
            if known.is_none() && self.flows.len() < FLOWS_MAX {
                self.flows.push(queued.flow);
            }
        }
        let in_order = |queued: &Queued| (queued.rank, queued.sequence);
        self.queued.make_contiguous().sort_unstable_by_key(in_order);
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
            let fits =
                count < SEGMENTS_MAX && bytes <= RUN_BYTES_MAX && (1..=segment).contains(&len);
            let is_whole = !first.may_fragment && !next.may_fragment;
            if !fits || next.flow != first.flow || !is_whole {
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
    fn seal(&mut self, count: usize, source: usize, counters: &mut UdpCounters) {
        let port = self.sources.port(source);
        for (id, queued) in (0u16..).zip(self.queued.iter_mut().take(count)) {
            let buffer = &mut self.buffers[queued.number * self.room..][..self.room];
            let Some(packet) = buffer.get_mut(ETHERNET..queued.payload.end) else { continue };
            if queued.flow.src_port != port {
                counters.tx_other_source += 1;
                if let Some(adjuster) = &mut self.adjuster {
                    let at = queued.flow.src_port_at();
                    adjuster.adjust(packet, at, queued.flow.src_port ^ port);
                }
                queued.flow.src_port = port;
            }
            if queued.flow.src.is_ipv4() && queued.id != id {
                if let Some(adjuster) = &mut self.adjuster {
                    adjuster.adjust(packet, IDENTIFICATION_AT, queued.id ^ id);
                }
                queued.id = id;
            }
        }
    }

    fn send_run(
        &mut self,
        count: usize,
        source: usize,
        control: &mut Control,
        send: &mut SendCall<'_>,
    ) -> io::Result<()> {
        let Some(first) = self.queued.front() else { return Ok(()) };
        let flow = &first.flow;
        *control = Control::new();
        describe(flow, self.device, control);
        if count > 1 {
            let segment = u16::try_from(first.payload.len()).map_err(io::Error::other)?;
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        }
        let to = Address::new(sources::scoped(flow.dst, flow.dst_port, self.device));
        self.joints.clear();
        let mut parts = Parts::default();
        let run = || self.queued.iter().take(count);
        let of = |queued: &Queued| &self.buffers[queued.number * self.room..][..self.room];
        for queued in run() {
            let Range { start, end } = queued.payload;
            if let Some(LentPayload { at, bytes }) = &queued.lent {
                self.joints.extend_from_slice(&of(queued)[start..*at]);
                self.joints.extend_from_slice(&of(queued)[at + bytes.len()..end]);
            }
        }
        // The end of a packet and the head of the next one are one part.
        let (mut joint, mut taken) = (0, 0);
        for queued in run() {
            let Range { start, end } = queued.payload;
            match &queued.lent {
                Some(LentPayload { at, bytes }) => {
                    joint += at - start;
                    parts.push(&self.joints[taken..joint]);
                    parts.push_lent(bytes);
                    taken = joint;
                    joint += end - (at + bytes.len());
                }
                None => {
                    parts.push(&self.joints[taken..joint]);
                    parts.push(&of(queued)[start..end]);
                    taken = joint;
                }
            }
        }
        parts.push(&self.joints[taken..joint]);
        send(self.sources.socket(source), &to, control, &parts)
    }

    fn on_sent(&mut self, count: usize, counters: &mut UdpCounters) {
        counters.tx_calls += 1;
        counters.tx_frames += u64_from(count);
        counters.tx_fragmented +=
            u64::from(self.queued.front().is_some_and(|queued| queued.may_fragment));
        let bytes: usize = self.queued.iter().take(count).map(|queued| queued.payload.end).sum();
        counters.tx_bytes += u64_from(bytes);
        if count > 1 {
            self.rejected_runs = 0;
        }
        self.forget(count);
    }

    /// A kernel or device without segmentation is not asked for ever.
    fn on_unsegmented(&mut self, error: &io::Error) {
        // Runs of shorter segments are possible.
        self.rejected_runs += u32::from(!is_too_long(error));
        if self.rejected_runs >= REJECTED_RUNS_MAX {
            self.segmentation = false;
            tracing::info!(%error, "UDP_SEGMENT is not possible here: packets leave one by one");
        }
    }

    /// Removes the first `count` frames from the queue and frees their buffers.
    fn forget(&mut self, count: usize) {
        let gone = self.queued.drain(..count.min(self.queued.len()));
        self.free.extend(gone.map(|queued| queued.number));
    }
}

/// Flows that are brought together; frames of further ones stay in the order of commits.
const FLOWS_MAX: usize = 32;
/// UDP payload of a send over IPv6 without a jumbogram; over IPv4 it is 65,507.
const RUN_BYTES_MAX: usize = 65_487;
/// Consecutive rejected runs after which the port sends no more of them.
const REJECTED_RUNS_MAX: u32 = 8;
/// Time after which a length that the kernel found too long is tried whole again.
const TOO_LONG_FOR: Dur = Dur::from_secs(1);
/// Transmit buffers: as many as fit the bytes, within the two bounds. The lower one is two bursts
/// of the driver, the upper one more than the engine's default window.
const BUFFER_BYTES: usize = 4 << 20;
const SLOTS_MIN: usize = 128;
/// Maximum transmit buffers of a port, which those for frames of Ethernet are.
pub const SLOTS_MAX: usize = 512;
