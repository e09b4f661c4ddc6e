//! The worker of a process that a side connection belongs to.

use serde::{Deserialize, Serialize};

/// One of the workers of a process. Each has a side connection of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkerOf {
    /// Its index, from 0.
    #[serde(default, rename = "worker", skip_serializing_if = "is_first")]
    pub index: u32,
    /// The workers of the process. Absent where there is one.
    #[serde(default = "one", rename = "workers", skip_serializing_if = "is_one")]
    pub workers: u32,
}

impl Default for WorkerOf {
    fn default() -> Self {
        Self { index: 0, workers: 1 }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_first(index: &u32) -> bool {
    *index == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(workers: &u32) -> bool {
    *workers == 1
}

fn one() -> u32 {
    1
}
