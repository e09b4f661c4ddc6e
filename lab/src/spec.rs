//! The specification of a lab.

use spanwire_io::net::IpPrefix;
use std::path::PathBuf;

/// The specification of a lab.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spec {
    /// Its name: 1 to 32 letters, digits, '-' and '_'.
    pub name: String,
    /// Largest IP packet in bytes, 1280 to 65535.
    pub mtu: u32,
    /// IPv4 network; the hosts get its first addresses.
    pub prefix: IpPrefix,
    /// IPv6 network; the hosts get its first addresses.
    pub prefix6: IpPrefix,
    /// Receive and transmit queues of each end of a cable, 1 to 64.
    pub queues: u32,
    /// Length of each end's transmit queue (pfifo) in packets; 0 for none, so that a full peer
    /// drops.
    pub queue_limit: u32,
}

/// Reads the specification of a lab's switch. It is called after all other checks have passed.
pub type ReadSwitch<'a> = &'a dyn Fn() -> Result<SwitchSpec, String>;

/// The switch of a lab: `PROGRAM switch --config FILE --socket PATH`, where the file holds
/// `config`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchSpec {
    /// The `spanwire` program.
    pub program: PathBuf,
    /// The configuration of the switch, as text.
    pub config: String,
    /// Its ports. Each is a host of the lab.
    pub ports: Vec<SwitchPort>,
    /// The longest frame that a port carries, in bytes without FCS.
    pub frame_room: u32,
}

/// A port of a lab's switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchPort {
    /// Its name, and that of its host.
    pub name: String,
    /// Its interface.
    pub device: String,
}
