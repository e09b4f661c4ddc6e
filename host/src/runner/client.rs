//! The client side of the job runner.

use super::{FlowRow, Flows, JobRunner, Needs, RD_ATOMIC, Sending, Setup, check, region_bytes};
use crate::fabric::Error;
use crate::initiator::{DRAIN, Initiator, PING_PONG_SENDS, Progress};
use crate::oob::{
    Accept, Coding, Congestion, Job, JobKind, MemoryParams, Message, OUTCOME_TIMEOUT, Oob,
    OobError, Op, Outcome, REPLY_TIMEOUT, Request, balance_text,
};
use crate::paths::SentPaths;
use crate::unsent::Unsent;
use hdrhistogram::Histogram;
use spanwire_base::{Dur, Time};
use spanwire_io::worker::Core;
use spanwire_transport::{Access, Config, Endpoint, Host, QpCaps};
use spanwire_wire::Qpn;
use std::time::Duration;

/// The result of a job.
pub struct JobReport {
    /// The job.
    pub job: Job,
    /// Messages and bytes, and the reason of an early end.
    pub progress: Progress,
    /// Nanoseconds from posting to completion, or the round-trip time of a ping-pong.
    pub latency: Histogram<u64>,
    /// True if the latency is a round-trip time.
    pub(super) half_rtt: bool,
    /// SHA-256 of our memory after a transfer.
    pub sha256: Option<String>,
    /// The peer's outcome; `None` after a failure, without an answer, and against perftest.
    pub peer: Option<Outcome>,
    /// Why the peer's outcome is missing, if it should be there.
    pub missing: Option<Error>,
    /// Payload bytes of the longest packet that the path carries whole, if less than agreed.
    pub reduced_bytes: Option<u32>,
    /// Flow statistics of the whole job; `None` against perftest.
    pub flow: Option<FlowRow>,
    /// Erasure coding and the paths of packets; `None` against perftest.
    pub paths: Option<SentPaths>,
}

/// A running job, for a progress callback.
pub struct Watch<'a> {
    now: Time,
    host: &'a Host<Initiator>,
    config: &'a Config,
    qpns: &'a [Qpn],
    port_full: Dur,
}

impl Watch<'_> {
    /// The current time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// The application.
    #[must_use]
    pub fn app(&self) -> &Initiator {
        self.host.app()
    }

    /// The current state of the job's flows. Visits every queue pair.
    #[must_use]
    pub fn flows(&self) -> Flows {
        let Self { now, host, config, qpns, port_full } = self;
        Flows::of(*now, host.endpoint(), config, qpns, *port_full)
    }
}

impl JobRunner {
    /// Runs one job with the peer. `watch` is called with the progress, the last time after the
    /// end of the job. The job ends early once `stop` returns true.
    ///
    /// # Errors
    /// The exchange before the job fails, or the port is gone. A failed request, and a peer that
    /// does not report its outcome, are in the report.
    pub fn run(
        &mut self,
        oob: &mut Oob,
        job: Job,
        stop: &dyn Fn() -> bool,
        watch: impl FnMut(&Watch<'_>),
    ) -> Result<JobReport, Error> {
        let setup = self.set_up_client(job)?;
        let report = self.run_set_up(oob, &setup, stop, watch);
        self.tear_down(&setup);
        report
    }

    /// Creates the client's queue pairs and memory for `job`, and fills it.
    pub(super) fn set_up_client(&mut self, job: Job) -> Result<Setup, Error> {
        // A job that the server would reject is rejected before memory is allocated for it.
        check(&job, self.attachment.path_mtu)?;
        let is_ping_pong = is_send_ping_pong(&job);
        let caps = QpCaps {
            max_send_wr: if is_ping_pong { PING_PONG_SENDS } else { job.depth },
            max_recv_wr: if is_ping_pong { job.depth } else { 0 },
            ..QpCaps::default()
        };
        // The peer needs no access: it only responds.
        let access = Access::LOCAL_WRITE;
        let needs = Needs { bytes: region_bytes(&job), caps, access, receives_apart: false };
        let setup = self.set_up(job, needs)?;
        setup.fill_source(true);
        Ok(setup)
    }

    fn run_set_up(
        &mut self,
        oob: &mut Oob,
        setup: &Setup,
        stop: &dyn Fn() -> bool,
        watch: impl FnMut(&Watch<'_>),
    ) -> Result<JobReport, Error> {
        let job = setup.job;
        oob.send(&Message::Request(Request {
            job,
            qps: setup.params.clone(),
            congestion: self.sending.congestion.as_ref().map(Congestion::from),
            erasure: self.sending.erasure.as_ref().map(Coding::from),
            balance: self.sending.balance.map(|balance| balance_text(&balance.choice)),
        }))?;
        let Accept { qps, memory } = match oob.recv_unless(REPLY_TIMEOUT, stop)? {
            Message::Accept(accept) => accept,
            other => return Err(OobError::unexpected("an accept", &other).into()),
        };
        let sending = self.connect(setup, &qps, RD_ATOMIC, None)?;
        oob.send(&Message::Ready)?;
        match oob.recv_unless(REPLY_TIMEOUT, stop)? {
            Message::Ready => {}
            other => return Err(OobError::unexpected("ready", &other).into()),
        }
        let mut report = self.measure(setup, memory, &sending, stop, watch, || {})?;
        if report.progress.failure.is_some() {
            // The peer may be dead, so its outcome is not waited for.
            return Ok(report);
        }
        let asked = oob.send(&Message::Done);
        report.sha256 = setup.sha256();
        let within = outcome_timeout(&job, report.progress.unfinished);
        match asked.and_then(|()| peer_outcome(oob, within, stop)) {
            Ok(outcome) => report.peer = Some(outcome),
            Err(why) => report.missing = Some(why.into()),
        }
        Ok(report)
    }

    /// Drives the messages of a connected job, whose memory at the peer is `memory`, to their end.
    /// `beside` is called before each step. The peer's outcome is missing in the report.
    pub(super) fn measure(
        &mut self,
        setup: &Setup,
        memory: MemoryParams,
        sending: &Sending,
        stop: &dyn Fn() -> bool,
        mut watch: impl FnMut(&Watch<'_>),
        mut beside: impl FnMut(),
    ) -> Result<JobReport, Error> {
        let job = setup.job;
        let lanes: Vec<_> = setup.qpns.iter().map(|qpn| (*qpn, memory)).collect();
        let initiator = Initiator::new(job, setup.cq, &lanes, setup.mr);
        let (clock, config) = (self.attachment.clock, self.config.clone());
        let mut span: Option<(Flows, Flows)> = None;
        let packets_before = self.packets_received();
        let sent_before = self.port_counters();
        let mut app = self.drive_watched(initiator, |host, driver| {
            beside();
            let (now, port_full) = (clock.now(), driver.port_full);
            let seen = Watch { now, host, config: &config, qpns: &setup.qpns, port_full };
            let is_done = seen.app().is_done();
            if is_done || span.is_none() {
                let flows = seen.flows();
                span = Some((span.map_or(flows, |(first, _)| first), flows));
            }
            watch(&seen);
            if stop() {
                host.app_mut().interrupt(now);
            }
            host.app_mut().end_overdue(now);
            is_done
        })?;
        let unsent = Unsent::between(&sent_before, &self.port_counters());
        app.explain_timeout(unsent, self.packets_received() > packets_before);
        let (progress, latency) = (app.progress(), app.latency().clone());
        let half_rtt = is_send_ping_pong(&job);
        Ok(JobReport {
            flow: span.map(|(first, last)| last.since(&first)),
            paths: Some(self.paths(setup, sending)),
            reduced_bytes: self.reduced_bytes(&setup.qpns),
            ..JobReport::new(job, progress, latency, half_rtt)
        })
    }
}

/// Waits so long for the peer's outcome.
fn peer_outcome(
    oob: &mut Oob,
    within: Duration,
    stop: &dyn Fn() -> bool,
) -> Result<Outcome, OobError> {
    match oob.recv_unless(within, stop)? {
        Message::Result(outcome) => Ok(outcome),
        other => Err(OobError::unexpected("the result", &other)),
    }
}

/// Timeout of the peer's outcome of `job`. Unfinished requests have had a second, which is a part
/// of it. The peer hashes a transfer first.
fn outcome_timeout(job: &Job, unfinished: u64) -> Duration {
    match job.kind {
        JobKind::Transfer { bytes, .. } => {
            OUTCOME_TIMEOUT + Duration::from_millis(bytes / HASHED_BYTES_PER_MS)
        }
        JobKind::Bandwidth { .. } | JobKind::Latency { .. } if unfinished > 0 => {
            OUTCOME_TIMEOUT.saturating_sub(Duration::from_micros(DRAIN.as_us()))
        }
        JobKind::Bandwidth { .. } | JobKind::Latency { .. } => OUTCOME_TIMEOUT,
    }
}

/// Lower bound of a peer's rate of hashing: 8 MB/s, a tenth of what a slow processor achieves.
const HASHED_BYTES_PER_MS: u64 = 8_000;

impl JobRunner {
    /// Packets that our queue pairs have received so far.
    pub(super) fn packets_received(&self) -> u64 {
        self.look(|core| core.node.counters().rx_packets).unwrap_or(0)
    }
}

impl JobRunner {
    /// The least that the path of one of our queue pairs carries, if one carries less than agreed.
    fn reduced_bytes(&self, qpns: &[Qpn]) -> Option<u32> {
        let least = |core: &Core<Endpoint, _>| {
            qpns.iter().filter_map(|qpn| core.node.qp_reduced_bytes(*qpn)).min()
        };
        self.look(least)?
    }
}

impl JobReport {
    /// A report of what this end measured, without outcome of the peer, flows and paths.
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
            peer: None,
            missing: None,
            reduced_bytes: None,
            flow: None,
            paths: None,
        }
    }

    /// Time from the first post to the end, see [`Progress::finished`].
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

    /// A quantile (0..=1) of the latency in microseconds: for a ping-pong half the round-trip time,
    /// as perftest reports it, else the time from posting to completion.
    #[must_use]
    pub fn latency_us(&self, quantile: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds of seconds fit 53 bits")]
        let ns = self.latency.value_at_quantile(quantile) as f64;
        let halves = if self.half_rtt { 2.0 } else { 1.0 };
        ns / 1e3 / halves
    }

    /// True if [`JobReport::latency_us`] is half a round-trip time.
    #[must_use]
    pub fn is_ping_pong(&self) -> bool {
        self.half_rtt
    }

    /// True if nothing failed or is missing, a transfer's bytes are equal on both ends, and as many
    /// FETCH_ADDs were executed as completed.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        let is_right = match self.job.kind {
            JobKind::Transfer { .. } => self.sha256_match() == Some(true),
            JobKind::Bandwidth { .. } | JobKind::Latency { .. } => self.atomics_agree(),
        };
        let Progress { failure, finished, .. } = self.progress;
        failure.is_none() && self.missing.is_none() && finished.is_some() && is_right
    }

    /// Whether the memory of both ends has the same hash after a transfer. `None` if one of them is
    /// unknown.
    #[must_use]
    pub fn sha256_match(&self) -> Option<bool> {
        let theirs = self.peer.as_ref()?.sha256.as_ref()?;
        Some(self.sha256.as_ref()? == theirs)
    }

    /// FETCH_ADDs that the peer executed, if it reported them.
    #[must_use]
    pub fn peer_atomics(&self) -> Option<u64> {
        self.peer.as_ref()?.atomics
    }

    /// The reason if the job ended early, or the peer's outcome is missing.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        let missing = || Some(format!("the peer's result is missing: {}", self.missing.as_ref()?));
        self.progress.failure.map(|failure| failure.to_string()).or_else(missing)
    }

    /// True if as many FETCH_ADDs were executed as completed, or if the peer did not report them.
    /// Those outstanding at the end may or may not have been executed.
    #[must_use]
    pub fn atomics_agree(&self) -> bool {
        let Progress { messages, unfinished, .. } = self.progress;
        self.peer_atomics().is_none_or(|n| (messages..=messages + unfinished).contains(&n))
    }
}

/// True for a SEND that is answered with a SEND.
pub(super) fn is_send_ping_pong(job: &Job) -> bool {
    job.op == Op::Send && matches!(job.kind, JobKind::Latency { .. })
}

/// `n` per second over `d`.
#[expect(clippy::cast_precision_loss, reason = "a report's figure, of three digits")]
fn per_second(n: u64, d: Dur) -> f64 {
    match d {
        Dur::ZERO => 0.0,
        d => n as f64 / (d.as_ns() as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_timeout__depends_on_what_the_peer_has_to_hash() {
        let of = |kind| outcome_timeout(&Job::of(kind), 0);
        let day = JobKind::Bandwidth { duration_ms: 86_400_000 };
        assert_eq!(of(day), Duration::from_secs(2));
        assert_eq!(outcome_timeout(&Job::of(day), 1), Duration::from_secs(1));
        let transfer = |bytes| of(JobKind::Transfer { bytes, seed: 1 });
        assert_eq!(transfer(1 << 20), Duration::from_millis(2131));
        assert_eq!(transfer(1 << 30).as_secs(), 136);
    }
}
