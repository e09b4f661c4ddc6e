//! The driver's sleep, and the rate of paced queue pairs.

use super::stage::{Fault, Stage};
use crate::pacing;
use crate::sample::Error;
use spanwire_base::{Dur, Node, PortId, PortMask, RxMeta, Time, TxMeta};
use spanwire_io::affinity;
use spanwire_io::clock::Clock;
use spanwire_io::driver::{Driver, Polling};
use spanwire_io::pipe::{PipeConfig, PipePort, pipe};
use spanwire_io::port::{Port, reserve};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes sent by 1 and by 5 queue pairs over what their rates allow: no queue pair is faster.
pub(super) fn paced(_: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let [sender, receiver, ..] = affinity::usable_cores()[..] else {
        return Err(Fault::NoTool("it needs two cores".to_owned()).into());
    };
    let cores = vec![sender, receiver];
    let plan = pacing::Plan { rounds: 1, ms: 300, mbit: 20.0, qps: vec![1, 5], cores, json: false };
    let rows = pacing::run(&plan, |_, _| false)?.rows;
    Ok(rows.iter().map(|row| row.achieved.map_or(f64::NAN, |of| of.median)).collect())
}

/// Sleeps of a driver of three ports whose frames arrive in ten bursts, 1 ms apart.
pub(super) fn sleeps(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let (mut ports, mut far): (Vec<PipePort>, Vec<PipePort>) =
        (0..3).map(|_| pipe(PipeConfig { ring: 256, ..PipeConfig::default() })).unzip();
    let mut first = far.swap_remove(0);
    let sender = thread::spawn(move || {
        for _ in 0..BURSTS {
            thread::sleep(Duration::from_millis(1));
            (0..BURST).for_each(|_| send(&mut first));
        }
        first
    });
    let mut driver = Driver::new(Clock::start(), Polling::Spin(Dur::ZERO));
    let deadline = Instant::now() + stage.within(Duration::from_secs(20));
    let mut sink = Sink(0);
    driver.run_ports_until(&mut sink, &mut ports, |sink| {
        sink.0 == BURSTS * BURST || Instant::now() > deadline
    })?;
    drop(sender.join().expect("the sender does not panic"));
    match sink.0 == BURSTS * BURST {
        true => Ok(vec![driver.counters().waits as f64]),
        false => Err(format!("{} frames of {} arrived", sink.0, BURSTS * BURST).into()),
    }
}

fn send(port: &mut PipePort) {
    if let Some(slot) = reserve(port) {
        slot.commit(TxMeta::whole(60));
    }
    // A pipe does not fail.
    let _ = port.flush(Time::ZERO);
}

/// A node that counts frames.
struct Sink(u32);

impl Node for Sink {
    fn handle_packet(&mut self, _: Time, _: PortId, _: &[u8], _: &RxMeta) {
        self.0 += 1;
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_transmit(&mut self, _: Time, _: PortId, _: &mut [u8]) -> Option<TxMeta> {
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn take_ready(&mut self) -> PortMask {
        PortMask::EMPTY
    }
}

const BURSTS: u32 = 10;
const BURST: u32 = 20;
