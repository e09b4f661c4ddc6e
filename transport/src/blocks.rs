//! Memory that is kept aside for blocks of erasure codes, by peer.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// What the running parities of each peer's blocks take, over all queue pairs to it.
///
/// A peer that begins blocks and never ends them gets no more than its share; what is beyond is not
/// kept aside, and costs that peer the repair of its losses without waiting.
#[derive(Debug)]
pub(crate) struct BlockMemory {
    limit_bytes: u64,
    /// Peers that have some.
    used: BTreeMap<IpAddr, u64>,
}

impl BlockMemory {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, used: BTreeMap::new() }
    }

    /// Takes `bytes` for a peer; false, and nothing, if that is more than it may have.
    pub(crate) fn take(&mut self, peer: IpAddr, bytes: u64) -> bool {
        let used = self.used.get(&peer).copied().unwrap_or(0);
        let fits = bytes <= self.limit_bytes.saturating_sub(used);
        if fits && bytes > 0 {
            self.used.insert(peer, used + bytes);
        }
        fits
    }

    /// Gives back what was taken.
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
    fn take__no_more_than_each_peers_share() {
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
