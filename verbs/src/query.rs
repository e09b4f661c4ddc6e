//! Queries: limits of devices, ports, GIDs and keys.

use crate::abi::*;
use crate::convert::{RD_ATOMIC, mtu};
use crate::device::{copy, path_mtu};
use crate::engine::Engine;
use crate::errno::{Errno, code, or_minus_one};
use crate::objects::{Context, of_context};
use libc::{c_char, c_int, c_uint, c_void, size_t, ssize_t};
use spanwire_host::fabric::FabricChoice;
use spanwire_io::net::LinkInfo;
use spanwire_transport::{Config, Mtu};
use std::mem::offset_of;

/// `ibv_query_device(3)`.
#[unsafe(export_name = "sw_ibv_query_device")]
unsafe extern "C" fn query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    // SAFETY: the caller's promise.
    code(unsafe { of_context(context) }.and_then(|ours| {
        if attr.is_null() {
            return Err(libc::EINVAL);
        }
        let limits = ours.engine.workers[0].with(|endpoint| Config::clone(endpoint.config()))?;
        // SAFETY: the caller has room for it.
        unsafe { attr.write(device_attr(&limits, ours.engine.interface.guid())) };
        Ok(())
    }))
}

/// `ibv_query_device_ex(3)`: no extension; their attributes are zero.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    _input: *const c_void,
    attr: *mut ibv_device_attr_ex,
    attr_size: size_t,
) -> c_int {
    let plain = offset_of!(ibv_device_attr_ex, comp_mask) + size_of::<u32>();
    if attr.is_null() || attr_size < plain {
        return code(Err(libc::EINVAL));
    }
    // SAFETY: the caller has room for `attr_size` bytes, which begin with the plain attributes.
    unsafe {
        attr.cast::<u8>().write_bytes(0, attr_size);
        let code = query_device(context, &raw mut (*attr).orig_attr);
        if attr_size >= size_of::<ibv_device_attr_ex>() {
            (*attr).phys_port_cnt_ex = 1;
        }
        code
    }
}

/// `ibv_query_port(3)` as programs called it before it was inline: without the last fields.
#[unsafe(export_name = "sw_ibv_query_port")]
unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the caller has room for the old structure.
    unsafe { query_port_to(context, port_num, attr, offset_of!(ibv_port_attr, port_cap_flags2)) }
}

/// `ibv_query_port(3)`: at most `len` bytes of the attributes.
pub(crate) unsafe extern "C" fn query_port_to(
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
    len: size_t,
) -> c_int {
    // SAFETY: the caller's promise.
    code(unsafe { of_context(context) }.and_then(|ours| {
        if attr.is_null() || port_num != 1 {
            return Err(libc::EINVAL);
        }
        let link = ours.engine.interface.link()?;
        let known = port_attr(&link, active_mtu(&ours.engine, &link));
        let (known, attr) = ((&raw const known).cast::<u8>(), attr.cast::<u8>());
        let copied = len.min(size_of::<ibv_port_attr>());
        // SAFETY: the caller has room for `len` bytes; both parts are numbers.
        unsafe {
            attr.write_bytes(0, len);
            known.copy_to_nonoverlapping(attr, copied);
        }
        Ok(())
    }))
}

/// `ibv_query_gid(3)`.
#[unsafe(export_name = "sw_ibv_query_gid")]
unsafe extern "C" fn query_gid(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    // SAFETY: the caller's promise.
    or_minus_one(unsafe { of_context(context) }.and_then(|ours| {
        if gid.is_null() || port_num != 1 || index != 0 {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller has room for it.
        unsafe { gid.write(ibv_gid { raw: ours.engine.interface.gid() }) };
        Ok(())
    }))
}

/// `ibv_query_gid_ex(3)`.
#[unsafe(export_name = "sw__ibv_query_gid_ex")]
unsafe extern "C" fn query_gid_ex(
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    entry_size: size_t,
) -> c_int {
    // SAFETY: the caller's promise.
    code(unsafe { of_context(context) }.and_then(|ours| {
        if port_num != 1 || gid_index != 0 {
            return Err(libc::ENODATA);
        }
        // SAFETY: the caller has room for one entry of that size.
        unsafe { write_gid_entry(ours, entry, flags, entry_size) }
    }))
}

/// `ibv_query_gid_table(3)`.
#[unsafe(export_name = "sw__ibv_query_gid_table")]
unsafe extern "C" fn query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: size_t,
    flags: u32,
    entry_size: size_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    let written = unsafe { of_context(context) }.and_then(|ours| {
        if max_entries == 0 {
            return Err(libc::EINVAL);
        }
        // SAFETY: the caller has room for an entry of that size.
        unsafe { write_gid_entry(ours, entries, flags, entry_size) }
    });
    match written {
        Ok(()) => 1,
        Err(errno) => -(code(Err(errno)) as ssize_t),
    }
}

/// # Safety
/// There is room for an entry of `size` bytes.
unsafe fn write_gid_entry(
    ours: &Context,
    entry: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> Result<(), Errno> {
    if entry.is_null() || flags != 0 || size < size_of::<ibv_gid_entry>() {
        return Err(libc::EINVAL);
    }
    let interface = &ours.engine.interface;
    let known = ibv_gid_entry {
        gid: ibv_gid { raw: interface.gid() },
        gid_index: 0,
        port_num: 1,
        gid_type: IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: interface.ifindex,
    };
    // SAFETY: the caller's promise.
    unsafe {
        entry.cast::<u8>().write_bytes(0, size);
        entry.write(known);
    }
    Ok(())
}

/// The type of a GID, for `ibv_devinfo` and pyverbs.
#[unsafe(export_name = "sw_ibv_query_gid_type")]
unsafe extern "C" fn query_gid_type(
    _context: *mut ibv_context,
    port_num: u8,
    index: c_uint,
    kind: *mut c_int,
) -> c_int {
    if kind.is_null() || port_num != 1 || index != 0 {
        return or_minus_one(Err(libc::EINVAL));
    }
    // SAFETY: the caller has room for it.
    unsafe { kind.write(IBV_GID_TYPE_SYSFS_ROCE_V2) };
    0
}

/// `ibv_query_pkey(3)`: the default key only.
#[unsafe(export_name = "sw_ibv_query_pkey")]
unsafe extern "C" fn query_pkey(
    _context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    if pkey.is_null() || port_num != 1 || index != 0 {
        return or_minus_one(Err(libc::EINVAL));
    }
    // SAFETY: the caller has room for it.
    unsafe { pkey.write(u16::MAX) };
    0
}

/// `ibv_get_pkey_index(3)`.
#[unsafe(export_name = "sw_ibv_get_pkey_index")]
unsafe extern "C" fn get_pkey_index(_: *mut ibv_context, port_num: u8, pkey: u16) -> c_int {
    or_minus_one(if port_num == 1 && pkey == u16::MAX { Ok(()) } else { Err(libc::EINVAL) })
}

/// `ibv_fork_init(3)`: the engine copies by the processor and pins no page.
#[unsafe(export_name = "sw_ibv_fork_init")]
extern "C" fn fork_init() -> c_int {
    0
}

/// `ibv_is_fork_initialized(3)`.
#[unsafe(export_name = "sw_ibv_is_fork_initialized")]
extern "C" fn is_fork_initialized() -> c_int {
    IBV_FORK_UNNEEDED
}

/// No page is pinned, so none is to be left out of a fork.
#[unsafe(export_name = "sw_ibv_dontfork_range")]
extern "C" fn dontfork_range(_: *mut c_void, _: size_t) -> c_int {
    0
}

/// As [`dontfork_range`].
#[unsafe(export_name = "sw_ibv_dofork_range")]
extern "C" fn dofork_range(_: *mut c_void, _: size_t) -> c_int {
    0
}

/// There are no attributes in sysfs.
#[unsafe(export_name = "sw_ibv_read_sysfs_file")]
extern "C" fn read_sysfs_file(
    _dir: *const c_char,
    _file: *const c_char,
    _buf: *mut c_char,
    _size: size_t,
) -> c_int {
    or_minus_one(Err(libc::ENOENT))
}

/// Where sysfs is mounted.
#[unsafe(export_name = "sw_ibv_get_sysfs_path")]
extern "C" fn get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// The limits of a device: those of the engine.
fn device_attr(limits: &Config, guid: u64) -> ibv_device_attr {
    let int = |value: u32| value.cast_signed();
    // SAFETY: numbers only.
    let mut attr: ibv_device_attr = unsafe { std::mem::zeroed() };
    copy(&mut attr.fw_ver, env!("CARGO_PKG_VERSION"));
    (attr.node_guid, attr.sys_image_guid) = (guid, guid);
    attr.max_mr_size = u64::MAX;
    attr.page_size_cap = 0xffff_f000;
    attr.max_qp = int(limits.max_qps);
    attr.max_qp_wr = int(limits.max_wr);
    attr.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID;
    (attr.max_sge, attr.max_sge_rd) = (SGE_MAX, SGE_MAX);
    attr.max_cq = int(limits.max_cqs);
    attr.max_cqe = int(limits.max_cqe);
    attr.max_mr = int(limits.max_mrs);
    attr.max_pd = int(limits.max_pds);
    let depth = c_int::from(RD_ATOMIC);
    (attr.max_qp_rd_atom, attr.max_qp_init_rd_atom) = (depth, depth);
    attr.max_res_rd_atom = depth.saturating_mul(attr.max_qp);
    attr.atomic_cap = IBV_ATOMIC_HCA;
    attr.max_pkeys = 1;
    attr.local_ca_ack_delay = ACK_DELAY;
    attr.phys_port_cnt = 1;
    attr
}

/// The path MTU of packets that the port sends, or would send if it were open.
fn active_mtu(engine: &Engine, link: &LinkInfo) -> Mtu {
    match (engine.attached(), engine.settings().fabric) {
        (Some(attached), _) => attached.terms.path_mtu,
        (None, FabricChoice::Udp) => path_mtu(link, Mtu::B4096),
        // A packet must fit one chunk of AF_XDP.
        (None, _) => path_mtu(link, Mtu::B2048),
    }
}

fn port_attr(link: &LinkInfo, active_mtu: Mtu) -> ibv_port_attr {
    let is_active = link.up && link.running;
    // SAFETY: numbers only.
    let mut attr: ibv_port_attr = unsafe { std::mem::zeroed() };
    attr.state = if is_active { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN };
    (attr.max_mtu, attr.active_mtu) = (mtu(Mtu::B4096), mtu(active_mtu));
    attr.gid_tbl_len = 1;
    attr.port_cap_flags = IBV_PORT_IP_BASED_GIDS;
    attr.max_msg_sz = Config::default().max_msg_bytes;
    attr.pkey_tbl_len = 1;
    // 4X EDR, 100 Gbit/s: what the engine assumes of a link that says nothing.
    (attr.active_width, attr.active_speed) = (2, 32);
    attr.phys_state = if is_active { LINK_UP } else { DISABLED };
    attr.link_layer = IBV_LINK_LAYER_ETHERNET;
    attr
}

/// Scatter-gather elements of a request.
const SGE_MAX: c_int = 16;
/// The longest delay of an acknowledgement, as an exponent of 4.096 us: 1 ms, two ticks of the
/// thread that drives the engine while the program computes.
const ACK_DELAY: u8 = 8;
/// Physical states of a port (IBTA, PortInfo).
const LINK_UP: u8 = 5;
const DISABLED: u8 = 3;
