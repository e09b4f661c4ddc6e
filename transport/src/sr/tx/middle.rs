//! Plain packets of requests: those that are neither chosen among others nor described.

use super::Tx;
use super::block_position::BlockPosition;
use super::plan::Contents;
use super::requester::Plain;
use super::schedule::{Limits, requests_periodic_ack};
use crate::qp::flow::{Flow, SendTimeState};
use spanwire_base::Time;

impl Tx {
    /// The next packet may be one of [`Tx::next_plain`].
    #[inline]
    pub(crate) fn is_at_plain(&self) -> bool {
        self.encoder.is_none() && self.requester.is_at_data()
    }

    /// As [`Tx::choose`], if the next packet is a plain one of a request, and waits for nothing but
    /// the pacer: the packet, its number, and whether it requests an ACK. `None`, and nothing has
    /// changed, otherwise.
    #[inline(always)]
    pub(in crate::sr) fn next_plain(&mut self, limits: &Limits) -> Option<(Plain, u64, bool)> {
        let is_plain = self.encoder.is_none()
            && self.paths.is_none()
            && self.source_qpn.is_none()
            && self.int.hops == 0;
        let is_undisturbed = self.probe.is_none()
            && !self.timers.is_backed_off()
            && !self.sent.has_lost()
            && self.responses.len() == 0
            && self.credit.next().is_none();
        if !is_plain || !is_undisturbed || limits.space_pkts == 0 || !limits.sends_requests {
            return None;
        }
        let (number, in_flight) = (self.sent.next(), self.sent.in_flight_pkts());
        let window_left = u64::from(limits.window_pkts).checked_sub(in_flight)?;
        if window_left == 0 || number >= self.psn_limit() {
            return None;
        }
        let plain = self.requester.next_plain(&self.allowance(limits))?;
        // As for any choice of a request, whether the pacer lets it leave or not.
        self.responses_in_a_row = 0;
        let ack_req = plain.is_last_posted || requests_periodic_ack(number, limits, window_left);
        Some((plain, number, ack_req))
    }

    /// The outcome of [`Tx::next_plain`] waits for the pacer until a time, or not.
    pub(in crate::sr) fn set_paced(&mut self, is_paced: bool) {
        self.is_paced = is_paced;
    }

    /// The outcome of [`Tx::next_plain`] was sent at `now` by `path`.
    #[inline(always)]
    pub(in crate::sr) fn on_plain_sent(
        &mut self,
        now: Time,
        (plain, number): (&Plain, u64),
        path: u16,
        frame_bytes: usize,
        flow: Option<&mut Flow>,
    ) {
        let bytes = plain.segment.len;
        self.requester.advance(&plain.segment, number);
        self.timers.on_sent(now);
        let in_flight_bytes = self.sent.in_flight_bytes() + u64::from(bytes);
        let send_state = match flow {
            Some(flow) => flow.on_sent(now, (bytes, frame_bytes), in_flight_bytes, false),
            None => SendTimeState::default(),
        };
        let contents = Contents::Request(plain.segment);
        self.sent.push(now, contents, bytes, BlockPosition::NONE, path, send_state);
    }
}
