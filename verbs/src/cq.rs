//! Completion queues.

use crate::abi::{
    IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV,
    IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SEND, IBV_WC_WITH_IMM, IBV_WC_WITH_INV, ibv_comp_channel,
    ibv_context, ibv_cq, ibv_wc,
};
use crate::convert::number;
use crate::engine::{Engine, EngineWorker};
use crate::errno::{Errno, code, pointer};
use crate::objects::{Visible, of_context, ours, publish, take};
use libc::{c_int, c_void};
use spanwire_transport::{CqId, Notify, Wc, WcOpcode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A completion queue.
pub(crate) struct Cq {
    pub(crate) engine: Arc<Engine>,
    /// The index of its worker.
    pub(crate) at: usize,
    pub(crate) id: CqId,
    /// Polls in a row that found nothing.
    empty_polls: AtomicU32,
}

impl Visible for ibv_cq {
    type Ours = Cq;
}

/// `ibv_create_cq(3)`; the completion vector is the worker of its queue pairs. Completion channels
/// are not supported yet: `EOPNOTSUPP`.
#[unsafe(export_name = "sw_ibv_create_cq")]
unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    // SAFETY: the caller's promise (docs/verbs.md, "Pointers").
    pointer(unsafe { of_context(context) }.and_then(|ours| {
        if !channel.is_null() {
            return Err(libc::EOPNOTSUPP);
        }
        let capacity = u32::try_from(cqe).map_err(|_| libc::EINVAL)?;
        let engine = ours.engine.clone();
        let at = usize::try_from(comp_vector).map_err(|_| libc::EINVAL)?;
        let worker = engine.workers.get(at).ok_or(libc::EINVAL)?;
        let id = worker.with(|endpoint| endpoint.create_cq(capacity))?.map_err(|e| number(&e))?;
        // SAFETY: numbers and NULL; the mutex and the condition are not used.
        let mut visible: ibv_cq = unsafe { std::mem::zeroed() };
        (visible.context, visible.cq_context, visible.cqe) = (context, cq_context, cqe);
        Ok(publish(visible, Cq { engine, at, id, empty_polls: AtomicU32::new(0) }))
    }))
}

/// `ibv_destroy_cq(3)`: `EBUSY` while a queue pair uses it.
#[unsafe(export_name = "sw_ibv_destroy_cq")]
unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the caller's promise.
    code(unsafe { ours(cq) }.and_then(|queue| {
        if !queue.worker().with(|endpoint| endpoint.destroy_cq(queue.id))? {
            return Err(libc::EBUSY);
        }
        // SAFETY: the caller's promise; it is the last use.
        drop(unsafe { take(cq) });
        Ok(())
    }))
}

/// `ibv_poll_cq(3)`: the completions written to `wc`, or a negative number if the queue has
/// overrun. A queue that is empty drives the engine.
pub(crate) unsafe extern "C" fn poll_cq(
    cq: *mut ibv_cq,
    num_entries: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    // SAFETY: the caller's promise.
    let polled = unsafe { ours(cq) }.and_then(|queue| {
        let max = usize::try_from(num_entries).map_err(|_| libc::EINVAL)?;
        let mut polled = 0;
        queue.poll(max, |completion| {
            // SAFETY: the caller has room for `num_entries`, and no more are passed.
            unsafe { wc.add(polled).write(visible(&completion)) };
            polled += 1;
        })
    });
    match polled {
        Ok(polled) => c_int::try_from(polled).unwrap_or(num_entries),
        Err(errno) => -code(Err(errno)),
    }
}

/// `ibv_req_notify_cq(3)`; without a channel no event is delivered.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller's promise.
    code(unsafe { ours(cq) }.and_then(|queue| {
        let notify = if solicited_only == 0 { Notify::Next } else { Notify::Solicited };
        let armed = queue.worker().with(|endpoint| endpoint.req_notify_cq(queue.id, notify))?;
        armed.map_err(|_| libc::EINVAL)
    }))
}

impl Cq {
    fn worker(&self) -> &EngineWorker {
        &self.engine.workers[self.at]
    }

    /// Passes at most `max` completions to `each`; returns how many there were.
    fn poll(&self, max: usize, mut each: impl FnMut(Wc)) -> Result<usize, Errno> {
        let worker = self.worker();
        let mut look = || {
            let polled = worker.with(|endpoint| endpoint.poll_cq_into(self.id, max, &mut each));
            polled?.map_err(|_| libc::EOVERFLOW)
        };
        let found = look()?;
        let Some(attached) = worker.attached() else { return Ok(found) };
        attached.bursts.polls(&attached.worker);
        if found > 0 {
            self.empty_polls.store(0, Ordering::Relaxed);
            // A thread that always finds completions never waits.
            attached.worker.refresh();
            return Ok(found);
        }
        if attached.worker.has_ended() {
            return Err(libc::EIO);
        }
        if attached.worker.turn_of_poller() {
            self.empty_polls.store(0, Ordering::Relaxed);
            return look();
        }
        let empty = self.empty_polls.load(Ordering::Relaxed).wrapping_add(1);
        self.empty_polls.store(empty, Ordering::Relaxed);
        if empty.is_multiple_of(YIELD_EVERY) {
            // The other end, or the thread with the lock, may wait for this core.
            std::thread::yield_now();
        }
        Ok(0)
    }
}

/// A completion as the program sees it.
fn visible(wc: &Wc) -> ibv_wc {
    let (imm_data, wc_flags) = match (wc.imm, wc.invalidated_rkey) {
        (Some(imm), _) => (imm.to_be(), IBV_WC_WITH_IMM),
        (None, Some(rkey)) => (rkey, IBV_WC_WITH_INV),
        (None, None) => (0, 0),
    };
    ibv_wc {
        wr_id: wc.wr_id,
        status: c_int::from(wc.status.code()),
        opcode: match wc.opcode {
            WcOpcode::Send => IBV_WC_SEND,
            WcOpcode::RdmaWrite => IBV_WC_RDMA_WRITE,
            WcOpcode::RdmaRead => IBV_WC_RDMA_READ,
            WcOpcode::FetchAdd => IBV_WC_FETCH_ADD,
            WcOpcode::CompSwap => IBV_WC_COMP_SWAP,
            WcOpcode::Recv => IBV_WC_RECV,
            WcOpcode::RecvRdmaWithImm => IBV_WC_RECV_RDMA_WITH_IMM,
        },
        vendor_err: 0,
        byte_len: wc.byte_len,
        imm_data,
        qp_num: wc.qpn.get(),
        src_qp: 0,
        wc_flags,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

/// Polls in a row that find nothing until the thread yields its core.
const YIELD_EVERY: u32 = 16;
