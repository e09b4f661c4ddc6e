//! The path to the peer: the headers that every packet starts with, and their entropy.

use crate::attr::AddressVector;
use spanwire_wire::{Packet, Qpn, Template};

/// One path.
#[derive(Debug)]
pub(crate) struct Path {
    av: AddressVector,
    template: Template,
}

impl Path {
    /// The path of `av`, or `None` when its addresses are of two IP versions.
    pub(crate) fn new(av: AddressVector, local: Qpn, remote: Qpn) -> Option<Self> {
        let port = av.udp_src_port.unwrap_or_else(|| entropy(local, remote));
        let template = Template::new(av.ethernet(), av.ip()?, port);
        Some(Self { av, template })
    }

    pub(crate) fn template(&self) -> &Template {
        &self.template
    }

    /// The packet comes from the peer and is addressed to us.
    pub(crate) fn matches(&self, p: &Packet<'_>) -> bool {
        p.ip.src() == self.av.dst_ip && p.ip.dst() == self.av.src_ip
    }
}

/// The UDP source port (entropy) that Linux derives for a queue pair with flow label 0. Both ends
/// derive the same.
///
/// # Source
/// Seen in the rxe captures and checked there: 20 bits of the product of both QPNs folded to 14.
fn entropy(local: Qpn, remote: Qpn) -> u16 {
    let mut v = u64::from(local.get()) * u64::from(remote.get());
    v ^= v >> 20;
    v ^= v >> 40;
    let label = v & 0xf_ffff;
    let port = ((label & 0x3fff) ^ (label >> 14)) | 0xc000;
    u16::try_from(port).expect("14 bits and the two above them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy__is_symmetric_and_in_the_ephemeral_range() {
        for (a, b) in [(17, 18), (0xff_ffff, 2), (0x12_3456, 0x65_4321)] {
            let (a, b) = (Qpn::new(a), Qpn::new(b));
            assert_eq!(entropy(a, b), entropy(b, a));
            assert!(entropy(a, b) >= 0xc000);
        }
    }
}
