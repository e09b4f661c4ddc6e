//! The verbs level: SEND and receive requests, posted and polled by the thread that drives the
//! port. Every message is processed to completion before the next step.
//!
//! Engine, port and polling are those of `stream`, so that the difference is that of the layers.

mod lanes;
mod setup;

use super::exchange::Application;
use super::task::{End, SILENCE};
use crate::sample::Error;
use lanes::Progress;
use setup::Setup;
use spanwire_base::{Awaited, Dur, Node, PortId, PortMask, RxMeta, Time, TxMeta};
use spanwire_io::driver::{Driver, Polling};
use spanwire_transport::Endpoint;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Runs this end until `application` is done.
pub(super) fn run(end: &End, application: &mut impl Application) -> Result<(), Error> {
    let Setup { mut endpoint, mut attachment, mut lanes, side } = Setup::new(end, application)?;
    let mut driver = Driver::new(attachment.clock, Polling::Adaptive);
    let mut drive = |driver: &mut Driver, step: &mut Step<'_>| {
        let (mut outcome, mut active_at) = (Ok(()), Instant::now());
        let mut node = Timed { endpoint: &mut endpoint, due: None };
        driver.run_until(&mut node, &mut *attachment.port, |node| {
            outcome = match step(node) {
                Ok(Progress::Done) => return true,
                Ok(Progress::Active) => {
                    active_at = Instant::now();
                    return false;
                }
                Ok(Progress::Idle) if active_at.elapsed() < SILENCE => return false,
                Ok(Progress::Idle) => Err(format!("nothing completed for {SILENCE:?}").into()),
                Err(why) => Err(why),
            };
            true
        })?;
        outcome
    };
    let clock = attachment.clock;
    drive(&mut driver, &mut |node| {
        lanes.start(node.endpoint, application)?;
        let polled = lanes.poll(node.endpoint, application)?;
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        node.due = application.wakes_at().map(|at| clock.now() + Dur::from_ns(nanos(left(at))));
        Ok(if application.is_done() { Progress::Done } else { polled })
    })?;
    let is_client = end.server.is_some();
    if is_client {
        side.set_nonblocking(true)?;
    }
    let mut is_finished = false;
    // Spinning, since the end of the side connection does not wake the driver.
    drive(&mut Driver::new(clock, Polling::Busy), &mut |Timed { endpoint, due }| {
        *due = None;
        if is_client && !std::mem::replace(&mut is_finished, true) {
            lanes.finish(endpoint)?;
        }
        let polled = lanes.poll(endpoint, application)?;
        // The server ends once its replies are acknowledged, which the client does until then. The
        // server need not acknowledge the ends of the connections.
        let is_over = if is_client { has_ended(&side)? } else { lanes.in_flight() == 0 };
        Ok(if is_over { Progress::Done } else { polled })
    })
}

/// A step of the application between two steps of the driver.
type Step<'a> = dyn FnMut(&mut Timed<'_>) -> Result<Progress, Error> + 'a;

/// An endpoint whose driver also wakes when the application's next message is due.
struct Timed<'a> {
    endpoint: &'a mut Endpoint,
    due: Option<Time>,
}

impl Node for Timed<'_> {
    fn handle_packet(&mut self, now: Time, port: PortId, frame: &[u8], meta: RxMeta) {
        self.endpoint.handle_packet(now, port, frame, meta);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, port: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        self.endpoint.poll_transmit(now, port, frame)
    }

    fn poll_timeout(&self) -> Option<Time> {
        [self.endpoint.poll_timeout(), self.due].into_iter().flatten().min()
    }

    fn awaited(&mut self) -> Awaited {
        self.endpoint.awaited()
    }

    fn take_ready(&mut self) -> PortMask {
        self.endpoint.take_ready()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// True if the other end has closed the side connection.
fn has_ended(mut side: &TcpStream) -> Result<bool, Error> {
    match side.read(&mut [0]) {
        Ok(0) => Ok(true),
        Ok(_) => Err("the other end went on speaking".into()),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(e) => Err(e.into()),
    }
}
