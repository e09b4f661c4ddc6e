//! An interface with a steering program, shared by the ports on its queues.

use super::config::{QUEUES_MAX, XdpPreference};
use super::error::XdpError;
use super::local_addresses::LocalAddresses;
use super::promiscuous::Promiscuous;
use crate::fork::Origin;
use crate::net::{Netlink, SocketOwner, udp_sockets};
use af_xdp::steer::STEER_PORT;
use af_xdp::{AttachMode, Socket, Steering, SteeringConfig, Traffic};
use std::sync::Arc;

/// An interface with a steering program. RoCEv2 to a local address, or all traffic, goes to the
/// ports on its queues; the rest, and queues without a port, go to the kernel.
///
/// Local are the addresses of all interfaces of the namespace that the device was attached in,
/// including those added later. The kernel gets RoCEv2 that the host routes or bridges to others.
///
/// Ports hold the device, so the program stays attached until the device and the last port are
/// dropped. The kernel detaches it when the process ends for any reason.
#[derive(Debug)]
pub struct XdpDevice {
    ifname: String,
    ifindex: u32,
    mtu: u32,
    preference: XdpPreference,
    // Dropped before the program whose map it fills.
    _local_addresses: Option<LocalAddresses>,
    steering: Steering,
    origin: Origin,
    _promiscuous: Option<Promiscuous>,
}

impl XdpDevice {
    /// Attaches the steering program to an interface of this thread's network namespace.
    ///
    /// # Arguments
    /// - `queues`: ports can be opened on queues `0..queues`; 1..=4096.
    /// - `traffic`: the frames for the ports. With [`Traffic::All`] the interface is promiscuous
    ///   while the device lives.
    /// - `preference`: the modes that may be used, by the ports as well.
    ///
    /// # Errors
    /// No such interface, no privilege, another XDP program is attached, another program receives
    /// RoCEv2 of the interface at a UDP socket, or no mode succeeds. Waits
    /// until the kernel has detached the program of a process that was just killed.
    pub fn attach(
        ifname: &str,
        queues: u32,
        traffic: Traffic,
        preference: XdpPreference,
    ) -> Result<Arc<Self>, XdpError> {
        if !(1..=QUEUES_MAX).contains(&queues) {
            let reason = format!("{queues} is not in 1..={QUEUES_MAX}");
            return Err(XdpError::Config { field: "queues", reason });
        }
        let mut netlink = Netlink::open()?;
        let link = netlink.link(ifname)?;
        if traffic == Traffic::RoceV2 {
            check_sockets(&mut netlink, ifname, link.ifindex)?;
        }
        let config = SteeringConfig {
            slots: queues,
            traffic,
            modes: preference.attach_modes(),
            ..SteeringConfig::new(link.ifindex)
        };
        let (steering, rejected) = Steering::attach(&config)?;
        for tried in rejected {
            tracing::warn!(
                interface = ifname,
                mode = tried.mode.as_str(),
                reason = %tried.error,
                "XDP attach mode refused, trying the next"
            );
        }
        let promiscuous = match traffic {
            Traffic::All => Some(Promiscuous::new(ifname, link.ifindex)?),
            Traffic::RoceV2 => None,
        };
        let local_addresses = match steering.addresses() {
            Some(map) => Some(LocalAddresses::keep(ifname, link.ifindex, Arc::clone(map))?),
            None => None,
        };
        Ok(Arc::new(Self {
            _local_addresses: local_addresses,
            ifname: ifname.to_owned(),
            ifindex: link.ifindex,
            mtu: link.mtu,
            preference,
            steering,
            origin: Origin::here(),
            _promiscuous: promiscuous,
        }))
    }

    /// The interface's name when it was attached.
    #[must_use]
    pub fn ifname(&self) -> &str {
        &self.ifname
    }

    /// The interface's index in the namespace it was attached in.
    #[must_use]
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// The interface's MTU when it was attached: bytes of an IP packet.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    pub(super) fn attach_mode(&self) -> AttachMode {
        self.steering.mode()
    }

    pub(super) fn preference(&self) -> XdpPreference {
        self.preference
    }

    pub(super) fn register(&self, queue: u32, socket: &Socket) -> Result<(), XdpError> {
        self.steering.register(queue, socket)?;
        Ok(())
    }

    /// Returns the queue to the kernel before its socket is closed. A process that was forked from
    /// this one leaves the queue to it.
    pub(super) fn unregister(&self, queue: u32) {
        if self.origin.is_here()
            && let Err(error) = self.steering.unregister(queue)
        {
            tracing::warn!(interface = self.ifname, queue, %error, "slot not cleared");
        }
    }
}

/// Refuses an interface whose RoCEv2 another program receives at a UDP socket: the steering program
/// would take it, and the other program would wait for packets that do not arrive.
///
/// Soft-RoCE of the kernel has a socket for all interfaces, whether it is in use or not; on this
/// interface it is a warning.
fn check_sockets(netlink: &mut Netlink, ifname: &str, ifindex: u32) -> Result<(), XdpError> {
    let sockets = match udp_sockets(STEER_PORT) {
        Ok(sockets) => sockets,
        Err(error) => {
            tracing::debug!(interface = ifname, %error, "UDP sockets are not checked");
            return Ok(());
        }
    };
    if sockets.is_empty() {
        return Ok(());
    }
    let own = netlink.all_addresses()?.into_iter().filter(|(of, _)| *of == ifindex);
    let addresses: Vec<_> = own.map(|(_, address)| address.prefix.addr()).collect();
    for socket in sockets.iter().filter(|socket| socket.receives_on(ifindex, &addresses)) {
        match socket.owner() {
            SocketOwner::Rxe(rxe) if rxe.ifname != ifname => {}
            owner @ SocketOwner::Rxe(_) => {
                tracing::warn!(interface = ifname, "{owner} receives nothing from now on");
            }
            owner => return Err(XdpError::PortTaken { ifname: ifname.to_owned(), owner }),
        }
    }
    Ok(())
}
