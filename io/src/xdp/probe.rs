//! Whether this process can have an AF_XDP socket at all.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Makes an AF_XDP socket and closes it again. It is bound to nothing: no interface notices.
///
/// # Errors
/// EPERM without CAP_NET_RAW, EAFNOSUPPORT from a kernel without AF_XDP.
pub fn probe_socket() -> io::Result<()> {
    // SAFETY: socket takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, open, and nobody else's.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_socket__works_or_says_why() {
        if let Err(e) = probe_socket() {
            let known = [libc::EPERM, libc::EAFNOSUPPORT, libc::EACCES];
            assert!(e.raw_os_error().is_some_and(|errno| known.contains(&errno)), "{e}");
        }
    }

    #[test]
    fn probe_socket__leaves_no_descriptor() {
        let count = || std::fs::read_dir("/proc/self/fd").map(Iterator::count).unwrap_or(0);
        let before = count();
        for _ in 0..100 {
            let _ = probe_socket();
        }
        // Other tests open and close some at the same time.
        assert!(count() < before + 80, "{before} before, {} after", count());
    }
}
