//! Errors as verbs report them.

use libc::c_int;
use spanwire_io::net::{NetError, NetErrorKind};
use std::error::Error;
use std::io;

/// The number of an error (`EINVAL`).
pub(crate) type Errno = c_int;

/// Sets `errno` of the calling thread.
pub(crate) fn set(errno: Errno) {
    // SAFETY: the address of the calling thread's own `errno`.
    unsafe { *libc::__errno_location() = errno };
}

/// The result of a verb that returns a number: zero, or the error, which is in `errno`, too.
pub(crate) fn code(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            set(errno);
            errno
        }
    }
}

/// The result of a verb that returns -1 and `errno`.
pub(crate) fn or_minus_one(result: Result<(), Errno>) -> c_int {
    if code(result) == 0 { 0 } else { -1 }
}

/// The result of a verb that creates an object: NULL with `errno` if it failed.
pub(crate) fn pointer<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(|errno| {
        set(errno);
        std::ptr::null_mut()
    })
}

/// The number of the system's error behind `error`; `EIO` if there is none.
pub(crate) fn of(error: &(dyn Error + 'static)) -> Errno {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
        let net = error.downcast_ref::<NetError>().and_then(|e| match e.kind() {
            NetErrorKind::OtherInterface => Some(libc::EHOSTUNREACH),
            NetErrorKind::NeighbourSilent => Some(libc::ETIMEDOUT),
            _ => e.errno(),
        });
        if let Some(errno) = io.or(net) {
            return errno;
        }
        cause = error.source();
    }
    libc::EIO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of__is_that_of_the_innermost_cause() {
        #[derive(Debug)]
        struct Outer(io::Error);
        impl std::fmt::Display for Outer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("outer")
            }
        }
        impl Error for Outer {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }
        assert_eq!(of(&Outer(io::Error::from_raw_os_error(libc::EADDRINUSE))), libc::EADDRINUSE);
        assert_eq!(of(&Outer(io::Error::other("no number"))), libc::EIO);
    }

    #[test]
    fn pointer__is_null_with_errno() {
        assert!(pointer::<u8>(Err(libc::EMSGSIZE)).is_null());
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::EMSGSIZE));
        assert_eq!((code(Err(libc::EBUSY)), or_minus_one(Err(libc::EBUSY))), (libc::EBUSY, -1));
        assert_eq!((code(Ok(())), or_minus_one(Ok(()))), (0, 0));
    }
}
