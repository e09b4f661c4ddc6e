//! Swift (SIGCOMM'20), by Falcon's description with its errata corrected.

use crate::rules::{Once, smooth};
use crate::trace::{AckSample, Oracle, PathModel, compare};
use spanwire_cc::LossKind;

struct Swift {
    path: PathModel,
    fabric: Loop,
    ends: Loop,
    ends_delay: Option<f64>,
    srtt: Option<f64>,
    retx: u32,
    hops: f64,
}

struct Loop {
    pkts: f64,
    dec: Once,
}

const BETA: f64 = 0.8;
const MAX_MDF: f64 = 0.5;
const FS_RANGE: f64 = 50_000.0;
const LEAST: f64 = 0.01;

fn flow_scaling(pkts: f64) -> f64 {
    let (fs_min, fs_max): (f64, f64) = (0.1, 100.0);
    let alpha = FS_RANGE / (1.0 / fs_min.sqrt() - 1.0 / fs_max.sqrt());
    let beta = -alpha / fs_max.sqrt();
    (alpha / pkts.sqrt() + beta).clamp(0.0, FS_RANGE)
}

impl Loop {
    fn update(&mut self, now: f64, srtt: f64, delay: f64, target: f64, grown: f64) {
        if delay < target {
            self.pkts += if self.pkts >= 1.0 { grown / self.pkts } else { grown };
        } else if self.dec.may(now, srtt) {
            self.pkts *= f64::max(1.0 - BETA * (delay - target) / delay, 1.0 - MAX_MDF);
        }
    }
}

impl Swift {
    fn new(path: PathModel) -> Self {
        let pkts = f64::min(16.0, (path.bdp() / path.mtu).max(1.0));
        let new = || Loop { pkts, dec: Once::default() };
        Self { path, fabric: new(), ends: new(), ends_delay: None, srtt: None, retx: 0, hops: 0.0 }
    }

    fn base_target(&self) -> f64 {
        self.path.base + 10_000.0 + self.hops * 1_000.0
    }

    fn most(&self) -> f64 {
        (self.path.bdp() * (1.0 + self.base_target() / self.path.base) / self.path.mtu).max(1.0)
    }

    fn pkts(&self) -> f64 {
        self.fabric.pkts.min(self.ends.pkts)
    }

    fn cut(&mut self, now: f64) {
        if self.fabric.dec.may(now, self.srtt.unwrap_or(0.0)) {
            self.fabric.pkts = (self.fabric.pkts * (1.0 - MAX_MDF)).max(LEAST);
        }
    }
}

impl Oracle for Swift {
    fn ack(&mut self, now: f64, a: &AckSample) {
        if let Some(rtt) = a.rtt {
            self.srtt = Some(smooth(self.srtt, rtt));
            self.ends_delay = Some(smooth(self.ends_delay, a.ends));
        }
        self.retx = 0;
        self.hops = a.hops.unwrap_or(self.hops);
        let bound = a.bound(self.pkts() * self.path.mtu, &self.path);
        let grown = if bound { a.acked / self.path.mtu } else { 0.0 };
        let (srtt, most) = (self.srtt.unwrap_or(0.0), self.most());
        if let Some(delay) = a.fabric() {
            let target = self.base_target() + flow_scaling(self.fabric.pkts);
            self.fabric.update(now, srtt, delay, target, grown);
            self.fabric.pkts = self.fabric.pkts.clamp(LEAST, most);
        }
        if let Some(delay) = self.ends_delay {
            self.ends.update(now, srtt, delay, 500_000.0, grown);
            self.ends.pkts = self.ends.pkts.clamp(LEAST, most);
        }
    }

    fn loss(&mut self, now: f64, kind: LossKind, _bytes: f64, _inflight: f64) {
        match kind {
            LossKind::Block => {}
            LossKind::Recovery | LossKind::BlockRecovery => {
                self.retx = 0;
                self.cut(now);
            }
            LossKind::Timeout(_) => {
                self.retx += 1;
                if self.retx >= 5 {
                    self.fabric.pkts = LEAST;
                } else {
                    self.cut(now);
                }
            }
        }
    }

    fn window(&self) -> f64 {
        self.pkts().max(1.0) * self.path.mtu
    }

    fn rate(&self) -> Option<f64> {
        None
    }

    fn gap(&self) -> f64 {
        match self.srtt {
            Some(srtt) if self.pkts() < 1.0 => (srtt / self.pkts()).min(1e9),
            _ => 0.0,
        }
    }
}

#[test]
fn swift__follows_the_paper() {
    compare("swift", &[], Swift::new);
}
