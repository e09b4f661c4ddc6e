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
use spanwire_base::{Awaited, Dur, Node, PortId, PortMask, RxMeta, Time, TxBurst, TxMeta};
use spanwire_host::fabric::{Attachment, Link};
use spanwire_io::driver::Polling;
use spanwire_io::worker::{self, Worker};
use spanwire_transport::Endpoint;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Runs this end until `application` is done.
pub(super) fn run(end: &End, application: &mut impl Application) -> Result<(), Error> {
    let Setup { endpoint, attachment, mut lanes, side } = Setup::new(end, application)?;
    let Attachment { port, terms } = attachment;
    let node = Timed { endpoint, due: None };
    let bell = worker::bell(worker::Progress::Inline)?;
    let worker = worker::worker(bell, node, port, terms.clock, Polling::Adaptive)?;
    drive(&worker, |Timed { endpoint, due }| {
        lanes.start(endpoint, application)?;
        let polled = lanes.poll(endpoint, application)?;
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        *due = application.wakes_at().map(|at| terms.clock.now() + Dur::from_ns(nanos(left(at))));
        Ok(if application.is_done() { Progress::Done } else { polled })
    })?;
    let is_client = end.server.is_some();
    if is_client {
        side.set_nonblocking(true)?;
    }
    let mut is_finished = false;
    drive(&worker, |Timed { endpoint, due }| {
        // The end of the side connection does not wake the worker.
        *due = Some(terms.clock.now() + Dur::from_us(100));
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

/// Drives `worker` until `step`, which is called before each of its steps, says that it is done.
fn drive(
    worker: &Worker<Timed, Box<dyn Link + Send>>,
    mut step: impl FnMut(&mut Timed) -> Result<Progress, Error>,
) -> Result<(), Error> {
    let mut active_at = Instant::now();
    let done = worker.wait_for(None, |core| match step(&mut core.node) {
        Ok(Progress::Done) => Some(Ok(())),
        Ok(Progress::Active) => {
            active_at = Instant::now();
            None
        }
        Ok(Progress::Idle) if active_at.elapsed() < SILENCE => None,
        Ok(Progress::Idle) => Some(Err(format!("nothing completed for {SILENCE:?}").into())),
        Err(why) => Some(Err(why)),
    });
    done.ok_or_else(|| worker.why().unwrap_or("the worker has ended").to_owned())?
}

/// An endpoint whose driver also wakes when the application's next message is due.
struct Timed {
    endpoint: Endpoint,
    due: Option<Time>,
}

impl Node for Timed {
    fn handle_packet(&mut self, now: Time, port: PortId, frame: &[u8], meta: &RxMeta) {
        self.endpoint.handle_packet(now, port, frame, meta);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, port: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        self.endpoint.poll_transmit(now, port, frame)
    }

    fn transmit_burst(&mut self, now: Time, port: PortId, burst: &mut dyn TxBurst) -> bool {
        self.endpoint.transmit_burst(now, port, burst)
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
