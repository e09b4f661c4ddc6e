//! The reports of `spanwire lab` as text.

use spanwire_lab::{
    DEFAULT_NAME, DEVICE, DownReport, HostStatus, LabHost, LabStatus, LabSwitch, SwitchStatus,
    UpReport,
};
use std::fmt::{Display, Write as _};

/// The report of `up`, with the commands to use the lab.
pub(super) fn up(report: &UpReport) -> String {
    let lab = match report.name.as_str() {
        DEFAULT_NAME => String::new(),
        name => format!(" --name {name}"),
    };
    let mut text = format!("lab {} is up, MTU {}\n", report.name, report.mtu);
    let width = report.hosts.iter().map(|host| host.host.len()).max().unwrap_or(0);
    for host in &report.hosts {
        let LabHost { host, namespace, device, mac, v4, v6 } = host;
        // Writing to a String cannot fail.
        let _ =
            writeln!(text, "  {host:<width$}  namespace {namespace}  {device} {mac}  {v4}  {v6}");
    }
    if let Some(LabSwitch { namespace, pid, log, .. }) = &report.switch {
        let log = log.display();
        let _ = writeln!(text, "  switch in namespace {namespace}, pid {pid}, log {log}");
    }
    if let [a, b, ..] = report.hosts.as_slice() {
        let (device, v4) = (&a.device, a.v4);
        let _ = write!(
            text,
            "\nRun something on two hosts, each in a terminal of its own:\n\
             \x20 spanwire lab exec{lab} {} -- spanwire perf server --dev {device}\n\
             \x20 spanwire lab exec{lab} {} -- spanwire perf client --dev {device} {v4}\n",
            a.host, b.host
        );
    }
    if let Some(switch) = &report.switch {
        let _ = write!(
            text,
            "Look into the switch, and change it:\n\
             \x20 spanwire switch ctl --socket {socket} show\n\
             \x20 spanwire switch ctl --socket {socket} set port.{port}.delay=10ms\n",
            socket = switch.socket.display(),
            port = report.hosts.first().map_or("a", |host| &host.host),
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

/// The report of `down`.
pub(super) fn down(done: &DownReport) -> String {
    if done.removed.is_empty() {
        return format!("lab {} was not up\n", done.name);
    }
    let mut text = format!("removed {}\n", done.removed.join(" and "));
    if let Some(pid) = done.ended {
        let _ = writeln!(text, "ended the switch, pid {pid}");
    }
    if !done.processes.is_empty() {
        let _ = writeln!(
            text,
            "still running in it, without network: pid {}",
            join(&done.processes, ", ")
        );
    }
    text
}

/// The report of `status`.
pub(super) fn status(lab: &LabStatus) -> String {
    let state = if lab.up {
        "up"
    } else if lab.switch.is_some() || lab.hosts.iter().any(|host| host.present) {
        "incomplete"
    } else {
        "not up"
    };
    let mut text = format!("lab {} is {state}\n", lab.name);
    for host in &lab.hosts {
        write_host(&mut text, host);
    }
    if let Some(switch) = &lab.switch {
        write_switch(&mut text, switch);
    }
    text
}

fn write_host(text: &mut String, host: &HostStatus) {
    let namespace = &host.namespace;
    // Writing to a String cannot fail.
    let _ = match (&host.link, host.present) {
        (None, false) => writeln!(text, "  {namespace}: does not exist"),
        (None, true) => writeln!(text, "  {namespace}: exists, without {DEVICE}"),
        (Some(link), _) => writeln!(
            text,
            "  {namespace}: {} {} MTU {} {}, xdp {}, qdisc {}\n\
             \x20   addresses {}\n\
             \x20   received {} frames {} bytes {} dropped, \
             sent {} frames {} bytes {} dropped",
            link.device,
            link.mac.as_deref().unwrap_or("without MAC"),
            link.mtu,
            link.state,
            link.xdp.as_deref().unwrap_or("none"),
            link.qdisc.as_deref().unwrap_or("none"),
            link.addresses.join(" "),
            link.rx_packets,
            link.rx_bytes,
            link.rx_dropped,
            link.tx_packets,
            link.tx_bytes,
            link.tx_dropped,
        ),
    };
    if !host.processes.is_empty() {
        let _ = writeln!(text, "    processes {}", join(&host.processes, " "));
    }
}

fn write_switch(text: &mut String, switch: &SwitchStatus) {
    let process = match (switch.pid, switch.running) {
        (None, _) => "was never started".to_owned(),
        (Some(pid), true) => format!("runs as pid {pid}"),
        (Some(pid), false) => format!("has ended (it was pid {pid})"),
    };
    let (namespace, log, socket) =
        (&switch.namespace, switch.log.display(), switch.socket.display());
    // Writing to a String cannot fail.
    let _ =
        writeln!(text, "  {namespace}: the switch {process}\n    control {socket}\n    log {log}");
}

/// Joins items into one line.
fn join<T: Display>(items: &[T], between: &str) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    items.join(between)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn up__a_switch_comes_with_its_commands() {
        let host = |name: &str, n: u16| LabHost {
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
            switch: Some(LabSwitch {
                namespace: "sw-switch".to_owned(),
                pid: 77,
                socket: "/run/x.sock".into(),
                log: "/run/x.log".into(),
            }),
        };
        let text = up(&report);
        for line in [
            "  switch in namespace sw-switch, pid 77, log /run/x.log\n",
            "  spanwire lab exec right -- spanwire perf client --dev sw0 10.77.0.1\n",
            "  spanwire switch ctl --socket /run/x.sock set port.left.delay=10ms\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn down__reports_the_ended_switch() {
        let mut report = DownReport {
            name: "sw".to_owned(),
            removed: Vec::new(),
            ended: None,
            processes: Vec::new(),
        };
        assert_eq!(down(&report), "lab sw was not up\n");
        report.removed = vec!["sw-a".to_owned(), "sw-switch".to_owned()];
        report.ended = Some(77);
        report.processes = vec![78];
        let text = "removed sw-a and sw-switch\nended the switch, pid 77\n\
                    still running in it, without network: pid 78\n";
        assert_eq!(down(&report), text);
    }
}
