//! The list of devices, and contexts: open devices.

use crate::abi::{VERBS_ABI_IS_EXTENDED, ibv_context, ibv_device, verbs_context};
use crate::device::{Device, device_of, interfaces};
use crate::engine::Engine;
use crate::errno::{self, code, pointer};
use crate::objects::{Context, extended, publish, take};
use crate::settings::say;
use crate::{cq, post, qp, query};
use libc::{c_char, c_int};

/// `ibv_get_device_list(3)`.
#[unsafe(export_name = "sw_ibv_get_device_list")]
unsafe extern "C" fn get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    let found = interfaces().map_err(|e| {
        say(&e.to_string());
        errno::of(&*e)
    });
    pointer(found.and_then(|found| {
        // SAFETY: an array of pointers, freed by the program with `ibv_free_device_list`.
        let list = unsafe { libc::calloc(found.len() + 1, size_of::<*mut ibv_device>()) };
        let list = list.cast::<*mut ibv_device>();
        if list.is_null() {
            return Err(libc::ENOMEM);
        }
        for (n, interface) in found.iter().enumerate() {
            // SAFETY: within the array, which ends with NULL.
            unsafe { list.add(n).write(device_of(interface).as_ptr()) };
        }
        if !num_devices.is_null() {
            // SAFETY: the caller's promise (docs/verbs.md, "Pointers").
            unsafe { num_devices.write(c_int::try_from(found.len()).unwrap_or(c_int::MAX)) };
        }
        Ok(list)
    }))
}

/// `ibv_free_device_list(3)`. The devices stay, for contexts and for programs that look later.
#[unsafe(export_name = "sw_ibv_free_device_list")]
unsafe extern "C" fn free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: from `get_device_list`.
    unsafe { libc::free(list.cast()) };
}

/// `ibv_get_device_name(3)`.
#[unsafe(export_name = "sw_ibv_get_device_name")]
unsafe extern "C" fn get_device_name(device: *mut ibv_device) -> *const c_char {
    if device.is_null() {
        return std::ptr::null();
    }
    // SAFETY: a device of ours.
    unsafe { (&raw const (*device).name).cast() }
}

/// `ibv_get_device_guid(3)`, in network byte order.
#[unsafe(export_name = "sw_ibv_get_device_guid")]
unsafe extern "C" fn get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: a device of ours.
    unsafe { Device::of(device) }.map_or(0, |device| device.interface.guid())
}

/// `ibv_get_device_index(3)`: the index of the interface.
#[unsafe(export_name = "sw_ibv_get_device_index")]
unsafe extern "C" fn get_device_index(device: *mut ibv_device) -> c_int {
    // SAFETY: a device of ours.
    let device = unsafe { Device::of(device) };
    device.map_or(-1, |device| device.interface.ifindex.cast_signed())
}

/// `ibv_open_device(3)`. No port is opened.
#[unsafe(export_name = "sw_ibv_open_device")]
unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: a device of ours.
    pointer(unsafe { Device::of(device) }.and_then(|ours| {
        let engine = Engine::of(&ours.interface).map_err(|e| {
            say(&e.to_string());
            errno::of(&*e)
        })?;
        // SAFETY: no argument of the call is a pointer.
        let async_fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if async_fd < 0 {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EMFILE));
        }
        let vectors = c_int::try_from(engine.workers.len()).unwrap_or(c_int::MAX);
        let visible = visible_context(device, async_fd, vectors);
        let extended = publish(visible, Context { engine });
        // SAFETY: the object was made just now.
        Ok(unsafe { &raw mut (*extended).context })
    }))
}

/// `ibv_close_device(3)`: the last context of a device closes its port, unless objects are left,
/// which the manual page does not allow.
#[unsafe(export_name = "sw_ibv_close_device")]
unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    if context.is_null() {
        return code(Err(libc::EINVAL));
    }
    // SAFETY: a context of ours, which the program uses no more.
    unsafe {
        libc::close((*context).async_fd);
        let ours = take(extended(context));
        ours.engine.report();
    }
    0
}

fn visible_context(device: *mut ibv_device, async_fd: c_int, vectors: c_int) -> verbs_context {
    // SAFETY: numbers, NULL and absent functions; the mutex is not used.
    let mut visible: verbs_context = unsafe { std::mem::zeroed() };
    visible.sz = size_of::<verbs_context>();
    visible.query_port = Some(query::query_port_to);
    visible.query_device_ex = Some(query::query_device_ex);
    visible.create_qp_ex = Some(qp::create_qp_ex);
    let context = &mut visible.context;
    context.device = device;
    context.ops.poll_cq = Some(cq::poll_cq);
    context.ops.req_notify_cq = Some(cq::req_notify_cq);
    context.ops.post_send = Some(post::post_send);
    context.ops.post_recv = Some(post::post_recv);
    context.ops.post_srq_recv = Some(post::post_srq_recv);
    (context.cmd_fd, context.async_fd, context.num_comp_vectors) = (-1, async_fd, vectors);
    context.abi_compat = VERBS_ABI_IS_EXTENDED;
    visible
}
