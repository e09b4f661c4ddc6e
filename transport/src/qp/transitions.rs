//! The attributes of each state transition of a queue pair.

use super::state::{ModifyError, QpState};
use crate::attr::{QpAttr, WireMode};
use crate::config::{MIN_REORDER_PKTS, SEGMENT_BYTES};

/// Checks `attr` against the current state and returns the next state.
///
/// # Source
/// The required and optional attributes of RC queue pairs in `ibv_modify_qp(3)`. P_Key index and
/// port are fixed, so they are not attributes.
pub(crate) fn check_modify(from: QpState, attr: &QpAttr) -> Result<QpState, ModifyError> {
    use QpState::{Err as Error, Init, Reset, Rtr, Rts, Sqd};
    let to = attr.state.unwrap_or(from);
    let (required, optional): (&[Field], &[Field]) = match (from, to) {
        (_, Reset | Error) => (&[], &[]),
        (Reset | Init, Init) => (&[Field::Access], &[]),
        (Init, Rtr) => (
            &[Field::Av, Field::Mtu, Field::DestQpn, Field::RqPsn, Field::DestRd, Field::RnrTimer],
            &[Field::Access, Field::WireMode, Field::SegmentBytes, Field::PeerReorder, Field::Icrc],
        ),
        (Rtr, Rts) => (
            &[Field::SqPsn, Field::Timeout, Field::RetryCnt, Field::RnrRetry, Field::MaxRd],
            &[
                Field::Access,
                Field::RnrTimer,
                Field::Congestion,
                Field::Weight,
                Field::Erasure,
                Field::Balance,
                Field::Near,
                Field::Credit,
            ],
        ),
        (Rts | Sqd, Rts) => {
            (&[], &[Field::Access, Field::RnrTimer, Field::Congestion, Field::Weight])
        }
        (Rts, Sqd) => (&[], &[]),
        (Sqd, Sqd) => (
            &[],
            &[
                Field::Access,
                Field::Av,
                Field::MaxRd,
                Field::DestRd,
                Field::Timeout,
                Field::RetryCnt,
                Field::RnrRetry,
                Field::RnrTimer,
            ],
        ),
        _ => return Err(ModifyError::BadTransition { from, to }),
    };
    for field in Field::ALL {
        let given = field.given(attr);
        if required.contains(&field) && !given {
            return Err(ModifyError::Missing(field.name()));
        }
        if given && !required.contains(&field) && !optional.contains(&field) {
            return Err(ModifyError::NotNow(field.name()));
        }
    }
    check_ranges(attr)?;
    let mut of_sr = [Field::SegmentBytes, Field::PeerReorder, Field::Icrc].into_iter();
    match of_sr.find(|field| field.given(attr)) {
        Some(field) if attr.wire_mode != Some(WireMode::Sr) => {
            return Err(ModifyError::NotNow(field.name()));
        }
        _ => {}
    }
    Ok(to)
}

fn check_ranges(attr: &QpAttr) -> Result<(), ModifyError> {
    let small = |name, value: Option<u8>, max| match value {
        Some(v) if v > max => Err(ModifyError::OutOfRange(name)),
        _ => Ok(()),
    };
    small("timeout", attr.timeout, 31)?;
    small("retry_cnt", attr.retry_cnt, 7)?;
    small("rnr_retry", attr.rnr_retry, 7)?;
    small("min_rnr_timer", attr.min_rnr_timer, 31)?;
    if attr.segment_bytes.is_some_and(|n| !SEGMENT_BYTES.contains(&n)) {
        return Err(ModifyError::OutOfRange("segment_bytes"));
    }
    if attr.peer_reorder_pkts.is_some_and(|n| n < MIN_REORDER_PKTS) {
        return Err(ModifyError::OutOfRange("peer_reorder_pkts"));
    }
    if attr
        .congestion
        .and_then(|c| c.algorithm)
        .is_some_and(|algorithm| algorithm.validate().is_err())
    {
        return Err(ModifyError::OutOfRange("congestion"));
    }
    if attr.erasure.is_some_and(|e| !e.is_valid()) {
        return Err(ModifyError::OutOfRange("erasure"));
    }
    if attr.balance.is_some_and(|b| b.choice.validate().is_err()) {
        return Err(ModifyError::OutOfRange("balance"));
    }
    if attr.weight == Some(0) {
        return Err(ModifyError::OutOfRange("weight"));
    }
    match attr.av {
        Some(av) if av.src_ip.is_ipv4() != av.dst_ip.is_ipv4() => {
            Err(ModifyError::OutOfRange("av (addresses of two IP versions)"))
        }
        _ => Ok(()),
    }
}

/// One attribute of [`QpAttr`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Access,
    Av,
    Mtu,
    DestQpn,
    RqPsn,
    SqPsn,
    MaxRd,
    DestRd,
    RnrTimer,
    Timeout,
    RetryCnt,
    RnrRetry,
    WireMode,
    SegmentBytes,
    PeerReorder,
    Icrc,
    Congestion,
    Weight,
    Erasure,
    Balance,
    Near,
    Credit,
}

impl Field {
    const ALL: [Self; 22] = [
        Self::Access,
        Self::Av,
        Self::Mtu,
        Self::DestQpn,
        Self::RqPsn,
        Self::SqPsn,
        Self::MaxRd,
        Self::DestRd,
        Self::RnrTimer,
        Self::Timeout,
        Self::RetryCnt,
        Self::RnrRetry,
        Self::WireMode,
        Self::SegmentBytes,
        Self::PeerReorder,
        Self::Icrc,
        Self::Congestion,
        Self::Weight,
        Self::Erasure,
        Self::Balance,
        Self::Near,
        Self::Credit,
    ];

    fn given(self, a: &QpAttr) -> bool {
        match self {
            Self::Access => a.access.is_some(),
            Self::Av => a.av.is_some(),
            Self::Mtu => a.path_mtu.is_some(),
            Self::DestQpn => a.dest_qpn.is_some(),
            Self::RqPsn => a.rq_psn.is_some(),
            Self::SqPsn => a.sq_psn.is_some(),
            Self::MaxRd => a.max_rd_atomic.is_some(),
            Self::DestRd => a.max_dest_rd_atomic.is_some(),
            Self::RnrTimer => a.min_rnr_timer.is_some(),
            Self::Timeout => a.timeout.is_some(),
            Self::RetryCnt => a.retry_cnt.is_some(),
            Self::RnrRetry => a.rnr_retry.is_some(),
            Self::WireMode => a.wire_mode.is_some(),
            Self::SegmentBytes => a.segment_bytes.is_some(),
            Self::PeerReorder => a.peer_reorder_pkts.is_some(),
            Self::Icrc => a.icrc.is_some(),
            Self::Congestion => a.congestion.is_some(),
            Self::Weight => a.weight.is_some(),
            Self::Erasure => a.erasure.is_some(),
            Self::Balance => a.balance.is_some(),
            Self::Near => a.near.is_some(),
            Self::Credit => a.credit.is_some(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Av => "av",
            Self::Mtu => "path_mtu",
            Self::DestQpn => "dest_qpn",
            Self::RqPsn => "rq_psn",
            Self::SqPsn => "sq_psn",
            Self::MaxRd => "max_rd_atomic",
            Self::DestRd => "max_dest_rd_atomic",
            Self::RnrTimer => "min_rnr_timer",
            Self::Timeout => "timeout",
            Self::RetryCnt => "retry_cnt",
            Self::RnrRetry => "rnr_retry",
            Self::WireMode => "wire_mode",
            Self::SegmentBytes => "segment_bytes",
            Self::PeerReorder => "peer_reorder_pkts",
            Self::Icrc => "icrc",
            Self::Congestion => "congestion",
            Self::Weight => "weight",
            Self::Erasure => "erasure",
            Self::Balance => "balance",
            Self::Near => "near",
            Self::Credit => "credit",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::{AddressVector, Mtu};
    use crate::mr::Access;
    use spanwire_wire::{MacAddr, Psn, Qpn};

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
    fn check_modify__the_wire_mode_is_chosen_once() {
        let sr = QpAttr { wire_mode: Some(WireMode::Sr), ..rtr() };
        assert_eq!(check_modify(QpState::Init, &sr), Ok(QpState::Rtr));
        let with = |segment_bytes| QpAttr { segment_bytes: Some(segment_bytes), ..sr };
        assert_eq!(check_modify(QpState::Init, &with(1400)), Ok(QpState::Rtr));
        for wild in [0, 63, 65_281] {
            let got = check_modify(QpState::Init, &with(wild));
            assert_eq!(got, Err(ModifyError::OutOfRange("segment_bytes")));
        }
        let few = QpAttr { peer_reorder_pkts: Some(255), ..sr };
        let got = check_modify(QpState::Init, &few);
        assert_eq!(got, Err(ModifyError::OutOfRange("peer_reorder_pkts")));
        let rc = QpAttr { peer_reorder_pkts: Some(256), ..rtr() };
        let got = check_modify(QpState::Init, &rc);
        assert_eq!(got, Err(ModifyError::NotNow("peer_reorder_pkts")));
        let rc = QpAttr { segment_bytes: Some(1400), ..rtr() };
        assert_eq!(check_modify(QpState::Init, &rc), Err(ModifyError::NotNow("segment_bytes")));
        let late = QpAttr { wire_mode: Some(WireMode::Sr), ..QpAttr::rts(Psn::new(1)) };
        assert_eq!(check_modify(QpState::Rtr, &late), Err(ModifyError::NotNow("wire_mode")));
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
