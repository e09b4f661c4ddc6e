//! Programs of perftest over the drop-in libibverbs, beside `spanwire perf`.
//!
//! Both have the same operation, size, outstanding messages, wire mode (RC), congestion control and
//! fabric, and take turns on one veth pair. Their ratio is that of the same sample.

use super::bar::Bar;
use super::cases::{Case, Figure};
use super::plan::Plan;
use super::stage::{Stage, number};
use crate::bed::{self, Bed, Running, column, wait_for_listener};
use crate::quiet::Scheduled;
use crate::sample::Error;
use rustix::process::{Pid, Signal, kill_process};
use spanwire_io::net::{Ethtool, Offloads};
use std::process::Command;
use std::time::{Duration, Instant};

const BANDWIDTH: [Figure; 3] = beside("perf", "MB/s", Bar::at_least(0.9));
const RATE: [Figure; 3] = beside("perf", "1000/s", Bar::at_least(0.7));
const LATENCY: [Figure; 3] = beside("perf", "us", Bar::at_most(1.5));
const TCP: [Figure; 3] = beside("kernel TCP", "MB/s", Bar::NONE);
const WAITING: [Figure; 1] = [Figure::new("processor time", "% of a core", Bar::at_most(1.0))];

/// All cases; those of a quick run are over UDP sockets.
pub(super) static ALL: [Case; 17] = [
    Case::new("ib_write_bw, udp, auto", 4, &BANDWIDTH, |s| WRITE.take(s, "udp", "auto")).quick(),
    Case::new("ib_write_bw, udp, none", 4, &BANDWIDTH, |s| WRITE.take(s, "udp", "none")).quick(),
    Case::new("ib_read_bw, udp, auto", 4, &BANDWIDTH, |s| READ.take(s, "udp", "auto")).quick(),
    Case::new("ib_read_bw, udp, none", 4, &BANDWIDTH, |s| READ.take(s, "udp", "none")).quick(),
    Case::new("ib_send_bw, udp, auto", 4, &RATE, |s| SEND.take(s, "udp", "auto")).quick(),
    Case::new("ib_send_bw, udp, none", 4, &RATE, |s| SEND.take(s, "udp", "none")).quick(),
    Case::new("ib_send_lat, udp, auto", 4, &LATENCY, |s| PING.take(s, "udp", "auto")).quick(),
    Case::new("ib_write_bw beside TCP", 4, &TCP, beside_tcp).quick(),
    Case::new("waiting server, udp", 9, &WAITING, |s| waiting(s, "udp")).quick(),
    Case::new("ib_write_bw, xdp, auto", 4, &BANDWIDTH, |s| WRITE.take(s, "xdp", "auto")),
    Case::new("ib_write_bw, xdp, none", 4, &BANDWIDTH, |s| WRITE.take(s, "xdp", "none")),
    Case::new("ib_read_bw, xdp, auto", 4, &BANDWIDTH, |s| READ.take(s, "xdp", "auto")),
    Case::new("ib_read_bw, xdp, none", 4, &BANDWIDTH, |s| READ.take(s, "xdp", "none")),
    Case::new("ib_send_bw, xdp, auto", 4, &RATE, |s| SEND.take(s, "xdp", "auto")),
    Case::new("ib_send_bw, xdp, none", 4, &RATE, |s| SEND.take(s, "xdp", "none")),
    Case::new("ib_send_lat, xdp, auto", 4, &LATENCY, |s| PING.take(s, "xdp", "auto")),
    Case::new("waiting server, xdp", 64, &WAITING, |s| waiting(s, "xdp")),
];

const fn beside(other: &'static str, unit: &'static str, bar: Bar) -> [Figure; 3] {
    let none = Figure::new("program", unit, Bar::NONE);
    [none, Figure { name: other, ..none }, Figure::new("ratio", "", bar)]
}

/// # Errors
/// A program or the library is missing.
pub(super) fn check(plan: &Plan) -> Result<(), Error> {
    let library = plan.common.path().with_file_name("libibverbs.so.1");
    match Command::new(WRITE.program[0]).arg("--version").output() {
        Err(_) => Err("perftest is not installed (apt-get install perftest)".into()),
        Ok(_) if library.exists() => Ok(()),
        Ok(_) => {
            let path = library.display();
            Err(format!("{path} does not exist; cargo build --release builds it").into())
        }
    }
}

/// A program of perftest, and `perf` that does the same.
struct Way {
    program: &'static [&'static str],
    /// The column of its figure, and that figure in the unit of the row.
    column: (&'static str, f64),
    perf: &'static [&'static str],
    /// The figure of its report, likewise.
    pointer: (&'static str, f64),
}

/// 128 messages outstanding, as for all of perftest, and of READs 16 on the wire.
const WRITE: Way = Way {
    program: &["ib_write_bw", "-F", "-s", "65536", "-D", "1", "-f", "0", "--report_gbits"],
    column: ("average[Gb/sec]", 125.0),
    perf: &["--op", "write", "-s", "64K", "--depth", "128", "-t", "1"],
    pointer: ("/perf/0/gbps", 125.0),
};
const READ: Way = Way {
    program: &["ib_read_bw", "-F", "-s", "65536", "-D", "1", "-f", "0", "--report_gbits"],
    perf: &["--op", "read", "-s", "64K", "--depth", "128", "-t", "1"],
    ..WRITE
};
const SEND: Way = Way {
    program: &["ib_send_bw", "-F", "-s", "64", "-D", "1", "-f", "0"],
    column: ("MsgRate[Mpps]", 1e3),
    perf: &["--op", "send", "-s", "64", "--depth", "128", "-t", "1"],
    pointer: ("/perf/0/msgs_per_s", 1e-3),
};
/// Half a round trip each.
const PING: Way = Way {
    program: &["ib_send_lat", "-F", "-s", "64", "-n", "50000"],
    column: ("t_typical[usec]", 1.0),
    perf: &["--op", "send", "-s", "64", "--lat", "-t", "1"],
    pointer: ("/perf/0/p50_us", 1.0),
};

impl Way {
    /// The figure of the program, of `perf`, and their ratio: means of the turns, of which every
    /// other one begins with `perf`.
    fn take(&self, stage: &Stage<'_>, fabric: &str, cc: &str) -> Result<Vec<f64>, Error> {
        let (bed, options) = (cable(stage, fabric)?, ["--fabric", fabric, "--cc", cc]);
        let (ways, mut sums) = ([Self::program, Self::perf], [0.0; 2]);
        let turns = if stage.is_quick() { 1 } else { 2 };
        for turn in 0..turns {
            for n in [turn % 2, 1 - turn % 2] {
                sums[n] += ways[n](self, stage, &bed, &options)?;
            }
        }
        let [program, perf] = sums.map(|sum| sum / turns as f64);
        Ok(vec![program, perf, program / perf])
    }

    fn program(&self, stage: &Stage<'_>, bed: &Bed, options: &[&str]) -> Result<f64, Error> {
        let [mut server, client] = ends(stage, bed, options, self.program)?;
        let table = client.output(stage.within(END_WITHIN))?;
        match server.exit(stage.within(END_WITHIN))?.success() {
            true => Ok(column(&table, "#bytes", self.column.0)? * self.column.1),
            false => Err(format!("{}: it failed: {table}", server.command()).into()),
        }
    }

    fn perf(&self, stage: &Stage<'_>, bed: &Bed, options: &[&str]) -> Result<f64, Error> {
        let _server = stage.server(bed, "a", options)?;
        let args = [options, &["--mode", "rc"], self.perf].concat();
        let report = stage.client(bed, "b", bed.address("a")?, &args)?;
        Ok(number(&report, self.pointer.0)? * self.pointer.1)
    }
}

/// `ib_write_bw` over UDP sockets, kernel TCP with offloads, and their ratio.
fn beside_tcp(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let bed = cable(stage, "udp")?;
    let program = WRITE.program(stage, &bed, &[])?;
    let tcp = bed::tcp_transfer(&bed, ("b", "a"), "cubic", Duration::from_secs(1))?.bps / 8e6;
    Ok(vec![program, tcp, program / tcp])
}

/// Processor time in percent of a core of an `ib_write_bw` whose peer was stopped.
fn waiting(stage: &Stage<'_>, fabric: &str) -> Result<Vec<f64>, Error> {
    let bed = cable(stage, fabric)?;
    let [mut server, client] =
        ends(stage, &bed, &["--fabric", fabric], &["ib_write_bw", "-F", "-D", "600"])?;
    let deadline = Instant::now() + stage.within(END_WITHIN);
    // It polls its completion queue as soon as it is connected.
    while Scheduled::of_process(client.pid())?.ran < CONNECTED {
        if Instant::now() > deadline {
            return Err(format!("{}: it does not connect", client.command()).into());
        }
        stage.sleep(Duration::from_millis(20));
    }
    let pid = i32::try_from(client.pid()).ok().and_then(Pid::from_raw);
    kill_process(pid.ok_or("no process")?, Signal::STOP)?;
    stage.sleep(Duration::from_secs(1));
    let (before, start) = (Scheduled::of_process(server.pid())?, Instant::now());
    stage.sleep(Duration::from_secs(if stage.is_quick() { 5 } else { 60 }));
    let used = Scheduled::of_process(server.pid())?.since(before).ran;
    match server.is_running()? {
        true => Ok(vec![used.as_secs_f64() / start.elapsed().as_secs_f64() * 100.0]),
        false => Err(format!("{}: it has ended", server.command()).into()),
    }
}

/// Hosts a and b. A veth has offloads, which sockets use and AF_XDP does not.
fn cable(stage: &Stage<'_>, fabric: &str) -> Result<Bed, Error> {
    let bed = stage.cable()?;
    for host in ["a", "b"].into_iter().filter(|_| fabric == "udp") {
        Ethtool::open_in(&bed.ns(host)?)?.set_offloads("sw0", &Offloads::ON)?;
    }
    Ok(bed)
}

/// Starts a program on host a, and on host b as its client.
fn ends(
    stage: &Stage<'_>,
    bed: &Bed,
    options: &[&str],
    program: &[&str],
) -> Result<[Running; 2], Error> {
    let run = [&["run", "--dev", "sw0"][..], options, &["--"], program].concat();
    let server = bed.spanwire("a", &run)?;
    wait_for_listener(&bed.ns("a")?, PORT, stage.within(END_WITHIN))?;
    let to = bed.address("a")?.to_string();
    Ok([server, bed.spanwire("b", &[&run[..], &[&to]].concat())?])
}

/// Of the connection by which perftest exchanges addresses.
const PORT: u16 = 18_515;
/// More than a program needs until it is connected.
const CONNECTED: Duration = Duration::from_millis(500);
const END_WITHIN: Duration = Duration::from_secs(30);
