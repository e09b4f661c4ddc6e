//! `spanwire perf server` and `client`: bandwidth and latency between two hosts, in the manner of
//! iperf3 and perftest.

mod args;
mod meter;
mod perftest;
mod report;
mod test_args;

pub use args::PerfArgs;

use crate::exit::{Exit, usage};
use crate::output;
use crate::path_report::PathsReport;
use crate::rates;
use crate::report::{nonzero, op_name, packets, print_peer_error, print_report, print_text};
use crate::signals::Interrupt;
use args::{ClientArgs, CommonArgs, PerfCommand, ServerArgs};
use meter::Meter;
use report::{ClientReport, overflow_text, text};
use spanwire_host::dial::retry_busy;
use spanwire_host::fabric::{Error, Fabric};
use spanwire_host::oob::{Oob, OobError};
use spanwire_host::runner::{Acceptor, Event, RECEIVE_OVERFLOWS, Served};
use spanwire_host::text::bytes;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
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
    // Without --address each client's connection tells which one it uses.
    let unknown = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let mut runner = common.runner(args.test.address.unwrap_or(unknown))?;
    runner.set_transfer_bytes_max(args.max_transfer);
    runner.set_mode(args.test.mode, None);
    let port = args.test.port();
    if args.test.any_address {
        runner.take_any_address();
    }
    let mut acceptor = Acceptor::new(common.listen(port)?, args.test.address);
    if !common.json {
        let mode = runner.attachment().mode_name();
        print_text(&format!("serving on {} ({mode}), TCP port {port}\n", common.dev()));
    }
    while !interrupt.is_set() {
        let (client, end) = match acceptor.next(&mut runner)? {
            None => continue,
            Some(Event::Closed(client, end)) => (client, end),
            Some(Event::Request(mut client, request)) => {
                match runner.serve_request(&mut client, &request, &|| interrupt.is_set()) {
                    Ok(served) => {
                        let fabric = runner.attachment().fabric;
                        print_served(common, fabric, client.address(), &served);
                        if served.complete {
                            acceptor.put_back(client);
                            continue;
                        }
                        (client, Ok(()))
                    }
                    Err(why) if interrupt.is_set() => return Err(why),
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
    Ok(Exit::Success)
}

fn run_client(args: &ClientArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    args.test.check_own_client().map_err(usage)?;
    let common = &args.common;
    common.check()?;
    let reach = || args.reach_server("is `spanwire perf server` running there?");
    let stream = reach()?;
    let us = stream.local_addr()?.ip().to_canonical();
    let mut runner = common.runner(args.test.address.unwrap_or(us))?;
    runner.set_mode(args.test.mode, args.test.mtu);
    if args.test.any_address {
        runner.take_any_address();
    }
    let mut first = Some(stream);
    let is_busy = |e: &Error| matches!(e.downcast_ref(), Some(OobError::Busy(_)));
    let mut oob = retry_busy(is_busy, || {
        let mut oob = Oob::tcp(first.take().map_or_else(reach, Ok)?)?;
        runner.handshake(&mut oob).map(|()| oob)
    })?;
    let job = args.job(&runner).map_err(usage)?;
    if !common.json {
        let (op, size) = (op_name(job.op), bytes(job.size.into()));
        let (qps, packets) = (job.qps, packets(runner.agreed(), job.path_mtu));
        let mode = runner.attachment().mode_name();
        print_text(&format!("{op} of {size} to {}, {qps} qp, {packets}, {mode}\n", args.server));
    }
    let mut meter = Meter::new(args.interval, !common.json);
    let report = runner.run(&mut oob, job, &|| interrupt.is_set(), |watch| {
        meter.sample(watch.now(), watch.app().progress(), || Some(watch.flows()));
    })?;
    let mut report = ClientReport::of(args, &report, &runner, meter);
    report.interrupted(interrupt);
    print_report(common.json, &report, text)?;
    if let Some(path) = &args.plot {
        let plotted = plot(args, &report, path);
        plotted.unwrap_or_else(|e| output::note_error(format!("--plot {}: {e}", path.display())));
    }
    Ok(report.exit)
}

/// Plots the intervals of a run.
fn plot(args: &ClientArgs, report: &ClientReport, path: &Path) -> Result<(), Error> {
    let run = rates::Run::parse(&args.server.to_string(), &serde_json::to_string(report)?)?;
    Ok(std::fs::write(path, rates::picture("Goodput", &[run], &[], &[]))?)
}

fn print_served(common: &CommonArgs, fabric: Fabric, peer: Option<IpAddr>, served: &Served) {
    let Served { job, agreed, congestion, paths, messages, complete, counters } = served;
    if common.json {
        let paths = PathsReport::from(paths);
        let line = serde_json::json!({
            "fabric": fabric.as_str(), "client": peer, "job": job, "mode": agreed.mode().name(),
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
