//! The gap in a copy over four paths, one of which dies.

use super::stage::{Fault, Stage, name, number};
use crate::bed::{Bed, Folder, Running, wait_for_listener};
use crate::sample::Error;
use crate::untuned::{LINKS, Line, four_paths};
use serde_json::Value;
use socket2::SockRef;
use spanwire_base::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The longest time between two chunks at the receiver, less the median, in milliseconds. The
/// busiest link fails after a third of the copy.
pub(super) fn dying_path(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let (bed, paths) = four_paths(stage.command(), &name(), Line::new(1000, 5_000))?;
    let mib = if stage.is_quick() { 32 } else { 48 };
    let copy = Copy { stage, bed: &bed, sockets: ["sa", "sb"].map(|part| paths.socket(part)) };
    let received = copy.run(mib)?;
    Ok(vec![number(&received, "/gaps/longest_ms")? - number(&received, "/gaps/median_ms")?])
}

/// Frames sent on each link, by name.
type Frames = BTreeMap<String, u64>;

struct Copy<'a> {
    stage: &'a Stage<'a>,
    bed: &'a Bed,
    /// Of the switches beside a and b.
    sockets: [PathBuf; 2],
}

impl Copy<'_> {
    /// Copies `mib` MiB from a to b; the report of the receiver.
    fn run(&self, mib: usize) -> Result<Value, Error> {
        let folder = Folder::new(&name())?;
        let (from, into) = (folder.join("file"), folder.join("into"));
        let mut bytes = vec![0; mib << 20];
        Rng::new(7).fill(&mut bytes);
        std::fs::write(&from, &bytes)?;
        std::fs::create_dir(&into)?;
        let to = self.bed.address("b")?.to_string();
        // The receiver also sends: on one path its credits would be lost with it.
        let common: Vec<&str> = COMMON.split(' ').collect();
        let receive = ["copy", "receive", "--into", &into, "--once"];
        // The side connection is TCP with one path, which must not fail.
        let spared = self.links_of_tcp()?;
        let receiver = self.bed.spanwire("b", &[&receive[..], &common].concat())?;
        // With `--json` it prints nothing before.
        let limit = self.stage.within(RECEIVER_WITHIN);
        wait_for_listener(&self.bed.ns("b")?, COPY_PORT, limit)?;
        let send = ["copy", "send", &from, &to];
        let sender = self.bed.spanwire("a", &[&send[..], &common].concat())?;
        let took = Duration::from_secs_f64(mib as f64 * MIB_BITS / RATE_BPS);
        self.stage.sleep(took / 3);
        let frames = self.frames(0)?;
        let victims = frames.iter().filter(|(link, _)| !spared.contains(*link));
        let victim = victims.max_by_key(|(_, n)| **n).ok_or("no link is left to fail")?.0;
        for end in 0..2 {
            self.ctl(end, &["set", &format!("port.{victim}.loss=100%")])?;
        }
        self.stage.report(sender)?;
        let received = self.stage.report(receiver)?;
        match std::fs::read(folder.join("into/file"))? == bytes {
            true => Ok(received),
            false => Err(Fault::WrongData("the copy differs".to_owned()).into()),
        }
    }

    fn ctl(&self, end: usize, args: &[&str]) -> Result<Value, Error> {
        let socket = self.sockets[end].to_string_lossy();
        let at = ["switch", "ctl", "--socket", &socket, "--json"];
        let running: Running = self.bed.spanwire_here(&[&at[..], args].concat())?;
        Ok(serde_json::from_str(&running.output(self.stage.within(CTL_WITHIN))?)?)
    }

    fn frames(&self, end: usize) -> Result<Frames, Error> {
        let shown = self.ctl(end, &["show"])?;
        let link = |n: u32| {
            let count = number(&shown, &format!("/ports/{n}/line_counters/frames"))?;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count of frames"
            )]
            Ok((format!("l{n}"), count as u64))
        };
        (1..=LINKS).map(link).collect()
    }

    /// The links of a TCP connection from a's only port to the receiver's, in both directions.
    fn links_of_tcp(&self) -> Result<BTreeSet<String>, Error> {
        let range = format!("{TCP_PORT} {TCP_PORT}");
        let narrow = || std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", &range);
        self.bed.ns("a")?.run(narrow)??;
        let before = [self.frames(0)?, self.frames(1)?];
        let at = SocketAddr::new(self.bed.address("b")?, COPY_PORT);
        let [mut near, mut far] = self.stage.connect(self.bed, at, SILENCE)?;
        let mut byte = [0];
        for _ in 0..50 {
            near.write_all(&byte).and_then(|()| far.read_exact(&mut byte))?;
            far.write_all(&byte).and_then(|()| near.read_exact(&mut byte))?;
        }
        // Reset, to avoid TIME_WAIT on the port.
        SockRef::from(&near).set_linger(Some(Duration::ZERO))?;
        drop(near);
        let after = [self.frames(0)?, self.frames(1)?];
        Ok((0..2).filter_map(|end| busiest(&before[end], &after[end])).collect())
    }
}

/// The link with most new frames.
fn busiest(before: &Frames, after: &Frames) -> Option<String> {
    let new = |(link, n): &(&String, &u64)| **n - before.get(*link).copied().unwrap_or(0);
    Some(after.iter().max_by_key(new)?.0.clone())
}

/// A rate that four processes on two cores carry easily.
const COMMON: &str = "--dev sw0 --json --cc fixed --cc-set rate_mbps=120 --ec 8,2 --lb unolb";
const RATE_BPS: f64 = 120e6;
const MIB_BITS: f64 = 8.0 * 1024.0 * 1024.0;
/// a's port of every TCP connection, so that its links are known before it is made.
const TCP_PORT: u16 = 40_000;
const COPY_PORT: u16 = 18_517;
const SILENCE: Duration = Duration::from_secs(5);
const CTL_WITHIN: Duration = Duration::from_secs(10);
const RECEIVER_WITHIN: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busiest__by_new_frames() {
        let frames = |counts: [u64; 3]| -> Frames {
            (1..).zip(counts).map(|(n, count)| (format!("l{n}"), count)).collect()
        };
        let link = busiest(&frames([90, 5, 0]), &frames([95, 60, 3]));
        assert_eq!(link.as_deref(), Some("l2"));
        assert_eq!(busiest(&Frames::new(), &Frames::new()), None);
    }
}
