//! A plan of the swarm in words.

use crate::plan::{Fault, Plan};
use crate::setup::{AgentSetup, Sends};
use crate::topology::Topology;
use crate::workload::Flow;
use spanwire_base::{Dur, Rate};
use spanwire_switch::{Impairments, QueueConfig};
use spanwire_transport::{ErasureCoding, Mtu, Offer};

/// The draws of a plan of the swarm, as pairs of a name and a description.
pub(super) fn describe(plan: &Plan) -> Vec<(String, String)> {
    let setup = &plan.setup;
    let mut out = Vec::new();
    let mut add = |name: &str, text: String| out.push((name.to_owned(), text));
    add("network", network(&plan.topology));
    add("hosts", setup.host.as_ref().map_or("ideal".to_owned(), |model| format!("{model:?}")));
    add("workers of each host", setup.workers.to_string());
    add("offers", offers(plan));
    add("queue pairs", queue_pairs(plan));
    add("congestion control", congestion(plan));
    add("coding and balancing", sends(plan));
    add("switches", switches(plan));
    for agent in &setup.agents {
        add("agent", agent_text(agent));
    }
    for fault in &plan.faults {
        add("fault", fault_text(fault));
    }
    if let Some(end) = plan.faults_end {
        add("faults end", format!("{:?}", Dur::from_ps(end.as_ps())));
    }
    for (i, flow) in plan.flows.iter().enumerate() {
        add(&format!("flow {i}"), flow_text(flow));
    }
    out
}

fn network(topology: &Topology) -> String {
    let range = |values: &[String]| match values {
        [] => "none".to_owned(),
        [one] => one.clone(),
        [least, .., most] => format!("{least} to {most}"),
    };
    let sorted = |of: fn(&crate::topology::Cable) -> u64, text: fn(u64) -> String| {
        let mut all: Vec<u64> = topology.links.iter().map(of).collect();
        all.sort_unstable();
        all.dedup();
        range(&all.into_iter().map(text).collect::<Vec<_>>())
    };
    let rates = sorted(|link| link.rate_bps, |bps| format!("{:?}", Rate::from_bps(bps)));
    let delays = sorted(|link| link.delay_ps, |ps| format!("{:?}", Dur::from_ps(ps)));
    let [hosts, switches] = [topology.hosts.len(), topology.switches.len()];
    format!(
        "{hosts} hosts, {switches} switches, {} links of {rates}, {delays}",
        topology.links.len()
    )
}

fn offers(plan: &Plan) -> String {
    let text = |offer: &Offer| match offer.sr {
        None => "RC".to_owned(),
        Some(sr) => {
            format!("SR with packets of {} bytes, {} reordered", sr.segment_bytes, sr.reorder_pkts)
        }
    };
    let mut out = text(&plan.setup.offer);
    for (host, offer) in &plan.setup.other_offers {
        out += &format!("; host {host} {}", text(offer));
    }
    out
}

fn queue_pairs(plan: &Plan) -> String {
    let s = &plan.setup;
    let mtu = Mtu::bytes(s.mtu);
    let mut out = format!(
        "MTU {mtu}, messages of {} bytes, {} outstanding, window {} packets, timeout {:?}, {} \
         retries, {} READs outstanding, {} receives reposted after {:?}",
        s.message_bytes,
        s.outstanding,
        s.window_pkts,
        s.timeout,
        s.retry_cnt,
        s.rd_atomic,
        s.recvs,
        s.recv_delay,
    );
    let flags = [(s.ipv6, "IPv6"), (s.elided, "no payload"), (s.shared_recvs, "shared receives")];
    for (_, name) in flags.iter().filter(|(is_on, _)| *is_on) {
        out += &format!(", {name}");
    }
    if let Some(drains) = s.drains {
        out += &format!(", drained every {:?}", drains.every);
    }
    out
}

fn congestion(plan: &Plan) -> String {
    let c = &plan.setup.congestion;
    let Some(near) = c.algorithm else { return "none".to_owned() };
    let mut out = format!("{} ({:?})", near.name(), c.preset).to_lowercase();
    if let Some((from, far)) = c.far {
        out += &format!(", {} beyond a base RTT of {from:?}", far.name());
    }
    out += if c.measures_rtt { ", base RTT measured" } else { ", base RTT of the path" };
    if plan.setup.port.int {
        let int = &plan.setup.int;
        let format = format!("{:?}", int.format).to_lowercase();
        out += &format!(", INT in {format} records, {} hops", int.hops);
        out += if int.on_top { " on top of full packets" } else { "" };
    }
    out
}

fn sends(plan: &Plan) -> String {
    let text = |sends: &Sends| {
        let code = |c: ErasureCoding| format!("{} ({}, {})", c.scheme, c.data, c.parity);
        let coding = sends.erasure.map_or("no coding".to_owned(), code);
        let balance =
            sends.balance.map_or("one path".to_owned(), |choice| choice.name().to_owned());
        format!("{coding}, {balance}")
    };
    let all: Vec<String> = plan.setup.other_sends.values().map(text).collect();
    match &all[..] {
        [] => "none".to_owned(),
        [first, rest @ ..] if rest.iter().all(|other| other == first) => first.clone(),
        _ => {
            let hosts = plan.setup.other_sends.keys().zip(&all);
            let each = hosts.map(|(host, text)| format!("host {host} {text}"));
            each.collect::<Vec<_>>().join("; ")
        }
    }
}

fn switches(plan: &Plan) -> String {
    let s = &plan.setup;
    let queue = |queue: &QueueConfig| {
        let mut out = format!("{} bytes", queue.limit_bytes);
        let marks = [
            (queue.ecn.is_some(), "ECN"),
            (queue.phantom.is_some(), "phantom queue"),
            (queue.trim.is_some(), "trims"),
        ];
        for (_, name) in marks.iter().filter(|(is_on, _)| *is_on) {
            out += &format!(" {name}");
        }
        out
    };
    let queues: Vec<String> = s.port.queues.iter().map(queue).collect();
    let pfc = if s.port.pfc.is_some() { ", PFC" } else { "" };
    let buffer = s.buffer_bytes;
    format!("queues [{}], buffer {buffer} bytes, paths {:?}{pfc}", queues.join(", "), s.spread)
        .to_lowercase()
}

fn agent_text(agent: &AgentSetup) -> String {
    let at = agent.at.map(|at| format!(" at {at:?}"));
    format!("{:?}{}", agent.config, at.unwrap_or_default())
}

/// Only impairments that are on.
fn fault_text(fault: &Fault) -> String {
    let none = Impairments::default();
    let Impairments { loss, burst_loss, block_loss, .. } = &fault.impairments;
    let Impairments { reorder, duplicate, corrupt, jitter, blackhole, flap, .. } =
        &fault.impairments;
    let parts = [
        (*loss != none.loss).then(|| format!("loss {loss:?}")),
        burst_loss.as_ref().map(|burst| format!("{burst:?}")),
        block_loss.as_ref().map(|block| format!("{block:?}")),
        reorder.as_ref().map(|reorder| format!("{reorder:?}")),
        (*duplicate != none.duplicate).then(|| format!("duplicates {duplicate:?}")),
        (*corrupt != none.corrupt).then(|| format!("corrupts {corrupt:?}")),
        (*jitter > Dur::ZERO).then(|| format!("jitter {jitter:?}")),
        (!blackhole.is_empty()).then(|| format!("blackhole {blackhole:?}")),
        flap.as_ref().map(|flap| format!("{flap:?}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let direction = if fault.backwards { "backwards" } else { "forwards" };
    let what = if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") };
    format!("link {} {direction}: {what}", fault.link)
}

fn flow_text(flow: &Flow) -> String {
    let Flow { src, dst, start, bytes, op, after, reverse_of, .. } = flow;
    let mut out = format!("{src} to {dst}, {bytes} bytes, {op:?}, from {start:?}").to_lowercase();
    if let Some(after) = after {
        out += &format!(", after flow {after}");
    }
    if let Some(other) = reverse_of {
        out += &format!(", on the queue pairs of flow {other}");
    }
    out
}
