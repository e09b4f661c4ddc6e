//! Queues and rings of an interface, and the offloads that change received frames.

use super::{Ethtool, check_name};
use crate::net::error::NetError;
use crate::net::sys;
use bytemuck::{Pod, Zeroable};
use std::os::fd::AsFd;

/// The queues of an interface: in use and maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Channels {
    /// Receive queues, including combined ones.
    pub rx: u32,
    /// Transmit queues, including combined ones.
    pub tx: u32,
    /// Maximum receive queues.
    pub rx_max: u32,
    /// Maximum transmit queues.
    pub tx_max: u32,
    /// The queues are pairs: one number sets both (`ethtool -L IF combined N`).
    pub combined: bool,
}

/// Entries of each receive and transmit ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rings {
    /// Entries of a receive ring.
    pub rx: u32,
    /// Entries of a transmit ring.
    pub tx: u32,
    /// Maximum entries of a receive ring.
    pub rx_max: u32,
    /// Maximum entries of a transmit ring.
    pub tx_max: u32,
}

/// Offloads by which a driver delivers other frames than those on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RxRewrites {
    /// Large receive offload: the device merges received packets.
    pub lro: bool,
    /// The device strips VLAN tags.
    pub vlan_strip: bool,
}

impl Ethtool {
    /// The queues of an interface.
    ///
    /// # Errors
    /// No such interface, or a driver that does not report it
    /// ([`Unsupported`](crate::net::NetErrorKind::Unsupported)).
    pub fn channels(&self, name: &str) -> Result<Channels, NetError> {
        let mut raw = RawChannels { command: ETHTOOL_GCHANNELS, ..RawChannels::zeroed() };
        check_name(name)?;
        // SAFETY: ETHTOOL_GCHANNELS works on struct ethtool_channels, which `RawChannels` is.
        unsafe { sys::ethtool(self.socket.as_fd(), name, &mut raw) }
            .map_err(|e| NetError::from_io("read the number of queues", &e).on(name))?;
        Ok(Channels {
            rx: raw.rx.saturating_add(raw.combined),
            tx: raw.tx.saturating_add(raw.combined),
            rx_max: raw.rx_max.saturating_add(raw.combined_max),
            tx_max: raw.tx_max.saturating_add(raw.combined_max),
            combined: raw.combined_max > 0,
        })
    }

    /// The sizes of the rings of an interface.
    ///
    /// # Errors
    /// No such interface, or a driver that does not report it: veth
    /// ([`Unsupported`](crate::net::NetErrorKind::Unsupported)).
    pub fn rings(&self, name: &str) -> Result<Rings, NetError> {
        let mut raw = RawRings { command: ETHTOOL_GRINGPARAM, ..RawRings::zeroed() };
        check_name(name)?;
        // SAFETY: ETHTOOL_GRINGPARAM works on struct ethtool_ringparam, which `RawRings` is.
        unsafe { sys::ethtool(self.socket.as_fd(), name, &mut raw) }
            .map_err(|e| NetError::from_io("read the sizes of the rings", &e).on(name))?;
        Ok(Rings { rx: raw.rx, tx: raw.tx, rx_max: raw.rx_max, tx_max: raw.tx_max })
    }

    /// The offloads by which a driver changes received frames.
    ///
    /// # Errors
    /// No such interface.
    pub fn rx_rewrites(&self, name: &str) -> Result<RxRewrites, NetError> {
        check_name(name)?;
        let flags = match self.value(name, ETHTOOL_GFLAGS, 0) {
            Ok(flags) => flags,
            // The driver has none of the flags.
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => 0,
            Err(e) => return Err(NetError::from_io("read the offload flags", &e).on(name)),
        };
        Ok(RxRewrites { lro: flags & ETH_FLAG_LRO != 0, vlan_strip: flags & ETH_FLAG_RXVLAN != 0 })
    }
}

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RawChannels {
    command: u32,
    rx_max: u32,
    tx_max: u32,
    other_max: u32,
    combined_max: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// `struct ethtool_ringparam`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct RawRings {
    command: u32,
    rx_max: u32,
    rx_mini_max: u32,
    rx_jumbo_max: u32,
    tx_max: u32,
    rx: u32,
    rx_mini: u32,
    rx_jumbo: u32,
    tx: u32,
}

const _: () = assert!(size_of::<RawChannels>() == 36);
const _: () = assert!(size_of::<RawRings>() == 36);

// linux/ethtool.h
const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;
const ETH_FLAG_LRO: u32 = 1 << 15;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{LabConfig, NetErrorKind, TwoHosts, testing};

    #[test]
    fn channels__veth_has_the_configured_queues() {
        if testing::lacks_privilege("channels") {
            return;
        }
        let config = LabConfig { queues: 2, ..LabConfig::default() };
        let hosts = TwoHosts::anonymous(&config).expect("privileged");
        let ethtool = Ethtool::open_in(&hosts.a.ns).expect("privileged");
        let want = Channels { rx: 2, tx: 2, rx_max: 2, tx_max: 2, combined: false };
        let got = ethtool.channels("sw0").expect("veth reports them");
        assert_eq!(Channels { combined: false, ..got }, want);
        let error = ethtool.channels("no-such-dev0").expect_err("no such interface");
        assert_eq!(error.kind(), NetErrorKind::NotFound);
        let error = ethtool.channels("lo").expect_err("loopback has no queues");
        assert_eq!(error.kind(), NetErrorKind::Unsupported);
    }

    #[test]
    fn rings__veth_has_none() {
        if testing::lacks_privilege("rings") {
            return;
        }
        let hosts = TwoHosts::anonymous(&LabConfig::default()).expect("privileged");
        let ethtool = Ethtool::open_in(&hosts.a.ns).expect("privileged");
        match ethtool.rings("sw0") {
            Ok(rings) => assert!(rings.rx <= rings.rx_max && rings.tx <= rings.tx_max, "{rings:?}"),
            Err(error) => assert_eq!(error.kind(), NetErrorKind::Unsupported, "{error}"),
        }
    }

    #[test]
    fn rx_rewrites__veth_strips_no_tags_by_default() {
        if testing::lacks_privilege("rx_rewrites") {
            return;
        }
        let hosts = TwoHosts::anonymous(&LabConfig::default()).expect("privileged");
        let ethtool = Ethtool::open_in(&hosts.a.ns).expect("privileged");
        let before = ethtool.rx_rewrites("sw0").expect("exists");
        assert!(!before.lro, "veth has no LRO");
        let flags = if before.vlan_strip { 0 } else { ETH_FLAG_RXVLAN };
        match ethtool.value("sw0", ETHTOOL_GFLAGS + 1, flags) {
            Ok(_) => {
                let after = ethtool.rx_rewrites("sw0").expect("exists");
                assert_eq!(after.vlan_strip, !before.vlan_strip);
            }
            Err(e) => assert!(e.raw_os_error().is_some(), "{e}"),
        }
    }
}
