//! Invariants of the requester, which hold between calls.

use super::Requester;

impl Requester {
    /// Asserts `snd_una <= snd_nxt <= snd_max <= snd_end` and what follows from it for the requests
    /// in the queue.
    ///
    /// # Panics
    /// One of them does not hold.
    pub(crate) fn check_invariants(&self) {
        debug_assert!(self.snd_una <= self.snd_nxt, "PSNs before snd_una are acknowledged");
        debug_assert!(self.snd_nxt <= self.snd_max, "snd_max is the highest PSN sent");
        debug_assert!(self.snd_max <= self.snd_end, "only posted packets are sent");
        debug_assert!(self.ack_req_end <= self.snd_nxt, "an AckReq that is rewound counts no more");
        debug_assert!(self.current <= self.sq.len(), "the current request is in the queue");
        let current = self.sq.at(self.current);
        debug_assert!(
            current.is_none_or(|r| r.first <= self.snd_nxt && self.snd_nxt < r.end()),
            "snd_nxt lies in the current request"
        );
        debug_assert!(
            self.sq.at(0).is_none_or(|r| r.end() > self.snd_una),
            "acknowledged requests have left the queue"
        );
        debug_assert!(
            self.rd_atomic_out.len() <= self.rd_atomic_starts.len() * READ_CHUNKS_MAX,
            "a READ or atomic that was sent is posted"
        );
        let mut out = self.rd_atomic_out.iter();
        debug_assert!(
            out.all(|r| r.first + r.pkts > self.snd_una && r.first + r.pkts <= self.snd_nxt),
            "READs and atomics outstanding are in flight"
        );
        debug_assert!(
            self.chunks.last().is_none_or(|end| end > self.snd_una && end <= self.snd_max),
            "chunks of READs are in flight, or rewound"
        );
        debug_assert!(self.no_ack_req_pkts() <= self.in_flight_pkts(), "both count from snd_nxt");
    }
}

/// A READ is requested in chunks: more may be outstanding than are posted.
const READ_CHUNKS_MAX: usize = 1 << 16;
