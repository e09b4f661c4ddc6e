//! Socket options: safe access for plain values, and a call for values with addresses.

use crate::sys::{check, socklen};
use bytemuck::Pod;
use libc::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets an option to a plain value (setsockopt(2)). [`Pod`] excludes padding, because the kernel
/// reads every byte, and pointers.
///
/// # Errors
/// The kernel rejects the option or its value; or the option has addresses in its value (`EINVAL`).
pub fn set<T: Pod>(fd: impl AsFd, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    set_bytes(fd, level, name, bytemuck::bytes_of(value))
}

/// Sets an option to a value of any length, such as a name (setsockopt(2)).
///
/// # Errors
/// As [`set`].
pub fn set_bytes(fd: impl AsFd, level: c_int, name: c_int, value: &[u8]) -> io::Result<()> {
    refuse_addresses(level, name)?;
    // SAFETY: the value of the option has no address.
    unsafe { set_with_addresses(fd, level, name, value) }
}

/// Sets an option whose value may contain addresses (setsockopt(2)).
///
/// # Errors
/// The kernel rejects the option or its value.
///
/// # Safety
/// Any address in `value` must refer to memory that the kernel may access as the option defines.
pub unsafe fn set_with_addresses(
    fd: impl AsFd,
    level: c_int,
    name: c_int,
    value: &[u8],
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let (fd, bytes) = (fd.as_fd().as_raw_fd(), value.as_ptr().cast());
    // SAFETY: `len` bytes, borrowed for the call; the caller guarantees the addresses in them.
    check(unsafe { libc::setsockopt(fd, level, name, bytes, len) }).map(drop)
}

/// Reads an option (getsockopt(2)). A kernel whose structure is shorter leaves the rest zero.
///
/// # Errors
/// The kernel rejects the option; or it is one of the options that [`set`] rejects.
pub fn get<T: Pod>(fd: impl AsFd, level: c_int, name: c_int) -> io::Result<T> {
    refuse_addresses(level, name)?;
    let mut value = T::zeroed();
    let mut len = socklen::<T>();
    let (fd, bytes) = (fd.as_fd().as_raw_fd(), (&raw mut value).cast());
    // SAFETY: the kernel writes at most `len` bytes into `value`, which has that many and may have
    // any content.
    check(unsafe { libc::getsockopt(fd, level, name, bytes, &raw mut len) })?;
    Ok(value)
}

/// Rejects options whose value has an address, which a plain value could contain as an integer:
/// the memory of a socket, and classic BPF programs, whose length is read in instructions.
fn refuse_addresses(level: c_int, name: c_int) -> io::Result<()> {
    let programs = [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_REUSEPORT_CBPF];
    let has_address = (level, name) == (libc::SOL_XDP, libc::XDP_UMEM_REG)
        || level == libc::SOL_SOCKET && programs.contains(&name);
    if has_address { Err(io::Error::from_raw_os_error(libc::EINVAL)) } else { Ok(()) }
}

/// A pointer is rejected at compile time: both implementations of `IsRejected` would apply to a
/// `Pod` type, and the constants in the test would be ambiguous.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::UmemReg;
    use bytemuck::Zeroable;
    use std::net::UdpSocket;

    trait IsRejected<How> {
        const IS_REJECTED: bool = true;
    }
    struct AsPod;
    impl<T> IsRejected<()> for T {}
    impl<T: Pod> IsRejected<AsPod> for T {}

    #[test]
    fn set__takes_no_pointer_and_no_padding() {
        const { assert!(<libc::sock_fprog as IsRejected<_>>::IS_REJECTED) };
        const { assert!(<libc::xdp_umem_reg as IsRejected<_>>::IS_REJECTED) };
        const { assert!(<*const u8 as IsRejected<_>>::IS_REJECTED) };
        const { assert!(<&u32 as IsRejected<_>>::IS_REJECTED) };
        const { assert!(<(u8, u32) as IsRejected<_>>::IS_REJECTED) };
    }

    #[test]
    fn set__takes_no_option_with_an_address() {
        let socket = crate::sys::xdp_socket().or_else(|_| {
            // Without the privilege, any socket: the option is rejected before the call.
            UdpSocket::bind("127.0.0.1:0").map(std::os::fd::OwnedFd::from)
        });
        let socket = socket.expect("a socket");
        let area = [0u8; 4096];
        let addr = crate::sys::u64_from(area.as_ptr().addr());
        let registration = UmemReg { addr, len: 4096, chunk_size: 2048, ..UmemReg::zeroed() };
        let refused = set(&socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration);
        assert_eq!(refused.expect_err("an address").raw_os_error(), Some(libc::EINVAL));
        for name in [libc::SO_ATTACH_FILTER, libc::SO_ATTACH_REUSEPORT_CBPF] {
            let refused = set(&socket, libc::SOL_SOCKET, name, &[0u64; 2]);
            assert_eq!(refused.expect_err("an address").raw_os_error(), Some(libc::EINVAL));
            let refused = get::<u64>(&socket, libc::SOL_SOCKET, name);
            assert_eq!(refused.expect_err("an address").raw_os_error(), Some(libc::EINVAL));
        }
    }

    #[test]
    fn set_bytes__takes_a_value_of_any_length() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a local socket");
        let bytes = 3u32.to_ne_bytes();
        set_bytes(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY, &bytes).expect("set");
        let read: u32 = get(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY).expect("read back");
        assert_eq!(read, 3);
        let short = set_bytes(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY, &bytes[..1]);
        assert_eq!(short.expect_err("too short").raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn get__reads_back_what_was_set() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a local socket");
        set(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY, &3u32).expect("set");
        let read: u32 = get(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY).expect("read back");
        assert_eq!(read, 3);
        let longer: [u32; 4] =
            get(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY).expect("read back");
        assert_eq!(longer, [3, 0, 0, 0], "the kernel's structure is shorter");
        set(&socket, libc::SOL_SOCKET, libc::SO_BROADCAST, &1u32).expect("a valid option");
        assert!(socket.broadcast().expect("read back"));
        let bad = set(&socket, libc::SOL_SOCKET, 12_345, &3u32);
        assert_eq!(bad.expect_err("no such option").raw_os_error(), Some(libc::ENOPROTOOPT));
    }
}
