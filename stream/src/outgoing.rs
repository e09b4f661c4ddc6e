//! The sending side of a channel: fragmentation of the ring's data, and release of ring space.

use crate::config::Shape;
use crate::imm;
use crate::shared::{Kind, Shared};
use spanwire_base::{u32_from, usize_from};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// A range of the ring, to be written to the same range of the other end's ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fragment {
    /// Its offset in both rings.
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
    pub(crate) imm: u32,
}

/// Counts of data posted, acknowledged, and taken by the other application.
#[derive(Debug)]
pub(crate) struct Outgoing {
    shape: Shape,
    kind: Kind,
    /// Fragments posted, of those acknowledged, of those credited (taken by the other application).
    posted: u64,
    acknowledged: u64,
    credited: u64,
    posted_bytes: u64,
    /// Fragments whose ring space was freed, and the position of the next one.
    freed: u64,
    freed_bytes: u64,
    /// Lengths of the fragments from `freed` to `posted`.
    lens: VecDeque<u32>,
}

impl Outgoing {
    pub(crate) fn new(kind: Kind, shape: Shape) -> Self {
        Self {
            shape,
            kind,
            posted: 0,
            acknowledged: 0,
            credited: 0,
            posted_bytes: 0,
            freed: 0,
            freed_bytes: 0,
            lens: VecDeque::new(),
        }
    }

    /// Fragments posted so far.
    pub(crate) fn posted(&self) -> u64 {
        self.posted
    }

    /// The next fragment, if one may be posted; it is counted as posted. `is_last` means that the
    /// application has finished sending.
    pub(crate) fn next(&mut self, shared: &Shared, is_last: bool) -> Option<Fragment> {
        if self.posted - self.credited.min(self.acknowledged) >= u64::from(self.shape.fragments) {
            return None;
        }
        let left = self.bytes_to_send(shared, is_last)?;
        let room = self.shape.to_end(self.posted_bytes).min(self.shape.fragment_bytes.into());
        let bytes = u32_from(usize_from(left.min(room)));
        let offset = self.shape.offset(self.posted_bytes);
        let fragment = Fragment { offset, bytes, imm: imm::of_fragment(self.posted) };
        self.posted += 1;
        self.posted_bytes += u64::from(bytes);
        self.lens.push_back(bytes);
        Some(fragment)
    }

    /// True if nothing is left to be posted. Only meaningful once the application has finished.
    pub(crate) fn is_empty(&self, shared: &Shared) -> bool {
        shared.written.load(Ordering::Acquire) == self.posted_bytes
    }

    /// True if the other application has taken everything posted.
    pub(crate) fn is_all_taken(&self) -> bool {
        self.credited == self.posted
    }

    /// Handles the completion of the oldest outstanding fragment. True if ring space became free.
    pub(crate) fn on_acknowledged(&mut self, shared: &Shared) -> bool {
        self.acknowledged += 1;
        self.free(shared)
    }

    /// Handles credit: the other application has taken `count` fragments in total (the low 30 bits
    /// of it). True if ring space became free.
    ///
    /// # Errors
    /// The count exceeds what was sent.
    pub(crate) fn on_credit(&mut self, shared: &Shared, count: u32) -> Result<bool, &'static str> {
        let more = imm::ahead(count, self.credited);
        if more > self.posted - self.credited {
            return Err("credit for what was not sent");
        }
        self.credited += more;
        Ok(self.free(shared))
    }

    /// Handles `Drained`: the other application has taken everything. True if ring space became
    /// free.
    pub(crate) fn on_drained(&mut self, shared: &Shared) -> bool {
        self.credited = self.posted;
        self.free(shared)
    }

    /// Bytes that may be sent now: all of them, so messages that were sent before a step share
    /// packets. Small writes of a byte stream are coalesced while others are in flight too.
    fn bytes_to_send(&self, shared: &Shared, is_last: bool) -> Option<u64> {
        let left = shared.written.load(Ordering::Acquire) - self.posted_bytes;
        let is_worth_it = left >= u64::from(self.shape.fragment_bytes.min(CORK_BYTES));
        let is_idle = self.posted - self.acknowledged < CORK_FRAGMENTS;
        let is_message = self.kind == Kind::Messages;
        (left > 0 && (is_message || is_worth_it || is_idle || is_last)).then_some(left)
    }

    fn free(&mut self, shared: &Shared) -> bool {
        let until = self.credited.min(self.acknowledged);
        let before = self.freed;
        while self.freed < until
            && let Some(bytes) = self.lens.pop_front()
        {
            self.freed += 1;
            self.freed_bytes += u64::from(bytes);
        }
        shared.freed.store(self.freed_bytes, Ordering::Release);
        self.freed > before
    }
}

/// A byte stream's write of this size, several packets, is never delayed.
const CORK_BYTES: u32 = 16 << 10;

/// Fragments of small writes that may be in flight before further ones are delayed.
const CORK_FRAGMENTS: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::shared;

    const SHAPE: Shape =
        Shape { ring_bytes: 4096, fragment_bytes: 1000, fragments: 16, max_message_bytes: 3000 };

    fn outgoing(kind: Kind) -> (Outgoing, Shared) {
        (Outgoing::new(kind, SHAPE), shared(kind, SHAPE))
    }

    fn write(shared: &Shared, bytes: u64) {
        shared.written.fetch_add(bytes, Ordering::Relaxed);
    }

    fn lens(out: &mut Outgoing, shared: &Shared) -> Vec<(u64, u32)> {
        let each = std::iter::from_fn(|| out.next(shared, false));
        each.map(|f| (f.offset, f.bytes)).collect()
    }

    #[test]
    fn next__splits_at_the_longest_fragment_and_at_the_end_of_the_ring() {
        let (mut out, shared) = outgoing(Kind::Messages);
        write(&shared, 3500);
        assert_eq!(lens(&mut out, &shared), [(0, 1000), (1000, 1000), (2000, 1000), (3000, 500)]);
        write(&shared, 1700);
        assert_eq!(lens(&mut out, &shared), [(3500, 596), (0, 1000), (1000, 104)]);
        assert!(out.is_empty(&shared));
    }

    #[test]
    fn next__messages_of_a_burst_share_a_fragment_and_none_is_delayed() {
        let (mut out, shared) = outgoing(Kind::Messages);
        for _ in 0..9 {
            write(&shared, 10);
            write(&shared, 20);
            assert_eq!(lens(&mut out, &shared).len(), 1);
        }
        assert_eq!(out.posted_bytes, 270);
    }

    #[test]
    fn next__waits_for_credit() {
        let (mut out, shared) = outgoing(Kind::Messages);
        for _ in 0..15 {
            write(&shared, 1);
            out.next(&shared, false).unwrap();
        }
        write(&shared, 2000);
        assert_eq!(lens(&mut out, &shared), [(15, 1000)]);
        assert!(!out.is_empty(&shared));
        assert!(!out.on_acknowledged(&shared), "its place may still be read");
        assert_eq!(lens(&mut out, &shared), []);
        assert_eq!(out.on_credit(&shared, 1), Ok(true));
        assert_eq!(shared.freed.load(Ordering::Relaxed), 1);
        assert_eq!(lens(&mut out, &shared), [(1015, 1000)]);
    }

    #[test]
    fn next__coalesces_small_writes_of_a_byte_stream() {
        let (mut out, shared) = outgoing(Kind::Bytes);
        for _ in 0..4 {
            write(&shared, 10);
            assert_eq!(lens(&mut out, &shared).len(), 1);
        }
        write(&shared, 10);
        write(&shared, 20);
        assert_eq!(lens(&mut out, &shared), []);
        out.on_acknowledged(&shared);
        assert_eq!(lens(&mut out, &shared), [(40, 30)]);
        write(&shared, 1000);
        assert_eq!(lens(&mut out, &shared), [(70, 1000)], "worth a fragment of its own");
        write(&shared, 5);
        assert!(out.next(&shared, true).is_some(), "nothing follows that it could wait for");
    }

    #[test]
    fn on_credit__rejects_more_than_was_sent() {
        let (mut out, shared) = outgoing(Kind::Messages);
        write(&shared, 1);
        assert!(out.on_credit(&shared, 1).is_err());
        out.next(&shared, false).unwrap();
        assert!(out.on_credit(&shared, 2).is_err());
        assert_eq!(out.on_credit(&shared, 1), Ok(false), "not acknowledged yet");
        assert!(out.on_credit(&shared, 0).is_err(), "it only counts up");
    }
}
