//! A driver that also waits for descriptors of its application.

use super::Driver;
use crate::clock::TimeSource;
use crate::port::Port;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use spanwire_base::Node;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

impl<C: TimeSource + Copy> Driver<C> {
    /// As [`Driver::run_until`]; a sleep also ends when one of `descriptors` is readable: a socket,
    /// a timer, an event of another thread. `stop` looks at them and reads them; one that stays
    /// readable keeps the driver awake. With [`Polling::Busy`](super::Polling::Busy) there is no
    /// sleep, and `stop` polls.
    ///
    /// # Errors
    /// The port has failed.
    pub fn run_until_fd<N: Node>(
        &mut self,
        node: &mut N,
        port: &mut dyn Port,
        descriptors: &[BorrowedFd<'_>],
        stop: impl FnMut(&mut N) -> bool,
    ) -> io::Result<()> {
        self.run_with(node, port, stop, |port, within| wait(port, descriptors, within))
    }
}

/// Sleeps until a frame arrives, one of `descriptors` is readable, or for `within`.
fn wait(port: &mut dyn Port, descriptors: &[BorrowedFd<'_>], within: Duration) -> io::Result<()> {
    let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(descriptors.len() + 1);
    fds.extend(descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
    let within = match port.poll_fd() {
        Some(fd) => {
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            within
        }
        // Nothing reports a frame: the port is polled.
        None => within.min(POLL_INTERVAL),
    };
    let within = Timespec::try_from(within).ok();
    // A signal ends the sleep early, and an error too; the caller then steps and sleeps again.
    let _ = poll(&mut fds, within.as_ref());
    // The port checks its own state.
    port.wait(Duration::ZERO)
}

/// Maximum sleep with a port that has no descriptor.
const POLL_INTERVAL: Duration = Duration::from_micros(200);
