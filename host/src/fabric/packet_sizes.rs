//! The largest packets of an attachment and of the paths through it.

use super::Error;
use spanwire_io::net::Netlink;
use spanwire_transport::Mtu;
use std::net::IpAddr;

/// The largest packets of an attachment, or of a path through it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketSizes {
    /// Bytes of the longest IP packet.
    pub ip_bytes: u32,
    /// The largest path MTU.
    pub path_mtu: Mtu,
    /// The interface; none has routes otherwise.
    pub(super) ifindex: Option<u32>,
}

impl PacketSizes {
    /// Those on the path to `peer`: the interface may have another MTU by now, and the route a
    /// metric of its own. Unlimited without a peer's address, and if the kernel does not answer.
    ///
    /// # Errors
    /// The path is too narrow for RoCEv2.
    pub fn to(self, peer: Option<IpAddr>) -> Result<Self, Error> {
        let Some((ifindex, peer)) = self.ifindex.zip(peer) else { return Ok(self) };
        let mtu = Netlink::open().and_then(|mut netlink| netlink.path_mtu(peer, ifindex));
        let mtu = mtu.inspect_err(|e| tracing::debug!("no path MTU to {peer}: {e}"));
        self.within(mtu.unwrap_or(self.ip_bytes))
            .ok_or_else(|| format!("the path to {peer} has an MTU too small for RoCEv2").into())
    }

    /// Those for IP packets of at most `mtu` bytes.
    fn within(self, mtu: u32) -> Option<Self> {
        let ip_bytes = self.ip_bytes.min(mtu);
        Some(Self { ip_bytes, path_mtu: self.path_mtu.min(Mtu::for_link(ip_bytes)?), ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within__is_no_more_than_both() {
        let sizes = PacketSizes { ip_bytes: 9000, path_mtu: Mtu::B2048, ifindex: None };
        assert_eq!(sizes.within(9001), Some(sizes));
        let narrow = sizes.within(1000).expect("wide enough");
        assert_eq!((narrow.ip_bytes, narrow.path_mtu), (1000, Mtu::B512));
        assert_eq!(sizes.within(300), None);
    }
}
