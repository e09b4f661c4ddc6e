//! The kernel's side of addressing: interfaces, addresses, routes, neighbours, namespaces and
//! offloads, by netlink and ioctl from this process (nothing is run as a command).
//!
//! The engine does not know any of this. An endpoint needs it twice: before the first packet, to
//! learn which interface and which MAC addresses lead to a peer ([`resolve`]), and in
//! demonstrations, tests and benchmarks, to have two hosts on one machine ([`TwoHosts`]).
//!
//! A namespace is a property of a *thread*. Everything that talks to the kernel here ([`Netlink`],
//! [`Ethtool`]) is opened in the namespace of the calling thread, or in a given one by `open_in`,
//! and stays there, whatever the thread does afterwards.

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
mod route;
mod settings;
mod sys;
#[cfg(test)]
mod testing;
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
pub use route::{NextHop, RESOLVE_TIMEOUT, resolve, resolve_within};
pub use veth::{VethEnd, VethSpec};
