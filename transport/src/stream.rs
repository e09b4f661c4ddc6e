//! One direction of an SR connection: a stream of packets that each arrive once, in
//! any order. What the packets carry is the queue pair's to know.

mod bits;
mod lost;
pub(crate) mod margin;
pub(crate) mod received;
mod reorder;
pub(crate) mod rtt;
pub(crate) mod sent;
pub(crate) mod timers;
