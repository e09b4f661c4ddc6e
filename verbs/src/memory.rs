//! Protection domains and memory regions.

use crate::abi::{IBV_ACCESS_ZERO_BASED, ibv_context, ibv_mr, ibv_pd};
use crate::convert::{access, of_registrar};
use crate::engine::Engine;
use crate::errno::{Errno, code, pointer};
use crate::objects::{Pd, Visible, of_context, ours, publish, take};
use libc::{c_int, c_uint, c_void, size_t};
use spanwire_mem::{PageAccess, Region};
use spanwire_transport::Access;
use std::ptr::NonNull;
use std::sync::Arc;

/// A memory region: the program's memory, registered.
pub(crate) struct Mr {
    engine: Arc<Engine>,
    region: Region,
}

impl Visible for ibv_mr {
    type Ours = Mr;
}

/// `ibv_alloc_pd(3)`.
#[unsafe(export_name = "sw_ibv_alloc_pd")]
unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the caller's promise (docs/verbs.md, "Pointers").
    pointer(unsafe { of_context(context) }.and_then(|ours| {
        let engine = ours.engine.clone();
        let id = engine.workers.alloc_pd().map_err(|e| of_registrar(&e))?;
        Ok(publish(ibv_pd { context, handle: 0 }, Pd { engine, id }))
    }))
}

/// `ibv_dealloc_pd(3)`: `EBUSY` while an object belongs to it.
#[unsafe(export_name = "sw_ibv_dealloc_pd")]
unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the caller's promise.
    code(unsafe { ours(pd) }.and_then(|domain| {
        if !domain.engine.workers.dealloc_pd(domain.id).map_err(|e| of_registrar(&e))? {
            return Err(libc::EBUSY);
        }
        // SAFETY: the caller's promise; it is the last use.
        drop(unsafe { take(pd) });
        Ok(())
    }))
}

/// `ibv_reg_mr(3)`.
#[unsafe(export_name = "sw_ibv_reg_mr")]
unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    pointer(unsafe { register_plain(pd, (addr, length), access) })
}

/// `ibv_reg_mr_iova(3)`.
#[unsafe(export_name = "sw_ibv_reg_mr_iova")]
unsafe extern "C" fn reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's promise.
    pointer(unsafe { register(pd, (addr, length), iova, access.cast_unsigned()) })
}

/// As [`reg_mr_iova`]; programs call it if `access` may have optional bits.
#[unsafe(export_name = "sw_ibv_reg_mr_iova2")]
unsafe extern "C" fn reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    let iova = if access & IBV_ACCESS_ZERO_BASED == 0 { iova } else { 0 };
    // SAFETY: the caller's promise.
    pointer(unsafe { register(pd, (addr, length), iova, access) })
}

/// `ibv_dereg_mr(3)`. When it returns, the engine no longer accesses the memory.
#[unsafe(export_name = "sw_ibv_dereg_mr")]
unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the caller's promise.
    code(unsafe { ours(mr) }.and_then(|memory| {
        // SAFETY: a number that the program only reads.
        let lkey = unsafe { (*mr).lkey };
        memory.engine.workers.dereg_mr(lkey).map_err(|e| of_registrar(&e))?;
        // No step of a worker runs while it deregisters, and none keeps a loan beyond its end.
        assert!(memory.region.is_sole(), "memory is used after its deregistration");
        // SAFETY: the caller's promise; it is the last use.
        drop(unsafe { take(mr) });
        Ok(())
    }))
}

/// Registers memory at its own address, or at 0 if the program wants that.
///
/// # Safety
/// As [`register`].
pub(crate) unsafe fn register_plain(
    pd: *mut ibv_pd,
    (addr, length): (*mut c_void, usize),
    access: c_int,
) -> Result<*mut ibv_mr, Errno> {
    let bits = access.cast_unsigned();
    let iova = if bits & IBV_ACCESS_ZERO_BASED == 0 { addr.expose_provenance() } else { 0 };
    // SAFETY: the caller's promise.
    unsafe { register(pd, (addr, length), iova as u64, bits) }
}

/// Registers `length` bytes from `addr` at the virtual address `iova`.
///
/// # Safety
/// `pd` is a protection domain, and the memory is the program's until it deregisters it.
unsafe fn register(
    pd: *mut ibv_pd,
    (addr, length): (*mut c_void, usize),
    iova: u64,
    bits: c_uint,
) -> Result<*mut ibv_mr, Errno> {
    // SAFETY: the caller's promise.
    let domain = unsafe { ours(pd) }?;
    let access = access(bits)?;
    let end = addr.addr().checked_add(length);
    let base = NonNull::new(addr.cast::<u8>()).filter(|_| length > 0 && end.is_some());
    let base = base.ok_or(libc::EINVAL)?;
    let pages = match access.allows(Access::LOCAL_WRITE) {
        true => PageAccess::Write,
        false => PageAccess::Read,
    };
    // SAFETY: the program's memory, of which Rust knows nothing, and which the program leaves
    // mapped until it has deregistered it, as the contract of verbs says.
    let region = unsafe { Region::foreign(base, length, pages) }.map_err(|_| libc::EFAULT)?;
    let engine = domain.engine.clone();
    let registered = engine.workers.reg_mr(domain.id, &region, access, Some(iova));
    let registered = registered.map_err(|e| of_registrar(&e))?;
    // SAFETY: a pointer that the program only reads.
    let context = unsafe { (*pd).context };
    let (lkey, rkey) = (registered.lkey, registered.rkey.unwrap_or(0));
    let visible = ibv_mr { context, pd, addr, length, handle: 0, lkey, rkey };
    Ok(publish(visible, Mr { engine, region }))
}
