//! `spanwire copy receive` and `send`: files and directories from one host to another, by
//! [`spanwire_copy`].

mod args;
pub mod report;

pub use args::CopyArgs;

use crate::exit::{Exit, usage};
use crate::interface;
use crate::report::{LiveLine, say};
use crate::signals::Interrupt;
use args::{CommonArgs, CopyCommand, CopyNetwork, ReceiveArgs, SendArgs};
use report::{CopyReport, Speedometer};
use spanwire_copy::dest::DestDir;
use spanwire_copy::session::{End, Session};
use spanwire_copy::{connection, receive, send, walk};
use spanwire_host::fabric::Error;
use spanwire_stream::{About, Connection, Listener};
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs the subcommand.
///
/// # Errors
/// It could not run; the message says what is wrong, where, and what to do.
pub fn run(args: &CopyArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    match &args.command {
        CopyCommand::Receive(args) => receive_all(args, interrupt),
        CopyCommand::Send(args) => send_all(args, interrupt),
    }
}

fn send_all(args: &SendArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    let common = &args.common;
    let roots = walk::Root::all(&args.paths).map_err(usage)?;
    // Before the receiver is called: a large tree takes its time.
    let totals = walk::Totals::of(&roots, || interrupt.is_set());
    if interrupt.is_set() {
        return Ok(interrupt.exit());
    }
    let (at_work, connection) = args.reach_receiver()?;
    let agreed = connection.about().agreed;
    let session = Session::new(common.json);
    let mut view = View::new(common);
    let started = Instant::now();
    let sent = send::send(connection, roots, totals, &session, |session| {
        if interrupt.is_set() {
            session.end(End::Interrupted);
        }
        view.look(session);
    });
    let took = started.elapsed();
    view.clear();
    let (counters, paths) = (at_work.network.counters(), at_work.paths(&agreed));
    // The last word leaves before the process does.
    let _ = at_work.network.shutdown(LAST_WORD_WITHIN);
    match sent {
        Ok(()) => {}
        Err(_) if interrupt.is_set() => session.end(End::Interrupted),
        Err(why) => return Err(why),
    }
    let mut report = CopyReport::of(&session, took, args.to.clone(), &counters);
    (report.xdp_mode, report.mode) = (at_work.xdp_mode, Some(agreed.mode().name()));
    report.paths = paths;
    tell(common, &report);
    Ok(exit(&session, report.ok, interrupt))
}

fn receive_all(args: &ReceiveArgs, interrupt: &Interrupt) -> Result<Exit, Error> {
    let root = DestDir::open(&args.into).map_err(usage)?;
    let dev = interface::sole(args.dev.as_deref())?;
    let at_work = args.network(&dev)?;
    let code = take_senders(args, interrupt, &dev, &at_work, &root);
    // The last word leaves before the process does.
    let _ = at_work.network.shutdown(LAST_WORD_WITHIN);
    code
}

/// Takes one sender after the other.
fn take_senders(
    args: &ReceiveArgs,
    interrupt: &Interrupt,
    dev: &str,
    at_work: &CopyNetwork,
    root: &Arc<DestDir>,
) -> Result<Exit, Error> {
    let common = &args.common;
    let listener = at_work.network.listen(args.port, connection::options(common.mode));
    let listener = listener.map_err(|e| format!("TCP port {} of {dev}: {e}", args.port))?;
    if !common.json && !common.quiet {
        let mode = at_work.xdp_mode.unwrap_or("-");
        let (port, into) = (args.port, args.into.display());
        say(&format!("receiving on {dev} ({mode}), TCP port {port}, into {into}\n"));
    }
    while !interrupt.is_set() {
        let Some(connection) = listener.accept_timeout(ACCEPT_EVERY)? else {
            continue;
        };
        let peer = connection.about().peer.ip();
        if args.from.is_some_and(|only| only != peer) {
            connection.abort("this receiver takes from another address only");
            continue;
        }
        let code = receive_one(args, interrupt, &listener, at_work, connection, root);
        match code {
            Ok(code) if args.once || interrupt.is_set() => return Ok(code),
            Ok(_) => {}
            Err(_) if interrupt.is_set() => return Ok(interrupt.exit()),
            Err(why) if args.once => return Err(why),
            // The next sender must not suffer from this one.
            Err(why) => eprintln!("{peer}: {why}"),
        }
    }
    Ok(Exit::Success)
}

fn receive_one(
    args: &ReceiveArgs,
    interrupt: &Interrupt,
    listener: &Listener<Connection>,
    at_work: &CopyNetwork,
    connection: Connection,
    root: &Arc<DestDir>,
) -> Result<Exit, Error> {
    let common = &args.common;
    let session = Session::new(common.json);
    let mut view = View::new(common);
    let About { peer, agreed, .. } = connection.about();
    let peer = peer.ip();
    let before = at_work.network.counters();
    let started = Instant::now();
    let received = receive::receive(connection, root, args.grant(), &session, |session| {
        if interrupt.is_set() {
            session.end(End::Interrupted);
        }
        if let Ok(Some(other)) = listener.try_accept() {
            other.abort("busy with another sender; try again later");
        }
        view.look(session);
    });
    let took = started.elapsed();
    view.clear();
    received?;
    let counters = since(&before, at_work.network.counters());
    let mut report = CopyReport::of(&session, took, peer.to_string(), &counters);
    (report.xdp_mode, report.mode) = (at_work.xdp_mode, Some(agreed.mode().name()));
    report.paths = at_work.paths(&agreed);
    tell(common, &report);
    Ok(exit(&session, report.ok, interrupt))
}

/// What was counted since `before`.
fn since(before: &[(String, u64)], now: Vec<(String, u64)>) -> Vec<(String, u64)> {
    let then = |name: &str| before.iter().find(|(n, _)| n == name).map_or(0, |(_, count)| *count);
    let more = |(name, count): (String, u64)| {
        let more = count.saturating_sub(then(&name));
        (name, more)
    };
    now.into_iter().map(more).collect()
}

/// Progress while it runs: a line that is written over on a terminal, else a line now and then.
struct View {
    live: LiveLine,
    speed: Speedometer,
    /// How often a new line is written; `None` for never.
    every: Option<Duration>,
    shown: Instant,
    on_terminal: bool,
}

impl View {
    fn new(common: &CommonArgs) -> Self {
        let wanted = !common.json && !common.quiet;
        let on_terminal = std::io::stderr().is_terminal();
        let every = if on_terminal { LINE_EVERY } else { PLAIN_LINE_EVERY };
        Self {
            live: LiveLine::new(wanted),
            speed: Speedometer::new(),
            every: wanted.then_some(every),
            shown: Instant::now(),
            on_terminal,
        }
    }

    fn look(&mut self, session: &Session) {
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
            // Nobody is left to tell that nobody reads.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }

    fn clear(&mut self) {
        self.live.clear();
    }
}

fn tell(common: &CommonArgs, report: &CopyReport) {
    if common.json {
        // A report is strings and numbers, which always have a JSON form.
        say(&format!("{}\n", serde_json::to_string(report).unwrap_or_default()));
    } else if !common.quiet {
        say(&report.text());
    }
    if let Some(why) = &report.error {
        let advice =
            if report.resumable { "; the same command again goes on from here" } else { "" };
        eprintln!("error: {why}{advice}");
    }
}

fn exit(session: &Session, ok: bool, interrupt: &Interrupt) -> Exit {
    match session.outcome() {
        Some(End::Interrupted) => interrupt.exit(),
        _ if ok => Exit::Success,
        Some(End::PeerGone(_) | End::Stalled(_)) => Exit::PeerUnreachable,
        Some(End::Failed(_)) | None => Exit::Failure,
        // What is in place is right, but the transfer is incomplete.
        Some(End::Complete | End::PeerAborted(_) | End::Protocol(_)) => Exit::TransferWrong,
    }
}

/// How soon a waiting receiver sees that it should stop.
const ACCEPT_EVERY: Duration = Duration::from_millis(50);

/// How long the end of a connection may take to reach the other end.
const LAST_WORD_WITHIN: Duration = Duration::from_secs(1);

const LINE_EVERY: Duration = Duration::from_millis(200);

/// Where nobody watches, as in a log.
const PLAIN_LINE_EVERY: Duration = Duration::from_secs(5);
