//! One packet that was sent, and its transmissions.

use crate::qp::flow::AtSend;
use crate::sr::tx::place::BlockPosition;
use spanwire_base::Time;

/// A packet from its first transmission until it is acknowledged. `T` is its contents.
#[derive(Clone, Copy, Debug)]
pub(in crate::sr::tx) struct Entry<T> {
    pub(super) contents: T,
    pub(super) bytes: u32,
    /// When it was sent last.
    pub(super) sent_at: Time,
    /// The last transmission before this one was found lost.
    pub(super) was_lost: bool,
    /// It was sent more than once.
    pub(super) is_retransmitted: bool,
    /// That it was lost was found by time.
    pub(super) lost_by_time: bool,
    /// A transmission of it is presumed lost, and none of it is known to have arrived.
    pub(super) is_presumed_lost: bool,
    /// What its flow had delivered then.
    pub(super) at_send: AtSend,
    /// The path it was sent by last; 0 if nobody chose.
    pub(super) path: u16,
    /// Where it stands in a block, if it is in one.
    pub(super) position: BlockPosition,
    /// It stands in `lost`.
    pub(super) is_queued: bool,
    pub(super) state: State,
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

/// A packet that the peer has rebuilt while it was on its way, for all we knew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovered {
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) path: u16,
    pub(super) sent_at: Time,
}
