//! `spanwire copy receive` and `send`: files and directories from one host to another, by
//! [`spanwire_copy`].

mod args;
pub mod report;

pub use args::CopyArgs;

use crate::exit::{Exit, usage};
use crate::interface;
use crate::output::print_error;
use crate::report::{LiveLine, print_peer_error, print_text};
use crate::signals::Interrupt;
use args::{CommonArgs, CopyCommand, CopyNetwork, ReceiveArgs, SendArgs};
use report::{CopyReport, RateMeter};
use spanwire_copy::dest::DestDir;
use spanwire_copy::session::{End, Session};
use spanwire_copy::{connection, receive, send, walk};
use spanwire_host::fabric::Error;
use spanwire_host::unsent::explained;
use spanwire_stream::{About, Connection, Listener};
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs the subcommand.
///
/// # Errors
/// The run fails; the message names the cause, the place and a remedy.
pub fn run(args: &CopyArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    match &args.command {
        CopyCommand::Receive(args) => receive_all(args, interrupt),
        CopyCommand::Send(args) => send_all(args, interrupt),
    }
}

fn send_all(args: &SendArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    let common = &args.common;
    let roots = walk::Root::all(&args.paths).map_err(usage)?;
    // Count before connecting: a large tree takes long, and the receiver would be blocked.
    let totals = walk::Totals::of(&roots, || interrupt.is_set());
    if interrupt.is_set() {
        return Err("interrupted".into());
    }
    let (copy_network, connection, address) = args.reach_receiver()?;
    let About { qpn, agreed, .. } = connection.about();
    let mut qpns = vec![qpn];
    let connect = |index| {
        let further = copy_network.network.connect(address, &args.options(index))?;
        qpns.push(further.about().qpn);
        Ok(further)
    };
    let session = Session::new(common.json);
    let mut view = View::new(common);
    let started = Instant::now();
    let connections = common.port.workers.count();
    let plan = send::Plan { roots, totals, verify_disk: common.verify_disk, connections };
    let sent = send::send(connection, plan, &session, connect, |session| {
        if interrupt.is_set() {
            session.end(End::Interrupted);
        }
        view.update(session);
    });
    let took = started.elapsed();
    view.clear();
    let (counters, paths) = (copy_network.network.counters(), copy_network.paths(&agreed, &qpns));
    let congestion = copy_network.congestion(qpn);
    // Send the end of the connection before the process exits.
    let _ = copy_network.network.shutdown(SHUTDOWN_TIMEOUT);
    match sent {
        Ok(()) => {}
        Err(_) if interrupt.is_set() => session.end(End::Interrupted),
        Err(why) => return Err(explained(why.to_string(), &counters).into()),
    }
    let mut report = CopyReport::of(&session, took, args.to.to_string(), &counters);
    (report.fabric, report.xdp_mode) = (Some(copy_network.fabric), copy_network.xdp_mode);
    report.mode = Some(agreed.mode().name());
    (report.paths, report.congestion) = (paths, congestion);
    report.verify_disk = common.verify_disk;
    report.exit = exit(&session, report.ok, interrupt);
    print_report(common, &report);
    Ok(report.exit)
}

fn receive_all(args: &ReceiveArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    let root = DestDir::open(&args.into).map_err(usage)?;
    let dev = interface::only_usable(args.dev.as_deref())?;
    let copy_network = args.network(&dev)?;
    let code = accept_senders(args, interrupt, &dev, &copy_network, &root);
    // Send the end of the connection before the process exits.
    let _ = copy_network.network.shutdown(SHUTDOWN_TIMEOUT);
    code
}

/// Accepts senders, one after the other.
fn accept_senders(
    args: &ReceiveArgs,
    interrupt: &Interrupt,
    dev: &str,
    copy_network: &CopyNetwork,
    root: &Arc<DestDir>,
) -> Result<Exit, Error> {
    let common = &args.common;
    let listener = copy_network.network.listen(args.port, connection::options(common.mode));
    let listener = listener.map_err(|e| format!("TCP port {} of {dev}: {e}", args.port))?;
    if !common.json && !common.quiet {
        let mode = copy_network.xdp_mode.unwrap_or(copy_network.fabric.as_str());
        let (port, into) = (args.port, args.into.display());
        print_text(&format!("receiving on {dev} ({mode}), TCP port {port}, into {into}\n"));
    }
    while !interrupt.is_set() {
        let Some(connection) = listener.accept_timeout(ACCEPT_TIMEOUT)? else {
            continue;
        };
        let peer = connection.about().peer.ip();
        if args.from.is_some_and(|only| only != peer) {
            connection.abort("this receiver accepts another address only");
            continue;
        }
        let code = receive_one(args, interrupt, &listener, copy_network, connection, root);
        match code {
            Ok(code) if args.once || interrupt.is_set() => return Ok(code),
            Ok(_) => {}
            Err(why) if args.once || interrupt.is_set() => return Err(why),
            // An error of one sender must not end the receiver.
            Err(why) => print_peer_error(common.json, "peer", &peer.to_string(), &why),
        }
    }
    Ok(Exit::Success)
}

fn receive_one(
    args: &ReceiveArgs,
    interrupt: &Interrupt,
    listener: &Listener<Connection>,
    copy_network: &CopyNetwork,
    connection: Connection,
    root: &Arc<DestDir>,
) -> Result<Exit, Error> {
    let common = &args.common;
    let session = Session::new(common.json);
    let mut view = View::new(common);
    let About { qpn, peer, agreed, .. } = connection.about();
    let peer = peer.ip();
    let before = copy_network.network.counters();
    let started = Instant::now();
    let arrivals = || listener.try_accept().ok().flatten();
    let received =
        receive::receive(connection, root, args.grant(), &session, arrivals, |session| {
            if interrupt.is_set() {
                session.end(End::Interrupted);
            }
            view.update(session);
        });
    let took = started.elapsed();
    view.clear();
    received?;
    let counters = since(&before, copy_network.network.counters());
    let mut report = CopyReport::of(&session, took, peer.to_string(), &counters);
    (report.fabric, report.xdp_mode) = (Some(copy_network.fabric), copy_network.xdp_mode);
    report.mode = Some(agreed.mode().name());
    report.paths = copy_network.paths(&agreed, &[qpn]);
    report.verify_disk = common.verify_disk;
    report.exit = exit(&session, report.ok, interrupt);
    print_report(common, &report);
    Ok(report.exit)
}

/// Increments of the counters since `before`.
fn since(before: &[(String, u64)], now: Vec<(String, u64)>) -> Vec<(String, u64)> {
    let then = |name: &str| before.iter().find(|(n, _)| n == name).map_or(0, |(_, count)| *count);
    let more = |(name, count): (String, u64)| {
        let more = count.saturating_sub(then(&name));
        (name, more)
    };
    now.into_iter().map(more).collect()
}

/// Progress output: on a terminal a line rewritten in place, else a new line at intervals.
struct View {
    live: LiveLine,
    speed: RateMeter,
    /// Interval of updates; `None` without output.
    every: Option<Duration>,
    shown: Instant,
    on_terminal: bool,
}

impl View {
    fn new(common: &CommonArgs) -> Self {
        let wanted = !common.json && !common.quiet;
        let on_terminal = std::io::stderr().is_terminal();
        let every = if on_terminal { TERMINAL_INTERVAL } else { LOG_INTERVAL };
        Self {
            live: LiveLine::new(wanted),
            speed: RateMeter::new(),
            every: wanted.then_some(every),
            shown: Instant::now(),
            on_terminal,
        }
    }

    fn update(&mut self, session: &Session) {
        let now = Instant::now();
        let Some(every) = self.every else {
            return;
        };
        if now.saturating_duration_since(self.shown) < every {
            return;
        }
        self.shown = now;
        let line = self.speed.line(now, session);
        if self.on_terminal {
            self.live.show(&line);
        } else {
            // A closed stderr has no reader for an error message.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

    fn clear(&mut self) {
        self.live.clear();
    }
}

fn print_report(common: &CommonArgs, report: &CopyReport) {
    if common.json {
        // A report is strings and numbers, which always have a JSON form.
        print_text(&format!("{}\n", serde_json::to_string(report).unwrap_or_default()));
    } else if !common.quiet {
        print_text(&report.text());
    }
    if let Some(why) = &report.error {
        let advice =
            if report.resumable { "; the same command again goes on from here" } else { "" };
        print_error(&format!("error: {why}{advice}"));
    }
}

fn exit(session: &Session, ok: bool, interrupt: &Interrupt) -> Exit {
    match session.outcome() {
        Some(End::Interrupted) => interrupt.exit(),
        _ if ok => Exit::Success,
        Some(End::PeerGone(_) | End::Stalled(_)) => Exit::PeerUnreachable,
        Some(End::Failed(_)) | None => Exit::Failure,
        // Completed files are correct, but the transfer is incomplete.
        Some(End::Complete | End::PeerAborted(_) | End::Protocol(_)) => Exit::TransferWrong,
    }
}

/// Limit of one wait for a sender: after it the receiver checks for a signal.
const ACCEPT_TIMEOUT: Duration = Duration::from_millis(50);

/// Time limit for sending the end of a connection.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Interval of progress updates on a terminal.
const TERMINAL_INTERVAL: Duration = Duration::from_millis(200);

/// Interval of progress lines elsewhere, such as in a log.
const LOG_INTERVAL: Duration = Duration::from_secs(5);
