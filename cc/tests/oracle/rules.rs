//! What all of them share.

use crate::trace::{Told, Way};

/// A round is over with the first acknowledgement of a packet sent since it began; the first
/// acknowledgement of all begins one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rounds {
    mark: Option<f64>,
}

impl Rounds {
    pub(crate) fn is_over(&mut self, now: f64, sent_at: f64) -> bool {
        match self.mark {
            Some(mark) if sent_at < mark => false,
            before => {
                self.mark = Some(now);
                before.is_some()
            }
        }
    }
}

/// At most one in each span.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Once {
    last: Option<f64>,
}

impl Once {
    /// The last one was then.
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

impl Told {
    /// The round trip less what the ends held.
    pub(crate) fn fabric(&self) -> Option<f64> {
        Some((self.rtt? - self.ends).max(0.0))
    }

    /// The window or the pacer was what bound: within two packets of the window, or something
    /// waited.
    pub(crate) fn bound(&self, window: f64, way: &Way) -> bool {
        self.held_back || self.inflight + 2.0 * way.mtu >= window
    }
}

/// Smoothed by eighths, beginning with the first.
pub(crate) fn smooth(old: Option<f64>, new: f64) -> f64 {
    old.map_or(new, |old| 0.875 * old + 0.125 * new)
}

pub(crate) const MBPS: f64 = 1e6 / 8e9;
