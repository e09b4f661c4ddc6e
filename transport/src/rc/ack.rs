//! What is owed to the peer: at most one acknowledgement at a time.

use spanwire_wire::{NakCode, Psn, Syndrome};

/// An ACK, NAK or RNR NAK that has not left yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owed {
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
    pending: Option<Owed>,
}

impl Owed {
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
    pub(crate) fn owe(&mut self, owed: Owed) {
        let keeps =
            self.pending.is_some_and(|p| !p.is_ack() && owed.is_ack() && owed.psn.is_before(p.psn));
        if !keeps {
            self.pending = Some(owed);
        }
    }

    /// A READ response will say all of it: it acknowledges every earlier packet.
    pub(crate) fn subsume(&mut self) {
        self.pending = None;
    }

    /// What is owed now.
    pub(crate) fn pending(&self) -> Option<Owed> {
        self.pending
    }

    /// There is one.
    #[inline]
    pub(crate) fn is_owed(&self) -> bool {
        self.pending.is_some()
    }

    /// It was sent.
    pub(crate) fn paid(&mut self) {
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
    fn owe__coalesces_to_the_newest() {
        let mut a = Acks::default();
        a.owe(Owed::ack(psn(1), 1));
        a.owe(Owed::ack(psn(5), 2));
        assert_eq!(a.pending(), Some(Owed::ack(psn(5), 2)));
        a.paid();
        assert_eq!(a.pending(), None);
    }

    #[test]
    fn owe__an_echo_does_not_swallow_a_nak_but_progress_does() {
        let mut a = Acks::default();
        let nak = Owed::nak(psn(5), NakCode::SequenceError, 0);
        a.owe(Owed::ack(psn(3), 0));
        a.owe(nak);
        a.owe(Owed::ack(psn(4), 0));
        assert_eq!(a.pending(), Some(nak));
        a.owe(Owed::ack(psn(5), 1));
        assert_eq!(a.pending(), Some(Owed::ack(psn(5), 1)), "the gap closed before the NAK left");
    }

    #[test]
    fn owe__compares_across_the_wrap() {
        let mut a = Acks::default();
        let nak = Owed::nak(psn(0), NakCode::SequenceError, 0);
        a.owe(nak);
        a.owe(Owed::ack(psn(0xff_ffff), 0));
        assert_eq!(a.pending(), Some(nak));
    }
}
