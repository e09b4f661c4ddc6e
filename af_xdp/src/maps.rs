//! The maps of the steering programs: sockets by receive queue, and local destination addresses.

use crate::error::{Error, Place, Step};
use crate::sys;
use bytemuck::{Pod, Zeroable};
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

/// A map from receive queue to AF_XDP socket (`BPF_MAP_TYPE_XSKMAP`).
#[derive(Debug)]
pub struct XskMap(OwnedFd);

/// The destination addresses whose RoCEv2 frames are steered (`BPF_MAP_TYPE_HASH`). A change takes
/// effect on an attached program from the next frame on.
#[derive(Debug)]
pub struct AddressMap {
    fd: OwnedFd,
    capacity: u32,
    /// The map's content. The lock serialises changes by several threads.
    present: Mutex<BTreeSet<Key>>,
}

/// An IPv6 address, or an IPv4 address as an IPv4-mapped one: `struct address` of `steer.bpf.c`.
type Key = [u8; 16];

impl XskMap {
    /// An empty map of `slots` slots. Slot `n` takes the socket of receive queue `n`.
    ///
    /// # Errors
    /// [`Error::Os`]; `EPERM` without CAP_BPF, `EINVAL` for no slots.
    pub fn new(slots: u32) -> Result<Self, Error> {
        Ok(Self(create(TYPE_XSKMAP, 4, 4, slots)?))
    }

    /// Wraps a map created by another process: a privileged helper may create and attach, and pass
    /// the descriptor to a process that has CAP_NET_RAW only.
    ///
    /// # Safety
    /// `fd` must be an XSKMAP with keys and values of four bytes: the kernel reads as many bytes of
    /// this process's stack as the map declares.
    #[must_use]
    pub unsafe fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Steers receive queue `slot` to `socket`, which must be bound to that queue.
    ///
    /// # Errors
    /// [`Error::Os`]; `E2BIG` if the map has no such slot.
    pub fn set(&self, slot: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        let (key, value) = (slot.to_ne_bytes(), socket.as_raw_fd().to_ne_bytes());
        // SAFETY: key and value are four bytes each, as the map was made.
        unsafe { update(&self.0, &key, &value) }
            .map_err(|error| Error::os(Step::UpdateMap, slot_place(slot), error))
    }

    /// Clears a slot: the queue's frames go to the kernel again. An empty slot is no error.
    ///
    /// # Errors
    /// [`Error::Os`]; `EINVAL` if the map has no such slot.
    pub fn clear(&self, slot: u32) -> Result<(), Error> {
        // SAFETY: the key is four bytes, as the map was made.
        unsafe { delete(&self.0, &slot.to_ne_bytes()) }
            .map_err(|error| Error::os(Step::UpdateMap, slot_place(slot), error))
    }
}

impl AsFd for XskMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AddressMap {
    /// An empty map that holds up to `capacity` addresses.
    ///
    /// # Errors
    /// [`Error::Os`]; `EPERM` without CAP_BPF, `EINVAL` for no addresses.
    pub fn new(capacity: u32) -> Result<Self, Error> {
        let fd = create(TYPE_HASH, KEY_BYTES, VALUE_BYTES, capacity)?;
        Ok(Self { fd, capacity, present: Mutex::default() })
    }

    /// Replaces the content of the map by `addresses` and returns how many did not fit: the last
    /// ones. An address in both the old and the new content stays in the map throughout.
    ///
    /// # Errors
    /// [`Error::Os`]; the map then holds some of the old and some of the new addresses.
    pub fn replace(&self, addresses: impl IntoIterator<Item = IpAddr>) -> Result<usize, Error> {
        let failed = |error| Error::os(Step::UpdateMap, Place::default(), error);
        let capacity = usize::try_from(self.capacity).expect("a usize has 64 bits");
        let (mut wanted, mut left_out) = (BTreeSet::new(), 0);
        for key in addresses.into_iter().map(key_of) {
            if wanted.len() < capacity {
                wanted.insert(key);
            } else if !wanted.contains(&key) {
                left_out += 1;
            }
        }
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        let stale: Vec<Key> = present.difference(&wanted).copied().collect();
        for key in stale {
            // SAFETY: a key of the length the map was made with.
            unsafe { delete(&self.fd, &key) }.map_err(failed)?;
            present.remove(&key);
        }
        for key in wanted {
            if !present.contains(&key) {
                // SAFETY: key and value of the lengths the map was made with.
                unsafe { update(&self.fd, &key, &[1; VALUE_BYTES as usize]) }.map_err(failed)?;
                present.insert(key);
            }
        }
        Ok(left_out)
    }

    /// Number of addresses in the map.
    #[must_use]
    pub fn len(&self) -> usize {
        self.present.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// True if the map is empty: no frame is steered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl AsFd for AddressMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn key_of(address: IpAddr) -> Key {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn slot_place(slot: u32) -> Place {
    Place { ifindex: None, queue: Some(slot) }
}

fn create(
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
) -> Result<OwnedFd, Error> {
    let mut attr = MapCreate { map_type, key_size, value_size, max_entries, map_flags: 0 };
    // SAFETY: the block holds no addresses.
    let fd = unsafe { sys::bpf(MAP_CREATE, &mut attr) }
        .map_err(|error| Error::os(Step::CreateMap, Place::default(), error))?;
    // SAFETY: the descriptor was made by the call above.
    Ok(unsafe { sys::own(fd) })
}

/// Sets one element.
///
/// # Safety
/// `key` and `value` must have the lengths the map was made with: the kernel reads as many bytes.
unsafe fn update(map: &OwnedFd, key: &[u8], value: &[u8]) -> io::Result<()> {
    let mut attr = MapElement {
        map_fd: map.as_raw_fd(),
        pad: 0,
        key: address_of(key),
        value: address_of(value),
        flags: 0,
    };
    // SAFETY: key and value are borrowed for the call and have the lengths of the map.
    unsafe { sys::bpf(MAP_UPDATE_ELEM, &mut attr) }.map(drop)
}

/// Removes one element; a missing element is no error.
///
/// # Safety
/// `key` must have the length the map was made with: the kernel reads as many bytes.
unsafe fn delete(map: &OwnedFd, key: &[u8]) -> io::Result<()> {
    let mut attr =
        MapElement { map_fd: map.as_raw_fd(), pad: 0, key: address_of(key), value: 0, flags: 0 };
    // SAFETY: the key is borrowed for the call and has the length of the map.
    match unsafe { sys::bpf(MAP_DELETE_ELEM, &mut attr) } {
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
        _ => Ok(()),
    }
}

fn address_of(bytes: &[u8]) -> u64 {
    sys::u64_from(bytes.as_ptr().expose_provenance())
}

// The variants of `union bpf_attr` in use, field for field (uapi/linux/bpf.h).

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct MapElement {
    map_fd: RawFd,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const MAP_DELETE_ELEM: libc::c_long = 3;

const TYPE_HASH: u32 = 1;
const TYPE_XSKMAP: u32 = 17;

const KEY_BYTES: u32 = 16;
/// The value is unused, but a hash map requires one.
const VALUE_BYTES: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn key_of__maps_ipv4_and_keeps_ipv6() {
        let v4 = key_of(Ipv4Addr::new(10, 77, 0, 2).into());
        assert_eq!(v4, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 2]);
        let v6 = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
        assert_eq!(key_of(v6.into()), v6.octets());
    }
}
