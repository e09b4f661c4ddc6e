//! The structures and constants of `abi` compared with `<infiniband/verbs.h>`: a C program, made
//! here from the same names, prints sizes, offsets and values as the compiler of C has them.
#![expect(non_snake_case, reason = "tests are named function__case")]

use ibverbs::abi::*;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

/// The size of the field that `_path` leads to.
const fn size_of_field<S, F>(_path: fn(*const S) -> *const F) -> usize {
    size_of::<F>()
}

/// For each structure all of its fields, which the compiler checks, and after a semicolon members
/// of fields. `as` gives the name in C where it is another.
macro_rules! layouts {
    ($($name:ident {
        $($field:ident $(as $c:literal)?),+; $($outer:ident $(. $inner:ident)+),*
    })*) => {
        /// (structure, its size, fields: name, offset, size)
        fn layouts() -> Vec<(&'static str, usize, Vec<(&'static str, usize, usize)>)> {
            vec![$((
                stringify!($name),
                size_of::<$name>(),
                vec![
                    $((
                        [$($c,)? stringify!($field)][0],
                        offset_of!($name, $field),
                        // SAFETY: never called; only its type is of use.
                        size_of_field(|s: *const $name| unsafe { &raw const (*s).$field }),
                    ),)+
                    $((
                        concat!(stringify!($outer) $(, ".", stringify!($inner))+),
                        offset_of!($name, $outer $(. $inner)+),
                        // SAFETY: as above.
                        size_of_field(|s: *const $name| unsafe {
                            &raw const (*s).$outer $(. $inner)+
                        }),
                    ),)*
                ],
            ),)*]
        }

        // A field that is not in the list is an error here.
        const _: () = {
            $(let _ = |$name { $($field: _),+ }: &$name| ();)*
        };
    };
}

layouts! {
    ibv_gid_entry {
        gid, gid_index, port_num, gid_type, ndev_ifindex;
        gid.raw, gid.global.subnet_prefix, gid.global.interface_id
    }
    ibv_device {
        _ops, node_type, transport_type, name, dev_name, dev_path, ibdev_path;
        _ops._dummy1, _ops._dummy2
    }
    ibv_context_ops {
        _compat_query_device, _compat_query_port, _compat_alloc_pd, _compat_dealloc_pd,
        _compat_reg_mr, _compat_rereg_mr, _compat_dereg_mr, alloc_mw, bind_mw, dealloc_mw,
        _compat_create_cq, poll_cq, req_notify_cq, _compat_cq_event, _compat_resize_cq,
        _compat_destroy_cq, _compat_create_srq, _compat_modify_srq, _compat_query_srq,
        _compat_destroy_srq, post_srq_recv, _compat_create_qp, _compat_query_qp,
        _compat_modify_qp, _compat_destroy_qp, post_send, post_recv, _compat_create_ah,
        _compat_destroy_ah, _compat_attach_mcast, _compat_detach_mcast, _compat_async_event;
    }
    ibv_context {
        device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat;
    }
    verbs_context {
        query_port, advise_mr, alloc_null_mr, read_counters, attach_counters_point_flow,
        create_counters, destroy_counters, reg_dm_mr, alloc_dm, free_dm,
        modify_flow_action_esp, destroy_flow_action, create_flow_action_esp,
        modify_qp_rate_limit, alloc_parent_domain, dealloc_td, alloc_td, modify_cq,
        post_srq_ops, destroy_rwq_ind_table, create_rwq_ind_table, destroy_wq, modify_wq,
        create_wq, query_rt_values, create_cq_ex, r#priv, query_device_ex, ibv_destroy_flow,
        _abi_placeholder2 as "ABI_placeholder2", ibv_create_flow, _abi_placeholder1 as
        "ABI_placeholder1", open_qp, create_qp_ex, get_srq_num, create_srq_ex, open_xrcd,
        close_xrcd, _abi_placeholder3 as "_ABI_placeholder3", sz, context;
    }
    ibv_device_attr {
        fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id,
        vendor_part_id, hw_ver, max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd,
        max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom,
        max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd, max_mw,
        max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach,
        max_total_mcast_qp_attach, max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr,
        max_srq_sge, max_pkeys, local_ca_ack_delay, phys_port_cnt;
    }
    ibv_odp_caps {
        general_caps, per_transport_caps;
        per_transport_caps.rc_odp_caps, per_transport_caps.uc_odp_caps,
        per_transport_caps.ud_odp_caps
    }
    ibv_tso_caps {
        max_tso, supported_qpts;
    }
    ibv_rss_caps {
        supported_qpts, max_rwq_indirection_tables, max_rwq_indirection_table_size,
        rx_hash_fields_mask, rx_hash_function;
    }
    ibv_packet_pacing_caps {
        qp_rate_limit_min, qp_rate_limit_max, supported_qpts;
    }
    ibv_tm_caps {
        max_rndv_hdr_size, max_num_tags, flags, max_ops, max_sge;
    }
    ibv_cq_moderation_caps {
        max_cq_count, max_cq_period;
    }
    ibv_pci_atomic_caps {
        fetch_add, swap, compare_swap;
    }
    ibv_device_attr_ex {
        orig_attr, comp_mask, odp_caps, completion_timestamp_mask, hca_core_clock,
        device_cap_flags_ex, tso_caps, rss_caps, max_wq_type_rq, packet_pacing_caps,
        raw_packet_caps, tm_caps, cq_mod_caps, max_dm_size, pci_atomic_caps, xrc_odp_caps,
        phys_port_cnt_ex;
    }
    ibv_port_attr {
        state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr,
        qkey_viol_cntr, pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout,
        init_type_reply, active_width, active_speed, phys_state, link_layer, flags,
        port_cap_flags2;
    }
    ibv_global_route {
        dgid, flow_label, sgid_index, hop_limit, traffic_class;
    }
    ibv_ah_attr {
        grh, dlid, sl, src_path_bits, static_rate, is_global, port_num;
    }
    ibv_qp_cap {
        max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
    }
    ibv_qp_init_attr {
        qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all;
    }
    ibv_rx_hash_conf {
        rx_hash_function, rx_hash_key_len, rx_hash_key, rx_hash_fields_mask;
    }
    ibv_qp_init_attr_ex {
        qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, xrcd,
        create_flags, max_tso_header, rwq_ind_tbl, rx_hash_conf, source_qpn, send_ops_flags;
    }
    ibv_qp_attr {
        qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num,
        qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index,
        en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer,
        port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout, rate_limit;
    }
    ibv_pd {
        context, handle;
    }
    ibv_mr {
        context, pd, addr, length, handle, lkey, rkey;
    }
    ibv_comp_channel {
        context, fd, refcnt;
    }
    ibv_cq {
        context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed,
        async_events_completed;
    }
    ibv_srq {
        context, srq_context, pd, handle, mutex, cond, events_completed;
    }
    ibv_qp {
        context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type,
        mutex, cond, events_completed;
    }
    ibv_data_buf {
        addr, length;
    }
    ibv_qp_ex {
        qp_base, comp_mask, wr_id, wr_flags, wr_atomic_cmp_swp, wr_atomic_fetch_add,
        wr_bind_mw, wr_local_inv, wr_rdma_read, wr_rdma_write, wr_rdma_write_imm, wr_send,
        wr_send_imm, wr_send_inv, wr_send_tso, wr_set_ud_addr, wr_set_xrc_srqn,
        wr_set_inline_data, wr_set_inline_data_list, wr_set_sge, wr_set_sge_list, wr_start,
        wr_complete, wr_abort, wr_atomic_write;
    }
    ibv_async_event {
        element, event_type;
        element.cq, element.qp, element.srq, element.wq, element.port_num
    }
    ibv_sge {
        addr, length, lkey;
    }
    ibv_mw_bind_info {
        mr, addr, length, mw_access_flags;
    }
    ibv_send_wr {
        wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr, remote_srqn as
        "qp_type.xrc.remote_srqn", bind_mw;
        wr.rdma.remote_addr, wr.rdma.rkey, wr.atomic.remote_addr, wr.atomic.compare_add,
        wr.atomic.swap, wr.atomic.rkey, wr.ud.ah, wr.ud.remote_qpn, wr.ud.remote_qkey,
        bind_mw.mw, bind_mw.rkey, bind_mw.bind_info
    }
    ibv_recv_wr {
        wr_id, next, sg_list, num_sge;
    }
    ibv_wc {
        wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags,
        pkey_index, slid, sl, dlid_path_bits;
    }
}

/// A line for each structure (`NAME SIZE`), field (`NAME.FIELD OFFSET SIZE`) and constant
/// (`NAME VALUE`).
fn expected() -> String {
    let mut text = String::new();
    let mut line = |of: std::fmt::Arguments<'_>| writeln!(text, "{of}").expect("a string");
    for (name, size, fields) in layouts() {
        line(format_args!("{name} {size}"));
        for (field, offset, size) in fields {
            line(format_args!("{name}.{} {offset} {size}", field.trim_start_matches("r#")));
        }
    }
    for (name, value) in VALUES {
        line(format_args!("{name} {value}"));
    }
    text
}

/// A C program that prints the same from the header.
fn program() -> String {
    let mut text = "#include <stdio.h>\n#include <stddef.h>\n#include <infiniband/verbs.h>\n\
                    int main(void) {\n"
        .to_owned();
    let mut line = |of: std::fmt::Arguments<'_>| writeln!(text, "{of}").expect("a string");
    for (name, _, fields) in layouts() {
        line(format_args!("printf(\"{name} %zu\\n\", sizeof(struct {name}));"));
        for (field, _, _) in fields {
            let field = field.trim_start_matches("r#");
            line(format_args!(
                "printf(\"{name}.{field} %zu %zu\\n\", offsetof(struct {name}, {field}), \
                 sizeof(((struct {name} *)0)->{field}));"
            ));
        }
    }
    for (name, _) in VALUES {
        line(format_args!("printf(\"{name} %lld\\n\", (long long){name});"));
    }
    text + "return 0;\n}\n"
}

#[test]
fn abi__is_that_of_the_c_header() {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        eprintln!("SKIPPED: no <infiniband/verbs.h> (apt-get install libibverbs-dev)");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program()).expect("the target folder can be written");
    let cc = Command::new("cc").arg(&source).arg("-o").arg(&binary).output();
    let cc = cc.expect("cc, which also links Rust's programs");
    assert!(cc.status.success(), "{}", String::from_utf8_lossy(&cc.stderr));
    let run = Command::new(&binary).output().expect("it was just built");
    let header = String::from_utf8(run.stdout).expect("names and numbers");

    let ours = expected();
    assert_eq!(ours.lines().count(), header.lines().count());
    let differ: Vec<String> = ours
        .lines()
        .zip(header.lines())
        .filter(|(ours, header)| ours != header)
        .map(|(ours, header)| format!("{ours}, in C {header}"))
        .collect();
    assert!(differ.is_empty(), "{differ:#?}");
    assert!(ours.lines().count() > 500, "{ours}");
}
