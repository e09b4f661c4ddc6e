//! A request of the send queue and its packets.

use crate::attr::Mtu;
use crate::qp::wq::Wqe;

/// A send work request with its packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) wqe: Wqe,
    /// Number of the first packet, and how many there are.
    pub(crate) first: u64,
    pub(crate) pkts: u64,
}

impl Request {
    /// One past its last number.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.pkts
    }

    /// Packets from `number` to the end of its chunk. Chunks are counted from the start of the
    /// READ. A retransmitted READ request is then always the tail of one earlier request: responder
    /// resources are kept by request, not by message.
    pub(super) fn chunk_from(&self, number: u64, chunk: u64) -> u64 {
        let done = number - self.first;
        let boundary = (done / chunk + 1) * chunk;
        boundary.min(self.pkts) - done
    }

    /// Byte offset in the message of packet `number`, which must belong to this request.
    pub(crate) fn offset_of(&self, number: u64, mtu: Mtu) -> u32 {
        let bytes = (number - self.first) * u64::from(mtu.bytes());
        u32::try_from(bytes).expect("messages are below 4 GiB")
    }
}
