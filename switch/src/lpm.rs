//! Longest prefix match.

use std::fmt;
use std::net::IpAddr;

use crate::units::Human;

/// A network: the first `len` bits of `addr`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Prefix {
    addr: IpAddr,
    len: u8,
}

/// Values by prefix, of one IP version.
///
/// For each length in use, longest first, the prefixes of that length in order: a lookup is a
/// binary search a length. Tables of data centres have few lengths.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lpm {
    levels: Vec<Level>,
}

#[derive(Clone, Debug)]
struct Level {
    len: u8,
    mask: u128,
    /// (network, value), ascending.
    entries: Vec<(u128, u32)>,
}

impl Prefix {
    /// A network; `None` when `len` is longer than the address, or bits behind it are set.
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

impl Lpm {
    /// Adds a prefix; false when it is there already, the first value then stays.
    pub(crate) fn insert(&mut self, prefix: Prefix, value: u32) -> bool {
        let at = self.levels.binary_search_by(|l| prefix.len.cmp(&l.len)).unwrap_or_else(|at| {
            let level = Level { len: prefix.len, mask: mask(prefix.len), entries: Vec::new() };
            self.levels.insert(at, level);
            at
        });
        let entries = &mut self.levels[at].entries;
        let key = bits(prefix.addr);
        match entries.binary_search_by_key(&key, |(network, _)| *network) {
            Ok(_) => false,
            Err(at) => {
                entries.insert(at, (key, value));
                true
            }
        }
    }

    /// The value of the longest prefix that holds `addr`, its bits from the top.
    #[inline]
    pub(crate) fn lookup(&self, addr: u128) -> Option<u32> {
        self.levels.iter().find_map(|level| {
            let key = addr & level.mask;
            let at = level.entries.binary_search_by_key(&key, |(network, _)| *network).ok()?;
            Some(level.entries[at].1)
        })
    }
}

/// The bits of an address from the top; an IPv4 address is the upper 32.
fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(a) => u128::from(a.to_bits()) << 96,
        IpAddr::V6(a) => a.to_bits(),
    }
}

fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_base::Rng;

    #[test]
    fn prefix__reads_networks_and_refuses_host_bits() {
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
    fn lookup__agrees_with_a_scan_of_all_prefixes() {
        let mut rng = Rng::new(8);
        for _ in 0..50 {
            let mut lpm = Lpm::default();
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
                assert_eq!(lpm.lookup(addr), want.map(|(_, _, value)| *value));
            }
        }
    }
}
