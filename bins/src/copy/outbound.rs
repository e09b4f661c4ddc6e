//! The application on the sender's core: chunks the reader has filled go out in order, as many as
//! the receiver has places for.

use super::lane::{APP_LOOKS_EVERY, Carrier, Lane, Ring};
use super::session::End;
use crate::oob::MemoryParams;
use spanwire_base::{Time, u32_from};
use spanwire_transport::{
    App, CqId, Endpoint, MemoryRegion, RecvRequest, RemoteAddr, Sge, Wc, WcOpcode, WcStatus,
    WorkRequest, WrOp,
};
use spanwire_wire::Qpn;
use std::sync::mpsc::{Receiver, Sender};

/// Chunk after chunk, in the order of the reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filled {
    /// Bytes of the chunk, header included.
    pub bytes: u32,
}

/// Moves filled places to the receiver.
pub struct Outbound {
    cq: CqId,
    qpn: Qpn,
    mr: MemoryRegion,
    ring: Ring,
    theirs: MemoryParams,
    their_ring: Ring,
    filled: Receiver<Filled>,
    freed: Sender<()>,
    /// Taken from `filled`, waiting for a credit.
    next: Option<Filled>,
    posted: u64,
    /// Chunks the receiver has dealt with, as far as it told us.
    consumed: u64,
    end: Option<End>,
    looks_at: Time,
}

impl Outbound {
    /// For a connected `lane`; `freed` is told of each place that may be filled again, in order.
    #[must_use]
    pub fn new(
        lane: &Lane,
        theirs: MemoryParams,
        their_ring: Ring,
        filled: Receiver<Filled>,
        freed: Sender<()>,
    ) -> Self {
        Self {
            cq: lane.cq,
            qpn: lane.qpn,
            mr: lane.mr,
            ring: lane.ring,
            theirs,
            their_ring,
            filled,
            freed,
            next: None,
            posted: 0,
            consumed: 0,
            end: None,
            looks_at: Time::ZERO,
        }
    }

    /// Posts the receives that credits need, before the peer starts.
    pub fn post_receives(ep: &mut Endpoint, qpn: Qpn) -> bool {
        (0..CREDIT_RECEIVES)
            .all(|_| ep.post_recv(qpn, &RecvRequest { wr_id: 0, sges: &[] }).is_ok())
    }

    fn on_completion(&mut self, wc: &Wc, ep: &mut Endpoint) {
        if wc.status != WcStatus::Success {
            // The first error tells why; flushes follow it.
            self.end.get_or_insert(wc.status.into());
            return;
        }
        match (wc.opcode, wc.imm) {
            (WcOpcode::RdmaWrite, _) => {
                // The reader is gone only when the copy is over.
                let _ = self.freed.send(());
            }
            (WcOpcode::Recv, Some(imm)) => self.on_credit(imm, ep),
            _ => self.broken("a message that is no credit"),
        }
    }

    /// `imm` is the low half of the number of chunks consumed since the start.
    fn on_credit(&mut self, imm: u32, ep: &mut Endpoint) {
        let more = u64::from(imm.wrapping_sub(low_half(self.consumed)));
        if more > self.posted - self.consumed {
            self.broken("a credit for chunks that were not sent");
            return;
        }
        self.consumed += more;
        if ep.post_recv(self.qpn, &RecvRequest { wr_id: 0, sges: &[] }).is_err() {
            self.end.get_or_insert(End::Failed("a receive queue took no more requests".into()));
        }
    }

    fn broken(&mut self, what: &str) {
        self.end.get_or_insert(End::Protocol(what.to_owned()));
    }

    /// Posts what is filled and has a place at the receiver.
    fn post_filled(&mut self, ep: &mut Endpoint) {
        while self.posted - self.consumed < u64::from(self.their_ring.slots) && self.end.is_none() {
            let Some(Filled { bytes }) = self.next.take().or_else(|| self.filled.try_recv().ok())
            else {
                return;
            };
            let (ours, their) =
                (self.ring.slot_of(self.posted), self.their_ring.slot_of(self.posted));
            let at = self.mr.addr + spanwire_base::u64_from(self.ring.offset(ours));
            let va = self.theirs.va + spanwire_base::u64_from(self.their_ring.offset(their));
            let remote = RemoteAddr { va, rkey: self.theirs.rkey };
            let sge = Sge { addr: at, len: bytes, lkey: self.mr.lkey };
            let op = WrOp::WriteImm { remote, imm: low_half(self.posted) };
            let wr = WorkRequest::new(self.posted, op, std::slice::from_ref(&sge));
            if let Err(e) = ep.post_send(self.qpn, &wr) {
                self.end.get_or_insert(End::Failed(format!("a chunk was not taken: {e}")));
                return;
            }
            self.posted += 1;
        }
    }
}

impl App for Outbound {
    fn poll(&mut self, now: Time, ep: &mut Endpoint) {
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
        self.post_filled(ep);
        self.looks_at = now + APP_LOOKS_EVERY;
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.looks_at)
    }
}

impl Carrier for Outbound {
    fn end(&self) -> Option<End> {
        self.end.clone()
    }
}

/// The low 32 bits: what an immediate carries of a count.
pub(super) fn low_half(n: u64) -> u32 {
    u32_from(spanwire_base::usize_from(n & 0xffff_ffff))
}

/// Receives for credits. The receiver sends one for each quarter of its ring, so four are under
/// way at most; some more for one that gives them singly.
pub const CREDIT_RECEIVES: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_transport::Access;
    use spanwire_transport::ValidConfig;
    use std::sync::mpsc::channel;

    const RING: Ring = Ring { slots: 4, slot_bytes: 4096 };

    fn outbound() -> (Outbound, Lane) {
        let lane =
            Lane::new(ValidConfig::default(), RING, Access::LOCAL_WRITE, CREDIT_RECEIVES).unwrap();
        let theirs = MemoryParams { va: 0, rkey: 7, len: RING.bytes() };
        let app = Outbound::new(&lane, theirs, RING, channel().1, channel().0);
        (app, lane)
    }

    #[test]
    fn on_credit__counts_up_and_around_the_32_bits() {
        let (mut app, mut lane) = outbound();
        (app.posted, app.consumed) = ((1 << 32) + 3, (1 << 32) - 1);
        app.on_credit(2, &mut lane.endpoint);
        assert_eq!((app.end(), app.consumed), (None, (1 << 32) + 2));
    }

    #[test]
    fn on_credit__one_for_what_was_not_sent_is_an_error() {
        for credit in [1, u32::MAX] {
            let (mut app, mut lane) = outbound();
            app.on_credit(credit, &mut lane.endpoint);
            assert!(matches!(app.end(), Some(End::Protocol(_))), "{credit}");
            assert_eq!(app.consumed, 0);
        }
    }
}
