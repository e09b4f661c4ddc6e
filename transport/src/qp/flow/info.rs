//! State and measurements of a flow, for reports.

use spanwire_base::{Dur, Rate, Time};
use spanwire_cc::Status;

/// The limit of a flow at its last attempt to send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FlowLimit {
    /// The application: everything posted has been sent (app-limited).
    #[default]
    Application,
    /// The congestion window or the queue pair's own window (cwnd-limited).
    Window,
    /// The pacer, of the queue pair or of the port (pacing-limited).
    Pacer,
    /// The peer: its receive credit, its PSN limit, an RNR wait or outstanding READs.
    Receiver,
    /// The endpoint's window, which all queue pairs share.
    Endpoint,
    /// Only the port: a packet is ready whenever it takes one.
    Port,
}

impl FlowLimit {
    /// All limits.
    pub const ALL: [Self; 6] =
        [Self::Application, Self::Window, Self::Pacer, Self::Receiver, Self::Endpoint, Self::Port];
}

/// Time that a flow spent in each limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LimitTimes([Dur; FlowLimit::ALL.len()]);

impl LimitTimes {
    /// Time spent in `limit`.
    #[must_use]
    pub fn by(&self, limit: FlowLimit) -> Dur {
        self.0[limit as usize]
    }

    /// Adds time spent in `limit`.
    pub fn add(&mut self, limit: FlowLimit, time: Dur) {
        let sum = &mut self.0[limit as usize];
        *sum = *sum + time;
    }
}

/// State and measurements of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowInfo {
    /// Congestion window in payload bytes.
    pub cwnd_bytes: u64,
    /// Pacing rate, if a rate limits the flow.
    pub rate: Option<Rate>,
    /// Payload bytes acknowledged.
    pub delivered_bytes: u64,
    /// Those of them in packets marked CE.
    pub marked_bytes: u64,
    /// The current limit.
    pub limit: FlowLimit,
    /// Since when the current limit applies; `None` before the first packet.
    pub limited_since: Option<Time>,
    /// Time spent in each limit until then.
    pub times: LimitTimes,
    /// The algorithm's name.
    pub algorithm: &'static str,
    /// The signals that the algorithm uses, if it chooses them.
    pub status: Option<Status>,
    /// Mean time from the arrival of an ACK to its processing: this host's lateness.
    pub host_late: Dur,
}

impl FlowInfo {
    /// Time spent in each limit since the first packet, until `now`.
    #[must_use]
    pub fn times_at(&self, now: Time) -> LimitTimes {
        let mut times = self.times;
        times.add(self.limit, self.limited_since.map_or(Dur::ZERO, |since| now.since(since)));
        times
    }
}
