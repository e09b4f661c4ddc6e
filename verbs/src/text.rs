//! Names of values, and rates.

use crate::abi::*;
use libc::{c_char, c_int};

/// `ibv_wc_status_str(3)`.
#[unsafe(export_name = "sw_ibv_wc_status_str")]
extern "C" fn wc_status_str(status: c_int) -> *const c_char {
    let text = match status {
        IBV_WC_SUCCESS => c"success",
        IBV_WC_LOC_LEN_ERR => c"local length error",
        IBV_WC_LOC_QP_OP_ERR => c"local QP operation error",
        IBV_WC_LOC_EEC_OP_ERR => c"local EE context operation error",
        IBV_WC_LOC_PROT_ERR => c"local protection error",
        IBV_WC_WR_FLUSH_ERR => c"Work Request Flushed Error",
        IBV_WC_MW_BIND_ERR => c"memory management operation error",
        IBV_WC_BAD_RESP_ERR => c"bad response error",
        IBV_WC_LOC_ACCESS_ERR => c"local access error",
        IBV_WC_REM_INV_REQ_ERR => c"remote invalid request error",
        IBV_WC_REM_ACCESS_ERR => c"remote access error",
        IBV_WC_REM_OP_ERR => c"remote operation error",
        IBV_WC_RETRY_EXC_ERR => c"transport retry counter exceeded",
        IBV_WC_RNR_RETRY_EXC_ERR => c"RNR retry counter exceeded",
        IBV_WC_LOC_RDD_VIOL_ERR => c"local RDD violation error",
        IBV_WC_REM_INV_RD_REQ_ERR => c"remote invalid RD request",
        IBV_WC_REM_ABORT_ERR => c"aborted error",
        IBV_WC_INV_EECN_ERR => c"invalid EE context number",
        IBV_WC_INV_EEC_STATE_ERR => c"invalid EE context state",
        IBV_WC_FATAL_ERR => c"fatal error",
        IBV_WC_RESP_TIMEOUT_ERR => c"response timeout error",
        IBV_WC_GENERAL_ERR => c"general error",
        IBV_WC_TM_ERR => c"tag matching error",
        IBV_WC_TM_RNDV_INCOMPLETE => c"tag matching rendezvous incomplete",
        _ => c"unknown",
    };
    text.as_ptr()
}

/// `ibv_node_type_str(3)`.
#[unsafe(export_name = "sw_ibv_node_type_str")]
extern "C" fn node_type_str(node_type: c_int) -> *const c_char {
    let text = match node_type {
        IBV_NODE_CA => c"InfiniBand channel adapter",
        IBV_NODE_SWITCH => c"InfiniBand switch",
        IBV_NODE_ROUTER => c"InfiniBand router",
        IBV_NODE_RNIC => c"iWARP NIC",
        IBV_NODE_USNIC => c"usNIC",
        IBV_NODE_USNIC_UDP => c"usNIC UDP",
        IBV_NODE_UNSPECIFIED => c"unspecified",
        _ => c"unknown",
    };
    text.as_ptr()
}

/// `ibv_port_state_str(3)`.
#[unsafe(export_name = "sw_ibv_port_state_str")]
extern "C" fn port_state_str(state: c_int) -> *const c_char {
    let text = match state {
        IBV_PORT_NOP => c"no state change (NOP)",
        IBV_PORT_DOWN => c"down",
        IBV_PORT_INIT => c"init",
        IBV_PORT_ARMED => c"armed",
        IBV_PORT_ACTIVE => c"active",
        IBV_PORT_ACTIVE_DEFER => c"active defer",
        _ => c"unknown",
    };
    text.as_ptr()
}

/// `ibv_event_type_str(3)`.
#[unsafe(export_name = "sw_ibv_event_type_str")]
extern "C" fn event_type_str(event: c_int) -> *const c_char {
    let text = match event {
        IBV_EVENT_CQ_ERR => c"CQ error",
        IBV_EVENT_QP_FATAL => c"local work queue catastrophic error",
        IBV_EVENT_QP_REQ_ERR => c"invalid request local work queue error",
        IBV_EVENT_QP_ACCESS_ERR => c"local access violation work queue error",
        IBV_EVENT_COMM_EST => c"communication established",
        IBV_EVENT_SQ_DRAINED => c"send queue drained",
        IBV_EVENT_PATH_MIG => c"path migrated",
        IBV_EVENT_PATH_MIG_ERR => c"path migration request error",
        IBV_EVENT_DEVICE_FATAL => c"local catastrophic error",
        IBV_EVENT_PORT_ACTIVE => c"port active",
        IBV_EVENT_PORT_ERR => c"port error",
        IBV_EVENT_LID_CHANGE => c"LID change",
        IBV_EVENT_PKEY_CHANGE => c"P_Key change",
        IBV_EVENT_SM_CHANGE => c"SM change",
        IBV_EVENT_SRQ_ERR => c"SRQ catastrophic error",
        IBV_EVENT_SRQ_LIMIT_REACHED => c"SRQ limit reached",
        IBV_EVENT_QP_LAST_WQE_REACHED => c"last WQE reached",
        IBV_EVENT_CLIENT_REREGISTER => c"client reregistration",
        IBV_EVENT_GID_CHANGE => c"GID table change",
        IBV_EVENT_WQ_FATAL => c"WQ fatal",
        _ => c"unknown",
    };
    text.as_ptr()
}

/// The name of an operation, for rdma-core's own programs.
#[unsafe(export_name = "sw_ibv_wr_opcode_str")]
extern "C" fn wr_opcode_str(opcode: c_int) -> *const c_char {
    let text = match opcode {
        IBV_WR_RDMA_WRITE => c"IBV_WR_RDMA_WRITE",
        IBV_WR_RDMA_WRITE_WITH_IMM => c"IBV_WR_RDMA_WRITE_WITH_IMM",
        IBV_WR_SEND => c"IBV_WR_SEND",
        IBV_WR_SEND_WITH_IMM => c"IBV_WR_SEND_WITH_IMM",
        IBV_WR_RDMA_READ => c"IBV_WR_RDMA_READ",
        IBV_WR_ATOMIC_CMP_AND_SWP => c"IBV_WR_ATOMIC_CMP_AND_SWP",
        IBV_WR_ATOMIC_FETCH_AND_ADD => c"IBV_WR_ATOMIC_FETCH_AND_ADD",
        IBV_WR_LOCAL_INV => c"IBV_WR_LOCAL_INV",
        IBV_WR_BIND_MW => c"IBV_WR_BIND_MW",
        IBV_WR_SEND_WITH_INV => c"IBV_WR_SEND_WITH_INV",
        IBV_WR_TSO => c"IBV_WR_TSO",
        IBV_WR_DRIVER1 => c"IBV_WR_DRIVER1",
        IBV_WR_ATOMIC_WRITE => c"IBV_WR_ATOMIC_WRITE",
        _ => c"unknown",
    };
    text.as_ptr()
}

/// Each rate of a link: its value, multiples of 2.5 Gbit/s (0: none), and Mbit/s as InfiniBand
/// signals them.
const RATES: [(c_int, c_int, c_int); 23] = [
    (IBV_RATE_2_5_GBPS, 1, 2_500),
    (IBV_RATE_5_GBPS, 2, 5_000),
    (IBV_RATE_10_GBPS, 4, 10_000),
    (IBV_RATE_20_GBPS, 8, 20_000),
    (IBV_RATE_30_GBPS, 12, 30_000),
    (IBV_RATE_40_GBPS, 16, 40_000),
    (IBV_RATE_60_GBPS, 24, 60_000),
    (IBV_RATE_80_GBPS, 32, 80_000),
    (IBV_RATE_120_GBPS, 48, 120_000),
    (IBV_RATE_14_GBPS, 0, 14_062),
    (IBV_RATE_28_GBPS, 11, 28_125),
    (IBV_RATE_25_GBPS, 0, 25_781),
    (IBV_RATE_50_GBPS, 20, 53_125),
    (IBV_RATE_56_GBPS, 0, 56_250),
    (IBV_RATE_100_GBPS, 0, 103_125),
    (IBV_RATE_112_GBPS, 0, 112_500),
    (IBV_RATE_168_GBPS, 0, 168_750),
    (IBV_RATE_200_GBPS, 0, 206_250),
    (IBV_RATE_300_GBPS, 0, 309_375),
    (IBV_RATE_400_GBPS, 160, 425_000),
    (IBV_RATE_600_GBPS, 240, 637_500),
    (IBV_RATE_800_GBPS, 320, 850_000),
    (IBV_RATE_1200_GBPS, 480, 1_275_000),
];

/// `ibv_rate_to_mult(3)`: -1 for a rate that is no multiple.
#[unsafe(export_name = "sw_ibv_rate_to_mult")]
extern "C" fn rate_to_mult(rate: c_int) -> c_int {
    let found = RATES.iter().find(|(known, mult, _)| *known == rate && *mult > 0);
    found.map_or(-1, |(_, mult, _)| *mult)
}

/// `mult_to_ibv_rate(3)`.
#[unsafe(export_name = "sw_mult_to_ibv_rate")]
extern "C" fn mult_to_rate(mult: c_int) -> c_int {
    let found = RATES.iter().find(|(_, known, _)| *known == mult && mult > 0);
    found.map_or(IBV_RATE_MAX, |(rate, ..)| *rate)
}

/// `ibv_rate_to_mbps(3)`.
#[unsafe(export_name = "sw_ibv_rate_to_mbps")]
extern "C" fn rate_to_mbps(rate: c_int) -> c_int {
    RATES.iter().find(|(known, ..)| *known == rate).map_or(-1, |(.., mbps)| *mbps)
}

/// `mbps_to_ibv_rate(3)`.
#[unsafe(export_name = "sw_mbps_to_ibv_rate")]
extern "C" fn mbps_to_rate(mbps: c_int) -> c_int {
    RATES.iter().find(|(.., known)| *known == mbps).map_or(IBV_RATE_MAX, |(rate, ..)| *rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates__round_trip() {
        for (rate, mult, mbps) in RATES {
            assert_eq!((rate_to_mbps(rate), mbps_to_rate(mbps)), (mbps, rate));
            if mult > 0 {
                assert_eq!((rate_to_mult(rate), mult_to_rate(mult)), (mult, rate));
            }
        }
        assert_eq!([rate_to_mult(99), rate_to_mbps(99)], [-1, -1]);
        assert_eq!([mult_to_rate(0), mult_to_rate(3), mbps_to_rate(1)], [IBV_RATE_MAX; 3]);
    }

    #[test]
    fn names__every_status_has_one_of_its_own() {
        let name = |status| {
            // SAFETY: a static string.
            unsafe { std::ffi::CStr::from_ptr(wc_status_str(status)) }.to_str().unwrap()
        };
        let names: std::collections::BTreeSet<_> = (0..24).map(name).collect();
        assert_eq!(names.len(), 24);
        assert_eq!((name(24), name(-1)), ("unknown", "unknown"));
    }
}
