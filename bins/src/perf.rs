//! `spanwire perf server` and `client`: bandwidth and latency between two hosts, in the manner of
//! iperf3 and perftest.

mod args;
mod intervals;
mod perftest;
mod report;
mod test_args;

pub use args::PerfArgs;

use crate::exit::{Exit, usage};
use crate::output;
use crate::path_report::PathsReport;
use crate::port_args::interval;
use crate::rates;
use crate::report::{nonzero, op_name, packets, print_peer_error, print_report, print_text};
use crate::signals::Interrupt;
use args::{ClientArgs, CommonArgs, PerfCommand, ServerArgs};
use report::{ClientReport, overflow_text, text};
use spanwire_base::u32_from;
use spanwire_host::cores::on_each;
use spanwire_host::dial::retry_busy;
use spanwire_host::fabric::{Error, Fabric};
use spanwire_host::oob::{Oob, OobError};
use spanwire_host::runner::{
    Acceptor, Event, JobRunner, Meter, RECEIVE_OVERFLOWS, Served, serve_all,
};
use spanwire_host::text::bytes;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use test_args::OobKind;

/// Runs the subcommand.
///
/// # Errors
/// The run fails; the message names the cause, the place and a remedy.
pub fn run(args: &PerfArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    match &args.command {
        PerfCommand::Server(args) => {
            let mut args = args.clone();
            args.common.choose_dev(None)?;
            match args.test.oob {
                OobKind::Spanwire => run_server(&args, interrupt),
                OobKind::Perftest => perftest::run_server(&args, interrupt),
            }
        }
        PerfCommand::Client(args) => {
            let mut args = args.clone();
            args.common.choose_dev(Some(&args.server))?;
            match args.test.oob {
                OobKind::Spanwire => run_client(&args, interrupt),
                OobKind::Perftest => perftest::run_client(&args, interrupt),
            }
        }
    }
}

fn run_server(args: &ServerArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    args.test.check_own_server().map_err(usage)?;
    let common = &args.common;
    common.check()?;
    let cores = common.cores()?;
    // Without --address each client's connection tells which one it uses.
    let unknown = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let mut runners = common.runners(args.test.address.unwrap_or(unknown))?;
    for runner in &mut runners {
        runner.set_transfer_bytes_max(args.max_transfer);
        runner.set_mode(args.test.mode, None);
        if args.test.any_address {
            runner.take_any_address();
        }
    }
    let port = args.test.port();
    let listener = (common.listen(port)?, args.test.address);
    if !common.json {
        let mode = runners.first().map_or("", |runner| runner.attachment().mode_name());
        let workers = workers_text(runners.len());
        print_text(&format!("serving on {} ({mode}), TCP port {port}{workers}\n", common.dev()));
    }
    let stop = || interrupt.is_set();
    serve_all(runners, &cores, listener, args.one_off, &stop, |worker, runner, acceptor, stop| {
        serve(args, worker, runner, acceptor, stop)
    })?;
    Ok(Exit::Success)
}

/// Serves the clients of one worker until `stop` returns true, or with `--one-off` the first.
fn serve(
    args: &ServerArgs,
    worker: usize,
    mut runner: JobRunner,
    mut acceptor: Acceptor,
    stop: &dyn Fn() -> bool,
) -> Result<(), Error> {
    let common = &args.common;
    while !stop() && !acceptor.is_closed() {
        let (client, end) = match acceptor.next(&mut runner)? {
            None => continue,
            Some(Event::Closed(client, end)) => (client, end),
            Some(Event::Request(mut client, request)) => {
                match runner.serve_request(&mut client, &request, &stop) {
                    Ok(served) => {
                        let fabric = runner.attachment().fabric;
                        print_served(common, fabric, worker, client.address(), &served);
                        if served.complete {
                            acceptor.put_back(client);
                            continue;
                        }
                        (client, Ok(()))
                    }
                    Err(why) if stop() => return Err(why),
                    Err(why) => (client, Err(why)),
                }
            }
        };
        // A connection closed without a request is a port probe, not a client: `--one-off`
        // does not count it.
        let was_client = client.has_sent();
        match end {
            Ok(()) => {}
            Err(e) if args.one_off && was_client || runner.port_is_gone() => return Err(e),
            // An error of one client must not end the server.
            Err(e) => {
                let json = common.json && was_client;
                print_peer_error(json, "client", &shown(client.address()), &e);
            }
        }
        if args.one_off && was_client {
            break;
        }
    }
    Ok(())
}

fn run_client(args: &ClientArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    args.test.check_own_client().map_err(usage)?;
    let common = &args.common;
    common.check()?;
    let cores = common.cores()?;
    let reach = || args.reach_server("is `spanwire perf server` running there?");
    let stream = reach()?;
    let us = stream.local_addr()?.ip().to_canonical();
    let mut runners = common.runners(args.test.address.unwrap_or(us))?;
    let mut first = Some(stream);
    let is_busy = |e: &Error| matches!(e.downcast_ref(), Some(OobError::Busy(_)));
    let mut oobs = Vec::new();
    for runner in &mut runners {
        runner.set_mode(args.test.mode, args.test.mtu);
        if args.test.any_address {
            runner.take_any_address();
        }
        oobs.push(retry_busy(is_busy, || {
            let mut oob = Oob::tcp(first.take().map_or_else(reach, Ok)?)?;
            runner.handshake(&mut oob).map(|()| oob)
        })?);
    }
    let runner = runners.first().ok_or("a process has a worker")?;
    let job = args.job(runner).map_err(usage)?;
    if !common.json {
        let (op, size) = (op_name(job.op), bytes(job.size.into()));
        let (qps, packets) = (job.qps, packets(runner.agreed(), job.path_mtu));
        let (mode, workers) = (runner.attachment().mode_name(), workers_text(runners.len()));
        let to = &args.server;
        print_text(&format!("{op} of {size} to {to}, {qps} qp, {packets}, {mode}{workers}\n"));
    }
    let board = args.board();
    let (ends, workers) = (runners.iter_mut().zip(&mut oobs), u32_from(cores.len()));
    let (running, stop) = (AtomicUsize::new(cores.len()), || interrupt.is_set());
    let reports = on_each(&cores, ends, &stop, |worker, (runner, oob), stop| {
        let mut meter = Meter::new(interval(args.interval));
        let part = job.part(u32_from(worker), workers).map_err(usage)?;
        let report = runner.run(oob, part, stop, |watch| {
            let ended = meter.sample(watch.now(), watch.app().progress(), || Some(watch.flows()));
            ended.into_iter().for_each(|ended| board.add(worker, ended));
        });
        running.fetch_sub(1, Ordering::Relaxed);
        runner.stand_by(|| running.load(Ordering::Relaxed) == 0 || stop());
        report
    })?;
    let report = ClientReport::of(args, reports, &runners, &cores, board.into_sums());
    let mut report = report.ok_or("a process has a worker")?;
    report.interrupted(interrupt);
    print_report(common.json, &report, text)?;
    if let Some(path) = &args.plot {
        let plotted = plot(args, &report, path);
        plotted.unwrap_or_else(|e| output::note_error(format!("--plot {}: {e}", path.display())));
    }
    Ok(report.exit)
}

/// Several workers, as the end of a line.
fn workers_text(workers: usize) -> String {
    if workers > 1 { format!(", {workers} workers") } else { String::new() }
}

/// Plots the intervals of a run.
fn plot(args: &ClientArgs, report: &ClientReport, path: &Path) -> Result<(), Error> {
    let run = rates::Run::parse(&args.server.to_string(), &serde_json::to_string(report)?)?;
    Ok(std::fs::write(path, rates::picture("Goodput", &[run], &[], &[]))?)
}

fn print_served(
    common: &CommonArgs,
    fabric: Fabric,
    worker: usize,
    peer: Option<IpAddr>,
    served: &Served,
) {
    let Served { job, agreed, congestion, paths, messages, complete, counters } = served;
    if common.json {
        let paths = PathsReport::from(paths);
        let line = serde_json::json!({
            "fabric": fabric.as_str(), "worker": worker, "client": peer, "job": job,
            "mode": agreed.mode().name(),
            "congestion": congestion, "messages": messages,
            "ec": paths.ec, "lb": paths.lb, "paths": paths.paths,
            "complete": complete, "counters": nonzero(counters),
        });
        print_text(&format!("{line}\n"));
        return;
    }
    let end = if *complete { "done" } else { "the client went away" };
    let (peer, op, size) = (shown(peer), op_name(job.op), bytes(job.size.into()));
    let overflows =
        counters.iter().find(|(name, _)| name == RECEIVE_OVERFLOWS).map_or(0, |(_, n)| *n);
    let lost = overflow_text("the", overflows).map(|text| format!("; {text}")).unwrap_or_default();
    print_text(&format!("{peer}: {op} of {size}: {end}{lost}\n"));
}

/// A client's address in text output.
fn shown(address: Option<IpAddr>) -> String {
    address.map_or_else(|| "-".to_owned(), |ip| ip.to_string())
}
