//! The keys: one queue pair's number, first PSN, memory and address, as a line of hex.

use super::PerftestError;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

/// What one end says of one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keys {
    /// InfiniBand's local identifier; 0 on Ethernet.
    pub lid: u16,
    /// READs and atomics the sender answers at a time.
    pub out_reads: u16,
    /// Queue pair number, 24 bits.
    pub qpn: u32,
    /// First PSN the sender sends, 24 bits.
    pub psn: u32,
    /// Remote key of its memory; 0 where the peer needs none.
    pub rkey: u32,
    /// Virtual address of that.
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
    /// The message.
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

    /// Reads a message of [`KEYS_BYTES`] or [`KEYS_BYTES_WITHOUT_GID`].
    ///
    /// # Errors
    /// [`PerftestError::Garbled`] when it is no line of keys, or a number in it is out of range.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PerftestError> {
        Self::parse(bytes).ok_or_else(|| PerftestError::garbled("the keys", bytes))
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
