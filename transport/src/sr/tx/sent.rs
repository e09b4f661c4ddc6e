//! What was sent and not acknowledged, and which of it is lost. By time, as RACK has it: a packet
//! is lost when one that was sent after it has arrived and it is overdue by more than packets
//! overtake each other here.

pub(super) mod ack_info;
mod acked;
mod coded;
mod entry;
mod invariants;
mod overdue;
mod paths;

use super::bits::Bits;
use super::lost::Lost;
use super::place::BlockPosition;
use super::reorder::ReorderWindow;
use crate::qp::flow::AtSend;
use crate::sr::number::{unwrap, wrap};
use ack_info::PathEvent;
use entry::{Entry, Recovered, State, Transmission};
use spanwire_base::{Time, u64_from, usize_from};
use std::collections::VecDeque;

/// The packets of our stream from the oldest that is not acknowledged on. `T` is what one carries,
/// enough to write it again.
#[derive(Debug)]
pub(crate) struct Sent<T> {
    /// The number of the first in `ring`.
    una: u64,
    /// The lowest number of data that has not arrived, as far as it is known.
    data_una: u64,
    ring: VecDeque<Entry<T>>,
    /// Which of `ring` have arrived, once more: acknowledgements repeat themselves.
    arrived: Bits,
    /// Transmissions in the order of time; those that something newer made obsolete among them.
    /// Everything in flight has its own.
    order: VecDeque<Transmission>,
    /// Packets to send again, each once.
    lost: Lost,
    in_flight_pkts: u64,
    in_flight_bytes: u64,
    /// Packets of the block that was begun last that have not left yet.
    unsent_of_block: u64,
    /// Lost data of that block are retransmitted ([`BlockPosition::retransmits`]).
    open_block_retransmits: bool,
    reorder: ReorderWindow,
    /// The latest of all transmissions that have arrived: when it was sent, and its number.
    /// Transmissions of one time are ordered by number (RFC 8985 6.1), since a burst that
    /// leaves in one step of the driver has one time.
    delivered: Option<(Time, u64)>,
    /// Packets that the peer has rebuilt, and that may still arrive there.
    peer_recovered: VecDeque<Recovered>,
    /// What has happened to packets on their ways, if anybody wants to know.
    path_events: Option<Vec<PathEvent>>,
    counters: SentCounters,
}

/// What a stream has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SentCounters {
    /// Packets sent again.
    pub(crate) retransmitted: u64,
    /// Packets presumed lost: overdue, outstanding at a timeout, or missing from their block.
    pub(crate) presumed_lost: u64,
    /// Of these, packets that arrived after all, as far as acknowledgements prove it.
    pub(crate) spurious_lost: u64,
    /// Of these, packets that had been retransmitted by then.
    pub(crate) spurious: u64,
}

impl<T: Copy> Sent<T> {
    /// Nothing was sent, and the first packet will be `first`.
    pub(crate) fn new(first: u32) -> Self {
        let una = u64::from(first) + (1 << 32);
        Self {
            una,
            data_una: una,
            ring: VecDeque::new(),
            arrived: Bits::new(una),
            order: VecDeque::new(),
            lost: Lost::default(),
            in_flight_pkts: 0,
            in_flight_bytes: 0,
            unsent_of_block: 0,
            open_block_retransmits: false,
            reorder: ReorderWindow::default(),
            delivered: None,
            peer_recovered: VecDeque::new(),
            path_events: None,
            counters: SentCounters::default(),
        }
    }

    /// Nothing that was sent matters any more.
    pub(crate) fn forget(&mut self) {
        let (una, counters) = (self.next(), self.counters);
        *self = Self { una, data_una: una, arrived: Bits::new(una), counters, ..Self::new(0) };
    }

    /// The oldest number that is not acknowledged.
    pub(crate) fn una(&self) -> u64 {
        self.una
    }

    /// The oldest number that a request waits for: parity that has not arrived is none.
    #[inline]
    pub(crate) fn data_una(&self) -> u64 {
        self.data_una
    }

    /// The number of the next new packet.
    pub(crate) fn next(&self) -> u64 {
        self.una + u64_from(self.ring.len())
    }

    pub(crate) fn in_flight_pkts(&self) -> u64 {
        self.in_flight_pkts
    }

    pub(crate) fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// Transmissions so far, but for a constant, modulo 2^32: first ones are numbered.
    pub(crate) fn transmissions(&self) -> u32 {
        wrap(self.next().wrapping_add(self.counters.retransmitted))
    }

    pub(crate) fn counters(&self) -> &SentCounters {
        &self.counters
    }

    /// Everything sent has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// A new packet was sent; its number was [`Sent::next`].
    #[inline]
    pub(crate) fn push(
        &mut self,
        now: Time,
        contents: T,
        bytes: u32,
        mut position: BlockPosition,
        path: u16,
    ) {
        let number = self.next();
        self.open_block_retransmits &= position.is_coded() && !position.begins_block();
        position.retransmits = self.open_block_retransmits;
        self.ring.push_back(Entry {
            contents,
            bytes,
            sent_at: now,
            was_lost: false,
            is_retransmitted: false,
            lost_by_time: false,
            is_presumed_lost: false,
            at_send: AtSend::default(),
            path,
            position,
            is_queued: false,
            state: State::InFlight,
        });
        self.arrived.extend_to(number);
        self.order.push_back(Transmission { number, at: now });
        self.in_flight_pkts += 1;
        self.in_flight_bytes += u64::from(bytes);
        self.unsent_of_block = position.pkts_after();
    }

    /// The lost packet that is next to be sent again, of those that `may` leave: its number and
    /// what it carries. Of packets that may ever have to wait, none may leave before an older one
    /// may.
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

    /// Lost packets wait to be sent again; exact after [`Sent::next_lost`] found none.
    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// What the packet with this number on the wire carries, while it is not acknowledged.
    pub(crate) fn contents(&self, psn: u32) -> Option<T> {
        self.entry(unwrap(self.una, psn)).map(|e| e.contents)
    }

    /// What the packet `psn` carries, if it has not arrived, as far as we were told.
    pub(crate) fn unacked_contents(&self, psn: u32) -> Option<T> {
        let entry = self.entry(unwrap(self.una, psn)).filter(|e| e.state != State::Arrived)?;
        Some(entry.contents)
    }

    /// The newest packet that has not arrived: what a probe sends again. Of a block it is data, if
    /// some are missing: parity could be sent again without its bytes only.
    pub(crate) fn newest(&self) -> Option<(u64, T)> {
        let number = self.arrived.highest_clear(self.next())?;
        let number = self.missing_data(number).unwrap_or(number);
        self.entry(number).map(|e| (number, e.contents))
    }

    /// A packet was sent again, by this path.
    pub(crate) fn on_retransmitted(&mut self, now: Time, number: u64, path: u16) {
        let Some(entry) = self.entry_mut(number) else { return };
        debug_assert!(entry.state != State::Arrived, "it is missing");
        let was = std::mem::replace(&mut entry.state, State::InFlight);
        (entry.sent_at, entry.was_lost, entry.path) = (now, was == State::Lost, path);
        entry.is_retransmitted = true;
        // After a probe the arrival may be of the transmission before it.
        entry.is_presumed_lost &= was == State::Lost;
        let (bytes, position) = (u64::from(entry.bytes), entry.position);
        if was == State::Lost {
            self.in_flight_pkts += 1;
            self.in_flight_bytes += bytes;
        }
        self.order.push_back(Transmission { number, at: now });
        self.counters.retransmitted += 1;
        if position.is_coded() && !position.is_parity() && !position.retransmits {
            self.retransmit_block(number, position);
        }
    }

    /// What the flow had delivered when the packet `number` was sent, which was just now.
    pub(crate) fn set_at_send(&mut self, number: u64, at_send: AtSend) {
        if let Some(entry) = self.entry_mut(number) {
            entry.at_send = at_send;
        }
    }

    fn entry(&self, number: u64) -> Option<&Entry<T>> {
        self.ring.get(usize_from(number.checked_sub(self.una)?))
    }

    fn entry_mut(&mut self, number: u64) -> Option<&mut Entry<T>> {
        self.ring.get_mut(usize_from(number.checked_sub(self.una)?))
    }

    /// The packet of a transmission, while that is the one in flight.
    fn current(&self, t: Transmission) -> Option<&Entry<T>> {
        self.entry(t.number).filter(|e| e.state == State::InFlight && e.sent_at == t.at)
    }
}

#[cfg(test)]
mod tests;
