//! Credits of the peer (MLCC).

use super::Flow;
use spanwire_base::{Rate, Time};
use spanwire_cc::Controller;
use spanwire_wire::SrCredit;

impl Flow {
    /// Packets must request telemetry with a credit.
    pub(crate) fn wants_credit(&self) -> bool {
        self.cc.wants_credit()
    }

    /// Reports the rate that the peer suggests. The number of its round shows reordered ACKs: the
    /// rate of one that is a few rounds older than the newest is ignored. Any other number is
    /// newer, so a forged one cannot block those of the peer for longer than these rounds.
    #[inline(never)]
    pub(crate) fn on_credit(&mut self, now: Time, credit: &SrCredit) {
        if self.credit.is_some_and(|newest| is_reordered(credit.credit, newest)) {
            return;
        }
        self.credit = Some(credit.credit);
        let suggested = Rate::from_bps((u64::from(credit.suggested_kbps) * 1000).max(1));
        self.cc.on_credit(now, suggested);
        self.update_rate(now);
    }
}

/// The round `credit` is earlier than `newest`, and not by so much that one of both is forged.
fn is_reordered(credit: u32, newest: u32) -> bool {
    (1..=REORDERED_ROUNDS).contains(&newest.wrapping_sub(credit))
}

/// The rounds by which an ACK may be reordered: three round trips between a receiver and its
/// switch, and more.
const REORDERED_ROUNDS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::CongestionControl;
    use crate::config::Config;

    #[test]
    fn is_reordered__of_the_rounds_before_the_newest() {
        for newest in [0, 1, 1000, u32::MAX] {
            let is = |behind: u32| is_reordered(newest.wrapping_sub(behind), newest);
            assert!(!is(0) && is(1) && is(64) && !is(65) && !is(1 << 31));
            assert!(!is_reordered(newest.wrapping_add(1), newest));
        }
    }

    #[test]
    fn on_credit__ignores_the_rate_of_a_reordered_ack() {
        let algorithm = Some(spanwire_cc::Algorithm::named("mlcc").unwrap());
        let choice = CongestionControl { algorithm, ..CongestionControl::NONE };
        let mut flow = Flow::new(&choice, 1000, &Config::default()).unwrap();
        let mut rate_after = |credit: u32, gbps: u32| {
            let suggested_kbps = gbps * 1_000_000;
            let credit = SrCredit { credit, rate_kbps: 1, suggested_kbps };
            flow.on_credit(Time::ZERO, &credit);
            flow.info().rate.unwrap().as_bps() / 1_000_000_000
        };
        assert_eq!(rate_after(100, 30), 30);
        assert_eq!(rate_after(99, 50), 30, "reordered");
        assert_eq!(rate_after(100, 20), 20, "of the same round");
        assert_eq!(rate_after(101, 40), 40);
        assert_eq!(rate_after(36, 10), 10, "not of this sequence");
        assert_eq!(rate_after(101, 60), 60, "nor blocked by it");
        assert_eq!(rate_after(102, 0), 1, "at least a hundredth of the line's");
        assert_eq!(rate_after(103, 4_000), 100, "at most the line's");
    }
}
