//! Kernel network configuration: interfaces, addresses, routes, neighbours, namespaces and
//! offloads, by netlink and ioctl from this process (no command is run).
//!
//! The engine is independent of it. An endpoint needs it before the first packet, to learn the
//! interface and the MAC addresses for a peer ([`resolve`]). Demonstrations, tests and benchmarks
//! use it to create two hosts on one machine ([`TwoHosts`]).
//!
//! A namespace is a property of a *thread*. [`Netlink`] and [`Ethtool`] are opened in the namespace
//! of the calling thread, or in a given one by `open_in`, and keep it even if the thread changes
//! its own.

mod address;
mod error;
mod events;
mod features;
mod hosts;
mod link;
mod neighbour;
mod netlink;
mod netns;
mod offload;
mod path_probe;
mod route;
mod settings;
mod sys;
#[cfg(test)]
mod testing;
mod udp_sockets;
mod veth;

pub use address::{InterfaceAddress, IpPrefix};
pub use error::{NetError, NetErrorKind};
pub use events::AddressEvents;
pub use features::XdpFeatures;
pub use hosts::{Host, LabConfig, TwoHosts};
pub use link::{LinkCounters, LinkInfo, OperState, XdpMode, format_mac};
pub use netlink::Netlink;
pub use netns::{Entered, NetNs};
pub use offload::{Channels, Ethtool, Offloads, Rings, RxRewrites};
pub use path_probe::PathProbe;
pub use route::{NextHop, RESOLVE_TIMEOUT, resolve, resolve_within};
pub use udp_sockets::{RxeDevice, SocketOwner, UdpSocketInfo, udp_sockets};
pub use veth::{VethEnd, VethSpec};
