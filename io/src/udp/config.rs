//! Parameters of a UDP port, and the reasons why it cannot be opened.

use super::checksum::PacketChecksum;
use crate::net::NetError;
use af_xdp::open_files_advice;
use std::fmt;
use std::io;
use std::net::IpAddr;

/// Parameters of a [`UdpPort`](super::UdpPort).
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// The interface. Unless it is the loopback, sockets that send are bound to it, and one that
    /// receives at any address.
    pub ifname: String,
    /// The address to receive at. `None`: every address of the interface, IPv4 and IPv6.
    pub local: Option<IpAddr>,
    /// The UDP port to receive at. Default 4791, RoCEv2.
    pub port: u16,
    /// Longest IP packet in bytes, 1280..=65,535; the interface's MTU if that is less. Default
    /// 65,535.
    pub ip_bytes_max: u32,
    /// Receive buffer to request in bytes, 4,096..=2^30. Linux grants twice of what `rmem_max`
    /// allows and counts its own overhead; see [`UdpPort::receive_buffer`]. Default 8 MiB.
    ///
    /// [`UdpPort::receive_buffer`]: super::UdpPort::receive_buffer
    pub receive_buffer: u32,
    /// Send buffer to request in bytes, 4,096..=2^30. Default 4 MiB: several bursts of the driver.
    pub send_buffer: u32,
    /// Chooses the UDP source port among 0xc000..=0xffff. Default 0; two ports at one address need
    /// not differ.
    pub seed: u64,
    /// Accepts IPv4 packets whose checksum is right with any identification, not only with one
    /// below 128: of senders that count on from packet to packet, as Linux rxe does. Sixteen bits
    /// of the checksum are then left to detect a corrupted packet. Default no.
    pub any_id: bool,
    /// The checksum at the end of each packet, if packets have one; see [`PacketChecksum`].
    pub checksum: Option<PacketChecksum>,
    /// The port is one of several at its address; see [`UdpPort::open_group`]. Default no.
    ///
    /// [`UdpPort::open_group`]: super::UdpPort::open_group
    pub group: Option<UdpGroup>,
}

/// Which of several ports receives a datagram: that of the number which its bytes 4 to 8, a word in
/// network order, have behind `shift` and under `mask`. A number that no port has is left to a hash
/// of addresses and ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpGroup {
    /// Bits below the number, 0..=31.
    pub shift: u32,
    /// The number's bits, shifted down.
    pub mask: u32,
}

impl UdpConfig {
    /// The defaults for an interface.
    #[must_use]
    pub fn new(ifname: &str) -> Self {
        Self {
            ifname: ifname.to_owned(),
            local: None,
            port: ROCE_PORT,
            ip_bytes_max: 65_535,
            receive_buffer: 8 << 20,
            send_buffer: 4 << 20,
            seed: 0,
            any_id: false,
            checksum: None,
            group: None,
        }
    }

    /// Checks all ranges.
    ///
    /// # Errors
    /// [`UdpError::Config`] for the first field that is outside its range.
    pub fn validate(&self) -> Result<(), UdpError> {
        let buffers = 4096..=1 << 30;
        for (field, value, range) in [
            ("ip_bytes_max", self.ip_bytes_max, 1280..=65_535),
            ("receive_buffer", self.receive_buffer, buffers.clone()),
            ("send_buffer", self.send_buffer, buffers),
        ] {
            if !range.contains(&value) {
                let reason = format!("{value} is not in {}..={}", range.start(), range.end());
                return Err(UdpError::Config { field, reason });
            }
        }
        Ok(())
    }
}

/// The reason why a UDP port cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum UdpError {
    /// A parameter is out of its range.
    Config {
        /// The field of [`UdpConfig`].
        field: &'static str,
        /// The value and the rule it breaks.
        reason: String,
    },
    /// The interface does not exist or cannot be queried.
    Interface(NetError),
    /// A socket cannot be opened or bound.
    Socket {
        /// Purpose and address of the socket.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl fmt::Display for UdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config { field, reason } => write!(f, "{field}: {reason}"),
            Self::Interface(e) => e.fmt(f),
            Self::Socket { what, source } => {
                write!(f, "cannot open a UDP socket {what}: {source}")?;
                match source.kind() {
                    io::ErrorKind::AddrInUse => f.write_str(
                        " (another process has it: the kernel's rxe, or another Spanwire over UDP; \
                         `ss -ulpn` shows which)",
                    ),
                    io::ErrorKind::AddrNotAvailable => {
                        f.write_str(" (it is no address of this machine)")
                    }
                    _ => match source.raw_os_error().and_then(open_files_advice) {
                        Some(advice) => write!(f, " ({advice})"),
                        None => Ok(()),
                    },
                }
            }
        }
    }
}

impl std::error::Error for UdpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config { .. } => None,
            Self::Interface(e) => Some(e),
            Self::Socket { source, .. } => Some(source),
        }
    }
}

impl From<NetError> for UdpError {
    fn from(e: NetError) -> Self {
        Self::Interface(e)
    }
}

/// The UDP port of RoCEv2.
const ROCE_PORT: u16 = 4791;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validate__names_the_field_and_its_range() {
        UdpConfig::new("lo").validate().expect("the defaults are valid");
        let error_of = |change: fn(&mut UdpConfig)| {
            let mut config = UdpConfig::new("lo");
            change(&mut config);
            config.validate().expect_err("out of range").to_string()
        };
        assert_eq!(
            error_of(|c| c.ip_bytes_max = 1279),
            "ip_bytes_max: 1279 is not in 1280..=65535"
        );
        assert!(error_of(|c| c.receive_buffer = 0).starts_with("receive_buffer: 0 is not in 4096"));
        assert!(error_of(|c| c.send_buffer = u32::MAX).starts_with("send_buffer: "));
    }
}
