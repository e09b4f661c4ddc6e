//! Memory limit for received FEC blocks, by peer.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// The memory of the partial parities of each peer's FEC blocks, in all queue pairs to it.
///
/// A peer that begins blocks and never completes them gets no more than its limit. Blocks beyond it
/// are not recovered: their losses are retransmitted.
#[derive(Debug)]
pub(crate) struct BlockMemory {
    limit_bytes: u64,
    /// Bytes in use by peer.
    used: BTreeMap<IpAddr, u64>,
}

impl BlockMemory {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, used: BTreeMap::new() }
    }

    /// Reserves `bytes` for a peer. False, without effect, if that exceeds its limit.
    pub(crate) fn take(&mut self, peer: IpAddr, bytes: u64) -> bool {
        let used = self.used.get(&peer).copied().unwrap_or(0);
        let fits = bytes <= self.limit_bytes.saturating_sub(used);
        if fits && bytes > 0 {
            self.used.insert(peer, used + bytes);
        }
        fits
    }

    /// Releases reserved bytes.
    pub(crate) fn give(&mut self, peer: IpAddr, bytes: u64) {
        let Some(used) = self.used.get_mut(&peer) else { return };
        *used = used.saturating_sub(bytes);
        if *used == 0 {
            self.used.remove(&peer);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_unused(&self) -> bool {
        self.used.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take__at_most_the_limit_of_each_peer() {
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut memory = BlockMemory::new(100);
        assert!(memory.take(a, 60) && !memory.take(a, 41) && memory.take(a, 40));
        assert!(memory.take(b, 100) && memory.take(b, 0) && !memory.take(b, u64::MAX));
        memory.give(a, 60);
        assert!(memory.take(a, 60));
        memory.give(a, 100);
        memory.give(a, 1);
        memory.give(b, 100);
        assert!(memory.is_unused());
    }
}
