//! `spanwire demo`: two hosts on this machine, a verified transfer between them and a few short
//! measurements.
//!
//! The hosts are two anonymous network namespaces joined by a veth pair. They belong to this
//! process alone: whatever ends it, Ctrl-C and SIGKILL included, nothing is left behind.

use crate::exit::Exit;
use crate::report::{LiveLine, PerfRow, TransferRow, bar, op_name, packets, perf_table, say};
use crate::signals::Interrupt;
use serde::Serialize;
use spanwire_base::{Dur, Time};
use spanwire_host::fabric::{Attachment, Error, Fabric, Wrap};
use spanwire_host::oob::{Job, JobKind, Oob, Op};
use spanwire_host::runner::JobRunner;
use spanwire_host::text::bytes;
use spanwire_io::affinity;
use spanwire_io::driver::Polling;
use spanwire_io::net::{Host, LabConfig, TwoHosts};
use spanwire_io::xdp::XdpPreference;
use spanwire_transport::Agreed;
use std::net::{IpAddr, Ipv4Addr};
use std::thread;

/// Arguments of `spanwire demo`.
#[derive(clap::Args, Clone, Debug)]
pub struct DemoArgs {
    /// What carries the frames; `auto` falls back to the pipe where AF_XDP is not to be had
    #[arg(long, value_enum, default_value_t = FabricChoice::Auto)]
    pub fabric: FabricChoice,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub json: bool,
    /// MiB of the verified transfer
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub mib: u64,
    /// MTU of the interfaces
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1280..=9000))]
    pub mtu: u32,
    /// Milliseconds of each measurement
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub ms: u64,
}

/// Which fabric to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum FabricChoice {
    /// AF_XDP, or the pipe where that is not to be had.
    Auto,
    /// AF_XDP or nothing.
    Xdp,
    /// The pipe.
    Pipe,
}

/// The JSON object that `spanwire demo --json` prints.
#[derive(Debug, Serialize)]
pub struct DemoReport {
    /// What carried the frames.
    pub fabric: Fabric,
    /// Why it was not AF_XDP, when that was wanted.
    pub fallback: Option<String>,
    /// AF_XDP's mode.
    pub xdp_mode: Option<&'static str>,
    /// The wire mode agreed on: `rc` or `sr`.
    pub mode: &'static str,
    /// Every byte was right and nothing failed.
    pub ok: bool,
    /// The verified transfer.
    pub transfer: TransferRow,
    /// The measurements.
    pub perf: Vec<PerfRow>,
}

impl DemoReport {
    /// How the demo ends: a transfer that is not right is the worst that can be.
    fn exit(&self) -> Exit {
        match (self.ok, self.transfer.sha256_match) {
            (true, _) => Exit::Success,
            (false, true) => Exit::Failure,
            (false, false) => Exit::TransferWrong,
        }
    }
}

/// Runs the demo. The exit code says whether every byte was right.
///
/// # Errors
/// Nothing could be run at all.
pub fn run(args: &DemoArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    let measured = measure(args, interrupt);
    if interrupt.is_set() {
        // Whatever the two sides said of each other's going away, the user knows why.
        eprintln!("interrupted");
        return Ok(interrupt.exit());
    }
    let report = measured?;
    if args.json {
        say(&format!("{}\n", serde_json::to_string(&report)?));
    } else {
        say(&text(&report));
    }
    Ok(report.exit())
}

fn measure(args: &DemoArgs, interrupt: &Interrupt) -> Result<DemoReport, Error> {
    let mut fallback = None;
    let mut report = match args.fabric {
        FabricChoice::Pipe => over_pipe(args, interrupt)?,
        FabricChoice::Xdp => over_xdp(args, interrupt)?,
        FabricChoice::Auto => match over_xdp(args, interrupt) {
            Ok(report) => report,
            Err(why) if interrupt.is_set() => return Err(why),
            Err(why) => {
                eprintln!("AF_XDP is not to be had here ({why}); running over a pipe instead");
                fallback = Some(why.to_string());
                over_pipe(args, interrupt)?
            }
        },
    };
    report.fallback = fallback;
    Ok(report)
}

fn over_xdp(args: &DemoArgs, interrupt: &Interrupt) -> Result<DemoReport, Error> {
    let hosts = TwoHosts::anonymous(&LabConfig { mtu: args.mtu, ..LabConfig::default() })?;
    let attach =
        |host: &Host| Attachment::xdp(&host.ifname, 0, XdpPreference::Auto, &Wrap::default());
    let ends = [&hosts.a, &hosts.b].map(|host| {
        move || {
            // Sockets belong to the namespace they were made in; the thread stays in it.
            let entered = host.ns.enter()?;
            Ok((attach(host)?, IpAddr::V4(host.v4), Some(entered)))
        }
    });
    let [a, b] = ends;
    converse(args, interrupt, a, b)
}

fn over_pipe(args: &DemoArgs, interrupt: &Interrupt) -> Result<DemoReport, Error> {
    let (a, b) = (IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2)));
    let (left, right) = Attachment::pipe([&Wrap::default(), &Wrap::default()])?;
    converse(args, interrupt, move || Ok((left, a, None::<()>)), move || Ok((right, b, None::<()>)))
}

/// Runs the server on a thread of its own and the client on another, each pinned to a core, and
/// ends both when either fails.
fn converse<G, H>(
    args: &DemoArgs,
    interrupt: &Interrupt,
    client: impl FnOnce() -> Result<(Attachment, IpAddr, Option<G>), Error> + Send,
    server: impl FnOnce() -> Result<(Attachment, IpAddr, Option<H>), Error> + Send,
) -> Result<DemoReport, Error> {
    let (mut client_oob, server_oob) = Oob::pair()?;
    let cores = affinity::usable_cores();
    let polling = Polling::Adaptive { spin: SPIN };
    let pin = |i: usize| match cores.get(i) {
        Some(core) if cores.len() > 1 => affinity::pin(*core).map_err(Error::from),
        _ => Ok(()),
    };
    thread::scope(|scope| {
        let serving = scope.spawn(move || -> Result<(), Error> {
            pin(1)?;
            let (attachment, ip, _entered) = server()?;
            let mut station = JobRunner::new(attachment, ip, polling)?;
            station.set_transfer_bytes_max(args.mib << 20);
            station.serve(server_oob, || interrupt.is_set(), |_| {})
        });
        let asking = scope.spawn(move || -> Result<DemoReport, Error> {
            pin(0)?;
            let (attachment, ip, _entered) = client()?;
            let mut station = JobRunner::new(attachment, ip, polling)?;
            station.handshake(&mut client_oob)?;
            conduct(args, interrupt, &mut station, &mut client_oob)
        });
        // A panic in a worker is a bug: let it be seen as one.
        let asked = asking.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
        let served = serving.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
        match (asked, served) {
            (Ok(report), _) => Ok(report),
            // The server's own trouble explains more than the client's "the peer went away".
            (Err(_), Err(why)) | (Err(why), Ok(())) => Err(why),
        }
    })
}

/// The client's programme: the transfer, then the measurements.
fn conduct(
    args: &DemoArgs,
    interrupt: &Interrupt,
    station: &mut JobRunner,
    oob: &mut Oob,
) -> Result<DemoReport, Error> {
    let (fabric, xdp_mode) = (station.attachment().fabric, station.attachment().xdp_mode);
    let path_mtu = station.path_mtu(None);
    if !args.json {
        let mode = xdp_mode.map(|m| format!(" ({m})")).unwrap_or_default();
        let name = if fabric == Fabric::AfXdp { "AF_XDP" } else { "an in-process pipe" };
        let packets = packets(station.agreed(), path_mtu);
        say(&format!("RoCEv2 over {name}{mode}: {packets}\n"));
    }
    let mut live = LiveLine::new(!args.json);
    let mut run = |kind, op, size, depth| {
        let (timeout, retry_cnt) = (ACK_TIMEOUT, 7);
        let job = Job { kind, op, size, qps: 1, depth, path_mtu, timeout, retry_cnt };
        let mut shown = Time::ZERO;
        station.run(oob, job, |watch| {
            let now = watch.now();
            if now.since(shown) >= SHOW_EVERY {
                shown = now;
                live.show(&progress_line(&job, watch.app().progress().bytes));
            }
            interrupt.is_set()
        })
    };
    let bytes = args.mib << 20;
    let report = run(JobKind::Transfer { bytes, seed: DATA_SEED }, Op::Write, 1 << 20, 16)?;
    let (mut ok, transfer) = (report.is_ok(), TransferRow::of(&report));
    let (mut perf, duration_ms) = (Vec::new(), args.ms);
    for (latency, op, size, depth) in PROGRAMME {
        if interrupt.is_set() || !ok {
            break;
        }
        let kind = match latency {
            false => JobKind::Bandwidth { duration_ms },
            true => JobKind::Latency { duration_ms },
        };
        let report = run(kind, op, size, depth)?;
        ok &= report.is_ok();
        perf.push(PerfRow::of(&report));
    }
    live.clear();
    ok &= !interrupt.is_set();
    let mode = station.agreed().unwrap_or(Agreed::Rc).mode().name();
    Ok(DemoReport { fabric, fallback: None, xdp_mode, mode, ok, transfer, perf })
}

/// What a job looks like while it runs.
fn progress_line(job: &Job, done: u64) -> String {
    match job.kind {
        JobKind::Transfer { bytes: total, .. } => {
            format!("  transfer [{}] {} of {}", bar(done, total), bytes(done), bytes(total))
        }
        _ => format!("  {} {} ... {}", op_name(job.op), bytes(job.size.into()), bytes(done)),
    }
}

fn text(r: &DemoReport) -> String {
    let t = &r.transfer;
    let verdict = match (t.sha256_match, &t.error) {
        (true, _) => "every byte verified (SHA-256 equal on both hosts)".to_owned(),
        (false, Some(e)) => format!("FAILED: {e}"),
        (false, None) => "FAILED: the bytes differ".to_owned(),
    };
    let (moved, gbps, seconds) = (bytes(t.bytes), t.gbps, t.seconds);
    let mut out =
        format!("  transfer {moved} by WRITE in {seconds:.2} s, {gbps:.2} Gbit/s: {verdict}\n\n");
    out.push_str(&perf_table(&r.perf));
    out.push_str(
        "\n  Latency rows: send is half a ping-pong round trip, write and read are from posting\n  \
         to completion. Both hosts share this machine's cores.\n",
    );
    out
}

/// The measurements: whether of latency, operation, message bytes, messages outstanding.
const PROGRAMME: [(bool, Op, u32, u32); 6] = [
    (false, Op::Write, 1 << 16, 16),
    (false, Op::Read, 1 << 16, 16),
    (false, Op::Send, 1 << 16, 16),
    (true, Op::Write, 64, 1),
    (true, Op::Read, 64, 1),
    (true, Op::Send, 64, 1),
];

/// Spin about as long as a round trip takes before sleeping, so that an answer finds us awake; on
/// one core the peer gets its turn then.
const SPIN: Dur = Dur::from_us(50);

/// 67 ms, doubled twice by the engine: a worker that loses its core for a while is not given up.
const ACK_TIMEOUT: u8 = 14;

/// Any seed does; a fixed one makes the demo's hash the same everywhere.
const DATA_SEED: u64 = 0x5057_4d57;

const SHOW_EVERY: Dur = Dur::from_ms(100);
