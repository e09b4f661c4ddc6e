//! The worker of a process that a side connection belongs to.

use serde::{Deserialize, Serialize};
use spanwire_transport::SourcePort;

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

impl WorkerOf {
    /// The part of the source ports `of` for the queue pairs of this worker of a client and that
    /// one of a server, at both ends, because packets of SR may echo a port. Beyond 4,096 pairs of
    /// workers some have one part.
    #[must_use]
    pub fn source_port(self, server: Self, of: SourcePort) -> SourcePort {
        let [clients, servers] = [self, server].map(|one| one.workers.clamp(1, 64));
        let pair = self.index % clients * servers + server.index % servers;
        of.part(pair, clients * servers)
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
