//! The plan of a run.

use serde::Serialize;
use std::path::PathBuf;

/// The plan of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The `spanwire` command, for `copy`.
    pub spanwire: PathBuf,
    /// Samples of each row.
    pub rounds: u32,
    /// Milliseconds of a sample of requests.
    pub ms: u64,
    /// Requests of a sample in place of a time.
    pub requests: Option<u64>,
    /// MiB of bulk data.
    pub mib: u64,
    /// The core of all threads of the client, and of the server. None if they are not pinned.
    pub cores: Option<[usize; 2]>,
    /// Measures only the rows whose name contains this.
    pub only: Option<String>,
    /// Ends within a minute.
    pub quick: bool,
}
