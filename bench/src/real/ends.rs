//! Runs of `perf` on a cable: their end, their intervals, their rate.

use super::stage::{Stage, number};
use crate::sample::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The duration of a run of 0.5 s at 1 Mbit/s, at which its outstanding requests would take 8 s.
pub(super) fn in_time(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let bed = stage.cable()?;
    let _server = stage.server(&bed, "a", &[])?;
    // A path of 1 Mbit/s, as a user may have one: on a cable nothing else is slow on every machine.
    let slow = ["--cc", "fixed", "--cc-set", "rate_mbps=1", "-t", "0.5"];
    let report = stage.client(&bed, "b", bed.address("a")?, &slow)?;
    Ok(vec![number(&report, "/perf/0/seconds")?])
}

/// Goodput in SR and RC at 20 Mbit/s, and the least number of intervals of any run: also of runs
/// that the window or the application limits, if there is time.
pub(super) fn fixed_rate(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let bed = stage.cable()?;
    let _server = stage.server(&bed, "a", &[])?;
    // A user sets rate and window of `fixed` to send at a known rate. They are the subject here.
    let paced = ["--cc", "fixed", "--cc-set", "rate_mbps=20"];
    let window = ["--cc", "fixed", "--cc-set", "window_pkts=2"];
    let few = ["--cc", "fixed", "--depth", "1", "--size", "64", "--lat"];
    let others: &[&[&str]] = if stage.is_quick() { &[] } else { &[&window, &few] };
    let (mut mbps, mut intervals_min) = (Vec::new(), f64::INFINITY);
    for mode in ["sr", "rc"] {
        let timed = ["-t", "1.1", "-i", "0.1", "--mode", mode];
        for (n, limit) in [&paced[..]].iter().chain(others).enumerate() {
            let args = [limit, &timed[..]].concat();
            let report = stage.client(&bed, "b", bed.address("a")?, &args)?;
            let intervals = report["intervals"].as_array().map_or(0, Vec::len);
            intervals_min = intervals_min.min(intervals as f64);
            if n == 0 {
                mbps.push(number(&report, "/perf/0/gbps")? * 1e3);
            }
        }
    }
    Ok(vec![mbps[0], mbps[1], intervals_min])
}

/// Base RTT and lateness of the hosts as `auto` measures them, in milliseconds.
pub(super) fn lateness(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let bed = stage.cable()?;
    let _server = stage.server(&bed, "a", &[])?;
    let mut values = [Vec::new(), Vec::new()];
    for mode in ["sr", "rc"] {
        let args = ["-t", "1", "--mode", mode];
        let report = stage.client(&bed, "b", bed.address("a")?, &args)?;
        for (values, name) in values.iter_mut().zip(["base_rtt_us", "host_late_us"]) {
            values.push(number(&report, &format!("/congestion/{name}"))? / 1e3);
        }
    }
    Ok(values.concat())
}

/// Atomic operations of four queue pairs in 1 s, with 30 % loss at both ends.
pub(super) fn atomics(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let bed = stage.cable()?;
    let loss = ["--loss", "30", "--mode", "sr"];
    let _server = stage.server(&bed, "a", &loss)?;
    let args = ["--op", "fetch-add", "--qps", "4", "--seconds", "1"];
    let report = stage.client(&bed, "b", bed.address("a")?, &[&args[..], &loss].concat())?;
    Ok(vec![number(&report, "/perf/0/messages")?])
}

/// Seconds until a client is served beside 40 that send nothing and one that sends no request. The
/// server closes them after 5 and 30 s.
pub(super) fn silent_clients(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let bed = stage.cable()?;
    let _server = stage.server(&bed, "a", &[])?;
    let (ns, to) = (bed.ns("b")?, SocketAddr::new(bed.address("a")?, SIDE_PORT));
    let connect = || -> Result<TcpStream, Error> {
        Ok(ns.run(|| TcpStream::connect_timeout(&to, SILENCE))??)
    };
    let silent: Result<Vec<_>, Error> = (0..40).map(|_| connect()).collect();
    let _silent = silent?;
    let mut idle = connect()?;
    idle.set_read_timeout(Some(SILENCE))?;
    let own = bed.address("b")?;
    let hello = format!(r#"{{"type":"hello","version":1,"ip":"{own}","path_mtu":1024}}"#);
    writeln!(idle, "{hello}")?;
    let mut reply = String::new();
    BufReader::new(&idle).read_line(&mut reply)?;
    if !reply.contains("hello") {
        return Err(format!("the server replies {reply:?} to a hello").into());
    }
    let start = Instant::now();
    stage.client(&bed, "b", bed.address("a")?, &["--seconds", "0.2"])?;
    Ok(vec![start.elapsed().as_secs_f64()])
}

const SIDE_PORT: u16 = 18_516;
const SILENCE: Duration = Duration::from_secs(5);
