//! The window of MP-RDMA (NSDI'18). Marks of an acknowledgement of several packets are counted by
//! bytes. Both rules use the window before it; the increase comes first.

use crate::trace::{AckSample, Oracle, PathModel, compare};
use spanwire_cc::LossKind;

struct MpRdma {
    path: PathModel,
    pkts: f64,
    ooh: f64,
}

impl MpRdma {
    fn new(path: PathModel) -> Self {
        Self { path, pkts: (path.bdp() / path.mtu).max(1.0), ooh: 0.0 }
    }
}

impl Oracle for MpRdma {
    fn ack(&mut self, _now: f64, a: &AckSample) {
        if a.acked == 0.0 {
            return;
        }
        let marked = a.pkts * a.marked / a.acked;
        if a.bound(self.pkts * self.path.mtu, &self.path) {
            self.pkts += (a.pkts - marked) / self.pkts;
        }
        self.pkts -= 0.5 * marked;
        if !a.is_retransmission && a.number < self.ooh - 32.0 {
            self.pkts -= 1.0;
        }
        self.ooh = self.ooh.max(a.number);
        self.pkts = self.pkts.min(self.path.bdp() / self.path.mtu).max(1.0);
    }

    fn loss(&mut self, _now: f64, kind: LossKind, _bytes: f64, _inflight: f64) {
        if matches!(kind, LossKind::Timeout(_)) {
            self.pkts = (self.pkts / 2.0).max(1.0);
        }
    }

    fn window(&self) -> f64 {
        self.pkts * self.path.mtu
    }

    fn rate(&self) -> Option<f64> {
        None
    }
}

#[test]
fn mprdma__follows_the_paper() {
    compare("mprdma", &[], MpRdma::new);
}
