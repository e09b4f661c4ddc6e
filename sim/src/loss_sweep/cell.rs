//! The runs of a sweep.

use spanwire_base::Dur;
use spanwire_switch::Prob;
use spanwire_transport::WireMode;

/// One run of a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// Wire mode of both ends.
    pub mode: WireMode,
    /// Frame loss probability, each way.
    pub loss: Prob,
    /// Twice the propagation delay.
    pub rtt: Dur,
    /// Extra delay of a reordered frame; zero disables reordering.
    pub reorder: Dur,
}

/// Bytes of each message of the flow.
pub(super) const MESSAGE_BYTES: u32 = 256 << 10;
