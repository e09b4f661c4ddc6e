//! A descriptor by which one thread wakes another: eventfd(2).

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// An eventfd(2): poll(2) reports it readable from [`EventFd::signal`] to [`EventFd::clear`].
/// Neither ever blocks.
#[derive(Debug)]
pub struct EventFd(File);

impl EventFd {
    /// An eventfd that is not signalled.
    ///
    /// # Errors
    /// The process or the system has no descriptors left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; flags of this call.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created it, and it has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self(File::from(fd)))
    }

    /// Makes it readable.
    pub fn signal(&self) {
        // A write of eight bytes fails only if the counter is full, and it is readable then.
        let _ = (&self.0).write(&1_u64.to_ne_bytes());
    }

    /// Makes it unreadable; returns whether it was readable.
    pub fn clear(&self) -> bool {
        let mut count = [0; 8];
        loop {
            match (&self.0).read(&mut count) {
                Ok(_) => return true,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl spanwire_progress::Event for EventFd {
    fn signal(&self) {
        Self::signal(self);
    }

    fn clear(&self) {
        Self::clear(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::poll;
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    fn is_readable(event: &EventFd) -> bool {
        let fd = event.as_fd().as_raw_fd();
        let mut entry = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
        poll(&mut entry, Duration::ZERO).expect("polls") == 1
    }

    #[test]
    fn signal__makes_it_readable_until_it_is_cleared() {
        let event = EventFd::new().expect("descriptors");
        assert!(!is_readable(&event) && !event.clear());
        event.signal();
        event.signal();
        assert!(is_readable(&event) && event.clear());
        assert!(!is_readable(&event) && !event.clear());
    }
}
