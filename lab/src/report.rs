//! The results of `up` and `down`.

use serde::Serialize;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

/// The result of `up`: the lab that it has created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UpReport {
    /// The lab's name.
    pub name: String,
    /// The MTU of every end in bytes.
    pub mtu: u32,
    /// The hosts: a and b, or one for each port of the switch.
    pub hosts: Vec<LabHost>,
    /// The switch between them; null in a lab with a cable.
    pub switch: Option<LabSwitch>,
}

/// A host that `up` has created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LabHost {
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
pub struct LabSwitch {
    /// Its namespace, with a device for each port.
    pub namespace: String,
    /// Its process.
    pub pid: u32,
    /// Its control socket, for `spanwire switch ctl`.
    pub socket: PathBuf,
    /// The file with its output.
    pub log: PathBuf,
}

/// The result of `down`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DownReport {
    /// The lab's name.
    pub name: String,
    /// The namespaces removed.
    pub removed: Vec<String>,
    /// The switch's process, if it was running and has been ended.
    pub ended: Option<u32>,
    /// Processes that still run in the namespaces, without network. The kernel frees a namespace
    /// when its last process ends.
    pub processes: Vec<u32>,
}
