//! Synchronisation of a steering program's address map with the local addresses.

use super::XdpError;
use crate::event::EventFd;
use crate::fork::Origin;
use crate::net::{AddressEvents, NetError, Netlink};
use crate::poll::poll;
use af_xdp::AddressMap;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A thread that copies the unicast addresses of a network namespace to an address map, initially
/// and after every change. Dropping it ends the thread; the map keeps its content.
///
/// The addresses are those of all interfaces: Linux accepts a packet to any of them on any
/// interface ("weak host model"), and servers are often reached at an address of `lo` or of a
/// bridge. Loopback addresses are excluded, because no external packet may have them. IPv6
/// link-local addresses are accepted on their own interface only.
#[derive(Debug)]
pub(super) struct LocalAddresses {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
    origin: Origin,
}

struct Watch {
    ifname: String,
    ifindex: u32,
    map: Arc<AddressMap>,
    events: AddressEvents,
    netlink: Netlink,
    stop: Arc<EventFd>,
}

impl LocalAddresses {
    /// Fills the map with the addresses of the calling thread's network namespace, and keeps it
    /// current. If not all fit, those of interface `ifindex` take precedence.
    ///
    /// # Errors
    /// The kernel does not list its addresses or rejects a change of the map, or no thread can be
    /// created.
    pub(super) fn keep(ifname: &str, ifindex: u32, map: Arc<AddressMap>) -> Result<Self, XdpError> {
        let no_thread = |e| NetError::from_io("watch the addresses", &e).on(ifname);
        let stop = Arc::new(EventFd::new().map_err(no_thread)?);
        // Subscribe before listing, so that a change in between is an event.
        let events = AddressEvents::open()?;
        let (ifname, netlink) = (ifname.to_owned(), Netlink::open()?);
        let mut watch = Watch { ifname, ifindex, map, events, netlink, stop: Arc::clone(&stop) };
        watch.fill()?;
        let name = watch.ifname.clone();
        let thread = thread::Builder::new().name("addresses".to_owned());
        let thread = thread
            .spawn(move || watch.run())
            .map_err(|e| NetError::from_io("watch the addresses", &e).on(name))?;
        Ok(Self { stop, thread: Some(thread), origin: Origin::here() })
    }
}

impl Drop for LocalAddresses {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // The thread is one of the process that this one was forked from.
            return std::mem::forget(self.thread.take());
        }
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            // Its thread has reported a panic.
            let _ = thread.join();
        }
    }
}

impl Watch {
    fn run(mut self) {
        let mut timeout = ASLEEP;
        loop {
            let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let (stop, events) = (self.stop.as_fd(), self.events.as_fd());
            let mut entries = [stop, events].map(|fd| readable(fd.as_raw_fd()));
            if let Err(error) = poll(&mut entries, timeout) {
                tracing::warn!(interface = self.ifname, %error, "addresses are not watched");
                return;
            }
            if entries[0].revents != 0 {
                return;
            }
            let is_due = self.events.take() || timeout == RETRY;
            if !is_due {
                continue;
            }
            timeout = match self.fill() {
                Ok(()) => ASLEEP,
                Err(error) => {
                    let interface = self.ifname.as_str();
                    tracing::warn!(interface, %error, "addresses not steered, trying again");
                    RETRY
                }
            };
        }
    }

    fn fill(&mut self) -> Result<(), XdpError> {
        let mut all = self.netlink.all_addresses()?;
        // An address that failed duplicate detection belongs to another host.
        all.retain(|(ifindex, address)| {
            !address.duplicate && is_accepted(address.prefix.addr(), *ifindex == self.ifindex)
        });
        all.sort_by_key(|(ifindex, _)| *ifindex != self.ifindex);
        // An address may be on several interfaces, as link-local ones often are.
        let mut seen = BTreeSet::new();
        let addresses: Vec<IpAddr> = all.iter().map(|(_, address)| address.prefix.addr()).collect();
        let unique = addresses.into_iter().filter(|address| seen.insert(*address));
        let left_out = self.map.replace(unique)?;
        if left_out > 0 {
            tracing::warn!(
                interface = self.ifname,
                left_out,
                "too many local addresses to steer: RoCEv2 to the rest goes to the kernel"
            );
        }
        Ok(())
    }
}

/// True if the kernel accepts packets to `address`; `is_own`: it is an address of this interface.
fn is_accepted(address: IpAddr, is_own: bool) -> bool {
    let is_link_local = matches!(address, IpAddr::V6(ip) if ip.is_unicast_link_local());
    !address.is_loopback() && (is_own || !is_link_local)
}

/// Nothing is due until an address changes; a spurious wakeup is harmless.
const ASLEEP: Duration = Duration::from_secs(3600);
/// Interval after an error, which is most likely a lack of memory.
const RETRY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_accepted__loopback_never_and_link_local_on_its_own_interface() {
        for (address, own, other) in [
            ("127.0.0.1", false, false),
            ("::1", false, false),
            ("fe80::1", true, false),
            ("10.0.0.1", true, true),
            ("169.254.0.1", true, true),
            ("2001:db8::1", true, true),
        ] {
            let address = address.parse().unwrap();
            let found = (is_accepted(address, true), is_accepted(address, false));
            assert_eq!(found, (own, other), "{address}");
        }
    }
}
