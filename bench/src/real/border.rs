//! Two hosts in a datacenter, its switch, and a border switch with Reflex to two hosts far away.

use super::stage::{Stage, name};
use crate::bed::{Bed, Running};
use crate::sample::Error;
use crate::untuned::veth;
use spanwire_io::net::{NetNs, Netlink};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Pseudo-ACKs that the border sends while one flow uses a fifth of the bottleneck: nothing waits.
pub(super) fn uncongested(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let border = Border::new(stage)?;
    let bed = &border.bed;
    let _server = stage.server(bed, "w0", &[])?;
    // The round trip to the border without queues, with what hosts are late by.
    let near = ["--mode", "sr", "--cc", "swift", "--cc-set", "near_base_us=1000"];
    let args = [&near[..], &["-t", "5", "--line-rate", "10Mbit"]].concat();
    stage.client(bed, "n0", bed.address("w0")?, &args)?;
    let socket = border.folder.join("border.sock");
    let show = ["switch", "ctl", "--socket", &socket.to_string_lossy(), "--json", "show"];
    let shown = bed.spanwire_here(&show)?.output(stage.within(START_WITHIN))?;
    let shown: serde_json::Value = serde_json::from_str(&shown)?;
    let agents = shown["agents"].as_array().ok_or("the border has no agents")?;
    let nsf = agents.iter().filter(|agent| agent["kind"] == "nsf");
    let sent: u64 = nsf.filter_map(|agent| agent["counters"]["feedback_tx"].as_u64()).sum();
    Ok(vec![sent as f64])
}

/// The lab; all of it is removed when dropped.
struct Border {
    /// Ended before their interfaces are removed.
    switches: Vec<Running>,
    namespaces: Vec<String>,
    folder: PathBuf,
    bed: Bed,
}

impl Border {
    fn new(stage: &Stage<'_>) -> Result<Self, Error> {
        let name = name();
        let folder = std::env::temp_dir().join(&name);
        std::fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let hosts: Result<Vec<(&str, IpAddr)>, Error> =
            HOSTS.iter().map(|(host, address)| Ok((*host, address.parse()?))).collect();
        let hosts = hosts?;
        let bed = Bed::of_namespaces(stage.command(), &name, &hosts);
        let mut border = Self { switches: Vec::new(), namespaces: Vec::new(), folder, bed };
        for part in hosts.iter().map(|(host, _)| *host).chain(["between"]) {
            let name = format!("{name}-{part}");
            NetNs::create_named(&name)?;
            border.namespaces.push(name);
        }
        let between = border.bed.ns("between")?;
        for (host, address) in &hosts {
            let ns = border.bed.ns(host)?;
            veth((&ns, "sw0"), (&between, host))?;
            Netlink::open_in(&ns)?.add_address("sw0", format!("{address}/24").parse()?)?;
        }
        veth((&between, "trunk"), (&between, "dc"))?;
        for (name, config) in [("inner", INNER), ("border", BORDER)] {
            let switch = border.start(stage, name, config)?;
            border.switches.push(switch);
        }
        Ok(border)
    }

    /// Starts a switch and waits until it forwards.
    fn start(&self, stage: &Stage<'_>, name: &str, config: &str) -> Result<Running, Error> {
        let [file, socket] = ["toml", "sock"].map(|end| self.folder.join(format!("{name}.{end}")));
        std::fs::write(&file, config)?;
        let (file, socket) = (file.to_string_lossy(), socket.to_string_lossy());
        let args = ["switch", "--config", &file, "--socket", &socket];
        stage.start_until(&self.bed, "between", &args)
    }
}

impl Drop for Border {
    fn drop(&mut self) {
        self.switches.clear();
        for name in &self.namespaces {
            if let Err(e) = NetNs::delete_named(name) {
                eprintln!("the namespace {name} remains: {e}");
            }
        }
        // A folder in the temporary directory does no harm.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
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
