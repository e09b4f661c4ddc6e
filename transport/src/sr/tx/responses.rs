//! The responses to the peer's READs and atomics.

use super::plan::{Contents, ReadSegment};
use crate::sr::crossing::{AtomicToRespond, ReadToRespond};
use std::collections::VecDeque;

/// READs being answered and results of atomics, in the order of the requests. A packet that was
/// sent remembers all that is needed to write it again, so an answer is over here once it has left.
#[derive(Debug, Default)]
pub(in crate::sr) struct Responses {
    queue: VecDeque<Answer>,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Read { read: ReadToRespond, done: u32 },
    Atomic(AtomicToRespond),
}

impl Responses {
    /// Begins to respond to a READ.
    pub(in crate::sr) fn begin_read(&mut self, read: ReadToRespond) {
        self.queue.push_back(Answer::Read { read, done: 0 });
    }

    /// Queues the result of an atomic.
    pub(in crate::sr) fn begin_atomic(&mut self, atomic: AtomicToRespond) {
        self.queue.push_back(Answer::Atomic(atomic));
    }

    /// How many have not left whole.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The next part, of at most `segment_bytes`. [`Responses::advance`] once it is written.
    pub(super) fn next(&self, segment_bytes: u32) -> Option<Contents> {
        Some(match *self.queue.front()? {
            Answer::Atomic(AtomicToRespond { message, original }) => {
                Contents::Atomic { answers: message, original }
            }
            Answer::Read { read: ReadToRespond { message, asked_by, request }, done } => {
                let len = (request.len - done).min(segment_bytes);
                Contents::Read(ReadSegment {
                    answers: message,
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

    /// The part that [`Responses::next`] gave has left.
    pub(super) fn advance(&mut self, segment_bytes: u32) {
        match self.queue.front_mut() {
            Some(Answer::Read { read, done }) if read.request.len - *done > segment_bytes => {
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
    use crate::qp::remote::ReadRequest;

    #[test]
    fn next__walks_a_read_in_segments_and_keeps_the_order() {
        let mut a = Responses::default();
        let read = |message, asked_by, len| {
            let request = ReadRequest { va: 1000, rkey: 5, len };
            ReadToRespond { message, asked_by, request }
        };
        a.begin_read(read(7, 70, 250));
        a.begin_atomic(AtomicToRespond { message: 8, original: 99 });
        a.begin_read(read(9, 90, 0));
        let mut parts = Vec::new();
        while let Some(part) = a.next(100) {
            parts.push(part);
            a.advance(100);
        }
        let part = |answers, asked_by, offset: u32, len, last| {
            let va = 1000 + u64::from(offset);
            let left = if answers == 7 { 250 - offset } else { 0 };
            Contents::Read(ReadSegment { answers, asked_by, va, rkey: 5, offset, len, left, last })
        };
        let want = [
            part(7, 70, 0, 100, false),
            part(7, 70, 100, 100, false),
            part(7, 70, 200, 50, true),
            Contents::Atomic { answers: 8, original: 99 },
            part(9, 90, 0, 0, true),
        ];
        assert_eq!(parts, want);
        assert_eq!(a.len(), 0);
    }
}
