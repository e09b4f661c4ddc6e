//! Options of a receiver.

use std::time::Duration;

/// Options of a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Existing files may be replaced.
    pub overwrite: bool,
    /// Every received file is read back from disk before it gets its name, also if the sender does
    /// not request it.
    pub verify_disk: bool,
    /// Stall timeout: time without progress by the sender, 100 ms..=1 h. Then the copy ends,
    /// because a receiver serves one sender at a time.
    pub stall_timeout: Duration,
    /// Connections of a copy at most: one for each worker.
    pub connections: u32,
}

impl Default for Grant {
    fn default() -> Self {
        Self { overwrite: false, verify_disk: false, stall_timeout: STALL_TIMEOUT, connections: 1 }
    }
}

impl Grant {
    /// The same options, validated.
    ///
    /// # Errors
    /// The time is out of its range.
    pub fn validate(self) -> Result<Self, String> {
        match (STALL_TIMEOUT_MIN..=STALL_TIMEOUT_MAX).contains(&self.stall_timeout) {
            true => Ok(self),
            false => Err(format!(
                "a stall timeout of {:?} is not within {STALL_TIMEOUT_MIN:?} and \
                 {STALL_TIMEOUT_MAX:?}",
                self.stall_timeout
            )),
        }
    }
}

/// Limit of unanswered entries: each may hold two open files.
pub(crate) const WINDOW: u32 = 64;

/// Default stall timeout: a live sender makes progress within a second, and a disk spins up in
/// less than this.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

const STALL_TIMEOUT_MIN: Duration = Duration::from_millis(100);

const STALL_TIMEOUT_MAX: Duration = Duration::from_secs(3600);
