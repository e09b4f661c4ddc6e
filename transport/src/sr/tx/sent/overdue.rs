//! Which packets are lost: those that are overdue, or all of them.

use super::Sent;
use super::ack_info::{AckInfo, Fate, Found, OnPath};
use super::entry::{State, Transmission};
use crate::sr::number::unwrap;
use crate::sr::tx::place::Place;
use crate::sr::tx::rtt::Rtt;
use spanwire_base::{Dur, Time};

impl<T: Copy> Sent<T> {
    /// For how long a packet is not missed; none before a round trip is known.
    pub(crate) fn patience(&self, rtt: &Rtt) -> Option<Dur> {
        let window = self.reorder.window(rtt.smallest(), rtt.smoothed()?);
        Some(rtt.latest().max(rtt.smallest()) + window)
    }

    /// When what is in flight longest was sent, or a little before.
    pub(crate) fn oldest_at(&self) -> Option<Time> {
        self.order.front().map(|transmission| transmission.at)
    }

    /// Finds what is lost by `now`, and when to look again.
    pub(crate) fn detect(&mut self, now: Time, rtt: &Rtt) -> Found {
        let mut found = Found::default();
        let (Some(delivered), Some(overdue)) = (self.delivered, self.patience(rtt)) else {
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
                return Found { look_at: Some(due), ..found };
            }
            self.order.pop_front();
            let before = self.in_flight_bytes;
            let is_coded = self.place(first.number).is_coded();
            self.lose(first.number);
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
    pub(crate) fn lose_all(&mut self) {
        while let Some(transmission) = self.order.pop_front() {
            if self.current(transmission).is_some() {
                self.lose(transmission.number);
            }
        }
    }

    /// Takes everything out of flight without retransmitting it.
    pub(crate) fn abandon_all(&mut self) {
        // No loss, so no path is charged with one.
        let told = self.on_paths.take();
        while let Some(transmission) = self.order.pop_front() {
            if self.current(transmission).is_some() {
                self.lose_only(transmission.number);
            }
        }
        self.on_paths = told;
    }

    /// The loss of everything was a mistake: what was not sent again is in flight after all.
    pub(crate) fn find_all(&mut self) {
        while let Some(number) = self.lost.pop_queue() {
            let Some(entry) = self.entry_mut(number) else { continue };
            entry.is_queued = false;
            if entry.state == State::Lost {
                entry.state = State::InFlight;
                let was_presumed = std::mem::take(&mut entry.is_presumed);
                let (at, bytes) = (entry.sent_at, u64::from(entry.bytes));
                self.counters.spurious_lost += u64::from(was_presumed);
                self.in_flight_pkts += 1;
                self.in_flight_bytes += bytes;
                self.order.push_back(Transmission { number, at });
            }
        }
        // By time again: they were sent before everything that was sent since.
        self.order.make_contiguous().sort_unstable_by_key(|t| (t.at, t.number));
    }

    /// A packet that others had overtaken came `by` later than the fastest.
    pub(crate) fn widen_to(&mut self, by: Dur) {
        self.reorder.saw(by);
    }

    /// A recovery is over: everything that was lost has arrived.
    pub(crate) fn recovered(&mut self) {
        self.reorder.recovered();
    }

    /// The peer had the packet `psn` sent at `sent` in its hands and did not take it, nor any sent
    /// until then that `waits` names: they are not in flight any more. No loss: nothing but the
    /// peer is to blame. Of those sent until `since` it was asked before.
    pub(crate) fn turned_away(
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
            if self.current(transmission).is_some_and(|e| waits(&e.what)) {
                self.take_back(transmission.number);
            }
        }
        if self.current(itself).is_some() {
            self.take_back(itself.number);
        }
    }

    /// Something in flight is lost: it is to be sent again, unless its block can do without.
    pub(super) fn lose(&mut self, number: u64) {
        let Some(place) = self.lose_only(number) else { return };
        if let Some(entry) = self.entry_mut(number) {
            entry.was_overdue = true;
        }
        self.presume_lost(number);
        if place.is_coded() { self.review(number, place) } else { self.queue(number) }
    }

    /// Counts the last transmission of a packet as presumed lost.
    pub(super) fn presume_lost(&mut self, number: u64) {
        self.counters.presumed_lost += 1;
        if let Some(entry) = self.entry_mut(number) {
            entry.is_presumed = true;
        }
    }

    /// A packet of which a transmission was presumed lost has arrived; it was in the state `was`.
    /// Counts the presumption as spurious if a later transmission cannot be what arrived: there is
    /// none, or the echo or the smallest round trip excludes it.
    #[inline(never)]
    pub(super) fn judge_presumed(
        &mut self,
        number: u64,
        was: State,
        newest: u64,
        told: &AckInfo<'_>,
    ) {
        let Some(entry) = self.entry_mut(number) else { return };
        entry.is_presumed = false;
        let is_first = match was {
            State::Lost => true,
            _ if number == newest => told.echo < entry.sent_at,
            _ => told.audible < entry.sent_at,
        };
        self.counters.spurious_lost += u64::from(is_first);
        self.counters.spurious += u64::from(is_first && was == State::InFlight);
    }

    /// Something in flight was turned away: it is to be sent again, whatever its block can do
    /// without, and no path is to blame.
    fn take_back(&mut self, number: u64) {
        let told = self.on_paths.take();
        self.lose_only(number);
        self.on_paths = told;
        if let Some(entry) = self.entry_mut(number) {
            entry.is_presumed = false;
        }
        self.queue(number);
    }

    /// Something in flight is lost. Returns its place in its block.
    pub(super) fn lose_only(&mut self, number: u64) -> Option<Place> {
        let entry = self.entry_mut(number)?;
        entry.state = State::Lost;
        let (bytes, path, place) = (u64::from(entry.bytes), entry.path, entry.place);
        let sent_at = entry.sent_at;
        self.in_flight_pkts -= 1;
        self.in_flight_bytes -= bytes;
        if self.on_paths.is_some() {
            self.tell_path(OnPath { path, pkts: 1, bytes, marked: 0, sent_at, fate: Fate::Lost });
        }
        Some(place)
    }

    /// Queues a lost packet for retransmission, and all lost data of its block.
    pub(super) fn queue(&mut self, number: u64) {
        let Some(entry) = self.entry_mut(number) else { return };
        let place = entry.place;
        if !std::mem::replace(&mut entry.is_queued, true) {
            self.lost.push(number);
        }
        if place.is_coded() && !place.retransmits {
            self.retransmit_block(number, place);
        }
    }
}
