//! The status of a lab.

use crate::error::LabError;
use crate::names::{DEVICE, SWITCH, check_name, namespace};
use crate::state::{State, StateDir, hosts};
use serde::Serialize;
use spanwire_io::net::{LinkCounters, LinkInfo, NetErrorKind, NetNs, Netlink, format_mac};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The status of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LabStatus {
    /// The lab's name.
    pub name: String,
    /// All hosts exist, their links have a carrier, and the switch runs if there is one.
    pub up: bool,
    /// The hosts: a and b, or one for each port of the switch.
    pub hosts: Vec<HostStatus>,
    /// The switch; null in a lab with a cable.
    pub switch: Option<SwitchStatus>,
}

/// The switch of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SwitchStatus {
    /// Its namespace.
    pub namespace: String,
    /// The PID of its process, which may have ended; null if it was never started.
    pub pid: Option<u32>,
    /// True if the process runs.
    pub running: bool,
    /// The file with its configuration, as of the lab's creation.
    pub config: PathBuf,
    /// Its control socket, for `spanwire switch ctl`.
    pub socket: PathBuf,
    /// The file with its output.
    pub log: PathBuf,
}

/// One host of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostStatus {
    /// Its name in the lab.
    pub host: String,
    /// Its namespace.
    pub namespace: String,
    /// The namespace exists.
    pub present: bool,
    /// Its device, if that exists.
    pub link: Option<LinkStatus>,
    /// The processes that run in it.
    pub processes: Vec<u32>,
}

/// The device of one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LinkStatus {
    /// Its name.
    pub device: String,
    /// Its index in its namespace.
    pub ifindex: u32,
    /// Its Ethernet address.
    pub mac: Option<String>,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// It is up and has a carrier.
    pub running: bool,
    /// The operational state of RFC 2863, as text.
    pub state: String,
    /// Its addresses with prefix lengths.
    pub addresses: Vec<String>,
    /// Its queueing discipline.
    pub qdisc: Option<String>,
    /// Its receive queues.
    pub rx_queues: u32,
    /// How an XDP program is attached: `driver`, `generic`, `hardware`, `several`; null if none.
    pub xdp: Option<String>,
    /// Frames received, as counted by the kernel.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames received but dropped.
    pub rx_dropped: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames dropped instead of sent.
    pub tx_dropped: u64,
}

impl LabStatus {
    /// Reads the status of a lab. A lab that does not exist is no error.
    ///
    /// # Errors
    /// Invalid name; permission denied; `/proc` cannot be read.
    pub fn read(name: &str) -> Result<Self, LabError> {
        check_name(name)?;
        let dir = StateDir::of(name);
        let state = dir.read()?;
        let hosts = hosts(state.as_ref());
        let hosts: Result<Vec<_>, _> =
            hosts.iter().map(|host| HostStatus::read(host, namespace(name, host))).collect();
        let hosts = hosts?;
        let switch = state.map(|state| SwitchStatus::new(name, &dir, &state));
        let runs = |host: &HostStatus| host.link.as_ref().is_some_and(|link| link.running);
        let up = hosts.iter().all(runs) && switch.as_ref().is_none_or(|switch| switch.running);
        Ok(Self { name: name.to_owned(), up, hosts, switch })
    }
}

impl HostStatus {
    fn read(host: &str, namespace: String) -> Result<Self, LabError> {
        let host = host.to_owned();
        let refused =
            |source| LabError::Net { doing: format!("inspect the namespace {namespace}"), source };
        let ns = match NetNs::open_named(&namespace) {
            Ok(ns) => ns,
            Err(e) if matches!(e.kind(), NetErrorKind::NotFound | NetErrorKind::Invalid) => {
                let processes = Vec::new();
                return Ok(Self { host, namespace, present: false, link: None, processes });
            }
            Err(e) => return Err(refused(e)),
        };
        let mut netlink = Netlink::open_in(&ns).map_err(refused)?;
        let link = match netlink.link(DEVICE) {
            Ok(link) => {
                let addresses = netlink.addresses(DEVICE).map_err(refused)?;
                let addresses = addresses.iter().map(|a| a.prefix.to_string()).collect();
                Some(LinkStatus::new(link, addresses))
            }
            Err(e) if e.kind() == NetErrorKind::NotFound => None,
            Err(e) => return Err(refused(e)),
        };
        Ok(Self { host, present: true, link, processes: processes_in(&ns)?, namespace })
    }
}

impl SwitchStatus {
    fn new(lab: &str, dir: &StateDir, state: &State) -> Self {
        Self {
            namespace: namespace(lab, SWITCH),
            pid: state.process.map(|process| process.pid),
            running: state.process.is_some_and(|process| process.is_running()),
            config: dir.config(),
            socket: dir.socket(),
            log: dir.log(),
        }
    }
}

impl LinkStatus {
    fn new(link: LinkInfo, addresses: Vec<String>) -> Self {
        let LinkCounters {
            rx_packets, rx_bytes, rx_dropped, tx_packets, tx_bytes, tx_dropped, ..
        } = link.counters;
        Self {
            ifindex: link.ifindex,
            mac: link.mac.as_ref().map(format_mac),
            mtu: link.mtu,
            running: link.running,
            state: link.operstate.to_string(),
            addresses,
            qdisc: link.qdisc,
            rx_queues: link.rx_queues,
            xdp: link.xdp.map(|mode| mode.to_string()),
            device: link.name,
            rx_packets,
            rx_bytes,
            rx_dropped,
            tx_packets,
            tx_bytes,
            tx_dropped,
        }
    }
}

/// The processes whose main thread is in a namespace, in ascending order. Processes that end
/// meanwhile, or that this one may not inspect, are left out.
pub(crate) fn processes_in(ns: &NetNs) -> Result<Vec<u32>, LabError> {
    let inode = ns.inode().map_err(|source| LabError::Net {
        doing: "find the processes of the lab".to_owned(),
        source,
    })?;
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc").map_err(LabError::Proc)? {
        let entry: io::Result<fs::DirEntry> = entry;
        let name = entry.map_err(LabError::Proc)?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let there = fs::metadata(format!("/proc/{pid}/ns/net"));
        if there.is_ok_and(|metadata| metadata.ino() == inode) {
            processes.push(pid);
        }
    }
    processes.sort_unstable();
    Ok(processes)
}
