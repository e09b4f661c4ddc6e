//! The AF_XDP port: one queue of one interface, one socket, one thread.
//!
//! RX and TX never share a buffer. As many chunks receive as the fill ring has entries; the kernel
//! gets as many of them as it needs (`stock.rs`), and a received chunk is refilled at once. The
//! other chunks transmit and return through the completion ring. That ring is also drained while
//! receiving, because on a veth a frame completes only once the *peer's* receive half has run.
//!
//! Congestion is counted, not reported: see [`XdpCounters`]. An error of the port means that the
//! interface was removed.

mod config;
mod counters;
mod device;
mod error;
mod local_addresses;
mod open;
mod probe;
mod promiscuous;
mod side_poll;
mod stock;

pub use config::{XdpConfig, XdpMode, XdpPreference};
pub use counters::XdpCounters;
pub use device::XdpDevice;
pub use error::XdpError;
pub use open::memlock_bytes;
pub use probe::probe_socket;
pub use side_poll::SidePoll;

pub use af_xdp::Traffic;

use crate::clock::TimeSource;
use crate::poll::poll;
use crate::port::{Port, SlotToken};
use af_xdp::{Frame, Kick, Socket, ToSend, Umem};
use spanwire_base::{RxMeta, Time, TxMeta, u32_from, u64_from, usize_from};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use stock::Stock;

/// A [`Port`] on one queue of an interface. One thread owns it; it may move to another thread.
///
/// Dropping it returns the queue to the kernel, as does killing the process. The queue can be
/// reopened at once: opening waits for the kernel to free it, some tens of milliseconds.
#[derive(Debug)]
pub struct XdpPort {
    socket: Socket,
    umem: Umem,
    device: Arc<XdpDevice>,
    queue: u32,
    mode: XdpMode,
    need_wakeup: bool,
    side_poll: Option<SidePoll>,
    /// The last burst was a whole batch, so more frames are likely.
    rx_is_busy: bool,
    /// Frames were committed since the last burst.
    just_sent: bool,
    /// Receive chunks that the kernel does not hold, the most recently used last.
    unfilled: Vec<Frame>,
    stock: Stock,
    /// Free transmit chunks.
    free: Vec<Frame>,
    /// Transmit chunks handed out as slots, by chunk number.
    taken: Box<[Option<Frame>]>,
    taken_count: u32,
    /// Consecutive calls of `flush` without frames to send.
    quiet_flushes: u32,
    /// A time after which the ring was seen empty.
    empty_at: Time,
    counters: XdpCounters,
}

impl XdpPort {
    /// The mode that the port was opened in.
    #[must_use]
    pub fn mode(&self) -> XdpMode {
        self.mode
    }

    /// The interface of the port.
    #[must_use]
    pub fn device(&self) -> &Arc<XdpDevice> {
        &self.device
    }

    /// The queue of the port.
    #[must_use]
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// The interface's MTU when the program was attached, in bytes of an IP packet.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.device.mtu()
    }

    /// The counters, including the kernel's present ones, which are zero if they cannot be read.
    #[must_use]
    pub fn counters(&self) -> XdpCounters {
        let rx = &self.socket.rx;
        let completion = &self.socket.completion;
        let (fill, tx) = (&self.socket.fill, &self.socket.tx);
        XdpCounters {
            rx_bad_desc: self.counters.rx_bad_desc
                + rx.bad_descs()
                + rx.bad_indices()
                + fill.bad_indices(),
            tx_bad_completion: completion.bad_addresses()
                + completion.bad_indices()
                + tx.bad_indices(),
            kernel: self.socket.statistics().unwrap_or_default(),
            ..self.counters
        }
    }

    /// Polls the interface on this core whenever no frame has arrived; see [`SidePoll`].
    pub fn set_side_poll(&mut self, side_poll: SidePoll) {
        self.side_poll = Some(side_poll);
    }

    /// The side poll, if set.
    #[must_use]
    pub fn side_poll(&self) -> Option<&SidePoll> {
        self.side_poll.as_ref()
    }

    /// Free transmit buffers. With nothing in flight there are `frames - fill_size`.
    #[must_use]
    pub fn free_slots(&self) -> usize {
        self.free.len()
    }

    /// Delivers up to `max` frames of the RX ring.
    fn take(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize {
        let mut now = clock.now();
        self.restock(now);
        let mut count = 0;
        let mut in_pieces = false;
        while count < max {
            let Some(received) = self.socket.rx.pop() else {
                // The ring was seen empty after this reading.
                self.empty_at = now;
                break;
            };
            // The socket was bound without multi-buffer, so the kernel must not send such
            // descriptors.
            if received.has_more() || in_pieces {
                in_pieces = received.has_more();
                self.counters.rx_bad_desc += 1;
            } else {
                let bytes = received.bytes(&self.umem);
                self.counters.rx_bytes += u64_from(bytes.len());
                let stamp = received.arrival_ns(&self.umem);
                let stamp = stamp.and_then(|ns| clock.of_monotonic_ns(ns));
                if stamp.is_none_or(|at| at > now) {
                    now = clock.now();
                }
                let whole = |at: Time| RxMeta::whole(at.min(now));
                each(bytes, &stamp.map_or(RxMeta::between(self.empty_at, now), whole));
                count += 1;
            }
            self.unfilled.push(received.into_frame());
            self.refill();
        }
        self.socket.rx.release();
        self.socket.fill.publish();
        self.counters.rx_frames += u64_from(count);
        count
    }

    /// Adjusts how many chunks the kernel holds to how many it has used.
    fn restock(&mut self, now: Time) {
        let held = self.socket.fill.size() - u32_from(self.unfilled.len());
        self.stock.on_used(now, held.saturating_sub(self.socket.fill.pending()));
        self.refill();
    }

    /// Pushes receive chunks to the fill ring, but for the reserve.
    fn refill(&mut self) {
        while self.unfilled.len() > usize_from(self.stock.reserve().into()) {
            let Some(frame) = self.unfilled.pop() else { break };
            if let Err(frame) = self.socket.fill.push(frame) {
                self.unfilled.push(frame);
                break;
            }
        }
    }

    /// Runs the interface's receive half on this core.
    fn run_side_poll(&mut self) {
        if let Some(side_poll) = &self.side_poll {
            side_poll.poll();
            self.counters.rx_side_polls += 1;
        }
    }

    /// Takes back the transmit chunks that the kernel has completed.
    fn reap(&mut self) {
        let before = self.free.len();
        while let Some(frame) = self.socket.completion.pop() {
            self.free.push(frame);
        }
        self.socket.completion.release();
        self.counters.tx_completions += u64_from(self.free.len() - before);
    }

    /// Makes the kernel send, and continues after each frame that it drops.
    fn kick(&mut self) -> io::Result<()> {
        for _ in 0..KICKS_MAX {
            self.counters.tx_kicks += 1;
            match self.socket.wake_tx().map_err(|error| self.gone(&error))? {
                Kick::Done => {}
                Kick::Again => self.counters.tx_again += 1,
                Kick::NoBuffers => self.counters.tx_nobufs += 1,
                Kick::Down => self.counters.tx_net_down += 1,
                Kick::Dropped => {
                    self.counters.tx_busy_drops += 1;
                    continue;
                }
            }
            break;
        }
        Ok(())
    }

    fn gone(&self, error: &io::Error) -> io::Error {
        let text =
            format!("interface {} queue {} is gone: {error}", self.device.ifname(), self.queue);
        io::Error::new(error.kind(), text)
    }
}

impl Port for XdpPort {
    fn rx_burst(
        &mut self,
        clock: &dyn TimeSource,
        max: usize,
        each: &mut dyn FnMut(&[u8], &RxMeta),
    ) -> usize {
        self.reap();
        if self.side_poll.is_none() {
            return self.take(clock, max, each);
        }
        let just_sent = std::mem::take(&mut self.just_sent);
        let mut polls = self.rx_is_busy;
        let mut count = 0;
        while count < max {
            if polls {
                self.run_side_poll();
            }
            let taken = self.take(clock, SIDE_POLL_BATCH.min(max - count), each);
            count += taken;
            let is_empty = count == 0 && !polls && !just_sent;
            if taken < SIDE_POLL_BATCH && !is_empty {
                break;
            }
            polls = true;
        }
        self.rx_is_busy = count >= SIDE_POLL_BATCH;
        count
    }

    fn slot_take(&mut self) -> Option<SlotToken> {
        // A slot handed out must fit into the TX ring when it is committed.
        let wanted = self.taken_count + 1;
        if self.free.is_empty() {
            self.reap();
        }
        if self.free.is_empty() || self.socket.tx.room(wanted) < wanted {
            self.counters.tx_no_slot += 1;
            return None;
        }
        let frame = self.free.pop()?;
        let number = frame.index();
        self.taken[number] = Some(frame);
        self.taken_count = wanted;
        Some(SlotToken::new(u64_from(number)))
    }

    fn slot_bytes(&mut self, slot: &SlotToken) -> &mut [u8] {
        let frame = self.taken[usize_from(slot.id())].as_mut();
        let frame = frame.expect("a slot token stands for a chunk that is handed out");
        self.umem.bytes_mut(frame)
    }

    fn slot_commit(&mut self, slot: SlotToken, meta: TxMeta) {
        let room = self.umem.chunk_len();
        assert!(meta.len <= room, "{} bytes in a slot of {room}", meta.len);
        let frame = self.taken[usize_from(slot.id())].take();
        let frame = frame.expect("a slot token stands for a chunk that is handed out");
        self.taken_count -= 1;
        let pushed = self.socket.tx.push(ToSend::whole(frame, u32_from(meta.len)));
        assert!(pushed.is_ok(), "the ring has room for every slot taken");
        self.just_sent = true;
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += u64_from(meta.len);
    }

    fn slot_release(&mut self, slot: SlotToken) {
        let frame = self.taken[usize_from(slot.id())].take();
        self.free.push(frame.expect("a slot token stands for a chunk that is handed out"));
        self.taken_count -= 1;
    }

    fn flush(&mut self, _now: Time) -> io::Result<()> {
        if self.socket.fill.needs_wakeup() {
            self.counters.rx_wakeups += 1;
            self.socket.wake_rx().map_err(|error| self.gone(&error))?;
        }
        self.socket.tx.publish();
        let wants =
            self.socket.tx.pending() > 0 && (!self.need_wakeup || self.socket.tx.needs_wakeup());
        // A polling port without kicks would not detect otherwise that its interface was removed.
        self.quiet_flushes += 1;
        if wants || self.quiet_flushes >= PROBE_EVERY {
            self.quiet_flushes = 0;
            return self.kick();
        }
        Ok(())
    }

    fn frame_room(&self) -> usize {
        self.umem.chunk_len() - RX_HEADROOM
    }

    fn tx_pending(&self) -> usize {
        usize_from(self.socket.tx.pending().into())
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        // Not for POLLOUT: the kernel reports it unless the ring is full, even if it makes no
        // progress, and the sleep would end at once. The driver's sleeps are short while frames are
        // pending.
        let events = libc::POLLIN;
        let mut entry = [libc::pollfd { fd: self.socket.as_fd().as_raw_fd(), events, revents: 0 }];
        let ready = poll(&mut entry, timeout)?;
        if ready == 0 || entry[0].revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0 {
            // A socket that lost its interface never becomes ready: check it.
            return self.kick();
        }
        Ok(())
    }

    fn check_attached(&mut self) -> io::Result<()> {
        // A socket that lost its interface reports it to a send only.
        self.kick()
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

impl Drop for XdpPort {
    fn drop(&mut self) {
        self.device.unregister(self.queue);
    }
}

/// Frames delivered between two side polls: one busy poll of the kernel. Without side polls a
/// sender's core runs this port's receive half (docs/decisions/0011), so a busy receiver polls
/// before each batch. A port that receives only acknowledgements polls only when it is idle,
/// because its core may be the sender's bottleneck.
const SIDE_POLL_BATCH: usize = 8;
/// `XDP_PACKET_HEADROOM`: headroom of the kernel before a received frame.
const RX_HEADROOM: usize = 256;
/// Kicks of one flush: after that many consecutive drops the rest waits for the next flush.
const KICKS_MAX: usize = 16;
/// One system call of about half a microsecond in this many idle steps of about one.
const PROBE_EVERY: u32 = 4096;
