//! A lab of hosts around a switch.
//!
//! Each port in the switch's configuration is a host. For the port `p` of lab `sw` it is the
//! namespace `sw-p`. A veth pair joins it to the namespace `sw-switch`, where `spanwire switch`
//! runs.

use crate::error::LabError;
use crate::names::{DEVICE, SWITCH, mark, namespace};
use crate::namespace::NewNamespace;
use crate::process::Process;
use crate::report::{LabHost, LabSwitch, UpReport};
use crate::spec::{ReadSwitch, Spec, SwitchSpec};
use crate::state::{State, StateDir};
use spanwire_host::control::is_answering;
use spanwire_host::file;
use spanwire_io::net::{
    Ethtool, IpPrefix, NetError, NetNs, Netlink, Offloads, VethEnd, VethSpec, format_mac,
};
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Creates the lab and starts its switch; the lab's name has been checked.
///
/// # Errors
/// As [`super::up`]; the switch's configuration is invalid, or the switch did not start.
pub(crate) fn up(spec: &Spec, read: ReadSwitch<'_>) -> Result<UpReport, LabError> {
    let name = spec.name.as_str();
    let switch = read().map_err(LabError::Switch)?;
    let plans = plan(spec, &switch)?;
    let dir = StateDir::of(name);
    dir.create(name)?;
    match make(spec, &dir, &switch, &plans) {
        Ok(report) => Ok(report),
        Err(error) => {
            // The original error is reported, not this one.
            let _ = dir.remove();
            Err(error)
        }
    }
}

/// The specification of a host.
#[derive(Debug)]
struct Plan {
    host: String,
    /// The switch's end of the cable.
    device: String,
    v4: (Ipv4Addr, IpPrefix),
    v6: (Ipv6Addr, IpPrefix),
    link_local: IpPrefix,
}

/// The hosts to create. It performs all checks that are independent of the machine's state.
fn plan(spec: &Spec, switch: &SwitchSpec) -> Result<Vec<Plan>, LabError> {
    let invalid = |why: String| Err(LabError::Switch(why));
    let mtu_max = switch.frame_room - ETHERNET_HEADER_BYTES;
    if !(MTU_MIN..=mtu_max).contains(&spec.mtu) {
        let mtu = spec.mtu;
        return invalid(format!("--mtu {mtu}: a switch carries {MTU_MIN} to {mtu_max} bytes"));
    }
    let mut plans = Vec::new();
    for (n, port) in (1..).zip(&switch.ports) {
        if port.name == SWITCH {
            return invalid(format!("port.{SWITCH}: the name is the switch's own; choose another"));
        }
        let (Some(v4), Some(v6)) = (v4(spec.prefix, n), v6(spec.prefix6, n)) else {
            let (v4, v6) = (spec.prefix, spec.prefix6);
            return invalid(format!("--prefix {v4} and --prefix6 {v6} have no host number {n}"));
        };
        let link_local = IpAddr::V6(Ipv6Addr::from_bits((0xfe80 << 112) | u128::from(n)));
        plans.push(Plan {
            host: port.name.clone(),
            device: port.device.clone(),
            v4,
            v6,
            link_local: IpPrefix::new(link_local, 64).expect("64 bits fit an IPv6 address"),
        });
    }
    Ok(plans)
}

fn v4(prefix: IpPrefix, n: u32) -> Option<(Ipv4Addr, IpPrefix)> {
    let prefix = prefix.host(n)?;
    match prefix.addr() {
        IpAddr::V4(addr) => Some((addr, prefix)),
        IpAddr::V6(_) => None,
    }
}

fn v6(prefix: IpPrefix, n: u32) -> Option<(Ipv6Addr, IpPrefix)> {
    let prefix = prefix.host(n)?;
    match prefix.addr() {
        IpAddr::V6(addr) => Some((addr, prefix)),
        IpAddr::V4(_) => None,
    }
}

fn make(
    spec: &Spec,
    dir: &StateDir,
    switch_spec: &SwitchSpec,
    plans: &[Plan],
) -> Result<UpReport, LabError> {
    let name = spec.name.as_str();
    let refused = |source: NetError| LabError::from_up(name, source);
    let mut state = State {
        hosts: plans.iter().map(|plan| plan.host.clone()).collect(),
        devices: plans.iter().map(|plan| plan.device.clone()).collect(),
        process: None,
    };
    dir.write(&state)?;
    fs::write(dir.config(), &switch_spec.config).map_err(|e| dir.failed("write", e))?;
    let switch = NewNamespace::new(&namespace(name, SWITCH)).map_err(refused)?;
    let switch_ns = switch.handle()?;
    let mut namespaces = Vec::new();
    let mut hosts = Vec::new();
    for plan in plans {
        let new_ns = NewNamespace::new(&namespace(name, &plan.host)).map_err(refused)?;
        let ns = new_ns.handle()?;
        plan.wire(spec, &ns, &switch_ns).map_err(refused)?;
        namespaces.push((new_ns, ns));
    }
    // A veth pair has a carrier only once both ends are up.
    for (plan, (new_ns, ns)) in plans.iter().zip(&namespaces) {
        hosts.push(plan.await_carrier(new_ns.name(), ns).map_err(refused)?);
    }
    let process = start(dir, &switch_spec.program, &switch_ns, |process| {
        state.process = Some(process);
        dir.write(&state)
    })?;
    namespaces.into_iter().for_each(|(new_ns, _)| new_ns.keep());
    let switch_name = switch.name().to_owned();
    switch.keep();
    Ok(UpReport {
        name: name.to_owned(),
        mtu: spec.mtu,
        hosts,
        switch: Some(LabSwitch {
            namespace: switch_name,
            pid: process.pid,
            socket: dir.socket(),
            log: dir.log(),
        }),
    })
}

impl Plan {
    /// Creates the veth pair and configures both ends.
    fn wire(&self, spec: &Spec, host: &NetNs, switch: &NetNs) -> Result<(), NetError> {
        VethSpec {
            a: VethEnd { ns: host, name: DEVICE },
            b: VethEnd { ns: switch, name: &self.device },
            mtu: spec.mtu,
            queues: 1,
        }
        .create()?;
        let mut at_host = Netlink::open_in(host)?;
        let mut at_switch = Netlink::open_in(switch)?;
        for (netlink, device) in [(&mut at_host, DEVICE), (&mut at_switch, &self.device)] {
            netlink.set_alias(device, &mark(&spec.name))?;
            // The host's addresses are added below; the switch has none.
            netlink.disable_ipv6_autoconf(device)?;
            netlink.set_up(device)?;
            if spec.queue_limit > 0 {
                netlink.set_pfifo(device, spec.queue_limit)?;
            }
        }
        // Disable checksum and segmentation offload. Nothing behind a veth computes them, and the
        // switch forwards frames unchanged, so the receiver would get invalid ones.
        Ethtool::open_in(host)?.set_offloads(DEVICE, &Offloads::OFF)?;
        for prefix in [self.v4.1, self.v6.1, self.link_local] {
            at_host.add_address(DEVICE, prefix)?;
        }
        Ok(())
    }

    /// Waits for the carrier and returns the host's device and addresses.
    fn await_carrier(&self, namespace: &str, ns: &NetNs) -> Result<LabHost, NetError> {
        let link = Netlink::open_in(ns)?.wait_running(DEVICE, CARRIER_TIMEOUT)?;
        Ok(LabHost {
            host: self.host.clone(),
            namespace: namespace.to_owned(),
            device: DEVICE.to_owned(),
            mac: link.mac.as_ref().map(format_mac).unwrap_or_default(),
            v4: self.v4.0,
            v6: self.v6.0,
        })
    }
}

/// Starts the switch in the background and waits until it forwards. `save` is called as soon
/// as its process exists.
fn start(
    dir: &StateDir,
    program: &Path,
    ns: &NetNs,
    save: impl FnOnce(Process) -> Result<(), LabError>,
) -> Result<Process, LabError> {
    let failed = |why: String| LabError::Switch(format!("the switch does not start: {why}"));
    let log = File::create(dir.log()).map_err(|e| dir.failed("write", e))?;
    let errors = log.try_clone().map_err(|e| dir.failed("write", e))?;
    let mut command = ns.command(program).map_err(|e| failed(e.to_string()))?;
    command
        .args(["switch", "--config"])
        .arg(dir.config())
        .arg("--socket")
        .arg(dir.socket())
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        // Ctrl-C at the terminal is for the foreground command, not for the switch.
        .process_group(0);
    let mut child = command.spawn().map_err(|e| failed(e.to_string()))?;
    let started = Process::of(child.id())
        .ok_or_else(|| failed(output(dir)))
        .and_then(|process| save(process).map(|()| process))
        .and_then(|process| await_switch(dir, &mut child).map_err(failed).map(|()| process));
    if started.is_err() {
        // The process has ended, or must not outlive a failed start.
        let _ = child.kill();
        let _ = child.wait();
    }
    started
}

fn await_switch(dir: &StateDir, child: &mut Child) -> Result<(), String> {
    let deadline = Instant::now() + SWITCH_START_TIMEOUT;
    while Instant::now() < deadline {
        if is_answering(&dir.socket()) {
            return Ok(());
        }
        if let Ok(Some(_)) = child.try_wait() {
            return Err(output(dir));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(format!(
        "no reply within {} s; its output: {}",
        SWITCH_START_TIMEOUT.as_secs(),
        output(dir)
    ))
}

/// The switch's output, on one line.
fn output(dir: &StateDir) -> String {
    let text = match file::read_text(&dir.log(), "logs that are shown", LOG_BYTES_MAX) {
        Ok(text) => text,
        Err(e) => return format!("{}: {e}", dir.log().display()),
    };
    let text = text.trim().trim_start_matches("error: ");
    if text.is_empty() { "it printed nothing".to_owned() } else { text.replace('\n', "; ") }
}

/// Ethernet header: destination, source and type.
const ETHERNET_HEADER_BYTES: u32 = 14;

/// The smallest MTU at which an interface has IPv6 (RFC 8200 5).
const MTU_MIN: u32 = 1280;

/// Time limit for the carrier after both ends are up.
const CARRIER_TIMEOUT: Duration = Duration::from_secs(5);

/// The most of a switch's output that an error shows.
const LOG_BYTES_MAX: u64 = 64 << 10;

/// Time limit for the switch to open its ports.
const SWITCH_START_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::SwitchPort;
    use std::path::PathBuf;

    fn spec() -> Spec {
        Spec {
            name: "sw".to_owned(),
            mtu: 1500,
            prefix: "10.9.0.0/30".parse().expect("a prefix"),
            prefix6: "fd09::/64".parse().expect("a prefix"),
            queues: 1,
            queue_limit: 1000,
        }
    }

    fn switch(names: &[&str]) -> SwitchSpec {
        let port = |name: &&str| SwitchPort { name: name.to_string(), device: name.to_string() };
        SwitchSpec {
            program: PathBuf::new(),
            config: String::new(),
            ports: names.iter().map(port).collect(),
            frame_room: 3840,
        }
    }

    #[test]
    fn plan__addresses_in_the_order_of_the_file() {
        let plans = plan(&spec(), &switch(&["z", "a"])).expect("fine");
        assert_eq!((plans[0].host.as_str(), plans[0].device.as_str()), ("z", "z"));
        assert_eq!(plans[0].v4.0, Ipv4Addr::new(10, 9, 0, 1));
        assert_eq!(plans[1].v4.1.to_string(), "10.9.0.2/30");
        assert_eq!(plans[1].v6.1.to_string(), "fd09::2/64");
        assert_eq!(plans[1].link_local.to_string(), "fe80::2/64");
    }

    #[test]
    fn plan__rejects_invalid_specifications() {
        let two = switch(&["a", "b"]);
        let refused = |spec: &Spec, switch: &SwitchSpec| {
            let error = plan(spec, switch).expect_err("refused");
            assert!(matches!(error, LabError::Switch(_)));
            error.to_string()
        };
        for mtu in [1279, 3827, u32::MAX] {
            let text = refused(&Spec { mtu, ..spec() }, &two);
            assert!(text.contains("1280 to 3826"), "{text}");
        }
        // A network of two hosts.
        let text = refused(&spec(), &switch(&["a", "b", "c"]));
        assert!(text.contains("10.9.0.0/30") && text.contains("number 3"), "{text}");
        let swapped = Spec { prefix: spec().prefix6, ..spec() };
        assert!(refused(&swapped, &two).contains("no host number 1"));
        assert!(refused(&spec(), &switch(&["a", "switch"])).contains("port.switch"));
    }
}
