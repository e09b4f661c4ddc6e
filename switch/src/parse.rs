//! Parsing of the header fields that forwarding needs.

use spanwire_wire::{Ethernet, EthernetRepr, MacAddr};

/// The header fields that forwarding needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParsedFrame {
    pub(crate) dst: MacAddr,
    pub(crate) src: MacAddr,
    pub(crate) ip: Option<ParsedIp>,
}

/// The fields of a complete IP header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParsedIp {
    pub(crate) is_v6: bool,
    /// IPv4 addresses are in the upper 32 bits, so that prefixes of both versions compare alike.
    pub(crate) src: u128,
    pub(crate) dst: u128,
    /// TOS or traffic class.
    pub(crate) tos: u8,
    pub(crate) protocol: u8,
    /// TTL or hop limit.
    pub(crate) ttl: u8,
    /// Source and destination port of UDP and TCP; 0 for others and for fragments.
    pub(crate) ports: u32,
    /// IPv4 with a wrong header checksum.
    pub(crate) is_broken: bool,
}

impl ParsedFrame {
    /// Parses a frame; `None` if it has no Ethernet header. An incomplete IP header counts as
    /// non-IP.
    #[inline]
    pub(crate) fn of(frame: &[u8]) -> Option<Self> {
        let eth = EthernetRepr::parse(&Ethernet::new(frame).ok()?);
        let rest = &frame[ETHERNET_BYTES..];
        let ip = match eth.ethertype {
            EthernetRepr::IPV4 => v4(rest),
            EthernetRepr::IPV6 => v6(rest),
            _ => None,
        };
        Some(Self { dst: eth.dst, src: eth.src, ip })
    }

    /// The traffic class, 0..8: DSCP / 8; 0 for non-IP frames.
    #[inline]
    pub(crate) fn class(&self) -> u8 {
        self.ip.map_or(0, |ip| ip.tos >> 5)
    }

    /// A hash of the flow: addresses, protocol and ports; for non-IP frames the MAC addresses.
    ///
    /// Two rounds of multiply and shift mix in each word (the finaliser of SplitMix64). Flows that
    /// differ in one bit of one port are thus spread evenly, and differently for each seed.
    #[inline]
    pub(crate) fn flow_hash(&self, seed: u64) -> u64 {
        match &self.ip {
            Some(ip) => {
                let [a, b] = halves(ip.src);
                let [c, d] = halves(ip.dst);
                let h = mix(mix(seed ^ a) ^ c);
                // The lower half of IPv4 addresses is zero.
                let h = if ip.is_v6 { mix(mix(h ^ b) ^ d) } else { h };
                mix(h ^ (u64::from(ip.ports) | u64::from(ip.protocol) << 32))
            }
            None => mix(mix(seed ^ mac_bits(self.src)) ^ mac_bits(self.dst)),
        }
    }
}

/// The 48 bits of a MAC address as a number.
#[inline]
pub(crate) fn mac_bits(mac: MacAddr) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// Spreads every bit over the whole word.
#[inline]
pub(crate) const fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// `hash` scaled to `0..n` without a division.
#[inline]
pub(crate) fn scale(hash: u64, n: u64) -> u64 {
    halves(u128::from(hash) * u128::from(n))[0]
}

/// The upper and the lower half.
#[inline]
pub(crate) fn halves(wide: u128) -> [u64; 2] {
    let b = wide.to_be_bytes();
    let (words, _) = b.as_chunks::<8>();
    [u64::from_be_bytes(words[0]), u64::from_be_bytes(words[1])]
}

#[inline]
fn v4(ip: &[u8]) -> Option<ParsedIp> {
    let header = ip.first_chunk::<20>()?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || header_len < header.len() {
        return None;
    }
    let word = |at: usize| u32::from_be_bytes([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]);
    let is_fragment = word(4) & 0x3fff != 0;
    let protocol = header[9];
    let behind = if is_fragment { None } else { ip.get(header_len..) };
    Some(ParsedIp {
        is_v6: false,
        src: u128::from(word(12)) << 96,
        dst: u128::from(word(16)) << 96,
        tos: header[1],
        protocol,
        ttl: header[8],
        ports: ports(protocol, behind),
        is_broken: !checksum_holds(ip.get(..header_len)?),
    })
}

#[inline]
fn v6(ip: &[u8]) -> Option<ParsedIp> {
    let (header, behind) = ip.split_first_chunk::<40>()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let (_, addresses) = header.split_first_chunk::<8>()?;
    let (words, _) = addresses.as_chunks::<16>();
    let protocol = header[6];
    Some(ParsedIp {
        is_v6: true,
        src: u128::from_be_bytes(words[0]),
        dst: u128::from_be_bytes(words[1]),
        tos: header[0] << 4 | header[1] >> 4,
        protocol,
        ttl: header[7],
        ports: ports(protocol, Some(behind)),
        is_broken: false,
    })
}

#[inline]
fn ports(protocol: u8, behind: Option<&[u8]>) -> u32 {
    match (protocol, behind.and_then(<[u8]>::first_chunk::<4>)) {
        (TCP | UDP, Some(ports)) => u32::from_be_bytes(*ports),
        _ => 0,
    }
}

/// An IPv4 header sums to all ones (RFC 1071).
#[inline]
fn checksum_holds(header: &[u8]) -> bool {
    // 32-bit words give the same sum as 16-bit ones; carries are folded in at the end.
    let (words, _) = header.as_chunks::<4>();
    let sum: u64 = words.iter().map(|w| u64::from(u32::from_be_bytes(*w))).sum();
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum == 0xffff
}

const ETHERNET_BYTES: usize = 14;
const TCP: u8 = 6;
const UDP: u8 = 17;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{roce_frame, roce_frame_v6};
    use spanwire_base::usize_from;

    #[test]
    fn of__reads_addresses_class_and_ports() {
        let mut frame = roce_frame(3, 100);
        let seen = ParsedFrame::of(&frame).unwrap();
        let ip = seen.ip.unwrap();
        assert_eq!(ip.dst >> 96, u128::from(u32::from_be_bytes([10, 0, 0, 3])));
        assert_eq!((ip.ports & 0xffff, ip.protocol, ip.is_broken), (4791, 17, false));
        assert_eq!(seen.class(), 0);
        spanwire_wire::set_dscp(&mut frame, 26);
        assert_eq!(ParsedFrame::of(&frame).unwrap().class(), 3);
        frame[24] ^= 1;
        assert!(ParsedFrame::of(&frame).unwrap().ip.unwrap().is_broken);
        let v6 = ParsedFrame::of(&roce_frame_v6(3, 100)).unwrap().ip.unwrap();
        assert_eq!((v6.is_v6, v6.dst & 0xff, v6.ports & 0xffff), (true, 3, 4791));
    }

    #[test]
    fn of__a_truncated_frame_is_not_ip_or_has_no_ports() {
        for whole in [roce_frame(1, 0), roce_frame_v6(1, 0)] {
            let header = if whole[12] == 8 { 34 } else { 54 };
            for len in 0..whole.len() {
                let seen = ParsedFrame::of(&whole[..len]);
                assert_eq!(seen.is_some(), len >= 14, "{len}");
                let ip = seen.and_then(|s| s.ip);
                assert_eq!(ip.is_some(), len >= header, "{len}");
                assert_eq!(ip.is_some_and(|ip| ip.ports != 0), len >= header + 4, "{len}");
            }
        }
    }

    #[test]
    fn of__a_fragment_has_no_ports_and_options_are_skipped() {
        let mut frame = roce_frame(1, 0);
        frame[20] = 0x20;
        assert_eq!(ParsedFrame::of(&frame).unwrap().ip.unwrap().ports, 0);
        let mut frame = roce_frame(1, 0);
        frame[14] = 0x46;
        let options = ParsedFrame::of(&frame).unwrap().ip.unwrap();
        assert_eq!(options.ports, u32::from_be_bytes([frame[38], frame[39], frame[40], frame[41]]));
        frame[14] = 0x4f;
        assert!(ParsedFrame::of(&frame[..73]).unwrap().ip.is_none(), "longer than the frame");
    }

    #[test]
    fn flow_hash__spreads_ports_evenly_and_by_seed() {
        let mut counts = [0u32; 8];
        let mut same = 0;
        for port in 0..8_000u16 {
            let mut frame = roce_frame(1, 0);
            frame[34..36].copy_from_slice(&port.to_be_bytes());
            let seen = ParsedFrame::of(&frame).unwrap();
            let (a, b) = (scale(seen.flow_hash(1), 8), scale(seen.flow_hash(2), 8));
            counts[usize_from(a)] += 1;
            same += u32::from(a == b);
        }
        assert!(counts.iter().all(|n| (900..1_100).contains(n)), "{counts:?}");
        assert!((900..1_100).contains(&same), "another seed selects differently: {same}");
    }

    #[test]
    fn scale__stays_below() {
        assert_eq!((scale(0, 7), scale(u64::MAX, 7), scale(1 << 63, 8)), (0, 6, 4));
    }
}
