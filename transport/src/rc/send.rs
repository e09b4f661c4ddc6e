//! The packets of RC: request segments, responses, acknowledgements.

use super::on_request::nak_event;
use super::resources::{Body, Response};
use super::segment::Segment;
use super::{Rc, ack};
use crate::drop::DropReason;
use crate::lending::Treatment;
use crate::payload::PayloadMut;
use crate::qp::common::{Common, Shared, Transmit};
use crate::qp::fail::Fail;
use crate::qp::state::QpState;
use crate::qp::write::NotWritten;
use crate::wc::WcStatus;
use spanwire_base::{Time, TxMeta};
use spanwire_wire::{
    AethRepr, AtomicAckEthRepr, BthRepr, ExtHeaders, NakCode, Opcode, PlainBth, RethRepr, Syndrome,
};

impl Rc {
    pub(super) fn send_segment(
        &mut self,
        qp: &mut Common,
        now: Time,
        segment: &Segment,
        frame: &mut [u8],
        sh: &mut Shared,
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
        let (requester, mrs) = (&self.requester, (qp.pd, &sh.mrs));
        let (elide, may_lend) = (sh.config.elide_payload, !segment.is_retransmission);
        let treatment = sh.lending.treatment(segment.len, elide, may_lend);
        let fill = |payload: PayloadMut<'_>| requester.gather(segment, payload, mrs);
        let (ack_req, solicited) = (segment.ack_req, segment.solicited);
        let written = if segment.opcode.ext_len() == 0 {
            let bth = PlainBth::new(segment.opcode, self.path.dest_qpn, segment.psn);
            let bth = PlainBth { ack_req, solicited, ..bth };
            self.path.write_plain(bth, (segment.len, treatment, &mut sh.lending), frame, fill)
        } else {
            let bth = BthRepr { ack_req, solicited, ..self.path.bth(segment.opcode, segment.psn) };
            self.path.write(&bth, &ext, (segment.len, treatment, &mut sh.lending), frame, fill)
        };
        match written {
            Err(NotWritten::NoRoom) => self.fail_at_snd_nxt(qp, now, WcStatus::LocQpOpErr, sh),
            Err(NotWritten::NoPayload) => self.fail_at_snd_nxt(qp, now, WcStatus::LocProtErr, sh),
            Ok(mut meta) => {
                let number = self.requester.snd_nxt();
                let packet = (number, segment.len, !segment.is_retransmission);
                qp.on_path_sent(now, packet, &mut meta);
                self.requester.advance(segment);
                self.loss.on_sent(now);
                // A packet that requests no ACK is acknowledged with a later one that does: at low
                // rates after sixteen packets, which a delay-based control takes for a queue.
                let is_timed =
                    segment.ack_req && !segment.is_retransmission && self.rtt.on_sent(now, number);
                self.report_sent(qp, now, segment, &meta, is_timed);
                sh.counters.retransmitted_packets += u64::from(segment.is_retransmission);
                qp.sent(meta, segment.len, sh)
            }
        }
    }

    /// Writes the next response packet; `None` if the response was aborted and another is next.
    pub(super) fn send_response(
        &mut self,
        qp: &mut Common,
        frame: &mut [u8],
        sh: &mut Shared,
    ) -> Option<Transmit> {
        let r = self.responder.resources.next(qp.mtu)?;
        let aeth = r.opcode.props().aeth.then_some(AethRepr {
            syndrome: Syndrome::Ack { credits: ack::NO_CREDIT_LIMIT },
            msn: r.msn,
        });
        let (atomic_ack, len) = match r.body {
            Body::Atomic { original } => (Some(AtomicAckEthRepr { original }), 0),
            Body::Read { len, .. } => (None, len),
        };
        let ext = ExtHeaders { aeth, atomic_ack, ..ExtHeaders::default() };
        let written = match r.opcode {
            Opcode::RcReadResponseMiddle => self.write_response_middle(qp, &r, frame, sh),
            _ => {
                let (elide, may_lend) = (sh.config.elide_payload, !r.is_repeat);
                let treatment = sh.lending.treatment(len, elide, may_lend);
                let payload = (len, treatment, &mut sh.lending);
                let fill = |payload: PayloadMut<'_>| r.body.fetch(qp.pd, &sh.mrs, payload);
                self.path.write(&self.path.bth(r.opcode, r.psn), &ext, payload, frame, fill)
            }
        };
        match written {
            Ok(meta) => {
                self.responder.resources.advance(qp.mtu);
                Some(qp.sent(meta, len, sh))
            }
            Err(why) => {
                self.cannot_respond(qp, &r, &why, sh);
                None
            }
        }
    }

    /// Writes a middle packet of the response to a READ.
    #[inline(always)]
    pub(super) fn write_response_middle(
        &mut self,
        qp: &Common,
        r: &Response,
        frame: &mut [u8],
        sh: &mut Shared,
    ) -> Result<TxMeta, NotWritten> {
        let (len, bth) = (qp.mtu.bytes(), PlainBth::new(r.opcode, self.path.dest_qpn, r.psn));
        let treatment = sh.lending.treatment(len, sh.config.elide_payload, !r.is_repeat);
        let fill = |payload: PayloadMut<'_>| r.body.fetch(qp.pd, &sh.mrs, payload);
        self.path.write_plain(bth, (len, treatment, &mut sh.lending), frame, fill)
    }

    /// A response cannot continue: its region was deregistered, or the frame is too short for it.
    fn cannot_respond(&mut self, qp: &mut Common, r: &Response, why: &NotWritten, sh: &mut Shared) {
        let code = match why {
            NotWritten::NoPayload if r.is_repeat => {
                // The response was complete before, so its region may have been deregistered since.
                // This duplicate request was delayed in the network.
                self.responder.resources.abandon();
                sh.counters.drop(DropReason::DuplicateReadForgotten);
                return;
            }
            NotWritten::NoPayload => NakCode::RemoteAccess,
            NotWritten::NoRoom => NakCode::RemoteOperational,
        };
        // This NAK replaces one of a later request, because the peer handles NAKs in order.
        self.acks.schedule(ack::PendingAck::nak(r.psn, code, r.msn));
        if qp.state != QpState::Err {
            sh.counters.tx_fatal_naks += 1;
            sh.events.push(nak_event(qp, Syndrome::Nak(code)));
        }
        self.fail(qp, sh);
    }

    pub(super) fn send_ack(
        &mut self,
        qp: &mut Common,
        frame: &mut [u8],
        sh: &mut Shared,
    ) -> Transmit {
        let Some(pending) = self.acks.pending() else {
            return Transmit::Idle;
        };
        let aeth = AethRepr { syndrome: pending.syndrome, msn: pending.msn };
        let ext = ExtHeaders { aeth: Some(aeth), ..ExtHeaders::default() };
        let bth = self.path.bth(Opcode::RcAck, pending.psn);
        self.acks.on_sent();
        match self.path.write(&bth, &ext, (0, Treatment::Copy, &mut sh.lending), frame, |_| true) {
            Ok(meta) => {
                let positive = matches!(pending.syndrome, Syndrome::Ack { .. });
                sh.counters.tx_acks += u64::from(positive);
                qp.sent(meta, 0, sh)
            }
            Err(_) => Transmit::Idle,
        }
    }

    /// Writes the CNP that is due.
    #[cold]
    pub(super) fn send_cnp(
        &mut self,
        qp: &mut Common,
        frame: &mut [u8],
        sh: &mut Shared,
    ) -> Transmit {
        self.cnps.on_sent();
        let bth = BthRepr::cnp(self.path.dest_qpn);
        match self.path.write(
            &bth,
            &ExtHeaders::NONE,
            (0, Treatment::Copy, &mut sh.lending),
            frame,
            |_| true,
        ) {
            Ok(meta) => {
                if let Some(dscp) = sh.config.cnp_dscp {
                    // The ICRC does not cover it.
                    spanwire_wire::set_dscp(frame, dscp);
                }
                sh.counters.np_cnp_sent += 1;
                qp.sent(meta, 0, sh)
            }
            Err(_) => Transmit::Idle,
        }
    }
}
