//! A lab of switches that `spanwire lab` does not make: with several of them.

use super::{Bed, Folder, Running};
use crate::sample::Error;
use spanwire_host::control::is_answering;
use spanwire_io::net::{Ethtool, NetNs, Netlink, Offloads, VethEnd, VethSpec};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Namespaces, and switches in them. They are removed when it is dropped.
pub(crate) struct Parts {
    /// Ended before their interfaces are removed.
    switches: Vec<Running>,
    namespaces: Vec<String>,
    folder: Folder,
}

impl Parts {
    /// Namespaces of `hosts`, on which the bed starts programs, and of `others`.
    pub(crate) fn new(
        spanwire: &Path,
        name: &str,
        hosts: &[(&str, IpAddr)],
        others: &[&str],
    ) -> Result<(Bed, Self), Error> {
        let bed = Bed::of_namespaces(spanwire, name, hosts);
        let (switches, namespaces) = (Vec::new(), Vec::new());
        let mut parts = Self { switches, namespaces, folder: Folder::new(name)? };
        for part in hosts.iter().map(|(host, _)| host).chain(others) {
            let name = format!("{name}-{part}");
            NetNs::create_named(&name)?;
            parts.namespaces.push(name);
        }
        Ok((bed, parts))
    }

    /// The control socket of a switch.
    pub(crate) fn socket(&self, switch: &str) -> PathBuf {
        self.folder.join(&format!("{switch}.sock")).into()
    }

    /// Starts a switch in the namespace `part` and waits until it forwards.
    pub(crate) fn start(
        &mut self,
        bed: &Bed,
        part: &str,
        switch: &str,
        config: &str,
    ) -> Result<(), Error> {
        let (file, socket) = (self.folder.join(&format!("{switch}.toml")), self.socket(switch));
        std::fs::write(&file, config).map_err(|e| format!("{file}: {e}"))?;
        let control = socket.to_string_lossy();
        let args = ["switch", "--config", &file, "--socket", &control];
        let mut switch = bed.spanwire(part, &args)?;
        let deadline = Instant::now() + SWITCH_WITHIN;
        while !is_answering(&socket) {
            if Instant::now() > deadline || !switch.is_running()? {
                return Err(format!("{}: it does not start", switch.command()).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.switches.push(switch);
        Ok(())
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.switches.clear();
        for name in &self.namespaces {
            if let Err(e) = NetNs::delete_named(name) {
                eprintln!("the namespace {name} remains: {e}");
            }
        }
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

const SWITCH_WITHIN: Duration = Duration::from_secs(10);
