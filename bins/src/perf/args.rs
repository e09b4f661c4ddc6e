//! The arguments of `spanwire perf`, and the configuration that follows from them.

use super::intervals::line;
use super::test_args::TestArgs;
use crate::exit::{Failed, usage};
use crate::fault_args::FaultArgs;
use crate::interface;
use crate::port_args::{PortArgs, Wait};
use crate::queues;
use crate::report::print_text;
use spanwire_base::usize_from;
use spanwire_host::dial::{address, dial, listen};
use spanwire_host::fabric::{self, Error};
use spanwire_host::oob::{Job, JobKind, REPLY_TIMEOUT};
use spanwire_host::peer::ZonedIp;
use spanwire_host::quantity::{interval_or_none, limit, run_seconds, size};
use spanwire_host::runner::{Board, JobRunner, Sending};
use spanwire_io::affinity;
use spanwire_io::driver::Polling;
use spanwire_io::fault::FaultConfig;
use spanwire_transport::{Agreed, Mtu};
use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `spanwire perf`.
#[derive(clap::Args, Clone, Debug)]
pub struct PerfArgs {
    #[command(subcommand)]
    pub(super) command: PerfCommand,
}

#[derive(clap::Subcommand, Clone, Debug)]
pub(super) enum PerfCommand {
    /// Wait for clients and serve them, one at a time
    Server(ServerArgs),
    /// Measure against a server
    Client(ClientArgs),
}

/// Arguments of both ends.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct CommonArgs {
    /// Network interface [default: that of the route to the server; for a server the only one that
    /// is up and has an address]
    #[arg(long)]
    dev: Option<String>,
    #[command(flatten)]
    port: PortArgs,
    /// Polling: busy spins all the time, adaptive sleeps unless a wait is probably short
    #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
    pub(super) poll: Wait,
    #[command(flatten)]
    faults: FaultArgs,
    /// Seed of these faults and of the data of --transfer
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(clap::Args, Clone, Debug)]
pub(super) struct ServerArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    #[command(flatten)]
    pub(super) test: TestArgs,
    /// Largest transfer to accept: bounds the memory that a client can request
    #[arg(long, value_parser = size, default_value = "1G", value_name = "BYTES")]
    pub(super) max_transfer: u64,
    /// End after one client
    #[arg(long)]
    pub(super) one_off: bool,
}

#[derive(clap::Args, Clone, Debug)]
pub(super) struct ClientArgs {
    #[command(flatten)]
    pub(super) common: CommonArgs,
    /// The server's IP address; a link-local one with its zone, as fe80::1%eth0
    pub(super) server: ZonedIp,
    #[command(flatten)]
    pub(super) test: TestArgs,
    /// Duration in seconds [default: 5]
    #[arg(short = 't', long, value_parser = run_seconds)]
    pub(super) seconds: Option<f64>,
    /// Transfer this many bytes once and compare the hashes of both ends, instead of a timed run
    #[arg(long, value_parser = size, value_name = "BYTES", conflicts_with_all = ["lat", "seconds"])]
    pub(super) transfer: Option<u64>,
    /// Length of an interval in seconds; 0 for none
    #[arg(short, long, default_value_t = 1.0, value_parser = interval_or_none)]
    pub(super) interval: f64,
    /// Plot rate, window, RTT and ECN marks of the intervals as SVG
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
    /// Fail (exit code 3) if goodput is below this
    #[arg(long, value_name = "GBPS", value_parser = limit)]
    pub(super) min_gbps: Option<f64>,
    /// Fail (exit code 3) if the 99th percentile of latency is above this
    #[arg(long, value_name = "US", value_parser = limit)]
    pub(super) max_p99_us: Option<f64>,
}

impl CommonArgs {
    /// Listens on TCP `port` of the interface.
    pub(super) fn listen(&self, port: u16) -> Result<TcpListener, Error> {
        let dev = self.dev();
        let listening = listen(dev, None, port);
        listening.map_err(|e| format!("cannot listen on TCP port {port} of {dev}: {e}").into())
    }

    /// The interface; empty before [`CommonArgs::choose_dev`].
    pub(super) fn dev(&self) -> &str {
        self.dev.as_deref().unwrap_or_default()
    }

    /// Chooses the interface if `--dev` is absent: that of the route to `server`, or without a
    /// server the only usable one.
    pub(super) fn choose_dev(&mut self, server: Option<&ZonedIp>) -> Result<(), Error> {
        let named = self.dev.as_deref();
        self.dev = Some(match server {
            Some(server) => interface::of_route(named, server)?,
            None => interface::only_usable(named)?,
        });
        Ok(())
    }

    /// The receive queue that this end serves, as text.
    pub(super) fn queue_text(&self) -> String {
        queues::text(self.dev(), self.port.queue())
    }

    /// Rejects arguments that are invalid with any peer, before a connection is opened.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.port.congestion()?;
        self.port.erasure().map(|_| ())
    }

    /// The cores of the workers.
    pub(super) fn cores(&self) -> Result<Vec<Option<usize>>, Error> {
        self.port.workers.assign()
    }

    /// The only runner that these arguments describe, at address `ip`, with the calling thread on
    /// its core.
    pub(super) fn runner(&self, ip: IpAddr) -> Result<JobRunner, Error> {
        let [core] = self.cores()?[..] else {
            return Err(usage("perftest has one worker: --workers needs --oob spanwire"));
        };
        core.map_or(Ok(()), affinity::pin)?;
        self.runners(ip)?.pop().ok_or_else(|| "one worker has a runner".into())
    }

    /// The runner of each worker that these arguments describe, at address `ip`.
    pub(super) fn runners(&self, ip: IpAddr) -> Result<Vec<JobRunner>, Error> {
        let config = self.port.config(self.dev())?;
        let sending = Sending {
            congestion: self.port.congestion()?,
            erasure: self.port.erasure()?,
            balance: self.port.balance()?,
        };
        let local = Some(ip).filter(|ip| !ip.is_unspecified());
        let ports = self.port.attach(self.dev(), local, self.faults()?, &config)?;
        let polling = self.poll.polling(Polling::Adaptive);
        let first = ports.first().ok_or("a process has a worker")?;
        let config = self.port.fit(config, first);
        let mut runners = JobRunner::workers(ports, ip, polling, &config)?;
        runners.iter_mut().for_each(|runner| runner.set_sending(sending));
        Ok(runners)
    }

    fn faults(&self) -> Result<Option<FaultConfig>, Error> {
        let config = self.faults.over(FaultConfig { seed: self.seed, ..FaultConfig::default() });
        if config.corrupt_ppm > 0 && !self.port.icrc() {
            return Err(usage(
                "--corrupt with --icrc off gives wrong data: the emulation flips bits behind the \
                 kernel's UDP checksum, so only the ICRC detects them",
            ));
        }
        Ok(config.has_faults().then_some(config))
    }
}

impl ClientArgs {
    /// The board on which the intervals of all workers are added up, and which prints the sums.
    pub(super) fn board(&self) -> Board {
        let prints = !self.common.json;
        Board::new(usize_from(self.common.port.workers.count().into()), move |sum| {
            if prints {
                print_text(&line(sum));
            }
        })
    }

    /// Connects to the server's side connection.
    ///
    /// The error for a refused connection ends with `question`.
    pub(super) fn reach_server(&self, question: &str) -> Result<TcpStream, Error> {
        let (server, port) = (&self.server, self.test.port());
        let ifindex = fabric::interface(self.common.dev())?.ifindex;
        let address = address(server.ip, port, ifindex);
        // The server compares the address of the packets with that of this connection.
        let local = self.test.address.filter(|local| local.is_ipv4() == server.ip.is_ipv4());
        dial(self.common.dev(), local, address, REPLY_TIMEOUT / 6).map_err(|e| {
            let advice = match e.kind() {
                ErrorKind::ConnectionRefused => question,
                _ => "is the address right, and reachable through this interface?",
            };
            let why = format!("cannot reach {server} on TCP port {port}: {e}; {advice}");
            Failed::network(&e, why).into()
        })
    }

    /// The job to request.
    pub(super) fn job(&self, runner: &JobRunner) -> Result<Job, Error> {
        let duration = Duration::from_secs_f64(self.seconds.unwrap_or(5.0));
        let duration_ms = u64::try_from(duration.as_millis())?;
        let TestArgs { lat, depth, .. } = self.test;
        let kind = match (self.transfer, lat) {
            (Some(bytes), _) => JobKind::Transfer { bytes, seed: self.common.seed },
            (None, true) => JobKind::Latency { duration_ms },
            (None, false) => JobKind::Bandwidth { duration_ms },
        };
        Ok(Job {
            kind,
            op: self.test.op(),
            size: self.test.size_or(if lat { 64 } else { 1 << 16 })?,
            qps: self.test.qps(),
            depth: if lat { 1 } else { depth.unwrap_or(16) },
            path_mtu: self.path_mtu(runner)?,
            timeout: self.test.timeout(),
            retry_cnt: self.test.retry(),
        })
    }

    /// The path MTU of the job: `--mtu`, else the largest.
    ///
    /// # Errors
    /// `--mtu` is not a path MTU, or exceeds that of the path.
    fn path_mtu(&self, runner: &JobRunner) -> Result<u32, Error> {
        let largest = runner.path_mtu(None);
        let Some(wanted) = self.test.mtu else { return Ok(largest) };
        if Mtu::from_bytes(wanted).is_none() {
            let why = format!("--mtu {wanted} is no path MTU (256, 512, 1024, 2048, 4096)");
            return Err(why.into());
        }
        let (mode, most) = match runner.agreed() {
            Some(Agreed::Sr(terms)) => ("SR", terms.segment_bytes),
            Some(Agreed::Rc) | None => ("RC", largest),
        };
        if wanted > most {
            let why =
                format!("--mtu {wanted}: a packet of {mode} carries at most {most} bytes here");
            return Err(why.into());
        }
        Ok(wanted.min(largest))
    }

    /// Rejects options that perftest lacks: its tests are measured in messages, not in time.
    pub(super) fn check_perftest(&self) -> Result<(), Error> {
        match (self.seconds, self.transfer) {
            (None, None) => Ok(()),
            _ => Err("perftest counts messages: --iters instead of --seconds or --transfer".into()),
        }
    }
}
