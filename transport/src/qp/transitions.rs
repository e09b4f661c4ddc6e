//! The attributes of each state transition of a queue pair, by service.

use super::state::{ModifyError, QpState};
use crate::attr::{Attr, QpAttr, Service};

/// Checks `attr` against the current state and returns the next state.
///
/// # Source
/// The required and optional attributes in `ibv_modify_qp(3)`. P_Key index and port are fixed, so
/// they are not attributes.
pub(crate) fn check_modify(
    service: Service,
    from: QpState,
    attr: &QpAttr,
) -> Result<QpState, ModifyError> {
    let to = attr.state.unwrap_or(from);
    let allowed = match service {
        Service::Rc => reliable(from, to),
    };
    let (required, optional) = allowed.ok_or(ModifyError::BadTransition { from, to })?;
    for one in Attr::ALL {
        let is_required = required.contains(one);
        match one.is_given(attr) {
            false if is_required => return Err(ModifyError::Missing(one.name())),
            true if !is_required && !optional.contains(one) => {
                return Err(ModifyError::NotNow(one.name()));
            }
            _ => {}
        }
    }
    attr.out_of_range().map_or(Ok(to), |name| Err(ModifyError::OutOfRange(name)))
}

/// The required and the optional attributes of a transition.
type Allowed = (&'static [Attr], &'static [Attr]);

/// The transitions of a reliable connection.
fn reliable(from: QpState, to: QpState) -> Option<Allowed> {
    use QpState::{Err as Error, Init, Reset, Rtr, Rts, Sqd};
    Some(match (from, to) {
        (_, Reset | Error) | (Rts, Sqd) => (&[], &[]),
        (Reset | Init, Init) => (&[Attr::access], &[]),
        (Init, Rtr) => (
            &[
                Attr::av,
                Attr::path_mtu,
                Attr::dest_qpn,
                Attr::rq_psn,
                Attr::max_dest_rd_atomic,
                Attr::min_rnr_timer,
            ],
            &[Attr::access, Attr::wire],
        ),
        (Rtr, Rts) => (
            &[Attr::sq_psn, Attr::timeout, Attr::retry_cnt, Attr::rnr_retry, Attr::max_rd_atomic],
            &[Attr::access, Attr::min_rnr_timer, Attr::congestion, Attr::weight],
        ),
        (Rts | Sqd, Rts) => {
            (&[], &[Attr::access, Attr::min_rnr_timer, Attr::congestion, Attr::weight])
        }
        (Sqd, Sqd) => (
            &[],
            &[
                Attr::access,
                Attr::av,
                Attr::max_rd_atomic,
                Attr::max_dest_rd_atomic,
                Attr::timeout,
                Attr::retry_cnt,
                Attr::rnr_retry,
                Attr::min_rnr_timer,
            ],
        ),
        _ => return None,
    })
}

/// Attributes that only a drained send queue may change, because packets in flight depend on them.
pub(crate) const OF_A_DRAINED_QUEUE: [Attr; 5] =
    [Attr::av, Attr::max_rd_atomic, Attr::timeout, Attr::retry_cnt, Attr::rnr_retry];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::{AddressVector, Mtu, SrOptions, Wire};
    use crate::mr::Access;
    use spanwire_wire::{MacAddr, Psn, Qpn};

    fn check_modify(from: QpState, attr: &QpAttr) -> Result<QpState, ModifyError> {
        super::check_modify(Service::Rc, from, attr)
    }

    fn rtr() -> QpAttr {
        let av = AddressVector::new(
            MacAddr::new([2; 6]),
            MacAddr::new([4; 6]),
            [10, 0, 0, 1].into(),
            [10, 0, 0, 2].into(),
        );
        QpAttr::rtr(Qpn::new(9), Psn::new(0), Mtu::B1024, av)
    }

    #[test]
    fn check_modify__allows_the_usual_sequence() {
        let init = QpAttr::init(Access::ALL);
        assert_eq!(check_modify(QpState::Reset, &init), Ok(QpState::Init));
        assert_eq!(check_modify(QpState::Init, &rtr()), Ok(QpState::Rtr));
        assert_eq!(check_modify(QpState::Rtr, &QpAttr::rts(Psn::new(1))), Ok(QpState::Rts));
        let err = QpAttr { state: Some(QpState::Err), ..QpAttr::default() };
        assert_eq!(check_modify(QpState::Rts, &err), Ok(QpState::Err));
        let reset = QpAttr { state: Some(QpState::Reset), ..QpAttr::default() };
        assert_eq!(check_modify(QpState::Err, &reset), Ok(QpState::Reset));
    }

    #[test]
    fn check_modify__names_missing_and_misplaced_attributes() {
        let without_psn = QpAttr { rq_psn: None, ..rtr() };
        let got = check_modify(QpState::Init, &without_psn);
        assert_eq!(got, Err(ModifyError::Missing("rq_psn")));
        let early = QpAttr { timeout: Some(14), ..rtr() };
        assert_eq!(check_modify(QpState::Init, &early), Err(ModifyError::NotNow("timeout")));
        let wild = QpAttr { retry_cnt: Some(8), ..QpAttr::rts(Psn::new(0)) };
        assert_eq!(check_modify(QpState::Rtr, &wild), Err(ModifyError::OutOfRange("retry_cnt")));
    }

    #[test]
    fn check_modify__the_wire_protocol_is_chosen_once() {
        let with = |options| QpAttr { wire: Some(Wire::Sr(options)), ..rtr() };
        let plain = SrOptions::default();
        let segment = |n| SrOptions { segment_bytes: Some(n), ..plain };
        for options in [plain, segment(64), segment(1400), segment(65_280)] {
            assert_eq!(check_modify(QpState::Init, &with(options)), Ok(QpState::Rtr));
        }
        for wild in [0, 63, 65_281] {
            let got = check_modify(QpState::Init, &with(segment(wild)));
            assert_eq!(got, Err(ModifyError::OutOfRange("segment_bytes")));
        }
        let few = SrOptions { peer_reorder_pkts: 255, ..plain };
        let got = check_modify(QpState::Init, &with(few));
        assert_eq!(got, Err(ModifyError::OutOfRange("peer_reorder_pkts")));
        let late = QpAttr { wire: Some(Wire::Sr(plain)), ..QpAttr::rts(Psn::new(1)) };
        assert_eq!(check_modify(QpState::Rtr, &late), Err(ModifyError::NotNow("wire")));
    }

    #[test]
    fn check_modify__drains_and_resumes() {
        let to = |state| QpAttr { state: Some(state), ..QpAttr::default() };
        assert_eq!(check_modify(QpState::Rts, &to(QpState::Sqd)), Ok(QpState::Sqd));
        assert_eq!(check_modify(QpState::Sqd, &to(QpState::Rts)), Ok(QpState::Rts));
        let slower = QpAttr { timeout: Some(20), av: rtr().av, ..to(QpState::Sqd) };
        assert_eq!(check_modify(QpState::Sqd, &slower), Ok(QpState::Sqd));
        let fixed = QpAttr { sq_psn: Some(Psn::new(1)), ..QpAttr::default() };
        assert_eq!(check_modify(QpState::Sqd, &fixed), Err(ModifyError::NotNow("sq_psn")));
        let (from, to_sqe) = (QpState::Rts, QpState::Sqe);
        let refused = Err(ModifyError::BadTransition { from, to: to_sqe });
        assert_eq!(check_modify(from, &to(to_sqe)), refused, "SQE is never requested");
        assert_eq!(check_modify(QpState::Sqe, &to(QpState::Reset)), Ok(QpState::Reset));
    }

    #[test]
    fn check_modify__refuses_skipped_states() {
        let (from, to) = (QpState::Reset, QpState::Rts);
        let got = check_modify(from, &QpAttr::rts(Psn::new(0)));
        assert_eq!(got, Err(ModifyError::BadTransition { from, to }));
        let idle = QpAttr::default();
        let (from, to) = (QpState::Err, QpState::Init);
        let back = QpAttr { state: Some(to), ..idle };
        assert_eq!(check_modify(from, &back), Err(ModifyError::BadTransition { from, to }));
    }
}
