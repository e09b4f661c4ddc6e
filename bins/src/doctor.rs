//! `spanwire doctor`: checks of this machine and its interfaces, with a fix for each failure.
//!
//! The checks are those of [`spanwire_host::diagnosis`].

use crate::exit::Exit;
use crate::report::print_pretty;
use clap::Args;
use serde::Serialize;
use spanwire_host::diagnosis::{Check, HostFacts, InterfaceFacts, Status, worst};
use spanwire_host::fabric::{Error, interface as find};
use spanwire_host::text::{PRINTABLE_CHARS_MAX, printable_lines};
use spanwire_io::net::Netlink;
use std::fmt::Write as _;
use std::net::IpAddr;

/// The arguments of `spanwire doctor`.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct DoctorArgs {
    /// Network interface to check in detail [default: all, a line each]
    #[arg(long)]
    pub dev: Option<String>,
    /// Receive queue to serve
    #[arg(long, default_value_t = 0, requires = "dev")]
    pub queue: u32,
    /// Also check whether the interface reaches this address
    #[arg(long, value_name = "ADDR", requires = "dev")]
    pub peer: Option<IpAddr>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The JSON object that `spanwire doctor --json` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DoctorReport {
    /// No check of the machine failed, and none of the given interface, or of at least one.
    pub ok: bool,
    /// Checks of the machine and of this process.
    pub host: Vec<Check>,
    /// The interfaces checked.
    pub interfaces: Vec<InterfaceReport>,
}

/// The checks of one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InterfaceReport {
    /// Its name.
    pub dev: String,
    /// The worst status of its checks.
    pub status: Status,
    /// Its checks.
    pub checks: Vec<Check>,
}

/// Runs the checks and prints the report on stdout.
///
/// # Returns
/// 1 if a check fails (see [`DoctorReport::ok`]), else 0.
///
/// # Errors
/// The interface does not exist, `/proc` cannot be read, or a netlink request fails.
pub fn run(args: &DoctorArgs) -> Result<Exit, Error> {
    let report = DoctorReport::read(args)?;
    print_pretty(args.json, &report, |report| {
        let text = if args.dev.is_some() { report.to_text() } else { report.to_list() };
        // The name of an interface may have any character but spaces and slashes.
        printable_lines(&text, PRINTABLE_CHARS_MAX)
    })?;
    Ok(if report.ok { Exit::Success } else { Exit::Failure })
}

impl DoctorReport {
    fn read(args: &DoctorArgs) -> Result<Self, Error> {
        let host = HostFacts::read()?.checks();
        let links = match &args.dev {
            Some(dev) => vec![find(dev)?],
            None => Netlink::open()?.links()?,
        };
        let mut interfaces = Vec::with_capacity(links.len());
        for link in links.into_iter().filter(|link| args.dev.is_some() || !link.loopback) {
            let dev = link.name.clone();
            let checks = InterfaceFacts::read(link, args.queue, args.peer)?.checks();
            interfaces.push(InterfaceReport { dev, status: worst(&checks), checks });
        }
        Ok(Self::new(host, interfaces))
    }

    fn new(host: Vec<Check>, interfaces: Vec<InterfaceReport>) -> Self {
        let works = |interface: &InterfaceReport| interface.status != Status::Fail;
        let ok = worst(&host) != Status::Fail && interfaces.iter().any(works);
        Self { ok, host, interfaces }
    }

    /// All checks as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::from("this machine\n");
        // Writing to a String cannot fail.
        for check in &self.host {
            let _ = writeln!(text, "{check}");
        }
        for interface in &self.interfaces {
            let _ = writeln!(text, "{}", interface.dev);
            for check in &interface.checks {
                let _ = writeln!(text, "{check}");
            }
        }
        let checks = || self.interfaces.iter().flat_map(|i| &i.checks).chain(&self.host);
        let count = |status| checks().filter(|check| check.status == status).count();
        let verdict = match (count(Status::Fail), count(Status::Warn)) {
            (0, 0) => "Spanwire works here.".to_owned(),
            (0, warnings) => format!("Spanwire works here; {warnings} to improve."),
            (failures, _) => format!("Spanwire cannot work here: {failures} to fix."),
        };
        let _ = writeln!(text, "{verdict}");
        text
    }

    /// The failed checks of the machine, and a line for each interface, as text.
    #[must_use]
    pub fn to_list(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        for check in self.host.iter().filter(|check| check.status != Status::Ok) {
            let _ = writeln!(text, "{check}");
        }
        let width = self.interfaces.iter().map(|i| i.dev.len()).max().unwrap_or(0);
        for InterfaceReport { dev, status, checks } in &self.interfaces {
            let why = checks.iter().find(|c| c.status == *status && *status != Status::Ok);
            let why = why.map_or_else(
                || "ready".to_owned(),
                |check| format!("{}: {}", check.name, check.found),
            );
            let _ = writeln!(text, "  {status:<4}  {dev:<width$}  {why}");
        }
        if self.interfaces.is_empty() {
            text.push_str("  no interface but the loopback; `spanwire lab up` makes two hosts\n");
        } else {
            text.push_str("Details and fixes: spanwire doctor --dev NAME\n");
        }
        text
    }
}

const AFTER_HELP: &str = "\
Each check is ok, warn (works, but slower or not for all users) or FAIL (Spanwire cannot work), with
the state found and a command that fixes it. Nothing is attached, bound or changed.

Exit code: 1 if Spanwire cannot work on the interface (without --dev: on any), else 0.";

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(dev: &str, check: Check) -> InterfaceReport {
        InterfaceReport { dev: dev.to_owned(), status: check.status, checks: vec![check] }
    }

    #[test]
    fn new__one_interface_that_works_is_enough() {
        let bad = interface("eth0", Check::fail("link", "off", "on"));
        let good = interface("eth1", Check::warn("mtu", "large", "smaller"));
        assert!(!DoctorReport::new(vec![], vec![]).ok);
        assert!(!DoctorReport::new(vec![], vec![bad.clone()]).ok);
        assert!(DoctorReport::new(vec![], vec![bad, good.clone()]).ok);
        let host = vec![Check::fail("rights", "none", "setcap")];
        assert!(!DoctorReport::new(host, vec![good]).ok);
    }

    #[test]
    fn to_text__ends_with_the_verdict() {
        let verdict = |check: Check| {
            let report =
                DoctorReport::new(vec![Check::ok("cores", "2")], vec![interface("eth0", check)]);
            report.to_text().lines().last().map(str::to_owned)
        };
        let expected = |text: &str| Some(text.to_owned());
        assert_eq!(verdict(Check::ok("mtu", "")), expected("Spanwire works here."));
        let warn = Check::warn("mtu", "", "");
        assert_eq!(verdict(warn), expected("Spanwire works here; 1 to improve."));
        let fail = Check::fail("mtu", "", "");
        assert_eq!(verdict(fail), expected("Spanwire cannot work here: 1 to fix."));
    }

    #[test]
    fn to_list__has_a_line_per_interface_with_its_worst_check() {
        let report = DoctorReport::new(
            vec![Check::ok("cores", "2"), Check::fail("rights", "none", "setcap")],
            vec![
                interface("eth0", Check::fail("link", "switched off", "ip link")),
                interface("wlan12", Check::ok("link", "up")),
            ],
        );
        let text = report.to_list();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "  FAIL  rights    none");
        assert_eq!(lines[2], "  FAIL  eth0    link: switched off");
        assert_eq!(lines[3], "  ok    wlan12  ready");
        assert!(DoctorReport::new(vec![], vec![]).to_list().contains("lab up"));
    }
}
