//! Numbers of queue pairs.

use super::*;
use crate::QpnPrefix;

#[test]
fn create_qp__numbers_have_the_prefix_and_random_bits() {
    for (bits, max_qps) in [(6, 1024), (16, 1), (3, 1000)] {
        for value in [0, 1, (1 << bits) - 1] {
            let qpn_prefix = Some(QpnPrefix { bits, value });
            let mut ep = endpoint(Config { max_qps, qpn_prefix, ..Config::default() });
            let (pd, cq) = (ep.alloc_pd().unwrap(), ep.create_cq(4).unwrap());
            let init = QpInit::new(pd, cq, cq, QpCaps::default());
            let mut seen = std::collections::BTreeSet::new();
            for _ in 0..2000 {
                let qpn = ep.create_qp(&init).unwrap();
                assert_eq!(qpn.get() >> (24 - bits), value, "{qpn:?}");
                assert!(qpn.get() >= 2 && qpn.get() < Qpn::MASK, "{qpn:?} is reserved");
                seen.insert(qpn);
                assert!(ep.destroy_qp(qpn));
            }
            assert!(seen.len() > 240, "{bits}, {max_qps}: {} numbers of a slot", seen.len());
        }
    }
}
