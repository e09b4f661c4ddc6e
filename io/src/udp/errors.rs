//! The errors of send calls.

use super::counters::UdpCounters;
use std::io;

/// Counts a frame that the kernel has rejected.
pub(super) fn count_rejected(error: &io::Error, counters: &mut UdpCounters) {
    match error.raw_os_error() {
        Some(libc::EMSGSIZE) => counters.tx_too_long += 1,
        Some(libc::ENOBUFS | libc::ENOMEM) => counters.tx_no_memory += 1,
        Some(libc::EPERM | libc::EACCES) => counters.tx_denied += 1,
        _ => {
            if counters.tx_rejected == 0 {
                tracing::debug!(%error, "the kernel rejected a packet");
            }
            counters.tx_rejected += 1;
        }
    }
}

/// Errors of a kernel, device or route that does not segment, or not at this length.
pub(super) fn is_about_segments(error: &io::Error) -> bool {
    let errors = [libc::EINVAL, libc::EIO, libc::EOPNOTSUPP, libc::ENOPROTOOPT, libc::EMSGSIZE];
    error.raw_os_error().is_some_and(|errno| errors.contains(&errno))
}

/// The datagram, or its segments, are longer than the MTU.
pub(super) fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_rejected__each_cause_has_its_counter() {
        let mut counters = UdpCounters::default();
        let errors = [libc::EMSGSIZE, libc::ENOBUFS, libc::EPERM, libc::EACCES, libc::ENETDOWN];
        for errno in errors {
            count_rejected(&io::Error::from_raw_os_error(errno), &mut counters);
        }
        let UdpCounters { tx_too_long, tx_no_memory, tx_denied, tx_rejected, .. } = counters;
        assert_eq!((tx_too_long, tx_no_memory, tx_denied, tx_rejected), (1, 1, 2, 1));
    }
}
