//! Samples: the two ends of a subject as processes in the namespaces of the lab.

use super::calls;
use super::case::{BulkTransport, Subject};
use super::copy::Source;
use super::plan::Plan;
use super::task::{Budget, End, EndReport, SILENCE, Task, announced};
use crate::bed::Running;
use crate::sample::Error;
use crate::tcp::set_offloads;
use spanwire_io::net::{Ethtool, Host, LabConfig, Offloads, TwoHosts};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Two hosts and a veth pair, which the kernel removes with this process.
pub(super) struct Lab<'a> {
    plan: &'a Plan,
    hosts: TwoHosts,
    /// Of a new veth pair. An XDP program at one end disables those of the other.
    offloads: Offloads,
    /// This program, which runs the ends.
    program: PathBuf,
    /// The file of `copy`.
    folder: Option<Source>,
    deadline: Option<Instant>,
}

impl<'a> Lab<'a> {
    pub(super) fn new(plan: &'a Plan, deadline: Option<Instant>) -> Result<Self, Error> {
        let hosts = TwoHosts::anonymous(&LabConfig::default())?;
        let offloads = Ethtool::open_in(&hosts.a.ns)?.offloads(&hosts.a.ifname)?;
        let folder = plan.needs_spanwire().then(|| Source::new(bytes(plan))).transpose()?;
        let program = std::env::current_exe()?;
        Ok(Self { plan, hosts, offloads, program, folder, deadline })
    }

    /// The figures of one sample.
    ///
    /// # Errors
    /// An end failed, data were wrong, or both ends counted differently.
    pub(super) fn sample(&self, subject: Subject) -> Result<Vec<f64>, Error> {
        let Plan { ms, requests, .. } = *self.plan;
        match subject {
            Subject::Service(load, transport) => {
                self.prepare(!transport.is_ours())?;
                let task = Task::Service { load, transport, budget: Budget { ms, requests } };
                let ends = self.run(task)?;
                check_counts(&ends, requests)?;
                service_figures(&ends)
            }
            Subject::Verb(caller) => calls::costs(caller),
            Subject::Bulk(BulkTransport::Copy) => {
                let folder = self.folder.as_ref().ok_or("no file to copy")?;
                Ok(vec![folder.copy(self.plan.common.path(), &self.hosts)?])
            }
            Subject::Bulk(transport) => {
                self.prepare(transport != BulkTransport::Stream)?;
                let bytes = bytes(self.plan);
                let ends = self.run(Task::Bulk { transport, bytes })?;
                check_counts(&ends, Some(bytes))?;
                Ok(bulk_figures(&ends))
            }
        }
    }

    /// Restores the offloads of both interfaces for kernel TCP.
    fn prepare(&self, is_tcp: bool) -> Result<(), Error> {
        if is_tcp { set_offloads(&self.hosts, &self.offloads) } else { Ok(()) }
    }

    /// Runs both ends: the reports of the client and the server.
    fn run(&self, task: Task) -> Result<[EndReport; 2], Error> {
        let mut server = self.start(&self.hosts.b, "b", None, task)?;
        let address = announced(&server.first_line(self.within(SILENCE))?)?;
        let client = self.start(&self.hosts.a, "a", Some(address), task)?;
        // Both ends give up before, unless they make progress very slowly.
        let limit = Duration::from_millis(self.plan.ms) + 4 * SILENCE;
        let client = client.output(self.within(limit));
        // The server's own error explains more than that of the client.
        let patience = if client.is_ok() { SILENCE } else { AFTERWARDS };
        let server = server.output(self.within(patience));
        match (client, server) {
            (Ok(client), Ok(server)) => Ok([parse(&client)?, parse(&server)?]),
            (Ok(_), Err(why)) | (Err(why), Ok(_)) => Err(why),
            (Err(client), Err(server)) => Err(format!("{client}; {server}").into()),
        }
    }

    fn start(
        &self,
        host: &Host,
        name: &str,
        server: Option<SocketAddr>,
        task: Task,
    ) -> Result<Running, Error> {
        let core = self.plan.cores.as_ref().map(|cores| cores[usize::from(server.is_none())]);
        let (dev, ip) = (host.ifname.clone(), host.v4.into());
        let end = End { dev, ip, server, core, task };
        let args = ["service-end", &serde_json::to_string(&end)?];
        Running::start(host.ns.command(&self.program)?, name, &self.program, &args)
    }

    /// At most `time`, and at most what is left of the run.
    fn within(&self, time: Duration) -> Duration {
        let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
        self.deadline.map_or(time, |deadline| left(deadline).min(time))
    }
}

fn parse(report: &str) -> Result<EndReport, Error> {
    Ok(serde_json::from_str(report).map_err(|e| format!("report of an end: {e}: {report}"))?)
}

fn bytes(plan: &Plan) -> u64 {
    plan.mib << 20
}

/// Every message of the client was counted by the server, and they are as many as planned.
fn check_counts(ends: &[EndReport; 2], planned: Option<u64>) -> Result<(), Error> {
    let [client, server] = ends.map(|end| end.count);
    if client != server {
        return Err(format!("the client counted {client}, the server {server}").into());
    }
    match planned {
        Some(planned) if planned != client => {
            Err(format!("{client} were counted, not {planned}").into())
        }
        _ => Ok(()),
    }
}

fn service_figures([client, server]: &[EndReport; 2]) -> Result<Vec<f64>, Error> {
    let latency = client.latency.ok_or("the client measured no latency")?;
    let rate = client.measured as f64 / client.seconds.max(f64::MIN_POSITIVE);
    let cpu = [cpu_each(client), cpu_each(server)];
    let figures = [rate, latency.rtt_p50_us, latency.rtt_p99_us, cpu[0], cpu[1]];
    Ok(match client.schedule_cpu_us {
        Some(schedule) => [&[cpu[0] + cpu[1]][..], &figures, &[schedule]].concat(),
        None => figures.to_vec(),
    })
}

fn bulk_figures([client, server]: &[EndReport; 2]) -> Vec<f64> {
    let bits = client.count as f64 * 8.0;
    let gbps = bits / client.seconds.max(f64::MIN_POSITIVE) / 1e9;
    vec![gbps, cpu_each(client) * MIB, cpu_each(server) * MIB]
}

/// Microseconds of processor time for each request or byte.
fn cpu_each(end: &EndReport) -> f64 {
    end.cpu_us / (end.measured as f64).max(1.0)
}

/// Time for the server to fail after its client.
const AFTERWARDS: Duration = Duration::from_secs(2);
const MIB: f64 = 1_048_576.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Latency;

    fn end(count: u64, cpu_us: f64) -> EndReport {
        let latency = Some(Latency { rtt_p50_us: 5.0, rtt_p99_us: 9.0 });
        EndReport {
            count,
            measured: count / 2,
            seconds: 0.5,
            cpu_us,
            latency,
            schedule_cpu_us: None,
        }
    }

    #[test]
    fn check_counts__both_ends_count_what_was_planned() {
        let checked =
            |client, server, planned| check_counts(&[end(client, 0.0), end(server, 0.0)], planned);
        assert!(checked(10, 10, None).is_ok() && checked(10, 10, Some(10)).is_ok());
        let why = checked(10, 9, None).unwrap_err().to_string();
        assert!(why.contains("the client counted 10, the server 9"), "{why}");
        assert!(checked(10, 10, Some(11)).unwrap_err().to_string().contains("not 11"));
    }

    #[test]
    fn figures__are_of_the_measured_part() {
        let ends = [end(200, 300.0), end(200, 400.0)];
        assert_eq!(service_figures(&ends).unwrap(), [200.0, 5.0, 9.0, 3.0, 4.0]);
        let open = EndReport { schedule_cpu_us: Some(0.5), ..ends[0] };
        let figures = service_figures(&[open, ends[1]]).unwrap();
        assert_eq!(figures, [7.0, 200.0, 5.0, 9.0, 3.0, 4.0, 0.5]);
        let silent = EndReport { latency: None, ..ends[0] };
        assert!(service_figures(&[silent, ends[1]]).is_err());
    }
}
