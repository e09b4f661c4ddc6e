//! Which packets are lost: those that are overdue, or all of them.

use super::{Sent, State, Transmission};
use crate::stream::rtt::Rtt;
use spanwire_base::{Dur, Time};

impl<T: Copy> Sent<T> {
    /// Finds what is lost by `now`. Returns how many packets, and when to look again.
    pub(crate) fn detect(&mut self, now: Time, rtt: &Rtt) -> (u64, Option<Time>) {
        let (Some(delivered_at), Some(smoothed)) = (self.delivered_at, rtt.smoothed()) else {
            return (0, None);
        };
        let window = self.reorder.window(rtt.smallest(), smoothed);
        let overdue = rtt.latest().max(rtt.smallest()) + window;
        let mut found = 0;
        while let Some(first) = self.order.front().copied() {
            if self.current(first).is_none() {
                self.order.pop_front();
                continue;
            }
            if first.at >= delivered_at {
                return (found, None);
            }
            let due = first.at + overdue;
            if due > now {
                return (found, Some(due));
            }
            self.order.pop_front();
            self.lose(first.number);
            self.counters.lost += 1;
            found += 1;
        }
        (found, None)
    }

    /// Takes everything in flight for lost: nothing was heard for too long.
    pub(crate) fn lose_all(&mut self) {
        for transmission in std::mem::take(&mut self.order) {
            if self.current(transmission).is_some() {
                self.lose(transmission.number);
            }
        }
    }

    /// The loss of everything was a mistake: what was not sent again is in flight after all.
    pub(crate) fn find_all(&mut self) {
        for number in self.lost.take_queue() {
            let Some(entry) = self.entry_mut(number) else { continue };
            entry.is_queued = false;
            if entry.state == State::Lost {
                entry.state = State::InFlight;
                let (at, bytes) = (entry.sent_at, u64::from(entry.bytes));
                self.in_flight_pkts += 1;
                self.in_flight_bytes += bytes;
                self.order.push_back(Transmission { number, at });
            }
        }
        // By time again: they were sent before everything that was sent since.
        self.order.make_contiguous().sort_by_key(|t| (t.at, t.number));
    }

    /// A packet that others had overtaken came `by` later than the fastest.
    pub(crate) fn widen_to(&mut self, by: Dur) {
        self.reorder.saw(by);
    }

    /// A recovery is over: everything that was lost has arrived.
    pub(crate) fn recovered(&mut self) {
        self.reorder.recovered();
    }
}
