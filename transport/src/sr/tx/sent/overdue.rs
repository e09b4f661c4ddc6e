//! Which packets are lost: those that are overdue, or all of them.

use super::Sent;
use super::ack_info::{AckInfo, DetectedLoss, PacketOutcome, PathEvent};
use super::entry::{State, Transmission};
use crate::sr::number::unwrap;
use crate::sr::tx::place::BlockPosition;
use crate::sr::tx::rtt::Rtt;
use spanwire_base::{Dur, Time};

impl<T: Copy> Sent<T> {
    /// For how long a packet is not missed; none before a round trip is known.
    pub(crate) fn loss_delay(&self, rtt: &Rtt) -> Option<Dur> {
        let window = self.reorder.reo_wnd(rtt.min_rtt(), rtt.srtt()?);
        Some(rtt.latest_rtt().max(rtt.min_rtt()) + window)
    }

    /// When what is in flight longest was sent, or a little before.
    pub(crate) fn oldest_at(&self) -> Option<Time> {
        self.order.front().map(|transmission| transmission.at)
    }

    /// Finds what is lost by `now`, and when to look again.
    pub(crate) fn detect(&mut self, now: Time, rtt: &Rtt) -> DetectedLoss {
        let mut found = DetectedLoss::default();
        let (Some(delivered), Some(overdue)) = (self.delivered, self.loss_delay(rtt)) else {
            return found;
        };
        while let Some(first) = self.order.front().copied() {
            if self.current(first).is_none() {
                self.order.pop_front();
                continue;
            }
            if (first.at, first.number) >= delivered {
                return found;
            }
            let due = first.at + overdue;
            if due > now {
                return DetectedLoss { loss_timer: Some(due), ..found };
            }
            self.order.pop_front();
            let before = self.in_flight_bytes;
            let is_coded = self.position(first.number).is_coded();
            self.mark_lost(first.number);
            found.pkts += 1;
            let bytes = before - self.in_flight_bytes;
            if is_coded {
                found.coded_pkts += 1;
                found.coded_bytes += bytes;
            } else {
                found.bytes += bytes;
            }
        }
        found
    }

    /// Presumes everything in flight lost, after a retransmission timeout.
    pub(crate) fn mark_all_lost(&mut self) {
        while let Some(transmission) = self.order.pop_front() {
            if self.current(transmission).is_some() {
                self.mark_lost(transmission.number);
            }
        }
    }

    /// Takes everything out of flight without retransmitting it.
    pub(crate) fn abandon_all(&mut self) {
        // No loss, so no path is charged with one.
        let events = self.path_events.take();
        while let Some(transmission) = self.order.pop_front() {
            if self.current(transmission).is_some() {
                self.take_out_of_flight(transmission.number);
            }
        }
        self.path_events = events;
    }

    /// The loss of everything was a mistake: what was not sent again is in flight after all.
    pub(crate) fn undo_timeout(&mut self) {
        while let Some(number) = self.lost.pop_queue() {
            let Some(entry) = self.entry_mut(number) else { continue };
            entry.is_queued = false;
            if entry.state == State::Lost {
                entry.state = State::InFlight;
                let was_presumed_lost = std::mem::take(&mut entry.is_presumed_lost);
                let (at, bytes) = (entry.sent_at, u64::from(entry.bytes));
                self.counters.spurious_lost += u64::from(was_presumed_lost);
                self.in_flight_pkts += 1;
                self.in_flight_bytes += bytes;
                self.order.push_back(Transmission { number, at });
            }
        }
        // By time again: they were sent before everything that was sent since.
        self.order.make_contiguous().sort_unstable_by_key(|t| (t.at, t.number));
    }

    /// A packet that others had overtaken came `by` later than the fastest.
    pub(crate) fn on_reordering(&mut self, by: Dur) {
        self.reorder.on_reordering(by);
    }

    /// A recovery is over: everything that was lost has arrived.
    pub(crate) fn on_recovery_end(&mut self) {
        self.reorder.on_recovery_end();
    }

    /// The peer had the packet `psn` sent at `sent` in its hands and did not take it, nor any sent
    /// until then that `waits` names: they are not in flight any more. No loss: nothing but the
    /// peer is to blame. Of those sent until `since` it was asked before.
    pub(crate) fn on_no_receive(
        &mut self,
        psn: u32,
        sent: Time,
        since: Option<Time>,
        waits: impl Fn(&T) -> bool,
    ) {
        let itself = Transmission { number: unwrap(self.una, psn), at: sent };
        let from = since.map_or(0, |since| self.order.partition_point(|t| t.at <= since));
        let end = self.order.partition_point(|t| t.at <= sent);
        for i in from..end {
            let transmission = self.order[i];
            if self.current(transmission).is_some_and(|e| waits(&e.contents)) {
                self.requeue_rejected(transmission.number);
            }
        }
        if self.current(itself).is_some() {
            self.requeue_rejected(itself.number);
        }
    }

    /// Something in flight is lost: it is to be sent again, unless its block can do without.
    pub(super) fn mark_lost(&mut self, number: u64) {
        let Some(position) = self.take_out_of_flight(number) else { return };
        if let Some(entry) = self.entry_mut(number) {
            entry.lost_by_time = true;
        }
        self.presume_lost(number);
        if position.is_coded() { self.on_block_loss(number, position) } else { self.queue(number) }
    }

    /// Counts the last transmission of a packet as presumed lost.
    pub(super) fn presume_lost(&mut self, number: u64) {
        self.counters.presumed_lost += 1;
        if let Some(entry) = self.entry_mut(number) {
            entry.is_presumed_lost = true;
        }
    }

    /// A packet of which a transmission was presumed lost has arrived; it was in the state `was`.
    /// Counts the presumption as spurious if a later transmission cannot be what arrived: there is
    /// none, or the echo or the smallest round trip excludes it.
    #[inline(never)]
    pub(super) fn detect_spurious_loss(
        &mut self,
        number: u64,
        was: State,
        newest: u64,
        info: &AckInfo<'_>,
    ) {
        let Some(entry) = self.entry_mut(number) else { return };
        entry.is_presumed_lost = false;
        let is_first = match was {
            State::Lost => true,
            _ if number == newest => info.echo < entry.sent_at,
            _ => info.latest_ackable < entry.sent_at,
        };
        self.counters.spurious_lost += u64::from(is_first);
        self.counters.spurious += u64::from(is_first && was == State::InFlight);
    }

    /// Something in flight was turned away: it is to be sent again, whatever its block can do
    /// without, and no path is to blame.
    fn requeue_rejected(&mut self, number: u64) {
        let events = self.path_events.take();
        self.take_out_of_flight(number);
        self.path_events = events;
        if let Some(entry) = self.entry_mut(number) {
            entry.is_presumed_lost = false;
        }
        self.queue(number);
    }

    /// Something in flight is lost. Returns its place in its block.
    pub(super) fn take_out_of_flight(&mut self, number: u64) -> Option<BlockPosition> {
        let entry = self.entry_mut(number)?;
        entry.state = State::Lost;
        let (bytes, path, position) = (u64::from(entry.bytes), entry.path, entry.position);
        let sent_at = entry.sent_at;
        self.in_flight_pkts -= 1;
        self.in_flight_bytes -= bytes;
        if self.path_events.is_some() {
            self.push_path_event(PathEvent {
                path,
                pkts: 1,
                bytes,
                marked: 0,
                sent_at,
                outcome: PacketOutcome::Lost,
            });
        }
        Some(position)
    }

    /// Queues a lost packet for retransmission, and all lost data of its block.
    pub(super) fn queue(&mut self, number: u64) {
        let Some(entry) = self.entry_mut(number) else { return };
        let position = entry.position;
        if !std::mem::replace(&mut entry.is_queued, true) {
            self.lost.push(number);
        }
        if position.is_coded() && !position.retransmits {
            self.retransmit_block(number, position);
        }
    }
}
