//! How a packet is written: headers, payload, ICRC.

use super::resources::{Body, Response};
use super::segment::Segment;
use super::state::QpState;
use super::{DEFAULT_PKEY, QueuePair, Shared, Transmit, ack};
use crate::drop::DropReason;
use crate::mr::Access;
use crate::payload::PayloadMut;
use crate::wc::WcStatus;
use spanwire_base::{Time, TxMeta};
use spanwire_wire::{
    AethRepr, AtomicAckEthRepr, BthRepr, ExtHeaders, NakCode, Opcode, Psn, RethRepr, Syndrome,
};

impl QueuePair {
    pub(super) fn send_segment(
        &mut self,
        now: Time,
        segment: &Segment,
        frame: &mut [u8],
        sh: &mut Shared<'_>,
    ) -> Transmit {
        let ext = ExtHeaders {
            reth: segment.reth.map(|(remote, dma_len)| RethRepr {
                va: remote.va,
                rkey: remote.rkey,
                dma_len,
            }),
            atomic: segment.atomic,
            imm: segment.imm,
            ieth: segment.ieth,
            ..ExtHeaders::default()
        };
        let mut bth = self.bth(segment.opcode, segment.psn);
        bth.solicited = segment.solicited;
        bth.ack_req = segment.ack_req;
        let (pd, requester) = (self.pd, &self.requester);
        let elide = sh.config.elide_payload;
        let fill = |payload: PayloadMut<'_>| match requester.inline(segment.wqe) {
            Some(bytes) => copy_part(bytes, segment.offset, payload),
            None => {
                let sges = requester.sges(segment.wqe);
                sh.mrs.gather(pd, sges, segment.offset, payload).is_ok()
            }
        };
        match self.write(&bth, &ext, (segment.len, elide), frame, fill) {
            Err(NotWritten::NoRoom) => {
                self.fail_oldest_unless_answered(WcStatus::LocQpOpErr, sh);
                Transmit::Idle
            }
            Err(NotWritten::NoPayload) => {
                self.fail_oldest_unless_answered(WcStatus::LocProtErr, sh);
                Transmit::Idle
            }
            Ok(meta) => {
                let number = self.requester.snd_nxt();
                self.requester.advance(segment);
                self.loss.on_sent(now);
                let is_timed = match &mut self.path {
                    Some(path) if !segment.is_retransmission => path.on_sent(now, number),
                    _ => false,
                };
                self.account_sent(now, segment, &meta, is_timed);
                sh.counters.retransmitted_packets += u64::from(segment.is_retransmission);
                self.sent(meta, segment.len, sh)
            }
        }
    }

    /// Writes the next packet of what a READ or an atomic asked for; `None` when that answer cannot
    /// go on and something else is next.
    pub(super) fn send_response(
        &mut self,
        frame: &mut [u8],
        sh: &mut Shared<'_>,
    ) -> Option<Transmit> {
        let r = self.responder.resources.next(self.mtu)?;
        let aeth = r.opcode.props().aeth.then_some(AethRepr {
            syndrome: Syndrome::Ack { credits: ack::NO_CREDIT_LIMIT },
            msn: r.msn,
        });
        let (atomic_ack, len) = match r.body {
            Body::Atomic { original } => (Some(AtomicAckEthRepr { original }), 0),
            Body::Read { len, .. } => (None, len),
        };
        let ext = ExtHeaders { aeth, atomic_ack, ..ExtHeaders::default() };
        let bth = self.bth(r.opcode, r.psn);
        let (pd, need) = (self.pd, Access::REMOTE_READ);
        let elide = sh.config.elide_payload;
        let fill = |payload: PayloadMut<'_>| match r.body {
            Body::Read { va, rkey, len } if len > 0 => {
                sh.mrs.remote(pd, rkey, va, len, need).is_ok_and(|span| span.fetch(payload))
            }
            Body::Read { .. } | Body::Atomic { .. } => true,
        };
        match self.write(&bth, &ext, (len, elide), frame, fill) {
            Ok(meta) => {
                self.responder.resources.advance(self.mtu);
                Some(self.sent(meta, len, sh))
            }
            Err(why) => {
                self.cannot_respond(&r, &why, sh);
                None
            }
        }
    }

    /// The region went away while it was being read, or the port is too narrow for the answer.
    fn cannot_respond(&mut self, r: &Response, why: &NotWritten, sh: &mut Shared<'_>) {
        let code = match why {
            NotWritten::NoPayload if r.is_repeat => {
                // The peer has had this answer and may have given the key back since: what it asks
                // for here is a copy that was late on the way.
                self.responder.resources.abandon();
                sh.counters.drop(DropReason::DuplicateReadForgotten);
                return;
            }
            NotWritten::NoPayload => NakCode::RemoteAccess,
            NotWritten::NoRoom => NakCode::RemoteOperational,
        };
        // If a later request was refused already, this NAK takes the place of that one: the peer
        // takes them in order.
        self.acks.owe(ack::Owed::nak(r.psn, code, r.msn));
        if self.state != QpState::Err {
            sh.counters.tx_fatal_naks += 1;
            sh.events.push(self.refusal(Syndrome::Nak(code)));
        }
        self.fail(sh);
    }

    pub(super) fn send_ack(&mut self, frame: &mut [u8], sh: &mut Shared<'_>) -> Transmit {
        let Some(owed) = self.acks.pending() else {
            return Transmit::Idle;
        };
        let aeth = AethRepr { syndrome: owed.syndrome, msn: owed.msn };
        let ext = ExtHeaders { aeth: Some(aeth), ..ExtHeaders::default() };
        let bth = self.bth(Opcode::RcAck, owed.psn);
        self.acks.paid();
        match self.write(&bth, &ext, (0, false), frame, |_| true) {
            Ok(meta) => {
                let positive = matches!(owed.syndrome, Syndrome::Ack { .. });
                sh.counters.tx_acks += u64::from(positive);
                self.sent(meta, 0, sh)
            }
            Err(_) => Transmit::Idle,
        }
    }

    #[inline]
    pub(super) fn sent(&self, meta: TxMeta, payload_len: u32, sh: &mut Shared<'_>) -> Transmit {
        sh.counters.tx_packets += 1;
        sh.counters.tx_payload_bytes += u64::from(payload_len);
        Transmit::Sent(meta)
    }

    /// Writes one packet with a payload of `payload.0` bytes that `fill` provides, left out if
    /// `payload.1` says so.
    pub(super) fn write(
        &self,
        bth: &BthRepr,
        ext: &ExtHeaders,
        payload: (u32, bool),
        frame: &mut [u8],
        fill: impl FnOnce(PayloadMut<'_>) -> bool,
    ) -> Result<TxMeta, NotWritten> {
        let path = self.path.as_ref().ok_or(NotWritten::NoRoom)?;
        let template = path.template();
        let (len, elide) = payload;
        let payload_len = len as usize;
        let no_room = |_| NotWritten::NoRoom;
        let (icrc_at, elided, filled) = if elide && len > 0 {
            let (at, elided) =
                template.emit_elided(bth, ext, payload_len, 0, frame).map_err(no_room)?;
            (at.end, elided, fill(PayloadMut::Elided(len)))
        } else {
            let at = template.emit(bth, ext, payload_len, frame).map_err(no_room)?;
            let end = at.end + payload_len.wrapping_neg() % 4;
            (end, 0, fill(PayloadMut::Bytes(&mut frame[at])))
        };
        if !filled {
            return Err(NotWritten::NoPayload);
        }
        let len = icrc_at + ICRC_BYTES;
        spanwire_wire::seal(frame, len);
        Ok(TxMeta { len, elided_bytes: spanwire_base::u32_from(elided) })
    }

    #[inline]
    pub(super) fn bth(&self, opcode: Opcode, psn: Psn) -> BthRepr {
        BthRepr { pkey: DEFAULT_PKEY, ..BthRepr::new(opcode, self.dest_qpn, psn) }
    }
}

/// Copies all of `to` from byte `skip` of `from` on; false when there are not so many.
pub(super) fn copy_part(from: &[u8], skip: u32, to: PayloadMut<'_>) -> bool {
    let part = from.get(skip as usize..).and_then(|rest| rest.get(..to.len() as usize));
    match (part, to) {
        (Some(part), PayloadMut::Bytes(to)) => to.copy_from_slice(part),
        (Some(_), PayloadMut::Elided(_)) => {}
        (None, _) => return false,
    }
    true
}

/// Why a packet could not be written.
pub(super) enum NotWritten {
    /// The frame buffer is shorter than the packet.
    NoRoom,
    /// The payload's memory is not to be had any more.
    NoPayload,
}

pub(super) const ICRC_BYTES: usize = 4;
