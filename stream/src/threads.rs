//! Threads of a network.

use crate::error::SetupError;
use spanwire_io::worker;
use std::thread::JoinHandle;

/// Starts a thread of that name.
pub(crate) fn start(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, SetupError> {
    worker::spawn(name, work).map_err(|e| SetupError::Io("start a thread", e))
}
