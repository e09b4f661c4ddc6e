//! The devices of this host: one for each interface with an IPv4 address.

use crate::abi::{IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_device, verbs_device};
use crate::errno::Errno;
use crate::settings::settings;
use libc::c_char;
use spanwire_host::fabric::Error;
use spanwire_host::program::Local;
use spanwire_io::net::{LinkInfo, Netlink};
use spanwire_transport::Mtu;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, PoisonError};

/// An interface with the address of its only GID.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interface {
    /// Its name, which is the device's.
    pub(crate) name: String,
    pub(crate) ifindex: u32,
    pub(crate) address: Ipv4Addr,
    mac: Option<[u8; 6]>,
}

/// A device, which is never freed: programs keep pointers to it after they have freed the list.
#[repr(C)]
pub(crate) struct Device {
    visible: verbs_device,
    pub(crate) interface: Interface,
}

// SAFETY: the visible part is read-only for programs, and never changes.
unsafe impl Sync for Device {}

impl Interface {
    fn new(link: &LinkInfo, address: Ipv4Addr) -> Self {
        Self { name: link.name.clone(), ifindex: link.ifindex, address, mac: link.mac }
    }

    /// The GID: the IPv4 address, mapped (RoCE v2, IBTA annex 17).
    pub(crate) fn gid(&self) -> [u8; 16] {
        self.address.to_ipv6_mapped().octets()
    }

    /// The GUID, big-endian in memory: EUI-64 of the MAC address; of the IPv4 address if there is
    /// none.
    pub(crate) fn guid(&self) -> u64 {
        let [a, b, c, d, e, f] = self.mac.filter(|mac| *mac != [0; 6]).unwrap_or_else(|| {
            let [a, b, c, d] = self.address.octets();
            [0, 0, a, b, c, d]
        });
        u64::from_ne_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
    }

    /// The interface as the kernel has it now.
    ///
    /// # Errors
    /// It is gone.
    pub(crate) fn link(&self) -> Result<LinkInfo, Errno> {
        let link = Netlink::open().and_then(|mut netlink| netlink.link(&self.name));
        link.map_err(|e| e.errno().unwrap_or(libc::ENODEV))
    }
}

/// The path MTU of an interface, for ports that send at most `most`.
pub(crate) fn path_mtu(link: &LinkInfo, most: Mtu) -> Mtu {
    Mtu::for_link(link.mtu).unwrap_or(Mtu::B256).min(most)
}

/// The interfaces that are devices: those that are up and have an IPv4 address, the loopback last,
/// so that it is the default of no program that has another. If the settings name one, only that.
///
/// # Errors
/// The settings are wrong, or there is no such interface or address.
pub(crate) fn interfaces() -> Result<Vec<Interface>, Error> {
    if let Some(Local { link, addr }) = settings()?.local()? {
        return Ok(vec![Interface::new(&link, addr)]);
    }
    let mut netlink = Netlink::open()?;
    let addresses = netlink.all_addresses()?;
    let first_of = |link: &LinkInfo| {
        let mut own = addresses.iter().filter(|(index, _)| *index == link.ifindex);
        own.find_map(|(_, one)| match one.prefix.addr() {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
    };
    let mut links: Vec<LinkInfo> = netlink.links()?.into_iter().filter(|link| link.up).collect();
    links.sort_by_key(|link| (link.loopback, link.ifindex));
    let with_address = |link: &LinkInfo| Some(Interface::new(link, first_of(link)?));
    Ok(links.iter().filter_map(with_address).collect())
}

/// The device of an interface: always the same one.
pub(crate) fn device_of(interface: &Interface) -> &'static Device {
    /// All devices so far.
    static DEVICES: Mutex<Vec<&'static Device>> = Mutex::new(Vec::new());
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = devices.iter().find(|device| device.interface == *interface) {
        return device;
    }
    let interface = interface.clone();
    let device: &'static Device = Box::leak(Box::new(Device {
        visible: verbs_device { device: visible(&interface.name), private: [0; 8] },
        interface,
    }));
    devices.push(device);
    device
}

impl Device {
    /// The address that programs have.
    pub(crate) fn as_ptr(&'static self) -> *mut ibv_device {
        (&raw const self.visible.device).cast_mut()
    }

    /// The device at an address that a program has.
    ///
    /// # Safety
    /// `device` is from [`Device::as_ptr`].
    pub(crate) unsafe fn of(device: *mut ibv_device) -> Result<&'static Self, Errno> {
        // SAFETY: devices are never freed, and nothing writes them.
        unsafe { device.cast::<Self>().as_ref() }.ok_or(libc::EINVAL)
    }
}

fn visible(name: &str) -> ibv_device {
    // SAFETY: numbers, arrays of characters and NULL.
    let mut device: ibv_device = unsafe { std::mem::zeroed() };
    device.node_type = IBV_NODE_CA;
    device.transport_type = IBV_TRANSPORT_IB;
    copy(&mut device.name, name);
    copy(&mut device.dev_name, name);
    copy(&mut device.dev_path, &format!("/sys/class/infiniband_verbs/{name}"));
    copy(&mut device.ibdev_path, &format!("/sys/class/infiniband/{name}"));
    device
}

/// Copies `text` with a terminating zero, as much as fits.
pub(crate) fn copy(to: &mut [c_char], text: &str) {
    let room = to.len() - 1;
    let bytes = text.bytes().take(room).chain([0]);
    for (to, byte) in to.iter_mut().zip(bytes) {
        *to = byte.cast_signed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(mac: Option<[u8; 6]>) -> Interface {
        let (name, address) = ("sw0".to_owned(), Ipv4Addr::new(10, 77, 0, 1));
        Interface { name, ifindex: 7, address, mac }
    }

    #[test]
    fn gid__is_the_mapped_address() {
        let gid = interface(None).gid();
        assert_eq!(gid, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1]);
    }

    #[test]
    fn guid__is_of_the_mac_address_or_of_the_ip_address() {
        let guid = |mac| interface(mac).guid().to_ne_bytes();
        assert_eq!(guid(Some([2, 1, 2, 3, 4, 5])), [0, 1, 2, 0xff, 0xfe, 3, 4, 5]);
        let of_ip = [2, 0, 10, 0xff, 0xfe, 77, 0, 1];
        assert_eq!([guid(None), guid(Some([0; 6]))], [of_ip, of_ip]);
    }

    #[test]
    fn device_of__is_one_for_each_interface() {
        let (one, other) = (interface(None), interface(Some([2; 6])));
        assert_eq!(device_of(&one).as_ptr(), device_of(&one).as_ptr());
        assert_ne!(device_of(&one).as_ptr(), device_of(&other).as_ptr());
        // SAFETY: from `as_ptr`.
        let same = unsafe { Device::of(device_of(&one).as_ptr()) };
        assert_eq!(same.unwrap().interface, one);
    }

    #[test]
    fn copy__truncates_and_terminates() {
        let mut to = [7; 4];
        copy(&mut to, "abcdef");
        assert_eq!(to.map(c_char::cast_unsigned), *b"abc\0");
    }
}
