//! A run: packets sent in a row at one time, outside of erasure coding, that differ only by
//! arithmetic.

use super::entry::Entry;
use crate::qp::flow::SendTimeState;
use spanwire_base::Time;

/// Contents of packets, of which those of packets in a row may be computed.
pub(crate) trait Strided: Copy + PartialEq {
    /// The stride from these contents to `next`, if there is one.
    fn stride_to(&self, next: &Self) -> Option<Stride>;

    /// `next` are the contents `n` strides after these.
    fn is_before(&self, stride: Stride, n: u32, next: &Self) -> bool;

    /// The contents `n` strides after these.
    fn after(&self, stride: Stride, n: u32) -> Self;
}

/// The difference of the contents of packets in a row: modulo 2^32, as all arithmetic with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stride {
    pub(crate) messages: u32,
    pub(crate) bytes: u32,
}

/// Packets in flight with consecutive numbers and one send time.
#[derive(Clone, Copy, Debug)]
pub(in crate::sr::tx) struct Run<T> {
    pub(super) first: u64,
    pub(super) pkts: u32,
    /// The payload of each packet.
    pub(super) bytes: u32,
    /// Those of the first packet.
    pub(super) contents: T,
    pub(super) stride: Stride,
    pub(super) sent_at: Time,
    pub(super) send_state: SendTimeState,
    pub(super) path: u16,
}

impl<T: Strided> Run<T> {
    /// The packet `n` of the run.
    pub(super) fn packet(&self, n: u32) -> Entry<T> {
        let &Self { contents, bytes, sent_at, path, send_state, .. } = self;
        let contents = contents.after(self.stride, n);
        Entry::new(contents, bytes, sent_at, path, send_state)
    }

    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.pkts)
    }

    /// Adds the next packet; false if it does not continue the run.
    #[inline(always)]
    pub(super) fn extend(
        &mut self,
        contents: &T,
        (sent_at, bytes, path): (Time, u32, u16),
        send_state: &SendTimeState,
    ) -> bool {
        if (self.sent_at, self.bytes, self.path) != (sent_at, bytes, path)
            || !self.contents.is_before(self.stride, self.pkts, contents)
            || self.send_state != *send_state
        {
            return false;
        }
        debug_assert!(self.contents.after(self.stride, self.pkts) == *contents);
        self.pkts += 1;
        true
    }
}
