//! The event loop of a node with several ports: port number n of the node is entry n of a slice.

use super::{Budget, Driver, Progress};
use crate::clock::TimeSource;
use crate::poll::poll;
use crate::port::{Burst, Port};
use spanwire_base::{Dur, Node, PortId, PortMask, Time};
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// One iteration of a node with several ports, in the order of [`step`](super::step): receive on
/// every port, timers, transmit on every port, flush.
///
/// `budget` applies to each port. `unfinished` is the caller's state between steps, empty at first:
/// the ports that ran out of buffers or of `budget.tx`. Frames for a port that is not in `ports`
/// stay in the node.
///
/// # Errors
/// A port has failed. The others have been flushed, and the node can continue.
///
/// # Panics
/// If there are more ports than [`PortMask::BITS`], or if the node returns a frame longer than its
/// buffer.
pub fn step_ports<P: Port>(
    clock: &dyn TimeSource,
    node: &mut dyn Node,
    ports: &mut [P],
    unfinished: &mut PortMask,
    budget: Budget,
) -> io::Result<Progress> {
    let mut progress = Progress::default();
    let mut now = clock.now();
    for (n, port) in ports.iter_mut().enumerate() {
        let id = port_id(n);
        progress.rx += port.rx_burst(clock, budget.rx, &mut |frame, meta| {
            now = now.max(meta.at);
            node.handle_packet(now, id, frame, meta);
        });
    }
    let now = clock.now();
    if node.poll_timeout().is_some_and(|at| at <= now) {
        node.handle_timeout(now);
        progress.timeout = true;
    }
    unfinished.merge(node.take_ready());
    let mut ready = unfinished.take();
    while let Some(id) = ready.pop() {
        let Some(port) = ports.get_mut(id.index()) else { continue };
        let mut burst = Burst::new(port, budget.tx);
        if !node.transmit_burst(now, id, &mut burst) {
            unfinished.insert(id);
        }
        progress.tx += burst.sent;
    }
    // Every port is flushed, even if another one fails.
    let flushed = ports.iter_mut().map(|port| port.flush(now));
    flushed.fold(Ok(()), io::Result::and).map(|()| progress)
}

impl<C: TimeSource + Copy> Driver<C> {
    /// Drives `node` over `ports` until `stop` returns true; see [`Driver::run_until`]. During a
    /// sleep it wakes for a frame on any port that has a [`Port::poll_fd`], and polls the others
    /// every 200 us.
    ///
    /// # Errors
    /// A port has failed.
    ///
    /// # Panics
    /// If there are more ports than [`PortMask::BITS`].
    pub fn run_ports_until<N: Node, P: Port>(
        &mut self,
        node: &mut N,
        ports: &mut [P],
        mut stop: impl FnMut(&mut N) -> bool,
    ) -> io::Result<()> {
        let mut entries = Vec::with_capacity(ports.len());
        let mut alarm = Alarm::default();
        while !stop(node) {
            let now = self.clock.now();
            let progress = step_ports(&self.clock, node, ports, &mut self.unfinished, self.budget)?;
            self.count(progress);
            if progress.is_idle() {
                // A port without free buffers counts as pending, because no descriptor reports when
                // it gets one back.
                let pending = ports.iter().map(Port::tx_pending).sum::<usize>()
                    + usize::from(!self.unfinished.is_empty());
                let deadline = node.poll_timeout().map(|at| alarm.wake_at(now, at));
                let next = (node.awaited(), deadline);
                self.idle(now, next, pending, |sleep| wait(ports, &mut entries, sleep))?;
            } else {
                self.end_wait(now);
            }
        }
        Ok(())
    }
}

/// Wakes before a distant deadline and spins the rest. A sleep ends late by the time that waking a
/// core takes, and a frame would be that late at every hop. If deadlines are close to each other,
/// sleeps are short and frequent, and lateness costs less than spinning all the time.
#[derive(Debug, Default)]
struct Alarm {
    /// The deadline of the last early wakeup.
    slept_for: Option<Time>,
}

impl Alarm {
    /// When to wake for a deadline; `now` or earlier: no sleep.
    fn wake_at(&mut self, now: Time, deadline: Time) -> Time {
        if self.slept_for == Some(deadline) {
            return deadline - WAKE_EARLY;
        }
        if deadline.since(now) < WORTH_WAKING_EARLY {
            return deadline;
        }
        self.slept_for = Some(deadline);
        deadline - WAKE_EARLY
    }
}

/// Sleeps until a frame arrives on one of `ports` or the timeout expires. `entries` is a buffer
/// reused between calls.
fn wait<P: Port>(
    ports: &mut [P],
    entries: &mut Vec<libc::pollfd>,
    timeout: Duration,
) -> io::Result<()> {
    entries.clear();
    for port in ports.iter() {
        let Some(fd) = port.poll_fd() else { continue };
        entries.push(libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    }
    let timeout = slice(timeout, entries.len() < ports.len());
    let ready = poll(entries, timeout)?;
    let error = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
    if entries.iter().any(|entry| entry.revents & error != 0)
        || (ready == 0 && timeout >= CHECK_AFTER)
    {
        // A socket that lost its interface never becomes ready; each port checks for that itself.
        return ports.iter_mut().try_for_each(|port| port.wait(Duration::ZERO));
    }
    Ok(())
}

/// The first part of a sleep of `timeout`: short if a port is blind, which has no descriptor.
fn slice(timeout: Duration, is_blind: bool) -> Duration {
    let blind_max = Duration::from_nanos(NO_WAKEUP_SLEEP_MAX.as_ns());
    if is_blind { timeout.min(blind_max) } else { timeout }
}

fn port_id(n: usize) -> PortId {
    let id = u8::try_from(n).ok().and_then(PortId::new);
    id.expect("no more ports than a PortMask has bits")
}

/// Time to wake an idle core in a virtual machine: 30 to 50 us measured, including 1 us for the
/// timer.
const WAKE_EARLY: Dur = Dur::from_us(50);

/// Minimum distance of a deadline worth spinning for: spinning then takes at most a quarter of the
/// time.
const WORTH_WAKING_EARLY: Dur = Dur::from_us(200);

/// The longest sleep with a port that cannot wake the worker: a compromise between the cost of a
/// system call and a frame's delay.
const NO_WAKEUP_SLEEP_MAX: Dur = Dur::from_us(200);

/// Minimum quiet sleep after which the ports are checked for failure; after shorter ones the check
/// would cost more than the sleep saved.
const CHECK_AFTER: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests;
