//! Queue pairs of applications: created with a random first PSN, and connected (RTS) to a peer's.

use serde::{Deserialize, Serialize};
use spanwire_transport::{
    Access, AddressVector, Agreed, Balance, CongestionControl, CreateError, Endpoint,
    ErasureCoding, ModifyError, Mtu, QpAttr, QpInit, SrOptions,
};
use spanwire_wire::{Psn, Qpn};

/// The numbers of a queue pair that its peer needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct QpParams {
    /// Queue pair number.
    pub qpn: u32,
    /// First PSN it sends.
    pub psn: u32,
}

impl QpParams {
    /// Checks the numbers of a peer's queue pair: both have 24 bits, and number 0 is that of no
    /// connection.
    ///
    /// # Errors
    /// A number is out of its range; the text names it and the range.
    pub fn check(self) -> Result<(), String> {
        let Self { qpn, psn } = self;
        if !(1..=Qpn::MASK).contains(&qpn) {
            let max = Qpn::MASK;
            return Err(format!("its queue pair number is {qpn}, but must be between 1 and {max}"));
        }
        if psn > Psn::MASK {
            let max = Psn::MASK;
            return Err(format!("its first PSN is {psn}, but must be between 0 and {max}"));
        }
        Ok(())
    }
}

/// Checks the path MTU of a peer's hello.
///
/// # Errors
/// It is no path MTU of the specification.
pub fn check_path_mtu(bytes: u32) -> Result<(), String> {
    match Mtu::from_bytes(bytes) {
        Some(_) => Ok(()),
        None => Err(format!("its path MTU is {bytes}, but must be 256, 512, 1024, 2048 or 4096")),
    }
}

/// The path to the peer, and the terms that both ends agreed on.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Addresses of both ends.
    pub av: AddressVector,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// Wire mode and its terms.
    pub agreed: Agreed,
}

/// Send options of queue pairs.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Sending {
    /// Congestion control; `None` for the default, `auto`.
    pub congestion: Option<CongestionControl>,
    /// Erasure coding; only in SR.
    pub erasure: Option<ErasureCoding>,
    /// Load balancing; `None` for one path. Only in SR.
    pub balance: Option<Balance>,
}

/// Parameters of the transition to RTS, besides the numbers of both ends.
#[derive(Clone, Copy, Debug)]
pub struct Connect {
    /// The path to the peer.
    pub route: Route,
    /// Local ACK timeout exponent (4.096 us * 2^n).
    pub timeout: u8,
    /// Retransmissions without progress before giving up.
    pub retry_cnt: u8,
    /// READs and atomics that may be outstanding at the peer.
    pub max_rd_atomic: u8,
    /// Send options.
    pub sending: Sending,
}

impl Sending {
    /// The reason why configured erasure coding cannot be used.
    #[must_use]
    pub fn why_no_erasure(&self, agreed: &Agreed) -> Option<&'static str> {
        agreed.why_no_erasure().filter(|_| self.erasure.is_some())
    }

    /// The reason why configured load balancing cannot be used.
    #[must_use]
    pub fn why_no_balance(&self, agreed: &Agreed) -> Option<&'static str> {
        agreed.why_no_balance().filter(|_| self.balance.is_some())
    }

    /// Warns of configured options that the agreed wire mode does not support.
    pub(crate) fn warn_of_unused(&self, agreed: &Agreed) {
        if let Some(why) = self.why_no_erasure(agreed) {
            tracing::warn!("nothing is coded (--ec): {why}");
        }
        if let Some(why) = self.why_no_balance(agreed) {
            tracing::warn!("all packets take one path (--lb): {why}");
        }
    }
}

/// Creates a queue pair in INIT that grants its peer `access`. Its first PSN is random, so that
/// packets of an earlier queue pair, or of an off-path attacker, are out of its window.
///
/// # Errors
/// The endpoint has no room for it, or `init` is out of bounds.
pub fn create(
    endpoint: &mut Endpoint,
    init: &QpInit,
    access: Access,
) -> Result<QpParams, CreateError> {
    let qpn = endpoint.create_qp(init)?;
    endpoint.modify_qp(qpn, &QpAttr::init(access)).expect("a new queue pair goes to INIT");
    let random = endpoint.random() & u64::from(Psn::MASK);
    let psn = u32::try_from(random).expect("a PSN has 24 bits");
    Ok(QpParams { qpn: qpn.get(), psn })
}

/// Brings `ours`, a queue pair in INIT, to RTS with `theirs` as its other end.
///
/// # Errors
/// A number of the peer is invalid, or a configured value is out of its range.
pub fn connect(
    endpoint: &mut Endpoint,
    ours: QpParams,
    theirs: QpParams,
    how: &Connect,
) -> Result<(), ModifyError> {
    let Connect { route: Route { av, path_mtu, agreed }, sending, .. } = *how;
    let qpn = Qpn::new(ours.qpn);
    let Sending { congestion, erasure, balance } = sending;
    let options = SrOptions { erasure, balance, ..SrOptions::default() };
    let rtr = QpAttr {
        wire: Some(agreed.wire(&options, &congestion.unwrap_or_default())),
        ..QpAttr::rtr(Qpn::new(theirs.qpn), Psn::new(theirs.psn), path_mtu, av)
    };
    endpoint.modify_qp(qpn, &rtr)?;
    let rts = QpAttr {
        timeout: Some(how.timeout),
        retry_cnt: Some(how.retry_cnt),
        max_rd_atomic: Some(how.max_rd_atomic),
        congestion,
        ..QpAttr::rts(Psn::new(ours.psn))
    };
    endpoint.modify_qp(qpn, &rts)
}

/// READs and atomics that a queue pair can respond to at a time, and the most that it has
/// outstanding at a Spanwire peer.
pub const RD_ATOMIC: u8 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use spanwire_cc::Algorithm;
    use spanwire_transport::{Offer, QpCaps, SrFeatures, ValidConfig, agree};
    use spanwire_wire::MacAddr;

    #[test]
    fn create__first_psns_differ_and_fit() {
        let mut endpoint = Endpoint::new(ValidConfig::default(), [1; 32]);
        let pd = endpoint.alloc_pd().unwrap();
        let cq = endpoint.create_cq(16).unwrap();
        let init = QpInit::new(pd, cq, cq, QpCaps::default());
        let make = |_| create(&mut endpoint, &init, Access::LOCAL_WRITE).unwrap();
        let made: Vec<QpParams> = (0..3).map(make).collect();
        assert!(made.iter().all(|qp| qp.psn <= Psn::MASK));
        assert!(made[0].psn != made[1].psn && made[1].psn != made[2].psn, "{made:?}");
    }

    /// A queue pair in RTS with this congestion control requests feedback of switches, if the peer
    /// has made this offer.
    fn requests_feedback(theirs: &Offer, algorithm: &str) -> bool {
        let mut endpoint = Endpoint::new(ValidConfig::default(), [1; 32]);
        let pd = endpoint.alloc_pd().unwrap();
        let cq = endpoint.create_cq(16).unwrap();
        let init = QpInit::new(pd, cq, cq, QpCaps::default());
        let ours = create(&mut endpoint, &init, Access::LOCAL_WRITE).unwrap();
        let [a, b] = [1, 2].map(|i| (MacAddr::new([2, 0, 0, 0, 0, i]), [10, 0, 0, i].into()));
        let offer = Offer::of(&ValidConfig::default(), Some(1408));
        let how = Connect {
            route: Route {
                av: AddressVector::new(a.0, b.0, a.1, b.1),
                path_mtu: Mtu::B1024,
                agreed: agree(&offer, theirs).unwrap(),
            },
            timeout: 14,
            retry_cnt: 7,
            max_rd_atomic: RD_ATOMIC,
            sending: Sending {
                congestion: Some(CongestionControl {
                    algorithm: Some(Algorithm::parse(algorithm).unwrap()),
                    ..CongestionControl::NONE
                }),
                ..Sending::default()
            },
        };
        connect(&mut endpoint, ours, QpParams { qpn: 77, psn: 5 }, &how).unwrap();
        endpoint.query_qp(Qpn::new(ours.qpn)).unwrap().attr.sr().is_some_and(|sr| sr.near)
    }

    #[test]
    fn connect__requests_feedback_of_switches_if_it_is_used_and_the_peer_accepts_it() {
        let full = Offer::of(&ValidConfig::default(), Some(1408));
        let mut old = full;
        old.sr.as_mut().unwrap().features = SrFeatures::of(["block"]);
        let near = "swift,near_base_us=6.5";
        assert!(requests_feedback(&full, near));
        assert!(!requests_feedback(&full, "swift"));
        assert!(!requests_feedback(&old, near));
        assert!(!requests_feedback(&Offer::SILENT, near));
    }

    #[test]
    fn check__accepts_24_bits_and_no_queue_pair_0() {
        let why = |qpn, psn| QpParams { qpn, psn }.check().err().unwrap_or_default();
        assert_eq!([why(1, 0), why(0xff_ffff, 0xff_ffff)], ["", ""]);
        let range = "must be between 1 and 16777215";
        assert_eq!(why(0, 0), format!("its queue pair number is 0, but {range}"));
        assert_eq!(why(1 << 24, 0), format!("its queue pair number is 16777216, but {range}"));
        assert!(why(1, 1 << 24).contains("first PSN is 16777216"));
    }

    #[test]
    fn check_path_mtu__accepts_those_of_the_specification() {
        for bytes in [256, 512, 1024, 2048, 4096] {
            assert!(check_path_mtu(bytes).is_ok());
        }
        for bytes in [0, 255, 999, 1500, 4097, u32::MAX] {
            let why = check_path_mtu(bytes).unwrap_err();
            assert!(why.contains(&format!("its path MTU is {bytes}")), "{why}");
        }
    }

    #[test]
    fn why_no__only_if_configured() {
        let plain = Sending::default();
        assert_eq!(
            (plain.why_no_erasure(&Agreed::Rc), plain.why_no_balance(&Agreed::Rc)),
            (None, None)
        );
        let coded = Sending { erasure: Some(ErasureCoding::new(8, 2)), ..plain };
        assert!(coded.why_no_erasure(&Agreed::Rc).is_some());
        assert_eq!(coded.why_no_balance(&Agreed::Rc), None);
    }
}
