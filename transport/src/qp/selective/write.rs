//! How a packet of SR is written: headers, payload, ICRC.

use super::choose::{Choice, Limits, Sending, SendingKind};
use super::coder::Coder;
use super::{ACK_PKTS, Part, ReadPart, Selective, sender};
use crate::event::AsyncEvent;
use crate::mr::Access;
use crate::payload::PayloadMut;
use crate::qp::congestion::ack_interval;
use crate::qp::selective::feedback::outside_bytes;
use crate::qp::send::{ICRC_BYTES, NotWritten, copy_part};
use crate::qp::state::QpState;
use crate::qp::{QueuePair, Shared, Transmit};
use crate::schedule::Room;
use crate::stream::received::wrap;
use crate::wc::WcStatus;
use spanwire_base::{Time, TxMeta, u32_from};
use spanwire_loadbalance::Entropy;
use spanwire_wire::{
    BthRepr, ExtHeaders, NakCode, Opcode, Psn, Refusal, SrAckRepr, SrDataRepr, SrKind, int_request,
};

impl QueuePair {
    /// Writes the next packet with data, if one may leave.
    // Out of line: RC, which goes another way, would carry its registers and stack along.
    #[inline(never)]
    pub(in crate::qp) fn poll_sr(
        &mut self,
        now: Time,
        room: Room,
        frame: &mut [u8],
        sh: &mut Shared<'_>,
    ) -> Transmit {
        loop {
            let flow = self.flow.as_ref().map(|flow| flow.window_pkts());
            let window_pkts = flow.unwrap_or(u32::MAX).min(sh.config.qp_window_pkts);
            let limits = Limits {
                sends: self.state.sends(),
                begins: self.state == QpState::Rts,
                window_pkts,
                ack_interval_pkts: ack_interval(window_pkts, ACK_PKTS, flow.is_some()),
                room_pkts: room.pkts,
            };
            let Some(sr) = self.selective.as_deref_mut() else { return Transmit::Idle };
            let failed = self.state == QpState::Err && sr.is_proven();
            let waits_for_answers = sr.feedback.is_due() && !sr.owes_ack(self.state);
            let choice = match limits.sends || failed {
                true => sr.choose(now, &limits, self.flow.as_deref_mut()),
                false => Choice::Idle,
            };
            match choice {
                Choice::Send(sending) => {
                    if let Some(sent) = self.send_sr_data(now, &sending, frame, sh) {
                        return sent;
                    }
                }
                // They cannot leave before the peer has heard what is owed.
                Choice::Idle if waits_for_answers => return self.send_sr_ack(now, frame, sh),
                Choice::Idle => return Transmit::Idle,
                Choice::Blocked => return Transmit::Blocked,
                Choice::Paced(at) => return Transmit::Paced(at),
            }
        }
    }

    /// Writes a packet of our stream; `None` when that was not possible and something else is next.
    fn send_sr_data(
        &mut self,
        now: Time,
        sending: &Sending,
        frame: &mut [u8],
        sh: &mut Shared<'_>,
    ) -> Option<Transmit> {
        let sr = self.selective.as_deref_mut()?;
        let (mut header, len, solicited) = sr.header(now, sending)?;
        let is_new = sending.kind == SendingKind::New;
        // Taken out while the packet is written: it reads the payload where that was put.
        let mut coder = sr.coder.take();
        if let Some(coder) = coder.as_mut().filter(|_| is_new && sending.place.begins_block()) {
            sr.open_block(coder, sending);
        }
        header.path = sr.pick_path(now, sending, len, self.flow.as_deref_mut());
        let is_parity = sending.part == Part::Parity;
        let opcode = if is_parity { Opcode::SrParity } else { Opcode::SrData };
        let mut bth = self.bth(opcode, Psn::new(header.psn & Psn::MASK));
        (bth.ack_req, bth.solicited) = (sending.asks, solicited);
        let (pd, sr) = (self.pd, self.selective.as_deref()?);
        let adds = is_new && sending.place.is_coded() && !is_parity;
        let fill = |payload: PayloadMut<'_>| match (payload, &mut coder) {
            (PayloadMut::Bytes(out), Some(coder)) if is_parity && is_new => coder.copy_parity(out),
            (PayloadMut::Bytes(out), Some(coder)) if adds => {
                let is_there = sr.fill(&sending.part, PayloadMut::Bytes(&mut *out), pd, sh);
                coder.add(out);
                is_there
            }
            (payload, _) => sr.fill(&sending.part, payload, pd, sh),
        };
        let payload = (len, sh.config.elide_payload);
        let written = self.write_sr_data(&bth, &header, payload, frame, fill);
        self.selective.as_deref_mut()?.coder = coder;
        match written {
            Ok(mut meta) => {
                sh.counters.retransmitted_packets += u64::from(!is_new);
                sh.counters.ec_parity_packets += u64::from(is_parity && is_new);
                let sr = self.selective.as_deref_mut()?;
                if sr.int_hops > 0 {
                    // A port too narrow for it sends the packet all the same.
                    let asking = int_request(frame, meta.len, sr.int_hops);
                    meta.len = asking.unwrap_or(meta.len);
                }
                let frame_bytes = meta.len + spanwire_base::usize_from(meta.elided_bytes.into());
                let sent = (len, header.path);
                sr.on_sent(now, sending, sent, frame_bytes, self.flow.as_deref_mut());
                Some(self.sent(meta, len, sh))
            }
            Err(why) => {
                self.cannot_write(now, sending, &why, sh);
                None
            }
        }
    }

    /// The memory of a packet is gone, or the port is too narrow for it.
    fn cannot_write(
        &mut self,
        now: Time,
        sending: &Sending,
        why: &NotWritten,
        sh: &mut Shared<'_>,
    ) {
        let (status, code) = match why {
            NotWritten::NoPayload => (WcStatus::LocProtErr, NakCode::RemoteAccess),
            NotWritten::NoRoom => (WcStatus::LocQpOpErr, NakCode::RemoteOperational),
        };
        match (&sending.part, sending.kind) {
            (Part::Request(segment), _) => self.fail_message(segment.message, status, sh),
            (Part::Parity, _) => self.fail_with_event(status, sh),
            (Part::Read(part), SendingKind::Again) => {
                // The peer may have had this answer and have given the key back since. It says so,
                // or it fails.
                let refusal = Refusal { psn: part.asked_by, code };
                if let Some(sr) = self.selective.as_deref_mut() {
                    sr.feedback.refuse_again(refusal);
                    sr.on_sent(now, sending, (part.len, 0), 0, None);
                }
            }
            (part, _) => {
                let asked_by = match part {
                    Part::Read(part) => part.asked_by,
                    Part::Request(_) | Part::Atomic { .. } | Part::Parity => wrap(sending.number),
                };
                // If a later request was refused already, this takes the place of that: the peer
                // takes them in order.
                match self.state {
                    QpState::Err => self.say_refused(asked_by, code),
                    _ => self.refuse_message(asked_by, code, None, sh),
                }
                self.fail(sh);
            }
        }
    }

    pub(in crate::qp) fn send_sr_ack(
        &mut self,
        now: Time,
        frame: &mut [u8],
        sh: &mut Shared<'_>,
    ) -> Transmit {
        let reachable = self.responder.receive.reachable(sh.srqs);
        let outside = self.path.as_ref().map_or(0, |path| outside_bytes(path.template().ip()));
        let Some(sr) = self.selective.as_deref_mut() else { return Transmit::Idle };
        let Some(words) = sr.words_allowed(outside) else { return Transmit::Idle };
        let mut ack = sr.acknowledgement(now, reachable);
        ack.words.truncate(words);
        // What it weighs has come with the packet, but not among the bytes of IP that are counted
        // while the peer's address is unproven.
        let is_proven = sr.is_proven();
        sr.on_told(outside + ack.header_len());
        if let Some(srq) = self.responder.receive.srq()
            && sr.peer_may_wait()
        {
            sh.srqs.want(srq);
        }
        let told = self.selective.as_deref_mut().filter(|_| is_proven);
        let blocks = told.map(|sr| sr.rebuild.reports()).unwrap_or_default();
        let int = self.selective.as_deref().filter(|_| is_proven).map(|sr| sr.feedback.int());
        let ack = SrAckRepr { int: int.unwrap_or_default(), blocks, ..ack };
        let bth = self.bth(Opcode::SrAck, Psn::new(ack.next & Psn::MASK));
        let header_len = ack.header_len();
        let path = self.path.as_ref();
        let written = path.ok_or(NotWritten::NoRoom).and_then(|path| {
            let at = path
                .template()
                .emit(&bth, &ExtHeaders::NONE, header_len, frame)
                .map_err(|_| NotWritten::NoRoom)?;
            let end = at.end;
            ack.emit(&mut frame[at]).map_err(|_| NotWritten::NoRoom)?;
            Ok(end)
        });
        match written {
            Ok(end) => {
                let len = end + ICRC_BYTES;
                self.set_path(frame, ack.path);
                spanwire_wire::seal(frame, len);
                sh.counters.tx_acks += u64::from(ack.refusal.is_none());
                self.sent(TxMeta { len, elided_bytes: 0 }, 0, sh)
            }
            Err(_) => Transmit::Idle,
        }
    }

    /// Writes one packet with a payload of `payload.0` bytes that `fill` provides, left out if
    /// `payload.1` says so.
    fn write_sr_data(
        &self,
        bth: &BthRepr,
        header: &SrDataRepr,
        payload: (u32, bool),
        frame: &mut [u8],
        fill: impl FnOnce(PayloadMut<'_>) -> bool,
    ) -> Result<TxMeta, NotWritten> {
        let path = self.path.as_ref().ok_or(NotWritten::NoRoom)?;
        let (template, header_len) = (path.template(), header.header_len());
        let (len, elide) = payload;
        let whole = header_len + len as usize;
        let no_room = |_| NotWritten::NoRoom;
        let ext = &ExtHeaders::NONE;
        let (at, elided) = match elide && len > 0 {
            true => template.emit_elided(bth, ext, whole, header_len, frame).map_err(no_room)?,
            false => (template.emit(bth, ext, whole, frame).map_err(no_room)?, 0),
        };
        let pad = if elided > 0 { 0 } else { whole.wrapping_neg() % 4 };
        let icrc_at = at.end + pad;
        let (head, data) = frame[at].split_at_mut(header_len);
        header.emit(head).map_err(no_room)?;
        let data = if elided > 0 { PayloadMut::Elided(len) } else { PayloadMut::Bytes(data) };
        if !fill(data) {
            return Err(NotWritten::NoPayload);
        }
        let len = icrc_at + ICRC_BYTES;
        self.set_path(frame, header.path);
        spanwire_wire::seal(frame, len);
        Ok(TxMeta { len, elided_bytes: u32_from(elided) })
    }

    /// A packet takes the path of this source port, if it is one.
    #[inline]
    fn set_path(&self, frame: &mut [u8], port: u16) {
        let entropy = Entropy::from_port(port);
        if let Some(path) = self.path.as_ref().filter(|_| port == entropy.port()) {
            path.template().set_path(frame, port, entropy.flow_label());
        }
    }

    /// The queue pair fails for a packet that belongs to no request.
    fn fail_with_event(&mut self, status: WcStatus, sh: &mut Shared<'_>) {
        // One that has failed still answers what came before that, and is told of once.
        if self.state != QpState::Err {
            sh.events.push(AsyncEvent::QpFatal(self.qpn));
        }
        self.fail_oldest(status, sh);
    }
}

impl Selective {
    /// An acknowledgement is due and may leave. A refusal leaves behind the answers to what came
    /// before it.
    pub(in crate::qp) fn owes_ack(&self, state: QpState) -> bool {
        let answers_first = state == QpState::Err && self.is_proven() && self.answers.len() > 0;
        self.feedback.is_due() && !answers_first
    }

    /// The header of a packet, the bytes of its payload, and whether it is solicited.
    #[inline]
    fn header(&self, now: Time, sending: &Sending) -> Option<(SrDataRepr, u32, bool)> {
        let psn = wrap(sending.number);
        let mut solicited = false;
        let (mut header, len) = match &sending.part {
            Part::Request(segment) => {
                let header = self.sender.header(segment, psn)?;
                let carries = matches!(header.kind, SrKind::Send | SrKind::Write);
                solicited = self.sender.is_solicited(segment);
                (header, if carries { segment.len } else { 0 })
            }
            Part::Read(part) => (part.header(psn), part.len),
            Part::Parity => {
                let new = sending.kind == SendingKind::New;
                let coder = self.coder.as_ref().filter(|_| new);
                match coder.and_then(|coder| coder.parity_header(psn)) {
                    Some((header, is_solicited, len)) => {
                        solicited = is_solicited;
                        (header, len)
                    }
                    // Its bytes are gone: it gives its number up.
                    None => (SrDataRepr::new(SrKind::Send, psn, 0), 0),
                }
            }
            &Part::Atomic { answers, original } => {
                let plain = SrDataRepr::new(SrKind::AtomicResponse, psn, answers);
                let (answers, original) = (Some(answers), Some(original));
                (SrDataRepr { answers, original, ..plain }, 0)
            }
        };
        header.is_retransmission = sending.kind != SendingKind::New;
        header.sent_ps = now.as_ps();
        header.block = sending.place.repr();
        Some((header, len, solicited))
    }

    /// The first packet of a block is about to be written.
    #[inline(never)]
    fn open_block(&self, coder: &mut Coder, sending: &Sending) {
        let Some(block) = sending.place.repr() else { return };
        let psn = wrap(sending.number);
        let segment_bytes = self.segment_bytes;
        let of = |left: u32| left.min(u32::from(block.data) * segment_bytes);
        match &sending.part {
            Part::Request(segment) => {
                let bytes = of(self.sender.data_left(segment));
                let whole = sender::Segment { len: bytes, ..*segment };
                let solicited = self.sender.is_solicited(&whole);
                if let Some(header) = self.sender.header(&whole, psn) {
                    coder.open(block, (header, solicited), bytes, (false, segment_bytes));
                }
            }
            Part::Read(part) => {
                let bytes = of(part.left);
                let whole = ReadPart { len: bytes, last: bytes == part.left, ..*part };
                coder.open(block, (whole.header(psn), false), bytes, (true, segment_bytes));
            }
            Part::Atomic { .. } | Part::Parity => {}
        }
    }

    /// Copies the payload of a packet; false when its memory is gone.
    fn fill(
        &self,
        part: &Part,
        payload: PayloadMut<'_>,
        pd: crate::mr::PdId,
        sh: &Shared<'_>,
    ) -> bool {
        match part {
            Part::Request(segment) => match self.sender.inline(segment.message) {
                Some(bytes) => copy_part(bytes, segment.offset, payload),
                None => {
                    let sges = self.sender.sges(segment.message);
                    sh.mrs.gather(pd, sges, segment.offset, payload).is_ok()
                }
            },
            Part::Read(part) => {
                let need = Access::REMOTE_READ;
                part.len == 0
                    || sh
                        .mrs
                        .remote(pd, part.rkey, part.va, part.len, need)
                        .is_ok_and(|span| span.fetch(payload))
            }
            Part::Atomic { .. } | Part::Parity => true,
        }
    }

    /// All that there is to tell; the peer is told now. `reachable` receive requests are not used
    /// up.
    fn acknowledgement(&mut self, now: Time, reachable: u32) -> SrAckRepr<'static> {
        let receive_limit = self.inbound.first_receive().wrapping_add(reachable);
        self.told_receive_limit = receive_limit;
        let mut ack = SrAckRepr {
            next: wrap(self.received.next()),
            psn_limit: wrap(self.received.limit()),
            receive_limit,
            words: self.received.words(),
            ..SrAckRepr::default()
        };
        self.feedback.tell(now, &mut ack);
        ack
    }
}
