//! A test bed: a lab of hosts, joined by a cable or by a switch whose links change between samples.

mod folder;
mod frame;
mod goodput;
mod ip;
mod listener;
mod parts;
mod perf;
mod process;
mod queue;
mod servers;
mod table;
mod tcp;

pub(crate) use folder::{Folder, MEMORY};
pub(crate) use frame::Frame;
pub(crate) use goodput::{Goodput, Interval, common_half, unix_s};
pub(crate) use ip::ip;
pub(crate) use listener::wait_for_listener;
pub(crate) use parts::{Parts, veth};
pub(crate) use perf::{CONNECT_WITHIN, parse as parse_perf, report};
pub(crate) use process::Running;
pub(crate) use queue::{mean, queue_bytes};
pub(crate) use servers::Servers;
pub(crate) use table::column;
pub(crate) use tcp::transfer as tcp_transfer;

use crate::sample::Error;
use serde_json::Value;
use spanwire_io::net::NetNs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A lab, which is removed when dropped.
pub(crate) struct Bed {
    spanwire: PathBuf,
    name: String,
    hosts: Vec<BedHost>,
    /// `spanwire lab` made it, and removes it.
    is_lab: bool,
    switch_pid: Option<u32>,
}

/// A host of the lab.
#[derive(Clone, PartialEq, Eq, Debug)]
struct BedHost {
    name: String,
    v4: IpAddr,
    v6: Option<IpAddr>,
}

impl Bed {
    /// Hosts a and b, joined by a cable.
    pub(crate) fn cable(spanwire: &Path, name: &str) -> Result<Self, Error> {
        Self::up(spanwire, name, &[])
    }

    /// A host for each port of a switch with the configuration `config`.
    pub(crate) fn switched(spanwire: &Path, name: &str, config: &str) -> Result<Self, Error> {
        let file = std::env::temp_dir().join(format!("{name}.toml"));
        std::fs::write(&file, config).map_err(|e| format!("{}: {e}", file.display()))?;
        let bed = Self::up(spanwire, name, &["--switch", &file.to_string_lossy()]);
        // A file in the temporary directory does no harm.
        let _ = std::fs::remove_file(&file);
        bed
    }

    /// Hosts whose namespaces are `NAME-HOST`. They remain when it is dropped.
    pub(crate) fn of_namespaces(spanwire: &Path, name: &str, hosts: &[(&str, IpAddr)]) -> Self {
        let host =
            |(name, v4): &(&str, IpAddr)| BedHost { name: (*name).to_owned(), v4: *v4, v6: None };
        Self {
            spanwire: spanwire.to_owned(),
            name: name.to_owned(),
            hosts: hosts.iter().map(host).collect(),
            is_lab: false,
            switch_pid: None,
        }
    }

    fn up(spanwire: &Path, name: &str, args: &[&str]) -> Result<Self, Error> {
        let up = Command::new(spanwire)
            .args(["lab", "up", "--name", name, "--json"])
            .args(args)
            .output()
            .map_err(|e| {
                let path = spanwire.display();
                format!("{path}: {e}; cargo build --release builds it, --spanwire sets its path")
            })?;
        if !up.status.success() {
            return Err(String::from_utf8_lossy(&up.stderr).into_owned().into());
        }
        let mut bed = Self::of_namespaces(spanwire, name, &[]);
        bed.is_lab = true;
        let up: Value = serde_json::from_slice(&up.stdout)?;
        bed.hosts = hosts(&up)?;
        bed.switch_pid = up["switch"]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        Ok(bed)
    }

    /// The lab's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The IPv4 address of a host.
    pub(crate) fn address(&self, host: &str) -> Result<IpAddr, Error> {
        Ok(self.host(host)?.v4)
    }

    /// The IPv6 address of a host.
    pub(crate) fn address_v6(&self, host: &str) -> Result<IpAddr, Error> {
        let v6 = self.host(host)?.v6;
        Ok(v6.ok_or_else(|| format!("host {host} has no IPv6 address"))?)
    }

    fn host(&self, host: &str) -> Result<&BedHost, Error> {
        let found = self.hosts.iter().find(|known| known.name == host);
        Ok(found.ok_or_else(|| format!("the lab {} has no host {host}", self.name))?)
    }

    /// The process of the switch, which is no child of this one.
    pub(crate) fn switch_pid(&self) -> Option<u32> {
        self.switch_pid
    }

    /// The state of the switch: `switch ctl show`.
    pub(crate) fn show(&self) -> Result<Value, Error> {
        let show = ["switch", "ctl", "--lab", &self.name, "--json", "show"];
        let shown = self.spanwire_here(&show)?.output(SHOW_WITHIN)?;
        Ok(serde_json::from_str(&shown)?)
    }

    /// Changes keys of the switch, each `port.NAME.KEY=VALUE`.
    pub(crate) fn set(&self, changes: &[String]) -> Result<(), Error> {
        let mut set = Command::new(&self.spanwire);
        let done =
            set.args(["switch", "ctl", "--lab", &self.name, "set"]).args(changes).output()?;
        match done.status.success() {
            true => Ok(()),
            false => {
                let why = String::from_utf8_lossy(&done.stderr);
                Err(format!("switch ctl set {}: {}", changes.join(" "), why.trim()).into())
            }
        }
    }

    /// The namespace of a host.
    pub(crate) fn ns(&self, host: &str) -> Result<NetNs, Error> {
        Ok(NetNs::open_named(&format!("{}-{host}", self.name))?)
    }

    /// Starts spanwire on a host.
    pub(crate) fn spanwire(&self, host: &str, args: &[&str]) -> Result<Running, Error> {
        self.start(host, &self.spanwire, args)
    }

    /// Starts spanwire on a host and waits for the first line of its output, at most `time`.
    pub(crate) fn spanwire_until(
        &self,
        host: &str,
        args: &[&str],
        time: Duration,
    ) -> Result<Running, Error> {
        let mut running = self.spanwire(host, args)?;
        running.first_line(time).map(|_| running)
    }

    /// Starts spanwire outside of the lab: commands that reach its switch by the control socket.
    pub(crate) fn spanwire_here(&self, args: &[&str]) -> Result<Running, Error> {
        Running::start(Command::new(&self.spanwire), "here", &self.spanwire, args)
    }

    /// Starts a program on a host.
    pub(crate) fn start(&self, host: &str, path: &Path, args: &[&str]) -> Result<Running, Error> {
        Running::start(self.ns(host)?.command(path)?, host, path, args)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if !self.is_lab {
            return;
        }
        let down =
            Command::new(&self.spanwire).args(["lab", "down", "--name", &self.name]).output();
        if !down.is_ok_and(|done| done.status.success()) {
            eprintln!("the lab remains; remove it with spanwire lab down --name {}", self.name);
        }
    }
}

/// The switch is busy, but reads its control socket in every step.
const SHOW_WITHIN: Duration = Duration::from_secs(10);

/// The hosts in the output of `lab up --json`, with their addresses.
fn hosts(up: &Value) -> Result<Vec<BedHost>, Error> {
    let hosts = up["hosts"].as_array().ok_or("no hosts in the output of lab up")?;
    let host = |host: &Value| {
        let text = |key: &str| {
            let why = || format!("a host without {key} in the output of lab up");
            host[key].as_str().map(str::to_owned).ok_or_else(why)
        };
        let v6 = host["v6"].as_str().map(str::parse).transpose()?;
        Ok(BedHost { name: text("host")?, v4: text("v4")?.parse()?, v6 })
    };
    hosts.iter().map(host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts__have_names_and_addresses() {
        let up = serde_json::json!({"hosts": [{"host": "a", "v4": "10.77.0.1", "v6": "fd77::1"}]});
        let found = hosts(&up).unwrap();
        let [v4, v6] = ["10.77.0.1", "fd77::1"].map(|text| text.parse().unwrap());
        assert_eq!(found, [BedHost { name: "a".to_owned(), v4, v6: Some(v6) }]);
        let why = hosts(&serde_json::json!({"hosts": [{"host": "a"}]})).unwrap_err().to_string();
        assert!(why.contains("v4"), "{why}");
        assert!(hosts(&serde_json::json!({})).is_err());
    }
}
