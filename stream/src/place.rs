//! Places of connections at their worker.

use std::sync::Arc;

/// The place of a connection at its worker, until it is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place(Arc<()>);

impl Place {
    /// The number of its clones.
    pub(crate) fn others(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}
