//! The station that takes jobs.

use super::guest::is_gone;
use super::{Attended, Guest, Needs, RD_ATOMIC, Setup, Station, access, check, region_bytes};
use crate::fabric::Error;
use crate::initiator::PING_PONG_SENDS;
use crate::oob::{
    Accept, Congestion, Job, JobKind, Message, Oob, OobError, Outcome, REPLY_TIMEOUT, Request,
};
use crate::path_report::PathsReport;
use crate::target::Target;
use spanwire_base::{Dur, Time};
use spanwire_transport::{Agreed, QpCaps};

/// A job that was served.
#[derive(Clone, Debug)]
pub struct Served {
    /// The job.
    pub job: Job,
    /// How its queue pairs spoke.
    pub agreed: Agreed,
    /// Congestion control of what we sent, if any.
    pub congestion: Option<Congestion>,
    /// Erasure coding and paths of what we sent.
    pub paths: PathsReport,
    /// Messages received (SEND).
    pub messages: u64,
    /// The client said that it was done; otherwise it went away in the middle.
    pub complete: bool,
    /// Counters of engine and port since the station was made.
    pub counters: Vec<(String, u64)>,
}

impl Station {
    /// Serves the client at the other end of `oob` until it goes away or `stop` says so. `each` is
    /// told of every job.
    ///
    /// # Errors
    /// The exchange fails, or the port is gone. A client that leaves between jobs is the normal
    /// end.
    pub fn serve(
        &mut self,
        oob: Oob,
        stop: impl Fn() -> bool,
        mut each: impl FnMut(&Served),
    ) -> Result<(), Error> {
        let mut guest = Guest::new(oob, self.ip);
        while !stop() {
            match self.listen_to(&mut guest)? {
                Attended::Waits => guest.wait(STOP_SEEN_WITHIN),
                Attended::Left => return Ok(()),
                Attended::Asks(request) => {
                    let served = self.serve_request(&mut guest, &request, &stop)?;
                    each(&served);
                    if !served.complete {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Does what `guest` asks for.
    ///
    /// # Errors
    /// The exchange fails, or the port is gone.
    pub fn serve_request(
        &mut self,
        guest: &mut Guest,
        request: &Request,
        stop: &impl Fn() -> bool,
    ) -> Result<Served, Error> {
        self.set_ip(guest.us);
        self.peer = guest.peer;
        let served = self.serve_job(&mut guest.oob, request, stop);
        guest.wait_anew();
        served
    }

    /// What any job must satisfy, and what this server takes on.
    pub(super) fn check_request(&self, job: &Job) -> Result<(), String> {
        check(job, self.attachment.path_mtu)?;
        match job.kind {
            JobKind::Transfer { bytes, .. } if bytes > self.transfer_bytes_max => Err(format!(
                "a transfer of {bytes} bytes; this server takes {} (perf server --max-transfer)",
                self.transfer_bytes_max
            )),
            _ => Ok(()),
        }
    }

    fn serve_job(
        &mut self,
        oob: &mut Oob,
        request: &Request,
        stop: &impl Fn() -> bool,
    ) -> Result<Served, Error> {
        let job = request.job;
        let receives = Target::receives(&job);
        let caps = QpCaps {
            max_send_wr: (job.depth * 2).max(PING_PONG_SENDS),
            max_recv_wr: receives,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let (bytes, access) = (region_bytes(&job), access(job.op));
        let needs = Needs { bytes, caps, access, receives_apart: false };
        let setup = match self.set_up(job, needs) {
            Ok(setup) => setup,
            Err(e) => {
                oob.send(&Message::Reject { reason: e.to_string() })?;
                return Err(e);
            }
        };
        let served = self.serve_set_up(oob, &setup, request, stop);
        self.tear_down(&setup);
        served
    }

    fn serve_set_up(
        &mut self,
        oob: &mut Oob,
        setup: &Setup,
        request: &Request,
        stop: &impl Fn() -> bool,
    ) -> Result<Served, Error> {
        setup.fill_source(false);
        let sending = self.connect(setup, &request.qps, RD_ATOMIC, Some(request))?;
        let mut target = Target::new(setup.job, setup.cq, &setup.qpns, setup.mr);
        if let Some(ep) = self.endpoint.as_mut() {
            target.post_receives(ep);
        }
        oob.send(&Message::Accept(Accept { qps: setup.params.clone(), memory: setup.memory() }))?;
        match oob.recv(REPLY_TIMEOUT)? {
            Message::Ready => oob.send(&Message::Ready)?,
            other => return Err(OobError::unexpected("ready", other).into()),
        }
        let mut end = None;
        let clock = self.attachment.clock;
        let mut looked = Time::ZERO;
        let target = self.drive(target, |target| {
            let (now, stopped) = (clock.now(), stop());
            // A client that has left already was not cut short.
            if stopped || now.since(looked) >= LOOK_EVERY {
                looked = now;
                end = look(oob);
            }
            end.is_some() || stopped || target.failure().is_some()
        })?;
        if let Some(what) = target.failure() {
            return Err(what.into());
        }
        if end.is_none() {
            return Err("interrupted".into());
        }
        let complete = matches!(end, Some(Ended::Done));
        if complete {
            let (sha256, messages) = (setup.sha256(), target.messages());
            let atomics = setup.atomics();
            oob.send(&Message::Result(Outcome { sha256, messages, atomics }))?;
        }
        if let Some(Ended::Broken(e)) = end {
            return Err(e.into());
        }
        let counters = self.counters();
        let (job, messages) = (setup.job, target.messages());
        let agreed = self.agreed().unwrap_or(Agreed::Rc);
        let congestion = sending.congestion.as_ref().map(Congestion::from);
        let paths = self.paths(setup, &sending);
        Ok(Served { job, agreed, congestion, paths, messages, complete, counters })
    }
}

/// How a job's traffic ended.
enum Ended {
    Done,
    /// The client closed the connection.
    Left,
    Broken(OobError),
}

/// Looks at the side connection while traffic runs.
fn look(oob: &mut Oob) -> Option<Ended> {
    match oob.try_recv() {
        Ok(None) => None,
        Ok(Some(Message::Done)) => Some(Ended::Done),
        Ok(Some(other)) => Some(Ended::Broken(OobError::unexpected("done", other))),
        Err(e) if is_gone(&e) => Some(Ended::Left),
        Err(e) => Some(Ended::Broken(e)),
    }
}

/// How often the side connection is looked at while traffic runs: a system call.
const LOOK_EVERY: Dur = Dur::from_ms(1);

/// How soon a server between jobs sees that it should stop.
const STOP_SEEN_WITHIN: std::time::Duration = std::time::Duration::from_millis(100);
