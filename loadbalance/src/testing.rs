//! Helpers for the tests of all policies.

use crate::{Entropy, Flow, LossKind, Outgoing, PathAck, PathLoss};
use spanwire_base::{Dur, Time};

pub(crate) fn at(us: u64) -> Time {
    Time::ZERO + Dur::from_us(us)
}

/// A flow with a base round trip of 100 us.
pub(crate) fn flow(seed: u64) -> Flow {
    Flow { seed, base_rtt: Some(Dur::from_us(100)) }
}

/// A new packet of a busy flow.
pub(crate) fn data(now: Time, psn: u64) -> Outgoing {
    let bytes = 4096;
    Outgoing { now, psn, bytes, retransmit: false, lost_on: None, in_flight_bytes: 1 << 20 }
}

/// A retransmission of a packet that was lost on `path`.
pub(crate) fn retransmission(now: Time, psn: u64, path: Entropy) -> Outgoing {
    Outgoing { retransmit: true, lost_on: Some(path), ..data(now, psn) }
}

/// The acknowledgement of one unmarked packet sent at `sent_at`.
pub(crate) fn acked(path: Entropy, sent_at: Time, rtt_us: u64) -> PathAck {
    let rtt = Some(Dur::from_us(rtt_us));
    PathAck {
        path,
        packets: 1,
        bytes: 4096,
        marked: 0,
        sent_at,
        rtt,
        host_delay: Dur::ZERO,
        lateness: Dur::ZERO,
    }
}

/// The loss of `packets` packets, the last of which left at `sent_at`.
pub(crate) fn lost(path: Entropy, packets: u32, sent_at: Time) -> PathLoss {
    let bytes = u64::from(packets) * 4096;
    PathLoss { path, packets, bytes, sent_at, kind: LossKind::Rack }
}
