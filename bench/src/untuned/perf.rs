//! Flows of `spanwire perf`.

use super::algorithm::{Algorithm, perf_args};
use super::case::Flow;
use super::lab::Ends;
use crate::bed::{self, Bed, CONNECT_WITHIN, Goodput, Running};
use crate::sample::Error;
use std::time::Duration;

/// The result of one flow.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Run {
    pub(super) goodput: Goodput,
    /// Seconds from the end of its traffic to its exit; none of kernel TCP.
    pub(super) overrun_s: Option<f64>,
}

/// A client of `spanwire perf` and its server, or a flow of kernel TCP.
#[derive(Clone, Copy, Debug)]
pub(super) struct Perf {
    pub(super) algorithm: Algorithm,
    pub(super) flow: Flow,
}

impl Perf {
    /// Starts the server, which kernel TCP does not need.
    pub(super) fn serve(&self, bed: &Bed, ends: &Ends) -> Result<Option<Running>, Error> {
        if self.algorithm.is_tcp() {
            return Ok(None);
        }
        let args = [&["perf", "server", "--dev", "sw0"][..], &perf_args(self.algorithm)].concat();
        bed.spanwire_until(&ends.to.0, &args, SERVER_WITHIN).map(Some)
    }

    /// Runs the client for `time`, to a server that is running.
    pub(super) fn run(&self, bed: &Bed, ends: &Ends, time: Duration) -> Result<Run, Error> {
        if let Algorithm::Tcp(name) = self.algorithm {
            let (from, to) = (&*ends.from, &*ends.to.0);
            let goodput = bed::tcp_transfer(bed, (from, to), name, time)
                .map_err(|why| format!("TCP {name} from host {from} to host {to}: {why}"))?;
            return Ok(Run { goodput, overrun_s: None });
        }
        let args = self.client_args(ends, time);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut client = bed.spanwire(&ends.from, &args)?;
        client.exit(time + CONNECT_WITHIN)?;
        let exit_unix_s = bed::unix_s()?;
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
}
