//! A constant window and rate.

use crate::rules::MBPS;
use crate::trace::{AckSample, Oracle, compare};
use spanwire_cc::LossKind;

struct Fixed(f64, Option<f64>);

impl Oracle for Fixed {
    fn ack(&mut self, _now: f64, _a: &AckSample) {}
    fn loss(&mut self, _now: f64, _kind: LossKind, _bytes: f64, _inflight: f64) {}
    fn window(&self) -> f64 {
        self.0
    }
    fn rate(&self) -> Option<f64> {
        self.1
    }
}

#[test]
fn fixed__stays() {
    compare("fixed", &[], |path| Fixed(192.0 * path.mtu, None));
    let set = [("window_pkts", "7.5"), ("rate_mbps", "123.456")];
    compare("fixed", &set, |path| Fixed(7.5 * path.mtu, Some(123.456 * MBPS)));
}
