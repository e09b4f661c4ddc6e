//! CPU affinity: the cores usable by a worker, and pinning.

use core_affinity::CoreId;
use std::fmt;

/// The cores that the calling thread may run on, ascending, as restricted by a container or
/// `taskset`. Empty only if the system does not report them.
#[must_use]
pub fn usable_cores() -> Vec<usize> {
    let mut cores: Vec<usize> =
        core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect();
    cores.sort_unstable();
    cores
}

/// Pins the calling thread to one core, so that a worker keeps its cache content and steady timing.
///
/// # Errors
/// [`PinError`] if the thread may not run there: no such core, or outside its cpuset.
pub fn pin(core: usize) -> Result<(), PinError> {
    // Checked first: the CPU set is indexed by the number and would panic beyond its size.
    if !usable_cores().contains(&core) {
        return Err(PinError { core });
    }
    let done = core_affinity::set_for_current(CoreId { id: core });
    // The library returns a bool; reading the affinity back is the stronger check.
    if done && usable_cores() == [core] { Ok(()) } else { Err(PinError { core }) }
}

/// The calling thread may not run on this core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PinError {
    /// The requested core.
    pub core: usize,
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot pin this thread to core {}", self.core)
    }
}

impl std::error::Error for PinError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn usable_cores__are_ascending_and_not_empty() {
        let cores = usable_cores();
        assert!(!cores.is_empty());
        assert!(cores.is_sorted());
    }

    #[test]
    fn pin__a_core_beyond_any_machine_is_an_error() {
        for core in [1 << 20, usize::MAX] {
            assert_eq!(pin(core), Err(PinError { core }));
        }
    }

    #[test]
    fn pin__leaves_the_thread_one_core() {
        for core in usable_cores() {
            // A separate thread, so that the pinning does not outlive the test.
            let left = thread::spawn(move || pin(core).map(|()| usable_cores()));
            assert_eq!(left.join().expect("pin does not panic"), Ok(vec![core]));
        }
    }

    #[test]
    fn pin__rejects_a_core_that_does_not_exist() {
        let refused = thread::spawn(|| pin(1_000)).join();
        let error = refused.expect("pin does not panic").unwrap_err();
        assert_eq!(error, PinError { core: 1_000 });
        assert_eq!(error.to_string(), "cannot pin this thread to core 1000");
    }
}
