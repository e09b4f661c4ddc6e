//! The effects of an ACK on the sent packets.

use super::Sent;
use super::ack_info::{AckInfo, Acked, BeyondSent};
use super::entry::State;
use super::run::Strided;
use crate::sr::number::unwrap;
use crate::sr::tx::bits::numbers;
use spanwire_base::Time;
use spanwire_wire::SackWord;

impl<T: Strided> Sent<T> {
    /// Applies an ACK.
    ///
    /// # Errors
    /// The ACK is of packets that were not sent, or that are too far in the past; it changes
    /// nothing then. Nearly every guess of an off-path attacker fails here.
    // One caller.
    #[inline(always)]
    pub(crate) fn on_ack(&mut self, info: &AckInfo<'_>) -> Result<Acked, BeyondSent> {
        self.coding.queued_pkts = 0;
        let una = self.una;
        let next = unwrap(una, info.next);
        let end = self.next;
        let word_end = |w: &SackWord| unwrap(una, w.base) + 64 - u64::from(w.bits.leading_zeros());
        let newest = unwrap(una, info.newest);
        let is_old = next.min(newest) + PAST_PKTS < una;
        let named_end = self.named_end();
        let is_beyond =
            next > named_end || newest >= end || info.words.iter().any(|w| word_end(w) > named_end);
        if is_beyond || is_old {
            return Err(BeyondSent);
        }
        let mut acked = Acked::default();
        if info.has_reports() {
            self.expand();
        }
        self.on_echo(newest, info.echo, &mut acked);
        self.apply_reports(info, &mut acked);
        let (next, runs_begin) = (next.min(end), self.runs_begin());
        if una < runs_begin {
            self.arrived_below(next.min(runs_begin), info, &mut acked);
        }
        if next > runs_begin {
            self.acknowledge_runs(next, &mut acked);
        }
        for word in info.words {
            if self.runs_begin() < word_end(word) {
                self.expand_below(word_end(word));
            }
            self.arrived_of(unwrap(una, word.base), word.bits, info, &mut acked);
        }
        self.apply_nacks(info, &mut acked);
        while self.ring.front().is_some_and(|e| e.state == State::Arrived) {
            self.ring.pop_front();
            self.una += 1;
        }
        self.arrived.clear_below(self.una);
        self.advance_data_una();
        Ok(acked)
    }

    /// Finds by the echo which transmission of the newest packet has arrived.
    fn on_echo(&mut self, newest: u64, echo: Time, acked: &mut Acked) {
        let arrived = Some((echo, newest));
        let overtaken = arrived < self.delivered;
        self.delivered = self.delivered.max(arrived);
        (acked.is_reordered, acked.newest) = (overtaken, newest);
        if let Some(run) = self.run_of(newest) {
            acked.send_state = (run.sent_at == echo).then_some(run.send_state);
            return;
        }
        let Some(entry) = self.entry(newest).filter(|e| e.state != State::Arrived) else {
            acked.is_duplicate = true;
            return;
        };
        acked.was_lost = entry.was_lost;
        acked.send_state = (entry.sent_at == echo).then_some(entry.send_state);
        if entry.was_lost && echo < entry.sent_at {
            // A premature NACK must not widen `reo_wnd`.
            if entry.lost_by_time {
                self.reorder.widen();
            }
        }
    }

    /// All entries below `end` have arrived.
    #[inline(never)]
    fn arrived_below(&mut self, end: u64, info: &AckInfo<'_>, acked: &mut Acked) {
        for base in (self.una / 64 * 64..end).step_by(64) {
            self.arrived_of(base, u64::MAX >> (64 - (end - base).min(64)), info, acked);
        }
    }

    /// The packets have arrived of which the bits are set; that of `base` is the first one.
    fn arrived_of(&mut self, base: u64, bits: u64, info: &AckInfo<'_>, acked: &mut Acked) {
        for number in numbers(base, self.arrived.new_bits(base, bits)) {
            self.arrived(number, info, acked);
        }
    }

    fn arrived(&mut self, number: u64, info: &AckInfo<'_>, acked: &mut Acked) {
        let Some(entry) = self.entry_mut(number) else { return };
        let (was, bytes) = (entry.state, u64::from(entry.bytes));
        if was == State::Arrived {
            return;
        }
        entry.state = State::Arrived;
        let is_presumed_lost = entry.is_presumed_lost;
        self.arrived.set(number);
        if is_presumed_lost {
            self.detect_spurious_loss(number, was, acked.newest, info);
        }
        acked.pkts += 1;
        acked.bytes += bytes;
        if was == State::InFlight {
            self.in_flight_pkts -= 1;
            self.in_flight_bytes -= bytes;
        }
        if self.path_events.is_some() {
            self.push_path_arrival(number, acked.newest, info);
        }
    }
}

/// How far an ACK may be behind: one window of the default size.
const PAST_PKTS: u64 = 1 << 16;
