//! Flows of `spanwire perf`.

use super::algorithm::{Algorithm, perf_args};
use super::case::Flow;
use super::lab::Ends;
use crate::bed::{self, Bed, CONNECT_WITHIN, Goodput, Running};
use crate::sample::Error;
use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The result of one flow.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Run {
    pub(super) goodput: Goodput,
    /// Seconds from the end of its traffic to its exit; none of kernel TCP.
    pub(super) overrun_s: Option<f64>,
}

/// A client of `spanwire perf` and its server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Perf {
    pub(super) algorithm: Algorithm,
    pub(super) flow: Flow,
}

impl Perf {
    /// Starts the server.
    pub(super) fn serve(&self, bed: &Bed, ends: &Ends) -> Result<Running, Error> {
        let more = perf_args(self.algorithm);
        let perf = ["perf", "server", "--dev", "sw0"];
        let mut server = bed.spanwire(&ends.to.0, &[&perf[..], &more].concat())?;
        server.first_line(SERVER_WITHIN)?;
        Ok(server)
    }

    /// Runs the client for `time`, to a server that is running.
    pub(super) fn run(&self, bed: &Bed, ends: &Ends, time: Duration) -> Result<Run, Error> {
        let args = self.client_args(ends, time);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut client = bed.spanwire(&ends.from, &args)?;
        client.exit(time + CONNECT_WITHIN)?;
        let exit_unix_s = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        let line = client.command().to_owned();
        let report = client.output(CONNECT_WITHIN)?;
        let mut goodput = bed::parse_perf(&report).map_err(|why| format!("{line}: {why}"))?;
        goodput.end_at(time);
        let overrun = exit_unix_s - goodput.start_unix_s - time.as_secs_f64();
        Ok(Run { goodput, overrun_s: Some(overrun) })
    }

    fn client_args(&self, ends: &Ends, time: Duration) -> Vec<String> {
        let (to, seconds) = (ends.to.1.to_string(), time.as_secs_f64().to_string());
        let perf = ["perf", "client", "--dev", "sw0", &to, "--json", "-i", "0.1", "-t", &seconds];
        let mut args: Vec<String> = perf.map(str::to_owned).into();
        args.extend(perf_args(self.algorithm).into_iter().map(str::to_owned));
        args.extend(self.flow.args());
        args
    }
}

impl Flow {
    /// The options of a client with this flow.
    fn args(&self) -> Vec<String> {
        let mut args = vec!["--op".to_owned(), self.op.to_owned()];
        if let Some(size) = self.size {
            // Enough bytes outstanding for the path, as far as the limit of requests allows.
            let depth = (OUTSTANDING_BYTES / size).min(DEPTH_MAX);
            args.extend(
                ["--size", &size.to_string(), "--depth", &depth.to_string()].map(str::to_owned),
            );
        }
        if self.rc {
            args.extend(["--mode", "rc"].map(str::to_owned));
        }
        if self.coded {
            args.extend(["--ec", "8,2", "--lb", "unolb"].map(str::to_owned));
        }
        args
    }
}

/// The mean queue of port `port` between two times, from lines of `switch ctl --json show`. None if
/// no sample is between them.
pub(super) fn mean_queue(lines: &[String], port: &str, (from, to): (f64, f64)) -> Option<f64> {
    let of = |line: &String| {
        // The last line may have been cut short.
        let report: Value = serde_json::from_str(line).ok()?;
        let at = report["at_unix_s"].as_f64()?;
        let found = report["ports"].as_array()?.iter().find(|p| p["name"] == port)?;
        (from <= at && at <= to).then_some(found["queue_bytes"].as_f64()?)
    };
    let queue: Vec<f64> = lines.iter().filter_map(of).collect();
    (!queue.is_empty()).then(|| queue.iter().sum::<f64>() / queue.len() as f64)
}

/// Sixteen messages of 64 KiB, the default of `perf`.
const OUTSTANDING_BYTES: u32 = 1 << 20;
/// The largest `--depth`.
const DEPTH_MAX: u32 = 2048;
const SERVER_WITHIN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn args(flow: Flow) -> String {
        let to = ("a".to_owned(), "10.77.0.1".parse().expect("an address"));
        let ends = Ends { from: "b".to_owned(), to };
        let perf = Perf { algorithm: Algorithm::Auto, flow };
        perf.client_args(&ends, Duration::from_millis(1500)).join(" ")
    }

    #[test]
    fn client_args__have_the_flow_and_its_congestion_control() {
        let plain = "perf client --dev sw0 10.77.0.1 --json -i 0.1 -t 1.5 --op";
        assert_eq!(args(Flow::WRITE), format!("{plain} write"));
        let read = Flow { op: "read", rc: true, ..Flow::WRITE };
        assert_eq!(args(read), format!("{plain} read --mode rc"));
        let coded = Flow { coded: true, ..Flow::WRITE };
        assert_eq!(args(coded), format!("{plain} write --ec 8,2 --lb unolb"));
    }

    #[test]
    fn client_args__short_messages_are_many() {
        let of = |size| args(Flow { size: Some(size), ..Flow::WRITE });
        assert!(of(64).ends_with("--size 64 --depth 2048"));
        assert!(of(4096).ends_with("--size 4096 --depth 256"));
    }

    #[test]
    fn mean_queue__is_of_the_port_and_the_time() {
        let line = |at: f64, a: u64| {
            let ports = serde_json::json!([{"name": "b", "queue_bytes": 7},
                                           {"name": "a", "queue_bytes": a}]);
            serde_json::json!({"at_unix_s": at, "ports": ports}).to_string()
        };
        let mut lines = vec![line(1.0, 900), line(2.0, 10), line(3.0, 30), line(4.0, 900)];
        lines.push("{\"at_unix".to_owned());
        assert_eq!(mean_queue(&lines, "a", (1.5, 3.5)), Some(20.0));
        assert_eq!(mean_queue(&lines, "a", (5.0, 6.0)), None);
        assert_eq!(mean_queue(&lines, "c", (1.5, 3.5)), None);
    }
}
