//! `spanwire demo`: a verified transfer and short measurements between two hosts on this machine.
//!
//! With AF_XDP the hosts are two anonymous network namespaces joined by a veth pair. They belong to
//! this process alone, so the kernel removes them when it ends, even by Ctrl-C or SIGKILL. Over UDP
//! sockets, which need no privilege, the hosts are two addresses of the loopback.

use crate::exit::{Exit, Failed, usage};
use crate::output::print_error;
use crate::port_args;
use crate::report::{
    LiveLine, bar, job_exit, op_name, packets, perf_table, print_report, print_text, workers_text,
};
use crate::signals::Interrupt;
use crate::worker_args::WorkerArgs;
use serde::Serialize;
use spanwire_base::{Dur, Time, u32_from};
use spanwire_host::cores::on_each;
use spanwire_host::fabric::{Attachment, Error, Fabric, FabricChoice, Wrap};
use spanwire_host::oob::{Job, JobKind, Oob, Op};
use spanwire_host::runner::{JobReport, JobRunner, Pair, PerfRow, TransferRow, WorkerRow};
use spanwire_host::text::bytes;
use spanwire_io::affinity;
use spanwire_io::driver::Polling;
use spanwire_io::net::{Host, LabConfig, TwoHosts};
use spanwire_io::udp::UdpConfig;
use spanwire_io::xdp::XdpPreference;
use spanwire_transport::Agreed;
use std::net::{IpAddr, Ipv4Addr};
use std::thread;

/// Arguments of `spanwire demo`.
#[derive(clap::Args, Clone, Debug)]
pub struct DemoArgs {
    /// Fabric that carries the frames: xdp (AF_XDP over a veth pair), udp (UDP sockets over the
    /// loopback, without privileges), pipe (within this process), or auto: the first that is
    /// possible
    #[arg(long, default_value = "auto", value_parser = port_args::fabric)]
    pub fabric: FabricChoice,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub json: bool,
    /// Size of the verified transfer in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub mib: u64,
    /// MTU of the interfaces; over the loopback the longest IP packet
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1280..=9000))]
    pub mtu: u32,
    /// Duration of each measurement in milliseconds
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub ms: u64,
    /// With --workers each worker has both ends of a pipe of its own, in one thread.
    #[command(flatten)]
    workers: WorkerArgs,
}

/// The JSON object that `spanwire demo --json` prints.
#[derive(Debug, Serialize)]
pub struct DemoReport {
    /// The fabric that carried the frames.
    pub fabric: Fabric,
    /// The reason for the fallback from AF_XDP to another fabric, if there was one.
    pub fallback: Option<String>,
    /// AF_XDP's mode.
    pub xdp_mode: Option<&'static str>,
    /// The wire mode agreed on: `rc` or `sr`.
    pub mode: &'static str,
    /// All bytes were correct and nothing failed.
    pub ok: bool,
    /// The exit code: that of the first failure.
    pub exit: Exit,
    /// The verified transfer.
    pub transfer: TransferRow,
    /// The measurements: the sum over all workers.
    pub perf: Vec<PerfRow>,
    /// The measurements of each worker.
    pub workers: Vec<WorkerRow>,
}

/// Runs the demo. The exit code is [`Exit::Success`] only if all bytes were correct.
///
/// # Errors
/// The hosts or their ports cannot be made, or a job cannot start.
pub fn run(args: &DemoArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    let measured = measure(args, interrupt);
    if interrupt.is_set() {
        // The signal is the cause: an error of either side only reports that the other ended.
        return Err(Failed::new(interrupt.exit(), "interrupted").into());
    }
    let report = measured?;
    print_report(args.json, &report, text)?;
    Ok(report.exit)
}

fn measure(args: &DemoArgs, interrupt: &Interrupt) -> Result<DemoReport, Error> {
    match args.fabric {
        _ if args.workers.is_given() => by_workers(args, interrupt),
        FabricChoice::Pipe => over_pipe(args, interrupt),
        FabricChoice::Xdp => over_xdp(args, interrupt),
        FabricChoice::Udp => over_udp(args, interrupt),
        FabricChoice::Auto => {
            // The namespaces and addresses are this process's own, so that no failure means that
            // another one uses them.
            let (no_xdp, no_udp) = match over_xdp(args, interrupt) {
                Err(no_xdp) if !interrupt.is_set() => {
                    print_error(&format!(
                        "AF_XDP is unavailable ({no_xdp}); using UDP sockets instead"
                    ));
                    match over_udp(args, interrupt) {
                        Err(no_udp) if !interrupt.is_set() => (no_xdp, no_udp),
                        over_udp => return fell_back(over_udp, no_xdp.to_string()),
                    }
                }
                over_xdp => return over_xdp,
            };
            print_error(&format!(
                "UDP sockets are unavailable ({no_udp}); using an in-process pipe instead"
            ));
            fell_back(over_pipe(args, interrupt), format!("{no_xdp}; {no_udp}"))
        }
    }
}

/// The report with the reason of a fallback.
fn fell_back(report: Result<DemoReport, Error>, why: String) -> Result<DemoReport, Error> {
    report.map(|report| DemoReport { fallback: Some(why), ..report })
}

fn over_xdp(args: &DemoArgs, interrupt: &Interrupt) -> Result<DemoReport, Error> {
    let hosts = TwoHosts::anonymous(&LabConfig { mtu: args.mtu, ..LabConfig::default() })?;
    let attach =
        |host: &Host| Attachment::xdp(&host.ifname, 0, XdpPreference::Auto, &Wrap::default());
    let ends = [&hosts.a, &hosts.b].map(|host| {
        move || {
            // A socket belongs to the namespace in which it was created, so the thread stays in
            // it.
            let entered = host.ns.enter()?;
            Ok((attach(host)?, IpAddr::V4(host.v4), Some(entered)))
        }
    });
    let [a, b] = ends;
    run_hosts(args, interrupt, a, b)
}

fn over_udp(args: &DemoArgs, interrupt: &Interrupt) -> Result<DemoReport, Error> {
    let ends = loopback_addresses(std::process::id()).map(|ip| {
        let config =
            UdpConfig { local: Some(ip), ip_bytes_max: args.mtu, ..UdpConfig::new(LOOPBACK) };
        move || Ok((Attachment::udp(&config, &Wrap::default())?, ip, None::<()>))
    });
    let [a, b] = ends;
    run_hosts(args, interrupt, a, b)
}

/// Two addresses of the loopback that belong to this process, as far as its id is its own.
fn loopback_addresses(pid: u32) -> [IpAddr; 2] {
    let [_, high, middle, low] = (pid << 1).to_be_bytes();
    [0, 1].map(|host| Ipv4Addr::new(127, 0x40 | high & 0x3f, middle, low | host).into())
}

fn over_pipe(args: &DemoArgs, interrupt: &Interrupt) -> Result<DemoReport, Error> {
    let (a, b) = (IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2)));
    let (left, right) = Attachment::pipe([&Wrap::default(), &Wrap::default()])?;
    run_hosts(
        args,
        interrupt,
        move || Ok((left, a, None::<()>)),
        move || Ok((right, b, None::<()>)),
    )
}

/// Runs the server on a thread of its own and the client on another, each pinned to a core, and
/// ends both when either fails.
fn run_hosts<G, H>(
    args: &DemoArgs,
    interrupt: &Interrupt,
    client: impl FnOnce() -> Result<(Attachment, IpAddr, Option<G>), Error> + Send,
    server: impl FnOnce() -> Result<(Attachment, IpAddr, Option<H>), Error> + Send,
) -> Result<DemoReport, Error> {
    let (mut client_oob, server_oob) = Oob::pair()?;
    let cores = affinity::usable_cores();
    let polling = Polling::Adaptive;
    let pin = |i: usize| match cores.get(i) {
        Some(core) if cores.len() > 1 => affinity::pin(*core).map_err(Error::from),
        _ => Ok(()),
    };
    thread::scope(|scope| {
        let server_thread = scope.spawn(move || -> Result<(), Error> {
            pin(1)?;
            let (attachment, ip, _entered) = server()?;
            let mut runner = JobRunner::new(attachment, ip, polling)?;
            runner.set_transfer_bytes_max(args.mib << 20);
            runner.serve(server_oob, || interrupt.is_set(), |_| {})
        });
        let client_thread = scope.spawn(move || -> Result<DemoReport, Error> {
            pin(0)?;
            let (attachment, ip, _entered) = client()?;
            let mut runner = JobRunner::new(attachment, ip, polling)?;
            runner.handshake(&mut client_oob)?;
            run_jobs(args, interrupt, &mut runner, &mut client_oob)
        });
        // A panic in a worker is a bug: propagate it.
        let client_result = client_thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
        let server_result = server_thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p));
        match (client_result, server_result) {
            (Ok(report), _) => Ok(report),
            // If both fail, the server's error is the cause; the client's is its effect.
            (Err(_), Err(why)) | (Err(why), Ok(())) => Err(why),
        }
    })
}

/// Runs the client's jobs by one worker, over the side connection `oob`.
fn run_jobs(
    args: &DemoArgs,
    interrupt: &Interrupt,
    runner: &mut JobRunner,
    oob: &mut Oob,
) -> Result<DemoReport, Error> {
    let facts = Facts::of(runner);
    let path_mtu = runner.path_mtu(None);
    let mut live = LiveLine::new(!args.json);
    measure_all(args, interrupt, facts, path_mtu, &[None], |job| {
        let mut shown = Time::ZERO;
        let report = runner.run(oob, job, &|| interrupt.is_set(), |watch| {
            let now = watch.now();
            if now.since(shown) >= PROGRESS_INTERVAL {
                shown = now;
                live.show(&progress_line(&job, watch.app().progress().bytes));
            }
        });
        live.clear();
        Ok(vec![report?])
    })
}

/// Runs the jobs by several workers, each of which has both ends of a pipe in its thread.
fn by_workers(args: &DemoArgs, interrupt: &Interrupt) -> Result<DemoReport, Error> {
    if args.fabric != FabricChoice::Pipe {
        return Err(usage("--workers: only --fabric pipe; over a network see `spanwire perf`"));
    }
    let (cores, workers) = (args.workers.assign()?, args.workers.count());
    let stop = || interrupt.is_set();
    let mut pairs = on_each(&cores, 0..workers, &stop, |_, _, _| Pair::new(args.mib << 20))?;
    let first = pairs.first().ok_or("a process has a worker")?.client();
    let (facts, path_mtu) = (Facts::of(first), first.path_mtu(None));
    measure_all(args, interrupt, facts, path_mtu, &cores, |job| {
        on_each(&cores, &mut pairs, &stop, |worker, pair, stop| {
            pair.run(job.part(u32_from(worker), workers)?, stop, |_| {})
        })
    })
}

/// The fabric of a report.
#[derive(Clone, Copy)]
struct Facts {
    fabric: Fabric,
    xdp_mode: Option<&'static str>,
    agreed: Agreed,
}

impl Facts {
    fn of(runner: &JobRunner) -> Self {
        let (fabric, xdp_mode) = (runner.attachment().fabric, runner.attachment().xdp_mode);
        Self { fabric, xdp_mode, agreed: runner.agreed().unwrap_or(Agreed::Rc) }
    }
}

/// Runs the transfer, then the measurements, by `run`, which returns the report of each worker.
fn measure_all(
    args: &DemoArgs,
    interrupt: &Interrupt,
    facts: Facts,
    path_mtu: u32,
    cores: &[Option<usize>],
    mut run: impl FnMut(Job) -> Result<Vec<JobReport>, Error>,
) -> Result<DemoReport, Error> {
    let Facts { fabric, xdp_mode, agreed } = facts;
    if !args.json {
        let mode = xdp_mode.map(|m| format!(" ({m})")).unwrap_or_default();
        let name = match fabric {
            Fabric::AfXdp => "AF_XDP",
            Fabric::Udp => "UDP sockets",
            Fabric::Pipe => "an in-process pipe",
        };
        let workers = match cores.len() {
            1 => String::new(),
            n => format!(", {n} workers"),
        };
        let packets = packets(Some(agreed), path_mtu);
        print_text(&format!("RoCEv2 over {name}{mode}: {packets}{workers}\n"));
    }
    let mut run = |kind, op, size, depth| {
        let (timeout, retry_cnt) = (ACK_TIMEOUT, 7);
        let job = Job { kind, op, size, qps: 1, depth, path_mtu, timeout, retry_cnt };
        let reports = run(job)?;
        let workers = WorkerRow::of(&reports, cores);
        Ok::<_, Error>((JobReport::sum(reports).ok_or("a process has a worker")?, workers))
    };
    let bytes = args.mib << 20;
    let (report, _) = run(JobKind::Transfer { bytes, seed: DATA_SEED }, Op::Write, 1 << 20, 16)?;
    let (mut exit, transfer) = (job_exit(&report), TransferRow::of(&report));
    if exit == Exit::Failure && transfer.sha256_match.is_none() {
        exit = Exit::TransferWrong;
    }
    let (mut perf, mut workers, duration_ms) = (Vec::new(), Vec::new(), args.ms);
    for (latency, op, size, depth) in MEASUREMENTS {
        if interrupt.is_set() || exit != Exit::Success {
            break;
        }
        let kind = match latency {
            false => JobKind::Bandwidth { duration_ms },
            true => JobKind::Latency { duration_ms },
        };
        let (report, parts) = run(kind, op, size, depth)?;
        exit = job_exit(&report);
        perf.push(PerfRow::of(&report));
        workers.extend(parts);
    }
    let (mode, ok) = (agreed.mode().name(), exit == Exit::Success);
    Ok(DemoReport { fabric, fallback: None, xdp_mode, mode, ok, exit, transfer, perf, workers })
}

/// The progress line of a running job.
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
        (Some(true), _) => "every byte verified (SHA-256 equal on both hosts)".to_owned(),
        (_, Some(e)) => format!("FAILED: {e}"),
        (_, None) => "FAILED: the bytes differ".to_owned(),
    };
    let (moved, gbps, seconds) = (bytes(t.bytes), t.gbps, t.seconds);
    let mut out =
        format!("  transfer {moved} by WRITE in {seconds:.2} s, {gbps:.2} Gbit/s: {verdict}\n\n");
    out.push_str(&perf_table(&r.perf));
    out.push_str(&workers_text(&r.workers));
    out.push_str(
        "\n  Latency rows: send is half a ping-pong round trip, write and read are from posting\n  \
         to completion. Both hosts share this machine's cores.\n",
    );
    out
}

/// The measurements: true for latency, operation, message size in bytes, messages outstanding.
const MEASUREMENTS: [(bool, Op, u32, u32); 6] = [
    (false, Op::Write, 1 << 16, 16),
    (false, Op::Read, 1 << 16, 16),
    (false, Op::Send, 1 << 16, 16),
    (true, Op::Write, 64, 1),
    (true, Op::Read, 64, 1),
    (true, Op::Send, 64, 1),
];

/// The interface of UDP sockets.
const LOOPBACK: &str = "lo";

/// 67 ms, doubled twice by the engine, so that a worker without a core for a while is not
/// considered dead.
const ACK_TIMEOUT: u8 = 14;

/// Seed of the transferred data. It is fixed, so that the hash is the same on all machines.
const DATA_SEED: u64 = 0x5057_4d57;

const PROGRESS_INTERVAL: Dur = Dur::from_ms(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses__are_two_of_the_loopback_and_of_one_process_only() {
        for pid in [1, 77, 0x1_2345, 0x3f_ffff] {
            let [a, b] = loopback_addresses(pid);
            assert!(a.is_loopback() && b.is_loopback() && a != b, "{a} {b}");
            let next = loopback_addresses(pid + 1);
            assert!(!next.contains(&a) && !next.contains(&b));
        }
    }
}
