//! Kernel notifications of added and removed addresses.

use super::error::NetError;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// A netlink socket that becomes readable when an IPv4 or IPv6 address is added to or removed from
/// any interface of its network namespace. Query [`Netlink`](super::Netlink) for the change.
#[derive(Debug)]
pub struct AddressEvents(Socket);

impl AddressEvents {
    /// Subscribes in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The process has no descriptors or memory left, or no netlink (a sandbox).
    pub fn open() -> Result<Self, NetError> {
        let wrap = |e: io::Error| NetError::from_io("watch the addresses", &e);
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(wrap)?;
        socket.bind(&SocketAddr::new(0, IPV4_ADDRESSES | IPV6_ADDRESSES)).map_err(wrap)?;
        socket.set_non_blocking(true).map_err(wrap)?;
        Ok(Self(socket))
    }

    /// Drains the pending notifications; returns whether there were any.
    pub fn take(&self) -> bool {
        let mut any = false;
        loop {
            // Truncated: only the fact of a change matters.
            match self.0.recv(&mut &mut [0_u8; 64][..], libc::MSG_TRUNC) {
                Ok(_) => any = true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // The receive queue overflowed.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => any = true,
                Err(_) => return any,
            }
        }
    }
}

impl AsFd for AddressEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `RTMGRP_IPV4_IFADDR` of linux/rtnetlink.h.
const IPV4_ADDRESSES: u32 = 0x10;
/// `RTMGRP_IPV6_IFADDR` of linux/rtnetlink.h.
const IPV6_ADDRESSES: u32 = 0x100;

#[cfg(test)]
mod tests {
    use super::super::{NetNs, Netlink, testing};
    use super::*;
    use crate::poll::poll;
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    #[test]
    fn take__an_added_or_removed_address_is_an_event() {
        if testing::lacks_privilege("take") {
            return;
        }
        let ns = NetNs::new_anonymous().expect("privileged");
        let events = ns.run(AddressEvents::open).expect("privileged").expect("netlink");
        let mut netlink = Netlink::open_in(&ns).expect("netlink");
        // The notification of an IPv6 address may be later than the address itself.
        let notified = || {
            let mut entry =
                [libc::pollfd { fd: events.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 }];
            poll(&mut entry, Duration::from_secs(120)).expect("polls");
            events.take()
        };
        for prefix in ["10.0.0.1/32", "fd00::1/128"] {
            while events.take() {}
            netlink.add_address("lo", prefix.parse().expect("a prefix")).expect("privileged");
            assert!(notified(), "{prefix}");
        }
        let all = netlink.all_addresses().expect("netlink");
        assert!(all.iter().any(|(ifindex, a)| (*ifindex, a.prefix.len()) == (1, 128)), "{all:?}");
        while events.take() {}
        netlink.flush_addresses("lo").expect("privileged");
        assert!(notified());
        while events.take() {}
        netlink.set_alias("lo", "no address").expect("privileged");
        assert!(!events.take());
    }
}
