//! The window of CUBIC.

use super::losses::LOSS_DECREASE;
use crate::units::ns;
use spanwire_base::Time;

/// A window that grows as a cubic function of the time since the last loss, or as AIMD if that is
/// longer; bytes.
///
/// # Source
/// RFC 9438 4.2 to 4.7.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cubic {
    /// No loss yet, and the share is unknown: grows by a part of the window.
    is_first: bool,
    began: Time,
    /// The window at the last loss and at the begin of the epoch.
    max: f64,
    cwnd: f64,
    /// The window that AIMD would have.
    aimd: f64,
    /// Seconds until the window is `max` again, computed once.
    k: Option<f64>,
}

impl Cubic {
    /// From a window of `cwnd` bytes on; `has_window`: it is a share of the link, and not the
    /// smallest window.
    pub(super) fn new(now: Time, cwnd: f64, has_window: bool) -> Self {
        Self { is_first: !has_window, began: now, max: cwnd, cwnd, aimd: cwnd, k: None }
    }

    /// Continues with a window of `cwnd` bytes.
    pub(super) fn restart(&mut self, now: Time, cwnd: f64) {
        *self = Self { max: self.max.max(cwnd), ..Self::new(now, cwnd, true) };
    }

    /// Packets of the window `cwnd` were lost; the window is [`LOSS_DECREASE`] shorter.
    pub(super) fn on_loss(&mut self, now: Time, cwnd: f64) {
        // Fast convergence.
        let max = if cwnd < self.max { cwnd * (2.0 - LOSS_DECREASE) / 2.0 } else { cwnd };
        *self = Self { max, ..Self::new(now, cwnd * (1.0 - LOSS_DECREASE), true) };
    }

    /// The window after an acknowledgement of `acked` bytes, with the smoothed round trip, ns, and
    /// the MTU.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        cwnd: f64,
        acked: f64,
        (srtt, mtu): (f64, f64),
    ) -> f64 {
        if self.is_first {
            return cwnd + acked / 8.0;
        }
        let below = (self.max - self.cwnd).max(0.0) / mtu;
        let k = *self.k.get_or_insert_with(|| cube_root(below / CUBIC_C));
        let t = (ns(now.since(self.began)) + srtt) / 1e9;
        let cubic = CUBIC_C * (t - k).powi(3) * mtu + self.max;
        self.aimd += CUBIC_ALPHA * mtu * acked / cwnd;
        let to = cubic.max(self.aimd).clamp(cwnd, 1.5 * cwnd);
        cwnd + (to - cwnd) * (acked / cwnd).min(1.0)
    }
}

/// By Newton's method: the result of `f64::cbrt` depends on the platform.
fn cube_root(x: f64) -> f64 {
    let step = |y: f64| y - (y - x / (y * y)) / 3.0;
    (0..ROOT_STEPS).fold(x.max(1.0), |y, _| step(y))
}

/// Enough for windows below 10^12 packets.
const ROOT_STEPS: u32 = 80;
/// Packets per second^3.
const CUBIC_C: f64 = 0.4;
/// Packets in a round trip: 3 (1 - beta) / (1 + beta).
const CUBIC_ALPHA: f64 = 3.0 * LOSS_DECREASE / (2.0 - LOSS_DECREASE);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;
    use crate::units::{float, whole};

    const MTU: f64 = 1000.0;
    const RTT_US: u64 = 100_000;

    /// The window, packets, after each of `rounds` round trips.
    fn grow(cubic: &mut Cubic, cwnd: f64, rounds: u64) -> Vec<f64> {
        let mut cwnd = cwnd;
        let round = |n| {
            for _ in 0..whole(cwnd / MTU) {
                cwnd = cubic.on_ack(at(n * RTT_US), cwnd, MTU, (float(RTT_US) * 1e3, MTU));
            }
            cwnd / MTU
        };
        (0..rounds).map(round).collect()
    }

    #[test]
    fn on_ack__the_window_returns_after_k_and_exceeds_it_later() {
        // K = cbrt(1000 x 0.3 / 0.4) = 9.1 s.
        let mut cubic = Cubic::new(at(0), 1e6, true);
        cubic.on_loss(at(0), 1e6);
        let windows = grow(&mut cubic, 0.7e6, 180);
        assert!((windows[90] - 1000.0).abs() < 5.0, "{}", windows[90]);
        assert!((windows[45] - 962.0).abs() < 10.0, "concave: {}", windows[45]);
        assert!((windows[179] - 1278.0).abs() < 30.0, "convex: {}", windows[179]);
    }

    #[test]
    fn cube_root__is_precise() {
        for x in [0.0, 0.1, 1.0, 750.0, 1e12] {
            let root = cube_root(x);
            assert!((root.powi(3) - x).abs() <= 1e-9 * x.max(1e-9), "{x}: {root}");
        }
    }

    #[test]
    fn on_ack__a_short_window_grows_as_aimd() {
        let mut cubic = Cubic::new(at(0), 10e3, true);
        cubic.on_loss(at(0), 10e3);
        // K is 2 s: AIMD gains 0.53 packets in a round trip until then.
        let windows = grow(&mut cubic, 7e3, 20);
        assert!((9.5..18.0).contains(&windows[19]), "{windows:?}");
    }

    #[test]
    fn on_ack__a_flow_without_a_share_grows_by_an_eighth() {
        let windows = grow(&mut Cubic::new(at(0), 16e3, false), 16e3, 10);
        assert!((45.0..56.0).contains(&windows[9]), "{windows:?}");
    }

    #[test]
    fn on_loss__a_flow_that_shrinks_leaves_room() {
        let mut cubic = Cubic::new(at(0), 1e6, true);
        cubic.on_loss(at(0), 1e6);
        cubic.on_loss(at(10_000), 0.8e6);
        assert_eq!(cubic.max, 0.8e6 * 0.85);
    }
}
