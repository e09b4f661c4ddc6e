//! The choice between AF_XDP and UDP sockets.

use super::{Attachment, Error, Wrap, interface};
use spanwire_io::net::{NetError, NetErrorKind};
use spanwire_io::udp::UdpConfig;
use spanwire_io::xdp::{XdpConfig, XdpError};
use spanwire_transport::{Config, QpnWorkers};

/// The fabric to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FabricChoice {
    /// AF_XDP; UDP sockets for a process without the privilege, on a kernel without AF_XDP and on
    /// an interface that is not Ethernet.
    #[default]
    Auto,
    /// AF_XDP.
    Xdp,
    /// UDP sockets of the kernel.
    Udp,
    /// A pipe within one process.
    Pipe,
}

impl FabricChoice {
    /// All choices.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Xdp, Self::Udp, Self::Pipe];

    /// "auto", "xdp", "udp" or "pipe".
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Xdp => "xdp",
            Self::Udp => "udp",
            Self::Pipe => "pipe",
        }
    }

    /// The choice of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }
}

impl Attachment {
    /// Attaches to the interface of `xdp` by the fabric of `choice`, in the network namespace of
    /// the calling thread.
    ///
    /// # Arguments
    /// - `xdp`: interface, queue and rings of AF_XDP.
    /// - `udp`: interface, address and buffers of UDP sockets.
    ///
    /// # Errors
    /// As [`Attachment::xdp`] and [`Attachment::udp`]. [`FabricChoice::Auto`] does not replace
    /// AF_XDP on an interface or queue that is busy: the program attached there takes UDP port 4791
    /// from sockets, too.
    pub fn open(
        choice: FabricChoice,
        xdp: &XdpConfig,
        udp: &UdpConfig,
        wrap: &Wrap,
    ) -> Result<Self, Error> {
        let qpns = Config::default().qpn_workers();
        let mut ports = Self::open_workers(choice, xdp, udp, wrap, (1, qpns))?;
        Ok(ports.pop().expect("one worker has one"))
    }

    /// As [`Attachment::open`], with a port for each of `workers` workers, whose endpoints have the
    /// QPNs of `qpns`.
    ///
    /// # Errors
    /// As [`Attachment::open`], [`Attachment::xdp_workers`] and [`Attachment::udp_workers`].
    pub fn open_workers(
        choice: FabricChoice,
        xdp: &XdpConfig,
        udp: &UdpConfig,
        wrap: &Wrap,
        (workers, qpns): (u32, QpnWorkers),
    ) -> Result<Vec<Self>, Error> {
        let over_udp = || match workers {
            1 => Ok(vec![Self::udp(udp, wrap)?]),
            _ => Self::udp_workers(udp, wrap, workers, qpns),
        };
        match choice {
            FabricChoice::Pipe => Err("a pipe has both of its ends in one process".into()),
            FabricChoice::Xdp => Self::xdp_workers(xdp, wrap, workers),
            FabricChoice::Udp => over_udp(),
            FabricChoice::Auto => {
                let info = interface(&xdp.ifname)?;
                let why = if info.loopback || !info.ethernet {
                    format!("{} is no Ethernet interface", info.name)
                } else {
                    match Self::xdp_workers(xdp, wrap, workers) {
                        Err(e) if is_unavailable(&e) => e.to_string(),
                        opened => return opened,
                    }
                };
                let mut ports = over_udp()?;
                ports.iter_mut().for_each(|port| port.terms.fallback = Some(why.clone()));
                Ok(ports)
            }
        }
    }
}

/// True for an error that shows that AF_XDP is not possible for this process: it lacks the
/// privilege, or the kernel lacks the feature. Not for an interface or queue that is busy.
fn is_unavailable(error: &Error) -> bool {
    let net =
        |e: &NetError| matches!(e.kind(), NetErrorKind::Permission | NetErrorKind::Unsupported);
    match error.downcast_ref() {
        Some(XdpError::Interface(e)) => net(e),
        Some(XdpError::Socket(e)) => e.is_unavailable(),
        Some(_) => false,
        None => error.downcast_ref().is_some_and(net),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_name__is_the_inverse_of_as_str() {
        for choice in FabricChoice::ALL {
            assert_eq!(FabricChoice::from_name(choice.as_str()), Some(choice));
        }
        assert_eq!(FabricChoice::from_name("dpdk"), None);
    }

    #[test]
    fn open__the_loopback_has_udp_only() {
        let local = "127.83.1.10".parse().ok();
        let wrap = Wrap::default();
        let (lo, udp) = (XdpConfig::new("lo"), UdpConfig { local, ..UdpConfig::new("lo") });
        let end = Attachment::open(FabricChoice::Auto, &lo, &udp, &wrap).unwrap();
        assert_eq!(end.fallback.as_deref(), Some("lo is no Ethernet interface"));
        let taken = Attachment::open(FabricChoice::Udp, &lo, &udp, &wrap).err().unwrap();
        assert!(taken.to_string().contains("4791"), "{taken}");
        assert!(!is_unavailable(&taken), "busy");
        let pipe = Attachment::open(FabricChoice::Pipe, &lo, &udp, &wrap).err().unwrap();
        assert!(pipe.to_string().contains("one process"), "{pipe}");
        let missing = XdpConfig::new("sw-none");
        let none = Attachment::open(FabricChoice::Auto, &missing, &udp, &wrap).err().unwrap();
        assert!(none.to_string().contains("sw-none") && !is_unavailable(&none), "{none}");
    }
}
