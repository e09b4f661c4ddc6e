//! One connection as the worker sees it: a queue pair, two rings, and when to say what. No I/O and
//! no clock; the bytes are the applications' to copy.
//!
//! [`Opening`] is a channel that does not know its peer yet. A [`Channel`] is told when completions
//! came ([`Channel::handle_completions`]), when its application did something
//! ([`Channel::handle_news`]), and when the side connection ended ([`Channel::handle_peer_left`]);
//! each says how it stands afterwards.

mod objects;
mod opening;

pub(crate) use opening::{Local, Opening, Rings};

use crate::error::Cause;
use crate::imm::Control;
use crate::incoming::{Incoming, Taken};
use crate::outgoing::{Fragment, Outgoing};
use crate::shared::{Milestone, Shared};
use objects::Objects;
use spanwire_transport::{
    AsyncEvent, CqId, Endpoint, MemoryRegion, PostError, RecvRequest, RemoteAddr, Sge, Wc,
    WcOpcode, WcStatus, WorkRequest, WrOp,
};
use spanwire_wire::Qpn;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A connected channel.
#[derive(Debug)]
pub(crate) struct Channel {
    shared: Arc<Shared>,
    objects: Objects,
    theirs: RemoteAddr,
    out: Outgoing,
    inn: Incoming,
    /// Control messages that were not acknowledged yet.
    controls: u32,
    finish_said: bool,
    drained_said: bool,
    /// Requests came back because the queue pair failed.
    flushed: bool,
}

/// How a channel stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    Open,
    /// Everything was delivered both ways, and both ends know it.
    Done,
    Lost(Cause),
}

impl Channel {
    /// The queue pair.
    pub(crate) fn qpn(&self) -> Qpn {
        self.objects.qpn
    }

    /// Where its completions are.
    pub(crate) fn cq(&self) -> CqId {
        self.objects.cq
    }

    /// What it shares with its application.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// An event of the queue pair: the reason for a failure that no completion tells.
    pub(crate) fn handle_event(event: AsyncEvent) -> Standing {
        match event {
            AsyncEvent::QpAccessErr(_) => lost("it wrote where it may not"),
            AsyncEvent::QpReqErr(_) => lost("it made an impossible request"),
            AsyncEvent::QpFatal(_) => Standing::Lost(Cause::QueuePair(WcStatus::LocQpOpErr)),
            _ => Standing::Open,
        }
    }

    /// Takes what has completed, and says what follows from it.
    pub(crate) fn handle_completions(&mut self, endpoint: &mut Endpoint) -> Standing {
        loop {
            match endpoint.poll_cq(self.objects.cq) {
                Ok(Some(wc)) => {
                    if let Err(cause) = self.on_completion(&wc, endpoint) {
                        return Standing::Lost(cause);
                    }
                }
                Ok(None) if self.flushed => {
                    return Standing::Lost(Cause::QueuePair(WcStatus::WrFlushErr));
                }
                Ok(None) => break,
                Err(_) => return Standing::Lost(Cause::QueuePair(WcStatus::LocQpOpErr)),
            }
        }
        self.handle_news(endpoint)
    }

    /// Looks at what the application did, and says what is to be said.
    pub(crate) fn handle_news(&mut self, endpoint: &mut Endpoint) -> Standing {
        if self.shared.has(Milestone::Aborted) {
            let cause = self.shared.cause().cloned();
            return Standing::Lost(cause.unwrap_or_else(|| Cause::Aborted("no reason".into())));
        }
        if self.shared.has(Milestone::Deaf) && !self.shared.arrived.is_empty() {
            let why = "it was closed before everything that came was taken";
            return Standing::Lost(Cause::Aborted(why.into()));
        }
        match self.say(endpoint) {
            Err(e) => Standing::Lost(Cause::NetworkGone(format!("a request was not taken: {e}"))),
            Ok(()) if self.is_done() => Standing::Done,
            Ok(()) => Standing::Open,
        }
    }

    /// The side connection ended, with or without a reason.
    pub(crate) fn handle_peer_left(&mut self, why: Option<String>) -> Standing {
        let all_came = self.drained_said;
        let all_went = self.shared.has(Milestone::Drained)
            || self.out.is_all_taken() && self.out.is_empty(&self.shared);
        match why {
            Some(why) => Standing::Lost(Cause::PeerAborted(why)),
            None if all_came && all_went => {
                self.shared.set(Milestone::Drained);
                Standing::Done
            }
            None => Standing::Lost(Cause::PeerGone("its side connection closed")),
        }
    }

    /// Lets go of the connection and takes everything from the endpoint.
    pub(crate) fn close(&self, endpoint: &mut Endpoint, cause: Cause) {
        self.shared.set(Milestone::Gone);
        self.shared.fail(cause);
        self.objects.remove(endpoint);
    }

    fn on_completion(&mut self, wc: &Wc, endpoint: &mut Endpoint) -> Result<(), Cause> {
        match wc.status {
            WcStatus::Success => {}
            // What failed comes before what was flushed for it, or is told by an event.
            WcStatus::WrFlushErr => {
                self.flushed = true;
                return Ok(());
            }
            status => return Err(status.into()),
        }
        match wc.opcode {
            WcOpcode::RdmaWrite => {
                if self.out.on_acknowledged(&self.shared) {
                    self.shared.sendable.raise();
                }
                return Ok(());
            }
            WcOpcode::Send => {
                self.controls -= 1;
                return Ok(());
            }
            _ => {}
        }
        // A failed queue pair takes none; its completions say so.
        let _ = endpoint.post_recv(self.objects.qpn, &NOTHING);
        let imm = wc.imm.ok_or(Cause::Protocol("a message without immediate data"))?;
        match wc.opcode {
            WcOpcode::RecvRdmaWithImm => self.on_fragment(imm, wc.byte_len),
            _ => self.on_control(imm),
        }
        .map_err(Cause::Protocol)
    }

    fn on_fragment(&mut self, imm: u32, bytes: u32) -> Result<(), &'static str> {
        if let Some(arrived) = self.inn.on_fragment(imm, bytes, self.taken())? {
            // As many places as fragments may be untaken, which was just checked.
            self.shared.arrived.push(arrived).map_err(|_| "more than there was credit for")?;
            self.shared.receivable.raise();
        }
        Ok(())
    }

    fn on_control(&mut self, imm: u32) -> Result<(), &'static str> {
        let freed = match Control::parse(imm).ok_or("a word that means nothing")? {
            Control::Credit(count) => self.out.on_credit(&self.shared, count)?,
            Control::Finish(fragments) => {
                self.inn.on_finish(fragments)?;
                self.shared.set(Milestone::PeerFinished);
                self.shared.receivable.raise();
                false
            }
            Control::Drained if self.finish_said => {
                self.out.on_drained(&self.shared);
                self.shared.set(Milestone::Drained);
                true
            }
            Control::Drained => return Err("an answer to an end that was not said"),
        };
        if freed {
            self.shared.sendable.raise();
        }
        Ok(())
    }

    /// Posts what may leave: fragments, credit, and the two words of an end.
    fn say(&mut self, endpoint: &mut Endpoint) -> Result<(), PostError> {
        // Before the fragments are counted: none comes after it.
        let is_finished = self.shared.has(Milestone::Finished);
        while let Some(fragment) = self.out.next(&self.shared, is_finished) {
            self.post(endpoint, fragment)?;
        }
        let taken = self.taken();
        if self.controls < CREDITS_MAX
            && let Some(count) = self.inn.credit(taken, is_finished)
        {
            self.post_control(endpoint, Control::credit(count))?;
        }
        if is_finished && !self.finish_said && self.out.is_empty(&self.shared) {
            self.finish_said = true;
            self.post_control(endpoint, Control::finish(self.out.posted()))?;
        }
        if !self.drained_said && self.inn.is_drained(taken) {
            self.drained_said = true;
            self.post_control(endpoint, Control::Drained)?;
        }
        Ok(())
    }

    fn post(&self, endpoint: &mut Endpoint, fragment: Fragment) -> Result<(), PostError> {
        let Fragment { offset, bytes, imm } = fragment;
        let MemoryRegion { addr, lkey, .. } = self.objects.send_mr;
        let sge = Sge { addr: addr + offset, len: bytes, lkey };
        let remote = RemoteAddr { va: self.theirs.va.wrapping_add(offset), ..self.theirs };
        let sges = std::slice::from_ref(&sge);
        let op = WrOp::WriteImm { remote, imm };
        endpoint.post_send(self.objects.qpn, &WorkRequest::new(0, op, sges))
    }

    fn post_control(&mut self, endpoint: &mut Endpoint, say: Control) -> Result<(), PostError> {
        self.controls += 1;
        let op = WrOp::SendImm { imm: say.emit() };
        endpoint.post_send(self.objects.qpn, &WorkRequest::new(0, op, &[]))
    }

    /// Everything was delivered, and the other end knows it. One whose application takes no more
    /// has nothing to wait for: what the other end may still want to send, nobody would take.
    fn is_done(&self) -> bool {
        let all_came = self.drained_said
            || self.shared.has(Milestone::Deaf) && self.inn.is_all_told(self.taken());
        self.shared.has(Milestone::Drained) && all_came && self.controls == 0
    }

    fn taken(&self) -> Taken {
        Taken {
            fragments: self.shared.taken.load(Ordering::SeqCst),
            bytes: self.shared.taken_bytes.load(Ordering::SeqCst),
        }
    }
}

fn lost(what: &'static str) -> Standing {
    Standing::Lost(Cause::Protocol(what))
}

const NOTHING: RecvRequest<'static> = RecvRequest { wr_id: 0, sges: &[] };

/// Control messages that may be under way each way: the credits below, and one of each of the two
/// words of an end.
const CONTROLS_MAX: u32 = 16;

/// Credits that may be unacknowledged: a further one would say nothing that the next does not.
const CREDITS_MAX: u32 = 8;

#[cfg(test)]
mod tests;
