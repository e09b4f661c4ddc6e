//! What is owed to the peer: at most one acknowledgement at a time.

use spanwire_wire::{NakCode, Psn, Syndrome};

/// An ACK, NAK or RNR NAK that has not left yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PendingAck {
    pub(crate) psn: Psn,
    pub(crate) syndrome: Syndrome,
    pub(crate) msn: u32,
}

/// The acknowledgement owed by one queue pair.
///
/// Acknowledgements are cumulative, so a newer one replaces an older one that is still waiting:
/// everything a burst of received packets owes becomes one packet. There is no delay timer. The
/// asker decides how often by the AckReq bit; the driver's burst decides how many become one.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    pending: Option<PendingAck>,
}

impl PendingAck {
    /// A positive acknowledgement of everything up to `psn`.
    pub(crate) fn ack(psn: Psn, msn: u32) -> Self {
        Self { psn, syndrome: Syndrome::Ack { credits: NO_CREDIT_LIMIT }, msn }
    }

    /// A NAK of `psn`.
    pub(crate) fn nak(psn: Psn, code: NakCode, msn: u32) -> Self {
        Self { psn, syndrome: Syndrome::Nak(code), msn }
    }

    fn is_ack(self) -> bool {
        matches!(self.syndrome, Syndrome::Ack { .. })
    }
}

impl Acks {
    /// Takes note of what is owed.
    ///
    /// A NAK that is still waiting stays when the new one only repeats what came before it: the
    /// NAK says that too, and it is sent only once.
    pub(crate) fn schedule(&mut self, ack: PendingAck) {
        let keeps =
            self.pending.is_some_and(|p| !p.is_ack() && ack.is_ack() && ack.psn.is_before(p.psn));
        if !keeps {
            self.pending = Some(ack);
        }
    }

    /// A READ response will say all of it: it acknowledges every earlier packet.
    pub(crate) fn cancel(&mut self) {
        self.pending = None;
    }

    /// What is owed now.
    pub(crate) fn pending(&self) -> Option<PendingAck> {
        self.pending
    }

    /// There is one.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.pending.is_some()
    }

    /// It was sent.
    pub(crate) fn on_sent(&mut self) {
        self.pending = None;
    }
}

/// "No credit limit": what rxe sends and ignores on receipt. Flow control is RNR.
pub(crate) const NO_CREDIT_LIMIT: u8 = 31;

#[cfg(test)]
mod tests {
    use super::*;

    fn psn(n: u32) -> Psn {
        Psn::new(n)
    }

    #[test]
    fn schedule__coalesces_to_the_newest() {
        let mut a = Acks::default();
        a.schedule(PendingAck::ack(psn(1), 1));
        a.schedule(PendingAck::ack(psn(5), 2));
        assert_eq!(a.pending(), Some(PendingAck::ack(psn(5), 2)));
        a.on_sent();
        assert_eq!(a.pending(), None);
    }

    #[test]
    fn schedule__an_echo_does_not_swallow_a_nak_but_progress_does() {
        let mut a = Acks::default();
        let nak = PendingAck::nak(psn(5), NakCode::SequenceError, 0);
        a.schedule(PendingAck::ack(psn(3), 0));
        a.schedule(nak);
        a.schedule(PendingAck::ack(psn(4), 0));
        assert_eq!(a.pending(), Some(nak));
        a.schedule(PendingAck::ack(psn(5), 1));
        assert_eq!(
            a.pending(),
            Some(PendingAck::ack(psn(5), 1)),
            "the gap closed before the NAK left"
        );
    }

    #[test]
    fn schedule__compares_across_the_wrap() {
        let mut a = Acks::default();
        let nak = PendingAck::nak(psn(0), NakCode::SequenceError, 0);
        a.schedule(nak);
        a.schedule(PendingAck::ack(psn(0xff_ffff), 0));
        assert_eq!(a.pending(), Some(nak));
    }
}
