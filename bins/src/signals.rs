//! SIGINT and SIGTERM as a flag that loops look at.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set once the user asks the program to end.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on, the first SIGINT or SIGTERM sets the flag; a second one ends the process at
    /// once, should something hang.
    ///
    /// # Errors
    /// The system refuses the handler.
    pub fn install() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // In this order: the shutdown looks at the flag before the second line sets it.
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))?;
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    /// A flag that nothing sets, for tests.
    #[must_use]
    pub fn never() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    /// The user asked.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the flag as a signal would: one worker's failure ends the others.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
