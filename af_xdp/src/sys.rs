//! The system calls of this crate, each wrapped once.

use bytemuck::Pod;
use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

/// A memory mapping that is unmapped on drop.
#[derive(Debug)]
pub(crate) struct Map {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; `Map` gives out only a raw pointer.
unsafe impl Send for Map {}
// SAFETY: as above, and no method changes anything through `&self`.
unsafe impl Sync for Map {}

impl Map {
    /// Zeroed private pages of at least `len` bytes, populated immediately.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        Self::new(len, flags, -1, 0)
    }

    /// The first `len` bytes of a ring of `socket`.
    pub(crate) fn ring(
        socket: BorrowedFd<'_>,
        len: usize,
        offset: libc::off_t,
    ) -> io::Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Self::new(len, flags, socket.as_raw_fd(), offset)
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn new(len: usize, flags: c_int, fd: RawFd, offset: libc::off_t) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice affects no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(base.cast()) {
            Some(base) => Ok(Self { base, len }),
            None => Err(io::Error::other("mapped at address zero")),
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`. The rings and the UMEM that point into it own
        // it, so none outlives it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A new AF_XDP socket in the network namespace of the calling thread.
pub(crate) fn xdp_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, with no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn bind(fd: BorrowedFd<'_>, address: &libc::sockaddr_xdp) -> io::Result<()> {
    // SAFETY: the kernel reads one `sockaddr_xdp`, which is borrowed for the call.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            std::ptr::from_ref(address).cast::<libc::sockaddr>(),
            socklen::<libc::sockaddr_xdp>(),
        )
    };
    check(result).map(drop)
}

/// An empty `sendto`: makes the kernel process the TX ring.
pub(crate) fn kick_tx(fd: BorrowedFd<'_>) -> io::Result<()> {
    let null = std::ptr::null();
    // SAFETY: a message of no bytes to no address; no memory is passed.
    let sent = unsafe { libc::sendto(fd.as_raw_fd(), null, 0, libc::MSG_DONTWAIT, null.cast(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// An empty `recvfrom`: makes the kernel process the fill ring.
pub(crate) fn kick_rx(fd: BorrowedFd<'_>) -> io::Result<()> {
    let null: *mut c_void = std::ptr::null_mut();
    // SAFETY: room for no bytes and no address; the kernel writes nothing.
    let received = unsafe {
        libc::recvfrom(fd.as_raw_fd(), null, 0, libc::MSG_DONTWAIT, null.cast(), null.cast())
    };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// `bpf(2)` with an attribute block of any variant. Returns the result of the call.
///
/// # Safety
/// Every address and length inside `attr` must describe memory that the command may read or write
/// for the length of the call.
pub(crate) unsafe fn bpf<T: Pod>(command: libc::c_long, attr: &mut T) -> io::Result<RawFd> {
    let attr_ptr: *mut T = attr;
    // SAFETY: `attr` is borrowed for the call; the caller guarantees the memory that it refers to.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr_ptr, size_of::<T>()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    RawFd::try_from(result).map_err(io::Error::other)
}

/// Takes ownership of a descriptor that `bpf(2)` has just returned.
///
/// # Safety
/// `fd` must be an open descriptor without another owner.
pub(crate) unsafe fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: the caller's promise.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The index of an interface by name, in this thread's network namespace.
pub(crate) fn interface_index(name: &CStr) -> io::Result<u32> {
    // SAFETY: a terminated string, borrowed for the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(index)
}

/// The name of an interface of this thread's network namespace.
pub(crate) fn interface_name(index: u32) -> Option<String> {
    let mut name = [0u8; libc::IF_NAMESIZE];
    // SAFETY: `if_indextoname` writes at most IF_NAMESIZE bytes, the terminator included.
    let written = unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) };
    if written.is_null() {
        return None;
    }
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    Some(name.to_string_lossy().into_owned())
}

/// The size of a memory page in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// A length or address as the kernel writes it.
pub(crate) fn u64_from(n: usize) -> u64 {
    u64::try_from(n).expect("usize has at most 64 bits")
}

pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

pub(crate) fn socklen<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("option structures are tens of bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map__anonymous_memory_is_page_aligned_and_zero() {
        let map = Map::anonymous(10_000).expect("10 kB of memory");
        assert_eq!(map.base().addr().get() % page_size(), 0);
        assert_eq!(map.len(), 10_000);
        // SAFETY: inside the mapping, which nothing else uses.
        let last = unsafe { map.base().add(9_999).read() };
        assert_eq!(last, 0);
    }

    #[test]
    fn map__a_failed_mmap_is_an_error() {
        assert!(Map::anonymous(usize::MAX / 2).is_err());
        assert!(Map::anonymous(0).is_err());
    }

    #[test]
    fn interface_index__loopback_has_index_one_everywhere() {
        assert_eq!(interface_index(c"lo").expect("lo"), 1);
        assert_eq!(interface_name(1).as_deref(), Some("lo"));
        assert!(interface_index(c"no-such-if").is_err());
        assert_eq!(interface_name(u32::MAX), None);
    }
}
