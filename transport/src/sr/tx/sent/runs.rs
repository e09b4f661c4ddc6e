//! Packets that are kept as runs: acknowledged in order by arithmetic, and expanded to the entries
//! of [`Sent`] at the first event that concerns a single packet. All that follows is packet by
//! packet.

use super::Sent;
use super::ack_info::Acked;
use super::entry::{Entry, Transmission};
use super::run::{Run, Stride, Strided};
use crate::qp::flow::SendTimeState;
use spanwire_base::Time;

impl<T: Strided> Sent<T> {
    /// Adds a packet that does not continue the last run: as the second one of it, or as the first
    /// one of another.
    #[inline(never)]
    pub(super) fn begin_run(
        &mut self,
        contents: &T,
        sent: (Time, u32, u16),
        send_state: &SendTimeState,
    ) {
        let (sent_at, bytes, path) = sent;
        if let Some(run) = self.runs.back_mut().filter(|run| run.pkts == 1)
            && let Some(stride) = run.contents.stride_to(contents)
        {
            run.stride = stride;
            if run.extend(contents, sent, send_state) {
                return;
            }
        }
        let (first, stride, send_state) = (self.next, Stride::default(), *send_state);
        let contents = *contents;
        let run = Run { first, pkts: 1, bytes, contents, stride, sent_at, send_state, path };
        self.runs.push_back(run);
    }

    /// Adds a packet as an entry.
    #[inline(always)]
    pub(in crate::sr::tx) fn push_single(&mut self, entry: Entry<T>) {
        self.expand();
        self.order.push_back(Transmission { number: self.next, at: entry.sent_at });
        self.ring.push_back(entry);
        self.arrived.extend_to(self.next);
    }

    /// The number after the last entry, where the runs begin.
    pub(super) fn runs_begin(&self) -> u64 {
        self.runs.front().map_or(self.next, |run| run.first)
    }

    /// The run of the packet `number`, if it is in one.
    #[inline]
    pub(super) fn run_of(&self, number: u64) -> Option<&Run<T>> {
        let oldest = self.runs.front().filter(|run| run.first <= number)?;
        if number < oldest.end() {
            return Some(oldest);
        }
        self.runs.get(self.runs.partition_point(|run| run.end() <= number))
    }

    /// All packets below `end`, which is in the runs, have arrived.
    #[inline(never)]
    pub(super) fn acknowledge_runs(&mut self, end: u64, acked: &mut Acked) {
        self.ring.clear();
        self.una = end;
        while let Some(run) = self.runs.front_mut().filter(|run| run.first < end) {
            if self.order.is_empty() {
                // Obsolete, as those of acknowledged entries are until `detect`.
                self.order.push_back(Transmission { number: run.first, at: run.sent_at });
            }
            let pkts = u32::try_from(end - run.first).map_or(run.pkts, |left| left.min(run.pkts));
            let bytes = u64::from(pkts) * u64::from(run.bytes);
            acked.pkts += u64::from(pkts);
            acked.bytes += bytes;
            self.in_flight_pkts -= u64::from(pkts);
            self.in_flight_bytes -= bytes;
            if pkts == run.pkts {
                self.runs.pop_front();
                continue;
            }
            run.contents = run.contents.after(run.stride, pkts);
            run.first += u64::from(pkts);
            run.pkts -= pkts;
        }
    }

    /// Expands the runs that begin below `end`.
    #[inline(never)]
    pub(super) fn expand_below(&mut self, end: u64) {
        self.single_until = self.next + (self.next - self.una);
        while let Some(run) = self.runs.front().copied().filter(|run| run.first < end) {
            self.runs.pop_front();
            if self.ring.is_empty() {
                self.arrived.restart(run.first);
            }
            let (first, at, entry) = (run.first, run.sent_at, run.packet(0));
            let contents = (0..run.pkts).map(|n| run.contents.after(run.stride, n));
            self.ring.extend(contents.map(|contents| Entry { contents, ..entry }));
            self.order.extend((first..run.end()).map(|number| Transmission { number, at }));
            self.arrived.extend_to(run.end() - 1);
        }
    }

    /// Expands all runs.
    #[inline]
    pub(super) fn expand(&mut self) {
        if !self.runs.is_empty() {
            self.expand_below(u64::MAX);
        }
    }

    /// The packet `number`, while it is unacknowledged.
    #[inline(never)]
    pub(super) fn packet(&self, number: u64) -> Option<Entry<T>> {
        let of_run = || {
            let run = self.run_of(number)?;
            Some(run.packet(u32::try_from(number - run.first).ok()?))
        };
        self.entry(number).copied().or_else(of_run)
    }
}

#[cfg(test)]
mod tests;
