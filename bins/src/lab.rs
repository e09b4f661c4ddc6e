//! `spanwire lab`: two hosts on one machine that stay until they are taken down.
//!
//! A lab named `sw` is the two network namespaces `sw-a` and `sw-b` and a veth pair between them,
//! the device `sw0` in both. `ip netns` sees them too. Nothing leads from a lab to the machine's
//! own network.

mod args;
mod error;
mod status;

pub use args::{ExecArgs, HostName, LabArgs, LabCommand, NameArgs, UpArgs};
pub use error::LabError;
pub use status::{HostStatus, LabStatus, LinkStatus};

use serde::Serialize;
use spanwire_io::net::{
    Host, LabConfig, NetError, NetErrorKind, NetNs, Netlink, TwoHosts, format_mac,
};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

/// Does what the arguments say and prints the answer on stdout.
///
/// # Returns
/// Success, or for `status` of a lab that is not up, failure. `exec` does not return if it works:
/// the process becomes the command, so that signals and the exit code are the command's own.
///
/// # Errors
/// See [`LabError`]; [`LabError::exit_code`] is what the process should end with.
pub fn run(args: &LabArgs) -> Result<ExitCode, LabError> {
    match &args.command {
        LabCommand::Up(args) => {
            let report = up(args)?;
            print(args.lab.json, &report, UpReport::to_text)?;
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Down(args) => {
            let report = down(&args.name)?;
            print(args.json, &report, DownReport::to_text)?;
            Ok(ExitCode::SUCCESS)
        }
        LabCommand::Exec(args) => exec(args),
        LabCommand::Status(args) => {
            check_name(&args.name)?;
            let report = LabStatus::read(&args.name)?;
            print(args.json, &report, LabStatus::to_text)?;
            Ok(if report.up { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

/// What `up` has made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UpReport {
    /// The lab's name.
    pub name: String,
    /// The MTU of both ends in bytes.
    pub mtu: u32,
    /// Hosts a and b.
    pub hosts: [UpHost; 2],
}

/// One host that `up` has made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UpHost {
    /// Its namespace, as in `ip netns exec NAMESPACE`.
    pub namespace: String,
    /// Its network device.
    pub device: String,
    /// The device's Ethernet address.
    pub mac: String,
    /// Its IPv4 address.
    pub v4: std::net::Ipv4Addr,
    /// Its IPv6 address.
    pub v6: std::net::Ipv6Addr,
}

/// What `down` has removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DownReport {
    /// The lab's name.
    pub name: String,
    /// The namespaces that were there and are removed now.
    pub removed: Vec<String>,
    /// Processes that still run in them, without network; the namespaces vanish with them.
    pub processes: Vec<u32>,
}

/// Makes a lab. Either all of it is there afterwards, or nothing that was not there before.
///
/// # Errors
/// The lab is up, wholly or partly; not permitted; a bad name, MTU or prefix.
pub fn up(args: &UpArgs) -> Result<UpReport, LabError> {
    let name = args.lab.name.as_str();
    check_name(name)?;
    let refused = |source: NetError| match source.kind() {
        NetErrorKind::AlreadyExists => LabError::AlreadyUp { lab: name.to_owned() },
        _ => LabError::Net { doing: format!("bring the lab {name} up"), source },
    };
    let config = LabConfig {
        ifname: DEVICE.to_owned(),
        mtu: args.mtu,
        v4: args.prefix,
        v6: args.prefix6,
        queues: args.queues,
        pfifo: (args.queue_limit > 0).then_some(args.queue_limit),
    };
    let [name_a, name_b] = namespaces(name);
    let a = Making::new(&name_a).map_err(refused)?;
    let b = Making::new(&name_b).map_err(refused)?;
    let hosts = TwoHosts::join(a.handle()?, b.handle()?, &config).map_err(refused)?;
    for host in [&hosts.a, &hosts.b] {
        Netlink::open_in(&host.ns)
            .and_then(|mut netlink| netlink.set_alias(DEVICE, &mark(name)))
            .map_err(refused)?;
    }
    a.keep();
    b.keep();
    Ok(UpReport {
        name: name.to_owned(),
        mtu: args.mtu,
        hosts: [up_host(name_a, &hosts.a), up_host(name_b, &hosts.b)],
    })
}

/// Removes a lab, also one that is only partly there; one that is not there is no error.
///
/// # Errors
/// A namespace of that name holds what no lab made, and is left alone; not permitted.
pub fn down(name: &str) -> Result<DownReport, LabError> {
    check_name(name)?;
    let refused = |source| LabError::Net { doing: format!("take the lab {name} down"), source };
    // First look at both, then remove: what is not ours stops everything.
    let mut found = Vec::new();
    for namespace in namespaces(name) {
        match NetNs::open_named(&namespace) {
            Ok(ns) => {
                let has_device = check_ours(&ns, name, &namespace)?;
                found.push((namespace, Some((ns, has_device))));
            }
            Err(e) if e.kind() == NetErrorKind::NotFound => {}
            // The file of a namespace that was never mounted.
            Err(e) if e.kind() == NetErrorKind::Invalid => found.push((namespace, None)),
            Err(e) => return Err(refused(e)),
        }
    }
    let mut report =
        DownReport { name: name.to_owned(), removed: Vec::new(), processes: Vec::new() };
    for (namespace, ns) in found {
        if let Some((ns, has_device)) = &ns {
            report.processes.extend(status::processes_in(ns)?);
            if *has_device {
                delete_device(ns).map_err(refused)?;
            }
        }
        NetNs::delete_named(&namespace).map_err(refused)?;
        report.removed.push(namespace);
    }
    Ok(report)
}

/// Becomes a command on one of the hosts; returns only if that fails.
///
/// # Errors
/// The lab is not up, the program does not exist or cannot be run, or not permitted.
pub fn exec(args: &ExecArgs) -> Result<ExitCode, LabError> {
    check_name(&args.name)?;
    let [a, b] = namespaces(&args.name);
    let namespace = match args.host {
        HostName::A => a,
        HostName::B => b,
    };
    let (program, arguments) = args.command.split_first().ok_or(LabError::NoCommand)?;
    let refused = |source: NetError| match source.kind() {
        NetErrorKind::NotFound => LabError::NotUp { lab: args.name.clone() },
        _ => LabError::Net { doing: format!("run a command in {namespace}"), source },
    };
    let ns = NetNs::open_named(&namespace).map_err(refused)?;
    let source = ns.command(program).map_err(refused)?.args(arguments).exec();
    Err(LabError::Exec { program: program.to_string_lossy().into_owned(), namespace, source })
}

impl UpReport {
    fn to_text(&self) -> String {
        let lab = match self.name.as_str() {
            DEFAULT_NAME => String::new(),
            name => format!(" --name {name}"),
        };
        let [a, b] = &self.hosts;
        let mut text = format!("lab {} is up, MTU {}\n", self.name, self.mtu);
        for (letter, host) in [("a", a), ("b", b)] {
            let UpHost { namespace, device, mac, v4, v6 } = host;
            let _ = writeln!(text, "  {letter}  namespace {namespace}  {device} {mac}  {v4}  {v6}");
        }
        let device = &a.device;
        let _ = write!(
            text,
            "\nRun something on both, each in a terminal of its own:\n\
             \x20 spanwire lab exec{lab} a -- spanwire perf server --dev {device}\n\
             \x20 spanwire lab exec{lab} b -- spanwire perf client --dev {device} {}\n\
             Look at it, and remove it:\n\
             \x20 spanwire lab status{lab}\n\
             \x20 spanwire lab down{lab}\n",
            a.v4
        );
        text
    }
}

impl DownReport {
    fn to_text(&self) -> String {
        if self.removed.is_empty() {
            return format!("lab {} was not up\n", self.name);
        }
        let mut text = format!("removed {}\n", self.removed.join(" and "));
        if !self.processes.is_empty() {
            let _ = writeln!(
                text,
                "still running in it, without network: pid {}",
                status::join(&self.processes, ", ")
            );
        }
        text
    }
}

/// A named namespace that is removed again unless the lab got complete.
#[derive(Debug)]
struct Making {
    name: String,
    keep: bool,
}

impl Making {
    fn new(name: &str) -> Result<Self, NetError> {
        NetNs::create_named(name)?;
        Ok(Self { name: name.to_owned(), keep: false })
    }

    fn handle(&self) -> Result<NetNs, LabError> {
        NetNs::open_named(&self.name).map_err(|source| LabError::Net {
            doing: format!("use the namespace {} just made", self.name),
            source,
        })
    }

    fn keep(mut self) {
        self.keep = true;
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if !self.keep {
            // The error that led here is the one to report.
            let _ = NetNs::delete_named(&self.name);
        }
    }
}

/// True if the lab's device is there, false if the namespace is empty; an error if it holds
/// anything else.
fn check_ours(ns: &NetNs, lab: &str, namespace: &str) -> Result<bool, LabError> {
    let links = Netlink::open_in(ns).and_then(|mut netlink| netlink.links()).map_err(|source| {
        LabError::Net { doing: format!("look at the namespace {namespace}"), source }
    })?;
    let mut has_device = false;
    for link in links {
        // A half made lab has an unmarked device; only a lab has a veth of that name.
        let half_made = link.alias.is_none() && link.kind.as_deref() == Some("veth");
        let automatic = |kind| AUTOMATIC_KINDS.contains(&kind);
        let marked = link.alias.as_deref() == Some(mark(lab).as_str());
        if link.name == DEVICE && (marked || half_made) {
            has_device = true;
        } else if !link.loopback && !link.kind.as_deref().is_some_and(automatic) {
            return Err(LabError::NotOurs { namespace: namespace.to_owned(), device: link.name });
        }
    }
    Ok(has_device)
}

/// Deletes the cable; the first end takes the other along, which is then gone already.
fn delete_device(ns: &NetNs) -> Result<(), NetError> {
    match Netlink::open_in(ns)?.delete_link(DEVICE) {
        Err(e) if e.kind() != NetErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn up_host(namespace: String, host: &Host) -> UpHost {
    UpHost {
        namespace,
        device: host.ifname.clone(),
        mac: format_mac(&host.mac),
        v4: host.v4,
        v6: host.v6,
    }
}

/// The namespaces of a lab: hosts a and b.
fn namespaces(lab: &str) -> [String; 2] {
    [format!("{lab}-a"), format!("{lab}-b")]
}

/// The text on a device by which `down` knows it again.
fn mark(lab: &str) -> String {
    format!("spanwire lab {lab}")
}

fn check_name(name: &str) -> Result<(), LabError> {
    let clean = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=NAME_MAX).contains(&name.len()) && name.chars().all(clean) && !name.starts_with('-') {
        return Ok(());
    }
    Err(LabError::BadName { lab: name.to_owned() })
}

/// Prints a report as JSON or as text. A reader that has gone away is no error.
fn print<T: Serialize>(json: bool, report: &T, text: fn(&T) -> String) -> Result<(), LabError> {
    let text = if json {
        let mut text = serde_json::to_string_pretty(report)
            .map_err(|e| LabError::Print(io::Error::other(e)))?;
        text.push('\n');
        text
    } else {
        text(report)
    };
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(LabError::Print(e)),
        _ => Ok(()),
    }
}

/// The device of a lab, in both namespaces.
const DEVICE: &str = "sw0";

/// The lab that is meant if none is named.
const DEFAULT_NAME: &str = "sw";

/// The longest name of a lab in bytes: it is part of file names and of the device's mark.
const NAME_MAX: usize = 32;

/// Devices that the kernel itself puts into every new namespace when their modules are loaded.
const AUTOMATIC_KINDS: [&str; 9] =
    ["sit", "gre", "gretap", "erspan", "ipip", "ip6tnl", "ip6gre", "vti", "vti6"];

#[cfg(test)]
mod tests;
