//! What `up` and `down` have done, in lines for people and as JSON.

use super::{DEFAULT_NAME, status};
use serde::Serialize;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

/// What `up` has made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UpReport {
    /// The lab's name.
    pub name: String,
    /// The MTU of every end in bytes.
    pub mtu: u32,
    /// The hosts: a and b, or one for each port of the switch.
    pub hosts: Vec<UpHost>,
    /// The switch between them; null when there is a cable.
    pub switch: Option<UpSwitch>,
}

/// One host that `up` has made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UpHost {
    /// Its name in the lab, as in `spanwire lab exec HOST`.
    pub host: String,
    /// Its namespace, as in `ip netns exec NAMESPACE`.
    pub namespace: String,
    /// Its network device.
    pub device: String,
    /// The device's Ethernet address.
    pub mac: String,
    /// Its IPv4 address.
    pub v4: Ipv4Addr,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
}

/// The switch that `up` has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UpSwitch {
    /// Its namespace, with a device for each port.
    pub namespace: String,
    /// Its process.
    pub pid: u32,
    /// Where `spanwire switch ctl` reaches it.
    pub socket: PathBuf,
    /// What it prints.
    pub log: PathBuf,
}

/// What `down` has removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DownReport {
    /// The lab's name.
    pub name: String,
    /// The namespaces that were there and are removed now.
    pub removed: Vec<String>,
    /// The process of the switch, which was running and has been ended.
    pub ended: Option<u32>,
    /// Processes that still run in them, without network; the namespaces vanish with them.
    pub processes: Vec<u32>,
}

impl UpReport {
    pub(super) fn to_text(&self) -> String {
        let lab = match self.name.as_str() {
            DEFAULT_NAME => String::new(),
            name => format!(" --name {name}"),
        };
        let mut text = format!("lab {} is up, MTU {}\n", self.name, self.mtu);
        let width = self.hosts.iter().map(|host| host.host.len()).max().unwrap_or(0);
        for host in &self.hosts {
            let UpHost { host, namespace, device, mac, v4, v6 } = host;
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "  {host:<width$}  namespace {namespace}  {device} {mac}  {v4}  {v6}"
            );
        }
        if let Some(UpSwitch { namespace, pid, log, .. }) = &self.switch {
            let log = log.display();
            let _ = writeln!(text, "  switch in namespace {namespace}, pid {pid}, log {log}");
        }
        if let [a, b, ..] = self.hosts.as_slice() {
            let (device, v4) = (&a.device, a.v4);
            let _ = write!(
                text,
                "\nRun something on two hosts, each in a terminal of its own:\n\
                 \x20 spanwire lab exec{lab} {} -- spanwire perf server --dev {device}\n\
                 \x20 spanwire lab exec{lab} {} -- spanwire perf client --dev {device} {v4}\n",
                a.host, b.host
            );
        }
        if let Some(switch) = &self.switch {
            let _ = write!(
                text,
                "Look into the switch, and change it:\n\
                 \x20 spanwire switch ctl --socket {socket} show\n\
                 \x20 spanwire switch ctl --socket {socket} set port.{port}.delay=10ms\n",
                socket = switch.socket.display(),
                port = self.hosts.first().map_or("a", |host| &host.host),
            );
        }
        let _ = write!(
            text,
            "Look at it, and remove it:\n\
             \x20 spanwire lab status{lab}\n\
             \x20 spanwire lab down{lab}\n"
        );
        text
    }
}

impl DownReport {
    pub(super) fn to_text(&self) -> String {
        if self.removed.is_empty() {
            return format!("lab {} was not up\n", self.name);
        }
        let mut text = format!("removed {}\n", self.removed.join(" and "));
        if let Some(pid) = self.ended {
            let _ = writeln!(text, "ended the switch, pid {pid}");
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_text__a_switch_comes_with_its_commands() {
        let host = |name: &str, n: u16| UpHost {
            host: name.to_owned(),
            namespace: format!("sw-{name}"),
            device: "sw0".to_owned(),
            mac: "02:00:00:00:00:01".to_owned(),
            v4: Ipv4Addr::new(10, 77, 0, 1),
            v6: Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, n),
        };
        let report = UpReport {
            name: "sw".to_owned(),
            mtu: 1500,
            hosts: vec![host("left", 1), host("right", 2)],
            switch: Some(UpSwitch {
                namespace: "sw-switch".to_owned(),
                pid: 77,
                socket: "/run/x.sock".into(),
                log: "/run/x.log".into(),
            }),
        };
        let text = report.to_text();
        for line in [
            "  switch in namespace sw-switch, pid 77, log /run/x.log\n",
            "  spanwire lab exec right -- spanwire perf client --dev sw0 10.77.0.1\n",
            "  spanwire switch ctl --socket /run/x.sock set port.left.delay=10ms\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn to_text__down_says_what_was_ended() {
        let mut report = DownReport {
            name: "sw".to_owned(),
            removed: Vec::new(),
            ended: None,
            processes: Vec::new(),
        };
        assert_eq!(report.to_text(), "lab sw was not up\n");
        report.removed = vec!["sw-a".to_owned(), "sw-switch".to_owned()];
        report.ended = Some(77);
        assert_eq!(report.to_text(), "removed sw-a and sw-switch\nended the switch, pid 77\n");
    }
}
