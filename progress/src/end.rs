//! The end of an engine.

use crate::Event;
use crate::sync::{AtomicBool, Ordering};
use std::sync::OnceLock;

/// Whether an engine has ended, and why.
#[derive(Debug)]
pub(crate) struct End<E> {
    has_come: AtomicBool,
    /// Why, if it failed.
    why: OnceLock<String>,
    /// Ready once it has ended.
    event: E,
}

impl<E: Event> End<E> {
    pub(crate) fn new(event: E) -> Self {
        Self { has_come: AtomicBool::new(false), why: OnceLock::new(), event }
    }

    pub(crate) fn announce(&self, why: Option<String>) {
        if let Some(why) = why {
            let _ = self.why.set(why);
        }
        self.has_come.store(true, Ordering::Release);
        self.event.signal();
    }

    pub(crate) fn has_come(&self) -> bool {
        self.has_come.load(Ordering::Acquire)
    }

    pub(crate) fn why(&self) -> Option<&str> {
        self.why.get().map(String::as_str)
    }

    pub(crate) fn event(&self) -> &E {
        &self.event
    }
}

pub(crate) const PANICKED: &str = "one of its threads panicked";
pub(crate) const FORKED: &str =
    "it belongs to the process that this one was forked from; open it after fork";
