//! Socket options: typed access for plain values, and the raw call for all others.

use crate::sys::{check, socklen};
use libc::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// A socket option's value that consists of integers only.
///
/// # Safety
/// The implementor must be `repr(C)`, `repr(transparent)` or a primitive, valid for every bit
/// pattern, without padding, because the kernel reads every byte, and without addresses, because
/// the kernel would follow them.
pub unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: an integer.
unsafe impl Plain for c_int {}
// SAFETY: `repr(C)`, sixteen u64.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: `repr(C)`, six u64.
unsafe impl Plain for libc::xdp_statistics {}

/// Sets an option to a plain value (setsockopt(2)).
///
/// # Errors
/// The kernel rejects the option or its value.
pub fn set<T: Plain>(fd: impl AsFd, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the bytes of `value`, borrowed for the call; it is `Plain`, so all of them are
    // initialised and none is an address.
    unsafe { set_raw(fd, level, name, std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Sets an option to any value (setsockopt(2)).
///
/// # Errors
/// The kernel rejects the option or its value.
///
/// # Safety
/// `value` must point to `len` readable bytes that live across the call. Any address among them
/// must refer to memory that the kernel may access as the option defines.
pub unsafe fn set_raw(
    fd: impl AsFd,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> io::Result<()> {
    let len =
        libc::socklen_t::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: `len` readable bytes that live across the call, by this function's contract.
    check(unsafe { libc::setsockopt(fd.as_fd().as_raw_fd(), level, name, value, len) }).map(drop)
}

/// Reads an option (getsockopt(2)). A kernel whose structure is shorter leaves the rest zero.
///
/// # Errors
/// The kernel rejects the option.
pub fn get<T: Plain>(fd: impl AsFd, level: c_int, name: c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = socklen::<T>();
    let value_ptr = value.as_mut_ptr().cast();
    // SAFETY: the kernel writes at most `len` bytes into `value`, which has that many.
    let result =
        unsafe { libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, value_ptr, &raw mut len) };
    check(result)?;
    // SAFETY: every byte is zero or written by the kernel, and `Plain` takes every bit pattern.
    Ok(unsafe { value.assume_init() })
}

/// A value with an address is rejected at compile time: both implementations of `IsRejected` would
/// apply to a `Plain` type, and the constants in the test would be ambiguous.
#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    trait IsRejected<How> {
        const IS_REJECTED: bool = true;
    }
    struct AsPlain;
    impl<T> IsRejected<()> for T {}
    impl<T: Plain> IsRejected<AsPlain> for T {}

    #[test]
    fn set__takes_no_value_with_an_address() {
        const { assert!(<libc::sock_fprog as IsRejected<_>>::IS_REJECTED) };
        const { assert!(<libc::xdp_umem_reg as IsRejected<_>>::IS_REJECTED) };
        const { assert!(<*const u8 as IsRejected<_>>::IS_REJECTED) };
        const { assert!(<&u32 as IsRejected<_>>::IS_REJECTED) };
    }

    #[test]
    fn get__reads_back_what_was_set() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a local socket");
        set(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY, &3u32).expect("set");
        let read: u32 = get(&socket, libc::SOL_SOCKET, libc::SO_PRIORITY).expect("read back");
        assert_eq!(read, 3);
        set(&socket, libc::SOL_SOCKET, libc::SO_BROADCAST, &1u32).expect("a valid option");
        assert!(socket.broadcast().expect("read back"));
        let bad = set(&socket, libc::SOL_SOCKET, 12_345, &3u32);
        assert_eq!(bad.expect_err("no such option").raw_os_error(), Some(libc::ENOPROTOOPT));
    }
}
