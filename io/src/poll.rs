//! Sleeping on descriptors with nanosecond timeouts (ppoll(2)).

use std::io;
use std::time::Duration;

/// Sleeps until one of `entries` is ready or `timeout` has passed; returns the number of ready
/// entries. A signal ends the sleep like the timeout.
///
/// # Errors
/// The kernel has no memory, or there are more entries than the process may have descriptors.
pub(crate) fn poll(entries: &mut [libc::pollfd], timeout: Duration) -> io::Result<usize> {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let count = libc::nfds_t::try_from(entries.len()).map_err(io::Error::other)?;
    // SAFETY: `count` entries, borrowed mutably for the call, and one timespec on this stack; no
    // signal mask.
    let ready =
        unsafe { libc::ppoll(entries.as_mut_ptr(), count, &raw const timeout, std::ptr::null()) };
    match usize::try_from(ready) {
        Ok(ready) => Ok(ready),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    #[test]
    fn poll__wakes_for_any_entry_or_at_the_timeout() {
        let pairs = [(); 3].map(|()| UnixStream::pair().expect("descriptors"));
        let entry = |stream: &UnixStream| libc::pollfd {
            fd: stream.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut entries: Vec<_> = pairs.iter().map(|(ours, _)| entry(ours)).collect();
        let start = Instant::now();
        assert_eq!(poll(&mut entries, Duration::from_millis(5)).expect("polls"), 0);
        assert!(start.elapsed() >= Duration::from_millis(5));
        (&pairs[1].1).write_all(b"x").expect("writes");
        assert_eq!(poll(&mut entries, Duration::from_secs(60)).expect("polls"), 1);
        let ready: Vec<bool> = entries.iter().map(|entry| entry.revents != 0).collect();
        assert_eq!(ready, [false, true, false]);
    }

    #[test]
    fn poll__without_entries_sleeps() {
        let start = Instant::now();
        assert_eq!(poll(&mut [], Duration::from_millis(2)).expect("polls"), 0);
        assert!(start.elapsed() >= Duration::from_millis(2));
    }
}
