//! What must be true of a network at any moment, and at the end.

use crate::link::LinkId;
use crate::network::{FlowProgress, Machine, Network};
use crate::world::NodeId;
use spanwire_base::{PortId, Time};
use spanwire_switch::{PortCounters, Switch};

/// What is wrong now, one sentence each; nothing, or something is broken. O(nodes + links + queue
/// pairs).
///
/// - Every frame given to a link has arrived, was lost with a reason or is on its way.
/// - Every frame that came into a switch has left it, was dropped with a reason or waits in it.
/// - No queue and no buffer is above its limit.
/// - No queue pair waits for an answer without a timer.
/// - The applications have seen nothing wrong: see [`Traffic`](crate::Traffic).
#[must_use]
pub fn check_now(network: &Network) -> Vec<String> {
    let mut found = Vec::new();
    for id in network.world.check_conservation() {
        found.push(format!("frames on {} are not conserved", name(network, id)));
    }
    for (node, machine) in network.world.nodes() {
        let here = network.topology().name(u32::try_from(node.index()).unwrap_or(u32::MAX));
        let mut add = |what: String| found.push(format!("{here}: {what}"));
        match machine {
            Machine::Host(station) => {
                let host = station.host();
                for qpn in host.endpoint().stuck_qps() {
                    add(format!("queue pair {:#x} waits without a timer", qpn.get()));
                }
                host.app().violations().iter().for_each(|v| add(v.clone()));
            }
            Machine::Switch(switch) => check_switch(network, node, switch, &mut add),
        }
    }
    found
}

/// What is wrong at the end, beside [`check_now`]. Flows that a broken queue pair has ended are
/// wrong unless that was before `may_fail_until`.
#[must_use]
pub fn check_end(network: &Network, may_fail_until: Time) -> Vec<String> {
    let progress = network.progress();
    // Who waits for a flow that failed waits for ever.
    let mut is_over = vec![false; progress.len()];
    for (i, flow) in network.flows().iter().enumerate() {
        let waits_in_vain = flow.after.is_some_and(|before| is_over[before as usize]);
        is_over[i] = progress[i].failed.is_some() || waits_in_vain;
    }
    let mut found = Vec::new();
    for (i, p) in progress.iter().enumerate() {
        match p {
            FlowProgress { failed: Some(status), failed_at, .. }
                if failed_at.is_none_or(|at| at >= may_fail_until) =>
            {
                found.push(format!("flow {i} failed at {failed_at:?}: {}", status.name()));
            }
            FlowProgress { is_complete, finished, .. }
                if !is_over[i] && (!is_complete || finished.is_none()) =>
            {
                found.push(format!("flow {i} is not done at the end: {p:?}"));
            }
            _ => {}
        }
    }
    let is_failed = |flow: u32| is_over[flow as usize];
    for host in network.hosts() {
        found.extend(host.app().check_end(is_failed));
    }
    found
}

/// The name of one direction of a link: where it begins and where it ends.
#[must_use]
pub fn name(network: &Network, link: LinkId) -> String {
    let [from, to] = network.world.ends(link).map(|(node, _)| {
        network.topology().name(u32::try_from(node.index()).unwrap_or(u32::MAX)).to_owned()
    });
    format!("{from}->{to}")
}

fn check_switch(network: &Network, node: NodeId, switch: &Switch, add: &mut impl FnMut(String)) {
    let counters = switch.counters();
    let sum = |f: fn(&PortCounters) -> u64| counters.ports.iter().map(f).sum::<u64>();
    let made = sum(|p| p.pfc.pause_tx + p.pfc.resume_tx);
    let ended = sum(|p| p.pfc.pause_rx + p.pfc.resume_rx);
    let (rx, tx, dropped) = (sum(|p| p.rx_pkts), sum(|p| p.tx_pkts), counters.dropped());
    let inside = u64::from(switch.used_pkts());
    if counters.forwarding.flooded == 0 && rx + made != tx + ended + dropped + inside {
        add(format!(
            "{rx} frames in and {made} pauses made are not {tx} out, {ended} pauses, {dropped} \
             dropped and {inside} waiting"
        ));
    }
    if let Err(e) = switch.check_accounts() {
        add(e);
    }
    // What the nodes count and what the links count is the same.
    for (n, port) in (0..).zip(&counters.ports) {
        let out = PortId::new(n).and_then(|port| network.world.link_at(node, port));
        if out.is_some_and(|id| network.world.link_counters(id).sent != port.tx_pkts) {
            add(format!("port {n} has sent {} frames, its link has got others", port.tx_pkts));
        }
    }
}
