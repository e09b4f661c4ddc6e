//! veth pairs: two virtual Ethernet interfaces connected to each other.

use super::error::{NetError, NetErrorKind};
use super::link::check_name;
use super::netlink::Netlink;
use super::netns::NetNs;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage,
};
use std::os::fd::{AsFd, AsRawFd};

/// One end of a veth pair: its namespace and its name.
#[derive(Debug, Clone, Copy)]
pub struct VethEnd<'a> {
    /// The namespace that the end is created in.
    pub ns: &'a NetNs,
    /// Its name, 1..=15 bytes; both ends may have the same in two namespaces.
    pub name: &'a str,
}

/// Parameters of a veth pair.
#[derive(Debug, Clone, Copy)]
pub struct VethSpec<'a> {
    /// One end.
    pub a: VethEnd<'a>,
    /// The other end.
    pub b: VethEnd<'a>,
    /// MTU of both ends in bytes, 68..=65535.
    pub mtu: u32,
    /// Transmit and receive queues of both ends, 1..=64. More than one makes the kernel spread
    /// flows over receive queues, each of which then needs an AF_XDP socket.
    pub queues: u32,
}

impl VethSpec<'_> {
    /// Creates the pair, each end in its namespace and down.
    ///
    /// # Errors
    /// No CAP_NET_ADMIN in either namespace, or a name is taken there.
    pub fn create(&self) -> Result<(), NetError> {
        check_name(self.a.name)?;
        check_name(self.b.name)?;
        let operation = format!("create a veth pair of {} and {}", self.a.name, self.b.name);
        if !(1..=MAX_QUEUES).contains(&self.queues) {
            return Err(NetError::new(NetErrorKind::Invalid, operation)
                .detail(format!("{} queues", self.queues))
                .advise(format!("use 1..={MAX_QUEUES} queues")));
        }
        let mut peer = LinkMessage::default();
        peer.attributes = self.attributes_of(self.b);
        let mut message = LinkMessage::default();
        message.attributes = self.attributes_of(self.a);
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        // The kernel checks for a name conflict in the socket's namespace, so the socket is in the
        // first end's namespace: a host interface of that name is then no conflict.
        let mut netlink = Netlink::open_in(self.a.ns)?;
        netlink
            .request(NLM_F_CREATE | NLM_F_EXCL, RouteNetlinkMessage::NewLink(message))
            .map_err(|r| r.during(operation))?;
        Ok(())
    }

    fn attributes_of(&self, end: VethEnd<'_>) -> Vec<LinkAttribute> {
        vec![
            LinkAttribute::IfName(end.name.to_owned()),
            LinkAttribute::NetNsFd(end.ns.as_fd().as_raw_fd()),
            LinkAttribute::Mtu(self.mtu),
            LinkAttribute::NumTxQueues(self.queues),
            LinkAttribute::NumRxQueues(self.queues),
        ]
    }
}

/// A sanity limit for AF_XDP sockets on one pair; the kernel's own limit is 4096.
const MAX_QUEUES: u32 = 64;

#[cfg(test)]
mod tests;
