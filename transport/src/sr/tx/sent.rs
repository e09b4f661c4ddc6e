//! Sent packets that are not acknowledged, and loss detection by RACK (RFC 8985): a packet is lost
//! if a later-sent one has arrived and it is overdue by more than the reordering window
//! (`reo_wnd`).

pub(super) mod ack_info;
mod acked;
pub(super) mod entry;
mod invariants;
mod loss_detection;
mod paths;
pub(super) mod run;
mod runs;

use super::bits::Bits;
use super::coding::position::SentCoding;
use super::lost::Lost;
use super::reorder::ReorderWindow;
use crate::counters::Counters;
use crate::qp::flow::SendTimeState;
use crate::sr::number::{unwrap, wrap};
use ack_info::PathEvent;
use entry::{Entry, State, Transmission};
use run::{Run, Strided};
use spanwire_base::{Time, usize_from};
use std::collections::VecDeque;

/// The packets of a stream from the oldest unacknowledged on. `T` is the contents of a packet,
/// enough to write it again.
#[derive(Debug)]
pub(crate) struct Sent<T> {
    /// The oldest unacknowledged number: that of the first in `ring`.
    una: u64,
    /// The lowest source packet not known to have arrived; see [`Sent::data_una`].
    pub(super) data_una: u64,
    /// The number of the next new packet.
    next: u64,
    /// The packets from `una` on, until those in `runs`.
    pub(super) ring: VecDeque<Entry<T>>,
    /// The newest packets, all in flight, until something concerns a single one.
    runs: VecDeque<Run<T>>,
    /// Until all packets below it have arrived, new ones are not kept as runs: the packets that
    /// were in flight when runs were last expanded, and as many after them. Losses come in rows.
    single_until: u64,
    /// The arrived packets of `ring` as a bitmap: ACKs repeat SACK words, and new bits are found at
    /// once.
    pub(super) arrived: Bits,
    /// Transmissions in the order of time, obsolete ones included. Every packet of `ring` that is
    /// in flight has one. Runs were sent later.
    order: VecDeque<Transmission>,
    /// Packets to retransmit, each once.
    lost: Lost,
    pub(super) in_flight_pkts: u64,
    pub(super) in_flight_bytes: u64,
    /// State of erasure coding.
    pub(super) coding: SentCoding,
    pub(super) reorder: ReorderWindow,
    /// The latest of all transmissions that have arrived: its send time and number. Transmissions
    /// of one time are ordered by number (RFC 8985 6.1), since a burst in one step of the driver
    /// has one time.
    pub(super) delivered: Option<(Time, u64)>,
    /// Events of packets by path, if a load balancer uses them.
    path_events: Option<Vec<PathEvent>>,
    pub(super) counters: SentCounters,
}

/// Counters of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SentCounters {
    /// Retransmissions.
    pub(crate) retransmitted: u64,
    /// Packets presumed lost: overdue, outstanding at a timeout, or missing at the peer.
    pub(crate) presumed_lost: u64,
    /// Packets presumed lost that arrived, as far as ACKs prove it.
    pub(crate) spurious_lost: u64,
    /// Of `spurious_lost`, packets that had been retransmitted: spurious retransmissions.
    pub(crate) spurious_retransmits: u64,
}

impl SentCounters {
    /// Adds those of an endpoint that have grown since `before`.
    pub(crate) fn add_since(&self, before: &Self, to: &mut Counters) {
        to.presumed_lost_packets += self.presumed_lost - before.presumed_lost;
        to.spurious_lost_packets += self.spurious_lost - before.spurious_lost;
        to.spurious_retransmits += self.spurious_retransmits - before.spurious_retransmits;
    }
}

impl<T: Strided> Sent<T> {
    /// A stream of which nothing was sent, and whose first packet will be `first`.
    pub(crate) fn new(first: u32) -> Self {
        let una = u64::from(first) + (1 << 32);
        Self {
            una,
            data_una: una,
            next: una,
            ring: VecDeque::new(),
            runs: VecDeque::new(),
            single_until: una,
            arrived: Bits::new(una),
            order: VecDeque::new(),
            lost: Lost::default(),
            in_flight_pkts: 0,
            in_flight_bytes: 0,
            coding: SentCoding::default(),
            reorder: ReorderWindow::default(),
            delivered: None,
            path_events: None,
            counters: SentCounters::default(),
        }
    }

    /// Discards all sent packets.
    pub(crate) fn clear(&mut self) {
        let (una, arrived) = (self.next, Bits::new(self.next));
        let counters = self.counters;
        *self = Self {
            una,
            data_una: una,
            next: una,
            single_until: una,
            arrived,
            counters,
            ..Self::new(0)
        };
    }

    /// The oldest unacknowledged number.
    pub(crate) fn una(&self) -> u64 {
        self.una
    }

    /// The oldest unacknowledged number of a source packet: requests before it are complete.
    #[inline]
    pub(crate) fn data_una(&self) -> u64 {
        self.data_una
    }

    /// The number of the next new packet.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn in_flight_pkts(&self) -> u64 {
        self.in_flight_pkts
    }

    pub(crate) fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// Transmissions so far plus a constant, modulo 2^32.
    pub(crate) fn transmissions(&self) -> u32 {
        wrap(self.next().wrapping_add(self.counters.retransmitted))
    }

    pub(crate) fn counters(&self) -> &SentCounters {
        &self.counters
    }

    /// Every packet sent has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.una == self.next
    }

    /// Adds a packet that was just sent. Its number was [`Sent::next`].
    // Inlined in both callers: it is a few comparisons for nearly all packets.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        now: Time,
        contents: T,
        bytes: u32,
        path: u16,
        send_state: SendTimeState,
    ) {
        let (sent, last) = ((now, bytes, path), self.runs.back_mut());
        if !last.is_some_and(|run| run.extend(&contents, sent, &send_state)) {
            self.coding.end();
            if self.path_events.is_some() || self.una < self.single_until {
                self.push_single(Entry::new(contents, bytes, now, path, send_state));
            } else {
                self.begin_run(&contents, sent, &send_state);
            }
        }
        self.count_sent(bytes);
    }

    /// The next packet was added, with `bytes` of payload.
    #[inline(always)]
    pub(super) fn count_sent(&mut self, bytes: u32) {
        self.next += 1;
        self.in_flight_pkts += 1;
        self.in_flight_bytes += u64::from(bytes);
    }

    /// The next lost packet to retransmit that `may` allows: its number and contents. Among packets
    /// that `may` ever forbids, if one is forbidden, all higher ones must be.
    #[inline]
    pub(crate) fn next_lost(&mut self, may: impl Fn(&T) -> bool) -> Option<(u64, T)> {
        let (ring, una) = (&mut self.ring, self.una);
        let look = |number: u64| {
            let entry = ring.get_mut(usize_from(number.checked_sub(una)?))?;
            entry.is_queued = entry.state == State::Lost;
            entry.is_queued.then_some(entry.contents)
        };
        self.lost.next(look, may)
    }

    /// Lost packets wait for retransmission; exact after [`Sent::next_lost`] returned none.
    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// The contents of the packet with this wire number, while it is unacknowledged.
    pub(crate) fn contents(&self, psn: u32) -> Option<T> {
        self.packet(unwrap(self.una, psn)).map(|e| e.contents)
    }

    /// The contents of the packet `psn`, if it is not known to have arrived.
    pub(crate) fn unacked_contents(&self, psn: u32) -> Option<T> {
        let entry = self.packet(unwrap(self.una, psn)).filter(|e| e.state != State::Arrived)?;
        Some(entry.contents)
    }

    /// The packet with this wire number is in flight, and its latest transmission was at `at`.
    pub(crate) fn is_in_flight_since(&self, psn: u32, at: Time) -> bool {
        let entry = self.packet(unwrap(self.una, psn));
        entry.is_some_and(|e| e.state == State::InFlight && e.sent_at == at)
    }

    /// The packet that a TLP retransmits: the newest one that is not known to have arrived, or the
    /// one before it that recovers more ([`Sent::to_probe`]).
    pub(crate) fn newest(&self) -> Option<(u64, T)> {
        let number = match self.runs.back() {
            Some(run) => run.end() - 1,
            None => self.arrived.highest_clear(self.next)?,
        };
        let number = self.to_probe(number);
        self.packet(number).map(|e| (number, e.contents))
    }

    /// A packet was retransmitted by this path.
    pub(crate) fn on_retransmitted(&mut self, now: Time, number: u64, path: u16) {
        self.expand();
        let Some(entry) = self.entry_mut(number) else { return };
        debug_assert!(entry.state != State::Arrived, "it is missing");
        let was = std::mem::replace(&mut entry.state, State::InFlight);
        (entry.sent_at, entry.was_lost, entry.path) = (now, was == State::Lost, path);
        entry.is_retransmitted = true;
        // After a TLP, the arrival may be of the transmission before it.
        entry.is_presumed_lost &= was == State::Lost;
        let (bytes, position) = (u64::from(entry.bytes), entry.position);
        if was == State::Lost {
            self.in_flight_pkts += 1;
            self.in_flight_bytes += bytes;
        }
        self.order.push_back(Transmission { number, at: now });
        self.counters.retransmitted += 1;
        if let Some(position) = position {
            self.on_repeated(position);
        }
    }

    /// Sets the flow's delivery state, if there is one, at the send time of packet `number`, which
    /// was just retransmitted.
    pub(crate) fn set_send_state(&mut self, number: u64, send_state: Option<SendTimeState>) {
        if let Some(entry) = self.entry_mut(number) {
            entry.send_state = send_state.unwrap_or(entry.send_state);
        }
    }

    pub(super) fn entry(&self, number: u64) -> Option<&Entry<T>> {
        self.ring.get(usize_from(number.checked_sub(self.una)?))
    }

    pub(super) fn entry_mut(&mut self, number: u64) -> Option<&mut Entry<T>> {
        self.ring.get_mut(usize_from(number.checked_sub(self.una)?))
    }

    /// The packet of a transmission, if that is the one in flight.
    fn current(&self, t: Transmission) -> Option<&Entry<T>> {
        self.entry(t.number).filter(|e| e.state == State::InFlight && e.sent_at == t.at)
    }
}

#[cfg(test)]
mod tests;
