//! The server side of the job runner.

use super::pending_client::is_gone;
use super::{
    ClientPoll, JobRunner, Needs, PendingClient, RD_ATOMIC, Setup, access, job_bytes, region_bytes,
};
use crate::fabric::Error;
use crate::initiator::PING_PONG_SENDS;
use crate::oob::{Accept, Congestion, Job, JobKind, Message, Oob, OobError, Outcome, Request};
use crate::paths::SentPaths;
use crate::target::Target;
use spanwire_base::{Dur, Rate, Time};
use spanwire_io::worker::Core;
use spanwire_transport::{Agreed, QpCaps};

/// The result of a served job.
#[derive(Clone, Debug)]
pub struct Served {
    /// The job.
    pub job: Job,
    /// Wire mode and its terms.
    pub agreed: Agreed,
    /// Congestion control of our packets.
    pub congestion: Congestion,
    /// Erasure coding and paths of our packets.
    pub paths: SentPaths,
    /// Messages received (SEND).
    pub messages: u64,
    /// True if the client sent `done` and the outcome could be sent; otherwise it closed the
    /// connection early.
    pub complete: bool,
    /// Counters of engine and port since their start.
    pub counters: Vec<(String, u64)>,
}

impl JobRunner {
    /// Serves the client at the other end of `oob` until it closes or `stop` returns true. `each`
    /// is called with the result of every job.
    ///
    /// # Errors
    /// The exchange fails, or the port is gone. A client that closes between jobs is the normal
    /// end.
    pub fn serve(
        &mut self,
        oob: Oob,
        stop: impl Fn() -> bool,
        mut each: impl FnMut(&Served),
    ) -> Result<(), Error> {
        let mut client = PendingClient::new(oob, self.ip);
        while !stop() {
            match self.poll_client(&mut client)? {
                ClientPoll::Pending => client.wait(),
                ClientPoll::Closed => return Ok(()),
                ClientPoll::Request(request) => {
                    let served = self.serve_request(&mut client, &request, &stop)?;
                    each(&served);
                    if !served.complete {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs the job that `client` requests.
    ///
    /// # Errors
    /// The exchange fails, or the port is gone.
    pub fn serve_request(
        &mut self,
        client: &mut PendingClient,
        request: &Request,
        stop: &impl Fn() -> bool,
    ) -> Result<Served, Error> {
        self.set_ip(client.us);
        self.peer = client.peer;
        let served = self.serve_job(&mut client.oob, request, stop);
        client.restart_wait();
        served
    }

    /// Checks a job against its bounds and the limits of this server.
    pub(super) fn check_request(&self, job: &Job) -> Result<(), String> {
        let bytes = job_bytes(job, self.attachment.path_mtu)?;
        let max = self.transfer_bytes_max;
        if bytes <= max {
            return Ok(());
        }
        let what = match job.kind {
            JobKind::Transfer { .. } => "a transfer of",
            JobKind::Bandwidth { .. } | JobKind::Latency { .. } => "messages in",
        };
        Err(format!("{what} {bytes} bytes; this server takes {max} (perf server --max-transfer)"))
    }

    fn serve_job(
        &mut self,
        oob: &mut Oob,
        request: &Request,
        stop: &impl Fn() -> bool,
    ) -> Result<Served, Error> {
        let setup = match self.set_up_server(request.job) {
            Ok(setup) => setup,
            Err(e) => {
                // The cause names limits of this process, which the client cannot change.
                oob.send(&Message::reject("this server has no room for the job now"))?;
                return Err(e);
            }
        };
        let served = self.serve_set_up(oob, &setup, request, stop);
        self.tear_down(&setup);
        served
    }

    /// Creates the server's queue pairs and memory for `job`.
    pub(super) fn set_up_server(&mut self, job: Job) -> Result<Setup, Error> {
        let receives = Target::receives(&job);
        let caps = QpCaps {
            max_send_wr: (job.depth * 2).max(PING_PONG_SENDS),
            max_recv_wr: receives,
            ..QpCaps::default()
        };
        let (bytes, access) = (region_bytes(&job), access(job.op));
        let needs = Needs { bytes, caps, access, receives_apart: false };
        self.set_up(job, needs)
    }

    /// The passive side of a connected job, with its receives posted.
    pub(super) fn start_target(&mut self, setup: &Setup) -> Target {
        setup.fill_source(false);
        let mut target = Target::new(setup.job, setup.cq, &setup.qpns, setup.mr);
        if let Ok(Core { node: ep, .. }) = self.core() {
            target.post_receives(ep);
        }
        target
    }

    fn serve_set_up(
        &mut self,
        oob: &mut Oob,
        setup: &Setup,
        request: &Request,
        stop: &impl Fn() -> bool,
    ) -> Result<Served, Error> {
        oob.send(&Message::Accept(Accept { qps: setup.params.clone(), memory: setup.memory() }))?;
        match oob.recv(READY_TIMEOUT)? {
            Message::Ready => {}
            other => return Err(OobError::unexpected("ready", &other).into()),
        }
        // Until here the queue pairs drop all packets, and no page of the memory is in use.
        let sending = self.connect(setup, &request.qps, RD_ATOMIC, Some(request))?;
        let target = self.start_target(setup);
        oob.send(&Message::Ready)?;
        let overflows = self.receive_overflows();
        let mut end = None;
        let clock = self.attachment.clock;
        let mut polled_at = Time::ZERO;
        let mut limits = Limits::new(&setup.job, clock.now());
        let target = self.drive_host(target, |host| {
            let (now, stopped) = (clock.now(), stop());
            // On a stop, the connection is polled once more: a client that has closed already was
            // not interrupted.
            if stopped || now.since(polled_at) >= POLL_INTERVAL {
                polled_at = now;
                end = poll_side(oob);
                let packets = host.endpoint().counters().rx_packets;
                if let Some(why) = limits.check(now, packets).filter(|_| end.is_none()) {
                    end = Some(Ended::TimedOut(why));
                }
            }
            end.is_some() || stopped || host.app().failure().is_some()
        })?;
        if let Some(what) = target.failure() {
            return Err(what.into());
        }
        if end.is_none() {
            return Err("interrupted".into());
        }
        let mut complete = matches!(end, Some(Ended::Done));
        if complete {
            let (sha256, messages) = (setup.sha256(), target.messages());
            let atomics = setup.atomics();
            let receive_overflows = self.receive_overflows().zip(overflows);
            let receive_overflows = receive_overflows.map(|(now, before)| now - before);
            let outcome = Outcome { sha256, messages, atomics, receive_overflows };
            // A client does not wait for a server that was suspended.
            complete = oob.send(&Message::Result(outcome)).is_ok();
        }
        match end {
            Some(Ended::Broken(e)) => return Err(e.into()),
            Some(Ended::TimedOut(why)) => {
                // A peer that is gone cannot receive the reason.
                let _ = oob.send(&Message::reject(why.clone()));
                return Err(why.into());
            }
            _ => {}
        }
        let counters = self.counters();
        let (job, messages) = (setup.job, target.messages());
        let agreed = self.agreed().unwrap_or(Agreed::Rc);
        let congestion = Congestion::from(&sending.congestion.unwrap_or_default());
        let paths = self.paths(setup, &sending);
        Ok(Served { job, agreed, congestion, paths, messages, complete, counters })
    }
}

/// The end of a job's traffic.
enum Ended {
    Done,
    /// The client closed the connection.
    Left,
    Broken(OobError),
    /// The job exceeded a time limit of the server; the reason.
    TimedOut(String),
}

/// Time limits of a job at the server, because other clients wait meanwhile.
struct Limits {
    /// Deadline of the whole job.
    until: Option<Time>,
    /// Packets received, and when their count last changed.
    packets: u64,
    last_packet_at: Time,
}

impl Limits {
    fn new(job: &Job, now: Time) -> Self {
        let until = match job.kind {
            JobKind::Transfer { bytes, .. } => {
                let takes = Rate::from_bps(TRANSFER_MIN_BPS).time_for(bytes);
                Some(now + takes + IDLE_TIMEOUT)
            }
            JobKind::Bandwidth { duration_ms } | JobKind::Latency { duration_ms } => {
                Some(now + Dur::from_ms(duration_ms) + IDLE_TIMEOUT)
            }
        };
        Self { until, packets: 0, last_packet_at: now }
    }

    /// The reason to end the job, if a limit is exceeded; `packets` were received so far.
    fn check(&mut self, now: Time, packets: u64) -> Option<String> {
        if packets != self.packets {
            (self.packets, self.last_packet_at) = (packets, now);
        }
        let quiet = IDLE_TIMEOUT.as_ns() / 1_000_000_000;
        if now.since(self.last_packet_at) >= IDLE_TIMEOUT {
            return Some(format!("neither a message nor a packet came for {quiet} s"));
        }
        let is_over = self.until.is_some_and(|until| now >= until);
        is_over.then(|| format!("the job took {quiet} s longer than it was to take"))
    }
}

/// Polls the side connection while traffic runs.
fn poll_side(oob: &mut Oob) -> Option<Ended> {
    match oob.try_recv() {
        Ok(None) => None,
        Ok(Some(Message::Done)) => Some(Ended::Done),
        Ok(Some(other)) => Some(Ended::Broken(OobError::unexpected("done", &other))),
        Err(e) if is_gone(&e) => Some(Ended::Left),
        Err(e) => Some(Ended::Broken(e)),
    }
}

/// Poll interval of the side connection while traffic runs; each poll is a system call.
const POLL_INTERVAL: Dur = Dur::from_ms(1);

/// Idle timeout of a running job, and its grace period after `duration_ms`: as long as that of
/// every other step ([`crate::oob::REPLY_TIMEOUT`]).
const IDLE_TIMEOUT: Dur = Dur::from_secs(30);

/// How long a client may take to bring its queue pairs to RTS once the job is accepted. At most it
/// resolves a neighbour meanwhile.
const READY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// Minimum rate of a transfer, so that occasional packets do not occupy the server.
const TRANSFER_MIN_BPS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(kind: JobKind) -> Limits {
        Limits::new(&Job::of(kind), at(0))
    }

    fn at(s: u64) -> Time {
        Time::ZERO + Dur::from_secs(s)
    }

    #[test]
    fn check__a_job_without_messages_or_packets_ends() {
        let transfer = JobKind::Transfer { bytes: 1 << 30, seed: 1 };
        let mut limits = limits(transfer);
        for s in 0..100 {
            assert_eq!(limits.check(at(s * 29), s), None, "a packet came");
        }
        let last = 99 * 29;
        assert_eq!(limits.check(at(last + 29), 99), None);
        let why = limits.check(at(last + 30), 99).expect("nothing came for 30 s");
        assert!(why.contains("neither a message nor a packet came for 30 s"), "{why}");
    }

    #[test]
    fn check__a_transfer_below_the_minimum_rate_ends() {
        // The limit is 8.4 s at 1 Mbit/s, and 30 s of grace.
        let mut limits = limits(JobKind::Transfer { bytes: 1 << 20, seed: 1 });
        assert_eq!((limits.check(at(20), 1), limits.check(at(38), 2)), (None, None));
        assert!(limits.check(at(39), 3).expect("too slow").contains("longer"));
    }

    #[test]
    fn check__a_run_is_limited_to_its_declared_duration() {
        let mut limits = limits(JobKind::Latency { duration_ms: 5_000 });
        for s in 0..35 {
            assert_eq!(limits.check(at(s), s), None, "{s}");
        }
        assert!(limits.check(at(35), 35).expect("30 s too long").contains("longer"));
    }
}
