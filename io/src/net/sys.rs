//! System calls that neither the standard library nor the netlink crates wrap. It contains all
//! `unsafe` of [`super`] except the hook of a child process.

use af_xdp::{same_layout, sockopt};
use bytemuck::{Pod, Zeroable};
use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// The largest interface name with its terminating zero (`IFNAMSIZ`).
pub(super) const IFNAMSIZ: usize = 16;

/// Moves the calling thread into the network namespace behind `ns`. Async-signal-safe.
pub(super) fn setns_net(ns: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: setns takes no pointers; `ns` is open for the whole call.
    check(unsafe { libc::setns(ns.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// Moves the calling thread (`CLONE_NEWNET`) or process (`CLONE_NEWNS`) into new namespaces.
/// Async-signal-safe.
pub(super) fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: unshare takes no pointers. With the two flags used here it does not touch memory,
    // descriptors or signal handlers that Rust relies on.
    check(unsafe { libc::unshare(flags) })
}

/// mount(2) without file system options. Async-signal-safe.
pub(super) fn mount(
    source: &CStr,
    target: &CStr,
    filesystem: &CStr,
    flags: c_ulong,
) -> io::Result<()> {
    // SAFETY: the three strings are zero-terminated and live across the call; data may be null.
    check(unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), filesystem.as_ptr(), flags, std::ptr::null())
    })
}

/// Detaches a mount immediately; it lives as long as it is in use. Async-signal-safe.
pub(super) fn unmount_detach(target: &CStr) -> io::Result<()> {
    // SAFETY: the string is zero-terminated and lives across the call.
    check(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) })
}

/// The kind of namespace (`CLONE_NEW*`) behind a descriptor; ENOTTY if it is no namespace.
pub(super) fn namespace_type(fd: BorrowedFd<'_>) -> io::Result<c_int> {
    /// `_IO(0xb7, 3)` of linux/nsfs.h.
    const NS_GET_NSTYPE: libc::Ioctl = 0xb703;
    // SAFETY: this request has no argument and works, or fails with ENOTTY, on any descriptor.
    let kind = unsafe { libc::ioctl(fd.as_raw_fd(), NS_GET_NSTYPE) };
    if kind < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(kind)
}

/// Waits for the exclusive advisory lock on an open file; closing the file releases it.
pub(super) fn lock_exclusive(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: flock takes no pointers.
    check(unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_EX) })
}

/// Bounds how long a receive on this socket may block.
pub(super) fn set_receive_timeout(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<()> {
    /// `struct timeval`.
    #[repr(C)]
    #[derive(Clone, Copy, Pod, Zeroable)]
    struct Timeval {
        seconds: libc::time_t,
        micros: libc::suseconds_t,
    }
    same_layout!(Timeval = libc::timeval { seconds = tv_sec, micros = tv_usec });
    let value = Timeval {
        seconds: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        micros: libc::suseconds_t::from(timeout.subsec_micros()),
    };
    sockopt::set(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &value)
}

/// Makes a socket send and receive through one interface only (`SO_BINDTODEVICE`).
pub(super) fn bind_to_device(fd: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    sockopt::set_bytes(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name.as_bytes())
}

/// Executes an ethtool request: `argument` is a `repr(C)` struct of linux/ethtool.h that begins
/// with its command, and the kernel overwrites it with the reply.
///
/// # Safety
/// `T` must be the struct that its command works on: the kernel reads and writes up to the size
/// that the command implies.
pub(super) unsafe fn ethtool<T: Pod>(
    fd: BorrowedFd<'_>,
    name: &str,
    argument: &mut T,
) -> io::Result<()> {
    /// `SIOCETHTOOL` of linux/sockios.h.
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    /// `struct ifreq` with the one member of its union that this request uses; 40 bytes.
    #[repr(C)]
    struct Request {
        name: [u8; IFNAMSIZ],
        data: *mut c_void,
        rest_of_union: [u8; 16],
    }
    if name.is_empty() || name.len() >= IFNAMSIZ || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    let mut request = Request {
        name: [0; IFNAMSIZ],
        data: std::ptr::from_mut(argument).cast(),
        rest_of_union: [0; 16],
    };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: `request` is laid out as struct ifreq, its name is zero-terminated, and `data`
    // points to a live struct of the size the command works on, by this function's contract.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), SIOCETHTOOL, &raw mut request) })
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::Instant;

    #[test]
    fn namespace_type__net_and_plain_file() {
        let ns = File::open("/proc/thread-self/ns/net").expect("procfs is mounted");
        assert_eq!(namespace_type(ns.as_fd()).expect("a namespace"), libc::CLONE_NEWNET);
        let file = File::open("/proc/self/exe").expect("procfs is mounted");
        let error = namespace_type(file.as_fd()).expect_err("not a namespace");
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }

    #[test]
    fn set_receive_timeout__bounds_a_receive() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback exists");
        set_receive_timeout(socket.as_fd(), Duration::from_millis(20)).expect("a valid option");
        let start = Instant::now();
        let error = socket.recv(&mut [0; 8]).expect_err("no datagram arrives");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert!(start.elapsed() < Duration::from_secs(120), "only a hang takes so long");
    }

    #[test]
    fn bind_to_device__unknown_name_is_an_error() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback exists");
        let error = bind_to_device(socket.as_fd(), "no-such-dev0").expect_err("no such device");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
