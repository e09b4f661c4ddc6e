//! The station that gives jobs.

use super::{FlowRow, Flows, Needs, RD_ATOMIC, Setup, Station, check, region_bytes};
use crate::fabric::Error;
use crate::initiator::{Initiator, PING_PONG_SENDS, Progress};
use crate::oob::{
    Accept, Coding, Congestion, Job, JobKind, Message, Oob, OobError, Op, Outcome, REPLY_TIMEOUT,
    Request,
};
use crate::paths::SentPaths;
use hdrhistogram::Histogram;
use spanwire_base::{Dur, Time};
use spanwire_transport::{Access, Config, Host, QpCaps};
use spanwire_wire::Qpn;

/// What became of a job.
pub struct JobReport {
    /// The job.
    pub job: Job,
    /// Messages and bytes, and what ended it early.
    pub progress: Progress,
    /// Times from posting to completion in nanoseconds, or those of round trips.
    pub latency: Histogram<u64>,
    /// The latency is that of round trips.
    pub(super) half_rtt: bool,
    /// SHA-256 of both ends' memory after a transfer: ours, theirs.
    pub sha256: Option<(String, String)>,
    /// Messages the peer received (SEND).
    pub peer_messages: u64,
    /// FETCH_ADDs that the peer's memory has seen.
    pub peer_atomics: Option<u64>,
    /// How its flows did from beginning to end; none against perftest.
    pub flow: Option<FlowRow>,
    /// Erasure coding, and which paths packets took; none against perftest.
    pub paths: Option<SentPaths>,
}

/// A running job, for who watches it.
pub struct Watch<'a> {
    now: Time,
    host: &'a Host<Initiator>,
    config: &'a Config,
    qpns: &'a [Qpn],
    port_full: Dur,
}

impl Watch<'_> {
    /// The time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// The application.
    #[must_use]
    pub fn app(&self) -> &Initiator {
        self.host.app()
    }

    /// How the job's flows do. Asks every queue pair.
    #[must_use]
    pub fn flows(&self) -> Flows {
        let Self { now, host, config, qpns, port_full } = self;
        Flows::of(*now, host.endpoint(), config, qpns, *port_full)
    }
}

impl Station {
    /// Runs one job with the peer. `watch` sees the progress all the while and may end the job by
    /// returning true.
    ///
    /// # Errors
    /// The exchange fails, or the port is gone. A request that fails is in the report.
    pub fn run(
        &mut self,
        oob: &mut Oob,
        job: Job,
        watch: impl FnMut(&Watch<'_>) -> bool,
    ) -> Result<JobReport, Error> {
        // What the server would refuse is refused before any memory is taken for it.
        check(&job, self.attachment.path_mtu)?;
        let is_ping_pong = is_send_ping_pong(&job);
        let caps = QpCaps {
            max_send_wr: if is_ping_pong { PING_PONG_SENDS } else { job.depth },
            max_recv_wr: if is_ping_pong { job.depth } else { 0 },
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        // The peer touches none of our memory: it only answers.
        let access = Access::LOCAL_WRITE;
        let needs = Needs { bytes: region_bytes(&job), caps, access, receives_apart: false };
        let setup = self.set_up(job, needs)?;
        let report = self.run_set_up(oob, &setup, watch);
        self.tear_down(&setup);
        report
    }

    fn run_set_up(
        &mut self,
        oob: &mut Oob,
        setup: &Setup,
        mut watch: impl FnMut(&Watch<'_>) -> bool,
    ) -> Result<JobReport, Error> {
        let job = setup.job;
        // Before the peer is asked: it does not wait for ever.
        setup.fill_source(true);
        oob.send(&Message::Request(Request {
            job,
            qps: setup.params.clone(),
            congestion: self.sending.congestion.as_ref().map(Congestion::from),
            erasure: self.sending.erasure.as_ref().map(Coding::from),
            balance: self.sending.balance.map(|balance| balance.choice.to_string()),
        }))?;
        let Accept { qps, memory } = match oob.recv(REPLY_TIMEOUT)? {
            Message::Accept(accept) => accept,
            other => return Err(OobError::unexpected("an accept", other).into()),
        };
        let sending = self.connect(setup, &qps, RD_ATOMIC, None)?;
        oob.send(&Message::Ready)?;
        match oob.recv(REPLY_TIMEOUT)? {
            Message::Ready => {}
            other => return Err(OobError::unexpected("ready", other).into()),
        }
        let lanes: Vec<_> = setup.qpns.iter().map(|qpn| (*qpn, memory)).collect();
        let initiator = Initiator::new(job, setup.cq, &lanes, setup.mr);
        let (clock, config) = (self.attachment.clock, self.config.clone());
        let mut span: Option<(Flows, Flows)> = None;
        let heard = self.packets_heard();
        let mut app = self.drive_watched(initiator, |host, driver| {
            let (now, port_full) = (clock.now(), driver.port_full);
            let seen = Watch { now, host, config: &config, qpns: &setup.qpns, port_full };
            let is_done = seen.app().is_done();
            if is_done || span.is_none() {
                let flows = seen.flows();
                span = Some((span.map_or(flows, |(first, _)| first), flows));
            }
            if !is_done && watch(&seen) {
                host.app_mut().interrupt(now);
            }
            host.app_mut().end_overdue(now);
            is_done
        })?;
        if self.packets_heard() == heard {
            app.note_nothing_heard();
        }
        let (progress, latency) = (app.progress(), app.latency().clone());
        let half_rtt = is_send_ping_pong(&job);
        let mut report = JobReport {
            flow: span.map(|(first, last)| last.since(&first)),
            paths: Some(self.paths(setup, &sending)),
            ..JobReport::new(job, progress, latency, half_rtt)
        };
        if progress.failure.is_some() {
            // The peer may be dead: its opinion is not waited for.
            return Ok(report);
        }
        oob.send(&Message::Done)?;
        let ours = setup.sha256();
        let Outcome { sha256: theirs, messages, atomics } = match oob.recv(REPLY_TIMEOUT)? {
            Message::Result(outcome) => outcome,
            other => return Err(OobError::unexpected("the result", other).into()),
        };
        report.sha256 = ours.zip(theirs);
        report.peer_messages = messages;
        report.peer_atomics = atomics;
        Ok(report)
    }
}

impl Station {
    /// Packets that our queue pairs have taken so far.
    pub(super) fn packets_heard(&self) -> u64 {
        self.endpoint.as_ref().map_or(0, |ep| ep.counters().rx_packets)
    }
}

impl JobReport {
    /// What our end knows by itself; of the peer, flows and paths nothing is said.
    pub(super) fn new(
        job: Job,
        progress: Progress,
        latency: Histogram<u64>,
        half_rtt: bool,
    ) -> Self {
        Self {
            job,
            progress,
            latency,
            half_rtt,
            sha256: None,
            peer_messages: 0,
            peer_atomics: None,
            flow: None,
            paths: None,
        }
    }

    /// How long it took, from the first post to the last completion.
    #[must_use]
    pub fn duration(&self) -> Dur {
        let Progress { started, finished, .. } = self.progress;
        started.zip(finished).map_or(Dur::ZERO, |(from, to)| to.since(from))
    }

    /// Payload bits per second, in billions.
    #[must_use]
    pub fn gbps(&self) -> f64 {
        per_second(self.progress.bytes * 8, self.duration()) / 1e9
    }

    /// Messages per second.
    #[must_use]
    pub fn messages_per_s(&self) -> f64 {
        per_second(self.progress.messages, self.duration())
    }

    /// A quantile (0..=1) of the latency in microseconds. A ping-pong's is half a round trip, as
    /// perftest's is; everything else's is from posting to completion.
    #[must_use]
    pub fn latency_us(&self, quantile: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of seconds fit 53 bits")]
        let ns = self.latency.value_at_quantile(quantile) as f64;
        let halves = if self.half_rtt { 2.0 } else { 1.0 };
        ns / 1e3 / halves
    }

    /// True when [`JobReport::latency_us`] is half a round trip.
    #[must_use]
    pub fn is_ping_pong(&self) -> bool {
        self.half_rtt
    }

    /// Nothing failed, a transfer's bytes are the same on both ends, and FETCH_ADDs were carried
    /// out as often as they completed.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        let wants_hash = matches!(self.job.kind, JobKind::Transfer { .. });
        let matches = self.sha256.as_ref().is_some_and(|(ours, theirs)| ours == theirs);
        let Progress { failure, finished, .. } = self.progress;
        failure.is_none() && finished.is_some() && matches == wants_hash && self.atomics_agree()
    }

    /// FETCH_ADDs were carried out as often as they completed, as far as the peer has said. Those
    /// that were outstanding at the end may have been, or not.
    #[must_use]
    pub fn atomics_agree(&self) -> bool {
        let Progress { messages, unfinished, .. } = self.progress;
        self.peer_atomics.is_none_or(|n| (messages..=messages + unfinished).contains(&n))
    }
}

/// A SEND that is answered with a SEND.
pub(super) fn is_send_ping_pong(job: &Job) -> bool {
    job.op == Op::Send && matches!(job.kind, JobKind::Latency { .. })
}

/// `n` a second over `d`.
#[expect(clippy::cast_precision_loss, reason = "a report's figure, of three digits")]
fn per_second(n: u64, d: Dur) -> f64 {
    match d {
        Dur::ZERO => 0.0,
        d => n as f64 / (d.as_ns() as f64 / 1e9),
    }
}
