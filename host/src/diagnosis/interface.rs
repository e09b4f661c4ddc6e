//! Checks of the interface: its state, driver, queues and offloads, and the path to a peer. They
//! only read; nothing is attached or changed.

use super::check::Check;
use super::path::PathFacts;
use crate::file;
use serde::Serialize;
use spanwire_io::net::{
    Channels, Ethtool, InterfaceAddress, LinkInfo, NetError, NetErrorKind, Netlink, Offloads,
    Rings, RxRewrites, XdpFeatures, format_mac, resolve_within,
};
use spanwire_transport::Mtu;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Facts about one interface. A fact that the driver does not report is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceFacts {
    /// The kernel's attributes of the link.
    pub link: LinkInfo,
    /// Its addresses.
    pub addresses: Vec<InterfaceAddress>,
    /// The driver's name.
    pub driver: Option<String>,
    /// XDP features that the driver declares.
    pub features: Option<XdpFeatures>,
    /// Its queues.
    pub channels: Option<Channels>,
    /// The sizes of their rings.
    pub rings: Option<Rings>,
    /// Segmentation, joining and checksums.
    pub offloads: Option<Offloads>,
    /// Offloads that change what is received.
    pub rewrites: Option<RxRewrites>,
    /// Deferral of interrupts.
    pub deferral: Option<Deferral>,
    /// The queue to serve.
    pub queue: u32,
    /// A peer, and its MAC address or why there is none.
    pub peer: Option<(IpAddr, Result<String, String>)>,
    /// The path to it, if it has an address.
    pub path: Option<PathFacts>,
}

/// Deferral of an interface's interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Deferral {
    /// `napi_defer_hard_irqs`: how many empty polls leave interrupts disabled.
    pub hard_irqs: u64,
    /// `gro_flush_timeout`: nanoseconds until the next poll meanwhile.
    pub flush_timeout_ns: u64,
}

impl InterfaceFacts {
    /// Reads the facts of an interface of the calling thread's namespace.
    ///
    /// # Errors
    /// No such interface, or netlink cannot be used at all.
    pub fn read(link: LinkInfo, queue: u32, peer: Option<IpAddr>) -> Result<Self, NetError> {
        let name = link.name.as_str();
        let addresses = Netlink::open()?.addresses(name)?;
        let ethtool = Ethtool::open()?;
        let mut path = None;
        let peer = peer.map(|peer| {
            let hop = resolve_within(peer, Some(link.ifindex), PEER_TIMEOUT);
            path = hop.as_ref().ok().and_then(|hop| PathFacts::read(peer, hop));
            (peer, hop.map(|hop| format_mac(&hop.dst_mac)).map_err(|e| e.to_string()))
        });
        Ok(Self {
            addresses,
            driver: if_supported(ethtool.driver(name))?,
            features: if_supported(XdpFeatures::read(link.ifindex))?,
            channels: if_supported(ethtool.channels(name))?,
            rings: if_supported(ethtool.rings(name))?,
            offloads: if_supported(ethtool.offloads(name))?,
            rewrites: if_supported(ethtool.rx_rewrites(name))?,
            deferral: Deferral::read(Path::new("/sys/class/net"), name, link.ifindex),
            queue,
            peer,
            path,
            link,
        })
    }

    /// The checks of these facts. If the interface cannot carry RoCE at all, only that check.
    #[must_use]
    pub fn checks(&self) -> Vec<Check> {
        if !self.link.ethernet {
            let found =
                "it carries no Ethernet frames, so AF_XDP is not possible; UDP sockets work";
            return vec![Check::warn("link", found, "choose another interface with --dev")];
        }
        let mut checks = vec![
            self.check_link(),
            self.check_xdp(),
            self.check_program(),
            self.check_mtu(),
            self.check_addresses(),
            self.check_queues(),
        ];
        checks.extend(self.check_rings());
        checks.extend(self.check_offloads());
        checks.extend(self.check_deferral());
        checks.extend(self.check_qdisc());
        checks.extend(self.check_peer());
        checks.extend(self.check_path());
        checks
    }

    fn name(&self) -> &str {
        &self.link.name
    }

    fn driver(&self) -> &str {
        self.driver.as_deref().or(self.link.kind.as_deref()).unwrap_or("unknown")
    }

    fn is_veth(&self) -> bool {
        self.driver() == "veth"
    }

    fn check_link(&self) -> Check {
        let (name, link) = (self.name(), &self.link);
        let mac = link.mac.as_ref().map_or_else(|| "no MAC address".to_owned(), format_mac);
        let found = format!("{}, {mac}, driver {}", link.operstate, self.driver());
        if !link.up {
            let found = format!("switched off, driver {}", self.driver());
            return Check::fail("link", found, format!("ip link set dev {name} up"));
        }
        if !link.running {
            let fix = if self.is_veth() {
                format!("ip link set dev {name} up  # the other end, by its name, in its namespace")
            } else {
                format!("ethtool {name}  # after plugging the cable in")
            };
            return Check::fail("link", format!("no carrier: {found}"), fix);
        }
        if self.link.kind.as_deref() == Some("bond") {
            let fix = "use --dev with a member of the bond";
            return Check::warn("link", format!("a bond: {found}"), fix);
        }
        Check::ok("link", found)
    }

    fn check_xdp(&self) -> Check {
        match self.features {
            None => Check::ok("xdp", "the kernel does not tell (before Linux 6.3): seen when used"),
            Some(XdpFeatures { native: true, zero_copy: true, .. }) => {
                Check::ok("xdp", "native, zero-copy")
            }
            Some(XdpFeatures { native: true, .. }) => Check::ok("xdp", "native, copying"),
            Some(_) => Check::warn(
                "xdp",
                format!("the driver {} has no native XDP: generic, slower", self.driver()),
                "use --dev with a card or a veth whose driver has it",
            ),
        }
    }

    fn check_program(&self) -> Check {
        match self.link.xdp {
            None => Check::ok("program", "no XDP program is attached"),
            Some(mode) => Check::fail(
                "program",
                format!(
                    "an XDP program is attached ({mode}): another Spanwire, or somebody else's"
                ),
                format!("bpftool net show dev {0}; ip link set dev {0} xdp off", self.name()),
            ),
        }
    }

    fn check_mtu(&self) -> Check {
        let (name, mtu) = (self.name(), self.link.mtu);
        let Some(path_mtu) = Mtu::for_link(mtu) else {
            let fix = format!("ip link set dev {name} mtu 1500");
            return Check::fail("mtu", format!("{mtu}: too small for any RoCE packet"), fix);
        };
        // The MTU that fits the peer's buffers as well as ours.
        let largest = if self.is_veth() { VETH_MTU_MAX } else { BUFFER_MTU_MAX };
        if mtu > largest {
            let found = format!(
                "{mtu}: frames above {largest} bytes of IP are lost, as they take several buffers; \
                 path MTU 2048 at most"
            );
            return Check::warn("mtu", found, format!("ip link set dev {name} mtu {largest}"));
        }
        let path_mtu = path_mtu.bytes();
        let more =
            if path_mtu < 2048 { " (2048, the most here, begins with MTU 2128)" } else { "" };
        Check::ok("mtu", format!("{mtu}: path MTU {path_mtu}{more}"))
    }

    fn check_addresses(&self) -> Check {
        let usable: Vec<&InterfaceAddress> =
            self.addresses.iter().filter(|a| !a.tentative && !a.duplicate).collect();
        let list: Vec<String> = usable.iter().map(|a| a.prefix.to_string()).collect();
        if !usable.is_empty() {
            return Check::ok("address", list.join(", "));
        }
        let found = if self.addresses.is_empty() {
            "none: RoCEv2 is addressed by IP"
        } else {
            "none that can be used yet (duplicate address detection)"
        };
        let fix = format!("ip address add 192.0.2.1/24 dev {}  # an address of yours", self.name());
        Check::fail("address", found, fix)
    }

    /// Checks that RoCE packets arrive on the queue that the port serves.
    #[must_use]
    pub fn check_queues(&self) -> Check {
        let (name, queue) = (self.name(), self.queue);
        let channels = self.channels.unwrap_or(Channels {
            rx: self.link.rx_queues.max(1),
            rx_max: self.link.rx_queues.max(1),
            ..Channels::default()
        });
        let rx = channels.rx;
        if queue >= rx {
            let found = format!("queue {queue} of {rx} receive queues does not exist");
            return Check::fail("queues", found, format!("use --queue 0 to {}", rx - 1));
        }
        if self.driver() == "ena" && rx > channels.rx_max / 2 {
            let half = (channels.rx_max / 2).max(1);
            let found = format!("{rx} of {}: native XDP here wants at most half", channels.rx_max);
            return Check::warn("queues", found, format!("ethtool -L {name} combined {half}"));
        }
        if rx == 1 {
            return Check::ok("queues", "one receive queue");
        }
        let found = format!("{rx} receive queues: UDP port 4791 must arrive on queue {queue}");
        let fix = if self.is_veth() || queue == 0 && !self.can_steer() {
            let what = if channels.combined { "combined" } else { "rx" };
            format!("ethtool -L {name} {what} 1")
        } else {
            format!(
                "ethtool -N {name} flow-type udp4 dst-port 4791 action {queue}  \
                 # udp6 for IPv6; or: ethtool -L {name} combined 1"
            )
        };
        Check::warn("queues", found, fix)
    }

    /// True if the interface has steering rules. Virtual interfaces have none.
    fn can_steer(&self) -> bool {
        self.link.kind.is_none()
    }

    fn check_rings(&self) -> Option<Check> {
        let rings = self.rings.filter(|rings| rings.rx > 0)?;
        let found = format!("{} entries to receive, {} to send", rings.rx, rings.tx);
        Some(if rings.rx < RING_MIN && rings.rx < rings.rx_max {
            let found = format!("{found}: less than a window of packets");
            let entries = RING_MIN.min(rings.rx_max);
            Check::warn("rings", found, format!("ethtool -G {} rx {entries}", self.name()))
        } else {
            Check::ok("rings", found)
        })
    }

    fn check_offloads(&self) -> Option<Check> {
        let (offloads, name) = (self.offloads?, self.name());
        let rewrites = self.rewrites.unwrap_or_default();
        let on_off = |on| if on { "on" } else { "off" };
        let found = format!(
            "lro {}, gro {}, gso {}, tso {}, tx checksum {}, rx vlan {}",
            on_off(rewrites.lro),
            on_off(offloads.gro),
            on_off(offloads.gso),
            on_off(offloads.tso),
            on_off(offloads.tx_checksum),
            on_off(rewrites.vlan_strip)
        );
        let generic = self.features.is_some_and(|features| !features.native);
        Some(if rewrites.lro {
            let found = format!("{found}: most drivers refuse XDP with LRO, others join packets");
            Check::warn("offloads", found, format!("ethtool -K {name} lro off"))
        } else if generic && offloads.gro {
            // Native XDP runs before GRO, so GRO does not affect it.
            let found = format!("{found}: generic XDP comes behind GRO, which may join packets");
            Check::warn("offloads", found, format!("ethtool -K {name} gro off"))
        } else {
            Check::ok("offloads", found)
        })
    }

    fn check_deferral(&self) -> Option<Check> {
        let Deferral { hard_irqs, flush_timeout_ns } = self.deferral?;
        if hard_irqs == 0 && flush_timeout_ns == 0 {
            return Some(Check::ok("irqs", "not put off"));
        }
        let name = self.name();
        let us = flush_timeout_ns / 1_000;
        Some(Check::warn(
            "irqs",
            format!("put off {hard_irqs} times for {us} us: latency grows by as much"),
            format!(
                "echo 0 >/sys/class/net/{name}/napi_defer_hard_irqs; \
                 echo 0 >/sys/class/net/{name}/gro_flush_timeout"
            ),
        ))
    }

    fn check_qdisc(&self) -> Option<Check> {
        let qdisc = self.link.qdisc.as_deref().filter(|_| self.is_veth())?;
        Some(match qdisc {
            "noqueue" => Check::warn(
                "qdisc",
                "none: what the peer has no room for is dropped instead of held back",
                format!("tc qdisc add dev {} root pfifo limit 1000", self.name()),
            ),
            other => Check::ok("qdisc", other),
        })
    }

    fn check_peer(&self) -> Option<Check> {
        let (peer, found) = self.peer.as_ref()?;
        Some(match found {
            Ok(mac) => Check::ok("peer", format!("{peer} is reached through {mac}")),
            Err(why) => {
                let fix = format!("ip route get {peer} oif {0}; ping -I {0} {peer}", self.name());
                Check::fail("peer", why.clone(), fix)
            }
        })
    }

    fn check_path(&self) -> Option<Check> {
        let ((peer, _), path) = self.peer.as_ref().zip(self.path.as_ref())?;
        Some(path.check(*peer, &self.link))
    }
}

impl Deferral {
    /// Reads below `class`, where `/sys/class/net` is mounted. `None` if the mount is of another
    /// network namespace: the interface of that name has another index there.
    fn read(class: &Path, name: &str, ifindex: u32) -> Option<Self> {
        let number = |file: &str| -> Option<u64> {
            file::read_kernel(class.join(name).join(file)).ok()?.trim().parse().ok()
        };
        if number("ifindex")? != u64::from(ifindex) {
            return None;
        }
        Some(Self {
            hard_irqs: number("napi_defer_hard_irqs")?,
            flush_timeout_ns: number("gro_flush_timeout")?,
        })
    }
}

/// `None` for an answer that the kernel or the driver does not support.
fn if_supported<T>(answer: Result<T, NetError>) -> Result<Option<T>, NetError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(e) if e.kind() == NetErrorKind::Unsupported => Ok(None),
        Err(e) => Err(e),
    }
}

/// The largest MTU at which a veth keeps a frame in one buffer.
const VETH_MTU_MAX: u32 = 3506;
/// A chunk of 4096 bytes less XDP's headroom of 256 and the Ethernet header.
const BUFFER_MTU_MAX: u32 = 4096 - 256 - 14;
/// Ring entries for a window of packets and their ACKs.
const RING_MIN: u32 = 256;
/// One neighbour solicitation and its retransmission.
const PEER_TIMEOUT: Duration = Duration::from_millis(1_500);

#[cfg(test)]
mod tests;
