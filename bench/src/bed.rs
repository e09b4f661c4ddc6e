//! A test bed: a lab of hosts, joined by a cable or by a switch whose links change between samples.

mod frame;
mod goodput;
mod perf;
mod process;
mod tcp;

pub(crate) use frame::Frame;
pub(crate) use goodput::Goodput;
#[cfg(test)]
pub(crate) use goodput::Interval;
pub(crate) use perf::{CONNECT_WITHIN, parse as parse_perf};
pub(crate) use process::Running;
pub(crate) use tcp::transfer as tcp_transfer;

use crate::sample::Error;
use serde_json::Value;
use spanwire_io::net::NetNs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A lab, which is removed when dropped.
pub(crate) struct Bed {
    spanwire: PathBuf,
    name: String,
    hosts: Vec<(String, IpAddr)>,
    /// `spanwire lab` made it, and removes it.
    is_lab: bool,
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
        let hosts = hosts.iter().map(|(host, address)| ((*host).to_owned(), *address)).collect();
        Self { spanwire: spanwire.to_owned(), name: name.to_owned(), hosts, is_lab: false }
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
        bed.hosts = hosts(&serde_json::from_slice(&up.stdout)?)?;
        Ok(bed)
    }

    /// The lab's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The address of a host.
    pub(crate) fn address(&self, host: &str) -> Result<IpAddr, Error> {
        let found = self.hosts.iter().find(|(name, _)| name == host);
        Ok(found.ok_or_else(|| format!("the lab {} has no host {host}", self.name))?.1)
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

/// The hosts in the output of `lab up --json`, with their addresses.
fn hosts(up: &Value) -> Result<Vec<(String, IpAddr)>, Error> {
    let hosts = up["hosts"].as_array().ok_or("no hosts in the output of lab up")?;
    let host = |host: &Value| {
        let text = |key: &str| {
            let why = || format!("a host without {key} in the output of lab up");
            host[key].as_str().map(str::to_owned).ok_or_else(why)
        };
        Ok((text("host")?, text("v4")?.parse()?))
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
        assert_eq!(found, [("a".to_owned(), "10.77.0.1".parse().unwrap())]);
        let why = hosts(&serde_json::json!({"hosts": [{"host": "a"}]})).unwrap_err().to_string();
        assert!(why.contains("v4"), "{why}");
        assert!(hosts(&serde_json::json!({})).is_err());
    }
}
