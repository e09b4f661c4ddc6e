//! The chunks of READs: the requests that a long READ becomes on the wire.

use std::collections::VecDeque;

/// The ends of the chunks that were sent and are not acknowledged.
///
/// A retransmitted READ request is always the tail of one earlier request, because responder
/// resources are kept by request, not by message. So a chunk keeps its end, whatever the window is
/// by then.
#[derive(Debug, Default)]
pub(super) struct ReadChunks {
    /// Ascending; at most as many as READs may be outstanding, since chunks are sent in order.
    ends: VecDeque<u64>,
}

impl ReadChunks {
    /// Packets of the chunk at `number` of a READ that ends at `end`; a new one has at most `most`.
    pub(super) fn pkts(&self, number: u64, end: u64, most: u64) -> u64 {
        let sent = self.ends.iter().find(|end| **end > number);
        sent.map_or((number + most).min(end), |sent| *sent) - number
    }

    /// A chunk that ends at `end` was sent, perhaps again.
    pub(super) fn on_sent(&mut self, end: u64) {
        if self.ends.back().is_none_or(|last| *last < end) {
            self.ends.push_back(end);
        }
    }

    /// Everything before `una` is acknowledged.
    pub(super) fn acknowledge(&mut self, una: u64) {
        while self.ends.front().is_some_and(|end| *end <= una) {
            self.ends.pop_front();
        }
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.ends.clear();
    }

    /// The last end; none without an unacknowledged chunk.
    pub(super) fn last(&self) -> Option<u64> {
        self.ends.back().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pkts__a_chunk_that_was_sent_keeps_its_end() {
        let mut chunks = ReadChunks::default();
        assert_eq!(chunks.pkts(0, 100, 32), 32);
        chunks.on_sent(32);
        assert_eq!(chunks.pkts(32, 100, 5), 5);
        chunks.on_sent(37);
        // Rewound, with another window.
        for most in [1, 5, 32] {
            assert_eq!([0, 7, 31, 32, 36].map(|n| chunks.pkts(n, 100, most)), [32, 25, 1, 5, 1]);
        }
        chunks.on_sent(32);
        chunks.acknowledge(36);
        assert_eq!((chunks.pkts(36, 100, 9), chunks.last()), (1, Some(37)));
        assert_eq!(chunks.pkts(37, 40, 9), 3);
    }
}
