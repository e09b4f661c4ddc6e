//! Plain packets: those of SENDs, WRITEs and responses to READs that are sent for the first time,
//! are neither chosen among others nor described, and whose header has no rare part.

use super::Tx;
use super::plan::{Contents, Plain};
use super::schedule::{Limits, RESPONSES_IN_A_ROW_MAX, requests_periodic_ack};
use crate::mr::{MrTable, PdId};
use crate::payload::PayloadMut;
use crate::qp::flow::{Flow, SendTimeState};
use spanwire_base::Time;

impl Tx {
    /// The next packet may be one of [`Tx::next_plain`].
    #[inline]
    pub(crate) fn is_at_plain(&self) -> bool {
        let has_one = match self.responses.len() {
            0 => self.requester.is_at_data(),
            _ => self.responses.is_at_read() && !self.requester.has_unsent(),
        };
        let is_plain = self.coding.is_none()
            && self.paths.is_none()
            && self.source_qpn.is_none()
            && self.int.hops == 0;
        let is_undisturbed = self.probe.is_none()
            && !self.timers.is_backed_off()
            && !self.sent.has_lost()
            && self.credit.next().is_none();
        has_one && is_plain && is_undisturbed
    }

    /// As [`Tx::choose`] after [`Tx::is_at_plain`], if the next packet is a plain one, and waits
    /// for nothing but the pacer: the packet, its number, and whether it requests an ACK. `None`,
    /// and nothing has changed, otherwise.
    #[inline(always)]
    pub(in crate::sr) fn next_plain(&mut self, limits: &Limits) -> Option<(Plain, u64, bool)> {
        let (number, in_flight) = (self.sent.next(), self.sent.in_flight_pkts());
        let window_left = u64::from(limits.window_pkts).checked_sub(in_flight)?;
        let is_limited = window_left == 0 || limits.space_pkts == 0 || number >= self.psn_limit();
        if is_limited || !limits.sends_requests {
            return None;
        }
        let plain = match self.responses.len() {
            0 => self.requester.next_plain(&self.allowance(limits))?,
            _ => self.responses.next_plain(self.segment_bytes)?,
        };
        // As for any choice, whether the pacer lets it leave or not.
        let is_response = matches!(plain.contents, Contents::Read(_));
        if !is_response || self.responses_in_a_row >= RESPONSES_IN_A_ROW_MAX {
            self.responses_in_a_row = 0;
        }
        let ack_req = plain.is_last_posted || requests_periodic_ack(number, limits, window_left);
        Some((plain, number, ack_req))
    }

    /// The outcome of [`Tx::next_plain`] waits for the pacer until a time, or not.
    pub(in crate::sr) fn set_paced(&mut self, is_paced: bool) {
        self.is_paced = is_paced;
    }

    /// Copies the payload of the outcome of [`Tx::next_plain`]; false if its memory is no longer
    /// registered.
    #[inline(always)]
    pub(in crate::sr) fn fill_plain(
        &mut self,
        plain: &Plain,
        payload: PayloadMut<'_>,
        mrs: (PdId, &MrTable),
    ) -> bool {
        match &plain.contents {
            Contents::Read(segment) => segment.fetch(payload, mrs),
            _ => self.requester.gather_plain(plain, payload, mrs),
        }
    }

    /// A packet was sent at `now` for the first time, with this number and so many bytes of
    /// payload. Returns the flow's delivery state, with which the caller adds it to the packets
    /// sent.
    #[inline(always)]
    pub(in crate::sr) fn on_new_sent(
        &mut self,
        now: Time,
        contents: &Contents,
        (number, bytes): (u64, u32),
        frame_bytes: usize,
        flow: Option<&mut Flow>,
    ) -> SendTimeState {
        match contents {
            Contents::Request(segment) => self.requester.advance(segment, number),
            Contents::Read(_) | Contents::Atomic { .. } => {
                self.responses.advance(bytes);
                self.responses_in_a_row += 1;
            }
            _ => {}
        }
        self.timers.on_sent(now);
        let in_flight_bytes = self.sent.in_flight_bytes() + u64::from(bytes);
        match flow {
            Some(flow) => flow.on_sent(now, (bytes, frame_bytes), in_flight_bytes, false),
            None => SendTimeState::default(),
        }
    }
}
