//! The probes of source ports in the handshake of a job.

use super::{JobRunner, Peer};
use crate::fabric::Error;
use crate::oob::{Hello, Message, Oob, OobError, REPLY_TIMEOUT};
use crate::probe::{self, BURSTS_MAX, PROBE_TIME, Tallied, chosen, warn_of_no_port};
use spanwire_io::worker::port_is_gone;
use spanwire_wire::Qpn;
use std::time::Instant;

/// The probes of the peer that arrive at our queue.
pub(super) struct Counting {
    tallied: Tallied,
    /// When they are answered; `None` before the peer says that it has sent them.
    until: Option<Instant>,
}

/// The probes of both ends of a side connection that are not done with.
#[derive(Default)]
pub(super) struct Probing {
    counting: Option<Counting>,
    /// The peer takes part.
    is_shared: bool,
    /// The number that our probes are to be sent to.
    target: Option<Qpn>,
    /// The source port of our first probe, until they are answered.
    sent_from: Option<u16>,
}

impl Counting {
    pub(super) fn qpn(&self) -> u32 {
        self.tallied.qpn()
    }
}

impl Probing {
    /// The probes to us, if any are `counted`, and those to the number `theirs` of the peer's
    /// hello.
    pub(super) fn new(counting: Option<Counting>, theirs: Option<u32>) -> Self {
        let target = theirs.filter(|qpn| *qpn != 0).map(Qpn::new);
        Self { counting, is_shared: theirs.is_some(), target, sent_from: None }
    }

    /// The number for our hello; 0 only tells that we take part.
    pub(super) fn qpn(&self) -> Option<u32> {
        self.counting.as_ref().map(Counting::qpn).or(self.is_shared.then_some(0))
    }

    /// The peer has not sent its probes yet, or they are counted.
    pub(super) fn awaits_probes(&self) -> bool {
        self.counting.is_some()
    }

    /// The peer has sent its probes, which are to be answered.
    pub(super) fn is_counting(&self) -> bool {
        self.counting.as_ref().is_some_and(|counting| counting.until.is_some())
    }
}

impl JobRunner {
    /// Counts probes from now on, if the adapter divides packets among workers.
    pub(super) fn count_probes(&mut self) -> Option<Counting> {
        if self.worker_of.workers < 2 || !self.attachment.rss {
            return None;
        }
        let core = self.core().ok()?;
        let tallied = Tallied::start(&mut core.node, &mut core.port)?;
        Some(Counting { tallied, until: None })
    }

    /// Exchanges probes with the server whose hello is `theirs`, as far as each end needs them.
    pub(super) fn probe_with_server(
        &mut self,
        oob: &mut Oob,
        theirs: &Hello,
        counting: Option<Counting>,
    ) -> Result<(), Error> {
        let counting = counting.filter(|_| theirs.probe_qpn.is_some());
        let mut probing = Probing::new(counting, theirs.probe_qpn);
        let mut peer = self.peer;
        self.send_probes(oob, &mut probing, peer.as_ref())?;
        while probing.awaits_probes() || probing.sent_from.is_some() {
            let message = oob.recv(REPLY_TIMEOUT)?;
            if let Some(other) = self.handle_probing(&mut probing, &mut peer, message)? {
                return Err(OobError::unexpected("probes", &other).into());
            }
            while probing.is_counting() {
                self.answer_probes(oob, &mut probing, peer.as_ref())?;
            }
        }
        self.peer = peer;
        Ok(())
    }

    /// Sends the probes that the peer asked for, once.
    pub(super) fn send_probes(
        &mut self,
        oob: &mut Oob,
        probing: &mut Probing,
        peer: Option<&Peer>,
    ) -> Result<(), Error> {
        let Some((qpn, peer)) = probing.target.take().zip(peer) else { return Ok(()) };
        let clock = self.attachment.clock;
        let core = self.core()?;
        let sent = probe::send(&mut core.node, &mut core.port, &clock, (&peer.av, qpn));
        let first = sent.map_err(|e| port_is_gone(&e))?;
        probing.sent_from = Some(first);
        Ok(oob.send(&Message::Probed)?)
    }

    /// Handles `message` if it belongs to the probing; returns any other one, which ends it.
    ///
    /// # Errors
    /// It is not the answer that is due, or claims what cannot be.
    pub(super) fn handle_probing(
        &self,
        probing: &mut Probing,
        peer: &mut Option<Peer>,
        message: Message,
    ) -> Result<Option<Message>, Error> {
        match (message, probing.sent_from, &mut probing.counting) {
            (Message::Probed, _, Some(counting)) if counting.until.is_none() => {
                counting.until = Some(Instant::now() + PROBE_TIME);
                Ok(None)
            }
            (Message::Arrived { probes }, Some(first), _) => {
                let found = chosen(first, &probes).map_err(OobError::Invalid)?;
                probing.sent_from = None;
                if let Some(peer) = peer {
                    peer.src_port = found;
                    if found.is_none() {
                        warn_of_no_port(self.worker_of.index, peer.av.dst_ip);
                    }
                }
                Ok(None)
            }
            (other, Some(_), _) => {
                Err(OobError::unexpected("the probes that arrived", &other).into())
            }
            (other, None, _) => {
                // Nothing is counted during a job.
                *probing = Probing::default();
                Ok(Some(other))
            }
        }
    }

    /// Answers the probes of the peer once all have arrived, or after some milliseconds, and sends
    /// ours after that. True once they are answered.
    pub(super) fn answer_probes(
        &mut self,
        oob: &mut Oob,
        probing: &mut Probing,
        peer: Option<&Peer>,
    ) -> Result<bool, Error> {
        let Some(Counting { tallied, until: Some(until) }) = &probing.counting else {
            return Ok(true);
        };
        let is_over = Instant::now() >= *until;
        // What has arrived is counted, even if this end was suspended meanwhile.
        for _ in 0..BURSTS_MAX {
            if !self.pass_on() {
                break;
            }
        }
        if !is_over && !tallied.has_all() {
            return Ok(false);
        }
        let probes = tallied.arrived();
        probing.counting = None;
        oob.send(&Message::Arrived { probes })?;
        self.send_probes(oob, probing, peer)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
