//! Longest prefix match.

use crate::units::Human;
use std::fmt;
use std::net::IpAddr;
use std::ops::BitAnd;

/// A network: the first `len` bits of `addr`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Prefix {
    addr: IpAddr,
    len: u8,
}

/// A table of values by prefix, of both IP versions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    v4: Lpm<u32>,
    v6: Lpm<u128>,
}

/// A table of values by prefix, of one IP version, whose addresses are numbers of type `K`.
///
/// For each length in use, longest first, it has the sorted networks of that length: a lookup is a
/// binary search per length. Tables of data centres have few lengths.
#[derive(Clone, Debug)]
struct Lpm<K> {
    levels: Vec<Level<K>>,
}

#[derive(Clone, Debug)]
struct Level<K> {
    len: u8,
    mask: K,
    /// Ascending, separate from the values so that a search touches few cache lines.
    networks: Vec<K>,
    values: Vec<u32>,
}

impl Prefix {
    /// A network; `None` if `len` is longer than the address, or host bits are set.
    #[must_use]
    pub fn new(addr: IpAddr, len: u8) -> Option<Self> {
        let most = if addr.is_ipv6() { 128 } else { 32 };
        let fits = len <= most && bits(addr) & !mask(len) == 0;
        fits.then_some(Self { addr, len })
    }

    /// Its first address.
    #[must_use]
    pub const fn addr(&self) -> IpAddr {
        self.addr
    }

    /// Its prefix length: 0 for all addresses of its version.
    #[must_use]
    pub const fn fixed_bits(&self) -> u8 {
        self.len
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

impl Human for Prefix {
    const EXPECTED: &'static str = "a network such as \"10.0.1.0/24\" or \"fd00::/64\", no bits \
                                    set behind its length";

    fn parse(text: &str) -> Option<Self> {
        let (addr, len) = match text.split_once('/') {
            Some((addr, len)) => (addr.parse::<IpAddr>().ok()?, len.parse().ok()?),
            None => {
                let addr = text.parse::<IpAddr>().ok()?;
                (addr, if addr.is_ipv6() { 128 } else { 32 })
            }
        };
        Self::new(addr, len)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl Routes {
    /// Adds a prefix; false if it is already present, and the first value stays.
    pub(crate) fn insert(&mut self, prefix: Prefix, value: u32) -> bool {
        let mask = mask(prefix.len);
        match prefix.addr {
            IpAddr::V4(addr) => self.v4.insert(addr.to_bits(), prefix.len, upper(mask), value),
            IpAddr::V6(addr) => self.v6.insert(addr.to_bits(), prefix.len, mask, value),
        }
    }

    /// The value of the longest prefix that contains an address, left-aligned: an IPv4 address is
    /// in the upper 32 bits.
    #[inline]
    pub(crate) fn lookup(&self, is_v6: bool, addr: u128) -> Option<u32> {
        if is_v6 { self.v6.lookup(addr) } else { self.v4.lookup(upper(addr)) }
    }
}

impl<K> Default for Lpm<K> {
    fn default() -> Self {
        Self { levels: Vec::new() }
    }
}

impl<K: Copy + Ord + BitAnd<Output = K>> Lpm<K> {
    /// Adds the network of `len` bits with its `mask`; false if it is already present, and the
    /// first value stays.
    fn insert(&mut self, network: K, len: u8, mask: K, value: u32) -> bool {
        let at = self.levels.binary_search_by(|l| len.cmp(&l.len)).unwrap_or_else(|at| {
            let level = Level { len, mask, networks: Vec::new(), values: Vec::new() };
            self.levels.insert(at, level);
            at
        });
        let level = &mut self.levels[at];
        match level.networks.binary_search(&network) {
            Ok(_) => false,
            Err(at) => {
                level.networks.insert(at, network);
                level.values.insert(at, value);
                true
            }
        }
    }

    /// The value of the longest prefix that contains `addr`.
    #[inline]
    fn lookup(&self, addr: K) -> Option<u32> {
        self.levels.iter().find_map(|level| {
            let at = level.networks.binary_search(&(addr & level.mask)).ok()?;
            Some(level.values[at])
        })
    }
}

/// An address left-aligned in 128 bits.
fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(a) => u128::from(a.to_bits()) << 96,
        IpAddr::V6(a) => a.to_bits(),
    }
}

/// The upper 32 bits.
#[inline]
fn upper(bits: u128) -> u32 {
    let [a, b, c, d, ..] = bits.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_base::Rng;

    #[test]
    fn prefix__parses_networks_and_rejects_host_bits() {
        for text in ["10.0.1.0/24", "0.0.0.0/0", "10.1.2.3/32", "fd00::/64", "::/0"] {
            assert_eq!(Prefix::parse(text).unwrap().show(), text);
        }
        assert_eq!(Prefix::parse("10.1.2.3").unwrap().show(), "10.1.2.3/32");
        assert_eq!(Prefix::parse("::1").unwrap().show(), "::1/128");
        for text in ["10.0.1.1/24", "10.0.0.0/33", "fd00::1/64", "::/129", "10.0.0/8", "/8", ""] {
            assert_eq!(Prefix::parse(text), None, "{text}");
        }
    }

    #[test]
    fn lookup__separates_the_versions() {
        let mut routes = Routes::default();
        for (value, text) in (0..).zip(["0.0.0.0/0", "fd00::/64", "fd00::1", "10.0.0.1"]) {
            assert!(routes.insert(Prefix::parse(text).unwrap(), value));
        }
        let at = |text: &str| {
            let addr: IpAddr = text.parse().unwrap();
            routes.lookup(addr.is_ipv6(), bits(addr))
        };
        assert_eq!((at("10.0.0.1"), at("10.0.0.2")), (Some(3), Some(0)));
        assert_eq!((at("fd00::1"), at("fd00::2"), at("fd01::")), (Some(2), Some(1), None));
    }

    #[test]
    fn lookup__agrees_with_a_scan_of_all_prefixes() {
        let mut rng = Rng::new(8);
        for _ in 0..50 {
            let mut lpm = Routes::default();
            let mut all: Vec<(u8, u128, u32)> = Vec::new();
            for value in 0..40 {
                let len = u8::try_from(rng.below(33)).unwrap();
                // Few distinct bits, so that prefixes nest and collide.
                let raw = u32::try_from(rng.below(1 << 32)).unwrap() & 0x8080_8081;
                let addr = raw & u32::try_from(mask(len) >> 96).unwrap();
                let prefix = Prefix::new(IpAddr::V4(addr.into()), len).unwrap();
                let key = bits(prefix.addr);
                let known = all.iter().any(|(l, k, _)| (*l, *k) == (len, key));
                assert_eq!(lpm.insert(prefix, value), !known);
                if !known {
                    all.push((len, key, value));
                }
            }
            for _ in 0..200 {
                let addr =
                    u128::from(u32::try_from(rng.below(1 << 32)).unwrap() & 0x8080_8083) << 96;
                let holds = |(len, key, _): &&(u8, u128, u32)| addr & mask(*len) == *key;
                let want = all.iter().filter(holds).max_by_key(|(len, _, _)| *len);
                assert_eq!(lpm.lookup(false, addr), want.map(|(_, _, value)| *value));
            }
        }
    }
}
