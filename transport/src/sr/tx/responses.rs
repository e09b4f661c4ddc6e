//! The responses to the peer's READs and atomics.

use super::plan::{Contents, Plain, ReadSegment};
use crate::sr::crossing::{AtomicToRespond, ReadToRespond};
use spanwire_wire::SrUsualPart;
use std::collections::VecDeque;

/// READ responses in progress and results of atomics, in the order of the requests. A sent packet
/// keeps all that a retransmission needs, so a response leaves the queue once it is sent.
#[derive(Debug, Default)]
pub(in crate::sr) struct Responses {
    queue: VecDeque<Response>,
}

#[derive(Clone, Copy, Debug)]
enum Response {
    Read { read: ReadToRespond, sent_bytes: u32 },
    Atomic(AtomicToRespond),
}

impl Responses {
    /// Begins to respond to a READ.
    pub(in crate::sr) fn begin_read(&mut self, read: ReadToRespond) {
        self.queue.push_back(Response::Read { read, sent_bytes: 0 });
    }

    /// Queues the result of an atomic.
    pub(in crate::sr) fn begin_atomic(&mut self, atomic: AtomicToRespond) {
        self.queue.push_back(Response::Atomic(atomic));
    }

    /// Responses not sent in full.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// The next packet, of at most `segment_bytes`. The caller calls [`Responses::advance`] once it
    /// is written.
    #[inline]
    pub(super) fn next(&self, segment_bytes: u32) -> Option<Contents> {
        Some(match *self.queue.front()? {
            Response::Atomic(AtomicToRespond { message, original }) => {
                Contents::Atomic { response_to: message, original }
            }
            Response::Read {
                read: ReadToRespond { message, request_psn, request },
                sent_bytes,
            } => {
                let len = (request.len - sent_bytes).min(segment_bytes);
                Contents::Read(ReadSegment {
                    response_to: message,
                    request_psn,
                    va: request.va.wrapping_add(sent_bytes.into()),
                    rkey: request.rkey,
                    offset: sent_bytes,
                    len,
                    left: request.len - sent_bytes,
                    last: sent_bytes + len == request.len,
                })
            }
        })
    }

    /// The next packet is of a response to a READ.
    #[inline]
    pub(super) fn is_at_read(&self) -> bool {
        matches!(self.queue.front(), Some(Response::Read { .. }))
    }

    /// As [`Responses::next`], while no request waits; `None` for an atomic.
    #[inline]
    pub(super) fn next_plain(&self, segment_bytes: u32) -> Option<Plain> {
        let contents = self.next(segment_bytes)?;
        let Contents::Read(ReadSegment { response_to, offset, len, last, .. }) = contents else {
            return None;
        };
        Some(Plain {
            contents,
            message: response_to,
            offset,
            len,
            part: SrUsualPart::ReadResponse(response_to),
            is_last: last,
            solicited: false,
            is_last_posted: last && self.queue.len() == 1,
            is_inline: false,
        })
    }

    /// The packet that [`Responses::next`] returned was sent, with `bytes` of payload.
    #[inline]
    pub(super) fn advance(&mut self, bytes: u32) {
        match self.queue.front_mut() {
            Some(Response::Read { read, sent_bytes }) if read.request.len - *sent_bytes > bytes => {
                *sent_bytes += bytes;
            }
            _ => _ = self.queue.pop_front(),
        }
    }

    /// Drops all responses.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qp::remote::ReadRequest;

    #[test]
    fn next__returns_read_segments_in_request_order() {
        let mut r = Responses::default();
        let read = |message, request_psn, len| {
            let request = ReadRequest { va: 1000, rkey: 5, len };
            ReadToRespond { message, request_psn, request }
        };
        r.begin_read(read(7, 70, 250));
        r.begin_atomic(AtomicToRespond { message: 8, original: 99 });
        r.begin_read(read(9, 90, 0));
        let mut parts = Vec::new();
        while let Some(contents) = r.next(100) {
            parts.push(contents);
            r.advance(100);
        }
        let contents = |response_to, request_psn, offset: u32, len, last| {
            let va = 1000 + u64::from(offset);
            let left = if response_to == 7 { 250 - offset } else { 0 };
            Contents::Read(ReadSegment {
                response_to,
                request_psn,
                va,
                rkey: 5,
                offset,
                len,
                left,
                last,
            })
        };
        let want = [
            contents(7, 70, 0, 100, false),
            contents(7, 70, 100, 100, false),
            contents(7, 70, 200, 50, true),
            Contents::Atomic { response_to: 8, original: 99 },
            contents(9, 90, 0, 0, true),
        ];
        assert_eq!(parts, want);
        assert_eq!(r.len(), 0);
    }
}
