//! `spanwire perf server` and `client`: bandwidth and latency between two hosts, in the manner of
//! iperf3 and perftest.

use crate::fabric::{Attachment, Error, Wrap};
use crate::initiator::Initiator;
use crate::oob::{DEFAULT_PORT, Job, JobKind, Oob, Op, REPLY_TIMEOUT};
use crate::report::{PerfRow, TransferRow, bytes, op_name, perf_table, seconds};
use crate::signals::Interrupt;
use crate::station::{JobReport, Served, Station};
use clap::ValueEnum;
use serde::Serialize;
use spanwire_base::{Dur, Time};
use spanwire_io::affinity;
use spanwire_io::driver::Polling;
use spanwire_io::fault::FaultConfig;
use spanwire_io::net::Netlink;
use spanwire_io::xdp::XdpPreference;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `spanwire perf`.
#[derive(clap::Args, Clone, Debug)]
pub struct PerfArgs {
    #[command(subcommand)]
    command: PerfCommand,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum PerfCommand {
    /// Wait for clients and serve them, one at a time
    Server(ServerArgs),
    /// Measure against a server
    Client(ClientArgs),
}

/// What both ends take.
#[derive(clap::Args, Clone, Debug)]
struct CommonArgs {
    /// Network interface
    #[arg(long)]
    dev: String,
    /// TCP port of the side connection
    #[arg(short, long, default_value_t = DEFAULT_PORT)]
    port: u16,
    /// How to attach: auto tries native zero-copy, native copy, then generic
    #[arg(long, default_value = "auto", value_parser = preference)]
    xdp: XdpPreference,
    /// How to wait: spin all the time, or spin a while and then sleep
    #[arg(long, value_enum, default_value_t = Wait::Adaptive)]
    poll: Wait,
    /// Pin the worker to this core
    #[arg(long)]
    core: Option<usize>,
    /// Write everything sent and received to a pcap file
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Drop this share of the frames received, in percent
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    loss: f64,
    /// Receive this share of the frames twice, in percent
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    dup: f64,
    /// Receive this share of the frames late, in percent
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    reorder: f64,
    /// Seed of those faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Clone, Debug)]
struct ServerArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// End after one client
    #[arg(long)]
    one_off: bool,
}

#[derive(clap::Args, Clone, Debug)]
struct ClientArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// The server's address on that interface
    server: IpAddr,
    /// What moves the data
    #[arg(long, value_enum, default_value_t = Op::Write)]
    op: Op,
    /// Bytes of a message; K, M and G are binary. Default 64K, with --lat 64
    #[arg(short, long, value_parser = size)]
    size: Option<u64>,
    /// Queue pairs
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    qps: u32,
    /// Messages outstanding on each queue pair
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=2048))]
    depth: u32,
    /// How long
    #[arg(short = 't', long, default_value_t = 5.0)]
    seconds: f64,
    /// Move this many bytes once and compare hashes of both ends, instead of running for a time
    #[arg(long, value_parser = size, value_name = "BYTES", conflicts_with_all = ["lat", "seconds"])]
    transfer: Option<u64>,
    /// Path MTU in payload bytes: 256, 512, 1024, 2048 or 4096; default the largest that fits
    #[arg(short, long)]
    mtu: Option<u32>,
    /// Measure latency: one message at a time
    #[arg(long)]
    lat: bool,
    /// Seconds between interval lines; 0 for none
    #[arg(short, long, default_value_t = 1.0)]
    interval: f64,
    /// Local ACK timeout: 4.096 us * 2^N
    #[arg(long, default_value_t = 14, value_parser = clap::value_parser!(u8).range(1..=31))]
    timeout: u8,
    /// Retransmissions without progress before giving up
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(0..=7))]
    retry: u8,
    /// Fail (exit code 1) below this goodput
    #[arg(long, value_name = "GBPS")]
    min_gbps: Option<f64>,
    /// Fail (exit code 1) above this 99th percentile
    #[arg(long, value_name = "US")]
    max_p99_us: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Wait {
    Busy,
    Adaptive,
}

/// The JSON object that `spanwire perf client --json` prints.
#[derive(Debug, Serialize)]
struct ClientReport {
    fabric: &'static str,
    xdp_mode: Option<&'static str>,
    ok: bool,
    error: Option<String>,
    thresholds: Vec<Threshold>,
    transfer: Option<TransferRow>,
    perf: Vec<PerfRow>,
    intervals: Vec<Interval>,
    counters: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Serialize)]
struct Threshold {
    name: &'static str,
    limit: f64,
    measured: f64,
    ok: bool,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Interval {
    start_s: f64,
    end_s: f64,
    bytes: u64,
    gbps: f64,
    msgs_per_s: f64,
}

/// Runs the subcommand.
///
/// # Errors
/// It could not run; the message says what is wrong, where, and what to do.
pub fn run(args: &PerfArgs, interrupt: &Interrupt) -> Result<ExitCode, Error> {
    match &args.command {
        PerfCommand::Server(args) => serve(args, interrupt),
        PerfCommand::Client(args) => ask(args, interrupt),
    }
}

fn serve(args: &ServerArgs, interrupt: &Interrupt) -> Result<ExitCode, Error> {
    let common = &args.common;
    // Any address of the interface will do: TCP stays the kernel's.
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, common.port))
        .map_err(|e| format!("cannot listen on TCP port {}: {e}", common.port))?;
    listener.set_nonblocking(true)?;
    let unknown = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let mut station = common.station(unknown)?;
    if !common.json {
        let mode = station.attachment().xdp_mode.unwrap_or("-");
        println!(
            "serving on {} ({mode}), TCP port {}",
            common.dev, common.port
        );
    }
    while !interrupt.is_set() {
        let Some((stream, from)) = accept(&listener)? else {
            continue;
        };
        let us = stream.local_addr()?.ip().to_canonical();
        station.set_ip(us);
        let mut oob = Oob::tcp(stream)?;
        let peer = from.ip().to_canonical();
        let served = station.serve(
            &mut oob,
            || interrupt.is_set(),
            |job| {
                common.tell_served(peer, job);
            },
        );
        match served {
            Ok(()) => {}
            Err(e) if args.one_off => return Err(e),
            // The next client must not suffer from this one.
            Err(e) => eprintln!("client {peer}: {e}"),
        }
        if args.one_off {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn accept(listener: &TcpListener) -> Result<Option<(TcpStream, SocketAddr)>, Error> {
    match listener.accept() {
        Ok((stream, from)) => {
            stream.set_nonblocking(false)?;
            Ok(Some((stream, from)))
        }
        Err(e) if e.kind() == ErrorKind::WouldBlock => {
            std::thread::sleep(std::time::Duration::from_millis(20));
            Ok(None)
        }
        Err(e)
            if matches!(
                e.kind(),
                ErrorKind::Interrupted | ErrorKind::ConnectionAborted
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(e.into()),
    }
}

fn ask(args: &ClientArgs, interrupt: &Interrupt) -> Result<ExitCode, Error> {
    let common = &args.common;
    let stream = args.reach_server()?;
    let us = stream.local_addr()?.ip().to_canonical();
    let mut station = common.station(us)?;
    let mut oob = Oob::tcp(stream)?;
    station.meet(&mut oob)?;
    let job = args.job(&station)?;
    if !common.json {
        let (op, size) = (op_name(job.op), bytes(job.size.into()));
        let (qps, mtu) = (job.qps, job.path_mtu);
        let mode = station.attachment().xdp_mode.unwrap_or("-");
        println!(
            "{op} of {size} to {}, {qps} qp, path MTU {mtu}, {mode}",
            args.server
        );
    }
    let mut meter = Meter::new(args.interval, !common.json);
    let report = station.run(&mut oob, job, |now, app| {
        meter.look(now, app);
        interrupt.is_set()
    })?;
    let report = args.client_report(&report, &station, meter.intervals);
    if common.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{}", text(&report));
    }
    Ok(match (report.ok, interrupt.is_set()) {
        (_, true) => ExitCode::from(130),
        (true, _) => ExitCode::SUCCESS,
        (false, _) => ExitCode::FAILURE,
    })
}

impl CommonArgs {
    fn station(&self, ip: IpAddr) -> Result<Station, Error> {
        if let Some(core) = self.core {
            affinity::pin(core)?;
        }
        let wrap = Wrap {
            faults: self.faults()?,
            pcap: self.pcap.clone(),
        };
        let polling = match self.poll {
            Wait::Busy => Polling::Busy,
            Wait::Adaptive => Polling::Adaptive { spin: SPIN },
        };
        Station::new(Attachment::xdp(&self.dev, self.xdp, &wrap)?, ip, polling)
    }

    fn faults(&self) -> Result<Option<FaultConfig>, Error> {
        let config = FaultConfig {
            seed: self.seed,
            loss_ppm: ppm("--loss", self.loss)?,
            dup_ppm: ppm("--dup", self.dup)?,
            reorder_ppm: ppm("--reorder", self.reorder)?,
            ..FaultConfig::default()
        };
        let any = config.loss_ppm > 0 || config.dup_ppm > 0 || config.reorder_ppm > 0;
        Ok(any.then_some(config))
    }

    fn tell_served(&self, peer: IpAddr, served: &Served) {
        let Served {
            job,
            messages,
            complete,
        } = served;
        if self.json {
            let line = serde_json::json!({
                "client": peer, "job": job, "messages": messages, "complete": complete,
            });
            println!("{line}");
            return;
        }
        let end = if *complete {
            "done"
        } else {
            "the client went away"
        };
        println!(
            "{peer}: {} of {}: {end}",
            op_name(job.op),
            bytes(job.size.into())
        );
    }
}

impl ClientArgs {
    fn reach_server(&self) -> Result<TcpStream, Error> {
        let (server, port) = (self.server, self.common.port);
        let address = match server {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => {
                let scope = Netlink::open()?.ifindex(&self.common.dev)?;
                SocketAddr::V6(SocketAddrV6::new(v6, port, 0, scope))
            }
            other => SocketAddr::new(other, port),
        };
        TcpStream::connect_timeout(&address, REPLY_TIMEOUT / 6).map_err(|e| {
            let advice = match e.kind() {
                ErrorKind::ConnectionRefused => "is `spanwire perf server` running there?",
                _ => "is the address right, and reachable through this interface?",
            };
            format!("cannot reach {server} on TCP port {port}: {e}; {advice}").into()
        })
    }

    fn job(&self, station: &Station) -> Result<Job, Error> {
        let duration_ms = milliseconds(self.seconds)?;
        let kind = match (self.transfer, self.lat) {
            (Some(bytes), _) => JobKind::Transfer {
                bytes,
                seed: self.common.seed,
            },
            (None, true) => JobKind::Latency { duration_ms },
            (None, false) => JobKind::Bandwidth { duration_ms },
        };
        let default = if self.lat { 64 } else { 1 << 16 };
        let size = self.size.unwrap_or(default);
        let size = u32::try_from(size)
            .ok()
            .filter(|s| (1..=1 << 30).contains(s));
        Ok(Job {
            kind,
            op: self.op,
            size: size.ok_or("--size must be between 1 byte and 1 GiB")?,
            qps: self.qps,
            depth: if self.lat { 1 } else { self.depth },
            path_mtu: station.path_mtu(self.mtu),
            timeout: self.timeout,
            retry_cnt: self.retry,
        })
    }

    fn client_report(
        &self,
        report: &JobReport,
        station: &Station,
        intervals: Vec<Interval>,
    ) -> ClientReport {
        let transfer = self.transfer.map(|_| TransferRow::of(report));
        let perf = if transfer.is_some() {
            vec![]
        } else {
            vec![PerfRow::of(report)]
        };
        let thresholds = self.thresholds(report);
        let error = report.progress.failure.map(|f| f.to_string());
        let counters = station.counters().into_iter().filter(|(_, n)| *n > 0);
        ClientReport {
            fabric: "af_xdp",
            xdp_mode: station.attachment().xdp_mode,
            ok: report.is_ok() && thresholds.iter().all(|t| t.ok),
            error,
            thresholds,
            transfer,
            perf,
            intervals,
            counters: counters.map(|(name, n)| (name, n.into())).collect(),
        }
    }

    fn thresholds(&self, report: &JobReport) -> Vec<Threshold> {
        let floor = self.min_gbps.map(|limit| {
            let measured = report.gbps();
            Threshold {
                name: "min_gbps",
                limit,
                measured,
                ok: measured >= limit,
            }
        });
        let ceiling = self.max_p99_us.map(|limit| {
            let measured = report.latency_us(0.99);
            Threshold {
                name: "max_p99_us",
                limit,
                measured,
                ok: measured <= limit,
            }
        });
        floor.into_iter().chain(ceiling).collect()
    }
}

/// Cuts a running job into intervals.
struct Meter {
    every: Option<Dur>,
    print: bool,
    last: Option<(Time, u64, u64)>,
    intervals: Vec<Interval>,
}

impl Meter {
    fn new(interval_s: f64, print: bool) -> Self {
        let every = milliseconds(interval_s)
            .ok()
            .filter(|ms| *ms > 0)
            .map(Dur::from_ms);
        Self {
            every,
            print,
            last: None,
            intervals: Vec::new(),
        }
    }

    fn look(&mut self, now: Time, app: &Initiator) {
        let p = app.progress();
        let (Some(every), Some(started)) = (self.every, p.started) else {
            return;
        };
        let (from, bytes_then, messages_then) = *self.last.get_or_insert((started, 0, 0));
        if now.since(from) < every || self.intervals.len() >= INTERVALS_MAX {
            return;
        }
        let (moved, messages) = (p.bytes - bytes_then, p.messages - messages_then);
        let took = seconds(now.since(from));
        #[expect(
            clippy::cast_precision_loss,
            reason = "a report's figure, of three digits"
        )]
        let (gbps, msgs_per_s) = (moved as f64 * 8.0 / took / 1e9, messages as f64 / took);
        let (start_s, end_s) = (seconds(from.since(started)), seconds(now.since(started)));
        let interval = Interval {
            start_s,
            end_s,
            bytes: moved,
            gbps,
            msgs_per_s,
        };
        if self.print {
            let moved = bytes(moved);
            println!(
                "  {start_s:>6.2}-{end_s:<6.2} s {moved:>10} {gbps:>8.3} Gbit/s {msgs_per_s:>10.0} messages/s"
            );
        }
        self.intervals.push(interval);
        self.last = Some((now, p.bytes, p.messages));
    }
}

fn text(r: &ClientReport) -> String {
    let mut out = String::new();
    if let Some(t) = &r.transfer {
        let same = if t.sha256_match {
            "equal on both ends"
        } else {
            "DIFFERENT"
        };
        out.push_str(&format!(
            "  {} by {} in {:.2} s, {:.3} Gbit/s, SHA-256 {same}\n",
            bytes(t.bytes),
            op_name(t.op),
            t.seconds,
            t.gbps
        ));
    } else {
        out.push_str(&perf_table(&r.perf));
    }
    for t in r.thresholds.iter().filter(|t| !t.ok) {
        out.push_str(&format!(
            "  FAILED: {} {:.3}, measured {:.3}\n",
            t.name, t.limit, t.measured
        ));
    }
    if let Some(e) = &r.error {
        out.push_str(&format!("  FAILED: {e}\n"));
    }
    out
}

/// `64K` and the like, in bytes.
fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.to_ascii_lowercase() {
        t if t.ends_with('k') => (t[..t.len() - 1].to_owned(), 1 << 10),
        t if t.ends_with('m') => (t[..t.len() - 1].to_owned(), 1 << 20),
        t if t.ends_with('g') => (t[..t.len() - 1].to_owned(), 1 << 30),
        t => (t, 1),
    };
    let n: u64 = digits
        .parse()
        .map_err(|_| format!("{text} is no size (try 64, 64K or 1M)"))?;
    match n.checked_mul(unit) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(format!("{text} is out of range")),
    }
}

fn preference(text: &str) -> Result<XdpPreference, String> {
    XdpPreference::from_name(text)
        .ok_or_else(|| format!("{text} is no XDP mode (auto, native, copy, skb)"))
}

fn ppm(name: &str, percent: f64) -> Result<u32, Error> {
    if !(0.0..=100.0).contains(&percent) {
        return Err(format!("{name} {percent} is no percentage").into());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and a million, checked above"
    )]
    let ppm = (percent * 10_000.0).round() as u32;
    Ok(ppm)
}

fn milliseconds(seconds: f64) -> Result<u64, Error> {
    if !(0.0..=86_400.0).contains(&seconds) {
        return Err(format!("{seconds} s is not between 0 and a day").into());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and a day, checked above"
    )]
    let ms = (seconds * 1e3).round() as u64;
    Ok(ms)
}

/// Spin about as long as a round trip takes before sleeping, so that an answer finds us awake.
const SPIN: Dur = Dur::from_us(50);

/// Interval lines kept for JSON: a day of seconds.
const INTERVALS_MAX: usize = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size__takes_binary_units_and_refuses_nonsense() {
        assert_eq!(size("64"), Ok(64));
        assert_eq!(size("64K"), Ok(65_536));
        assert_eq!(size("1g"), Ok(1 << 30));
        for bad in ["", "K", "0", "-1", "1T", "99999999999G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ppm__is_percent_times_ten_thousand() {
        assert_eq!(ppm("--loss", 1.0).unwrap(), 10_000);
        assert_eq!(ppm("--loss", 0.0001).unwrap(), 1);
        assert!(ppm("--loss", 101.0).is_err());
        assert!(ppm("--loss", f64::NAN).is_err());
    }

    #[test]
    fn milliseconds__has_bounds() {
        assert_eq!(milliseconds(0.5).unwrap(), 500);
        assert!(milliseconds(-1.0).is_err());
        assert!(milliseconds(f64::INFINITY).is_err());
    }
}
