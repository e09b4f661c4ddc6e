//! Work queues: work requests with their scatter-gather elements (SGEs) in one allocation.

use super::outcome::Completed;
use crate::config::MAX_SGE;
use crate::mr::{Access, MrTable, PdId, Resolved};
use crate::payload::{Payload, PayloadMut, copy_part};
use crate::verbs::{Sge, WorkRequest, WrOp};
use arrayvec::ArrayVec;
use std::collections::VecDeque;

/// A send work request as it was posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wqe {
    pub(crate) wr_id: u64,
    pub(crate) op: WrOp,
    /// Bytes of all its SGEs, or of its inline data.
    pub(crate) len: u32,
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
    /// Its data are inline, not in its SGEs.
    pub(crate) is_inline: bool,
}

impl Wqe {
    /// The checked work request `wr` of `len` bytes.
    pub(crate) fn new(wr: &WorkRequest<'_>, len: u32) -> Self {
        let &WorkRequest { wr_id, op, signaled, solicited, fence, .. } = wr;
        Self { wr_id, op, len, signaled, solicited, fence, is_inline: wr.inline.is_some() }
    }

    /// The fields of its completion.
    #[inline]
    pub(crate) fn completed(&self) -> Completed {
        Completed { wr_id: self.wr_id, opcode: self.op.wc_opcode(), len: self.len }
    }
}

/// A receive request in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rwqe {
    pub(crate) wr_id: u64,
    /// Bytes of all its SGEs.
    pub(crate) len: u32,
}

/// A receive request taken from its queue ahead of its message.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) rwqe: Rwqe,
    /// The protection domain of its SGEs.
    pub(crate) pd: PdId,
    pub(crate) sges: ArrayVec<Sge, { MAX_SGE as usize }>,
}

/// Work requests in posting order with their SGEs. `new` makes all allocations.
#[derive(Debug)]
pub(crate) struct WorkQueue<T> {
    entries: VecDeque<Queued<T>>,
    /// `max_sge` elements for each of `capacity` slots.
    sges: Box<[Sge]>,
    max_sge: usize,
    /// `max_inline` bytes for each slot.
    inline: Box<[u8]>,
    max_inline: usize,
    capacity: usize,
    next_slot: usize,
    /// The slot of the request of which parts are copied, and its memory.
    resolved: Option<(usize, Resolved)>,
}

#[derive(Debug)]
struct Queued<T> {
    entry: T,
    slot: usize,
    sge_count: usize,
    inline_len: usize,
}

impl<T> WorkQueue<T> {
    pub(crate) fn new(capacity: u32, max_sge: u32, max_inline: u32) -> Self {
        let (capacity, max_sge) = (capacity as usize, max_sge as usize);
        let max_inline = max_inline as usize;
        Self {
            entries: VecDeque::with_capacity(capacity),
            sges: vec![Sge::default(); capacity * max_sge].into_boxed_slice(),
            max_sge,
            inline: vec![0; capacity * max_inline].into_boxed_slice(),
            max_inline,
            capacity,
            next_slot: 0,
            resolved: None,
        }
    }

    pub(crate) fn max_sge(&self) -> usize {
        self.max_sge
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() == self.capacity
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Appends a request with its SGEs and its inline data.
    ///
    /// # Panics
    /// If the queue is full or either is too long, which the caller has checked.
    #[inline]
    pub(crate) fn push(&mut self, entry: T, sges: &[Sge], inline: &[u8]) {
        assert!(!self.is_full(), "posting checks for room first");
        let slot = self.next_slot;
        self.next_slot = if slot + 1 < self.capacity { slot + 1 } else { 0 };
        self.forget(slot);
        match sges {
            // Most requests have one: no call of memcpy.
            [sge] => self.sges[slot * self.max_sge] = *sge,
            _ => self.sges[slot * self.max_sge..][..sges.len()].copy_from_slice(sges),
        }
        if !inline.is_empty() {
            self.inline[slot * self.max_inline..][..inline.len()].copy_from_slice(inline);
        }
        let (sge_count, inline_len) = (sges.len(), inline.len());
        self.entries.push_back(Queued { entry, slot, sge_count, inline_len });
    }

    /// Returns the request that was removed last, with its SGEs: it becomes the oldest.
    ///
    /// # Panics
    /// If the queue is full; the caller has kept the request's slot.
    pub(crate) fn push_front(&mut self, entry: T, sges: &[Sge]) {
        assert!(!self.is_full(), "the slot of a taken request is kept");
        let front = self.entries.front().map_or(self.next_slot, |q| q.slot);
        let slot = front.checked_sub(1).unwrap_or(self.capacity - 1);
        self.forget(slot);
        self.sges[slot * self.max_sge..][..sges.len()].copy_from_slice(sges);
        self.entries.push_front(Queued { entry, slot, sge_count: sges.len(), inline_len: 0 });
    }

    /// The `i`-th oldest request.
    #[inline]
    pub(crate) fn at(&self, i: usize) -> Option<&T> {
        self.entries.get(i).map(|q| &q.entry)
    }

    /// As [`WorkQueue::at`], mutable.
    pub(crate) fn at_mut(&mut self, i: usize) -> Option<&mut T> {
        self.entries.get_mut(i).map(|q| &mut q.entry)
    }

    /// The SGEs of the `i`-th oldest request; empty if there is none.
    #[inline]
    pub(crate) fn sges(&self, i: usize) -> &[Sge] {
        match self.entries.get(i) {
            Some(q) => &self.sges[q.slot * self.max_sge..][..q.sge_count],
            None => &[],
        }
    }

    /// The inline data of the `i`-th oldest request; empty if there is none.
    pub(crate) fn inline(&self, i: usize) -> &[u8] {
        match self.entries.get(i) {
            Some(q) => &self.inline[q.slot * self.max_inline..][..q.inline_len],
            None => &[],
        }
    }

    /// Copies bytes of the `i`-th oldest request from byte `offset` on: its inline data if
    /// `is_inline`, else the memory of its SGEs. False if that is no longer registered.
    #[inline]
    pub(crate) fn gather(
        &self,
        i: usize,
        is_inline: bool,
        offset: u32,
        payload: PayloadMut<'_>,
        (pd, mrs): (PdId, &MrTable),
    ) -> bool {
        match is_inline {
            true => copy_part(self.inline(i), offset, payload),
            false => mrs.gather(pd, self.sges(i), offset, payload).is_ok(),
        }
    }

    /// As [`WorkQueue::gather`], for a request that is copied in several parts: its memory is
    /// resolved once, if it is one piece.
    #[inline]
    pub(crate) fn gather_part(
        &mut self,
        i: usize,
        is_inline: bool,
        offset: u32,
        payload: PayloadMut<'_>,
        mrs: (PdId, &MrTable),
    ) -> bool {
        let resolved = if is_inline { None } else { self.resolved(i, mrs, Access::LOCAL_READ) };
        match resolved.and_then(|of| mrs.1.part(&of, offset, payload.len())) {
            Some(span) => span.fetch(payload),
            None => self.gather_rest(i, is_inline, offset, payload, mrs),
        }
    }

    #[inline(never)]
    fn gather_rest(
        &self,
        i: usize,
        is_inline: bool,
        offset: u32,
        payload: PayloadMut<'_>,
        mrs: (PdId, &MrTable),
    ) -> bool {
        self.gather(i, is_inline, offset, payload, mrs)
    }

    /// Copies a part of the response to the `i`-th oldest request to its byte `offset`; false if
    /// its memory is no longer registered. It is resolved once, if it is one piece.
    pub(crate) fn scatter_part(
        &mut self,
        i: usize,
        offset: u32,
        data: Payload<'_>,
        mrs: (PdId, &MrTable),
    ) -> bool {
        let resolved = self.resolved(i, mrs, Access::LOCAL_WRITE);
        match resolved.and_then(|of| mrs.1.part(&of, offset, data.len())) {
            Some(span) => span.put(data),
            None => mrs.1.scatter(mrs.0, self.sges(i), offset, data).is_ok(),
        }
    }

    /// The memory of the `i`-th oldest request with access rights `need`, if it is one piece.
    #[inline]
    fn resolved(
        &mut self,
        i: usize,
        (pd, mrs): (PdId, &MrTable),
        need: Access,
    ) -> Option<Resolved> {
        let slot = self.entries.get(i)?.slot;
        if let Some((of, resolved)) = self.resolved
            && of == slot
            && mrs.is_current(&resolved)
        {
            return Some(resolved);
        }
        let [sge] = self.sges(i) else { return None };
        let resolved = mrs.resolve_local(pd, sge, need)?;
        self.resolved = Some((slot, resolved));
        Some(resolved)
    }

    /// Another request has this slot from now on.
    fn forget(&mut self, slot: usize) {
        if self.resolved.is_some_and(|(of, _)| of == slot) {
            self.resolved = None;
        }
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        self.entries.pop_front().map(|q| q.entry)
    }

    /// Index of the first request for which `before` is false; `before` must be true for a prefix.
    pub(crate) fn partition_point(&self, mut before: impl FnMut(&T) -> bool) -> usize {
        self.entries.partition_point(|q| before(&q.entry))
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.resolved = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn push__keeps_the_sges_of_each_request_across_the_wrap() {
        let sge = |addr| Sge { addr, len: 1, lkey: 1 };
        let mut q = WorkQueue::new(3, 2, 4);
        for round in 0..10u8 {
            let inline = [round; 4];
            let round = u64::from(round);
            q.push(round * 2, &[sge(round), sge(round + 100)], &inline[..1]);
            q.push(round * 2 + 1, &[sge(round + 200)], &inline);
            assert_eq!(q.sges(0), [sge(round), sge(round + 100)]);
            assert_eq!(
                (q.inline(0), q.inline(1), q.inline(2)),
                (&inline[..1], &inline[..], &[][..])
            );
            assert_eq!(q.sges(1), [sge(round + 200)]);
            assert_eq!(q.pop_front(), Some(round * 2));
            assert_eq!(q.sges(0), [sge(round + 200)]);
            assert_eq!(q.pop_front(), Some(round * 2 + 1));
        }
        assert!(q.sges(0).is_empty());
    }

    #[test]
    fn push_front__uses_the_slots_of_removed_requests() {
        let sge = |addr| Sge { addr, len: 1, lkey: 1 };
        for before in 0..4 {
            let mut q = WorkQueue::new(3, 1, 0);
            for i in 0..before {
                q.push(i, &[], &[]);
                q.pop_front();
            }
            for i in 10..13 {
                q.push(i, &[sge(i)], &[]);
            }
            let out = [q.pop_front().unwrap(), q.pop_front().unwrap(), q.pop_front().unwrap()];
            for i in out.into_iter().rev() {
                q.push_front(i, &[sge(i)]);
            }
            assert!(q.is_full());
            for i in 10..13 {
                assert_eq!(q.sges(0), [sge(i)], "after {before}");
                assert_eq!(q.pop_front(), Some(i), "after {before}");
                q.push(i + 10, &[sge(i + 10)], &[]);
            }
            assert_eq!((q.sges(0), q.sges(2)), (&[sge(20)][..], &[sge(22)][..]));
        }
    }

    #[test]
    fn is_full__at_capacity() {
        let mut q = WorkQueue::new(1, 1, 0);
        assert!(!q.is_full());
        q.push((), &[], &[]);
        assert!(q.is_full());
    }
}
