//! The ports of this process: one of an interface at a time.
//!
//! A program may open a device in one thread while another thread closes the last context of the
//! same device. Its new engine has to wait until the old one has closed the port.

use crate::device::Interface;
use spanwire_io::fork::Origin;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The right to have the port of an interface open, until it is dropped.
pub(crate) struct Lease {
    interface: Interface,
    origin: Origin,
}

static LEASED: Mutex<Vec<(Interface, Origin)>> = Mutex::new(Vec::new());
static RETURNED: Condvar = Condvar::new();

impl Lease {
    /// Waits while another engine of this process has it: one that is being closed, because an
    /// interface has at most one engine that is not.
    pub(crate) fn take(interface: &Interface) -> Self {
        let lease = Self { interface: interface.clone(), origin: Origin::here() };
        // Those of the process that this one was forked from are none of ours.
        let is_leased = |leased: &mut Vec<_>| leased.iter().any(|one| lease.is(one));
        let leased = RETURNED.wait_while(lock(&LEASED), is_leased);
        let mut leased = leased.unwrap_or_else(PoisonError::into_inner);
        leased.push((lease.interface.clone(), lease.origin));
        drop(leased);
        lease
    }

    fn is(&self, (interface, origin): &(Interface, Origin)) -> bool {
        self.interface == *interface && self.origin == *origin
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        lock(&LEASED).retain(|one| !self.is(one));
        RETURNED.notify_all();
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
