//! A sent packet and its transmissions.

use crate::qp::flow::SendTimeState;
use crate::sr::tx::block_position::BlockPosition;
use spanwire_base::Time;
use std::num::NonZeroU64;

/// A packet from its first transmission until it is acknowledged. `T` is its contents.
#[derive(Clone, Copy, Debug)]
pub(in crate::sr::tx) struct Entry<T> {
    pub(super) contents: T,
    pub(super) bytes: u32,
    /// The time of the last transmission.
    pub(super) sent_at: Time,
    /// The transmission before the last one was found lost.
    pub(super) was_lost: bool,
    /// It was sent more than once.
    pub(super) is_retransmitted: bool,
    /// Its loss was detected by time.
    pub(super) lost_by_time: bool,
    /// A transmission of it is presumed lost, and none of it is known to have arrived.
    pub(super) is_presumed_lost: bool,
    /// The flow's delivery state at the last transmission.
    pub(super) send_state: SendTimeState,
    /// The path of the last transmission; 0 without a load balancer.
    pub(super) path: u16,
    /// Its position in a block, if it is in one.
    pub(super) position: BlockPosition,
    /// The digest of a source packet's payload at its first transmission, to tell whether a
    /// retransmission has the same; none in no block.
    pub(super) digest: Option<NonZeroU64>,
    /// It is in `lost`.
    pub(super) is_queued: bool,
    pub(super) state: State,
}

impl<T> Entry<T> {
    /// A packet that was just sent for the first time.
    pub(super) fn new(
        contents: T,
        bytes: u32,
        sent_at: Time,
        position: BlockPosition,
        path: u16,
        send_state: SendTimeState,
    ) -> Self {
        Self {
            contents,
            bytes,
            sent_at,
            was_lost: false,
            is_retransmitted: false,
            lost_by_time: false,
            is_presumed_lost: false,
            send_state,
            path,
            position,
            digest: None,
            is_queued: false,
            state: State::InFlight,
        }
    }

    /// Its retransmission may take part in recovery, if its payload is that of the first
    /// transmission.
    pub(super) fn may_repeat(&self) -> bool {
        self.digest.is_some() && !self.position.retransmits
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sr::tx) enum State {
    InFlight,
    Lost,
    Arrived,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::sr::tx) struct Transmission {
    pub(super) number: u64,
    pub(super) at: Time,
}

/// A packet that the peer has recovered while it was presumed in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovered {
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) path: u16,
    pub(super) sent_at: Time,
}
