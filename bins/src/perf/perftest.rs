//! `spanwire perf --oob perftest`: measurements against `ib_write_bw` and similar tools.

use super::args::{ClientArgs, CommonArgs, ServerArgs};
use super::report::{ClientReport, text};
use crate::exit::{Exit, usage};
use crate::port_args::interval;
use crate::report::{nonzero, perf_table, print_peer_error, print_report, print_text};
use crate::signals::Interrupt;
use spanwire_base::Time;
use spanwire_host::dial::accept;
use spanwire_host::fabric::Error;
use spanwire_host::oob::perftest::{Exchange, Report, Test};
use spanwire_host::runner::{
    JobRunner, Meter, PerfRow, PerftestOutcome, PerftestPeer, STOP_POLL_INTERVAL,
};
use spanwire_host::text::bytes;
use std::net::{IpAddr, Ipv6Addr};

/// Serves perftest clients, all of the same test.
pub(super) fn run_server(args: &ServerArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    let common = &args.common;
    let test = args.test.perftest().map_err(usage)?;
    let mut runner =
        common.runner(args.test.address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)))?;
    runner.set_transfer_bytes_max(args.max_transfer);
    let (port, tool) = (args.test.port(), test.tool());
    let listener = common.listen(port)?;
    if !common.json {
        let mode = runner.attachment().mode_name();
        print_text(&format!("serving on {} ({mode}), TCP port {port}, for {tool}\n", common.dev()));
    }
    while !interrupt.is_set() {
        runner.check_port()?;
        let Some((stream, from)) = accept(&listener)? else {
            std::thread::sleep(STOP_POLL_INTERVAL / 5);
            continue;
        };
        let peer = from.ip().to_canonical();
        let us = stream.local_addr()?.ip().to_canonical();
        runner.set_ip(args.test.address.unwrap_or(us));
        let exchange = Exchange::tcp(stream, false)?;
        let outcome = runner.perftest(exchange, test, &|| interrupt.is_set(), &mut |_, _| {});
        let served = outcome.and_then(|outcome| {
            print_served(common, peer, &test, &outcome, &runner);
            outcome.report.and_then(|report| report.missing).map_or(Ok(()), Err)
        });
        match served {
            Ok(()) => {}
            // The signal ended the job.
            Err(e) if interrupt.is_set() => return Err(e),
            Err(e) if args.one_off || runner.port_is_gone() => return Err(e),
            // An error of one client must not end the server.
            Err(e) => print_peer_error(common.json, "client", &peer.to_string(), &e),
        }
        if args.one_off {
            break;
        }
    }
    Ok(Exit::Success)
}

/// Runs a test against a perftest server.
pub(super) fn run_client(args: &ClientArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    args.check_perftest().map_err(usage)?;
    let common = &args.common;
    let test = args.test.perftest().map_err(usage)?;
    let stream = args.reach_server(&format!("is {} running there?", test.tool()))?;
    let us = stream.local_addr()?.ip().to_canonical();
    let mut runner = common.runner(args.test.address.unwrap_or(us))?;
    let exchange = Exchange::tcp(stream, true)?;
    if !common.json {
        let (tool, size) = (test.tool(), bytes(test.size.into()));
        let (n, qps) = (test.iterations, test.qps);
        let mode = runner.attachment().mode_name();
        print_text(&format!("{tool}: {n} of {size} on {qps} qp to {}, {mode}\n", args.server));
    }
    let (mut meter, board) = (Meter::new(interval(args.interval)), args.board());
    let mut sample = |now, progress| {
        meter.sample(now, progress, || None).into_iter().for_each(|ended| board.add(0, ended));
    };
    let outcome = runner.perftest(exchange, test, &|| interrupt.is_set(), &mut |now, app| {
        sample(now, app.progress());
    });
    let mut outcome = outcome?;
    let report = outcome.report.take().ok_or("a client always measures")?;
    sample(Time::ZERO, report.progress);
    let (cores, intervals) = (common.cores()?, board.into_sums());
    let mut report = ClientReport::of(args, vec![report], &[runner], &cores, intervals)
        .ok_or("a client always measures")?
        .against(outcome.peer.clone(), test.tool());
    report.interrupted(interrupt);
    print_report(common.json, &report, |report| {
        text(report) + &peer_text(&outcome.peer, outcome.path_mtu)
    })?;
    Ok(report.exit)
}

fn print_served(
    common: &CommonArgs,
    peer: IpAddr,
    test: &Test,
    outcome: &PerftestOutcome,
    runner: &JobRunner,
) {
    let PerftestOutcome { report, peer: peer_info, path_mtu, messages, complete } = outcome;
    let rows: Vec<PerfRow> = report.iter().map(PerfRow::of).collect();
    if common.json {
        let line = serde_json::json!({
            "client": peer, "tool": test.tool(), "peer": peer_info, "size": test.size,
            "qps": test.qps, "iterations": test.iterations, "path_mtu": path_mtu,
            "messages": messages, "complete": complete, "perf": rows,
            "counters": nonzero(&runner.counters()),
        });
        print_text(&format!("{line}\n"));
        return;
    }
    let failure = rows.iter().find_map(|r| r.error.as_deref());
    let end = failure.unwrap_or(if *complete { "done" } else { "the client went away" });
    print_text(&format!("{peer}: {} of {}: {end}\n", test.tool(), bytes(test.size.into())));
    if !rows.is_empty() {
        print_text(&perf_table(&rows));
    }
    print_text(&peer_text(peer_info, *path_mtu));
}

/// The peer's version and results, in one or two lines of text.
fn peer_text(peer: &PerftestPeer, path_mtu: u32) -> String {
    let PerftestPeer { version, ip, report, .. } = peer;
    let mut out = format!("  peer: perftest {version} at {ip}, path MTU {path_mtu}\n");
    if let Some(Report { iterations, average, message_rate_mpps, .. }) = report {
        out.push_str(&format!(
            "  peer measured: {iterations} messages, average {average:.2} (MiB/s, or Gbit/s where \
             it reports so), {message_rate_mpps:.6} million messages/s\n"
        ));
    }
    out
}
