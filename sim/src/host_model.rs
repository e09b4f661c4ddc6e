//! The timing of a host's driver: steps, wakeups, stalls and bounded rings.
//!
//! An ideal host processes each frame when it arrives and sends whenever its link is free. A real
//! one polls: it is late to receive, reads the clock once for many frames, and its frames leave
//! together. [`PolledHost`] puts such a driver before any node.

mod driver;
mod lateness;
mod model;
mod node;
mod presets;
mod sockets;
mod waits;
mod workers;

pub use driver::HostCounters;
pub use lateness::Lateness;
pub use model::HostModel;
pub use sockets::Sockets;
pub(crate) use workers::handover_lateness;
pub use workers::{Engines, HANDOVER_FRAMES, HandoverCounters, Workers};

use driver::{Driver, State};
use spanwire_base::Node;

/// A node behind a driver with the timing of a [`HostModel`], or behind none.
#[derive(Debug)]
pub struct PolledHost<N> {
    node: N,
    driver: Option<Box<Driver>>,
}

impl<N: Node> PolledHost<N> {
    /// A node behind a driver; without a model, frames and timers reach it at once. `frame_bytes`
    /// is the longest frame that the node writes.
    pub fn new(node: N, model: Option<&HostModel>, seed: u64, frame_bytes: usize) -> Self {
        let driver = model.map(|model| Box::new(Driver::new(model, seed, frame_bytes)));
        Self { node, driver }
    }

    /// The node.
    pub fn node(&self) -> &N {
        &self.node
    }

    /// The node, mutable. The driver polls it soon.
    pub fn node_mut(&mut self) -> &mut N {
        if let Some(driver) = &mut self.driver {
            driver.state = State::Busy { next: driver.free_at };
        }
        &mut self.node
    }

    /// The counters; zero without a model.
    pub fn counters(&self) -> HostCounters {
        self.driver.as_ref().map_or_else(HostCounters::default, |driver| driver.counters)
    }
}

#[cfg(test)]
mod tests;
