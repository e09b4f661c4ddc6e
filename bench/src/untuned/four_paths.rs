//! Two hosts, a switch beside each, and four links between these. A switch selects the link by the
//! 5-tuple. The port to a host has the rate of the line, each link its rate and delay.

use super::line::Line;
use crate::bed::{Bed, Running, ip};
use crate::sample::Error;
use spanwire_host::control::is_answering;
use spanwire_io::net::{Ethtool, NetNs, Netlink, Offloads, VethEnd, VethSpec, format_mac};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The switches and their namespaces, removed when dropped.
pub(crate) struct FourPaths {
    name: String,
    namespaces: Vec<String>,
    switches: Vec<Running>,
    folder: PathBuf,
}

impl FourPaths {
    /// Creates hosts a and b, which `bed` then starts programs on.
    pub(crate) fn new(spanwire: &Path, name: &str, line: Line) -> Result<(Bed, Self), Error> {
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let (namespaces, switches) = (Vec::new(), Vec::new());
        let mut paths = Self { name: name.to_owned(), namespaces, switches, folder };
        let hosts = [("a", ADDRESSES[0].parse()?), ("b", ADDRESSES[1].parse()?)];
        let bed = Bed::of_namespaces(spanwire, name, &hosts);
        for part in ["a", "b", "sa", "sb"] {
            let name = format!("{name}-{part}");
            NetNs::create_named(&name)?;
            paths.namespaces.push(name);
        }
        let macs = paths.wire(&bed, &hosts)?;
        paths.switches.push(paths.start(&bed, "sa", &config(line, 1, [&macs[0], &macs[1]]))?);
        paths.switches.push(paths.start(&bed, "sb", &config(line, 2, [&macs[1], &macs[0]]))?);
        Ok((bed, paths))
    }

    /// The control socket of the switch in namespace `part`.
    pub(crate) fn socket(&self, part: &str) -> PathBuf {
        self.folder.join(format!("{part}.sock"))
    }

    /// Joins all parts; returns the Ethernet addresses of hosts a and b.
    fn wire(&self, bed: &Bed, hosts: &[(&str, IpAddr); 2]) -> Result<[String; 2], Error> {
        for host in ["a", "b"] {
            veth((&bed.ns(host)?, "sw0"), (&bed.ns(&format!("s{host}"))?, "host"))?;
        }
        for n in 1..=LINKS {
            let link = format!("l{n}");
            veth((&bed.ns("sa")?, &link), (&bed.ns("sb")?, &link))?;
        }
        let mac = |host: &str| -> Result<String, Error> {
            let link = Netlink::open_in(&bed.ns(host)?)?.wait_running("sw0", CARRIER_WITHIN)?;
            Ok(format_mac(&link.mac.ok_or("a veth without an Ethernet address")?))
        };
        let macs = [mac("a")?, mac("b")?];
        for (at, other) in [(0, 1), (1, 0)] {
            let (host, address) = hosts[at];
            Netlink::open_in(&bed.ns(host)?)?
                .add_address("sw0", format!("{address}/24").parse()?)?;
            // The switches flood nothing, so there is no ARP.
            let (ns, to) = (format!("{}-{host}", self.name), hosts[other].1.to_string());
            ip(&["-n", &ns, "neigh", "replace", &to, "lladdr", &macs[other], "dev", "sw0"])?;
        }
        Ok(macs)
    }

    /// Starts the switch of namespace `part` and waits until it forwards.
    fn start(&self, bed: &Bed, part: &str, config: &str) -> Result<Running, Error> {
        let file = self.folder.join(format!("{part}.toml"));
        let socket = self.socket(part);
        std::fs::write(&file, config).map_err(|e| format!("{}: {e}", file.display()))?;
        let (file, control) = (file.to_string_lossy(), socket.to_string_lossy());
        let mut switch =
            bed.spanwire(part, &["switch", "--config", &file, "--socket", &control])?;
        let deadline = Instant::now() + SWITCH_WITHIN;
        while !is_answering(&socket) {
            if Instant::now() > deadline || !switch.is_running()? {
                return Err(format!("{}: it does not start", switch.command()).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(switch)
    }
}

impl Drop for FourPaths {
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

/// A veth pair that carries whole frames without offloads.
pub(crate) fn veth(a: (&NetNs, &str), b: (&NetNs, &str)) -> Result<(), Error> {
    let ends = [a, b].map(|(ns, name)| VethEnd { ns, name });
    VethSpec { a: ends[0], b: ends[1], mtu: 1500, queues: 1 }.create()?;
    for (ns, name) in [a, b] {
        let mut netlink = Netlink::open_in(ns)?;
        netlink.disable_ipv6_autoconf(name)?;
        netlink.set_up(name)?;
        netlink.set_pfifo(name, 1000)?;
        Ethtool::open_in(ns)?.set_offloads(name, &Offloads::OFF)?;
    }
    Ok(())
}

/// The configuration of a switch beside the host with the first address of `macs`, whose peer has
/// the second.
fn config(line: Line, seed: u32, [own, other]: [&String; 2]) -> String {
    let Line { rate_bps, delay_us, queue_bytes, .. } = line;
    let port = |name: &str, delay_us: u64| {
        format!(
            "[port.{name}]\nrate = \"{rate_bps}bit\"\ndelay = \"{delay_us}us\"\n\
             queue.limit_bytes = {queue_bytes}\n"
        )
    };
    let mut config = format!("seed = {seed}\n{}", port("host", 0));
    config.extend((1..=LINKS).map(|n| port(&format!("l{n}"), delay_us)));
    let links: Vec<String> = (1..=LINKS).map(|n| n.to_string()).collect();
    // Writing to a String cannot fail.
    let _ = write!(
        config,
        "[forwarding]\nlearning = false\nflood = false\nmacs = [\n  \
         {{ mac = \"{own}\", ports = [0] }},\n  {{ mac = \"{other}\", ports = [{}] }},\n]\n",
        links.join(", ")
    );
    config
}

/// Links between the switches: `l1` and up, which are ports 1 and up of each.
pub(crate) const LINKS: u32 = 4;
/// Of hosts a and b.
const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const CARRIER_WITHIN: Duration = Duration::from_secs(5);
const SWITCH_WITHIN: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config__has_a_port_for_the_host_and_for_each_link() {
        let macs = ["02:00:00:00:00:0a".to_owned(), "02:00:00:00:00:0b".to_owned()];
        let config = config(Line::new(200, 5000), 1, [&macs[0], &macs[1]]);
        assert_eq!(config.matches("[port.").count(), 5);
        assert_eq!(config.matches("rate = \"200000000bit\"").count(), 5);
        assert_eq!(config.matches("delay = \"5000us\"").count(), 4);
        for part in ["0a\", ports = [0] }", "0b\", ports = [1, 2, 3, 4] }"] {
            assert!(config.contains(part), "{part} is missing: {config}");
        }
    }
}
