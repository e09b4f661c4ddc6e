//! What a packet of data changes: its bytes are placed, and what it completes is carried out.

use super::Selective;
use super::feedback::ip_bytes;
use super::inbound::{Arrived, Due, Ground, Objection};
use crate::drop::DropReason;
use crate::event::AsyncEvent;
use crate::payload::Payload;
use crate::qp::state::QpState;
use crate::qp::{QueuePair, Shared};
use crate::stream::received::{Arrival, unwrap, wrap};
use crate::wc::{WcOpcode, WcStatus};
use spanwire_base::{Time, u32_from};
use spanwire_wire::{
    AckReason, Ecn, NakCode, OpKind, Packet, Refusal, Service, SrDataRepr, SrKind, Syndrome,
};

impl QueuePair {
    /// Takes a packet. The bytes have passed the wire's checks.
    // Out of line: RC, which goes another way, would carry its registers and stack along.
    #[inline(never)]
    pub(in crate::qp) fn handle_sr_packet(
        &mut self,
        now: Time,
        p: &Packet<'_>,
        sh: &mut Shared<'_>,
    ) {
        let checked = self.check_packet(p, Service::Sr);
        if let (Ok(()) | Err(DropReason::QpNotReceiving), Some(sr)) = (checked, &mut self.selective)
        {
            sr.on_bytes(ip_bytes(p));
        }
        let taken = match (checked, p.bth.opcode.props().kind) {
            (Err(reason), _) => Err(reason),
            (Ok(()), OpKind::SrData | OpKind::SrParity) => self.on_sr_data(now, p, sh),
            (Ok(()), OpKind::SrAck) => self.on_sr_ack(now, p, sh).map(|()| 0),
            // A CNP. SR's ACKs carry the ECN counts, and a forger has to guess their PSNs.
            (Ok(()), _) => Err(DropReason::IgnoredCnp),
        };
        match taken {
            Ok(bytes) => {
                sh.counters.rx_packets += 1;
                sh.counters.rx_payload_bytes += u64::from(bytes);
                sh.counters.np_ecn_marked_roce_packets += u64::from(p.ip.ecn() == Ecn::Ce);
            }
            Err(reason) => {
                if let (DropReason::QpNotReceiving, Some(sr)) = (reason, &mut self.selective) {
                    sr.say_again(now);
                }
                sh.counters.drop(reason);
            }
        }
    }

    /// Returns the bytes of data.
    fn on_sr_data(
        &mut self,
        now: Time,
        p: &Packet<'_>,
        sh: &mut Shared<'_>,
    ) -> Result<u32, DropReason> {
        let (header, data) = parse(p)?;
        let sr = self.selective.as_deref_mut().ok_or(DropReason::WrongService)?;
        let lag = sr.lag();
        let number = match sr.received.judge(header.psn) {
            Arrival::Missing(number) => number,
            Arrival::Beyond => return Err(DropReason::BeyondPsnLimit),
            Arrival::Old => return Err(DropReason::OldPacket),
            Arrival::Duplicate => {
                sh.counters.duplicate_request += 1;
                sr.received.take_again(header.psn);
                if let Some(block) = &header.block {
                    sr.rebuild.on_again(unwrap(sr.received.next(), header.psn), block);
                }
                sr.feedback.on_data(now, p, &header, false, lag);
                sr.feedback.ask_again(now, lag);
                return Ok(data.len());
            }
        };
        if !std::mem::replace(&mut self.established, true) && self.state == QpState::Rtr {
            sh.events.push(AsyncEvent::CommEst(self.qpn));
        }
        let arrived = Arrived {
            number,
            in_order: number == sr.received.due(),
            header: &header,
            data,
            solicited: p.bth.solicited,
        };
        let is_parity = header.block.is_some_and(|block| block.is_parity());
        if !is_parity && !self.place(now, p, &arrived, sh)? {
            return Ok(data.len());
        }
        let Some(sr) = self.selective.as_deref_mut() else { return Ok(data.len()) };
        let leaves_or_closes_gap = number != sr.received.end();
        sh.counters.out_of_sequence += u64::from(number > sr.received.end());
        sr.received.take(number);
        sr.feedback.on_data(now, p, &header, leaves_or_closes_gap, lag);
        sr.feedback.on_in_order(number, p.bth.ack_req, sr.received.due());
        sh.counters.rx_messages += u64::from(!is_parity && is_whole_write(&header));
        if header.block.is_some() {
            self.on_block(now, &arrived, sh);
        }
        self.carry_out(sh);
        self.after_response(now, &header, sh);
        Ok(data.len())
    }

    /// Puts a packet's data where they belong. False when it is not taken, and all that follows
    /// from that is done.
    fn place(
        &mut self,
        now: Time,
        p: &Packet<'_>,
        arrived: &Arrived<'_>,
        sh: &mut Shared<'_>,
    ) -> Result<bool, DropReason> {
        let placed = self.put(arrived, sh)?;
        let header = arrived.header;
        let sr = self.selective.as_deref_mut().ok_or(DropReason::WrongService)?;
        let lag = sr.lag();
        match placed {
            Placed::Yes => return Ok(true),
            Placed::Failed => return Ok(false),
            Placed::No(Objection::NoReceive) => {
                sh.counters.out_of_buffer += 1;
                sr.feedback.on_data(now, p, header, false, lag);
                sr.feedback.on_no_receive();
            }
            // A wrong rkey ends the connection even ahead of a gap: if a try cost nothing, rkeys
            // could be guessed.
            Placed::No(Objection::Refused(code, _))
                if !arrived.in_order && code != NakCode::RemoteAccess =>
            {
                return Err(DropReason::RefusedAhead);
            }
            Placed::No(Objection::Refused(code, recv)) => {
                sr.feedback.on_data(now, p, header, false, lag);
                self.refuse_message(header.psn, code, recv, sh);
            }
        }
        Ok(false)
    }

    /// Puts data where they belong, if nothing speaks against it.
    pub(super) fn put(
        &mut self,
        arrived: &Arrived<'_>,
        sh: &mut Shared<'_>,
    ) -> Result<Placed, DropReason> {
        let (pd, access) = (self.pd, self.responder.access());
        let sr = self.selective.as_deref_mut().ok_or(DropReason::WrongService)?;
        let (mrs, srqs, events) = (&mut *sh.mrs, &mut *sh.srqs, &mut *sh.events);
        let receive = &mut self.responder.receive;
        let mut ground = Ground { mrs, srqs, events, receive, pd, access };
        if matches!(arrived.header.kind, SrKind::ReadResponse | SrKind::AtomicResponse) {
            if let Err(message) = sr.place_response(arrived, &ground)? {
                self.fail_message(message, WcStatus::LocProtErr, sh);
                return Ok(Placed::Failed);
            }
            return Ok(Placed::Yes);
        }
        let placed = sr.inbound.place(arrived, sr.answers.len(), &mut ground);
        Ok(placed.map_or_else(Placed::No, |()| Placed::Yes))
    }

    /// Does what has become due because everything before it has arrived.
    pub(super) fn carry_out(&mut self, sh: &mut Shared<'_>) {
        let (pd, access) = (self.pd, self.responder.access());
        while let Some(sr) = self.selective.as_deref_mut().filter(|_| self.state.receives()) {
            let (mrs, srqs, events) = (&mut *sh.mrs, &mut *sh.srqs, &mut *sh.events);
            let receive = &mut self.responder.receive;
            let mut ground = Ground { mrs, srqs, events, receive, pd, access };
            let next = sr.received.due();
            let Some((number, due)) = sr.inbound.next_due(next, &mut sr.answers, &mut ground)
            else {
                return;
            };
            match due {
                Due::ReadBegun => sh.counters.rx_read_requests += 1,
                Due::AtomicDone => sh.counters.rx_atomic_requests += 1,
                Due::Refused(code) => self.refuse_message(wrap(number), code, None, sh),
                Due::Deliver(message) => {
                    sh.counters.rx_messages += 1;
                    self.deliver(&message, sh);
                    if !self.state.receives() {
                        // Its completion is lost: the peer must not take the message for received.
                        sh.counters.tx_fatal_naks += 1;
                        self.say_refused(wrap(number), NakCode::RemoteOperational);
                    }
                }
            }
        }
    }

    /// Refuses a request of the peer and fails. With a status, the receive request that it would
    /// have used fails too.
    pub(super) fn refuse_message(
        &mut self,
        psn: u32,
        code: NakCode,
        recv: Option<WcStatus>,
        sh: &mut Shared<'_>,
    ) {
        sh.counters.tx_fatal_naks += 1;
        sh.events.push(self.refusal(Syndrome::Nak(code)));
        self.say_refused(psn, code);
        let rwqe = recv.and_then(|status| Some((self.responder.receive.pop(sh.srqs)?, status)));
        if let Some((rwqe, status)) = rwqe {
            self.complete(self.recv_cq, self.wc(rwqe.wr_id, status, WcOpcode::Recv), sh);
        }
        // What is owed for the requests before this one still goes out, then the refusal.
        self.enter_error(sh);
    }

    pub(super) fn say_refused(&mut self, psn: u32, code: NakCode) {
        if let Some(sr) = &mut self.selective {
            sr.feedback.refuse(Refusal { psn, code });
        }
    }

    /// A response may have been the last thing that its request waited for.
    pub(super) fn after_response(&mut self, now: Time, header: &SrDataRepr, sh: &mut Shared<'_>) {
        let Some(sr) = self.selective.as_deref_mut().filter(|_| header.answers.is_some()) else {
            return;
        };
        if sr.sent.is_empty() {
            // Whose requests have all arrived waits for nothing but answers.
            sr.timers.on_heard(now, Time::MAX, sr.sender.awaits_response());
        }
        self.finish_requests(None, sh);
    }
}

/// What became of data that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Placed {
    Yes,
    No(Objection),
    /// Our own memory was gone: its request has failed, and the queue pair.
    Failed,
}

/// The header of a packet of our peer's stream, and its payload.
fn parse<'a>(p: &Packet<'a>) -> Result<(SrDataRepr, Payload<'a>), DropReason> {
    let is_parity = p.bth.opcode.props().kind == OpKind::SrParity;
    let parsed = match is_parity {
        true => SrDataRepr::parse_parity(p.bth.psn.get(), p.payload),
        false => SrDataRepr::parse(p.bth.psn.get(), p.payload),
    };
    let (header, rest) = parsed.map_err(DropReason::Wire)?;
    let data = match p.elided_bytes {
        0 => Payload::Bytes(rest),
        n => Payload::Elided(u32_from(n + rest.len())),
    };
    // Blocks are of data: an empty packet of one is parity that is given up.
    let has_data = header.block_bytes.is_some() || !is_parity;
    if header.block.is_some() && has_data != (data.len() > 0) {
        return Err(DropReason::Wire(spanwire_wire::DropReason::SrKind));
    }
    Ok((header, data))
}

/// A message that nothing else tells of is here to its end.
pub(super) fn is_whole_write(header: &SrDataRepr) -> bool {
    header.kind == SrKind::Write && header.last && header.receive.is_none()
}

impl Selective {
    /// Puts a response's data where its request wants them. The inner error is the message whose
    /// own memory is gone.
    fn place_response(
        &mut self,
        a: &Arrived<'_>,
        g: &Ground<'_>,
    ) -> Result<Result<(), u32>, DropReason> {
        let header = a.header;
        let message = header.answers.ok_or(DropReason::ResponseToNothing)?;
        if !self.sender.awaits(message, header.kind) {
            return Err(DropReason::ResponseToNothing);
        }
        if !self.sender.takes(message, header.offset, a.data.len(), header.last) {
            return Err(DropReason::BadResponseLength);
        }
        // Verbs hand an atomic's word over as this machine's own.
        let word = header.original.unwrap_or_default().to_ne_bytes();
        let (data, answered) = match header.kind {
            SrKind::AtomicResponse => (Payload::Bytes(&word), 0),
            _ => (a.data, a.data.len()),
        };
        let sges = self.sender.sges(message);
        if g.mrs.scatter(g.pd, sges, header.offset, data).is_err() {
            return Ok(Err(message));
        }
        self.sender.answered(message, answered);
        Ok(Ok(()))
    }

    /// The peer has used, or tried to use, all the receive requests that it was told of.
    pub(super) fn peer_may_wait(&self) -> bool {
        self.inbound.has_reached(self.told_receive_limit)
    }

    /// A receive request was posted: a sender that may be waiting for it is told.
    pub(in crate::qp) fn on_receive_posted(&mut self) {
        if self.feedback.has_heard() && self.peer_may_wait() {
            self.feedback.ask(AckReason::Limit);
        }
    }

    /// The peer sends on after a refusal that it has not heard.
    fn say_again(&mut self, now: Time) {
        let lag = self.lag();
        if self.feedback.may_refuse_again() {
            self.feedback.ask_again(now, lag);
        }
    }
}
