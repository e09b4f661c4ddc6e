//! The path to the peer: the headers that every packet starts with, and their entropy.

use crate::attr::{AddressVector, SourcePort};
use spanwire_wire::{IpRepr, Qpn, Template};

/// The peer of a connection: its queue pair and the path to it.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) dest_qpn: Qpn,
    av: AddressVector,
    template: Template,
}

impl Path {
    /// The path of `av`, or `None` when its addresses are of two IP versions.
    pub(crate) fn new(av: AddressVector, local: Qpn, dest_qpn: Qpn) -> Option<Self> {
        let port = match av.udp_src_port {
            SourcePort::Derived => entropy(local, dest_qpn),
            SourcePort::Fixed(port) => port,
            SourcePort::Among { first, count } => among(first, count, local),
        };
        Some(Self { dest_qpn, av, template: av.template(port)? })
    }

    pub(crate) fn template(&self) -> &Template {
        &self.template
    }

    pub(crate) fn template_mut(&mut self) -> &mut Template {
        &mut self.template
    }

    /// A packet with this header comes from the peer and is addressed to us.
    #[inline]
    pub(crate) fn matches(&self, ip: &IpRepr) -> bool {
        ip.src() == self.av.dst_ip && ip.dst() == self.av.src_ip
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

/// The port of [`SourcePort::Among`]. The low bits of a QPN are its slot in the endpoint's table,
/// so queue pairs spread evenly.
fn among(first: u16, count: u16, local: Qpn) -> u16 {
    let count = count.max(1);
    let at = (u32::from(first % count) + local.get()) % u32::from(count);
    (first - first % count).saturating_add(u16::try_from(at).expect("below a u16"))
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

    #[test]
    fn part__parts_have_other_ports_and_all_of_them() {
        let ports = |parts: u32, index| {
            let part = SourcePort::Among { first: 0xfff6, count: 16 }.part(index, parts);
            let SourcePort::Among { first, count } = part else { panic!("{part:?}") };
            let mut ports: Vec<u16> =
                (0..16).map(|slot| among(first, count, Qpn::new(slot))).collect();
            ports.sort_unstable();
            ports.dedup();
            ports
        };
        assert_eq!(ports(1, 0), (0xfff0..=0xffff).collect::<Vec<_>>());
        assert_eq!(ports(4, 1), [0xfff4, 0xfff5, 0xfff6, 0xfff7]);
        for parts in 1..=20 {
            let all: Vec<u16> = (0..parts).flat_map(|index| ports(parts, index)).collect();
            let distinct: std::collections::BTreeSet<_> = all.iter().collect();
            assert!(all.iter().all(|port| *port >= 0xfff0), "{parts}: {all:x?}");
            assert!(distinct.len() == all.len() || parts > 16, "{parts}: {all:x?}");
        }
        assert_eq!(SourcePort::Derived.part(1, 2), SourcePort::Derived);
    }

    #[test]
    fn among__consecutive_queue_pairs_have_all_ports_of_the_block() {
        let ports = |first, count| -> Vec<u16> {
            (0..5).map(|slot| among(first, count, Qpn::new(0x12_3000 + slot))).collect()
        };
        assert_eq!(ports(0xfff6, 4), [0xfff6, 0xfff7, 0xfff4, 0xfff5, 0xfff6]);
        assert_eq!(ports(0xffff, 16)[..3], [0xffff, 0xfff0, 0xfff1]);
        assert_eq!(ports(0xc123, 1), [0xc123; 5]);
        assert_eq!(ports(0xc123, 0), [0xc123; 5], "taken for one");
        assert_eq!(among(0xffff, 0xffff, Qpn::new(0xff_ffff)), 0xffff);
    }
}
