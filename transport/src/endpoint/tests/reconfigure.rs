//! Another configuration before the first queue pair.

use super::*;
use crate::{Notify, ReconfigureError, RecvRequest, Sge, SrqInit};

/// One object of each kind but a queue pair.
fn opened() -> (Endpoint, QpInit) {
    let mut ep = endpoint(Config::default());
    let (pd, cq) = (ep.alloc_pd().unwrap(), ep.create_cq(100).unwrap());
    let srq = ep.create_srq(&SrqInit { pd, max_wr: 50, max_sge: 1 }).unwrap();
    (ep, QpInit { srq: Some(srq), ..QpInit::new(pd, cq, cq, QpCaps::default()) })
}

#[test]
fn reconfigure__keeps_what_exists_until_the_first_queue_pair() {
    let (mut ep, init) = opened();
    let mr = ep.reg_mr(init.pd, Region::zeroed(8), Access::ALL, None).unwrap();
    ep.req_notify_cq(init.send_cq, Notify::Next).unwrap();
    let sges = [Sge { addr: mr.addr, len: 8, lkey: mr.lkey }];
    ep.post_srq_recv(init.srq.unwrap(), &RecvRequest { wr_id: 1, sges: &sges }).unwrap();
    let rate = Some(Rate::from_gbps(1));
    let config = Config { max_qps: 2, max_mrs: 1, port_rate: rate, ..Config::default() };
    ep.reconfigure(config.validate().unwrap()).unwrap();
    assert_eq!((ep.config().max_qps, ep.port.is_some()), (2, true));
    assert_eq!(ep.query_srq(init.srq.unwrap()).unwrap().posted, 1);
    let second = ep.reg_mr(init.pd, Region::zeroed(8), Access::ALL, None);
    assert_eq!(second, Err(CreateError::Limit("max_mrs")));
    assert!(ep.renew_rkey(mr.lkey).is_ok());
    let qpns = [0, 1].map(|_| ep.create_qp(&init).unwrap());
    assert_eq!(qpns.map(|qpn| qpn.get() & 1), [0, 1], "one bit is the slot");
    assert_eq!(ep.create_qp(&init), Err(CreateError::Limit("max_qps")));
    assert!(qpns.iter().all(|qpn| ep.destroy_qp(*qpn)));
    let refused = ep.reconfigure(ValidConfig::default());
    assert_eq!(refused, Err(ReconfigureError::HasQueuePairs), "packets to them may arrive");
    assert_eq!(ep.config().max_qps, 2);
}

#[test]
fn reconfigure__refuses_less_than_what_is_in_use() {
    let (mut ep, init) = opened();
    for _ in 0..2 {
        ep.alloc_pd().unwrap();
        ep.create_cq(4).unwrap();
        ep.create_srq(&SrqInit { pd: init.pd, max_wr: 5, max_sge: 1 }).unwrap();
        ep.reg_mr(init.pd, Region::zeroed(8), Access::ALL, None).unwrap();
    }
    type Field = fn(&mut Config) -> &mut u32;
    let least: [(Field, u32, &str); 6] = [
        (|c| &mut c.max_pds, 3, "max_pds"),
        (|c| &mut c.max_mrs, 2, "max_mrs"),
        (|c| &mut c.max_cqs, 3, "max_cqs"),
        (|c| &mut c.max_srqs, 3, "max_srqs"),
        (|c| &mut c.max_cqe, 100, "max_cqe"),
        (|c| &mut c.max_wr, 50, "max_wr"),
    ];
    for (field, used, name) in least {
        let mut with = |value| {
            let mut config = Config::default();
            *field(&mut config) = value;
            ep.reconfigure(config.validate().unwrap())
        };
        assert_eq!((with(used - 1), with(used)), (Err(ReconfigureError::InUse(name)), Ok(())));
    }
    let text = ReconfigureError::InUse("max_cqe").to_string();
    assert_eq!(text, "more is in use than the new max_cqe allows");
}

#[test]
fn reconfigure__objects_that_are_gone_leave_their_room() {
    let (mut ep, init) = opened();
    let mrs = [0; 9].map(|_| ep.reg_mr(init.pd, Region::zeroed(8), Access::ALL, None).unwrap());
    let kept = mrs[8];
    mrs[..8].iter().for_each(|mr| ep.dereg_mr(mr.lkey).unwrap());
    let config = Config { max_mrs: 2, ..Config::default() };
    ep.reconfigure(config.validate().unwrap()).unwrap();
    assert!(ep.reg_mr(init.pd, Region::zeroed(8), Access::ALL, None).is_ok());
    let full = ep.reg_mr(init.pd, Region::zeroed(8), Access::ALL, None);
    assert_eq!(full, Err(CreateError::Limit("max_mrs")));
    assert_eq!(ep.dereg_mr(kept.lkey), Ok(()));
}
