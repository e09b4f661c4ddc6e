//! `spanwire perf server` and `client`: bandwidth and latency between two hosts, in the manner of
//! iperf3 and perftest.

mod args;
mod perftest;
mod report;
mod test_args;

pub use args::PerfArgs;

use crate::fabric::Error;
use crate::oob::{Oob, listen};
use crate::report::{bytes, op_name, packets, say};
use crate::signals::Interrupt;
use crate::station::Served;
use args::{ClientArgs, CommonArgs, PerfCommand, ServerArgs};
use report::{ClientReport, Meter, text};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use test_args::OobKind;

/// Runs the subcommand.
///
/// # Errors
/// It could not run; the message says what is wrong, where, and what to do.
pub fn run(args: &PerfArgs, interrupt: &Interrupt) -> Result<ExitCode, Error> {
    match &args.command {
        PerfCommand::Server(args) => {
            let mut args = args.clone();
            args.common.choose_dev(None)?;
            match args.test.oob {
                OobKind::Spanwire => serve(&args, interrupt),
                OobKind::Perftest => perftest::serve(&args, interrupt),
            }
        }
        PerfCommand::Client(args) => {
            let mut args = args.clone();
            args.common.choose_dev(Some(args.server))?;
            match args.test.oob {
                OobKind::Spanwire => ask(&args, interrupt),
                OobKind::Perftest => perftest::ask(&args, interrupt),
            }
        }
    }
}

fn serve(args: &ServerArgs, interrupt: &Interrupt) -> Result<ExitCode, Error> {
    args.test.check_own_server()?;
    let common = &args.common;
    let unknown = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let mut station = common.station(unknown)?;
    station.set_transfer_bytes_max(args.max_transfer);
    station.set_mode(args.test.mode, None);
    let port = args.test.port();
    let listener = listen_on(common, port)?;
    if !common.json {
        let mode = station.attachment().xdp_mode.unwrap_or("-");
        say(&format!("serving on {} ({mode}), TCP port {port}\n", common.dev()));
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
                tell_served(common, peer, job);
            },
        );
        match served {
            Ok(()) => {}
            Err(e) if args.one_off || station.port_is_gone() => return Err(e),
            // The next client must not suffer from this one.
            Err(e) => eprintln!("client {peer}: {e}"),
        }
        if args.one_off {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn listen_on(common: &CommonArgs, port: u16) -> Result<TcpListener, Error> {
    let dev = common.dev();
    listen(dev, port).map_err(|e| format!("cannot listen on TCP port {port} of {dev}: {e}").into())
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
        Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {
            Ok(None)
        }
        Err(e) => Err(e.into()),
    }
}

fn ask(args: &ClientArgs, interrupt: &Interrupt) -> Result<ExitCode, Error> {
    args.test.check_own_client()?;
    let common = &args.common;
    let stream = args.reach_server("is `spanwire perf server` running there?")?;
    let us = stream.local_addr()?.ip().to_canonical();
    let mut station = common.station(us)?;
    station.set_mode(args.test.mode, args.test.mtu);
    let mut oob = Oob::tcp(stream)?;
    station.meet(&mut oob)?;
    let job = args.job(&station)?;
    if !common.json {
        let (op, size) = (op_name(job.op), bytes(job.size.into()));
        let (qps, packets) = (job.qps, packets(station.agreed(), job.path_mtu));
        let mode = station.attachment().xdp_mode.unwrap_or("-");
        say(&format!("{op} of {size} to {}, {qps} qp, {packets}, {mode}\n", args.server));
    }
    let mut meter = Meter::new(args.interval, !common.json);
    let report = station.run(&mut oob, job, |now, app| {
        meter.look(now, app);
        interrupt.is_set()
    })?;
    let report = ClientReport::of(args, &report, &station, meter.intervals);
    if common.json {
        say(&format!("{}\n", serde_json::to_string(&report)?));
    } else {
        say(&text(&report));
    }
    Ok(match (report.ok, interrupt.is_set()) {
        (_, true) => ExitCode::from(130),
        (true, _) => ExitCode::SUCCESS,
        (false, _) => ExitCode::FAILURE,
    })
}

fn tell_served(common: &CommonArgs, peer: IpAddr, served: &Served) {
    let Served { job, agreed, messages, complete, counters } = served;
    if common.json {
        let line = serde_json::json!({
            "client": peer, "job": job, "mode": agreed.mode().name(), "messages": messages,
            "complete": complete, "counters": nonzero(counters),
        });
        say(&format!("{line}\n"));
        return;
    }
    let end = if *complete { "done" } else { "the client went away" };
    say(&format!("{peer}: {} of {}: {end}\n", op_name(job.op), bytes(job.size.into())));
}

/// Counters that have counted anything, as a JSON object.
fn nonzero(counters: &[(String, u64)]) -> serde_json::Map<String, serde_json::Value> {
    let counted = counters.iter().filter(|(_, n)| *n > 0);
    counted.map(|(name, n)| (name.clone(), (*n).into())).collect()
}
