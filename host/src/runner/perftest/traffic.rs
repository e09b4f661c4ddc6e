//! The traffic of a perftest run: at most one application for each part of our role.

use super::super::client::{JobReport, is_send_ping_pong};
use crate::initiator::Initiator;
use crate::oob::Job;
use crate::target::Target;
use crate::write_ping_pong::WritePingPong;
use spanwire_base::{Dur, Time};
use spanwire_transport::{App, Endpoint};

/// The applications of one role. Without any, this end only responds.
#[derive(Default)]
pub(super) struct Traffic {
    pub(super) active: Option<Initiator>,
    pub(super) passive: Option<Target>,
    pub(super) ping_pong: Option<WritePingPong>,
    started: bool,
}

/// Traffic that wakes its driver at least every [`POLL_INTERVAL`], so that the driver can poll the
/// side connection and sleep in between.
pub(super) struct PolledTraffic<'a> {
    traffic: &'a mut Traffic,
    wake: Time,
}

impl Traffic {
    /// Starts to post our messages.
    pub(super) fn start(&mut self) {
        self.started = true;
    }

    /// True once our messages are all posted and complete.
    pub(super) fn is_done(&self) -> bool {
        self.active.as_ref().is_none_or(Initiator::is_done)
            && self.ping_pong.as_ref().is_none_or(WritePingPong::is_done)
    }

    /// Ends our messages early, at `now`.
    pub(super) fn interrupt(&mut self, now: Time) {
        if let Some(active) = &mut self.active {
            active.interrupt(now);
        }
        if let Some(ping_pong) = &mut self.ping_pong {
            ping_pong.interrupt(now);
        }
    }

    /// The failure of the receiving side, if there was one.
    pub(super) fn failure(&self) -> Option<&'static str> {
        self.passive.as_ref().and_then(Target::failure)
    }

    /// Messages received (SEND).
    pub(super) fn messages(&self) -> u64 {
        self.passive.as_ref().map_or(0, Target::messages)
    }

    /// The measurement of `job`, if this side was active.
    pub(super) fn report(&self, job: Job) -> Option<JobReport> {
        match (&self.active, &self.ping_pong) {
            (Some(a), _) => {
                let half_rtt = is_send_ping_pong(&job);
                Some(JobReport::new(job, a.progress(), a.latency().clone(), half_rtt))
            }
            (None, Some(p)) => Some(JobReport::new(job, p.progress(), p.latency().clone(), true)),
            (None, None) => None,
        }
    }

    /// Polls memory that the peer may have written, which causes no completion.
    pub(super) fn look(&mut self, now: Time, ep: &mut Endpoint) {
        if let Some(ping_pong) = self.ping_pong.as_mut().filter(|_| self.started) {
            ping_pong.poll(now, ep);
        }
    }
}

impl App for Traffic {
    fn poll(&mut self, now: Time, ep: &mut Endpoint) {
        if let Some(active) = self.active.as_mut().filter(|_| self.started) {
            active.poll(now, ep);
        }
        if let Some(passive) = &mut self.passive {
            passive.poll(now, ep);
        }
        self.look(now, ep);
    }
}

impl<'a> PolledTraffic<'a> {
    pub(super) fn new(traffic: &'a mut Traffic) -> Self {
        Self { traffic, wake: Time::ZERO }
    }

    pub(super) fn traffic(&mut self) -> &mut Traffic {
        self.traffic
    }
}

impl App for PolledTraffic<'_> {
    fn poll(&mut self, now: Time, ep: &mut Endpoint) {
        self.wake = now + POLL_INTERVAL;
        self.traffic.poll(now, ep);
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.wake)
    }
}

/// Poll interval of the side connection; each poll is a system call.
pub(super) const POLL_INTERVAL: Dur = Dur::from_ms(1);
