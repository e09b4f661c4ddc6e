//! Both ends of a pipe in one thread: a worker without a network, which shares nothing with others.

use super::{JobReport, JobRunner, RD_ATOMIC, Setup, Watch};
use crate::drive::{hosting, parted};
use crate::fabric::{Attachment, Error, Wrap};
use crate::oob::{Job, Outcome};
use spanwire_io::driver::Polling;
use std::net::{IpAddr, Ipv4Addr};

/// A client and its server, which one thread drives in turns. It never sleeps.
pub struct Pair {
    client: JobRunner,
    server: JobRunner,
}

impl Pair {
    /// Two ends that have met over a pipe, for transfers of at most `transfer_bytes_max` bytes.
    ///
    /// # Errors
    /// The system provides no random numbers for the keys.
    pub fn new(transfer_bytes_max: u64) -> Result<Self, Error> {
        let (near, far) = Attachment::pipe([&Wrap::default(), &Wrap::default()])?;
        let end = |attachment, n| {
            JobRunner::new(attachment, IpAddr::V4(Ipv4Addr::new(10, 77, 0, n)), Polling::Busy)
        };
        let (mut client, mut server) = (end(near, 1)?, end(far, 2)?);
        server.set_transfer_bytes_max(transfer_bytes_max);
        let sizes = client.attachment.packet_sizes();
        let (ours, theirs) = (client.hello(sizes), server.hello(sizes));
        client.peer = Some(client.check_hello(None, &theirs, sizes, true)?);
        server.peer = Some(server.check_hello(None, &ours, sizes, false)?);
        Ok(Self { client, server })
    }

    /// The runner of the client.
    #[must_use]
    pub fn client(&self) -> &JobRunner {
        &self.client
    }

    /// Runs one job, as [`JobRunner::run`].
    ///
    /// # Errors
    /// The job is out of bounds, or there is no memory for it.
    pub fn run(
        &mut self,
        job: Job,
        stop: &dyn Fn() -> bool,
        watch: impl FnMut(&Watch<'_>),
    ) -> Result<JobReport, Error> {
        self.server.check_request(&job)?;
        let near = self.client.set_up_client(job)?;
        let report = match self.server.set_up_server(job) {
            Ok(far) => {
                let report = self.run_set_up(&near, &far, stop, watch);
                self.server.tear_down(&far);
                report
            }
            Err(why) => Err(why),
        };
        self.client.tear_down(&near);
        report
    }

    fn run_set_up(
        &mut self,
        near: &Setup,
        far: &Setup,
        stop: &dyn Fn() -> bool,
        watch: impl FnMut(&Watch<'_>),
    ) -> Result<JobReport, Error> {
        let Self { client, server } = self;
        let sending = client.connect(near, &far.params, RD_ATOMIC, None)?;
        server.connect(far, &near.params, RD_ATOMIC, None)?;
        let target = server.start_target(far);
        let worker = hosting(server.worker.take().ok_or(super::LOST)?, target);
        let beside = || {
            worker.turn();
        };
        let report = client.measure(near, far.memory(), &sending, stop, watch, beside);
        let (worker, target) = parted(worker);
        server.worker = Some(worker);
        let target = target.ok_or(super::LOST)?;
        if let Some(what) = target.failure() {
            return Err(what.into());
        }
        let (sha256, messages, atomics) = (far.sha256(), target.messages(), far.atomics());
        let outcome = Outcome { sha256, messages, atomics, receive_overflows: None };
        Ok(JobReport { sha256: near.sha256(), peer: Some(outcome), ..report? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oob::{JobKind, Op};

    fn run(kind: JobKind, op: Op) -> JobReport {
        let mut pair = Pair::new(1 << 22).unwrap();
        let depth = if matches!(kind, JobKind::Latency { .. }) { 1 } else { 4 };
        let job = Job { op, size: 5_000, depth, timeout: 16, ..Job::of(kind) };
        // Two in a row: the first leaves nothing behind.
        pair.run(job, &|| false, |_| {}).unwrap();
        pair.run(job, &|| false, |_| {}).unwrap()
    }

    #[test]
    fn run__transfers_are_equal_on_both_ends() {
        for op in [Op::Write, Op::Read, Op::Send] {
            let report = run(JobKind::Transfer { bytes: 1 << 21, seed: 7 }, op);
            assert_eq!((report.sha256_match(), report.progress.bytes), (Some(true), 1 << 21));
        }
    }

    #[test]
    fn run__measures_ping_pongs_and_counts_atomics() {
        let latency = run(JobKind::Latency { duration_ms: 20 }, Op::Send);
        assert!(latency.is_ok(), "{:?} {:?}", latency.progress, latency.error());
        assert!(latency.is_ping_pong() && latency.progress.messages > 0);
        let mut pair = Pair::new(1 << 22).unwrap();
        let bandwidth = JobKind::Bandwidth { duration_ms: 20 };
        let job = Job { op: Op::FetchAdd, size: 8, depth: 4, ..Job::of(bandwidth) };
        let report = pair.run(job, &|| false, |_| {}).unwrap();
        assert_eq!(report.peer_atomics(), Some(report.progress.messages));
    }

    #[test]
    fn run__a_job_out_of_bounds_is_refused() {
        let mut pair = Pair::new(1 << 22).unwrap();
        let job = Job::of(JobKind::Transfer { bytes: u64::MAX, seed: 1 });
        assert!(pair.run(job, &|| false, |_| {}).is_err());
    }
}
