//! Queue pairs: creation, destruction and queries. Their states are in `modify.rs`, their requests
//! in `post.rs`.

use crate::abi::{
    IBV_QP_INIT_ATTR_PD, IBV_QPS_RESET, IBV_QPT_RC, ibv_ah_attr, ibv_context, ibv_pd, ibv_qp,
    ibv_qp_attr, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex,
};
use crate::convert::{bits_of, mtu, number, state};
use crate::engine::Engine;
use crate::errno::{Errno, code, pointer, set};
use crate::objects::{Visible, ours, publish, take};
use crate::worker::Worker;
use libc::c_int;
use spanwire_transport::{AddressVector, QpCaps, QpInfo, QpInit, QpState, WireMode};
use spanwire_wire::{Psn, Qpn};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A queue pair.
pub(crate) struct Qp {
    pub(crate) engine: Arc<Engine>,
    /// The index of its worker.
    pub(crate) at: usize,
    pub(crate) worker: Arc<Worker>,
    pub(crate) qpn: Qpn,
    /// Requests complete whether they are flagged or not.
    pub(crate) sq_sig_all: bool,
    pub(crate) max_send_sge: usize,
    /// The engine is in RTS, and the program in RTR.
    answers_early: AtomicBool,
}

impl Qp {
    /// The engine is in RTS, and the program in RTR.
    pub(crate) fn answers_early(&self) -> bool {
        self.answers_early.load(Ordering::Relaxed)
    }

    pub(crate) fn set_answers_early(&self, answers: bool) {
        self.answers_early.store(answers, Ordering::Relaxed);
    }

    /// State and attributes, as far as the program has come.
    pub(crate) fn query(&self) -> Result<QpInfo, Errno> {
        let info = self.worker.with(|endpoint| endpoint.query_qp(self.qpn)).ok_or(libc::EIO)?;
        let info = info.ok_or(libc::EINVAL)?;
        let is_ahead = self.answers_early() && info.state == QpState::Rts;
        Ok(QpInfo { state: if is_ahead { QpState::Rtr } else { info.state }, ..info })
    }
}

impl Visible for ibv_qp_ex {
    type Ours = Qp;
}

/// Ours of a queue pair.
///
/// # Safety
/// As [`ours`].
pub(crate) unsafe fn of_qp<'a>(qp: *mut ibv_qp) -> Result<&'a Qp, Errno> {
    // SAFETY: all queue pairs are made by `publish` of the extended one, whose first field is the
    // plain one.
    unsafe { ours(qp.cast::<ibv_qp_ex>()) }
}

/// `ibv_create_qp(3)`: RC only; other types are `EOPNOTSUPP`. The first one opens the ports. Queues
/// of two completion vectors are `EINVAL`.
#[unsafe(export_name = "sw_ibv_create_qp")]
unsafe extern "C" fn create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    if init.is_null() {
        return pointer(Err(libc::EINVAL));
    }
    // SAFETY: the caller's promise (docs/verbs.md, "Pointers").
    pointer(unsafe { create(pd, &init.read()) })
}

/// `ibv_create_qp_ex(3)`, without extensions: `EOPNOTSUPP` for each.
pub(crate) unsafe extern "C" fn create_qp_ex(
    _context: *mut ibv_context,
    init: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    if init.is_null() {
        return pointer(Err(libc::EINVAL));
    }
    // SAFETY: the caller's promise. Only the fields that every version has are read, and `pd` if
    // the mask says that it is there.
    let (plain, mask, pd) = unsafe {
        let pd = ((*init).comp_mask & IBV_QP_INIT_ATTR_PD != 0).then(|| (*init).pd);
        (init.cast::<ibv_qp_init_attr>().read(), (*init).comp_mask, pd)
    };
    pointer(match pd {
        _ if mask & !IBV_QP_INIT_ATTR_PD != 0 => Err(libc::EOPNOTSUPP),
        // SAFETY: the caller's promise.
        Some(pd) => unsafe { create(pd, &plain) },
        None => Err(libc::EINVAL),
    })
}

/// `ibv_destroy_qp(3)`: requests that are posted vanish without completions.
#[unsafe(export_name = "sw_ibv_destroy_qp")]
unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: the caller's promise.
    code(unsafe { of_qp(qp) }.and_then(|pair| {
        // After the end of the engine there is nothing to destroy.
        let existed = pair.worker.with(|endpoint| endpoint.destroy_qp(pair.qpn));
        if existed == Some(false) {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller's promise; it is the last use.
        drop(unsafe { take(qp.cast::<ibv_qp_ex>()) });
        Ok(())
    }))
}

/// `ibv_query_qp(3)`: all attributes, whatever the mask asks for.
#[unsafe(export_name = "sw_ibv_query_qp")]
unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _attr_mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's promise.
    code(unsafe { of_qp(qp) }.and_then(|pair| {
        if attr.is_null() || init.is_null() {
            return Err(libc::EINVAL);
        }
        let info = pair.query()?;
        let cap = visible_caps(&info.init.caps);
        // SAFETY: the caller has room for both; the queue pair is its own.
        unsafe {
            attr.write(visible(&info, cap));
            (*qp).state = state(info.state);
            init.write(ibv_qp_init_attr {
                qp_context: (*qp).qp_context,
                send_cq: (*qp).send_cq,
                recv_cq: (*qp).recv_cq,
                srq: (*qp).srq,
                cap,
                qp_type: (*qp).qp_type,
                sq_sig_all: c_int::from(pair.sq_sig_all),
            });
        }
        Ok(())
    }))
}

/// `ibv_query_qp_data_in_order(3)`: RC places the packets of a message in order, SR does not.
#[unsafe(export_name = "sw_ibv_query_qp_data_in_order")]
unsafe extern "C" fn query_qp_data_in_order(qp: *mut ibv_qp, _op: c_int, _flags: u32) -> c_int {
    // With the flag RETURN_CAPS the bit for whole messages is the lowest one, too.
    // SAFETY: the caller's promise.
    let mode = unsafe { of_qp(qp) }.map(|pair| pair.engine.settings().mode);
    c_int::from(mode == Ok(WireMode::Rc))
}

/// `ibv_qp_to_qp_ex(3)`: no queue pair has the extended send operations.
#[unsafe(export_name = "sw_ibv_qp_to_qp_ex")]
unsafe extern "C" fn qp_to_qp_ex(_qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    set(libc::EOPNOTSUPP);
    std::ptr::null_mut()
}

/// # Safety
/// `pd` and the queues of `init` are objects of the program.
unsafe fn create(pd: *mut ibv_pd, init: &ibv_qp_init_attr) -> Result<*mut ibv_qp, Errno> {
    if init.qp_type != IBV_QPT_RC || !init.srq.is_null() {
        return Err(libc::EOPNOTSUPP);
    }
    // SAFETY: the caller's promise.
    let (domain, send, recv) = unsafe { (ours(pd)?, ours(init.send_cq)?, ours(init.recv_cq)?) };
    let engine = &domain.engine;
    if [&send.engine, &recv.engine].into_iter().any(|other| !Arc::ptr_eq(other, engine)) {
        return Err(libc::EINVAL);
    }
    engine.attach()?;
    let at = send.at;
    let worker = engine.workers[at].attached().ok_or(libc::EIO)?.worker.clone();
    let qp_init = QpInit::new(domain.id, send.id, recv.id, caps(&init.cap));
    let qp_init = QpInit { places_until_polled: true, ..qp_init };
    let created = worker.with(|endpoint| endpoint.create_qp(&qp_init)).ok_or(libc::EIO)?;
    let qpn = created.map_err(|e| number(&e))?;
    // SAFETY: numbers, NULL and absent functions; mutex and condition are not used.
    let mut visible: ibv_qp_ex = unsafe { std::mem::zeroed() };
    let base = &mut visible.qp_base;
    // SAFETY: a pointer that the program only reads.
    base.context = unsafe { (*pd).context };
    (base.qp_context, base.pd) = (init.qp_context, pd);
    (base.send_cq, base.recv_cq) = (init.send_cq, init.recv_cq);
    (base.qp_num, base.handle) = (qpn.get(), qpn.get());
    (base.state, base.qp_type) = (IBV_QPS_RESET, IBV_QPT_RC);
    let sq_sig_all = init.sq_sig_all != 0;
    let answers_early = AtomicBool::new(false);
    let max_send_sge = usize::try_from(init.cap.max_send_sge).unwrap_or(usize::MAX);
    let engine = engine.clone();
    let ours = Qp { engine, at, worker, qpn, sq_sig_all, max_send_sge, answers_early };
    Ok(publish(visible, ours).cast())
}

fn caps(cap: &ibv_qp_cap) -> QpCaps {
    QpCaps {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

fn visible_caps(caps: &QpCaps) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: caps.max_send_wr,
        max_recv_wr: caps.max_recv_wr,
        max_send_sge: caps.max_send_sge,
        max_recv_sge: caps.max_recv_sge,
        max_inline_data: caps.max_inline_data,
    }
}

/// The attributes of a queue pair as the program sees them.
fn visible(info: &QpInfo, cap: ibv_qp_cap) -> ibv_qp_attr {
    // SAFETY: numbers only.
    let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
    let of = &info.attr;
    attr.qp_state = state(info.state);
    attr.cur_qp_state = attr.qp_state;
    attr.path_mtu = of.path_mtu.map_or(0, mtu);
    attr.rq_psn = of.rq_psn.map_or(0, Psn::get);
    attr.sq_psn = of.sq_psn.map_or(0, Psn::get);
    attr.dest_qp_num = of.dest_qpn.map_or(0, Qpn::get);
    attr.qp_access_flags = of.access.map_or(0, bits_of);
    attr.cap = cap;
    attr.ah_attr = of.av.map_or(attr.ah_attr, |av| visible_path(&av));
    attr.max_rd_atomic = of.max_rd_atomic.unwrap_or(0);
    attr.max_dest_rd_atomic = of.max_dest_rd_atomic.unwrap_or(0);
    attr.min_rnr_timer = of.min_rnr_timer.unwrap_or(0);
    attr.port_num = 1;
    attr.timeout = of.timeout.unwrap_or(0);
    attr.retry_cnt = of.retry_cnt.unwrap_or(0);
    attr.rnr_retry = of.rnr_retry.unwrap_or(0);
    attr
}

fn visible_path(av: &AddressVector) -> ibv_ah_attr {
    // SAFETY: numbers only.
    let mut attr: ibv_ah_attr = unsafe { std::mem::zeroed() };
    let mapped = match av.dst_ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    attr.grh.dgid.raw = mapped.octets();
    (attr.grh.hop_limit, attr.grh.traffic_class) = (av.hop_limit, av.traffic_class);
    (attr.is_global, attr.port_num) = (1, 1);
    attr
}
