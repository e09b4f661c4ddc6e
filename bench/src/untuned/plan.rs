//! The plan of a run.

use super::algorithm::Algorithm;
use serde::Serialize;
use std::path::PathBuf;

/// The plan of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The `spanwire` command.
    pub spanwire: PathBuf,
    /// Samples of each algorithm on each case.
    pub rounds: u32,
    /// Duration of a sample in seconds; several flows take a multiple.
    pub seconds: f64,
    /// Runs only the cases whose name contains this.
    pub only: Option<String>,
    /// Runs only these algorithms.
    pub algorithms: Vec<Algorithm>,
    /// Runs only the cases of a quick run, and only the main algorithms.
    pub quick: bool,
    /// A file of samples: those in it are not taken again, and each new one is added.
    pub resume: Option<PathBuf>,
}
