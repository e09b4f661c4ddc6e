//! Rules shared by the second algorithms.

use crate::trace::{AckSample, PathModel};

/// A round ends with the first acknowledgement of a packet sent since it began. The first
/// acknowledgement of all begins a round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rounds {
    mark: Option<f64>,
}

impl Rounds {
    pub(crate) fn ends(&mut self, now: f64, sent_at: f64) -> bool {
        match self.mark {
            Some(mark) if sent_at < mark => false,
            before => {
                self.mark = Some(now);
                before.is_some()
            }
        }
    }
}

/// A limit of one event per span.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Once {
    last: Option<f64>,
}

impl Once {
    /// A limit whose last event was at `now`.
    pub(crate) fn at(now: f64) -> Self {
        Self { last: Some(now) }
    }

    pub(crate) fn may(&mut self, now: f64, span: f64) -> bool {
        let may = self.last.is_none_or(|last| now - last >= span);
        if may {
            self.last = Some(now);
        }
        may
    }
}

impl AckSample {
    /// The round trip without the ACK delay.
    pub(crate) fn fabric(&self) -> Option<f64> {
        Some((self.rtt? - self.ends).max(0.0))
    }

    /// The window or the pacer limited the flow: in flight is within two packets of the window, or
    /// data were waiting.
    pub(crate) fn bound(&self, window: f64, path: &PathModel) -> bool {
        self.cwnd_limited || self.inflight + 2.0 * path.mtu >= window
    }
}

/// Smoothing with a gain of 1/8, starting with the first sample.
pub(crate) fn smooth(old: Option<f64>, new: f64) -> f64 {
    old.map_or(new, |old| 0.875 * old + 0.125 * new)
}

pub(crate) const MBPS: f64 = 1e6 / 8e9;
