//! `spanwire copy receive` and `send`: files and directories from one host to another.
//!
//! The bytes go by RDMA WRITE with immediate into a ring at the receiver; everything else is said
//! over a TCP connection beside it, [`message`] by message. Both ends hash what they read and
//! write; a file has its final name only when it is whole, right and on disk, and what arrived of
//! one is not sent again. Why it is built this way stands in docs/decisions/0013-copy.md.
//!
//! Each end has three threads, so that the engine never waits for a disk:
//!
//! | | engine | files | conversation |
//! |---|---|---|---|
//! | sender | [`outbound`] | [`source`] | [`send`], fed by [`walk`] |
//! | receiver | [`inbound`] | [`sink`], into [`partial`] | [`receive`], with [`dest`] |

mod args;
pub mod chunk;
pub mod control;
pub mod dest;
pub mod inbound;
pub mod lane;
pub mod message;
pub mod outbound;
pub mod partial;
pub mod receive;
pub mod report;
pub mod send;
pub mod session;
pub mod sink;
pub mod source;
#[cfg(test)]
mod testing;
pub mod walk;

pub use args::{CopyArgs, DEFAULT_PORT};

use crate::fabric::Error;
use crate::interface;
use crate::oob::listen;
use crate::report::{LiveLine, say};
use crate::signals::Interrupt;
use args::{CommonArgs, CopyCommand, ReceiveArgs, SendArgs};
use dest::DestDir;
use lane::Worker;
use message::Message;
use report::{CopyReport, Speedometer};
use session::{End, Session};
use std::io::{ErrorKind, IsTerminal, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Runs the subcommand.
///
/// # Errors
/// It could not run; the message says what is wrong, where, and what to do.
pub fn run(args: &CopyArgs, interrupt: &Interrupt) -> Result<ExitCode, Error> {
    match &args.command {
        CopyCommand::Receive(args) => receive_all(args, interrupt),
        CopyCommand::Send(args) => send_all(args, interrupt),
    }
}

fn send_all(args: &SendArgs, interrupt: &Interrupt) -> Result<ExitCode, Error> {
    let common = &args.common;
    let roots = walk::Root::all(&args.paths)?;
    // Before the receiver is called: a large tree takes its time.
    let totals = walk::Totals::of(&roots, || interrupt.is_set());
    if interrupt.is_set() {
        return Ok(ExitCode::from(130));
    }
    let (stream, dev) = args.reach_receiver()?;
    let mut worker = common.worker(&dev)?;
    let session = Session::new(common.json);
    let mut view = View::new(common);
    let started = Instant::now();
    let sent = send::send(&mut worker, stream, roots, totals, &session, |session| {
        if interrupt.is_set() {
            session.end(End::Interrupted);
        }
        view.look(session);
    });
    view.clear();
    let counters = match sent {
        Ok(counters) => counters,
        Err(_) if interrupt.is_set() => {
            session.end(End::Interrupted);
            Vec::new()
        }
        Err(why) => return Err(why),
    };
    let mut report = CopyReport::of(&session, started.elapsed(), args.to.clone(), &counters);
    report.xdp_mode = worker.attachment.xdp_mode;
    tell(common, &report);
    Ok(exit_code(&report, &session))
}

fn receive_all(args: &ReceiveArgs, interrupt: &Interrupt) -> Result<ExitCode, Error> {
    let common = &args.common;
    let root = DestDir::open(&args.into)?;
    let dev = interface::sole(args.dev.as_deref())?;
    let mut worker = common.worker(&dev)?;
    let port = args.port;
    let listener = listen(&dev, port)
        .map_err(|e| format!("cannot listen on TCP port {port} of {dev}: {e}"))?;
    if !common.json && !common.quiet {
        let mode = worker.attachment.xdp_mode.unwrap_or("-");
        let into = args.into.display();
        say(&format!("receiving on {dev} ({mode}), TCP port {port}, into {into}\n"));
    }
    while !interrupt.is_set() {
        let Some((stream, from)) = accept(&listener)? else {
            std::thread::sleep(ACCEPT_EVERY);
            continue;
        };
        let peer = from.ip().to_canonical();
        if args.from.is_some_and(|only| only != peer) {
            turn_away(stream, "this receiver takes from another address only");
            continue;
        }
        let code = receive_one(args, interrupt, &listener, &mut worker, stream, peer, &root);
        match code {
            Ok(code) if args.once || interrupt.is_set() => return Ok(code),
            Ok(_) => {}
            Err(_) if interrupt.is_set() => return Ok(ExitCode::from(130)),
            Err(why) if args.once => return Err(why),
            // The next sender must not suffer from this one.
            Err(why) => eprintln!("{peer}: {why}"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn receive_one(
    args: &ReceiveArgs,
    interrupt: &Interrupt,
    listener: &TcpListener,
    worker: &mut Worker,
    stream: TcpStream,
    peer: IpAddr,
    root: &std::sync::Arc<DestDir>,
) -> Result<ExitCode, Error> {
    let common = &args.common;
    let session = Session::new(common.json);
    let mut view = View::new(common);
    let started = Instant::now();
    let received = receive::receive(worker, stream, root, args.overwrite, &session, |session| {
        if interrupt.is_set() {
            session.end(End::Interrupted);
        }
        if let Ok(Some((other, _))) = accept(listener) {
            turn_away(other, "busy with another sender; try again later");
        }
        view.look(session);
    });
    view.clear();
    let counters = received?;
    let mut report = CopyReport::of(&session, started.elapsed(), peer.to_string(), &counters);
    report.xdp_mode = worker.attachment.xdp_mode;
    tell(common, &report);
    Ok(exit_code(&report, &session))
}

/// The next sender, if one waits.
fn accept(listener: &TcpListener) -> Result<Option<(TcpStream, SocketAddr)>, Error> {
    match listener.accept() {
        Ok(accepted) => Ok(Some(accepted)),
        Err(e)
            if matches!(
                e.kind(),
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
            ) =>
        {
            Ok(None)
        }
        Err(e) => Err(e.into()),
    }
}

fn turn_away(stream: TcpStream, reason: &str) {
    if let Ok((_, speaking)) = control::split(stream) {
        speaking.send_last(&Message::Reject { reason: reason.to_owned() });
    }
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

fn exit_code(report: &CopyReport, session: &Session) -> ExitCode {
    match (report.ok, session.outcome()) {
        (_, Some(End::Interrupted)) => ExitCode::from(130),
        (true, _) => ExitCode::SUCCESS,
        (false, _) => ExitCode::FAILURE,
    }
}

/// How soon a waiting receiver sees a sender, or that it should stop.
const ACCEPT_EVERY: Duration = Duration::from_millis(20);

const LINE_EVERY: Duration = Duration::from_millis(200);

/// Where nobody watches, as in a log.
const PLAIN_LINE_EVERY: Duration = Duration::from_secs(5);
