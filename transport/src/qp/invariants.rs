//! Invariants of a queue pair, which hold between calls. Asserted in builds with debug assertions.

use super::common::Common;
use super::engine::Engine;
use super::flow::Flow;
use super::state::QpState;

/// Asserts the invariants of the part that both engines share, then those of the engine.
///
/// # Panics
/// One of them does not hold.
pub(super) fn check(qp: &Common, engine: &Engine) {
    let is_unconnected = matches!(engine, Engine::Unconnected);
    if qp.state.receives() {
        debug_assert!(!is_unconnected, "{:?} without an engine", qp.state);
    }
    if matches!(qp.state, QpState::Reset | QpState::Init) {
        debug_assert!(is_unconnected, "{:?} with an engine", qp.state);
        debug_assert!(qp.flow.is_none(), "congestion control begins after RTR");
        debug_assert!(!qp.is_established, "no request is taken before RTR");
    }
    if qp.is_draining {
        debug_assert!(qp.state != QpState::Rtr, "only a queue pair that sent is drained");
    }
    if qp.state == QpState::Err {
        let own = qp.receive.own_queue();
        debug_assert!(own.is_none_or(|queue| queue.len() == 0), "receives are flushed");
        debug_assert!(engine.is_drained(), "the send queue is flushed");
    }
    if let Some(flow) = &qp.flow {
        check_flow(flow);
    }
    engine.check_invariants(qp);
}

fn check_flow(flow: &Flow) {
    let info = flow.info();
    debug_assert!(info.marked_bytes <= info.delivered_bytes, "marked bytes were delivered");
    debug_assert!(flow.window_pkts(0, 0) > 0, "a window of nothing would never open");
    debug_assert!(info.rate.is_none_or(|rate| rate.as_bps() > 0), "a rate of 0 never sends");
}
