//! Responder resources: the READs and atomics of the peer, kept to respond to them and to their
//! duplicates.

mod invariants;

use crate::attr::Mtu;
use crate::mr::{MrTable, PdId};
use crate::payload::PayloadMut;
use crate::qp::remote::{AtomicRequest, ReadRequest};
use spanwire_wire::{Opcode, Psn};
use std::collections::VecDeque;

/// A READ of the peer at the PSN of its first response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadAtPsn {
    pub(crate) psn: Psn,
    pub(crate) read: ReadRequest,
}

/// An atomic of the peer at its PSN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AtomicAtPsn {
    pub(crate) psn: Psn,
    pub(crate) atomic: AtomicRequest,
}

/// The next packet of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Response {
    pub(crate) opcode: Opcode,
    pub(crate) psn: Psn,
    pub(crate) msn: u32,
    pub(crate) body: Body,
    /// The whole response has been sent before.
    pub(crate) is_repeat: bool,
}

/// The payload of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    /// Bytes of local memory, read when the packet is written.
    Read { va: u64, rkey: u32, len: u32 },
    /// The original value of an atomic's word.
    Atomic { original: u64 },
}

/// The last `max_dest_rd_atomic` READs and atomics, with the queue of those being responded to.
///
/// A duplicate READ (the whole or a tail of one kept) restarts its response at the requested
/// packet. The response to a duplicate atomic is sent again, without a second execution. Neither
/// takes a slot, so duplicates cost no memory.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    slots: Vec<Resource>,
    capacity: usize,
    /// The slot for the next request: the oldest.
    oldest: usize,
    /// Slots being responded to, in PSN order.
    queue: VecDeque<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Resource {
    request: ResourceRequest,
    msn: u32,
    /// The response in progress: first packet, next packet, and the end in bytes (exclusive).
    start: u32,
    next: u32,
    end_byte: u32,
    /// The whole response has been sent at least once.
    complete: bool,
}

#[derive(Clone, Copy, Debug)]
enum ResourceRequest {
    Read(ReadAtPsn),
    Atomic { request: AtomicAtPsn, original: u64 },
}

/// More READs and atomics than `max_dest_rd_atomic` are outstanding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoResource;

impl Resources {
    /// Resets to `capacity` empty resources.
    pub(crate) fn start(&mut self, capacity: u8) {
        let capacity = usize::from(capacity);
        *self = Self { capacity, ..Self::default() };
        self.slots.reserve_exact(capacity);
        self.queue.reserve_exact(capacity);
    }

    /// Checks that one more request fits: the slot that it takes must not await the first complete
    /// response. A response that was complete before and is being repeated is dropped, since a new
    /// request shows that the peer has completed it.
    pub(crate) fn check_room(&self) -> Result<(), NoResource> {
        match self.slots.get(self.oldest) {
            Some(held) if !held.complete => Err(NoResource),
            None if self.slots.len() >= self.capacity => Err(NoResource),
            _ => Ok(()),
        }
    }

    /// Starts the response to a new READ. The caller has called [`Resources::check_room`].
    pub(crate) fn begin_read(&mut self, request: ReadAtPsn, msn: u32) {
        self.begin(ResourceRequest::Read(request), request.read.len, msn);
    }

    /// Starts the response to an executed atomic, with the word's original value. The caller has
    /// called [`Resources::check_room`].
    pub(crate) fn begin_atomic(&mut self, request: AtomicAtPsn, original: u64, msn: u32) {
        self.begin(ResourceRequest::Atomic { request, original }, 0, msn);
    }

    fn begin(&mut self, request: ResourceRequest, end_byte: u32, msn: u32) {
        let resource = Resource { request, msn, start: 0, next: 0, end_byte, complete: false };
        let slot = self.oldest;
        if slot < self.slots.len() {
            self.queue.retain(|s| *s != slot);
            self.slots[slot] = resource;
        } else {
            self.slots.push(resource);
        }
        self.queue.push_back(slot);
        self.oldest = (slot + 1) % self.capacity;
    }

    /// Responds to a duplicate READ, from its first packet on, with the current MSN. False if it is
    /// not a part of any READ kept.
    pub(crate) fn repeat_read(&mut self, request: &ReadAtPsn, mtu: Mtu, msn: u32) -> bool {
        let covers = |(slot, a): (usize, &Resource)| Some((slot, a.covers(request, mtu)?));
        let Some((slot, from)) = self.slots.iter().enumerate().find_map(covers) else {
            return false;
        };
        let resource = &mut self.slots[slot];
        let end_byte = from * mtu.bytes() + request.read.len;
        let runs = self.queue.contains(&slot);
        if runs && resource.next <= from && resource.end_byte >= end_byte {
            return true; // The response in progress covers it.
        }
        (resource.start, resource.next, resource.end_byte) = (from, from, end_byte);
        resource.msn = msn;
        self.requeue(slot);
        true
    }

    /// Responds to a duplicate atomic with its original result and the current MSN. False if it is
    /// not kept.
    pub(crate) fn repeat_atomic(&mut self, duplicate: &AtomicAtPsn, msn: u32) -> bool {
        let is_same = |a: &Resource| match a.request {
            ResourceRequest::Atomic { request, .. } => request == *duplicate,
            ResourceRequest::Read(_) => false,
        };
        let Some(slot) = self.slots.iter().position(is_same) else {
            return false;
        };
        (self.slots[slot].next, self.slots[slot].msn) = (0, msn);
        self.requeue(slot);
        true
    }

    /// Queues a slot for a response, in PSN order. A requester that goes back requests everything
    /// that follows as well. A response out of order would look like a new loss to it.
    fn requeue(&mut self, slot: usize) {
        if !self.queue.contains(&slot) {
            let oldest = self.oldest;
            let age = |slot: usize| (slot < oldest, slot);
            let at = self.queue.partition_point(|s| age(*s) < age(slot));
            self.queue.insert(at, slot);
        }
    }

    /// The next packet to send. Call [`Resources::advance`] once it is written.
    pub(crate) fn next(&self, mtu: Mtu) -> Option<Response> {
        let a = &self.slots[*self.queue.front()?];
        let (msn, is_repeat) = (a.msn, a.complete);
        let ReadAtPsn { psn, read } = match a.request {
            ResourceRequest::Read(request) => request,
            ResourceRequest::Atomic { request, original } => {
                let body = Body::Atomic { original };
                let (opcode, psn) = (Opcode::RcAtomicAck, request.psn);
                return Some(Response { opcode, psn, msn, body, is_repeat });
            }
        };
        let offset = a.next * mtu.bytes();
        let len = (a.end_byte - offset).min(mtu.bytes());
        let (first, last) = (a.next == a.start, offset + len == a.end_byte);
        let opcode = match (first, last) {
            (true, true) => Opcode::RcReadResponseOnly,
            (true, false) => Opcode::RcReadResponseFirst,
            (false, true) => Opcode::RcReadResponseLast,
            (false, false) => Opcode::RcReadResponseMiddle,
        };
        let ReadRequest { va, rkey, .. } = read;
        let body = Body::Read { va: va.wrapping_add(offset.into()), rkey, len };
        Some(Response { opcode, psn: psn.plus(a.next), msn, body, is_repeat })
    }

    /// The first packet of the response in progress was sent.
    #[inline]
    pub(crate) fn is_at_middle(&self) -> bool {
        let in_progress = self.queue.front().map(|slot| &self.slots[*slot]);
        in_progress.is_some_and(|resource| resource.next > resource.start)
    }

    /// The packet that [`Resources::next`] described was sent.
    pub(crate) fn advance(&mut self, mtu: Mtu) {
        let Some(slot) = self.queue.front().copied() else {
            return;
        };
        let a = &mut self.slots[slot];
        a.next += 1;
        // u64: one packet past the end of a 4 GiB READ would not fit 32 bits.
        if u64::from(a.next) * u64::from(mtu.bytes()) >= u64::from(a.end_byte) {
            a.complete = true;
            self.queue.pop_front();
        }
    }

    /// Aborts the response of [`Resources::next`].
    pub(crate) fn abandon(&mut self) {
        self.queue.pop_front();
    }

    /// Changes the number of resources; if it decreases, the oldest are dropped.
    ///
    /// # Errors
    /// A resource that would be dropped still awaits its response; nothing changed.
    pub(crate) fn resize(&mut self, capacity: u8) -> Result<(), NoResource> {
        let capacity = usize::from(capacity);
        let by_age: Vec<usize> = (self.oldest..self.slots.len()).chain(0..self.oldest).collect();
        let (gone, kept) = by_age.split_at(by_age.len().saturating_sub(capacity));
        if gone.iter().any(|slot| !self.slots[*slot].complete) {
            return Err(NoResource);
        }
        let place = |slot: &usize| kept.iter().position(|k| k == slot);
        self.queue = self.queue.iter().filter_map(place).collect();
        self.slots = kept.iter().map(|slot| self.slots[*slot]).collect();
        self.oldest = if self.slots.len() == capacity { 0 } else { self.slots.len() };
        self.capacity = capacity;
        Ok(())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Stops responding.
    pub(crate) fn stop(&mut self) {
        self.queue.clear();
    }
}

impl Body {
    /// Copies the payload, whose memory is checked again; false if it is no longer registered.
    #[inline]
    pub(crate) fn fetch(self, pd: PdId, mrs: &MrTable, payload: PayloadMut<'_>) -> bool {
        match self {
            Self::Read { va, rkey, len } if len > 0 => mrs.fetch_remote(pd, rkey, va, len, payload),
            Self::Read { .. } | Self::Atomic { .. } => true,
        }
    }
}

impl Resource {
    /// The packet of this READ at which the duplicate `r` starts, if `r` is a part of it.
    fn covers(&self, r: &ReadAtPsn, mtu: Mtu) -> Option<u32> {
        let ResourceRequest::Read(held) = self.request else {
            return None;
        };
        let (ahead, r, held) = (r.psn.distance_from(held.psn), r.read, held.read);
        if ahead >= packets(held.len, mtu) {
            return None;
        }
        let offset = ahead * mtu.bytes();
        let fits = r.rkey == held.rkey
            && r.va == held.va.wrapping_add(offset.into())
            && r.len <= held.len - offset;
        fits.then_some(ahead)
    }
}

/// PSNs of a READ of `len` bytes: one for each response packet, at least one.
pub(crate) fn packets(len: u32, mtu: Mtu) -> u32 {
    len.div_ceil(mtu.bytes()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_wire::AtomicEthRepr;

    const MTU: Mtu = Mtu::B256;

    #[test]
    fn resize__keeps_the_newest_and_pending_responses() {
        let mut a = Resources::default();
        a.start(3);
        // Four requests in three slots: the ring has wrapped.
        for psn in 0..4 {
            a.begin_read(request(psn, 0, 8), psn);
            a.advance(MTU);
        }
        assert_eq!(a.resize(2), Ok(()));
        assert!(!a.repeat_read(&request(1, 0, 8), MTU, 9), "the oldest is dropped");
        assert!(a.repeat_read(&request(3, 0, 8), MTU, 9));
        assert!(a.repeat_read(&request(2, 0, 8), MTU, 9));
        let psns: Vec<u32> = drain(&mut a).iter().map(|packet| packet.1).collect();
        assert_eq!(psns, [2, 3], "in PSN order");
        assert_eq!(a.resize(4), Ok(()));
        for psn in 4..6 {
            assert_eq!(a.check_room(), Ok(()));
            a.begin_read(request(psn, 0, 8), psn);
        }
        assert_eq!(a.resize(1), Err(NoResource), "two responses are pending");
        assert_eq!(a.resize(2), Ok(()));
        assert_eq!(a.check_room(), Err(NoResource));
        assert_eq!(drain(&mut a).len(), 2);
        assert_eq!(a.resize(0), Ok(()));
        assert_eq!(a.check_room(), Err(NoResource));
    }

    fn request(psn: u32, va: u64, len: u32) -> ReadAtPsn {
        ReadAtPsn { psn: Psn::new(psn), read: ReadRequest { va, rkey: 5, len } }
    }

    fn drain(a: &mut Resources) -> Vec<(Opcode, u32, u64, u32)> {
        let mut out = Vec::new();
        while let Some(r) = a.next(MTU) {
            let (va, len) = match r.body {
                Body::Read { va, len, .. } => (va, len),
                Body::Atomic { original } => (original, 8),
            };
            out.push((r.opcode, r.psn.get(), va, len));
            a.advance(MTU);
        }
        out
    }

    fn resources(capacity: u8) -> Resources {
        let mut a = Resources::default();
        a.start(capacity);
        a
    }

    #[test]
    fn next__walks_first_middle_last() {
        let mut a = resources(2);
        a.begin_read(request(10, 0x1000, 600), 1);
        a.begin_read(request(13, 0x9000, 0), 2);
        use Opcode::*;
        let want = [
            (RcReadResponseFirst, 10, 0x1000, 256),
            (RcReadResponseMiddle, 11, 0x1100, 256),
            (RcReadResponseLast, 12, 0x1200, 88),
            (RcReadResponseOnly, 13, 0x9000, 0),
        ];
        assert_eq!(drain(&mut a), want);
        assert!(a.is_idle());
    }

    #[test]
    fn check_room__a_slot_with_a_pending_response_is_not_taken() {
        let mut a = resources(1);
        assert_eq!(a.check_room(), Ok(()));
        a.begin_read(request(0, 0, 10), 1);
        assert_eq!(a.check_room(), Err(NoResource));
        drain(&mut a);
        assert_eq!(a.check_room(), Ok(()));
        assert_eq!(resources(0).check_room(), Err(NoResource));
    }

    #[test]
    fn repeat_read__a_tail_begins_with_first_and_ends_as_requested() {
        let mut a = resources(2);
        a.begin_read(request(10, 0x1000, 1024), 1);
        drain(&mut a);
        assert!(a.repeat_read(&request(12, 0x1200, 512), MTU, 9));
        use Opcode::*;
        let want = [(RcReadResponseFirst, 12, 0x1200, 256), (RcReadResponseLast, 13, 0x1300, 256)];
        assert_eq!(drain(&mut a), want);
    }

    #[test]
    fn repeat_read__carries_the_current_msn() {
        let mut a = resources(2);
        a.begin_read(request(10, 0x1000, 600), 1);
        drain(&mut a);
        assert!(a.repeat_read(&request(11, 0x1100, 344), MTU, 7));
        while let Some(r) = a.next(MTU) {
            assert_eq!(r.msn, 7);
            a.advance(MTU);
        }
        // A response in progress that covers the duplicate is unchanged.
        a.begin_read(request(13, 0, 600), 8);
        assert!(a.repeat_read(&request(13, 0, 600), MTU, 9));
        assert_eq!(a.next(MTU).map(|r| r.msn), Some(8));
    }

    #[test]
    fn repeat_read__refuses_what_was_not_requested_before() {
        let mut a = resources(1);
        a.begin_read(request(10, 0x1000, 1024), 1);
        drain(&mut a);
        assert!(!a.repeat_read(&request(14, 0x1400, 1), MTU, 9), "beyond its end");
        assert!(!a.repeat_read(&request(9, 0x0f00, 1), MTU, 9), "before its start");
        assert!(!a.repeat_read(&request(11, 0x1101, 256), MTU, 9), "another address");
        assert!(!a.repeat_read(&request(11, 0x1100, 769), MTU, 9), "longer than the rest");
        let mut other_key = request(10, 0x1000, 1024);
        other_key.read.rkey = 6;
        assert!(!a.repeat_read(&other_key, MTU, 9));
        a.begin_read(request(14, 0x2000, 10), 2);
        drain(&mut a);
        assert!(!a.repeat_read(&request(10, 0x1000, 1024), MTU, 9), "dropped");
    }

    #[test]
    fn repeat_read__in_progress_restarts_once_and_takes_no_slot() {
        let mut a = resources(2);
        a.begin_read(request(10, 0x1000, 1024), 1);
        a.advance(MTU);
        a.advance(MTU);
        assert!(a.repeat_read(&request(10, 0x1000, 1024), MTU, 9));
        assert_eq!(drain(&mut a).len(), 4);
        a.begin_read(request(14, 0x2000, 1024), 2);
        assert!(
            a.repeat_read(&request(16, 0x2200, 512), MTU, 9),
            "covered by the response in progress"
        );
        assert_eq!(drain(&mut a).len(), 4);
    }

    #[test]
    fn repeat_read__responses_leave_in_psn_order() {
        let mut a = resources(3);
        a.begin_read(request(5, 0, 10), 1);
        drain(&mut a);
        a.begin_read(request(10, 0x1000, 512), 2);
        drain(&mut a);
        a.begin_read(request(12, 0x2000, 512), 3);
        a.begin_read(request(14, 0x3000, 512), 4); // takes the slot of PSN 5
        a.advance(MTU);
        assert!(a.repeat_read(&request(11, 0x1100, 256), MTU, 9));
        assert!(a.repeat_read(&request(12, 0x2000, 512), MTU, 9));
        let psns: Vec<u32> = drain(&mut a).iter().map(|r| r.1).collect();
        assert_eq!(psns, [11, 12, 13, 14, 15]);
    }

    #[test]
    fn repeat_atomic__repeats_the_original_result_in_psn_order() {
        let atomic = |psn, swap_or_add| {
            let operands = AtomicEthRepr { va: 8, rkey: 5, swap_or_add, compare: 0 };
            let atomic = AtomicRequest { is_compare_swap: false, operands };
            AtomicAtPsn { psn: Psn::new(psn), atomic }
        };
        let mut a = resources(3);
        a.begin_read(request(9, 0x1000, 10), 1);
        a.begin_atomic(atomic(10, 1), 77, 2);
        a.begin_atomic(atomic(11, 1), 78, 3);
        assert_eq!(a.check_room(), Err(NoResource), "atomics take resources too");
        assert!(a.repeat_atomic(&atomic(10, 1), 9), "its response is pending");
        let psns: Vec<u32> = drain(&mut a).iter().map(|r| r.1).collect();
        assert_eq!(psns, [9, 10, 11]);
        assert!(a.repeat_atomic(&atomic(11, 1), 9));
        assert!(a.repeat_atomic(&atomic(10, 1), 9));
        let want = [(Opcode::RcAtomicAck, 10, 77, 8), (Opcode::RcAtomicAck, 11, 78, 8)];
        assert_eq!(drain(&mut a), want);
        assert!(!a.repeat_atomic(&atomic(10, 2), 9), "another operation");
        assert!(!a.repeat_atomic(&atomic(12, 1), 9), "never requested");
        a.begin_read(request(12, 0, 10), 4);
        a.begin_read(request(13, 0, 10), 5);
        assert!(!a.repeat_atomic(&atomic(10, 1), 9), "dropped");
    }

    #[test]
    fn begin_read__replaces_a_repeated_response() {
        let mut a = resources(1);
        a.begin_read(request(10, 0x1000, 1024), 1);
        drain(&mut a);
        assert!(a.repeat_read(&request(10, 0x1000, 1024), MTU, 9));
        assert_eq!(a.check_room(), Ok(()));
        a.begin_read(request(14, 0x2000, 100), 2);
        assert_eq!(drain(&mut a), [(Opcode::RcReadResponseOnly, 14, 0x2000, 100)]);
    }
}
