//! The counters of an AF_XDP port.

use af_xdp::Statistics;

/// The counters of one port since it was opened: its own, then the kernel's (`XDP_STATISTICS`).
///
/// Two kinds of loss are not included. Frames for a queue without a socket go to the kernel's
/// stack. Frames that a veth drops because its ring is full are in `tx_dropped` of the sending
/// interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct XdpCounters {
    /// Frames delivered to the driver.
    pub rx_frames: u64,
    /// Their bytes, without FCS.
    pub rx_bytes: u64,
    /// Invalid descriptors or indices from the kernel, and parts of frames longer than a chunk;
    /// skipped.
    pub rx_bad_desc: u64,
    /// System calls that woke a sleeping driver to receive.
    pub rx_wakeups: u64,
    /// Polls of the side socket.
    pub rx_side_polls: u64,
    /// Frames committed.
    pub tx_frames: u64,
    /// Their bytes, without FCS.
    pub tx_bytes: u64,
    /// Frames completed by the kernel, sent or dropped.
    pub tx_completions: u64,
    /// System calls that made the kernel send.
    pub tx_kicks: u64,
    /// Of those, the ones after which frames remained: budget or send buffer exhausted. Ordinary.
    pub tx_again: u64,
    /// Frames that the kernel dropped: no room in the device, or longer than the MTU.
    pub tx_busy_drops: u64,
    /// Kicks that failed for lack of kernel memory; the frames stay queued.
    pub tx_nobufs: u64,
    /// Kicks while the interface was down; the frames stay queued.
    pub tx_net_down: u64,
    /// Times there was no transmit buffer, or no room in the TX ring.
    pub tx_no_slot: u64,
    /// Invalid completions or indices from the kernel; skipped.
    pub tx_bad_completion: u64,
    /// The kernel's own counters.
    pub kernel: Statistics,
}

impl XdpCounters {
    /// Every counter with its name, in a fixed order.
    #[must_use]
    pub fn list(&self) -> Vec<(&'static str, u64)> {
        let kernel = &self.kernel;
        vec![
            ("rx_frames", self.rx_frames),
            ("rx_bytes", self.rx_bytes),
            ("rx_bad_desc", self.rx_bad_desc),
            ("rx_wakeups", self.rx_wakeups),
            ("rx_side_polls", self.rx_side_polls),
            ("tx_frames", self.tx_frames),
            ("tx_bytes", self.tx_bytes),
            ("tx_completions", self.tx_completions),
            ("tx_kicks", self.tx_kicks),
            ("tx_again", self.tx_again),
            ("tx_busy_drops", self.tx_busy_drops),
            ("tx_nobufs", self.tx_nobufs),
            ("tx_net_down", self.tx_net_down),
            ("tx_no_slot", self.tx_no_slot),
            ("tx_bad_completion", self.tx_bad_completion),
            ("kernel_rx_dropped", kernel.rx_dropped),
            ("kernel_rx_invalid_descs", kernel.rx_invalid_descs),
            ("kernel_tx_invalid_descs", kernel.tx_invalid_descs),
            ("kernel_rx_ring_full", kernel.rx_ring_full),
            ("kernel_fill_empty", kernel.rx_fill_ring_empty_descs),
            ("kernel_tx_ring_empty", kernel.tx_ring_empty_descs),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list__names_are_unique_and_no_counter_is_missing() {
        let list = XdpCounters::default().list();
        let mut names: Vec<_> = list.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), list.len());
        // All fields are u64, so the size counts them.
        assert_eq!(list.len() * 8, size_of::<XdpCounters>());
    }
}
