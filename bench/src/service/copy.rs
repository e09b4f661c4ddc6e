//! `spanwire copy` from one file in memory to another.

use super::task::SILENCE;
use crate::bed::{Folder, MEMORY, Running, report};
use crate::sample::Error;
use rustix::fs::statfs;
use spanwire_io::net::TwoHosts;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

/// The file that is copied, and its copy, in memory.
pub(super) struct Source(Folder);

impl Source {
    /// Writes a file of `bytes`, whole MiB.
    pub(super) fn new(bytes: u64) -> Result<Self, Error> {
        let kind = statfs(MEMORY).map_err(|e| format!("{MEMORY}: {e}"))?.f_type;
        if u64::try_from(kind) != Ok(TMPFS_MAGIC) {
            return Err(format!("{MEMORY} is no tmpfs").into());
        }
        let folder = Self(Folder::new(&format!("sws{}", std::process::id()))?);
        fs::create_dir(folder.0.join("into"))?;
        let mut file = File::create(folder.source())?;
        let mut chunk = vec![0; CHUNK_BYTES];
        for number in 0..bytes / CHUNK_BYTES as u64 {
            super::content::fill_request(number, &mut chunk);
            file.write_all(&chunk)?;
        }
        Ok(folder)
    }

    fn source(&self) -> String {
        self.0.join("data")
    }

    fn copied(&self) -> String {
        self.0.join("into/data")
    }

    /// Copies from host a to host b; 10^9 bits a second.
    pub(super) fn copy(&self, spanwire: &Path, hosts: &TwoHosts) -> Result<f64, Error> {
        let [from, into] = [self.source(), self.0.join("into")];
        let receive = ["copy", "receive", "--dev", &hosts.b.ifname, "--into", &into, "--overwrite"];
        let mut receiver = Running::start(hosts.b.ns.command(spanwire)?, "b", spanwire, &receive)?;
        receiver.first_line(SILENCE)?;
        let to = hosts.b.v4.to_string();
        let send = ["copy", "send", &from, &to, "--dev", &hosts.a.ifname, "--json"];
        let sender = Running::start(hosts.a.ns.command(spanwire)?, "a", spanwire, &send)?;
        let report = report(&sender.output(COPY_WITHIN)?).map_err(|e| format!("copy send: {e}"))?;
        self.verify()?;
        fs::remove_file(self.copied())?;
        Ok(report["gbps"].as_f64().ok_or("copy send: no gbps in its report")?)
    }

    fn verify(&self) -> Result<(), Error> {
        let [mut source, mut copied] = [File::open(self.source())?, File::open(self.copied())?];
        if source.metadata()?.len() != copied.metadata()?.len() {
            return Err("the copy has another length".into());
        }
        let [mut expected, mut found] = [vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]];
        loop {
            let bytes = source.read(&mut expected)?;
            if bytes == 0 {
                return Ok(());
            }
            copied.read_exact(&mut found[..bytes])?;
            if expected[..bytes] != found[..bytes] {
                return Err("the copy has other bytes".into());
            }
        }
    }
}

/// `TMPFS_MAGIC` of `linux/magic.h`.
const TMPFS_MAGIC: u64 = 0x0102_1994;
const CHUNK_BYTES: usize = 1 << 20;
/// 4 GiB at a hundredth of the usual rate.
const COPY_WITHIN: Duration = Duration::from_secs(3000);
