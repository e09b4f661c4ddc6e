//! Two hosts in a datacenter, its switch, and a border switch with Reflex to two hosts far away.

use super::stage::{Stage, name};
use crate::bed::{Bed, Parts, veth};
use crate::sample::Error;
use spanwire_io::net::Netlink;
use std::net::IpAddr;
use std::time::Duration;

/// Pseudo-ACKs that the border sends while one flow uses a fifth of the bottleneck: nothing waits.
pub(super) fn uncongested(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let (bed, parts) = border(stage)?;
    let bed = &bed;
    let _server = stage.server(bed, "w0", &[])?;
    // The round trip to the border without queues, with what hosts are late by.
    let near = ["--mode", "sr", "--cc", "swift", "--cc-set", "near_base_us=1000"];
    let args = [&near[..], &["-t", "5", "--line-rate", "10Mbit"]].concat();
    stage.client(bed, "n0", bed.address("w0")?, &args)?;
    let socket = parts.socket("border");
    let show = ["switch", "ctl", "--socket", &socket.to_string_lossy(), "--json", "show"];
    let shown = bed.spanwire_here(&show)?.output(stage.within(START_WITHIN))?;
    let shown: serde_json::Value = serde_json::from_str(&shown)?;
    let agents = shown["agents"].as_array().ok_or("the border has no agents")?;
    let nsf = agents.iter().filter(|agent| agent["kind"] == "nsf");
    let sent: u64 = nsf.filter_map(|agent| agent["counters"]["feedback_tx"].as_u64()).sum();
    Ok(vec![sent as f64])
}

fn border(stage: &Stage<'_>) -> Result<(Bed, Parts), Error> {
    let hosts: Result<Vec<(&str, IpAddr)>, Error> =
        HOSTS.iter().map(|(host, address)| Ok((*host, address.parse()?))).collect();
    let hosts = hosts?;
    let (bed, mut parts) = Parts::new(stage.command(), &name(), &hosts, &["between"])?;
    let between = bed.ns("between")?;
    for (host, address) in &hosts {
        let ns = bed.ns(host)?;
        veth((&ns, "sw0"), (&between, host))?;
        Netlink::open_in(&ns)?.add_address("sw0", format!("{address}/24").parse()?)?;
    }
    veth((&between, "trunk"), (&between, "dc"))?;
    for (name, config) in [("inner", INNER), ("border", BORDER)] {
        parts.start(&bed, "between", name, config)?;
    }
    Ok((bed, parts))
}

/// Hosts of the datacenter and far away.
const HOSTS: [(&str, &str); 4] =
    [("n0", "10.78.0.10"), ("n1", "10.78.0.11"), ("w0", "10.78.0.20"), ("w1", "10.78.0.21")];

/// The switch of the datacenter: a bottleneck of 50 Mbit/s on the way out.
const INNER: &str = "[port.n0]\ndelay = '100us'\n[port.n1]\ndelay = '100us'\n\
                     [port.trunk]\nrate = '50Mbit'\ndelay = '100us'\nqueue.limit_bytes = '1MB'\n";

/// The border: packets are late if they waited for 5 ms, 20 packets of the bottleneck, longer than
/// the fastest of their flow.
const BORDER: &str = "[port.dc]\ndelay = '100us'\n[port.w0]\ndelay = '20ms'\n\
                      [port.w1]\ndelay = '20ms'\n\
                      [[agent]]\nkind = 'nsf'\noutside = ['w0', 'w1']\nclock = 'relative'\n\
                      threshold = '5ms'\ninterval = '5ms'\n\
                      [[agent]]\nkind = 'ndt'\ninside = ['dc']\nthreshold = '10ms'\n\
                      active = '100ms'\nmax_pause = '50ms'\n";

const START_WITHIN: Duration = Duration::from_secs(10);
