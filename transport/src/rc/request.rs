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

    /// Byte offset in the message of packet `number`, which must belong to this request.
    #[inline]
    pub(crate) fn offset_of(&self, number: u64, mtu: Mtu) -> u32 {
        let bytes = (number - self.first) * u64::from(mtu.bytes());
        u32::try_from(bytes).expect("messages are below 4 GiB")
    }
}
