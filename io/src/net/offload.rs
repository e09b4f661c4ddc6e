//! Offloads and driver of an interface, by the ethtool ioctl.

mod queues;

pub use queues::{Channels, Rings, RxRewrites};

use super::error::{NetError, NetErrorKind};
use super::link::check_name;
use super::netns::NetNs;
use super::sys;
use bytemuck::{Pod, Zeroable};
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;

/// A handle for ethtool requests in one namespace.
#[derive(Debug)]
pub struct Ethtool {
    /// Any socket works: it determines the namespace.
    socket: UdpSocket,
}

/// The offloads that determine the speed of kernel TCP on an interface; benchmarks compare all on
/// with all off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offloads {
    /// TCP segmentation offload: the device splits large segments (needs `tx_checksum`).
    pub tso: bool,
    /// Generic segmentation offload: the stack splits large segments last.
    pub gso: bool,
    /// Generic receive offload: the stack merges received segments.
    pub gro: bool,
    /// The device computes checksums of sent packets.
    pub tx_checksum: bool,
}

impl Offloads {
    /// All on.
    pub const ON: Self = Self { tso: true, gso: true, gro: true, tx_checksum: true };

    /// All off.
    pub const OFF: Self = Self { tso: false, gso: false, gro: false, tx_checksum: false };
}

impl Ethtool {
    /// Opens a handle for the namespace of the calling thread.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn open() -> Result<Self, NetError> {
        // The wildcard address works in every namespace, even if lo is down.
        let socket = UdpSocket::bind("0.0.0.0:0")
            .map_err(|e| NetError::from_io("open a socket for ethtool", &e))?;
        Ok(Self { socket })
    }

    /// Opens a handle for a given namespace; the calling thread's namespace does not change.
    ///
    /// # Errors
    /// The process may not enter the namespace (CAP_SYS_ADMIN).
    pub fn open_in(ns: &NetNs) -> Result<Self, NetError> {
        let entered = ns.enter()?;
        let opened = Self::open();
        drop(entered);
        opened
    }

    /// The name of the driver of an interface: `veth`, `mlx5_core`, ...
    ///
    /// # Errors
    /// No such interface, or a driver that does not report it ([`NetErrorKind::Unsupported`]:
    /// `lo`).
    pub fn driver(&self, name: &str) -> Result<String, NetError> {
        check_name(name)?;
        let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, ..DriverInfo::zeroed() };
        // SAFETY: ETHTOOL_GDRVINFO works on struct ethtool_drvinfo, which `DriverInfo` is.
        unsafe { sys::ethtool(self.socket.as_fd(), name, &mut info) }
            .map_err(|e| NetError::from_io("ask for the driver", &e).on(name))?;
        let name = info.driver.split(|byte| *byte == 0).next();
        Ok(String::from_utf8_lossy(name.unwrap_or_default()).into_owned())
    }

    /// The link speed in Mbit/s; `None` if the driver does not know it, as while the link is down,
    /// or if it is nominal: veth and tun report a constant and carry as much as the processor can.
    ///
    /// # Errors
    /// No such interface, or a driver that does not report it ([`NetErrorKind::Unsupported`]:
    /// `lo`).
    pub fn speed_mbps(&self, name: &str) -> Result<Option<u32>, NetError> {
        check_name(name)?;
        let mut settings = LinkSettings { command: ETHTOOL_GSET, ..LinkSettings::zeroed() };
        // SAFETY: ETHTOOL_GSET works on struct ethtool_cmd, which `LinkSettings` is.
        unsafe { sys::ethtool(self.socket.as_fd(), name, &mut settings) }
            .map_err(|e| NetError::from_io("ask for the speed", &e).on(name))?;
        let speed = u32::from(settings.speed_high) << 16 | u32::from(settings.speed_low);
        if SPEEDS_UNKNOWN.contains(&speed) {
            return Ok(None);
        }
        let driver = self.driver(name).unwrap_or_default();
        Ok(Some(speed).filter(|_| !NOMINAL_SPEEDS.contains(&driver.as_str())))
    }

    /// The present offloads of an interface.
    ///
    /// # Errors
    /// No such interface.
    pub fn offloads(&self, name: &str) -> Result<Offloads, NetError> {
        check_name(name)?;
        Ok(Offloads {
            tso: self.feature_state(name, &TSO)?,
            gso: self.feature_state(name, &GSO)?,
            gro: self.feature_state(name, &GRO)?,
            tx_checksum: self.feature_state(name, &TX_CHECKSUM)?,
        })
    }

    /// Sets offloads and verifies them afterwards.
    ///
    /// # Errors
    /// No CAP_NET_ADMIN, or the driver does not change one ([`NetErrorKind::Unsupported`], which
    /// names it): an XDP program on a veth disables segmentation on its peer.
    pub fn set_offloads(&self, name: &str, wanted: &Offloads) -> Result<(), NetError> {
        check_name(name)?;
        // Segmentation needs checksums, so these are enabled before it and disabled after it.
        let checksum = (&TX_CHECKSUM, wanted.tx_checksum);
        let mut steps = [(&TSO, wanted.tso), (&GSO, wanted.gso), (&GRO, wanted.gro), checksum];
        if wanted.tx_checksum {
            steps.rotate_right(1);
        }
        for (feature, on) in steps {
            self.switch(name, feature, on)?;
        }
        for (feature, on) in steps {
            if self.feature_state(name, feature)? != on {
                return Err(refused(feature, on, name));
            }
        }
        Ok(())
    }

    fn feature_state(&self, name: &str, feature: &Feature) -> Result<bool, NetError> {
        let value = self
            .value(name, feature.get, 0)
            .map_err(|e| NetError::from_io(format!("read {}", feature.name), &e).on(name))?;
        Ok(value != 0)
    }

    fn switch(&self, name: &str, feature: &Feature, on: bool) -> Result<(), NetError> {
        match self.value(name, feature.set, u32::from(on)) {
            Ok(_) => Ok(()),
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Err(refused(feature, on, name)),
            Err(e) => {
                let operation = format!("switch {} {}", feature.name, on_off(on));
                Err(NetError::from_io(operation, &e).on(name))
            }
        }
    }

    fn value(&self, name: &str, command: u32, data: u32) -> io::Result<u32> {
        let mut value = Value { command, data };
        // SAFETY: every command in a `Feature` works on struct ethtool_value, which `Value` is.
        unsafe { sys::ethtool(self.socket.as_fd(), name, &mut value) }?;
        Ok(value.data)
    }
}

/// One offload: the commands of linux/ethtool.h that read and set it.
#[derive(Debug)]
struct Feature {
    name: &'static str,
    get: u32,
    set: u32,
}

const TX_CHECKSUM: Feature = Feature { name: "tx checksumming", get: 0x16, set: 0x17 };
const TSO: Feature = Feature { name: "tso", get: 0x1e, set: 0x1f };
const GSO: Feature = Feature { name: "gso", get: 0x23, set: 0x24 };
const GRO: Feature = Feature { name: "gro", get: 0x2b, set: 0x2c };

/// `struct ethtool_value`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Value {
    command: u32,
    data: u32,
}

/// `struct ethtool_drvinfo`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    /// Version, firmware, bus and expansion ROM (32 bytes each), 12 reserved bytes and five counts:
    /// written by the kernel, unused.
    rest: [u8; 4 * 32 + 12 + 5 * 4],
}

/// `struct ethtool_cmd`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct LinkSettings {
    command: u32,
    /// Supported and advertised modes: unused, as are all other fields.
    modes: [u32; 2],
    speed_low: u16,
    port: [u8; 6],
    packets: [u32; 2],
    speed_high: u16,
    mdix: [u8; 2],
    rest: [u32; 3],
}

const _: () = assert!(size_of::<LinkSettings>() == 44);
const _: () = assert!(size_of::<DriverInfo>() == 196);
const _: () = assert!(size_of::<Value>() == 8);

fn refused(feature: &Feature, on: bool, name: &str) -> NetError {
    let operation = format!("switch {} {}", feature.name, on_off(on));
    NetError::new(NetErrorKind::Unsupported, operation)
        .on(name)
        .detail("the driver does not change it")
        .advise("detach XDP programs from the interface and its peer, then try again")
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

const ETHTOOL_GSET: u32 = 1;
const ETHTOOL_GDRVINFO: u32 = 3;

/// `SPEED_UNKNOWN` of linux/ethtool.h, the same in 16 bits, and the value of some drivers.
const SPEEDS_UNKNOWN: [u32; 3] = [u32::MAX, 0xffff, 0];
/// Drivers whose speed is a constant without meaning.
const NOMINAL_SPEEDS: [&str; 2] = ["veth", "tun"];

#[cfg(test)]
mod tests {
    use super::super::hosts::{LabConfig, TwoHosts};
    use super::super::testing;
    use super::*;

    #[test]
    fn driver__veth_unknown_and_bad_names() {
        if testing::lacks_privilege("driver") {
            return;
        }
        let hosts = TwoHosts::anonymous(&LabConfig::default()).expect("privileged");
        let ethtool = Ethtool::open_in(&hosts.a.ns).expect("privileged");
        assert_eq!(ethtool.driver("sw0").expect("exists"), "veth");
        let error = ethtool.driver("no-such-dev0").expect_err("no such interface");
        assert_eq!(error.kind(), NetErrorKind::NotFound);
        let error = ethtool.driver("").expect_err("no name");
        assert_eq!(error.kind(), NetErrorKind::Invalid);
    }

    #[test]
    fn speed_mbps__is_unknown_of_a_veth_and_not_supported_by_lo() {
        if testing::lacks_privilege("speed_mbps") {
            return;
        }
        let hosts = TwoHosts::anonymous(&LabConfig::default()).expect("privileged");
        let ethtool = Ethtool::open_in(&hosts.a.ns).expect("privileged");
        assert_eq!(ethtool.speed_mbps("sw0").expect("exists"), None, "nominal");
        assert_eq!(
            ethtool.speed_mbps("lo").expect_err("no link").kind(),
            NetErrorKind::Unsupported
        );
        let error = ethtool.speed_mbps("no-such-dev0").expect_err("no such interface");
        assert_eq!(error.kind(), NetErrorKind::NotFound);
    }

    #[test]
    fn set_offloads__each_is_set_and_restored() {
        if testing::lacks_privilege("set_offloads") {
            return;
        }
        let hosts = TwoHosts::anonymous(&LabConfig::default()).expect("privileged");
        let ethtool = Ethtool::open_in(&hosts.a.ns).expect("privileged");
        let only_gro = Offloads { gro: true, ..Offloads::OFF };
        let no_tso = Offloads { tso: false, ..Offloads::ON };
        for wanted in [Offloads::ON, Offloads::OFF, only_gro, no_tso, Offloads::ON] {
            ethtool.set_offloads("sw0", &wanted).expect("veth can do all");
            assert_eq!(ethtool.offloads("sw0").expect("exists"), wanted);
        }
    }

    #[test]
    fn set_offloads__impossible_combination_is_named() {
        if testing::lacks_privilege("set_offloads") {
            return;
        }
        let hosts = TwoHosts::anonymous(&LabConfig::default()).expect("privileged");
        let ethtool = Ethtool::open_in(&hosts.a.ns).expect("privileged");
        let wanted = Offloads { tx_checksum: false, ..Offloads::ON };
        let error = ethtool.set_offloads("sw0", &wanted).expect_err("tso needs checksums");
        assert_eq!(error.kind(), NetErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("tso"), "{error}");
    }
}
