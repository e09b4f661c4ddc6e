//! ACKs of RC: at most one is pending.

use spanwire_wire::{NakCode, Psn, Syndrome};

/// An ACK, NAK or RNR NAK that has not been sent yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PendingAck {
    pub(crate) psn: Psn,
    pub(crate) syndrome: Syndrome,
    pub(crate) msn: u32,
}

/// The pending ACK of one queue pair.
///
/// ACKs are cumulative, so a newer one replaces a pending older one: a burst of received packets
/// causes one ACK. There is no delay timer. The requester sets the frequency by AckReq; the
/// driver's burst size determines how many ACKs coalesce.
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
    /// Schedules `ack`, in place of a pending one.
    ///
    /// A pending NAK is kept if `ack` only acknowledges packets before it: the NAK does that too,
    /// and it is sent only once.
    pub(crate) fn schedule(&mut self, ack: PendingAck) {
        let keeps =
            self.pending.is_some_and(|p| !p.is_ack() && ack.is_ack() && ack.psn.is_before(p.psn));
        if !keeps {
            self.pending = Some(ack);
        }
    }

    /// Drops the pending ACK: a READ or atomic response follows, which acknowledges every earlier
    /// packet.
    pub(crate) fn cancel(&mut self) {
        self.pending = None;
    }

    /// The pending ACK.
    pub(crate) fn pending(&self) -> Option<PendingAck> {
        self.pending
    }

    /// An ACK is pending.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.pending.is_some()
    }

    /// The pending ACK was sent.
    pub(crate) fn on_sent(&mut self) {
        self.pending = None;
    }
}

/// "No credit limit", which rxe sends and ignores. RC's flow control is RNR.
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
    fn schedule__progress_replaces_a_nak_and_an_older_ack_does_not() {
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
