//! SIGINT and SIGTERM as a flag that loops poll.

use crate::exit::Exit;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A flag that the first SIGINT or SIGTERM sets.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    is_set: Arc<AtomicBool>,
    /// The signal that set it; 0 if none did.
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Installs the handlers: the first SIGINT or SIGTERM sets the flag. A second one ends the
    /// process at once, in case a loop hangs.
    ///
    /// # Errors
    /// The kernel rejects the handler.
    pub fn install() -> io::Result<Self> {
        use signal_hook::flag;
        let this = Self::default();
        for (signal, exit) in [(SIGINT, Exit::Interrupted), (SIGTERM, Exit::Terminated)] {
            // Actions run in the order of registration. The number is stored by the first one, so
            // that no signal is lost that arrives before all are registered, and a reader that
            // sees the flag also sees the signal. The shutdown tests the flag before the last
            // action sets it.
            let number = usize::try_from(signal).map_err(io::Error::other)?;
            flag::register_usize(signal, Arc::clone(&this.signal), number)?;
            let status = i32::from(exit.code());
            flag::register_conditional_shutdown(signal, status, Arc::clone(&this.is_set))?;
            flag::register(signal, Arc::clone(&this.is_set))?;
        }
        Ok(this)
    }

    /// A flag that nothing sets, for tests.
    #[must_use]
    pub fn never() -> Self {
        Self::default()
    }

    /// True once a signal arrived.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire) || self.signal.load(Ordering::SeqCst) != 0
    }

    /// The exit code of an interrupted command: that of the signal, or of SIGINT if there was none.
    #[must_use]
    pub fn exit(&self) -> Exit {
        let terminated = usize::try_from(SIGTERM).ok() == Some(self.signal.load(Ordering::SeqCst));
        if terminated { Exit::Terminated } else { Exit::Interrupted }
    }

    /// Sets the flag as a signal would, so that a failure of one worker ends the others.
    pub fn set(&self) {
        self.is_set.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first registered action stores the number; a signal may arrive before the others are.
    #[test]
    fn is_set__by_the_number_of_a_signal_alone() {
        let interrupt = Interrupt::never();
        assert!(!interrupt.is_set());
        interrupt.signal.store(usize::try_from(SIGTERM).expect("positive"), Ordering::SeqCst);
        assert!(interrupt.is_set());
        assert_eq!(interrupt.exit(), Exit::Terminated);
    }
}
