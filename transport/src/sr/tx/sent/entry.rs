//! A sent packet and its transmissions.

use crate::qp::flow::SendTimeState;
use crate::sr::tx::coding::position::Position;
use spanwire_base::Time;

/// A packet from its first transmission until it is acknowledged. `T` is its contents.
#[derive(Clone, Copy, Debug)]
pub(in crate::sr::tx) struct Entry<T> {
    pub(in crate::sr::tx) contents: T,
    pub(in crate::sr::tx) bytes: u32,
    /// The time of the last transmission.
    pub(in crate::sr::tx) sent_at: Time,
    /// The transmission before the last one was found lost.
    pub(in crate::sr::tx) was_lost: bool,
    /// It was sent more than once.
    pub(in crate::sr::tx) is_retransmitted: bool,
    /// Its loss was detected by time.
    pub(in crate::sr::tx) lost_by_time: bool,
    /// A transmission of it is presumed lost, and none of it is known to have arrived.
    pub(in crate::sr::tx) is_presumed_lost: bool,
    /// The flow's delivery state at the last transmission.
    pub(in crate::sr::tx) send_state: SendTimeState,
    /// The path of the last transmission; 0 without a load balancer.
    pub(in crate::sr::tx) path: u16,
    /// Its position in erasure coding; none without.
    pub(in crate::sr::tx) position: Option<Position>,
    /// It arrived, but the peer has dropped it and cannot use it for recovery.
    pub(in crate::sr::tx) is_discarded: bool,
    /// It is in `lost`.
    pub(in crate::sr::tx) is_queued: bool,
    pub(in crate::sr::tx) state: State,
}

impl<T> Entry<T> {
    /// A packet that was just sent for the first time.
    pub(in crate::sr::tx) fn new(
        contents: T,
        bytes: u32,
        sent_at: Time,
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
            position: None,
            is_discarded: false,
            is_queued: false,
            state: State::InFlight,
        }
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
    pub(in crate::sr::tx) number: u64,
    pub(in crate::sr::tx) at: Time,
}
