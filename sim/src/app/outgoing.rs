//! The requester's end of a flow: posts its messages and verifies their completions.

use super::memory::{Memory, Slots};
use super::message::{Kind, Message, Plan};
use super::{RECV_BIT, WR_ID_SHIFT};
use spanwire_base::{Dur, Time, u32_from, u64_from, usize_from};
use spanwire_transport::{Endpoint, Wc, WcStatus, WorkRequest, WrOp};
use spanwire_wire::Qpn;
use std::collections::VecDeque;

/// The requester's end of a flow.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// The flow's place in the list of all.
    pub(crate) flow: u32,
    pub(crate) qpn: Qpn,
    pub(crate) plan: Plan,
    /// From then on it posts nothing more.
    pub(crate) stops_at: Option<Time>,
    /// Local buffers: sources of sends and WRITEs, targets of READs.
    pub(crate) local: Slots,
    pub(crate) peer: Peer,
    pub(crate) progress: Progress,
}

/// The responder's addresses and rkey, and its memory for comparison.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) memory: Memory,
    /// Targets of WRITEs.
    pub(crate) targets: Slots,
    /// Sources of READs.
    pub(crate) sources: Slots,
    /// The word that atomics increment.
    pub(crate) word: Slots,
}

/// Progress of a flow at its requester.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) started: Option<Time>,
    /// All messages are complete.
    pub(crate) finished: Option<Time>,
    /// The first completion with an error.
    pub(crate) failed: Option<WcStatus>,
    /// When it failed.
    pub(crate) failed_at: Option<Time>,
    /// The next message to post.
    next: u64,
    /// Outstanding messages with their post times, oldest first.
    pending: VecDeque<(u64, Message, Time)>,
    /// Latency of each signaled message, from post to completion.
    pub(crate) times: Vec<Dur>,
    /// Bytes of completed messages.
    pub(crate) done_bytes: u64,
    /// Completed atomics.
    atomics: u64,
    /// Atomics posted.
    atomics_posted: u64,
}

impl Outgoing {
    /// Starts the flow.
    pub(crate) fn start(&mut self, now: Time) {
        self.progress.started.get_or_insert(now);
    }

    /// Posts messages up to the limit of outstanding ones. `index` is this flow's place at its
    /// host.
    ///
    /// # Errors
    /// A post that should have succeeded failed.
    pub(crate) fn post(
        &mut self,
        now: Time,
        index: usize,
        memory: &Memory,
        endpoint: &mut Endpoint,
    ) -> Result<(), String> {
        let is_stopped = self.is_stopped(now);
        let may_post = self.progress.started.is_some() && self.progress.failed.is_none();
        while may_post
            && !is_stopped
            && self.progress.next < self.plan.count()
            && self.progress.pending.len() < self.plan.outstanding as usize
        {
            let i = self.progress.next;
            let message = self.plan.message(i);
            let wr_id = (u64_from(index) << WR_ID_SHIFT) | (i & WR_ID_MASK);
            self.post_one(wr_id, i, &message, memory, endpoint)
                .map_err(|e| format!("message {i} {message:?} is refused: {e}"))?;
            self.progress.next += 1;
            self.progress.pending.push_back((i, message, now));
        }
        Ok(())
    }

    fn post_one(
        &mut self,
        wr_id: u64,
        i: u64,
        message: &Message,
        memory: &Memory,
        endpoint: &mut Endpoint,
    ) -> Result<(), spanwire_transport::PostError> {
        let (local, seed) = (self.local.of(i), self.plan.pattern_seed(i));
        let imm = imm_of(i);
        let peer = &self.peer;
        let remote = |slots: &Slots| peer.memory.remote(slots.of(i));
        let word = self.progress.atomics_posted;
        let op = match message.kind {
            Kind::Write => WrOp::Write { remote: remote(&peer.targets) },
            Kind::WriteImm => WrOp::WriteImm { remote: remote(&peer.targets), imm },
            Kind::Send => WrOp::Send,
            Kind::SendImm => WrOp::SendImm { imm },
            Kind::Read => WrOp::Read { remote: remote(&peer.sources) },
            Kind::FetchAdd => WrOp::FetchAdd { remote: remote(&peer.word), add: 1 },
            Kind::CmpSwap => {
                WrOp::CmpSwap { remote: remote(&peer.word), compare: word, swap: word + 1 }
            }
        };
        match message.kind {
            Kind::Read => {
                // The source has the expected bytes; the target has others, so that a missing write
                // is detected.
                peer.memory.fill(peer.sources.of(i), seed, message.len);
                memory.fill(local, !seed, message.len);
            }
            kind if kind.is_atomic() => {
                memory.fill(local, !seed, message.len);
                self.progress.atomics_posted += 1;
            }
            _ => memory.fill(local, seed, message.len),
        }
        let pieces = if message.kind.is_atomic() { 1 } else { self.plan.sges };
        let sges = memory.sges(local, message.len, pieces);
        let data = message.inline.then(|| Memory::stream(seed, message.len));
        let wr = match &data {
            Some(bytes) => WorkRequest::inline(wr_id, op, bytes),
            None => WorkRequest::new(wr_id, op, &sges),
        };
        let &Message { signaled, solicited, fence, .. } = message;
        endpoint.post_send(self.qpn, &WorkRequest { signaled, solicited, fence, ..wr })
    }

    /// Checks a completion of this flow.
    ///
    /// # Errors
    /// The violation.
    pub(crate) fn complete(&mut self, now: Time, wc: &Wc, memory: &Memory) -> Result<(), String> {
        let low = wc.wr_id & WR_ID_MASK;
        let flushed = wc.status == WcStatus::WrFlushErr;
        loop {
            let Some((i, message, posted)) = self.progress.pending.pop_front() else {
                return Err(format!("a completion of a message that is not outstanding: {wc:?}"));
            };
            let is_it = i & WR_ID_MASK == low;
            if !is_it && (message.signaled || flushed) {
                return Err(format!("message {i} has no completion, but a later one has: {wc:?}"));
            }
            let succeeded = !is_it || wc.status == WcStatus::Success;
            if succeeded {
                self.check_done(i, &message, memory)?;
            }
            if is_it {
                self.check_completion(now, i, &message, wc)?;
                if succeeded {
                    self.progress.times.push(now.since(posted));
                }
                break;
            }
        }
        let is_last = self.progress.next == self.plan.count() || self.is_stopped(now);
        if is_last && self.progress.pending.is_empty() {
            let is_whole = self.progress.failed.is_none();
            self.progress.finished = is_whole.then_some(now);
        }
        Ok(())
    }

    fn is_stopped(&self, now: Time) -> bool {
        self.stops_at.is_some_and(|at| now >= at)
    }

    /// Checks that no completion is missing and that written bytes are intact.
    ///
    /// # Errors
    /// The first violation.
    pub(crate) fn check_end(&self) -> Result<(), String> {
        let (p, count) = (&self.progress, self.plan.count());
        if let Some((i, message, _)) = p.pending.front() {
            return Err(format!("message {i} never completed: {message:?}"));
        }
        if p.failed.is_some() || p.started.is_none() {
            return Ok(());
        }
        // A flow that stopped has posted whole messages, and not the last.
        let (count, bytes) = match self.stops_at {
            Some(_) if p.next < count => (p.next, p.next * u64::from(self.plan.message_bytes)),
            _ => (count, self.plan.total_bytes()),
        };
        if p.next != count || p.finished.is_none() {
            return Err(format!("only {} of {count} messages were posted", p.next));
        }
        if p.done_bytes != bytes {
            return Err(format!("{} of {bytes} bytes moved", p.done_bytes));
        }
        let last = count.saturating_sub(self.peer.targets.count().into());
        for i in last..count {
            self.check_written(i, &self.plan.message(i))?;
        }
        Ok(())
    }

    fn check_completion(
        &mut self,
        now: Time,
        i: u64,
        message: &Message,
        wc: &Wc,
    ) -> Result<(), String> {
        if wc.qpn != self.qpn || wc.opcode != message.kind.opcode() {
            return Err(format!("message {i} {message:?} completed as something else: {wc:?}"));
        }
        match (wc.status, self.progress.failed) {
            (WcStatus::Success, None) if message.signaled && wc.byte_len == message.len => Ok(()),
            (WcStatus::WrFlushErr, Some(_)) => Ok(()),
            (WcStatus::RetryExcErr | WcStatus::RnrRetryExcErr, None) => {
                self.progress.failed = Some(wc.status);
                self.progress.failed_at = Some(now);
                Ok(())
            }
            _ => Err(format!("message {i} {message:?} completed wrongly: {wc:?}")),
        }
    }

    /// Checks a completed message: its bytes must be in place.
    fn check_done(&mut self, i: u64, message: &Message, memory: &Memory) -> Result<(), String> {
        self.progress.done_bytes += u64::from(message.len);
        let (local, seed) = (self.local.of(i), self.plan.pattern_seed(i));
        match message.kind {
            Kind::Read => match memory.first_mismatch(local, seed, message.len) {
                Some(at) => {
                    Err(format!("READ {i} of {} bytes brought a wrong byte {at}", message.len))
                }
                None => Ok(()),
            },
            kind if kind.is_atomic() => {
                let (want, found) = (self.progress.atomics, memory.word(local));
                self.progress.atomics += 1;
                match memory.is_blank || want == found {
                    true => Ok(()),
                    false => Err(format!("atomic {i} found {found} where {want} must have been")),
                }
            }
            _ => self.check_written(i, message),
        }
    }

    fn check_written(&self, i: u64, message: &Message) -> Result<(), String> {
        if !message.kind.is_write() {
            return Ok(());
        }
        let (at, seed) = (self.peer.targets.of(i), self.plan.pattern_seed(i));
        match self.peer.memory.first_mismatch(at, seed, message.len) {
            Some(at) => Err(format!("WRITE {i} of {} bytes left a wrong byte {at}", message.len)),
            None => Ok(()),
        }
    }
}

/// Immediate data of message `i`, derived at both ends.
pub(crate) fn imm_of(i: u64) -> u32 {
    u32_from(usize_from(i & WR_ID_MASK))
}

/// Layout of `wr_id`: the flow's place at its host in the high bits, the message's low bits below.
const WR_ID_MASK: u64 = (1 << WR_ID_SHIFT) - 1;
const _: () = assert!(RECV_BIT > WR_ID_MASK, "the side has a bit of its own");
