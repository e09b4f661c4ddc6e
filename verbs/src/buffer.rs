//! Buffers that the library allocates, which programs of rdma-core 64 and later ask for.

use crate::abi::{ibv_mr, ibv_pd};
use crate::errno::pointer;
use crate::memory::register_plain;
use libc::{c_int, c_void, size_t};

/// A buffer, opaque to programs.
pub(crate) struct Buffer {
    pd: *mut ibv_pd,
    base: *mut c_void,
}

/// `ibv_alloc_buf(3)`: ordinary memory, aligned to a page.
#[unsafe(export_name = "sw_ibv_alloc_buf")]
unsafe extern "C" fn alloc_buf(
    pd: *mut ibv_pd,
    size: size_t,
    buf: *mut *mut Buffer,
) -> *mut c_void {
    if pd.is_null() || buf.is_null() || size == 0 {
        return pointer(Err(libc::EINVAL));
    }
    let mut base = std::ptr::null_mut();
    // SAFETY: writes the address of new memory.
    let errno = unsafe { libc::posix_memalign(&raw mut base, PAGE, size) };
    if errno != 0 {
        return pointer(Err(errno));
    }
    // SAFETY: new memory of that size; the caller has room for the handle (docs/verbs.md,
    // "Pointers").
    unsafe {
        base.write_bytes(0, size);
        buf.write(Box::into_raw(Box::new(Buffer { pd, base })));
    }
    base
}

/// `ibv_free_buf(3)`.
#[unsafe(export_name = "sw_ibv_free_buf")]
unsafe extern "C" fn free_buf(buf: *mut Buffer) {
    if !buf.is_null() {
        // SAFETY: from `alloc_buf`, once: the caller's promise.
        unsafe { libc::free(Box::from_raw(buf).base) };
    }
}

/// `ibv_reg_buf_mr(3)`: `EINVAL` for another protection domain than that of the allocation.
#[unsafe(export_name = "sw_ibv_reg_buf_mr")]
unsafe extern "C" fn reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut Buffer,
    addr: *mut c_void,
    length: size_t,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: from `alloc_buf`, or NULL.
    let of_this = unsafe { buf.as_ref() }.is_some_and(|buf| buf.pd == pd);
    if !of_this {
        return pointer(Err(libc::EINVAL));
    }
    // SAFETY: the caller's promise.
    pointer(unsafe { register_plain(pd, (addr, length), access) })
}

const PAGE: usize = 4096;
