//! A probe for AF_XDP support and privilege.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Creates an unbound AF_XDP socket and closes it again. It has no effect on any interface.
///
/// # Errors
/// EPERM without CAP_NET_RAW, EAFNOSUPPORT from a kernel without AF_XDP.
pub fn probe_socket() -> io::Result<()> {
    // SAFETY: socket takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, open, and has no other owner.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_socket__succeeds_or_reports_the_cause() {
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
        // Other tests open and close descriptors concurrently.
        assert!(count() < before + 80, "{before} before, {} after", count());
    }
}
