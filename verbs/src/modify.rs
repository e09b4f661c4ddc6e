//! `ibv_modify_qp(3)`: the states of a reliable connection and their attributes.

use crate::abi::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_ALT_PATH, IBV_QP_AV, IBV_QP_CUR_STATE, IBV_QP_DEST_QPN,
    IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MIG_STATE, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT,
    IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, ibv_ah_attr,
    ibv_qp, ibv_qp_attr,
};
use crate::convert::{RD_ATOMIC, access, of_mtu, state, state_of};
use crate::engine::{Attached, Engine};
use crate::errno::{self, Errno, code};
use crate::qp::{Qp, of_qp};
use crate::settings::say;
use libc::c_int;
use spanwire_host::modes::ModeChoice;
use spanwire_transport::{
    Access, AddressVector, Endpoint, ModifyError, QpAttr, QpState, SrOptions, Wire, WireMode, agree,
};
use spanwire_wire::{Psn, Qpn};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `ibv_modify_qp(3)`. An attribute that the transition needs and the mask lacks, one that it does
/// not take, and a value out of its range: `EINVAL`, and nothing is changed.
#[unsafe(export_name = "sw_ibv_modify_qp")]
unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: the caller's promise (docs/verbs.md, "Pointers").
    code(unsafe { of_qp(qp) }.and_then(|pair| {
        if attr.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller's promise. Fields that the mask leaves out may be uninitialised in
        // the program; they are numbers, of which any value is valid, and are not looked at.
        let attr = unsafe { attr.read() };
        let to = pair.modify(&attr, mask)?;
        // SAFETY: the queue pair is the program's; states are changed by one thread at a time.
        unsafe { (*qp).state = to };
        Ok(())
    }))
}

impl Qp {
    /// Returns the state afterwards.
    fn modify(&self, attr: &ibv_qp_attr, mask: c_int) -> Result<c_int, Errno> {
        let from = state(self.query()?.state);
        let gives = |bit: c_int| mask & bit != 0;
        if gives(IBV_QP_CUR_STATE) && attr.cur_qp_state != from {
            return Err(libc::EINVAL);
        }
        let to = if gives(IBV_QP_STATE) { attr.qp_state } else { from };
        check_mask((from, to), mask & !IBV_QP_STATE)?;
        let attached = self.engine.attached().ok_or(libc::EINVAL)?;
        let wanted = attributes(&self.engine, attached, (from, to), (attr, mask))?;
        let modified = self.worker.submit(|endpoint| match (wanted.mode(), wanted.dest_qpn) {
            (WireMode::Sr, Some(dest)) if from == IBV_QPS_INIT => {
                self.answer_early(endpoint, dest, &wanted)
            }
            _ if self.answers_early() && to == IBV_QPS_RTS => self.catch_up(endpoint, &wanted),
            _ => endpoint.modify_qp(self.qpn, &wanted),
        });
        modified.ok_or(libc::EIO)?.map_err(|_| libc::EINVAL)?;
        if to != IBV_QPS_RTR {
            self.set_answers_early(false);
        }
        Ok(to)
    }

    /// RTR in SR. An end of RC answers READs and atomics in RTR, and a program whose peer alone
    /// makes requests goes no further. SR answers from RTS on, in a stream of its own, so the
    /// engine is there before the program, which still cannot post. First PSNs are those of both
    /// ends' QPNs: the program has not said its own yet.
    fn answer_early(
        &self,
        endpoint: &mut Endpoint,
        dest: Qpn,
        rtr: &QpAttr,
    ) -> Result<(), ModifyError> {
        endpoint.modify_qp(self.qpn, &QpAttr { rq_psn: Some(first_psn(dest)), ..*rtr })?;
        let congestion = self.engine.congestion();
        let rts = QpAttr { congestion, ..QpAttr::rts(first_psn(self.qpn)) };
        endpoint.modify_qp(self.qpn, &rts)?;
        self.set_answers_early(true);
        Ok(())
    }

    /// RTS after [`Qp::answer_early`]: the attributes of the program, in SQD, where they may
    /// change.
    fn catch_up(&self, endpoint: &mut Endpoint, rts: &QpAttr) -> Result<(), ModifyError> {
        let to = |state| QpAttr { state: Some(state), ..QpAttr::default() };
        endpoint.modify_qp(self.qpn, &to(QpState::Sqd))?;
        let of_sqd = QpAttr { state: None, sq_psn: None, congestion: None, ..*rts };
        let modified = endpoint.modify_qp(self.qpn, &of_sqd);
        endpoint.modify_qp(self.qpn, &to(QpState::Rts))?;
        modified
    }
}

/// The first PSN of a queue pair in SR: its number, mixed, since one of an earlier queue pair must
/// not be within its window.
fn first_psn(qpn: Qpn) -> Psn {
    Psn::new(qpn.get().wrapping_mul(0x9e37_79b1) >> 8)
}

/// Checks the attributes of a transition.
///
/// # Errors
/// `EINVAL`: one is missing, or is not one of it, or there is no such transition.
fn check_mask((from, to): (c_int, c_int), mask: c_int) -> Result<(), Errno> {
    let (required, optional) = allowed(from, to).ok_or(libc::EINVAL)?;
    let is_allowed = mask & required == required && mask & !(required | optional) == 0;
    if is_allowed { Ok(()) } else { Err(libc::EINVAL) }
}

/// The required and the optional attributes of a transition of a reliable connection.
///
/// # Source
/// `ibv_modify_qp(3)`; IBTA 1.4, table 91.
fn allowed(from: c_int, to: c_int) -> Option<(c_int, c_int)> {
    let identity = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    let alternate = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
    let path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    let retries = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
    let running = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | alternate;
    Some(match (from, to) {
        (_, IBV_QPS_RESET | IBV_QPS_ERR) => (0, IBV_QP_CUR_STATE),
        (IBV_QPS_RESET, IBV_QPS_INIT) => (identity, IBV_QP_CUR_STATE),
        (IBV_QPS_INIT, IBV_QPS_INIT) => (0, identity | IBV_QP_CUR_STATE),
        (IBV_QPS_INIT, IBV_QPS_RTR) => (
            path | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
            IBV_QP_CUR_STATE | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH,
        ),
        (IBV_QPS_RTR, IBV_QPS_RTS) => (retries | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, running),
        (IBV_QPS_RTS | IBV_QPS_SQD, IBV_QPS_RTS) => (0, running),
        (IBV_QPS_RTS, IBV_QPS_SQD) => (0, IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
        (IBV_QPS_SQD, IBV_QPS_SQD) => (
            0,
            running
                | retries
                | identity
                | IBV_QP_AV
                | IBV_QP_MAX_QP_RD_ATOMIC
                | IBV_QP_MAX_DEST_RD_ATOMIC,
        ),
        _ => return None,
    })
}

/// The attributes for the engine.
fn attributes(
    engine: &Engine,
    attached: &Attached,
    (from, to): (c_int, c_int),
    (attr, mask): (&ibv_qp_attr, c_int),
) -> Result<QpAttr, Errno> {
    let gives = |bit: c_int| mask & bit != 0;
    let only = |is_valid: bool| if is_valid { Ok(()) } else { Err(libc::EINVAL) };
    only(!gives(IBV_QP_PKEY_INDEX) || attr.pkey_index == 0)?;
    only(!gives(IBV_QP_PORT) || attr.port_num == 1)?;
    if gives(IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE) {
        return Err(libc::EOPNOTSUPP);
    }
    let depth = |bit: c_int, depth: u8| -> Result<Option<u8>, Errno> {
        only(!gives(bit) || depth <= RD_ATOMIC)?;
        Ok(gives(bit).then_some(depth))
    };
    let path_mtu = match gives(IBV_QP_PATH_MTU) {
        true => Some(of_mtu(attr.path_mtu).ok_or(libc::EINVAL)?),
        false => None,
    };
    only(path_mtu.is_none_or(|mtu| mtu <= attached.terms.path_mtu))?;
    let av = match gives(IBV_QP_AV) {
        true => Some(path(engine, attached, &attr.ah_attr)?),
        false => None,
    };
    let is_connecting = (from, to) == (IBV_QPS_INIT, IBV_QPS_RTR);
    let wire = match av.filter(|_| is_connecting) {
        Some(av) => Some(wire(engine, attached, &av)?),
        None => None,
    };
    let starts = (from, to) == (IBV_QPS_RTR, IBV_QPS_RTS);
    let access = match gives(IBV_QP_ACCESS_FLAGS) {
        true => Some(access(attr.qp_access_flags)?),
        false => None,
    };
    only(!gives(IBV_QP_DEST_QPN) || (1..=Qpn::MASK).contains(&attr.dest_qp_num))?;
    Ok(QpAttr {
        state: gives(IBV_QP_STATE).then(|| state_of(to)).flatten(),
        access: access.or_else(|| (to == IBV_QPS_INIT).then_some(Access::LOCAL_READ)),
        av,
        path_mtu,
        dest_qpn: gives(IBV_QP_DEST_QPN).then(|| Qpn::new(attr.dest_qp_num)),
        rq_psn: gives(IBV_QP_RQ_PSN).then(|| Psn::new(attr.rq_psn & Psn::MASK)),
        sq_psn: gives(IBV_QP_SQ_PSN).then(|| Psn::new(attr.sq_psn & Psn::MASK)),
        max_rd_atomic: depth(IBV_QP_MAX_QP_RD_ATOMIC, attr.max_rd_atomic)?,
        max_dest_rd_atomic: depth(IBV_QP_MAX_DEST_RD_ATOMIC, attr.max_dest_rd_atomic)?,
        min_rnr_timer: gives(IBV_QP_MIN_RNR_TIMER).then_some(attr.min_rnr_timer),
        timeout: gives(IBV_QP_TIMEOUT).then_some(attr.timeout),
        retry_cnt: gives(IBV_QP_RETRY_CNT).then_some(attr.retry_cnt),
        rnr_retry: gives(IBV_QP_RNR_RETRY).then_some(attr.rnr_retry),
        wire,
        congestion: engine.congestion().filter(|_| starts),
        weight: None,
    })
}

/// The path to a peer. May wait for neighbour discovery.
///
/// # Errors
/// `EINVAL`: no GID, another than our first, or a GID that is no unicast IPv4 address. Otherwise
/// the reason why there is no route, which is also said on stderr.
fn path(engine: &Engine, attached: &Attached, ah: &ibv_ah_attr) -> Result<AddressVector, Errno> {
    if ah.is_global == 0 || ah.grh.sgid_index != 0 || ah.port_num != 1 {
        return Err(libc::EINVAL);
    }
    // SAFETY: 16 bytes, of which any value is valid.
    let gid = Ipv6Addr::from(unsafe { ah.grh.dgid.raw });
    let is_of_one_host =
        |ip: &Ipv4Addr| !ip.is_unspecified() && !ip.is_broadcast() && !ip.is_multicast();
    let peer = gid.to_ipv4_mapped().filter(is_of_one_host).ok_or(libc::EINVAL)?;
    let peer = IpAddr::V4(peer);
    let hop = attached.terms.hop(peer).map_err(|e| {
        say(&format!("no path to {peer}: {e}"));
        errno::of(&*e)
    })?;
    let av = hop.address_vector(engine.interface.address.into(), peer, ah.grh.traffic_class);
    let hop_limit = if ah.grh.hop_limit > 1 { ah.grh.hop_limit } else { av.hop_limit };
    Ok(AddressVector { hop_limit, ..av })
}

/// The wire protocol that was promised for both ends (`spanwire run --mode`): without negotiation,
/// the peer is taken for one like us.
fn wire(engine: &Engine, attached: &Attached, av: &AddressVector) -> Result<Wire, Errno> {
    if engine.settings().mode == WireMode::Rc {
        return Ok(Wire::Rc);
    }
    let sizes = attached.terms.packet_sizes().to(Some(av.dst_ip)).map_err(|e| errno::of(&*e))?;
    let config = attached.worker.with(|endpoint| endpoint.config().clone()).ok_or(libc::EIO)?;
    let ours = (av.src_ip, sizes.ip_bytes);
    let offer = attached.terms.offer(ModeChoice::Sr, &config, ours, u32::MAX);
    let agreed = agree(&offer, &offer).ok_or(libc::EINVAL)?;
    Ok(agreed.wire(&SrOptions::default(), &engine.congestion().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTR: c_int = IBV_QP_AV
        | IBV_QP_PATH_MTU
        | IBV_QP_DEST_QPN
        | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC
        | IBV_QP_MIN_RNR_TIMER;

    #[test]
    fn check_mask__takes_what_the_manual_lists() {
        let identity = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        assert_eq!(check_mask((IBV_QPS_RESET, IBV_QPS_INIT), identity), Ok(()));
        assert_eq!(check_mask((IBV_QPS_INIT, IBV_QPS_RTR), RTR), Ok(()));
        assert_eq!(check_mask((IBV_QPS_INIT, IBV_QPS_RTR), RTR | IBV_QP_ACCESS_FLAGS), Ok(()));
        assert_eq!(check_mask((IBV_QPS_RTS, IBV_QPS_ERR), 0), Ok(()));
    }

    #[test]
    fn check_mask__refuses_missing_and_foreign_bits() {
        let refused = Err(libc::EINVAL);
        for bit in (0..32).map(|n| 1 << n).filter(|bit| RTR & bit != 0) {
            assert_eq!(check_mask((IBV_QPS_INIT, IBV_QPS_RTR), RTR & !bit), refused, "{bit:#x}");
        }
        assert_eq!(check_mask((IBV_QPS_INIT, IBV_QPS_RTR), RTR | IBV_QP_TIMEOUT), refused);
        assert_eq!(check_mask((IBV_QPS_RTS, IBV_QPS_ERR), IBV_QP_TIMEOUT), refused);
        assert_eq!(check_mask((IBV_QPS_RESET, IBV_QPS_RTS), 0), refused, "no such transition");
        assert_eq!(check_mask((IBV_QPS_RTS, 77), 0), refused, "no such state");
    }
}
