//! The plan of a run.

use serde::Serialize;
use std::path::PathBuf;

/// The plan of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The `spanwire` command.
    pub spanwire: PathBuf,
    /// Samples of each row.
    pub rounds: u32,
    /// Runs only the cases that have a row whose name contains this.
    pub only: Option<String>,
    /// Runs only the cases of a quick run, shorter, and ends within a minute.
    pub quick: bool,
}
