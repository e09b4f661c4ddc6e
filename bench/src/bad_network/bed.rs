//! The test bed: two hosts around a switch, whose links change between samples.

use super::{Conditions, Plan};
use crate::sample::Error;
use serde_json::Value;
use spanwire_io::net::NetNs;
use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A lab, which is removed when dropped.
pub(super) struct Bed {
    spanwire: PathBuf,
    name: String,
    /// Host a's address.
    pub(super) a: IpAddr,
}

/// A process that is killed when dropped.
pub(super) struct Running(Child);

impl Bed {
    pub(super) fn new(plan: &Plan) -> Result<Self, Error> {
        let name = format!("bad{}", std::process::id());
        let file = std::env::temp_dir().join(format!("{name}.toml"));
        std::fs::write(&file, config(plan.rate_bps))?;
        let up = Command::new(&plan.spanwire)
            .args(["lab", "up", "--name", &name, "--json", "--switch"])
            .arg(&file)
            .output()
            .map_err(|e| {
                let path = plan.spanwire.display();
                format!("{path}: {e}; cargo build --release builds it, --spanwire sets its path")
            })?;
        std::fs::remove_file(&file)?;
        if !up.status.success() {
            return Err(String::from_utf8_lossy(&up.stderr).into_owned().into());
        }
        let up: Value = serde_json::from_slice(&up.stdout)?;
        let a =
            up["hosts"][0]["v4"].as_str().ok_or("no address in the output of lab up")?.parse()?;
        Ok(Self { spanwire: plan.spanwire.clone(), name, a })
    }

    /// Configures the links for `conditions`.
    pub(super) fn set(&self, conditions: Conditions) -> Result<(), Error> {
        let Conditions { loss_percent, rtt_us } = conditions;
        let mut set = Command::new(&self.spanwire);
        set.args(["switch", "ctl", "--lab", &self.name, "set"]);
        for port in ["a", "b"] {
            // Each direction has half of the round trip.
            set.arg(format!("port.{port}.delay={}us", rtt_us / 2));
            set.arg(format!("port.{port}.loss={}ppm", (loss_percent * 1e4).round()));
        }
        let done = set.output()?;
        match done.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&done.stderr).into_owned().into()),
        }
    }

    /// A host's namespace.
    pub(super) fn ns(&self, host: &str) -> Result<NetNs, Error> {
        Ok(NetNs::open_named(&format!("{}-{host}", self.name))?)
    }

    /// Starts spanwire on a host.
    pub(super) fn spanwire(&self, host: &str, args: &[&str]) -> Result<Running, Error> {
        self.start(host, &self.spanwire, args)
    }

    /// Starts a program on a host.
    pub(super) fn start(&self, host: &str, path: &Path, args: &[&str]) -> Result<Running, Error> {
        let mut command = self.ns(host)?.command(path)?;
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Running(child))
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let down =
            Command::new(&self.spanwire).args(["lab", "down", "--name", &self.name]).output();
        if !down.is_ok_and(|done| done.status.success()) {
            eprintln!("the lab remains; remove it with spanwire lab down --name {}", self.name);
        }
    }
}

impl Running {
    /// Waits for its first line.
    pub(super) fn first_line(&mut self) -> Result<String, Error> {
        let stdout = self.0.stdout.as_mut().ok_or("its output was read already")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        Ok(line)
    }

    /// Waits for its exit, at most `time`; returns its output if it succeeded.
    pub(super) fn output(mut self, time: Duration) -> Result<String, Error> {
        let deadline = Instant::now() + time;
        let status = loop {
            match self.0.try_wait()? {
                Some(status) => break status,
                None if Instant::now() >= deadline => {
                    return Err(format!("no exit after {time:?}").into());
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let (mut out, mut err) = (String::new(), String::new());
        // A few lines each: both fit their pipes without a reader.
        self.0.stdout.as_mut().ok_or("piped")?.read_to_string(&mut out)?;
        self.0.stderr.as_mut().ok_or("piped")?.read_to_string(&mut err)?;
        match status.success() || !out.is_empty() {
            true => Ok(out),
            false => Err(err.trim().to_owned().into()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A process that has ended cannot be killed, which is no error.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A queue of 1 MB: twice the product of rate and delay at 40 ms and 100 Mbit/s, so that only the
/// emulated loss drops frames.
fn config(rate_bps: u64) -> String {
    let port =
        |name| format!("[port.{name}]\nrate = \"{rate_bps}bit\"\nqueue.limit_bytes = \"1MB\"\n");
    format!("seed = 1\n{}{}", port("a"), port("b"))
}
