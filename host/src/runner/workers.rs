//! Several workers of one process: each has a runner, and passes on the frames of the others.

use super::JobRunner;
use crate::fabric::{Attachment, Error};
use crate::oob::WorkerOf;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spanwire_base::u32_from;
use spanwire_io::driver::Polling;
use spanwire_io::worker::{self, Bell, Progress, Worker};
use spanwire_transport::ValidConfig;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

impl JobRunner {
    /// The runner of each worker of a process at address `ip`, with a port of `ports` each, and the
    /// engine parameters `config`.
    ///
    /// # Errors
    /// As [`JobRunner::new`], or `config` has too many queue pairs for so many workers.
    pub fn workers(
        ports: Vec<Attachment>,
        ip: IpAddr,
        polling: Polling,
        config: &ValidConfig,
    ) -> Result<Vec<Self>, Error> {
        let workers = u32_from(ports.len());
        let bell = |_| worker::bell(Progress::Inline);
        let bells = (0..workers).map(bell).collect::<Result<Vec<_>, _>>()?;
        let qpns = config.of_worker(0, workers)?.qpn_workers();
        let ports = Attachment::steered(ports, &bells, qpns);
        let runner = |((port, bell), index): ((Attachment, Arc<Bell>), u32)| {
            let config = config.of_worker(index, workers)?;
            Self::with_config(port, ip, polling, config, bell, WorkerOf { index, workers })
        };
        ports.into_iter().zip(bells).zip(0..).map(runner).collect()
    }

    /// Sets the worker as which peers learn it, and so the worker that it meets there.
    pub fn set_worker(&mut self, worker: WorkerOf) {
        self.worker_of = worker;
    }

    /// Passes on the frames of other workers that arrive here, without a job, until `is_over`
    /// returns true. The only worker returns at once.
    pub fn stand_by(&self, is_over: impl Fn() -> bool) {
        while self.worker_of.workers > 1 && !is_over() {
            self.pass_on();
            let mut fds: Vec<_> = self
                .descriptor()
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .into_iter()
                .collect();
            // An interrupted sleep is a shorter one.
            let _ = poll(&mut fds, Timespec::try_from(STAND_BY_INTERVAL).ok().as_ref());
        }
    }

    /// Passes on the frames of other workers that have arrived here, between jobs. True if there
    /// were any, or others.
    pub(super) fn pass_on(&self) -> bool {
        let worker = self.worker.as_ref().filter(|_| self.worker_of.workers > 1);
        worker.is_some_and(Worker::turn)
    }

    /// The descriptor of the port, if other workers' frames may arrive there.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.door().filter(|_| self.worker_of.workers > 1)?.port()
    }
}

/// How often a worker that stands by looks whether the others have ended.
const STAND_BY_INTERVAL: std::time::Duration = std::time::Duration::from_millis(1);
