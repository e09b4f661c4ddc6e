//! What a peer's READs and atomics are answered with.

use super::Part;
use spanwire_wire::{AtomicEthRepr, SrDataRepr, SrKind};
use std::collections::VecDeque;

/// READs being answered and results of atomics, in the order of the requests. A packet that was
/// sent remembers all that is needed to write it again, so an answer is over here once it has left.
#[derive(Debug, Default)]
pub(super) struct Answers {
    queue: VecDeque<Answer>,
}

/// A READ request as it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ReadRequest {
    /// The requester's number of the message.
    pub(super) message: u32,
    pub(super) va: u64,
    pub(super) rkey: u32,
    pub(super) len: u32,
}

/// An atomic request as it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AtomicRequest {
    pub(super) message: u32,
    pub(super) swaps: bool,
    pub(super) operands: AtomicEthRepr,
}

/// Bytes that answer a READ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ReadPart {
    pub(super) answers: u32,
    /// The wire's number of the request's packet.
    pub(super) asked_by: u32,
    pub(super) va: u64,
    pub(super) rkey: u32,
    pub(super) offset: u32,
    pub(super) len: u32,
    /// Bytes from this part on, its own included.
    pub(super) left: u32,
    pub(super) last: bool,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Read { request: ReadRequest, asked_by: u32, done: u32 },
    Atomic { message: u32, original: u64 },
}

impl ReadPart {
    /// Its header, as the packet `psn`.
    pub(super) fn header(&self, psn: u32) -> SrDataRepr {
        SrDataRepr {
            first: self.offset == 0,
            last: self.last,
            offset: self.offset,
            answers: Some(self.answers),
            ..SrDataRepr::new(SrKind::ReadResponse, psn, self.answers)
        }
    }
}

impl Answers {
    /// Begins to answer the READ that came as packet `asked_by`.
    pub(super) fn begin_read(&mut self, request: ReadRequest, asked_by: u32) {
        self.queue.push_back(Answer::Read { request, asked_by, done: 0 });
    }

    /// Owes the result of an atomic.
    pub(super) fn begin_atomic(&mut self, message: u32, original: u64) {
        self.queue.push_back(Answer::Atomic { message, original });
    }

    /// How many have not left whole.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The next part, of at most `segment_bytes`. [`Answers::advance`] once it is written.
    pub(super) fn next(&self, segment_bytes: u32) -> Option<Part> {
        Some(match *self.queue.front()? {
            Answer::Atomic { message, original } => Part::Atomic { answers: message, original },
            Answer::Read { request, asked_by, done } => {
                let len = (request.len - done).min(segment_bytes);
                Part::Read(ReadPart {
                    answers: request.message,
                    asked_by,
                    va: request.va.wrapping_add(done.into()),
                    rkey: request.rkey,
                    offset: done,
                    len,
                    left: request.len - done,
                    last: done + len == request.len,
                })
            }
        })
    }

    /// The part that [`Answers::next`] gave has left.
    pub(super) fn advance(&mut self, segment_bytes: u32) {
        match self.queue.front_mut() {
            Some(Answer::Read { request, done, .. }) if request.len - *done > segment_bytes => {
                *done += segment_bytes;
            }
            _ => _ = self.queue.pop_front(),
        }
    }

    /// Stops answering.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next__walks_a_read_in_segments_and_keeps_the_order() {
        let mut a = Answers::default();
        let read = |message, len| ReadRequest { message, va: 1000, rkey: 5, len };
        a.begin_read(read(7, 250), 70);
        a.begin_atomic(8, 99);
        a.begin_read(read(9, 0), 90);
        let mut parts = Vec::new();
        while let Some(part) = a.next(100) {
            parts.push(part);
            a.advance(100);
        }
        let part = |answers, asked_by, offset: u32, len, last| {
            let va = 1000 + u64::from(offset);
            let left = if answers == 7 { 250 - offset } else { 0 };
            Part::Read(ReadPart { answers, asked_by, va, rkey: 5, offset, len, left, last })
        };
        let want = [
            part(7, 70, 0, 100, false),
            part(7, 70, 100, 100, false),
            part(7, 70, 200, 50, true),
            Part::Atomic { answers: 8, original: 99 },
            part(9, 90, 0, 0, true),
        ];
        assert_eq!(parts, want);
        assert_eq!(a.len(), 0);
    }
}
