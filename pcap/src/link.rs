//! Link layers before the IP header: Ethernet with VLAN tags, Linux cooked captures, raw IP.

use spanwire_wire::EthernetRepr;

/// The fields of a link layer and its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Linked<'a> {
    /// The VLAN ids, outermost first.
    pub vlans: [Option<u16>; VLAN_MAX],
    /// The EtherType of `payload`.
    pub ethertype: u16,
    /// The payload with link padding: an IP packet, or that of another EtherType.
    pub payload: &'a [u8],
}

/// Limit of VLAN tags that are removed: a provider's and a customer's.
pub const VLAN_MAX: usize = 2;

/// True for a link type that [`unlink`] supports.
#[must_use]
pub fn is_known(link: u32) -> bool {
    matches!(link, ETHERNET | SLL | SLL2) || is_raw(link)
}

/// Removes the link layer; `None` if the bytes end inside it or the link type is not supported.
#[must_use]
pub fn unlink(link: u32, bytes: &[u8]) -> Option<Linked<'_>> {
    let (protocol_at, len) = match link {
        ETHERNET => (12, 14),
        SLL => (14, 16),
        SLL2 => (0, 20),
        _ if is_raw(link) => {
            let ethertype = match bytes.first()? >> 4 {
                4 => EthernetRepr::IPV4,
                6 => EthernetRepr::IPV6,
                _ => return None,
            };
            return Some(Linked { vlans: [None; VLAN_MAX], ethertype, payload: bytes });
        }
        _ => return None,
    };
    let mut ethertype = u16_at(bytes, protocol_at)?;
    let mut payload = bytes.get(len..)?;
    let mut vlans = [None; VLAN_MAX];
    for vlan in &mut vlans {
        if !TAGS.contains(&ethertype) {
            break;
        }
        *vlan = Some(u16_at(payload, 0)? & 0xfff);
        ethertype = u16_at(payload, 2)?;
        payload = payload.get(4..)?;
    }
    Some(Linked { vlans, ethertype, payload })
}

/// True for link types of raw IP, without a link layer.
fn is_raw(link: u32) -> bool {
    // The first two are the numbers of raw IP in files of BSD and OpenBSD.
    matches!(link, 12 | 14 | 101 | 228 | 229)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

const ETHERNET: u32 = 1;
/// Linux cooked capture v1 and v2, the formats of `tcpdump -i any`.
const SLL: u32 = 113;
const SLL2: u32 = 276;
/// EtherTypes of VLAN tags: 802.1Q, 802.1ad, and QinQ before 802.1ad.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

#[cfg(test)]
mod tests {
    use super::*;

    fn ethernet(types: &[u16]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        for (i, ethertype) in types.iter().enumerate() {
            if i > 0 {
                frame.extend([0xe0, 0x64]);
            }
            frame.extend(ethertype.to_be_bytes());
        }
        frame.extend([0x45, 1]);
        frame
    }

    #[test]
    fn unlink__removes_up_to_two_tags() {
        for (types, tags) in
            [(&[0x800][..], 0), (&[0x8100, 0x800], 1), (&[0x88a8, 0x8100, 0x800], 2)]
        {
            let frame = ethernet(types);
            let linked = unlink(ETHERNET, &frame).unwrap();
            assert_eq!((linked.ethertype, linked.payload), (0x800, &[0x45, 1][..]));
            assert_eq!(linked.vlans, [(tags > 0).then_some(100), (tags > 1).then_some(100)]);
        }
        let frame = ethernet(&[0x8100, 0x8100, 0x8100, 0x800]);
        assert_eq!(unlink(ETHERNET, &frame).unwrap().ethertype, 0x8100, "a third stays");
    }

    #[test]
    fn unlink__no_length_is_trusted() {
        for (link, frame) in [
            (ETHERNET, ethernet(&[0x88a8, 0x8100, 0x800])),
            (SLL, vec![0x81; 16]),
            (SLL2, vec![0; 20]),
            (101, vec![0x45]),
        ] {
            for cut in 0..frame.len() {
                let short = unlink(link, &frame[..cut]);
                assert!(short.is_none_or(|l| l.payload.len() <= cut), "{link}: {cut}");
            }
        }
        assert_eq!(unlink(ETHERNET, &ethernet(&[0x800])[..13]), None);
        assert_eq!(unlink(SLL2, &[0; 19]), None);
        assert_eq!(unlink(101, &[]), None);
    }

    #[test]
    fn unlink__cooked_and_raw() {
        let mut sll = vec![0; 14];
        sll.extend([0x86, 0xdd, 0x60]);
        assert_eq!(
            unlink(SLL, &sll).map(|l| (l.ethertype, l.payload)),
            Some((0x86dd, &[0x60][..]))
        );
        let mut sll2 = vec![0x08, 0x00];
        sll2.extend([0; 18]);
        sll2.push(0x45);
        assert_eq!(
            unlink(SLL2, &sll2).map(|l| (l.ethertype, l.payload)),
            Some((0x800, &[0x45][..]))
        );
        assert_eq!(unlink(228, &[0x45]).map(|l| l.ethertype), Some(0x800));
        assert_eq!(unlink(101, &[0x60]).map(|l| l.ethertype), Some(0x86dd));
        assert_eq!(unlink(101, &[0x10]), None);
        assert_eq!(unlink(147, &sll2), None);
        assert!(is_known(SLL) && is_known(101) && !is_known(147));
    }
}
