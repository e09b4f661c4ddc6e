//! Changes to an interface: MTU, state, names, queueing discipline.

use super::error::{NetError, NetErrorKind};
use super::link::{check_name, named};
use super::netlink::Netlink;
use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkMessage,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

impl Netlink {
    /// Sets the largest IP packet of an interface in bytes.
    ///
    /// # Errors
    /// The driver does not support the size (veth: 68..=65535; with an XDP program less).
    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> Result<(), NetError> {
        self.set(named(name, vec![LinkAttribute::Mtu(mtu)]), format!("set the MTU to {mtu}"), name)
    }

    /// Sets an interface up. It passes frames once its peer is up too; see
    /// [`Netlink::wait_running`].
    ///
    /// # Errors
    /// No CAP_NET_ADMIN.
    pub fn set_up(&mut self, name: &str) -> Result<(), NetError> {
        let mut message = named(name, Vec::new());
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.set(message, "set the interface up".to_owned(), name)
    }

    /// Sets an interface down.
    ///
    /// # Errors
    /// No CAP_NET_ADMIN.
    pub fn set_down(&mut self, name: &str) -> Result<(), NetError> {
        let mut message = named(name, Vec::new());
        message.header.change_mask = LinkFlags::Up;
        self.set(message, "set the interface down".to_owned(), name)
    }

    /// Sets the alias of an interface (at most 255 bytes).
    ///
    /// # Errors
    /// No CAP_NET_ADMIN, or the text is too long.
    pub fn set_alias(&mut self, name: &str, alias: &str) -> Result<(), NetError> {
        self.set(
            named(name, vec![LinkAttribute::IfAlias(alias.to_owned())]),
            format!("set the alias {alias:?}"),
            name,
        )
    }

    /// Prevents the kernel from assigning an IPv6 link-local address, which would be unusable
    /// during its first second or two. Call it while the interface is down.
    ///
    /// # Errors
    /// No CAP_NET_ADMIN, or a kernel without IPv6.
    pub fn disable_ipv6_autoconf(&mut self, name: &str) -> Result<(), NetError> {
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        let spec = LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![mode])]);
        self.set(named(name, vec![spec]), "switch IPv6 autoconfiguration off".to_owned(), name)
    }

    /// Deletes an interface; for a veth pair, both ends.
    ///
    /// # Errors
    /// No such interface, no CAP_NET_ADMIN, or it is hardware.
    pub fn delete_link(&mut self, name: &str) -> Result<(), NetError> {
        check_name(name)?;
        self.request(0, RouteNetlinkMessage::DelLink(named(name, Vec::new())))
            .map_err(|r| r.during("delete the interface").on(name))?;
        Ok(())
    }

    /// Sets a pfifo queueing discipline of `limit` packets on an interface.
    ///
    /// A veth without a queue drops frames that its peer cannot receive. With one the sender gets
    /// back-pressure (AF_XDP's `EAGAIN`), and no frame is lost.
    ///
    /// # Errors
    /// No CAP_NET_ADMIN, or a kernel without `sch_fifo`.
    pub fn set_pfifo(&mut self, name: &str, limit: u32) -> Result<(), NetError> {
        let operation = format!("set the queueing discipline pfifo limit {limit}");
        let ifindex = self.ifindex(name)?;
        let index = i32::try_from(ifindex).map_err(|_| {
            NetError::new(NetErrorKind::Protocol, operation.as_str())
                .on(name)
                .detail(format!("index {ifindex}"))
        })?;
        let mut message = TcMessage::with_index(index);
        message.header.parent = TcHandle::ROOT;
        // The options of this discipline are a bare struct tc_fifo_qopt, not attributes.
        let options = DefaultNla::new(TCA_OPTIONS, limit.to_ne_bytes().to_vec());
        message.attributes =
            vec![TcAttribute::Kind("pfifo".to_owned()), TcAttribute::Other(options)];
        self.request(
            NLM_F_CREATE | NLM_F_REPLACE,
            RouteNetlinkMessage::NewQueueDiscipline(message),
        )
        .map_err(|r| r.during(operation).on(name))?;
        Ok(())
    }

    fn set(&mut self, message: LinkMessage, operation: String, name: &str) -> Result<(), NetError> {
        check_name(name)?;
        self.request(0, RouteNetlinkMessage::SetLink(message))
            .map_err(|r| r.during(operation).on(name))?;
        Ok(())
    }
}

/// The attribute of a queueing discipline's own options (linux/rtnetlink.h).
const TCA_OPTIONS: u16 = 2;

#[cfg(test)]
mod tests;
