//! Loss detection by time (RACK), and after an RTO.

use super::Sent;
use super::ack_info::{AckInfo, DetectedLoss, NewlyLost, PacketOutcome, PathEvent};
use super::entry::{State, Transmission};
use super::run::Strided;
use crate::sr::number::unwrap;
use crate::sr::tx::coding::position::Position;
use crate::sr::tx::rtt::Rtt;
use spanwire_base::{Dur, Time};

impl<T: Strided> Sent<T> {
    /// The time after which a packet is overdue: the RTT and the reordering window. None before the
    /// first RTT sample.
    pub(crate) fn loss_delay(&self, rtt: &Rtt) -> Option<Dur> {
        let window = self.reorder.reo_wnd(rtt.min_rtt(), rtt.srtt()?);
        Some(rtt.latest_rtt().max(rtt.min_rtt()) + window)
    }

    /// The send time of the oldest packet in flight, or a little earlier; none if only responses
    /// are outstanding.
    pub(crate) fn oldest_at(&self) -> Option<Time> {
        let of_run = || self.runs.front().map(|run| run.sent_at);
        let oldest = self.order.front().map(|transmission| transmission.at).or_else(of_run);
        oldest.filter(|_| !self.is_empty())
    }

    /// Finds the packets that are lost by `now`, and when the next one may be.
    pub(crate) fn detect(&mut self, now: Time, rtt: &Rtt) -> DetectedLoss {
        self.coding.queued_pkts = 0;
        let mut found = DetectedLoss::default();
        let (Some(delivered), Some(loss_delay)) = (self.delivered, self.loss_delay(rtt)) else {
            return found;
        };
        while let Some(first) = self.oldest() {
            if (first.at, first.number) >= delivered {
                return found;
            }
            let due = first.at + loss_delay;
            if due > now {
                return DetectedLoss { loss_timer: Some(due), ..found };
            }
            if self.order.is_empty() {
                self.expand_below(first.number + 1);
            }
            self.order.pop_front();
            let before = self.in_flight_bytes;
            let lost = match self.mark_lost(first.number) {
                Some(_) => &mut found.recoverable,
                None => &mut found.plain,
            };
            lost.add(NewlyLost { pkts: 1, bytes: before - self.in_flight_bytes });
        }
        found
    }

    /// The oldest transmission in flight; obsolete ones before it are dropped.
    fn oldest(&mut self) -> Option<Transmission> {
        while let Some(first) = self.order.front().copied() {
            if self.current(first).is_some() {
                return Some(first);
            }
            self.order.pop_front();
        }
        self.runs.front().map(|run| Transmission { number: run.first, at: run.sent_at })
    }

    /// Presumes everything in flight lost, after an RTO.
    pub(crate) fn mark_all_lost(&mut self) {
        self.expand();
        while let Some(transmission) = self.order.pop_front() {
            if self.current(transmission).is_some() {
                self.mark_lost(transmission.number);
            }
        }
    }

    /// Takes everything out of flight without retransmitting it.
    pub(crate) fn abandon_all(&mut self) {
        // This is no loss, so no path event is recorded.
        let events = self.path_events.take();
        self.expand();
        while let Some(transmission) = self.order.pop_front() {
            if self.current(transmission).is_some() {
                self.take_out_of_flight(transmission.number);
            }
        }
        self.path_events = events;
    }

    /// Undoes a spurious timeout: packets that were not retransmitted are in flight again.
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
        // Sorted by time again, since these were sent before all packets sent since the timeout.
        self.order.make_contiguous().sort_unstable_by_key(|t| (t.at, t.number));
    }

    /// An overtaken packet arrived `by` later than the minimum RTT.
    pub(crate) fn on_reordering(&mut self, by: Dur) {
        self.reorder.on_reordering(by);
    }

    /// A recovery ended: every packet lost in it has arrived.
    pub(crate) fn on_recovery_end(&mut self) {
        self.reorder.on_recovery_end();
    }

    /// The peer rejected the packet `psn`, sent at `sent`, for lack of a receive request, and all
    /// packets sent until then that `waits` selects. They leave flight and are retransmitted later.
    /// This is no loss, since only the peer's receive queue caused it. Packets sent until `since`
    /// were handled before.
    pub(crate) fn on_no_receive(
        &mut self,
        psn: u32,
        sent: Time,
        since: Option<Time>,
        waits: impl Fn(&T) -> bool,
    ) {
        self.expand();
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

    /// Marks a packet in flight as lost. It is retransmitted unless coding can recover it. Returns
    /// its position.
    fn mark_lost(&mut self, number: u64) -> Option<Position> {
        let position = self.take_out_of_flight(number);
        self.presume_lost(number, true);
        match position {
            Some(position) => self.recover_or_queue(position),
            None => self.queue(number),
        }
        position
    }

    /// Counts the last transmission of a packet as presumed lost, by time or because of a report.
    pub(in crate::sr::tx) fn presume_lost(&mut self, number: u64, by_time: bool) {
        self.counters.presumed_lost += 1;
        if let Some(entry) = self.entry_mut(number) {
            (entry.is_presumed_lost, entry.lost_by_time) = (true, by_time);
        }
    }

    /// Handles the arrival of a packet that was presumed lost and in the state `was`. The
    /// presumption was spurious if a later transmission cannot be the one that arrived: there is
    /// none, or the echo or the minimum RTT excludes it.
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
        self.counters.spurious_retransmits += u64::from(is_first && was == State::InFlight);
    }

    /// Queues a rejected packet for retransmission, whatever could be recovered, and without a
    /// path event.
    fn requeue_rejected(&mut self, number: u64) {
        let events = self.path_events.take();
        self.take_out_of_flight(number);
        self.path_events = events;
        if let Some(entry) = self.entry_mut(number) {
            entry.is_presumed_lost = false;
        }
        self.queue(number);
    }

    /// Takes a lost packet out of flight. Returns its position.
    pub(in crate::sr::tx) fn take_out_of_flight(&mut self, number: u64) -> Option<Position> {
        let entry = self.entry_mut(number)?;
        entry.state = State::Lost;
        let (bytes, path, position) = (u64::from(entry.bytes), entry.path, entry.position);
        let sent_at = entry.sent_at;
        self.in_flight_pkts -= 1;
        self.in_flight_bytes -= bytes;
        if self.path_events.is_some() {
            let outcome = PacketOutcome::Lost;
            self.push_path_event(PathEvent { path, pkts: 1, bytes, marked: 0, sent_at, outcome });
        }
        position
    }

    /// Queues a lost packet for retransmission.
    pub(in crate::sr::tx) fn queue(&mut self, number: u64) {
        let Some(entry) = self.entry_mut(number) else { return };
        let (position, is_new) = (entry.position, !std::mem::replace(&mut entry.is_queued, true));
        if is_new {
            self.lost.push(number);
        }
        if let Some(position) = position {
            self.on_queued(position, is_new);
        }
    }
}
