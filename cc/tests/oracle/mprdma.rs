//! The window of MP-RDMA (NSDI'18). Marks of an acknowledgement of several packets are counted by
//! bytes. Both rules use the window before it; the increase comes first.

use crate::trace::{Oracle, Told, Way, compare};
use spanwire_cc::LossKind;

struct MpRdma {
    way: Way,
    pkts: f64,
    ooh: f64,
}

impl MpRdma {
    fn new(way: Way) -> Self {
        Self { way, pkts: (way.bdp() / way.mtu).max(1.0), ooh: 0.0 }
    }
}

impl Oracle for MpRdma {
    fn ack(&mut self, _now: f64, a: &Told) {
        if a.acked == 0.0 {
            return;
        }
        let marked = a.pkts * a.marked / a.acked;
        if a.bound(self.pkts * self.way.mtu, &self.way) {
            self.pkts += (a.pkts - marked) / self.pkts;
        }
        self.pkts -= 0.5 * marked;
        if !a.again && a.number < self.ooh - 32.0 {
            self.pkts -= 1.0;
        }
        self.ooh = self.ooh.max(a.number);
        self.pkts = self.pkts.min(self.way.bdp() / self.way.mtu).max(1.0);
    }

    fn loss(&mut self, _now: f64, kind: LossKind, _bytes: f64, _inflight: f64) {
        if matches!(kind, LossKind::Timeout(_)) {
            self.pkts = (self.pkts / 2.0).max(1.0);
        }
    }

    fn window(&self) -> f64 {
        self.pkts * self.way.mtu
    }

    fn rate(&self) -> Option<f64> {
        None
    }
}

#[test]
fn mprdma__follows_the_paper() {
    compare("mprdma", &[], MpRdma::new);
}
