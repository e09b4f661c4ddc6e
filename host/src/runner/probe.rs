//! Probes of source ports. An adapter hashes the source port of a packet to one of its receive
//! queues (RSS), and only the adapter knows the hash. So a sender tries some ports with small
//! packets to a queue pair number that no queue pair has. The receiver answers which have arrived
//! at the queue of the worker that they name.

use super::{JobRunner, Peer};
use crate::fabric::Error;
use crate::oob::{Hello, Message, Oob, OobError, REPLY_TIMEOUT};
use spanwire_base::TxMeta;
use spanwire_io::port::{Port, reserve};
use spanwire_io::steered::Tally;
use spanwire_io::worker::port_is_gone;
use spanwire_transport::AddressVector;
use spanwire_wire::{BthRepr, ExtHeaders, Opcode, Packet, Psn, Qpn, peek_dest_qp, seal};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The probes of the peer that arrive at our queue.
pub(super) struct Counting {
    qpn: Qpn,
    tally: Arc<Tally>,
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
        self.qpn.get()
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
        let qpn = core.node.unused_qpn();
        let tally = Tally::new(move |frame| {
            // Only those are parsed, with their ICRC.
            let packet = (peek_dest_qp(frame)? == qpn).then(|| Packet::parse(frame).ok())??;
            Some(packet.bth.psn.get())
        });
        core.port.count(&tally).then_some(Counting { qpn, tally, until: None })
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
        let random = core.node.random() % u64::from(ENTROPIES);
        let first = ENTROPY_BASE | u16::try_from(random).expect("14 bits");
        for index in 0..PROBES {
            // Without a buffer the probe is a lost one.
            let Some(mut slot) = reserve(&mut core.port) else { break };
            if let Some(len) = emit(&peer.av, qpn, (first, index), slot.bytes()) {
                slot.commit(TxMeta::whole(len));
            }
        }
        // AF_XDP may take a part at a time.
        let until = Instant::now() + PROBE_TIME;
        loop {
            core.port.flush(clock.now()).map_err(|e| port_is_gone(&e))?;
            if core.port.tx_pending() == 0 || Instant::now() >= until {
                break;
            }
        }
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
                check_arrived(&probes)?;
                probing.sent_from = None;
                if let Some(peer) = peer {
                    peer.src_port = probes.first().map(|index| src_port(first, *index));
                    if probes.is_empty() {
                        warn_of_no_port(self.worker_of.index, &peer.av);
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
        let Some(Counting { tally, until: Some(until), .. }) = &probing.counting else {
            return Ok(true);
        };
        let is_over = Instant::now() >= *until;
        // What has arrived is counted, even if this end was suspended meanwhile.
        for _ in 0..BURSTS_MAX {
            if !self.pass_on() {
                break;
            }
        }
        let seen = tally.seen();
        if !is_over && seen != u64::MAX {
            return Ok(false);
        }
        probing.counting = None;
        let probes = (0..PROBES).filter(|index| seen >> index & 1 == 1).collect();
        oob.send(&Message::Arrived { probes })?;
        self.send_probes(oob, probing, peer)?;
        Ok(true)
    }
}

/// Checks the number of a hello.
///
/// # Errors
/// It has more than 24 bits.
pub(super) fn check_probe_qpn(qpn: Option<u32>) -> Result<(), OobError> {
    match qpn {
        Some(qpn) if qpn > Qpn::MASK => {
            let max = Qpn::MASK;
            Err(OobError::Invalid(format!("its number for probes is {qpn}, above {max}")))
        }
        _ => Ok(()),
    }
}

fn check_arrived(probes: &[u32]) -> Result<(), OobError> {
    let wrong = match probes.iter().find(|index| **index >= PROBES) {
        Some(index) => format!("probe {index}"),
        None if probes.len() > PROBES as usize => format!("{} probes", probes.len()),
        None => return Ok(()),
    };
    Err(OobError::Invalid(format!("it claims that {wrong} arrived; it was sent 0 to 63")))
}

/// The source port of probe `index`, of those that begin at `first`. Both bytes differ among them,
/// and so do they modulo any number of queues.
fn src_port(first: u16, index: u32) -> u16 {
    let step = u16::try_from(index * 0x101 % ENTROPIES).expect("14 bits");
    ENTROPY_BASE | (first.wrapping_add(step))
}

/// Writes probe `index` of those that begin at source port `first`, a SEND, and returns its length.
fn emit(
    av: &AddressVector,
    to: Qpn,
    (first, index): (u16, u32),
    frame: &mut [u8],
) -> Option<usize> {
    let bth = BthRepr::new(Opcode::RcSendOnly, to, Psn::new(index));
    let template = av.template(src_port(first, index))?;
    let payload = template.emit(&bth, &ExtHeaders::NONE, PAYLOAD_BYTES, frame).ok()?;
    let len = payload.end + ICRC_BYTES;
    frame.get_mut(payload)?.fill(0);
    seal(frame.get_mut(..len)?, len);
    Some(len)
}

fn warn_of_no_port(worker: u32, av: &AddressVector) {
    tracing::warn!(
        "worker {worker}: none of {PROBES} source ports leads to its peer's at {}: other workers \
         there hand packets over (steer_handed), which costs a copy and a wake-up; let the adapter \
         there hash UDP ports (ethtool -N DEV rx-flow-hash udp4 sdfn) to as many queues as workers \
         (ethtool -L)",
        av.dst_ip
    );
}

/// The probes of each end.
const PROBES: u32 = 64;
/// How long probes may be under way once the peer has sent them, and a port may take to send them.
const PROBE_TIME: Duration = Duration::from_millis(5);
/// How often an end that counts probes looks for them.
pub(super) const COUNT_INTERVAL: Duration = Duration::from_millis(1);
/// The bursts of a look at the port. It is behind other frames by no more than a ring.
const BURSTS_MAX: usize = 16;
/// The source ports that stand for a path, 0xc000 to 0xffff.
const ENTROPY_BASE: u16 = 0xc000;
const ENTROPIES: u32 = 0x4000;
/// A frame without payload would be shorter than Ethernet allows.
const PAYLOAD_BYTES: usize = 8;
const ICRC_BYTES: usize = 4;

#[cfg(test)]
mod tests;
