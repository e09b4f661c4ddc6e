//! What a queue pair owes its peer that is not data: it leaves before what is.

use super::{QueuePair, Shared, Transmit};
use spanwire_base::Time;

impl QueuePair {
    /// Writes the small packet that it owes its peer, if [`QueuePair::owes_control`].
    pub(crate) fn poll_control(
        &mut self,
        now: Time,
        frame: &mut [u8],
        sh: &mut Shared<'_>,
    ) -> Transmit {
        if !self.owes_control() {
            return Transmit::Idle;
        }
        if self.selective.is_some() {
            return self.send_sr_ack(now, frame, sh);
        }
        if self.cnps.are_owed() {
            return self.send_cnp(frame, sh);
        }
        self.send_ack(frame, sh)
    }

    /// It owes its peer a packet without data: an acknowledgement, a refusal, a notification.
    #[inline]
    pub(crate) fn owes_control(&self) -> bool {
        match &self.selective {
            // An acknowledgement may not overtake the responses that were asked for before it.
            None => {
                let acks = self.acks.is_owed() && self.responder.resources.is_idle();
                acks || self.cnps.are_owed()
            }
            Some(sr) => sr.owes_ack(self.state),
        }
    }
}
