//! Network interfaces as the kernel reports them.

use super::error::{NetError, NetErrorKind};
use super::netlink::{Netlink, RequestError};
use super::sys::IFNAMSIZ;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    LinkAttribute, LinkFlags, LinkInfo as LinkKindInfo, LinkLayerType, LinkMessage, LinkXdp, State,
    XdpAttached,
};
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

/// Attributes of an interface, as the kernel reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkInfo {
    /// The name, 1..=15 bytes.
    pub name: String,
    /// The index, from 1; unique in its namespace only.
    pub ifindex: u32,
    /// The Ethernet address, if this is an Ethernet interface.
    pub mac: Option<[u8; 6]>,
    /// The largest IP packet in bytes (the frame is 14 bytes longer).
    pub mtu: u32,
    /// It is administratively up (`IFF_UP`).
    pub up: bool,
    /// It is up and has a carrier (`IFF_LOWER_UP`): frames can pass.
    pub running: bool,
    /// It is the loopback interface.
    pub loopback: bool,
    /// It carries Ethernet frames (never true for `lo`).
    pub ethernet: bool,
    /// The operational state of RFC 2863.
    pub operstate: OperState,
    /// The kind of virtual interface (`veth`), `None` for hardware and `lo`.
    pub kind: Option<String>,
    /// Transmit queues that it was created with.
    pub tx_queues: u32,
    /// Receive queues that it was created with.
    pub rx_queues: u32,
    /// The queueing discipline at the root.
    pub qdisc: Option<String>,
    /// Free text set by administrators or by `spanwire lab`.
    pub alias: Option<String>,
    /// The mode of the attached XDP program, if any.
    pub xdp: Option<XdpMode>,
    /// The kernel's counters.
    pub counters: LinkCounters,
}

/// The kernel's 64-bit counters of an interface, since its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkCounters {
    /// Frames received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames received but not delivered.
    pub rx_dropped: u64,
    /// Frames received in error.
    pub rx_errors: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames that could not be sent.
    pub tx_dropped: u64,
    /// Frames whose sending failed.
    pub tx_errors: u64,
}

/// The operational state of an interface (RFC 2863).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperState {
    /// It can pass frames.
    Up,
    /// It cannot pass frames.
    Down,
    /// The interface below it, or the other end of the pair, is down.
    LowerLayerDown,
    /// The driver does not report it (`lo`).
    Unknown,
    /// Testing, dormant or not present.
    Other,
}

/// The mode of an XDP program on an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum XdpMode {
    /// In the driver, before a socket buffer exists.
    Driver,
    /// In the generic path, after a socket buffer exists: slower.
    Generic,
    /// In the hardware.
    Hardware,
    /// Several programs in several modes.
    Several,
}

impl Netlink {
    /// Looks an interface up by name.
    ///
    /// # Errors
    /// [`NetErrorKind::NotFound`] if there is none of that name in the socket's namespace.
    pub fn link(&mut self, name: &str) -> Result<LinkInfo, NetError> {
        check_name(name)?;
        let query = named(name, Vec::new());
        self.one_link(query).map_err(|r| r.during("find the interface").on(name))
    }

    /// Looks an interface up by index.
    ///
    /// # Errors
    /// [`NetErrorKind::NotFound`] if there is none of that index in the socket's namespace.
    pub fn link_by_index(&mut self, ifindex: u32) -> Result<LinkInfo, NetError> {
        let mut query = LinkMessage::default();
        query.header.index = ifindex;
        self.one_link(query)
            .map_err(|r| r.during("find the interface").on(format!("index {ifindex}")))
    }

    /// All interfaces of the namespace, in the order of their indices.
    ///
    /// # Errors
    /// The kernel does not reply.
    pub fn links(&mut self) -> Result<Vec<LinkInfo>, NetError> {
        let operation = "list the interfaces";
        let answers = self
            .dump(&RouteNetlinkMessage::GetLink(LinkMessage::default()))
            .map_err(|r| r.during(operation))?;
        let mut links = Vec::with_capacity(answers.len());
        for answer in &answers {
            if let RouteNetlinkMessage::NewLink(message) = answer {
                links.push(link_of(message).map_err(|r| r.during(operation))?);
            }
        }
        links.sort_unstable_by_key(|link| link.ifindex);
        Ok(links)
    }

    /// The index of an interface.
    ///
    /// # Errors
    /// As [`Netlink::link`].
    pub fn ifindex(&mut self, name: &str) -> Result<u32, NetError> {
        Ok(self.link(name)?.ifindex)
    }

    /// Waits until an interface is running: up, with a carrier.
    ///
    /// # Errors
    /// [`NetErrorKind::Timeout`] after `timeout`.
    pub fn wait_running(&mut self, name: &str, timeout: Duration) -> Result<LinkInfo, NetError> {
        let deadline = Instant::now() + timeout;
        loop {
            let link = self.link(name)?;
            if link.running && matches!(link.operstate, OperState::Up | OperState::Unknown) {
                return Ok(link);
            }
            if Instant::now() >= deadline {
                return Err(NetError::new(NetErrorKind::Timeout, "wait for a carrier")
                    .on(name)
                    .detail(format!("{} after {timeout:?}", link.operstate))
                    .advise("set the other end up, or check the cable"));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn one_link(&mut self, query: LinkMessage) -> Result<LinkInfo, RequestError> {
        let answers = self.request(0, RouteNetlinkMessage::GetLink(query))?;
        match answers.first() {
            Some(RouteNetlinkMessage::NewLink(message)) => link_of(message),
            _ => Err(RequestError::Unreadable("the reply is not a link".to_owned())),
        }
    }
}

impl fmt::Display for OperState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::LowerLayerDown => "lower layer down",
            Self::Unknown => "unknown",
            Self::Other => "not ready",
        })
    }
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Driver => "driver",
            Self::Generic => "generic",
            Self::Hardware => "hardware",
            Self::Several => "several",
        })
    }
}

/// An Ethernet address in the usual notation: `02:00:00:00:00:01`.
#[must_use]
pub fn format_mac(mac: &[u8; 6]) -> String {
    let [a, b, c, d, e, f] = mac;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

/// Validates an interface name before it becomes part of a request: the kernel would truncate some
/// invalid names instead of rejecting them.
pub(super) fn check_name(name: &str) -> Result<(), NetError> {
    let fits = !name.is_empty() && name.len() < IFNAMSIZ;
    let clean = !name.contains(|c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace());
    if fits && clean && name != "." && name != ".." {
        return Ok(());
    }
    Err(NetError::new(NetErrorKind::Invalid, format!("use {name:?} as an interface name"))
        .advise("use 1 to 15 bytes without spaces, slashes and colons"))
}

/// A request about the interface of that name.
pub(super) fn named(name: &str, mut attributes: Vec<LinkAttribute>) -> LinkMessage {
    attributes.push(LinkAttribute::IfName(name.to_owned()));
    let mut message = LinkMessage::default();
    message.attributes = attributes;
    message
}

/// Parses a link message. Only name and index are required.
fn link_of(message: &LinkMessage) -> Result<LinkInfo, RequestError> {
    let flags = message.header.flags;
    let ethernet = message.header.link_layer_type == LinkLayerType::Ether;
    let mut link = LinkInfo {
        name: String::new(),
        ifindex: message.header.index,
        mac: None,
        mtu: 0,
        up: flags.contains(LinkFlags::Up),
        running: flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
        loopback: flags.contains(LinkFlags::Loopback),
        ethernet,
        operstate: OperState::Unknown,
        kind: None,
        tx_queues: 1,
        rx_queues: 1,
        qdisc: None,
        alias: None,
        xdp: None,
        counters: LinkCounters::default(),
    };
    for attribute in &message.attributes {
        read_attribute(&mut link, attribute);
    }
    if link.name.is_empty() || link.ifindex == 0 {
        return Err(RequestError::Unreadable("a link without name or index".to_owned()));
    }
    Ok(link)
}

fn read_attribute(link: &mut LinkInfo, attribute: &LinkAttribute) {
    match attribute {
        LinkAttribute::IfName(name) => link.name.clone_from(name),
        LinkAttribute::Address(bytes) if link.ethernet => {
            link.mac = <[u8; 6]>::try_from(bytes.as_slice()).ok();
        }
        LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
        LinkAttribute::NumTxQueues(queues) => link.tx_queues = *queues,
        LinkAttribute::NumRxQueues(queues) => link.rx_queues = *queues,
        LinkAttribute::Qdisc(kind) => link.qdisc = Some(kind.clone()),
        LinkAttribute::IfAlias(alias) => link.alias = Some(alias.clone()),
        LinkAttribute::OperState(state) => {
            link.operstate = match state {
                State::Up => OperState::Up,
                State::Down => OperState::Down,
                State::LowerLayerDown => OperState::LowerLayerDown,
                State::Unknown => OperState::Unknown,
                _ => OperState::Other,
            };
        }
        LinkAttribute::LinkInfo(infos) => {
            link.kind = infos.iter().find_map(|info| match info {
                LinkKindInfo::Kind(kind) => Some(kind.to_string()),
                _ => None,
            });
        }
        LinkAttribute::Xdp(xdp) => link.xdp = xdp.iter().find_map(xdp_mode),
        LinkAttribute::Stats64(stats) => {
            link.counters = LinkCounters {
                rx_packets: stats.rx_packets,
                rx_bytes: stats.rx_bytes,
                rx_dropped: stats.rx_dropped,
                rx_errors: stats.rx_errors,
                tx_packets: stats.tx_packets,
                tx_bytes: stats.tx_bytes,
                tx_dropped: stats.tx_dropped,
                tx_errors: stats.tx_errors,
            };
        }
        _ => {}
    }
}

fn xdp_mode(attribute: &LinkXdp) -> Option<XdpMode> {
    match attribute {
        LinkXdp::Attached(XdpAttached::Driver) => Some(XdpMode::Driver),
        LinkXdp::Attached(XdpAttached::SocketBuffer) => Some(XdpMode::Generic),
        LinkXdp::Attached(XdpAttached::Hardware) => Some(XdpMode::Hardware),
        LinkXdp::Attached(XdpAttached::Multiple) => Some(XdpMode::Several),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
