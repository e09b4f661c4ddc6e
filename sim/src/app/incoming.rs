//! The responder's end of a flow: posts receive requests and verifies what arrives.

use super::RECV_BIT;
use super::memory::{Memory, Slots};
use super::message::{Kind, Plan};
use super::outgoing::imm_of;
use spanwire_base::{Time, u64_from};
use spanwire_transport::{Endpoint, PostError, RecvRequest, SrqId, Wc, WcOpcode, WcStatus};
use spanwire_wire::Qpn;

/// The responder's end of a flow.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// The flow's place in the list of all.
    pub(crate) flow: u32,
    pub(crate) qpn: Qpn,
    pub(crate) plan: Plan,
    /// Targets of the peer's WRITEs, sources of its READs, and the word that its atomics increment.
    pub(crate) areas: [Slots; 3],
    /// Outgoing flows of this host that start when this one has arrived, by their places.
    pub(crate) triggers: Vec<usize>,
    /// When the queue pair failed: an SR responder also transmits, so it can exceed its retry
    /// limit.
    pub(crate) failed_at: Option<Time>,
    /// The requester may stop before the last message.
    pub(crate) may_stop: bool,
    /// Its last message has arrived.
    pub(crate) finished: Option<Time>,
    /// Index of the next expected message that consumes a receive.
    pub(crate) next: u64,
    /// Bytes received in messages that consumed a receive.
    pub(crate) received_bytes: u64,
    /// Delivery time of each of these messages.
    pub(crate) delivered: Vec<Time>,
}

/// Receive requests of one flow, or of all flows that share a receive queue.
#[derive(Debug)]
pub(crate) struct Recvs {
    pub(crate) slots: Slots,
    /// Receives still to be posted: one for each message to come.
    pub(crate) left: u64,
    pub(crate) queue: Queue,
    /// Elements of each scatter list.
    pub(crate) sges: u32,
}

/// The queue to which receive requests are posted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Queue {
    Own(Qpn),
    Shared(SrqId),
}

impl Recvs {
    /// Posts a receive into the place `slot`, if any is left. `index` is its place at its host.
    pub(crate) fn post(
        &mut self,
        index: usize,
        slot: u64,
        memory: &Memory,
        endpoint: &mut Endpoint,
    ) -> Result<(), PostError> {
        if self.left == 0 {
            return Ok(());
        }
        let sges = memory.sges(self.slots.of(slot), self.slots.bytes(), self.sges);
        let sges = if self.slots.bytes() == 0 { &[][..] } else { &sges[..] };
        let wr_id = RECV_BIT | (u64_from(index) << super::WR_ID_SHIFT) | slot;
        let wr = RecvRequest { wr_id, sges };
        match self.queue {
            Queue::Own(qpn) => endpoint.post_recv(qpn, &wr)?,
            Queue::Shared(srq) => endpoint.post_srq_recv(srq, &wr)?,
        }
        self.left -= 1;
        Ok(())
    }
}

impl Incoming {
    /// Checks a receive completion; `slot` holds the bytes of a SEND.
    ///
    /// # Errors
    /// The violation.
    pub(crate) fn receive(
        &mut self,
        now: Time,
        wc: &Wc,
        slot: u64,
        memory: &Memory,
    ) -> Result<(), String> {
        let Some(i) = self.plan.next_received(self.next) else {
            return Err(format!("a receive completed after the last message: {wc:?}"));
        };
        let message = self.plan.message(i);
        let (opcode, at) = match message.kind {
            Kind::WriteImm => (WcOpcode::RecvRdmaWithImm, self.areas[0].of(i)),
            _ => (WcOpcode::Recv, slot),
        };
        let imm = message.kind.has_imm().then(|| imm_of(i));
        let found = (wc.status, wc.opcode, wc.byte_len, wc.imm, wc.solicited);
        let want = (WcStatus::Success, opcode, message.len, imm, message.solicited);
        if found != want || wc.qpn != self.qpn {
            return Err(format!("message {i} {message:?} arrived as {wc:?}"));
        }
        if let Some(byte) = memory.first_mismatch(at, self.plan.pattern_seed(i), message.len) {
            return Err(format!("message {i} {message:?} arrived with a wrong byte {byte}"));
        }
        self.next = i + 1;
        self.received_bytes += u64::from(message.len);
        self.delivered.push(now);
        if self.next == self.plan.count() {
            self.finished = Some(now);
        }
        Ok(())
    }

    /// Checks that every expected message has arrived.
    ///
    /// # Errors
    /// The first that has not.
    pub(crate) fn check_end(&self) -> Result<(), String> {
        match self.plan.next_received(self.next) {
            Some(i) if !self.may_stop => Err(format!("message {i} never arrived")),
            _ => Ok(()),
        }
    }
}
