//! Invariants of a network during a run and at its end.

use crate::ids::LinkId;
use crate::ids::NodeId;
use crate::network::{FlowProgress, Machine, Network};
use spanwire_base::{PortId, Time};
use spanwire_switch::Switch;

/// Invariants that do not hold now, one sentence each. O(nodes + links + queue pairs).
///
/// - Every frame given to a link has arrived, was lost with a counted reason, or is in flight.
/// - Every frame that entered a switch has left it, was dropped with a counted reason, or is
///   queued.
/// - Every frame handed to another worker of a host has reached it, or waits for it.
/// - No queue and no buffer exceeds its limit.
/// - The applications have no violations: see [`Traffic`](crate::Traffic).
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
            Machine::Host(sim_host) => {
                let violations = sim_host.engines().flat_map(|engine| engine.app().violations());
                violations.for_each(|v| add(v.clone()));
                let (counters, waiting) =
                    (sim_host.handover_counters(), sim_host.gate().node().waiting());
                if counters.handed != counters.received + waiting {
                    add(format!("{counters:?}, but {waiting} frames wait for their worker"));
                }
            }
            Machine::Switch(switch) => check_switch(network, node, switch, &mut add),
        }
    }
    found
}

/// Invariants that do not hold at the end, besides [`check_now`]. A flow that failed at either end
/// is a violation unless it failed before `may_fail_until`.
#[must_use]
pub fn check_end(network: &Network, may_fail_until: Time) -> Vec<String> {
    let progress = network.progress();
    // A flow that starts after a failed flow never starts.
    let mut is_ended = vec![false; progress.len()];
    for (i, flow) in network.flows().iter().enumerate() {
        let waits_in_vain = flow.after.is_some_and(|before| is_ended[before as usize]);
        let ended = progress[i].failed.is_some() || progress[i].responder_failed_at.is_some();
        is_ended[i] = ended || waits_in_vain;
    }
    // The last message of a flow that stops may never be posted.
    let stops = |i: usize| network.flows()[i].stops_at.is_some();
    let mut found = Vec::new();
    for (i, p) in progress.iter().enumerate() {
        match p {
            FlowProgress { failed: Some(status), failed_at, .. }
                if failed_at.is_none_or(|at| at >= may_fail_until) =>
            {
                found.push(format!("flow {i} failed at {failed_at:?}: {}", status.name()));
            }
            // The responder of a requester that failed in time notices later.
            FlowProgress { responder_failed_at: Some(at), failed: None, .. }
                if *at >= may_fail_until =>
            {
                found.push(format!("flow {i} failed at its responder at {at:?}"));
            }
            FlowProgress { completed, finished, .. }
                if !is_ended[i] && (completed.is_none() || (finished.is_none() && !stops(i))) =>
            {
                found.push(format!("flow {i} is not done at the end: {p:?}"));
            }
            _ => {}
        }
    }
    let is_failed = |flow: u32| is_ended[flow as usize];
    for host in network.engines() {
        found.extend(host.app().check_end(is_failed));
    }
    found
}

/// The name of one direction of a link: its source and its destination.
#[must_use]
pub fn name(network: &Network, link: LinkId) -> String {
    let [from, to] = network.world.ends(link).map(|(node, _)| {
        network.topology().name(u32::try_from(node.index()).unwrap_or(u32::MAX)).to_owned()
    });
    format!("{from}->{to}")
}

fn check_switch(network: &Network, node: NodeId, switch: &Switch, add: &mut impl FnMut(String)) {
    let counters = switch.counters();
    if let Err(e) = switch.check_accounts() {
        add(e);
    }
    // The counters of the nodes and of the links must agree.
    for (n, port) in (0..).zip(&counters.ports) {
        let out = PortId::new(n).and_then(|port| network.world.link_at(node, port));
        if out.is_some_and(|id| network.world.link_counters(id).sent != port.tx_pkts) {
            add(format!("port {n} has sent {} frames, its link has counted others", port.tx_pkts));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Flow;
    use crate::{Setup, Topology};
    use spanwire_base::{Dur, Node, Rate, RxMeta};

    fn network() -> Network {
        let mut topology = Topology::star(1, Rate::from_gbps(10), Dur::from_us(1));
        // The egress link is slower, so that a queue builds up.
        topology.links[1].rate_bps = 1_000_000_000;
        let flows = vec![Flow::new(0, 1, Time::ZERO, 50_000)];
        Network::new(topology, flows, Setup::default()).unwrap()
    }

    #[test]
    fn check_now__a_network_that_runs_is_in_order_at_every_event() {
        let mut n = network();
        while n.world.run(Time::MAX, 1, &mut ()) == crate::Stop::Events {
            assert_eq!(check_now(&n), [] as [&str; 0]);
        }
        assert_eq!(check_end(&n, Time::ZERO), [] as [&str; 0]);
        assert_eq!(name(&n, n.directions(0)[0]), "h0->hub");
    }

    #[test]
    fn check_now__a_frame_out_of_nowhere_or_into_nowhere_is_noticed() {
        let mut n = network();
        n.world.run(Time::from_ns(10_000), u64::MAX, &mut ());
        let hub = NodeId::from_index(2);
        let mut frame = [0; 8192];
        let port = PortId::new(1).unwrap();
        // As if a link had accepted the frame and lost it.
        let now = n.world.now();
        let stolen = n.world.node_mut(hub).poll_transmit(now, port, &mut frame);
        assert!(stolen.is_some());
        assert!(check_now(&n).iter().any(|v| v.contains("its link has counted others")));
        let mut n = network();
        let meta = RxMeta::whole(Time::ZERO);
        n.world.node_mut(hub).handle_packet(Time::ZERO, port, &[0; 60], &meta);
        assert_eq!(check_now(&n), [] as [&str; 0], "in and dropped with a reason");
    }

    #[test]
    fn check_end__a_flow_that_is_not_done_is_noticed() {
        let n = network();
        let found = check_end(&n, Time::ZERO);
        assert!(found[0].contains("flow 0 is not done"), "{found:?}");
    }
}
