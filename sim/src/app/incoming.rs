//! The responder's end of a flow: posts receive requests, checks what arrives.

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
    /// Where the peer's WRITEs go, its READs come from, and the word that its atomics count up.
    pub(crate) areas: [Slots; 3],
    /// Flows of this host, by their place there, that wait for this one.
    pub(crate) triggers: Vec<usize>,
    /// The queue pair gave its peer up: in SR who answers sends, too.
    pub(crate) failed_at: Option<Time>,
    /// Its last message has arrived.
    pub(crate) finished: Option<Time>,
    /// The next message that has not arrived, of those that use up a receive.
    pub(crate) next: u64,
    /// Bytes of messages that used up a receive.
    pub(crate) received_bytes: u64,
    /// When each of these was delivered.
    pub(crate) delivered: Vec<Time>,
}

/// Receive requests: of one flow, or of all through a shared queue.
#[derive(Debug)]
pub(crate) struct Recvs {
    pub(crate) slots: Slots,
    /// Receives that may still be posted: there are as many messages to come.
    pub(crate) left: u64,
    pub(crate) queue: Queue,
    /// Elements of each one's scatter list.
    pub(crate) sges: u32,
}

/// Where receive requests go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Queue {
    Own(Qpn),
    Shared(SrqId),
}

impl Recvs {
    /// Posts one more into the place `slot`, if any is left. `index` is its place at its host.
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
    /// Takes a receive completion; `slot` is where a SEND's bytes are.
    ///
    /// # Errors
    /// What is wrong with it.
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

    /// What must have arrived has.
    ///
    /// # Errors
    /// What has not.
    pub(crate) fn check_end(&self) -> Result<(), String> {
        match self.plan.next_received(self.next) {
            Some(i) => Err(format!("message {i} never arrived")),
            None => Ok(()),
        }
    }
}
