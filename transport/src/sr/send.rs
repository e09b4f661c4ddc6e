//! Transmission of SR packets: source packets, parity and ACKs.

use super::Sr;
use super::number::wrap;
use super::rx::ack::outside_bytes;
use super::tx::ACK_PKTS;
use super::tx::plan::{Contents, PlannedPacket, TransmissionKind};
use super::tx::schedule::{Choice, Limits};
use crate::event::AsyncEvent;
use crate::lending::{ICRC_BYTES, clear_icrc};
use crate::qp::common::{Common, Shared, Transmit};
use crate::qp::congestion::ack_interval;
use crate::qp::fail::Fail;
use crate::qp::state::QpState;
use crate::qp::write::NotWritten;
use crate::schedule::WindowSpace;
use crate::wc::WcStatus;
use spanwire_base::{Time, TxMeta};
use spanwire_loadbalance::Entropy;
use spanwire_wire::{IntRecords, NakCode, Opcode, PlainBth, Psn, SrNak, Template};

impl Sr {
    /// Writes the next source or parity packet, if one may be sent.
    // Not inlined: RC's path would have to save registers and stack for this function too.
    #[inline(never)]
    pub(crate) fn poll_transmit(
        &mut self,
        qp: &mut Common,
        now: Time,
        space: WindowSpace,
        frame: &mut [u8],
        sh: &mut Shared,
    ) -> Transmit {
        if let Some(path_mtu) = &qp.path_mtu {
            self.tx.limit_segments(path_mtu.segment_bytes(now));
        }
        if sh.config.fast_paths
            && self.tx.is_at_plain()
            && let Some(sent) = self.send_plain(qp, now, space, frame, sh)
        {
            return sent;
        }
        loop {
            let limits = self.limits(qp, space, sh);
            let failed = qp.state == QpState::Err && self.rx.is_peer_valid();
            let nak_pending = self.rx.ack.is_due() && !self.is_ack_due(qp.state);
            let choice = match limits.sends_requests || failed {
                true => self.tx.choose(now, &limits, qp.flow.as_deref_mut()),
                false => Choice::Idle,
            };
            match choice {
                Choice::Send(planned) => {
                    if let Some(sent) = self.send_data(qp, now, &planned, frame, sh) {
                        return sent;
                    }
                }
                // A NAK normally follows the responses to all earlier requests. These responses are
                // blocked until the peer receives an ACK, and the NAK's packet carries that ACK.
                // The NAK therefore leaves first.
                Choice::Idle if nak_pending => return self.send_ack(qp, now, frame, sh),
                Choice::Idle => return Transmit::Idle,
                Choice::NoSpace => return Transmit::Blocked,
                Choice::Paced(at) => return Transmit::Paced(at),
            }
        }
    }

    /// The limits on the next packet.
    #[inline]
    pub(super) fn limits(&self, qp: &Common, space: WindowSpace, sh: &Shared) -> Limits {
        let (cwnd_pkts, receive_pkts) = match &qp.flow {
            Some(flow) => (self.tx.window_pkts(flow), flow.receive_pkts()),
            None => (u32::MAX, u32::MAX),
        };
        let window_pkts = cwnd_pkts.min(sh.config.qp_window_pkts).min(receive_pkts);
        Limits {
            sends_requests: qp.state.sends(),
            begins_requests: qp.state == QpState::Rts,
            window_pkts,
            cwnd_pkts,
            ack_interval_pkts: ack_interval(window_pkts, ACK_PKTS, qp.flow.is_some()),
            space_pkts: space.pkts,
        }
    }

    /// Writes a packet. `None` if it cannot be written; the caller chooses another one.
    fn send_data(
        &mut self,
        qp: &mut Common,
        now: Time,
        planned: &PlannedPacket,
        frame: &mut [u8],
        sh: &mut Shared,
    ) -> Option<Transmit> {
        let (mut header, len, solicited) = self.tx.header(now, planned)?;
        self.tx.begin_block_of(planned);
        let picked = self.tx.pick_path(now, planned, len, qp.flow.as_deref_mut());
        // Without a load balancer, echo the entropy of the peer's newest packet.
        let path = picked.unwrap_or_else(|| self.rx.ack.echoed_path());
        header.path = path;
        let is_new = planned.kind == TransmissionKind::First;
        let is_parity = planned.contents == Contents::Parity;
        let opcode = if is_parity { Opcode::SrParity } else { Opcode::SrData };
        let bth = PlainBth {
            ack_req: planned.requests_ack,
            solicited,
            ..PlainBth::new(opcode, self.path.dest_qpn, Psn::new(header.psn & Psn::MASK))
        };
        let may_lend = is_new && !is_parity && planned.position.is_none();
        let treatment = sh.lending.treatment(len, sh.config.elide_payload, may_lend);
        let (tx, mrs, header_len) = (&mut self.tx, (qp.pd, &sh.mrs), header.header_len());
        let draft = self.path.begin(bth, (header_len, len), treatment, frame);
        let written = draft.and_then(|draft| {
            let (head, data) = frame[draft.at.clone()].split_at_mut(header_len);
            if !tx.fill(planned, sh.lending.place(treatment, data, len), mrs) {
                return Err(NotWritten::NoPayload);
            }
            header.is_retransmission = tx.is_marked(planned);
            header.emit(head).map_err(|_| NotWritten::NoRoom)?;
            set_path(self.path.template(), frame, header.path);
            let (path, lending) = ((&mut self.path, qp.has_icrc), &mut sh.lending);
            Ok(draft.seal(path, header_len, (treatment, lending), frame))
        });
        match written {
            Ok(mut meta) => {
                sh.counters.retransmitted_packets += u64::from(!is_new);
                sh.counters.ec_parity_packets += u64::from(is_parity && is_new);
                if self.tx.int.hops > 0 {
                    // If the frame has no room for telemetry, the packet is sent without it.
                    meta.len = self.tx.int.append(frame, meta.len, !is_parity);
                }
                let frame_bytes = meta.len + spanwire_base::usize_from(meta.elided_bytes.into());
                let sent = (len, path);
                qp.on_path_sent(now, (planned.number, len, is_new), &mut meta);
                self.tx.on_sent(now, planned, sent, frame_bytes, qp.flow.as_deref_mut());
                Some(qp.sent(meta, len, sh))
            }
            Err(why) => self.cannot_write(qp, now, planned, &why, sh),
        }
    }

    /// Handles a packet whose memory is not registered, or that exceeds the port's frame. `None` if
    /// another packet may be chosen.
    #[cold]
    fn cannot_write(
        &mut self,
        qp: &mut Common,
        now: Time,
        planned: &PlannedPacket,
        why: &NotWritten,
        sh: &mut Shared,
    ) -> Option<Transmit> {
        let (status, code) = match why {
            NotWritten::NoPayload => (WcStatus::LocProtErr, NakCode::RemoteAccess),
            NotWritten::NoRoom => (WcStatus::LocQpOpErr, NakCode::RemoteOperational),
        };
        match (&planned.contents, planned.kind) {
            (Contents::Request(segment), _) => {
                if !self.fail_in_order(qp, segment.message, status, sh)
                    && !self.tx.postpone(now, planned)
                {
                    return Some(Transmit::Idle);
                }
            }
            (Contents::Parity, _) => self.fail_with_event(qp, status, sh),
            (Contents::Read(segment), TransmissionKind::Retransmission) => {
                // The peer may have received this response and invalidated the rkey since. If so,
                // it acknowledges the response; otherwise its request fails.
                self.rx.ack.nak_once(SrNak { psn: segment.request_psn, code });
                self.tx.on_sent(now, planned, (segment.len, 0), 0, None);
            }
            (contents, _) => {
                let request_psn = match contents {
                    Contents::Read(segment) => segment.request_psn,
                    _ => wrap(planned.number),
                };
                // This NAK replaces that of a later request, because the peer processes
                // NAKs in the order of its requests.
                match qp.state {
                    QpState::Err => self.rx.ack.nak(SrNak { psn: request_psn, code }),
                    _ => self.reject_message(qp, request_psn, code, None, sh),
                }
                self.fail(qp, sh);
            }
        }
        None
    }

    /// Writes the ACK that is due.
    pub(crate) fn send_ack(
        &mut self,
        qp: &mut Common,
        now: Time,
        frame: &mut [u8],
        sh: &mut Shared,
    ) -> Transmit {
        let reachable = qp.receive.reachable(&sh.srqs);
        let outside = outside_bytes(self.path.template().ip());
        let Some(words) = self.rx.sack_words_allowed(outside) else { return Transmit::Idle };
        let mut ack = self.rx.acknowledgement(now, reachable);
        ack.words.truncate(words);
        self.rx.on_ack_sent(outside + ack.header_len());
        if let Some(srq) = qp.receive.srq()
            && self.rx.peer_may_lack_credit()
        {
            sh.srqs.request_credit_update(srq);
        }
        ack.blocks = self.rx.block_reports();
        ack.credit = self.rx.credit();
        // Telemetry is not part of the IP bytes that limit ACKs to an unvalidated peer.
        ack.int = if self.rx.is_peer_valid() { self.rx.ack.int() } else { IntRecords::NONE };
        let bth = PlainBth::new(Opcode::SrAck, self.path.dest_qpn, Psn::new(ack.next & Psn::MASK));
        let (has_icrc, len) = (qp.has_icrc, ack.header_len());
        let template = self.path.template_mut();
        let Ok((at, _)) = template.emit_plain(bth, len, len, frame) else { return Transmit::Idle };
        let len = at.end + ICRC_BYTES;
        if ack.emit(&mut frame[at]).is_err() {
            return Transmit::Idle;
        }
        set_path(template, frame, ack.path);
        match has_icrc {
            true => template.seal(frame, len),
            false => clear_icrc(frame, len),
        }
        sh.counters.tx_acks += u64::from(ack.nak.is_none());
        qp.sent(TxMeta::whole(len), 0, sh)
    }

    /// Fails the queue pair because of a packet that belongs to no request.
    fn fail_with_event(&mut self, qp: &mut Common, status: WcStatus, sh: &mut Shared) {
        // A failed queue pair still sends earlier responses; the event is raised once.
        if qp.state != QpState::Err {
            sh.events.push(AsyncEvent::QpFatal(qp.qpn));
        }
        self.fail_oldest(qp, status, sh);
    }
}

/// Sets the entropy of a packet to this source port, if the port is a valid entropy.
#[inline]
pub(super) fn set_path(template: &Template, frame: &mut [u8], port: u16) {
    let entropy = Entropy::from_port(port);
    if port == entropy.port() {
        template.set_path(frame, port, entropy.flow_label());
    }
}
