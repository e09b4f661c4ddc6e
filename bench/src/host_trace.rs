//! The timing of real drivers, and the host models that follow from it.
//!
//! Two hosts, as two `spanwire perf` processes would run them, exchange flows over a veth pair: on
//! any core. A wrapper of the port ([`tap`]) records each step of both
//! drivers. [`trace`] is the compact form of the recording, and [`fit`] computes the
//! [`HostModel`](spanwire_sim::HostModel) of it: those of the simulator's presets are in
//! sim/host-traces.

pub mod fit;
pub mod tap;
pub mod trace;

use crate::ends::fixed_rate;
use crate::engine;
use crate::machine::Machine;
use crate::sample::Error;
use crate::spin::Spinners;
use spanwire_base::{Dur, u32_from, u64_from};
use spanwire_host::fabric::{Attachment, Wrap};
use spanwire_host::oob::{Job, Op};
use spanwire_host::runner::{JobRunner, Sending};
use spanwire_io::driver::{Budget, Polling};
use spanwire_io::net::{Host, LabConfig, TwoHosts};
use spanwire_io::udp::{self, UdpConfig};
use spanwire_io::xdp::XdpConfig;
use spanwire_sim::Sockets;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};
use tap::{Sleeps, StepLog, StepTap};
use trace::{Provenance, Run, SocketBuffers, Trace};

/// The plan of a recording.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct Plan {
    /// Seconds of all flows together
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// Processes that spin beside the drivers, to take their cores from them
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=64))]
    pub spinners: u32,
    /// Microseconds that idle drivers spin before they sleep [default: adaptive polling]
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub spin_us: Option<u64>,
    /// The ports of both hosts
    #[arg(long, value_enum, default_value_t = Fabric::Xdp)]
    pub fabric: Fabric,
    /// Write the trace to this file [default: only print the host model]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// The kind of a recorded port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Fabric {
    /// AF_XDP sockets
    Xdp,
    /// UDP sockets, with the buffers that Linux by default grants without privileges
    Udp,
}

/// A recorded flow of WRITE messages.
#[derive(Clone, Copy, Debug)]
struct Flow {
    name: &'static str,
    message_bytes: u32,
    outstanding: u32,
    /// Its rate, if it is paced.
    mbit: Option<u32>,
}

/// The flows, of equal duration: steps full of full frames, steps full of small ones, and sleeps.
const FLOWS: [Flow; 3] = [
    Flow { name: "bulk", message_bytes: 1 << 16, outstanding: 16, mbit: None },
    Flow { name: "small", message_bytes: 64, outstanding: 128, mbit: None },
    Flow { name: PACED, message_bytes: 1024, outstanding: 16, mbit: Some(20) },
];

/// Records all flows of `plan`. `go_on` receives the name of each flow before it and cancels the
/// run by returning false.
///
/// # Errors
/// No privilege, a flow fails, or the run was cancelled.
pub fn run(plan: &Plan, mut go_on: impl FnMut(&str) -> bool) -> Result<Trace, Error> {
    let recorded = Provenance::now(plan)?;
    // As `spanwire perf` does; threads inherit it.
    std::fs::write("/proc/self/timerslack_ns", "1000")?;
    let hosts = TwoHosts::anonymous(&LabConfig::default())?;
    let time = Duration::from_secs(plan.seconds) / u32::try_from(FLOWS.len())?;
    let _spinners = Spinners::start(plan.spinners as usize)?;
    let mut runs = Vec::new();
    let mut batch = 0;
    for flow in FLOWS {
        if !go_on(flow.name) {
            return Err("interrupted".into());
        }
        let ([client, server], budget) = record(&hosts, plan, &flow, time)?;
        batch = u64_from(budget.rx);
        runs.push(Run::of(flow.name, "client", &client.take()));
        runs.push(Run::of(flow.name, "server", &server.take()));
    }
    let (rx_ring, tx_ring, sockets) = plan.fabric.buffers();
    let spin_ns = plan.spin_us.map(|us| us * 1_000);
    Ok(Trace { recorded, batch, rx_ring, tx_ring, sockets, spin_ns, runs })
}

impl Fabric {
    /// Opens the port of `host`.
    fn attach(self, host: &Host) -> Result<Attachment, Error> {
        if self == Self::Xdp {
            return engine::attachment(host);
        }
        let config = UdpConfig {
            local: Some(host.v4.into()),
            receive_buffer: BUFFER_BYTES,
            send_buffer: BUFFER_BYTES,
            ..UdpConfig::new(&host.ifname)
        };
        let attachment = Attachment::udp(&config, &Wrap::default())?;
        match attachment.receive_buffer {
            Some(GRANTED_BYTES) => Ok(attachment),
            other => Err(format!("the receive buffer is {other:?}, not {GRANTED_BYTES}").into()),
        }
    }

    /// Receive ring, transmit ring, and buffers in bytes.
    fn buffers(self) -> (u64, u64, Option<SocketBuffers>) {
        if self == Self::Xdp {
            let rings = XdpConfig::new("");
            return (rings.rx_size.into(), rings.tx_size.into(), None);
        }
        let bytes = u64::from(GRANTED_BYTES);
        let run_frames = u32_from(udp::SEGMENTS_MAX);
        let buffers = SocketBuffers { rx_bytes: bytes, tx_bytes: bytes, run_frames };
        let shortest = bytes / (Sockets::SKB_BYTES + SHORTEST_BYTES);
        (shortest, u64_from(udp::SLOTS_MAX), Some(buffers))
    }
}

/// Runs `flow` and records the steps of client and server. Returns the budget of their drivers as
/// well.
fn record(
    hosts: &TwoHosts,
    plan: &Plan,
    flow: &Flow,
    time: Duration,
) -> Result<([StepLog; 2], Budget), Error> {
    let congestion = flow.mbit.map(|mbit| fixed_rate(Some(mbit.into()), None)).transpose()?;
    let budget = &OnceLock::new();
    let runner = |log: StepLog| {
        move |host: &Host| -> Result<JobRunner, Error> {
            let mut attachment = plan.fabric.attach(host)?;
            budget.get_or_init(|| attachment.port.budget());
            let sleeps = Sleeps::default();
            attachment.port = Box::new(StepTap::new(attachment.port, log, sleeps.clone()));
            let spin = |us| Polling::Spin(Dur::from_us(us));
            let polling = plan.spin_us.map_or(Polling::Adaptive, spin);
            let mut runner = JobRunner::new(attachment, host.v4.into(), polling)?;
            let door = runner.door().ok_or("the worker has ended")?;
            door.watch(move |times| sleeps.add(times));
            runner.set_sending(Sending { congestion, ..Sending::default() });
            Ok(runner)
        }
    };
    let logs = [StepLog::default(), StepLog::default()];
    let [client, server] = logs.clone().map(runner);
    let size = flow.message_bytes;
    let job = engine::bandwidth(Op::Write, PATH_MTU, time);
    let job = Job { size, depth: flow.outstanding, ..job };
    engine::exchange(hosts, None, job, client, server)?;
    Ok((logs, budget.get().copied().unwrap_or_default()))
}

impl Provenance {
    fn now(plan: &Plan) -> Result<Self, Error> {
        let path = "/proc/loadavg";
        let load = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
        let load = load.split(' ').next().unwrap_or_default();
        let (date, command) = origin()?;
        Ok(Self {
            date,
            command,
            machine: Machine::this(),
            load: load.parse().map_err(|e| format!("{path}: {load:?}: {e}"))?,
            spinners: plan.spinners,
        })
    }
}

/// The date in UTC, as 2026-11-23, and the command line of this process.
pub(crate) fn origin() -> Result<(String, String), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok((date(since_1970.as_secs() / 86_400), format!("spanwire-bench {}", args.join(" "))))
}

/// The date this many days after 1970-01-01, as 2026-11-23.
fn date(days: u64) -> String {
    let mut left = days;
    let mut year = 1970;
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while left >= 365 + u64::from(leap(year)) {
        left -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if left < days {
            break;
        }
        left -= days;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", left + 1)
}

/// The flow that sleeps between packets.
const PACED: &str = "paced";
/// Linux's default of net.core.rmem_max and wmem_max.
const BUFFER_BYTES: u32 = 212_992;
/// Linux grants twice the request, for its own overhead.
const GRANTED_BYTES: u32 = 2 * BUFFER_BYTES;
/// The shortest frame, about.
const SHORTEST_BYTES: u64 = 64;
/// That of a link MTU of 1500 bytes.
const PATH_MTU: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date__of_days_since_1970() {
        let dates = [0, 58, 59, 11_016, 11_017, 20_780, 20_818].map(date);
        let expected = [
            "1970-01-01",
            "1970-02-28",
            "1970-03-01",
            "2000-02-29",
            "2000-03-01",
            "2026-11-23",
            "2026-12-31",
        ];
        assert_eq!(dates, expected);
    }
}
