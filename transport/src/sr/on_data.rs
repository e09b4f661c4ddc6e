//! Received data packets: places their payload and executes the operations that are in order.

use super::Sr;
use super::number::{unwrap, wrap};
use super::rx::ack::Outer;
use super::rx::received::Arrival;
use super::rx::responder::{Context, InOrderAction, ReceivedPacket, Rejection};
use super::tx::timers::Outstanding;
use crate::drop::DropReason;
use crate::payload::Payload;
use crate::qp::common::{Common, Shared};
use crate::qp::fail::Fail;
use crate::qp::outcome::Message;
use crate::wc::{WcOpcode, WcStatus};
use spanwire_base::{Time, u32_from};
use spanwire_wire::{AckReason, NakCode, OpKind, Packet, SrDataRepr, SrKind, SrNak};

impl Sr {
    /// Processes a source or parity packet, which `outer` describes. Returns its payload bytes.
    ///
    /// # Errors
    /// The reason why the packet is dropped; it changes nothing then.
    pub(super) fn on_data(
        &mut self,
        qp: &mut Common,
        now: Time,
        (p, outer): (&Packet<'_>, &Outer<'_>),
        sh: &mut Shared,
    ) -> Result<u32, DropReason> {
        let (header, data) = parse(p)?;
        let rx = &mut self.rx;
        let number = match rx.received.classify(header.psn) {
            Arrival::Missing(number) => number,
            Arrival::Beyond => return Err(DropReason::BeyondPsnLimit),
            Arrival::Old => return Err(DropReason::OldPacket),
            Arrival::Duplicate => {
                sh.counters.duplicate_request += 1;
                rx.received.on_duplicate(header.psn);
                if let Some(block) = &header.block {
                    rx.decoder.on_duplicate(unwrap(rx.received.next(), header.psn), block);
                }
                self.on_numbered(qp, now, (outer, &header), false);
                self.rx.ack.request_ack_limited(now, self.tx.ack_delay());
                return Ok(data.len());
            }
        };
        let in_order = number == self.rx.received.data_next();
        let solicited = p.bth.solicited;
        let arrived = ReceivedPacket { number, in_order, header: &header, data, solicited };
        self.on_missing(qp, now, &arrived, outer, sh)?;
        Ok(data.len())
    }

    /// Processes a source or parity packet that has not arrived before.
    ///
    /// # Errors
    /// As [`Sr::on_data`].
    #[inline]
    fn on_missing(
        &mut self,
        qp: &mut Common,
        now: Time,
        arrived: &ReceivedPacket<'_>,
        outer: &Outer<'_>,
        sh: &mut Shared,
    ) -> Result<(), DropReason> {
        let &ReceivedPacket { number, header, .. } = arrived;
        qp.on_request_arrived(&mut sh.events);
        let is_parity = header.block.is_some_and(|block| block.is_parity());
        if !is_parity && !self.place_or_reject(qp, now, outer, arrived, sh)? {
            return Ok(());
        }
        let end = self.rx.received.end();
        sh.counters.out_of_sequence += u64::from(number > end);
        self.rx.received.insert(number);
        self.on_numbered(qp, now, (outer, header), number != end);
        let rx = &mut self.rx;
        if let Some(credit_loop) = &mut rx.credit_loop
            && !is_parity
            && credit_loop.on_data(now, qp.arrival.at, outer.trailer)
        {
            rx.ack.request_ack(AckReason::Time);
        }
        rx.ack.track_ack_req(number, outer.ack_req, rx.received.data_next());
        sh.counters.rx_messages += u64::from(!is_parity && ends_write(header));
        if header.block.is_some() {
            self.on_block(qp, now, arrived, sh);
        }
        self.execute_in_order(qp, sh);
        if header.response_to.is_some() {
            self.after_response(qp, now, sh);
        }
        Ok(())
    }

    /// Counts a packet for the next ACK.
    #[inline(never)]
    fn on_numbered(
        &mut self,
        qp: &Common,
        now: Time,
        (outer, header): (&Outer<'_>, &SrDataRepr),
        is_out_of_order: bool,
    ) {
        let (echoed, delay) = ((header.psn, header.path, header.sent_ps), self.tx.ack_delay());
        self.rx.ack.on_data((now, qp.arrival), outer, echoed, is_out_of_order, delay);
    }

    /// Places the data of a packet, or applies the effects of rejecting it. False if it is
    /// rejected.
    fn place_or_reject(
        &mut self,
        qp: &mut Common,
        now: Time,
        outer: &Outer<'_>,
        arrived: &ReceivedPacket<'_>,
        sh: &mut Shared,
    ) -> Result<bool, DropReason> {
        match self.place_data(qp, arrived, sh)? {
            Placed::Yes => Ok(true),
            Placed::Failed => Ok(false),
            Placed::No(rejection) => {
                self.reject_data(qp, now, outer, arrived, rejection, sh).map(|()| false)
            }
        }
    }

    #[cold]
    fn reject_data(
        &mut self,
        qp: &mut Common,
        now: Time,
        outer: &Outer<'_>,
        arrived: &ReceivedPacket<'_>,
        rejection: Rejection,
        sh: &mut Shared,
    ) -> Result<(), DropReason> {
        let header = arrived.header;
        match rejection {
            Rejection::NoReceive => {
                sh.counters.out_of_buffer += 1;
                self.on_numbered(qp, now, (outer, header), false);
                self.rx.ack.on_no_receive();
            }
            // A wrong rkey ends the connection even behind a gap. If it were dropped, an attacker
            // could guess rkeys at no cost.
            Rejection::Refused(code, _) if !arrived.in_order && code != NakCode::RemoteAccess => {
                return Err(DropReason::RefusedAhead);
            }
            Rejection::Refused(code, recv) => {
                self.on_numbered(qp, now, (outer, header), false);
                self.reject_message(qp, header.psn, code, recv, sh);
            }
        }
        Ok(())
    }

    /// Checks a request or response and places its data.
    pub(super) fn place_data(
        &mut self,
        qp: &mut Common,
        arrived: &ReceivedPacket<'_>,
        sh: &mut Shared,
    ) -> Result<Placed, DropReason> {
        if matches!(arrived.header.kind, SrKind::ReadResponse | SrKind::AtomicResponse) {
            let mrs = (qp.pd, &sh.mrs);
            if let Err(message) = self.tx.place_response(arrived.header, arrived.data, mrs)? {
                // Until all requests before it are complete, the response counts as lost.
                return match self.fail_in_order(qp, message, WcStatus::LocProtErr, sh) {
                    true => Ok(Placed::Failed),
                    false => Err(DropReason::RefusedAhead),
                };
            }
            return Ok(Placed::Yes);
        }
        let responding = self.tx.responding();
        let placed = self.rx.responder.place(arrived, responding, &mut Context::new(qp, sh));
        Ok(placed.map_or_else(Placed::No, |()| Placed::Yes))
    }

    /// Executes all operations whose preceding packets have arrived.
    pub(super) fn execute_in_order(&mut self, qp: &mut Common, sh: &mut Shared) {
        while qp.state.receives() {
            let next = self.rx.received.data_next();
            let action = self.rx.responder.next_in_order(next, &mut Context::new(qp, sh));
            let Some((number, action)) = action else { return };
            match action {
                InOrderAction::Read(read) => {
                    self.tx.responses.begin_read(read);
                    sh.counters.rx_read_requests += 1;
                }
                InOrderAction::Atomic(atomic) => {
                    self.tx.responses.begin_atomic(atomic);
                    sh.counters.rx_atomic_requests += 1;
                }
                InOrderAction::Refused(code) => {
                    self.reject_message(qp, wrap(number), code, None, sh);
                }
                InOrderAction::Deliver(message) => self.deliver(qp, number, &message, sh),
            }
        }
    }

    /// Delivers a message whose last packet is `number`.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        qp: &mut Common,
        number: u64,
        message: &Message,
        sh: &mut Shared,
    ) {
        sh.counters.rx_messages += 1;
        if qp.deliver(message, sh).is_err() {
            self.fail(qp, sh);
            // The completion was lost, so the message must not be acknowledged.
            sh.counters.tx_fatal_naks += 1;
            let code = NakCode::RemoteOperational;
            self.rx.ack.nak(SrNak { psn: wrap(number), code });
        }
    }

    /// Rejects a request of the peer and fails the queue pair. If there is a status, the oldest
    /// receive request fails with it.
    pub(super) fn reject_message(
        &mut self,
        qp: &mut Common,
        psn: u32,
        code: NakCode,
        recv: Option<WcStatus>,
        sh: &mut Shared,
    ) {
        sh.counters.tx_fatal_naks += 1;
        sh.events.push(qp.nak_event(code));
        self.rx.ack.nak(SrNak { psn, code });
        let rwqe = recv.and_then(|status| Some((qp.receive.pop(&mut sh.srqs)?, status)));
        if let Some((rwqe, status)) = rwqe {
            let wc = qp.wc(rwqe.wr_id, status, WcOpcode::Recv);
            let completed = qp.complete(qp.recv_cq, wc, sh);
            self.fail_if_overrun(qp, completed, sh);
        }
        // Responses to earlier requests are sent first, then the NAK.
        self.enter_error(qp, sh);
    }

    /// Completes requests after a response.
    pub(super) fn after_response(&mut self, qp: &mut Common, now: Time, sh: &mut Shared) {
        if self.tx.sent.is_empty() {
            // All requests are acknowledged; only responses are outstanding.
            let outstanding = match self.tx.requester.awaits_response() {
                true => Outstanding::Something,
                false => Outstanding::Nothing,
            };
            self.tx.timers.on_feedback(now, Time::MAX, outstanding);
        }
        self.finish_requests(qp, None, sh);
    }
}

/// The result of placing a packet's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Placed {
    Yes,
    No(Rejection),
    /// The requester's own memory is no longer registered: its request and the queue pair failed.
    Failed,
}

/// The header and payload of a source or parity packet.
#[inline]
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
    // A source packet of a block is never empty. An empty parity packet reports that its sender no
    // longer has the parity.
    let has_data = header.block_bytes.is_some() || !is_parity;
    if header.block.is_some() && has_data != (data.len() > 0) {
        return Err(DropReason::Wire(spanwire_wire::DropReason::SrKind));
    }
    Ok((header, data))
}

/// The packet is the last of an RDMA WRITE that uses no receive request. Such a message is counted
/// here, because nothing else reports its arrival.
pub(super) fn ends_write(header: &SrDataRepr) -> bool {
    header.kind == SrKind::Write && header.last && header.receive.is_none()
}
