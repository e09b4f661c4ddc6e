//! Processes that occupy the cores, as other programs of a busy machine do.

use crate::sample::Error;
use spanwire_io::affinity;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;

/// Spinning processes, which end when dropped.
#[derive(Debug)]
pub(crate) struct Spinners(Vec<Child>);

impl Spinners {
    /// So many processes, on the cores in turn.
    pub(crate) fn start(count: usize) -> Result<Self, Error> {
        let program = std::env::current_exe()?;
        let mut spinners = Self(Vec::new());
        for core in affinity::usable_cores().into_iter().cycle().take(count) {
            let mut command = Command::new(&program);
            command.args(["spin", &core.to_string()]).stdin(Stdio::piped()).stdout(Stdio::null());
            let child = command.spawn().map_err(|e| format!("{}: {e}", program.display()))?;
            spinners.0.push(child);
        }
        Ok(spinners)
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // A process that has ended cannot be killed, which is no error.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Spins on `core` until its standard input ends, so that it does not outlive its parent.
///
/// # Errors
/// The process may not run on `core`.
pub fn spin(core: usize) -> Result<(), Error> {
    affinity::pin(core)?;
    let parent = thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    while !parent.is_finished() {
        std::hint::spin_loop();
    }
    Ok(())
}
