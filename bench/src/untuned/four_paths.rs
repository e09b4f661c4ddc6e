//! Two hosts, a switch beside each, and four links between these. A switch selects the link by the
//! 5-tuple. The port to a host has the rate of the line, each link its rate, delay and loss.

use super::line::Line;
use crate::bed::{Bed, Parts, ip, veth};
use crate::sample::Error;
use spanwire_io::net::{Netlink, format_mac};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// Creates hosts a and b with their switches `sa` and `sb`.
pub(crate) fn four_paths(spanwire: &Path, name: &str, line: Line) -> Result<(Bed, Parts), Error> {
    let hosts = [("a", ADDRESSES[0].parse()?), ("b", ADDRESSES[1].parse()?)];
    let (bed, mut parts) = Parts::new(spanwire, name, &hosts, &["sa", "sb"])?;
    let [a, b] = wire(&bed, &hosts)?;
    parts.start(&bed, "sa", "sa", &config(line, 1, [&a, &b]))?;
    parts.start(&bed, "sb", "sb", &config(line, 2, [&b, &a]))?;
    Ok((bed, parts))
}

/// Joins all parts; returns the Ethernet addresses of hosts a and b.
fn wire(bed: &Bed, hosts: &[(&str, IpAddr); 2]) -> Result<[String; 2], Error> {
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
        Netlink::open_in(&bed.ns(host)?)?.add_address("sw0", format!("{address}/24").parse()?)?;
        // The switches flood nothing, so there is no ARP.
        let (ns, to) = (format!("{}-{host}", bed.name()), hosts[other].1.to_string());
        ip(&["-n", &ns, "neigh", "replace", &to, "lladdr", &macs[other], "dev", "sw0"])?;
    }
    Ok(macs)
}

/// The configuration of a switch beside the host with the first address of `macs`, whose peer has
/// the second.
fn config(line: Line, seed: u32, [own, other]: [&String; 2]) -> String {
    let Line { rate_bps, delay_us, queue_bytes, loss_ppm, .. } = line;
    let port = |name: &str, delay_us: u64, loss_ppm: u32| {
        format!(
            "[port.{name}]\nrate = \"{rate_bps}bit\"\ndelay = \"{delay_us}us\"\n\
             queue.limit_bytes = {queue_bytes}\nloss = \"{loss_ppm}ppm\"\n"
        )
    };
    let mut config = format!("seed = {seed}\n{}", port("host", 0, 0));
    config.extend((1..=LINKS).map(|n| port(&format!("l{n}"), delay_us, loss_ppm)));
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
