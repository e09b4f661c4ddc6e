//! The window of MP-RDMA. Each packet's ECN mark acts separately, and an acknowledgement from far
//! behind the newest shrinks the window, which moves traffic away from a slow path.
//!
//! # Source
//! MP-RDMA 3 (NSDI'18), by its public models. In the paper window and path selection are
//! one mechanism: a packet leaves on the path that an acknowledgement came from. Here the window
//! sets only the amount; the load balancer selects the path. The paper's window inflation
//! corresponds to the bytes that selective acknowledgements take out of flight.

use crate::params::params;
use crate::round::Base;
use crate::units::{float, whole};
use crate::{Ack, Controller, Loss, LossKind, Path};
use spanwire_base::{Dur, Rate, Time};

params! {
    /// Parameters of MP-RDMA's window.
    struct Params of f64;
    /// Maximum reordering in packets behind the newest, at most half of the receiver's tracking
    /// range.
    ///
    /// MP-RDMA 3.3.
    delta_pkts = 32.0 in 1.0..=1e6;
    /// Decrease for a mark in packets.
    ///
    /// MP-RDMA 3.1; Uno's figures 3, 8 and 9 use 0.15.
    decrease_pkts = 0.5 in 0.001..=1.0;
    /// Initial window in bandwidth-delay products, if they are known.
    ///
    /// MP-RDMA 3.4.
    initial_bdps = 1.0 in 0.0001..=100.0;
    /// Maximum window in bandwidth-delay products.
    ///
    /// Uno's runs.
    max_bdps = 1.0 in 0.01..=100.0;
}

/// The MP-RDMA controller of one flow. Window in packets.
#[derive(Clone, Debug)]
pub struct MpRdma {
    p: Params,
    mtu: f64,
    base: Base,
    pkts: f64,
    /// The highest number acknowledged.
    newest: u64,
}

impl MpRdma {
    /// The controller of one flow.
    #[must_use]
    pub fn new(params: &Params, path: &Path) -> Self {
        let mut this = Self {
            p: *params,
            mtu: f64::from(path.mtu_bytes),
            base: Base::new(path),
            pkts: UNKNOWN_PKTS,
            newest: 0,
        };
        this.scale();
        this
    }

    fn scale(&mut self) {
        if let Some(bdp) = self.base.bdp_once() {
            self.pkts = bdp / self.mtu * self.p.initial_bdps.min(self.p.max_bdps);
            self.clamp();
        }
    }

    fn clamp(&mut self) {
        let max = self.base.bdp().map_or(f64::MAX, |bdp| bdp / self.mtu * self.p.max_bdps);
        self.pkts = self.pkts.min(max).max(1.0);
    }
}

impl Controller for MpRdma {
    fn cwnd_bytes(&self) -> u64 {
        whole(self.pkts * self.mtu)
    }

    fn set_path(&mut self, line_rate: Rate, base_rtt: Dur) {
        self.base.set(line_rate, base_rtt);
    }

    fn on_ack(&mut self, _now: Time, a: &Ack<'_>) {
        self.base.on_ack(a);
        self.scale();
        if a.acked_bytes == 0 {
            return;
        }
        let pkts = float(a.acked_pkts);
        let marked = pkts * float(a.marked_bytes.min(a.acked_bytes)) / float(a.acked_bytes);
        if a.is_limited(self.pkts * self.mtu, self.mtu) {
            self.pkts += (pkts - marked) / self.pkts;
        }
        self.pkts -= marked * self.p.decrease_pkts;
        // A retransmission is late because of its loss, not because of its path.
        let behind = self.newest.saturating_sub(a.number);
        if !a.is_retransmission && float(behind) > self.p.delta_pkts {
            self.pkts -= 1.0;
        }
        self.newest = self.newest.max(a.number);
        self.clamp();
    }

    fn on_loss(&mut self, _now: Time, loss: &Loss) {
        if let LossKind::Timeout(_) = loss.kind {
            self.pkts = (self.pkts / 2.0).max(1.0);
        }
    }
}

/// Initial window in packets while the bandwidth-delay product is unknown.
const UNKNOWN_PKTS: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, close, path};
    use spanwire_base::Dur;

    fn flow(pkts: f64) -> MpRdma {
        let mut cc = MpRdma::new(&Params::default(), &path(1000, 100, Some(Dur::from_us(100))));
        cc.pkts = pkts;
        cc
    }

    fn ack(number: u64, marked: bool) -> Ack<'static> {
        let marked_bytes = if marked { 1000 } else { 0 };
        Ack {
            acked_bytes: 1000,
            acked_pkts: 1,
            marked_bytes,
            number,
            cwnd_limited: true,
            ..Ack::default()
        }
    }

    #[test]
    fn on_ack__each_mark_decreases_by_half_a_packet() {
        let mut cc = flow(10.0);
        cc.on_ack(at(1), &ack(1, false));
        assert!(close(cc.pkts, 10.1));
        cc.on_ack(at(2), &ack(2, true));
        assert!(close(cc.pkts, 9.6));
    }

    #[test]
    fn on_ack__a_path_too_far_behind_shrinks_the_window() {
        for (number, want) in [(60, 9.1), (68, 10.1)] {
            let mut cc = flow(10.0);
            cc.newest = 100;
            cc.on_ack(at(1), &ack(number, false));
            assert!(close(cc.pkts, want), "{number}: {}", cc.pkts);
        }
        let mut cc = flow(10.0);
        cc.newest = 100;
        cc.on_ack(at(1), &Ack { is_retransmission: true, ..ack(60, false) });
        assert!(close(cc.pkts, 10.1), "a retransmission");
    }

    #[test]
    fn on_ack__out_of_order_arrivals_are_not_in_flight() {
        // Four in flight, one acknowledged after a gap: of 4.25, three remain in flight.
        let mut cc = flow(4.0);
        cc.on_ack(at(1), &ack(12, false));
        assert!(close(cc.pkts, 4.25));
        let room = cc.cwnd_bytes() - 3 * 1000;
        assert_eq!(room, 1250, "one packet and a quarter");
    }

    #[test]
    fn on_loss__halves_only_after_a_timeout() {
        let mut cc = flow(10.0);
        let loss = |kind| Loss { kind, bytes: 1, inflight_bytes: 0 };
        cc.on_loss(at(1), &loss(LossKind::Recovery));
        assert!(close(cc.pkts, 10.0));
        cc.on_loss(at(1), &loss(LossKind::Timeout(1)));
        assert!(close(cc.pkts, 5.0));
    }
}
