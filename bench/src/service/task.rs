//! The task of one end of a sample and its report: JSON between the processes.

use super::case::{BulkTransport, Load, Transport};
use crate::sample::{Error, Latency};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The task of one end, which its command line has as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct End {
    /// The interface.
    pub(super) dev: String,
    /// Its address.
    pub(super) ip: IpAddr,
    /// The server's address; none for the server.
    pub(super) server: Option<SocketAddr>,
    /// The core of all its threads.
    pub(super) core: Option<usize>,
    pub(super) task: Task,
}

/// The traffic of a sample.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Task {
    Service { load: Load, transport: Transport, budget: Budget },
    Bulk { transport: BulkTransport, bytes: u64 },
}

/// The end of a run of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Budget {
    /// Milliseconds, after a tenth of it as a warm-up.
    pub(super) ms: u64,
    /// Requests in place of a time; without a warm-up.
    pub(super) requests: Option<u64>,
}

/// The result of one end.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(super) struct EndReport {
    /// Verified replies at the client, replies at the server; bytes of bulk data.
    pub(super) count: u64,
    /// Those of them that the times are of.
    pub(super) measured: u64,
    /// Seconds that they took; 0 at a server.
    pub(super) seconds: f64,
    /// Processor time of the whole process in microseconds.
    pub(super) cpu_us: f64,
    /// From sending a request, or from when it was due, to its reply; at the client.
    pub(super) latency: Option<Latency>,
    /// Processor time of the schedule alone for each request; at the client, if it has one.
    pub(super) schedule_cpu_us: Option<f64>,
}

impl End {
    /// Prints the line by which the server announces its address.
    pub(super) fn announce(&self, port: u16) {
        println!("{READY} {}", SocketAddr::new(self.ip, port));
    }

    /// The number of connections.
    pub(super) fn connections(&self) -> usize {
        match self.task {
            Task::Service { load, .. } => load.connections,
            Task::Bulk { .. } => 1,
        }
    }
}

impl Budget {
    pub(super) fn time(&self) -> Duration {
        Duration::from_millis(self.ms)
    }

    pub(super) fn warm_up(&self) -> Duration {
        self.time() / 10
    }
}

/// The address in the line of [`End::announce`].
pub(super) fn announced(line: &str) -> Result<SocketAddr, Error> {
    let address = line.strip_prefix(READY).and_then(|address| address.trim().parse().ok());
    Ok(address.ok_or_else(|| format!("the server said {line:?} in place of its address"))?)
}

const READY: &str = "ready";

/// After which an end without news of the other one gives up: only a hang takes so long.
pub(super) const SILENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced__is_the_address_of_the_server() {
        let address = announced("ready 10.77.0.2:7000").unwrap();
        assert_eq!(address.to_string(), "10.77.0.2:7000");
        for line in ["", "ready", "10.77.0.2:7000", "ready here"] {
            assert!(announced(line).unwrap_err().to_string().contains("address"), "{line}");
        }
    }
}
