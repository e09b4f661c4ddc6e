//! The price of a verb: called by the only thread of an endpoint, and through its worker by a
//! thread that does not drive it.

use crate::ends::{End, Ends};
use crate::sample::Error;
use serde::{Deserialize, Serialize};
use spanwire_io::clock::Clock;
use spanwire_io::driver::Polling;
use spanwire_io::pipe::{PipeConfig, pipe};
use spanwire_io::worker::{Progress, bell, worker};
use spanwire_transport::{Config, Endpoint, Mtu, QpCaps, RemoteAddr, Sge, WorkRequest, WrOp};
use std::thread;
use std::time::Instant;

/// The thread that calls a verb.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum Caller {
    /// That of the endpoint, without a worker.
    Own,
    /// Another one than the worker's, which sleeps at the port.
    Other,
}

/// Nanoseconds of a `post_send` of 64 bytes, and of a `poll_cq` that finds nothing: means of
/// [`CALLS`].
pub(super) fn costs(caller: Caller) -> Result<Vec<f64>, Error> {
    let caps = QpCaps { max_send_wr: CALLS, ..QpCaps::default() };
    let (config, mtu) = (Config::default(), Mtu::B1024);
    let [End { ep: mut endpoint, cq, qpns, mr }, _] =
        Ends { config, qps: 1, caps, cqe: 2, bytes: 64, mtu }.connect(|_, _| {})?;
    let qpn = qpns[0];
    let sges = [Sge { addr: mr.addr, len: 64, lkey: mr.lkey }];
    let remote = RemoteAddr { va: mr.addr, rkey: mr.rkey.ok_or("no key")? };
    let write = WorkRequest::new(0, WrOp::Write { remote }, &sges);
    let post = |endpoint: &mut Endpoint| endpoint.post_send(qpn, &write).is_ok();
    let poll = |endpoint: &mut Endpoint| endpoint.poll_cq(cq).is_ok_and(|wc| wc.is_none());
    match caller {
        Caller::Own => Ok(vec![mean(|| post(&mut endpoint))?, mean(|| poll(&mut endpoint))?]),
        Caller::Other => {
            let (port, _peer) = pipe(PipeConfig::default());
            let bell = bell(Progress::Worker)?;
            let worker = worker(bell, endpoint, port, Clock::start(), Polling::default())?;
            thread::scope(|scope| {
                scope.spawn(|| worker.work());
                thread::sleep(ASLEEP);
                let costs = [
                    mean(|| worker.with(post).unwrap_or_default()),
                    mean(|| worker.with(poll).unwrap_or_default()),
                ];
                worker.end("its calls are measured");
                costs.into_iter().collect()
            })
        }
    }
}

fn mean(mut call: impl FnMut() -> bool) -> Result<f64, Error> {
    let begun = Instant::now();
    match (0..CALLS).all(|_| call()) {
        true => Ok(begun.elapsed().as_nanos() as f64 / f64::from(CALLS)),
        false => Err("a verb failed".into()),
    }
}

const CALLS: u32 = 8192;
/// The worker has gone to sleep by then.
const ASLEEP: std::time::Duration = std::time::Duration::from_millis(5);
