//! The counters of a UDP port.

/// The counters of a [`UdpPort`](super::UdpPort).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UdpCounters {
    /// Frames delivered to the driver.
    pub rx_frames: u64,
    /// Bytes of those, with synthesised headers.
    pub rx_bytes: u64,
    /// Receive calls that returned a datagram or several coalesced ones.
    pub rx_calls: u64,
    /// Frames that arrived coalesced with others (UDP_GRO).
    pub rx_coalesced: u64,
    /// Datagrams that the kernel dropped because the receive buffer was full; several that arrive
    /// coalesced count as one.
    pub rx_overflow: u64,
    /// Receive calls whose payload or control messages were cut off; discarded.
    pub rx_truncated: u64,
    /// Receive calls without addresses; discarded.
    pub rx_malformed: u64,
    /// Datagrams longer than the port's frames; discarded.
    pub rx_too_long: u64,
    /// IPv4 frames whose checksum is right with no identification that the port accepts.
    pub rx_unidentified: u64,
    /// Receive calls that failed.
    pub rx_errors: u64,
    /// Frames that the kernel accepted.
    pub tx_frames: u64,
    /// Bytes of those.
    pub tx_bytes: u64,
    /// Send calls that the kernel accepted.
    pub tx_calls: u64,
    /// Times the kernel accepted no more and frames remained queued.
    pub tx_again: u64,
    /// Times all transmit buffers were in use.
    pub tx_no_slot: u64,
    /// Frames that were sent without DF, because they are longer than the interface's MTU or the
    /// node asked for it: fragmented here or on the way.
    pub tx_fragmented: u64,
    /// Frames lost because they are longer than the interface's MTU.
    pub tx_too_long: u64,
    /// Frames lost because the kernel had no memory for them.
    pub tx_no_memory: u64,
    /// Frames lost because a firewall of this host forbids them.
    pub tx_denied: u64,
    /// Frames lost because the kernel rejected them for another reason: no route, an interface
    /// that is down.
    pub tx_rejected: u64,
    /// Frames lost because they are no UDP packets.
    pub tx_not_udp: u64,
    /// Frames lost because no source port could be bound.
    pub tx_no_source: u64,
    /// Runs of segments that the kernel rejected and that were sent one by one.
    pub tx_unsegmented: u64,
    /// Frames sent from another source port than the node chose, with an adjusted checksum.
    pub tx_other_source: u64,
}

impl UdpCounters {
    /// Every counter with its name, in a fixed order.
    #[must_use]
    pub fn list(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("rx_frames", self.rx_frames),
            ("rx_bytes", self.rx_bytes),
            ("rx_calls", self.rx_calls),
            ("rx_coalesced", self.rx_coalesced),
            ("rx_overflow", self.rx_overflow),
            ("rx_truncated", self.rx_truncated),
            ("rx_malformed", self.rx_malformed),
            ("rx_too_long", self.rx_too_long),
            ("rx_unidentified", self.rx_unidentified),
            ("rx_errors", self.rx_errors),
            ("tx_frames", self.tx_frames),
            ("tx_bytes", self.tx_bytes),
            ("tx_calls", self.tx_calls),
            ("tx_again", self.tx_again),
            ("tx_no_slot", self.tx_no_slot),
            ("tx_fragmented", self.tx_fragmented),
            ("tx_too_long", self.tx_too_long),
            ("tx_no_memory", self.tx_no_memory),
            ("tx_denied", self.tx_denied),
            ("tx_rejected", self.tx_rejected),
            ("tx_not_udp", self.tx_not_udp),
            ("tx_no_source", self.tx_no_source),
            ("tx_unsegmented", self.tx_unsegmented),
            ("tx_other_source", self.tx_other_source),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list__names_are_unique_and_no_counter_is_missing() {
        let list = UdpCounters::default().list();
        let mut names: Vec<_> = list.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), list.len());
        // All fields are u64, so the size counts them.
        assert_eq!(list.len() * 8, size_of::<UdpCounters>());
    }
}
