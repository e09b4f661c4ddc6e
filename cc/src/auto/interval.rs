//! The samples of one decision interval.

use crate::Ack;
use crate::round::Round;
use crate::units::{float, ns};
use spanwire_base::Time;

/// Sums over the acknowledgements of an interval.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Interval {
    round: Round,
    began: Option<Time>,
    min_delay: Option<f64>,
    /// The longest delay that both hosts added, and the longest wait before this one processed an
    /// acknowledgement.
    host_delay: f64,
    wait: f64,
    acked: f64,
    marked: f64,
    lost: f64,
    is_limited: bool,
}

impl Interval {
    /// Adds an acknowledgement with this delay, ns; `is_limited`: of a flow that is limited by its
    /// window.
    pub(super) fn add(&mut self, a: &Ack<'_>, delay: Option<f64>, is_limited: bool) {
        if let Some(delay) = delay {
            self.min_delay = Some(self.min_delay.map_or(delay, |min| min.min(delay)));
            let wait = ns(a.rx_delay) + ns(a.rtt_slack);
            self.wait = self.wait.max(wait);
            self.host_delay = self.host_delay.max(wait + ns(a.ack_delay));
        }
        self.acked += float(a.acked_bytes);
        self.marked += float(a.marked_bytes);
        self.lost += float(a.lost_bytes);
        self.is_limited |= is_limited;
    }

    /// True if a packet sent after the interval began is acknowledged, and it is `min` ns old. The
    /// first call begins the interval.
    pub(super) fn ends(&mut self, now: Time, sent_at: Time, min: f64) -> bool {
        let is_round_over = self.round.ends(now, sent_at);
        let began = *self.began.get_or_insert(now);
        is_round_over && ns(now.since(began)) >= min
    }

    /// Begins the next interval.
    pub(super) fn restart(&mut self, now: Time) {
        *self = Self { round: self.round, began: Some(now), ..Self::default() };
    }

    pub(super) fn began(&self) -> Option<Time> {
        self.began
    }

    /// The smallest delay, ns; none without a sample.
    pub(super) fn min_delay(&self) -> Option<f64> {
        self.min_delay
    }

    /// The longest delay that both hosts added, ns.
    pub(super) fn host_delay(&self) -> f64 {
        self.host_delay
    }

    /// The longest wait of an ACK for its processing, ns.
    pub(super) fn wait(&self) -> f64 {
        self.wait
    }

    /// Bytes per nanosecond acknowledged so far.
    pub(super) fn rate(&self, now: Time) -> f64 {
        self.began.map_or(0.0, |at| self.acked / ns(now.since(at)).max(1.0))
    }

    /// The flow was limited by its window.
    pub(super) fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// The marked part of the acknowledged bytes.
    pub(super) fn marked_fraction(&self) -> f64 {
        if self.acked > 0.0 { self.marked / self.acked } else { 0.0 }
    }

    /// Packets lost, and all that were acknowledged or lost.
    pub(super) fn loss(&self, mtu: f64) -> (f64, f64) {
        (self.lost / mtu, (self.acked + self.lost) / mtu)
    }
}
