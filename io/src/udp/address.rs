//! Socket addresses as the kernel's bytes (`struct sockaddr_in`, `struct sockaddr_in6`).

use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A socket address in the kernel's layout.
#[repr(C, align(4))]
#[derive(Clone, Debug)]
pub(super) struct Address {
    bytes: [u8; V6_LEN],
    len: usize,
}

impl Address {
    /// Room for an address to receive.
    pub(super) const fn empty() -> Self {
        Self { bytes: [0; V6_LEN], len: 0 }
    }

    pub(super) fn new(address: SocketAddr) -> Self {
        let mut this = Self::empty();
        let (family, ip, at) = match address {
            SocketAddr::V4(v4) => (libc::AF_INET, &v4.ip().octets()[..], V4_IP),
            SocketAddr::V6(v6) => {
                this.bytes[V6_SCOPE..].copy_from_slice(&v6.scope_id().to_ne_bytes());
                (libc::AF_INET6, &v6.ip().octets()[..], V6_IP)
            }
        };
        this.len = if family == libc::AF_INET { V4_LEN } else { V6_LEN };
        this.bytes[..2].copy_from_slice(&family_bytes(family));
        this.bytes[PORT..PORT + 2].copy_from_slice(&address.port().to_be_bytes());
        this.bytes[at..at + ip.len()].copy_from_slice(ip);
        this
    }

    /// The address; IPv4 in IPv6 as IPv4. `None` if it is neither.
    pub(super) fn get(&self) -> Option<SocketAddr> {
        let bytes = &self.bytes[..self.len.min(V6_LEN)];
        let port = u16::from_be_bytes(*bytes.get(PORT..)?.first_chunk()?);
        let family = bytes.first_chunk::<2>()?;
        if *family == family_bytes(libc::AF_INET) {
            let ip = Ipv4Addr::from(*bytes.get(V4_IP..)?.first_chunk::<4>()?);
            return Some(SocketAddrV4::new(ip, port).into());
        }
        if *family != family_bytes(libc::AF_INET6) {
            return None;
        }
        let ip = Ipv6Addr::from(*bytes.get(V6_IP..)?.first_chunk::<16>()?);
        let scope = u32::from_ne_bytes(*bytes.get(V6_SCOPE..)?.first_chunk()?);
        Some(match ip.to_ipv4_mapped() {
            Some(v4) => SocketAddrV4::new(v4, port).into(),
            None => SocketAddrV6::new(ip, port, 0, scope).into(),
        })
    }

    /// The bytes of the address.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// All of the room, for an address to receive; [`Address::set_len`] says how many bytes.
    pub(super) fn buffer(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.len = len.min(V6_LEN);
    }
}

fn family_bytes(family: c_int) -> [u8; 2] {
    u16::try_from(family).expect("a small number").to_ne_bytes()
}

const PORT: usize = 2;
const V4_IP: usize = 4;
const V4_LEN: usize = 16;
const V6_IP: usize = 8;
const V6_SCOPE: usize = 24;
const V6_LEN: usize = 28;

const _: () = assert!(size_of::<libc::sockaddr_in>() == V4_LEN);
const _: () = assert!(size_of::<libc::sockaddr_in6>() == V6_LEN);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get__is_the_inverse_of_new() {
        for text in ["192.0.2.1:4791", "[2001:db8::1]:1", "[fe80::2%7]:65535", "[::]:0"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(Address::new(address).get(), Some(address));
        }
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:9".parse().expect("an address");
        assert_eq!(Address::new(mapped).get(), "192.0.2.1:9".parse().ok());
    }

    #[test]
    fn get__refuses_what_is_cut_off_or_of_another_family() {
        assert_eq!(Address::empty().get(), None);
        let mut short = Address::new("[2001:db8::1]:1".parse().expect("an address"));
        short.set_len(20);
        assert_eq!(short.get(), None);
        let mut unix = Address::empty();
        unix.buffer()[0] = 1;
        unix.set_len(usize::MAX);
        assert_eq!(unix.get(), None);
    }
}
