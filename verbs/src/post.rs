//! Posting of work requests.

use crate::abi::{
    IBV_SEND_FENCE, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_SEND_SOLICITED,
    IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV, ibv_qp,
    ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq,
};
use crate::errno::{Errno, code};
use crate::qp::{Qp, of_qp};
use libc::c_int;
use spanwire_transport::{
    Endpoint, PostError, RecvRequest, RemoteAddr, Sge, WireMode, WorkRequest, WrOp,
};

/// `ibv_post_send(3)`: a list under one lock; the first that is refused is in `bad_wr`.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's promise (docs/verbs.md, "Pointers").
    let posted = unsafe { of_qp(qp) }.map_err(|errno| (errno, wr)).and_then(|pair| {
        let posted = pair.worker.with(|endpoint| {
            let mut next = wr;
            while !next.is_null() {
                // SAFETY: the caller's promise: a list of valid requests.
                unsafe { pair.post_one(endpoint, next) }.map_err(|errno| (errno, next))?;
                // SAFETY: as before.
                next = unsafe { (*next).next };
            }
            Ok(())
        });
        pair.transmit();
        posted.unwrap_or(Err((libc::EIO, wr)))
    });
    refused(posted, bad_wr)
}

/// `ibv_post_recv(3)`.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's promise.
    let posted = unsafe { of_qp(qp) }.map_err(|errno| (errno, wr)).and_then(|pair| {
        let posted = pair.worker.with(|endpoint| {
            let mut next = wr;
            while !next.is_null() {
                // SAFETY: the caller's promise: a list of valid requests.
                let (request, following) = unsafe { (next.read(), (*next).next) };
                let mut sges = [Sge::default(); MAX_SGE];
                // SAFETY: as before.
                unsafe { gather(&mut sges, request.sg_list, request.num_sge) }
                    .and_then(|sges| {
                        let request = RecvRequest { wr_id: request.wr_id, sges };
                        endpoint.post_recv(pair.qpn, &request).map_err(number)
                    })
                    .map_err(|errno| (errno, next))?;
                next = following;
            }
            Ok(())
        });
        if pair.engine.settings().mode == WireMode::Sr {
            // A sender that waits for a receive request gets to know of it.
            pair.transmit();
        }
        posted.unwrap_or(Err((libc::EIO, wr)))
    });
    refused(posted, bad_wr)
}

/// Shared receive queues are not supported yet.
pub(crate) unsafe extern "C" fn post_srq_recv(
    _srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    refused(Err((libc::EOPNOTSUPP, wr)), bad_wr)
}

/// The result of posting; writes the refused request to `bad_wr`.
fn refused<T>(posted: Result<(), (Errno, *mut T)>, bad_wr: *mut *mut T) -> c_int {
    code(posted.map_err(|(errno, wr)| {
        if !bad_wr.is_null() {
            // SAFETY: the caller's promise.
            unsafe { bad_wr.write(wr) };
        }
        errno
    }))
}

impl Qp {
    /// Transmits what was posted: now, or with the next poll of a program that polls.
    fn transmit(&self) {
        if let Some(attached) = self.engine.workers[self.at].attached() {
            attached.bursts.posted(&attached.worker);
        }
    }

    /// # Safety
    /// `wr` is a valid request; its memory is readable if it is inline.
    unsafe fn post_one(&self, endpoint: &mut Endpoint, wr: *mut ibv_send_wr) -> Result<(), Errno> {
        if self.answers_early() {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller's promise. Members of unions that the opcode leaves out are not read.
        let wr = unsafe { &wr.read() };
        let has = |flag| wr.send_flags & flag != 0;
        let mut sges = [Sge::default(); MAX_SGE];
        // SAFETY: the caller's promise.
        let sges = unsafe { gather(&mut sges, wr.sg_list, wr.num_sge) }?;
        let request = WorkRequest {
            wr_id: wr.wr_id,
            op: operation(wr)?,
            sges,
            inline: None,
            signaled: self.sq_sig_all || has(IBV_SEND_SIGNALED),
            solicited: has(IBV_SEND_SOLICITED),
            fence: has(IBV_SEND_FENCE),
        };
        if has(IBV_SEND_INLINE) {
            // SAFETY: the caller's promise: readable memory, which needs no key.
            return unsafe { self.post_inline(endpoint, &request) };
        }
        endpoint.post_send(self.qpn, &request).map_err(number)
    }

    /// Posts the data of the SGEs as inline data.
    ///
    /// # Safety
    /// The memory of the SGEs is readable.
    // Apart: other requests need no room for the data.
    #[inline(never)]
    unsafe fn post_inline(
        &self,
        endpoint: &mut Endpoint,
        request: &WorkRequest<'_>,
    ) -> Result<(), Errno> {
        if request.sges.len() > self.max_send_sge {
            return Err(libc::EINVAL);
        }
        let mut bytes = [0; MAX_INLINE];
        // SAFETY: the caller's promise.
        let inline = Some(unsafe { copy_out(&mut bytes, request.sges) }?);
        let request = WorkRequest { sges: &[], inline, ..*request };
        endpoint.post_send(self.qpn, &request).map_err(number)
    }
}

/// The operation of a request.
///
/// # Errors
/// `EOPNOTSUPP`: memory windows, local invalidation, segmentation; `EINVAL`: no opcode.
fn operation(wr: &ibv_send_wr) -> Result<WrOp, Errno> {
    let imm = u32::from_be(wr.imm_data);
    let remote = || {
        // SAFETY: the opcodes that call this have this member; it is numbers.
        let rdma = unsafe { wr.wr.rdma };
        RemoteAddr { va: rdma.remote_addr, rkey: rdma.rkey }
    };
    let atomic = || {
        // SAFETY: as before.
        let atomic = unsafe { wr.wr.atomic };
        let remote = RemoteAddr { va: atomic.remote_addr, rkey: atomic.rkey };
        (remote, atomic.compare_add, atomic.swap)
    };
    Ok(match wr.opcode {
        IBV_WR_SEND => WrOp::Send,
        IBV_WR_SEND_WITH_IMM => WrOp::SendImm { imm },
        IBV_WR_SEND_WITH_INV => WrOp::SendInv { rkey: wr.imm_data },
        IBV_WR_RDMA_WRITE => WrOp::Write { remote: remote() },
        IBV_WR_RDMA_WRITE_WITH_IMM => WrOp::WriteImm { remote: remote(), imm },
        IBV_WR_RDMA_READ => WrOp::Read { remote: remote() },
        IBV_WR_ATOMIC_FETCH_AND_ADD => {
            let (remote, add, _) = atomic();
            WrOp::FetchAdd { remote, add }
        }
        IBV_WR_ATOMIC_CMP_AND_SWP => {
            let (remote, compare, swap) = atomic();
            WrOp::CmpSwap { remote, compare, swap }
        }
        known if (0..16).contains(&known) => return Err(libc::EOPNOTSUPP),
        _ => return Err(libc::EINVAL),
    })
}

/// The scatter-gather list of a request.
///
/// # Safety
/// `list` has `len` elements.
unsafe fn gather(
    to: &mut [Sge; MAX_SGE],
    list: *const ibv_sge,
    len: c_int,
) -> Result<&[Sge], Errno> {
    let len = usize::try_from(len).ok().filter(|len| *len <= MAX_SGE).ok_or(libc::EINVAL)?;
    if len > 0 && list.is_null() {
        return Err(libc::EINVAL);
    }
    for (n, to) in to.iter_mut().enumerate().take(len) {
        // SAFETY: the caller's promise.
        let ibv_sge { addr, length, lkey } = unsafe { list.add(n).read() };
        *to = Sge { addr, len: length, lkey };
    }
    Ok(&to[..len])
}

/// Copies inline data together.
///
/// # Safety
/// The memory of `sges` is readable.
unsafe fn copy_out<'a>(to: &'a mut [u8; MAX_INLINE], sges: &[Sge]) -> Result<&'a [u8], Errno> {
    let mut filled = 0;
    for sge in sges {
        let len = usize::try_from(sge.len).unwrap_or(usize::MAX);
        let room = to.get_mut(filled..).and_then(|room| room.get_mut(..len)).ok_or(libc::EINVAL)?;
        let from = usize::try_from(sge.addr).map_err(|_| libc::EINVAL)?;
        let from = std::ptr::with_exposed_provenance::<u8>(from);
        if len > 0 {
            // SAFETY: the caller's promise, and `room` is ours.
            unsafe { from.copy_to_nonoverlapping(room.as_mut_ptr(), len) };
        }
        filled += len;
    }
    Ok(&to[..filled])
}

/// The number of the reason why a request was refused.
fn number(e: PostError) -> Errno {
    match e {
        PostError::QueueFull => libc::ENOMEM,
        _ => libc::EINVAL,
    }
}

/// Scatter-gather elements of a request, and its inline bytes: those of the engine.
const MAX_SGE: usize = 16;
const MAX_INLINE: usize = 1024;
