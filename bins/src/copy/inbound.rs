//! The application on the receiver's core: tells the writer of each chunk that has arrived, and
//! the sender of each place that is free again.

use super::lane::{APP_LOOKS_EVERY, Carrier, Lane, Ring};
use super::outbound::low_half;
use super::session::End;
use spanwire_base::Time;
use spanwire_transport::{
    App, CqId, Endpoint, RecvRequest, Wc, WcOpcode, WcStatus, WorkRequest, WrOp,
};
use spanwire_wire::Qpn;
use std::sync::mpsc::{Receiver, Sender};

/// A chunk that lies in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// The place.
    pub slot: u32,
    /// Bytes of the chunk, header included.
    pub bytes: u32,
}

/// Takes chunks in.
pub struct Inbound {
    cq: CqId,
    qpn: Qpn,
    ring: Ring,
    arrived: Sender<Arrived>,
    freed: Receiver<()>,
    /// Chunks that have arrived.
    count: u64,
    /// Chunks the writer is done with.
    consumed: u64,
    /// Of those, how many the sender was told of.
    credited: u64,
    credits_under_way: u32,
    end: Option<End>,
    looks_at: Time,
}

impl Inbound {
    /// For a connected `lane`; `freed` hears from the writer once for each chunk it is done with,
    /// in order.
    #[must_use]
    pub fn new(lane: &Lane, arrived: Sender<Arrived>, freed: Receiver<()>) -> Self {
        Self {
            cq: lane.cq,
            qpn: lane.qpn,
            ring: lane.ring,
            arrived,
            freed,
            count: 0,
            consumed: 0,
            credited: 0,
            credits_under_way: 0,
            end: None,
            looks_at: Time::ZERO,
        }
    }

    /// Posts the receives that the first chunks need, before the peer starts.
    pub fn post_receives(ep: &mut Endpoint, qpn: Qpn, ring: Ring) -> bool {
        (0..Self::receives(ring))
            .all(|_| ep.post_recv(qpn, &RecvRequest { wr_id: 0, sges: &[] }).is_ok())
    }

    /// Receives kept posted: a sender that keeps to its credits never finds none.
    #[must_use]
    pub fn receives(ring: Ring) -> u32 {
        ring.slots * 2
    }

    fn on_completion(&mut self, wc: &Wc, ep: &mut Endpoint) {
        if wc.status != WcStatus::Success {
            // The first error tells why; flushes follow it.
            self.end.get_or_insert(wc.status.into());
            return;
        }
        match (wc.opcode, wc.imm) {
            (WcOpcode::Send, _) => self.credits_under_way -= 1,
            (WcOpcode::RecvRdmaWithImm, Some(imm)) => self.on_chunk(imm, wc.byte_len, ep),
            _ => self.broken("a message that is no chunk"),
        }
    }

    fn on_chunk(&mut self, imm: u32, bytes: u32, ep: &mut Endpoint) {
        if imm != low_half(self.count) || bytes > self.ring.slot_bytes {
            return self.broken("a chunk out of order, or too long");
        }
        if self.count - self.consumed >= u64::from(self.ring.slots) {
            return self.broken("more chunks than it had credits for");
        }
        // The writer is gone only when the copy is over.
        let _ = self.arrived.send(Arrived { slot: self.ring.slot_of(self.count), bytes });
        self.count += 1;
        if ep.post_recv(self.qpn, &RecvRequest { wr_id: 0, sges: &[] }).is_err() {
            self.end.get_or_insert(End::Failed("a receive queue took no more requests".into()));
        }
    }

    fn broken(&mut self, what: &str) {
        self.end.get_or_insert(End::Protocol(what.to_owned()));
    }

    /// Tells the sender of free places, a quarter of the ring at a time. A smaller rest need not be
    /// told: with three quarters of the ring still ahead of the writer, it becomes a quarter.
    fn give_credit(&mut self, ep: &mut Endpoint) {
        self.consumed += spanwire_base::u64_from(self.freed.try_iter().count());
        let quarter = u64::from(self.ring.slots / 4).max(1);
        if self.consumed - self.credited < quarter || self.credits_under_way >= CREDITS_MAX {
            return;
        }
        let op = WrOp::SendImm { imm: low_half(self.consumed) };
        if let Err(e) = ep.post_send(self.qpn, &WorkRequest::new(0, op, &[])) {
            self.end.get_or_insert(End::Failed(format!("a credit was not taken: {e}")));
            return;
        }
        self.credits_under_way += 1;
        self.credited = self.consumed;
    }
}

impl App for Inbound {
    fn poll(&mut self, now: Time, ep: &mut Endpoint) {
        // Before the completions: a chunk sent on a credit must not seem one too many.
        self.give_credit(ep);
        loop {
            match ep.poll_cq(self.cq) {
                Ok(Some(wc)) => self.on_completion(&wc, ep),
                Ok(None) => break,
                Err(_) => {
                    self.end.get_or_insert(End::Failed("the completion queue overran".into()));
                    break;
                }
            }
        }
        self.looks_at = now + APP_LOOKS_EVERY;
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.looks_at)
    }
}

impl Carrier for Inbound {
    fn end(&self) -> Option<End> {
        self.end.clone()
    }
}

/// Credits that may be unacknowledged: more would say nothing that the next one does not.
const CREDITS_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_transport::Access;
    use spanwire_transport::ValidConfig;
    use std::sync::mpsc::channel;

    const RING: Ring = Ring { slots: 4, slot_bytes: 4096 };

    #[test]
    fn on_chunk__places_follow_and_a_sender_ahead_of_its_credits_is_an_error() {
        let mut lane =
            Lane::new(ValidConfig::default(), RING, Access::LOCAL_WRITE, Inbound::receives(RING))
                .unwrap();
        let (arrived, arrived_out) = channel();
        let mut app = Inbound::new(&lane, arrived, channel().1);
        for n in 0..4 {
            app.on_chunk(n, 100, &mut lane.endpoint);
            assert_eq!(arrived_out.try_recv(), Ok(Arrived { slot: n, bytes: 100 }));
        }
        app.consumed = 1;
        app.on_chunk(4, 100, &mut lane.endpoint);
        assert_eq!(arrived_out.try_recv(), Ok(Arrived { slot: 0, bytes: 100 }));
        assert_eq!(app.end(), None);
        app.on_chunk(5, 100, &mut lane.endpoint);
        assert!(matches!(app.end(), Some(End::Protocol(_))));
        assert!(arrived_out.try_recv().is_err(), "the writer does not see it");
    }

    #[test]
    fn on_chunk__one_out_of_order_or_too_long_is_an_error() {
        for (imm, bytes) in [(1, 100), (0, RING.slot_bytes + 1)] {
            let mut lane = Lane::new(
                ValidConfig::default(),
                RING,
                Access::LOCAL_WRITE,
                Inbound::receives(RING),
            )
            .unwrap();
            let (arrived, arrived_out) = channel();
            let mut app = Inbound::new(&lane, arrived, channel().1);
            app.on_chunk(imm, bytes, &mut lane.endpoint);
            assert!(matches!(app.end(), Some(End::Protocol(_))));
            assert!(arrived_out.try_recv().is_err());
        }
    }
}
