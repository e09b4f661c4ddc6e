//! One connection at the worker: a queue pair, two rings, and the rules of data, credit and end. No
//! I/O and no clock; applications copy the data.
//!
//! [`Opening`] is a channel whose peer is not known yet. A [`Channel`] handles completions
//! ([`Channel::handle_completions`]), actions of its application
//! ([`Channel::handle_application`]), and the end of the side connection
//! ([`Channel::handle_peer_left`]). Each returns the resulting state.

mod objects;
mod opening;
mod rings;

pub(crate) use opening::{Local, Opening};
pub(crate) use rings::Rings;

use crate::error::Cause;
use crate::imm::Control;
use crate::incoming::{Incoming, Taken};
use crate::outgoing::{Fragment, Outgoing};
use crate::shared::{Milestone, Shared};
use objects::{NOTHING, Objects};
use spanwire_transport::{
    AsyncEvent, CqId, Endpoint, MemoryRegion, PostError, RemoteAddr, Sge, Wc, WcOpcode, WcStatus,
    WorkRequest, WrOp,
};
use spanwire_wire::Qpn;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Identity of a channel. A slot is reused; an id is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChannelId {
    pub(crate) slot: u32,
    pub(crate) generation: u64,
}

/// A connected channel.
#[derive(Debug)]
pub(crate) struct Channel {
    shared: Arc<Shared>,
    objects: Objects,
    theirs: RemoteAddr,
    out: Outgoing,
    inn: Incoming,
    /// Control messages that have not completed.
    controls: u32,
    finish_said: bool,
    drained_sent: bool,
    /// A request was flushed, because the queue pair failed.
    flushed: bool,
}

/// The state of a channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ChannelState {
    Open,
    /// Everything was delivered in both directions, and both ends know it.
    Done,
    Lost(Cause),
}

impl Channel {
    /// The queue pair.
    pub(crate) fn qpn(&self) -> Qpn {
        self.objects.qpn
    }

    /// The completion queue of the queue pair.
    pub(crate) fn cq(&self) -> CqId {
        self.objects.cq
    }

    /// The state shared with the application.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Handles an event of the queue pair: the cause of a failure that no completion reports.
    pub(crate) fn handle_event(event: AsyncEvent) -> ChannelState {
        match event {
            AsyncEvent::QpAccessErr(_) => lost("it wrote where it may not"),
            AsyncEvent::QpReqErr(_) => lost("it made an impossible request"),
            AsyncEvent::QpFatal(_) => ChannelState::Lost(Cause::QueuePair(WcStatus::LocQpOpErr)),
            _ => ChannelState::Open,
        }
    }

    /// Handles completions of the queue pair.
    pub(crate) fn handle_completions(&mut self, endpoint: &mut Endpoint) -> ChannelState {
        loop {
            match endpoint.poll_cq(self.objects.cq) {
                Ok(Some(wc)) => {
                    if let Err(cause) = self.on_completion(&wc, endpoint) {
                        return ChannelState::Lost(cause);
                    }
                }
                Ok(None) if self.flushed => {
                    return ChannelState::Lost(Cause::QueuePair(WcStatus::WrFlushErr));
                }
                Ok(None) => break,
                Err(_) => return ChannelState::Lost(Cause::QueuePair(WcStatus::LocQpOpErr)),
            }
        }
        self.handle_application(endpoint)
    }

    /// Handles actions of the application, and posts the resulting messages.
    pub(crate) fn handle_application(&mut self, endpoint: &mut Endpoint) -> ChannelState {
        if self.shared.has(Milestone::Aborted) {
            let cause = self.shared.cause().cloned();
            return ChannelState::Lost(cause.unwrap_or_else(|| Cause::Aborted("no reason".into())));
        }
        if self.shared.has(Milestone::ReceiveClosed) && self.shared.has_unread() {
            let why = "it was closed before everything that came was taken";
            return ChannelState::Lost(Cause::Aborted(why.into()));
        }
        match self.post_messages(endpoint) {
            Err(e) => {
                ChannelState::Lost(Cause::NetworkGone(format!("a request was not taken: {e}")))
            }
            Ok(()) if self.is_done() => ChannelState::Done,
            Ok(()) => ChannelState::Open,
        }
    }

    /// Handles the end of the side connection, with or without a reason.
    pub(crate) fn handle_peer_left(&mut self, why: Option<String>) -> ChannelState {
        let all_came = self.drained_sent;
        let all_went = self.shared.has(Milestone::Drained)
            || self.out.is_all_taken() && self.out.is_empty(&self.shared);
        match why {
            Some(why) => ChannelState::Lost(Cause::PeerAborted(why)),
            None if all_came && all_went => {
                self.shared.set(Milestone::Drained);
                ChannelState::Done
            }
            None => ChannelState::Lost(Cause::PeerGone("its side connection closed")),
        }
    }

    /// Releases the connection and its objects of the endpoint.
    pub(crate) fn close(&self, endpoint: &mut Endpoint, cause: Cause) {
        self.shared.set(Milestone::Gone);
        self.shared.fail(cause);
        self.objects.remove(endpoint);
    }

    fn on_completion(&mut self, wc: &Wc, endpoint: &mut Endpoint) -> Result<(), Cause> {
        match wc.status {
            WcStatus::Success => {}
            // A completion with the cause, or an event, comes before the flushed ones.
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
        // An error means that the queue pair has failed. Its completions report that.
        let _ = endpoint.post_recv(self.objects.qpn, &NOTHING);
        let imm = wc.imm.ok_or(Cause::Protocol("a message without immediate data"))?;
        match wc.opcode {
            WcOpcode::RecvRdmaWithImm => self.on_fragment(imm, wc.byte_len),
            _ => self.on_control(imm),
        }
        .map_err(Cause::Protocol)
    }

    fn on_fragment(&mut self, imm: u32, bytes: u32) -> Result<(), &'static str> {
        self.inn.on_fragment(imm, bytes, self.taken())?;
        // The queue has a slot for each fragment of the credit that was just checked.
        self.shared.arrived.push(bytes).map_err(|_| "more than there was credit for")?;
        self.shared.deliver(self.inn.bytes());
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

    /// Posts everything that may be sent: fragments, credit, `Finish` and `Drained`.
    fn post_messages(&mut self, endpoint: &mut Endpoint) -> Result<(), PostError> {
        // Read before the fragments are counted, because no fragment follows the end.
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
        if !self.drained_sent && self.inn.is_drained(taken) {
            self.drained_sent = true;
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

    fn post_control(&mut self, endpoint: &mut Endpoint, control: Control) -> Result<(), PostError> {
        self.controls += 1;
        let op = WrOp::SendImm { imm: control.emit() };
        endpoint.post_send(self.objects.qpn, &WorkRequest::new(0, op, &[]))
    }

    /// True once everything was delivered, and the other end knows it. If the application receives
    /// no more, only the credit for received data must have been sent: nothing would take further
    /// data of the other end.
    fn is_done(&self) -> bool {
        let all_came = self.drained_sent
            || self.shared.has(Milestone::ReceiveClosed) && self.inn.is_all_credited(self.taken());
        self.shared.has(Milestone::Drained) && all_came && self.controls == 0
    }

    fn taken(&self) -> Taken {
        Taken {
            fragments: self.shared.taken.load(Ordering::SeqCst),
            bytes: self.shared.taken_bytes.load(Ordering::SeqCst),
        }
    }
}

fn lost(what: &'static str) -> ChannelState {
    ChannelState::Lost(Cause::Protocol(what))
}

/// Limit of unacknowledged credits. Credit is cumulative, so a further one can wait.
const CREDITS_MAX: u32 = 8;

#[cfg(test)]
mod tests;
