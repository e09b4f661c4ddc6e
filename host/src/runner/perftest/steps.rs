//! Messages to and from a perftest peer, with the queue pairs driven meanwhile: if our last ACK was
//! lost, the responder must answer the retransmission.

use super::super::JobRunner;
use super::session::{AwaitedStep, Session};
use super::traffic::{POLL_INTERVAL, PolledTraffic, Traffic};
use crate::fabric::Error;
use crate::oob::perftest::{Exchange, KEYS_BYTES, KEYS_BYTES_WITHOUT_GID, Keys, PerftestError};
use spanwire_base::{Dur, Time};

impl JobRunner {
    /// Sends `ours` and returns the peer's message of the same length. The client sends first.
    pub(super) fn exchange_message(
        &mut self,
        s: &mut Session<'_>,
        awaited: AwaitedStep,
        ours: &[u8],
    ) -> Result<Vec<u8>, Error> {
        if s.exchange.is_client() {
            s.exchange.send(ours)?;
        }
        let theirs = self.recv_bytes(s, awaited, ours.len())?;
        if !s.exchange.is_client() {
            s.exchange.send(ours)?;
        }
        Ok(theirs)
    }

    /// As [`JobRunner::exchange_message`], for keys, which have two possible lengths.
    pub(super) fn exchange_key_message(
        &mut self,
        s: &mut Session<'_>,
        ours: &Keys,
    ) -> Result<Keys, Error> {
        let awaited = AwaitedStep::of("the line of keys");
        if s.exchange.is_client() {
            s.exchange.send(&ours.to_bytes())?;
        }
        let mut theirs = self.recv_bytes(s, awaited, KEYS_BYTES_WITHOUT_GID)?;
        if theirs.last() != Some(&0) {
            let rest = self.recv_bytes(s, awaited, KEYS_BYTES - KEYS_BYTES_WITHOUT_GID)?;
            theirs.extend_from_slice(&rest);
        }
        let theirs = Keys::from_bytes(&theirs)?;
        // Checked before the answer: a peer without a GID would misread our longer keys.
        theirs.ip()?;
        if !s.exchange.is_client() {
            s.exchange.send(&ours.to_bytes())?;
        }
        Ok(theirs)
    }

    /// Drives our messages until they have completed.
    pub(super) fn run_traffic(&mut self, s: &mut Session<'_>) -> Result<(), Error> {
        let awaited = AwaitedStep::of("the rest of the run");
        let stop = s.stop;
        let mut closed_at = None;
        self.drive_until(s, awaited, |now, traffic, exchange| {
            if stop() {
                traffic.interrupt(now);
            }
            if traffic.is_done() {
                return Ok(Some(()));
            }
            if exchange.is_closed()? && now.since(*closed_at.get_or_insert(now)) >= LINGER {
                // Packets sent before the close have had time to arrive.
                return Err(PerftestError::Closed(awaited.step).into());
            }
            Ok(None)
        })
    }

    /// Closes our direction and waits for the peer's close, for a limited time.
    pub(super) fn close_exchange(&mut self, s: &mut Session<'_>) -> Result<(), Error> {
        if s.test.has_farewell() {
            // Not every version waits for this message, so an error is ignored.
            let _ = s.exchange.send(DONE);
        }
        s.exchange.close();
        let mut since = None;
        self.drive_until(s, AwaitedStep::of("the end"), |now, _, exchange| {
            let since = *since.get_or_insert(now);
            // The run has completed, so an error of the connection does not matter any more.
            let is_over = exchange.is_closed().unwrap_or(true) || now.since(since) >= LINGER;
            Ok(is_over.then_some(()))
        })
    }

    /// Waits for the peer's next `n` bytes.
    fn recv_bytes(
        &mut self,
        s: &mut Session<'_>,
        awaited: AwaitedStep,
        n: usize,
    ) -> Result<Vec<u8>, Error> {
        let stop = s.stop;
        self.drive_until(s, awaited, |_, _, exchange| match exchange.poll(awaited.step, n)? {
            None if stop() => Err(PerftestError::Stopped.into()),
            other => Ok(other),
        })
    }

    /// Drives the traffic until `ready`, called every [`POLL_INTERVAL`], returns a result.
    fn drive_until<T>(
        &mut self,
        s: &mut Session<'_>,
        awaited: AwaitedStep,
        mut ready: impl FnMut(Time, &mut Traffic, &mut Exchange) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        let Session { exchange, traffic, watch, quiet_max, .. } = s;
        let awaited = AwaitedStep { quiet: awaited.quiet.min(*quiet_max), ..awaited };
        let clock = self.attachment.clock;
        let (mut poll_at, mut last_input_at, mut packets) = (Time::ZERO, clock.now(), 0);
        let quiet = Dur::from_ns(u64::try_from(awaited.quiet.as_nanos())?);
        let mut outcome = None;
        self.drive_host(PolledTraffic::new(traffic), |host| {
            let now = clock.now();
            let (ep, app) = host.parts_mut();
            let traffic = app.traffic();
            traffic.look(now, ep);
            if now < poll_at {
                return false;
            }
            poll_at = now + POLL_INTERVAL;
            if let Some(active) = &traffic.active {
                watch(now, active);
            }
            let received = ep.counters().rx_packets;
            if received != packets {
                (packets, last_input_at) = (received, now);
            }
            outcome = match (ready(now, traffic, exchange), traffic.failure()) {
                (Ok(Some(value)), _) => Some(Ok(value)),
                (Err(e), _) => Some(Err(e)),
                (Ok(None), Some(why)) => Some(Err(why.into())),
                (Ok(None), None) if now.since(last_input_at) >= quiet => {
                    Some(Err(PerftestError::Silent(awaited.step, awaited.quiet).into()))
                }
                (Ok(None), None) => None,
            };
            outcome.is_some()
        })?;
        outcome.ok_or("driven to no end")?
    }
}

/// The last message of older versions of perftest, with its NUL.
const DONE: &[u8] = b"done\0";

/// How long we serve a peer that has closed, or that was sent the last message. It may retransmit
/// packets whose ACK was lost.
const LINGER: Dur = Dur::from_secs(1);
