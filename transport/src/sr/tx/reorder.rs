//! RACK's reordering window (`reo_wnd`, RFC 8985 6.2).

use spanwire_base::Dur;

/// The reordering window: a multiple of a quarter of the minimum RTT, or the observed reordering
/// if that is larger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReorderWindow {
    pub(super) reo_wnd_mult: u64,
    /// The largest observed delay of an overtaken packet, and a quarter more.
    max_reordering: Dur,
    /// Recoveries without a spurious retransmission before the window shrinks.
    reo_wnd_persist: u32,
}

impl Default for ReorderWindow {
    fn default() -> Self {
        Self { reo_wnd_mult: 1, max_reordering: Dur::ZERO, reo_wnd_persist: 0 }
    }
}

impl ReorderWindow {
    /// The reordering window: a packet is lost if it is overdue by more.
    pub(crate) fn reo_wnd(self, min_rtt: Dur, srtt: Dur) -> Dur {
        let by_rtt = (min_rtt * self.reo_wnd_mult / 4).min(srtt);
        by_rtt.max(self.max_reordering.min(REORDERING_MAX.max(srtt * 2)))
    }

    /// An overtaken packet arrived `by` later than the minimum RTT.
    pub(crate) fn on_reordering(&mut self, by: Dur) {
        self.max_reordering = self.max_reordering.max(by + by / 4);
        self.reo_wnd_persist = REO_WND_PERSIST;
    }

    /// A retransmission was spurious.
    pub(crate) fn widen(&mut self) {
        self.reo_wnd_mult = (self.reo_wnd_mult + 1).min(REO_WND_MULT_MAX);
        self.reo_wnd_persist = REO_WND_PERSIST;
    }

    /// A recovery ended.
    pub(crate) fn on_recovery_end(&mut self) {
        self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
        if self.reo_wnd_persist == 0 {
            (self.reo_wnd_mult, self.max_reordering) = (1, Dur::ZERO);
        }
    }
}

/// The limit of observed reordering, unless two round trips are more: losses must be detected
/// before the RTO expires. The RTO of a path of some microseconds is at its least value, above
/// this.
const REORDERING_MAX: Dur = Dur::from_ms(4);
/// Four round trips. The window is at most the smoothed RTT in any case.
const REO_WND_MULT_MAX: u64 = 16;
/// Recoveries for which a wider window persists (RFC 8985 6.2).
const REO_WND_PERSIST: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reo_wnd__is_a_quarter_and_grows_with_observed_reordering() {
        let us = Dur::from_us;
        let mut w = ReorderWindow::default();
        assert_eq!(w.reo_wnd(us(100), us(120)), us(25));
        for _ in 0..20 {
            w.widen();
        }
        assert_eq!(w.reo_wnd(us(100), us(120)), us(120), "the multiple is limited by srtt");
        w.on_reordering(us(200));
        assert_eq!(w.reo_wnd(us(100), us(120)), us(250));
        w.on_reordering(us(1_000_000));
        assert_eq!(w.reo_wnd(us(100), us(120)), us(4000));
        assert_eq!(w.reo_wnd(us(100), us(40_000)), us(80_000));
        for _ in 0..16 {
            w.on_recovery_end();
        }
        assert_eq!(w.reo_wnd(us(100), us(120)), us(25));
    }
}
