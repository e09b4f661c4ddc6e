//! The keys of one queue pair: number, first PSN, memory and address, as a line of hex.

use super::PerftestError;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

/// One end's keys of one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keys {
    /// InfiniBand's local identifier; 0 on Ethernet.
    pub lid: u16,
    /// READs and atomics that the sender can respond to at a time.
    pub out_reads: u16,
    /// Queue pair number, 24 bits.
    pub qpn: u32,
    /// First PSN of the sender, 24 bits.
    pub psn: u32,
    /// Remote key of its memory; 0 if the peer needs none.
    pub rkey: u32,
    /// Virtual address of its memory.
    pub va: u64,
    /// The RoCE address as a GID. `None` on InfiniBand without a global route.
    pub gid: Option<[u8; 16]>,
    /// Shared receive queue; 0 for RC.
    pub srqn: u32,
}

/// Bytes of the keys with a GID, its closing NUL included.
pub const KEYS_BYTES: usize = 108;

/// Bytes of the keys without a GID.
pub const KEYS_BYTES_WITHOUT_GID: usize = 59;

impl Keys {
    /// Encodes the message.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { lid, out_reads, qpn, psn, rkey, va, gid, srqn } = self;
        let mut text =
            format!("{lid:04x}:{out_reads:04x}:{qpn:06x}:{psn:06x}:{rkey:08x}:{va:016x}:");
        for byte in gid.iter().flatten() {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}:");
        }
        let _ = write!(text, "{srqn:08x}");
        if gid.is_some() {
            text.push(':');
        }
        text.push('\0');
        text.into_bytes()
    }

    /// Parses a message of [`KEYS_BYTES`] or [`KEYS_BYTES_WITHOUT_GID`].
    ///
    /// # Errors
    /// [`PerftestError::Garbled`] if it is not a line of keys, or a number in it is out of range.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PerftestError> {
        Self::parse(bytes).ok_or_else(|| PerftestError::garbled("the line of keys", bytes))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.trim_end_matches('\0');
        let fields: Vec<&str> = text.trim_end_matches(':').split(':').collect();
        let (gid, srqn) = match fields.len() {
            7 => (None, fields[6]),
            23 => {
                let mut gid = [0; 16];
                for (byte, field) in gid.iter_mut().zip(&fields[6..22]) {
                    *byte = hex(field, 0xff)?.try_into().ok()?;
                }
                (Some(gid), fields[22])
            }
            _ => return None,
        };
        Some(Self {
            lid: hex(fields[0], 0xffff)?.try_into().ok()?,
            out_reads: hex(fields[1], 0xffff)?.try_into().ok()?,
            qpn: hex(fields[2], 0xff_ffff)?.try_into().ok()?,
            psn: hex(fields[3], 0xff_ffff)?.try_into().ok()?,
            rkey: hex(fields[4], u32::MAX.into())?.try_into().ok()?,
            va: hex(fields[5], u64::MAX)?,
            gid,
            srqn: hex(srqn, u32::MAX.into())?.try_into().ok()?,
        })
    }

    /// The RoCE address.
    ///
    /// # Errors
    /// [`PerftestError::NoGid`] without one.
    pub fn ip(&self) -> Result<IpAddr, PerftestError> {
        match self.gid {
            Some(gid) if gid != [0; 16] => Ok(IpAddr::V6(Ipv6Addr::from(gid)).to_canonical()),
            _ => Err(PerftestError::NoGid),
        }
    }
}

/// An address as a RoCEv2 GID: an IPv4 one is mapped into IPv6 (`::ffff:a.b.c.d`).
#[must_use]
pub fn gid_of(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// A hexadecimal number of at most `max`, without sign.
fn hex(text: &str, max: u64) -> Option<u64> {
    if !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(text, 16).ok().filter(|n| *n <= max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        let gid = Some(gid_of("10.77.0.2".parse().unwrap()));
        let (qpn, psn, rkey, va) = (0x16, 0x00ab_5b16, 0x735, 0x5634_f5cb_e38a);
        Keys { lid: 0, out_reads: 16, qpn, psn, rkey, va, gid, srqn: 0 }
    }

    #[test]
    fn to_bytes__has_a_fixed_length() {
        let most = Keys {
            lid: u16::MAX,
            out_reads: u16::MAX,
            qpn: 0xff_ffff,
            psn: 0xff_ffff,
            rkey: u32::MAX,
            va: u64::MAX,
            gid: Some([0xff; 16]),
            srqn: u32::MAX,
        };
        for keys in [keys(), most] {
            assert_eq!(keys.to_bytes().len(), KEYS_BYTES);
            assert_eq!(Keys::from_bytes(&keys.to_bytes()).unwrap(), keys);
            let short = Keys { gid: None, ..keys };
            assert_eq!(short.to_bytes().len(), KEYS_BYTES_WITHOUT_GID);
            assert_eq!(short.to_bytes().last(), Some(&0));
            assert_eq!(Keys::from_bytes(&short.to_bytes()).unwrap(), short);
        }
    }

    #[test]
    fn from_bytes__rejects_malformed_keys() {
        let good = String::from_utf8(keys().to_bytes()).unwrap();
        let bad = [
            String::new(),
            "x".repeat(KEYS_BYTES),
            ":".repeat(KEYS_BYTES),
            good.replace("000016:", "1000016:"),
            good.replace("000016:", "+00016:"),
            good.replace("000016:", ":"),
            good.replace("00000735", "100000735"),
            good.replacen(":00:", ":100:", 1),
            // With data validation the tools send a second address before the GID.
            good.replacen(":00:", ":0000000000000000:00:", 1),
        ];
        for text in bad {
            let outcome = Keys::from_bytes(text.as_bytes());
            assert!(matches!(outcome, Err(PerftestError::Garbled { .. })), "{text}: {outcome:?}");
        }
    }

    #[test]
    fn ip__is_the_gids_address() {
        assert_eq!(keys().ip().unwrap().to_string(), "10.77.0.2");
        let v6 = Keys { gid: Some(gid_of("fd77::2".parse().unwrap())), ..keys() };
        assert_eq!(v6.ip().unwrap().to_string(), "fd77::2");
        for gid in [None, Some([0; 16])] {
            assert!(matches!(Keys { gid, ..keys() }.ip(), Err(PerftestError::NoGid)));
        }
    }
}
