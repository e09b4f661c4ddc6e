//! The time until an end reports that the other has failed.

use super::stage::{Stage, name, number};
use crate::bed::{Bed, Folder, Running};
use crate::sample::Error;
use spanwire_base::Rng;
use spanwire_io::net::Netlink;
use std::time::{Duration, Instant};

/// Seconds from the end of a killed `perf server` to that of its client, in RC and SR.
pub(super) fn killed_server(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let bed = stage.cable()?;
    let mut seconds = Vec::new();
    for mode in ["rc", "sr"] {
        let server = stage.server(&bed, "a", &[])?;
        let args = ["--seconds", "60", "--mode", mode];
        let mut client = stage.start_client(&bed, "b", bed.address("a")?, &args)?;
        stage.sleep(Duration::from_millis(800));
        server.kill();
        let killed = Instant::now();
        client.exit(stage.within(END_WITHIN))?;
        seconds.push(killed.elapsed().as_secs_f64());
        let report: serde_json::Value = serde_json::from_str(&client.output(END_WITHIN)?)?;
        if number(&report, "/perf/0/messages")? < 1.0 {
            return Err("the server was killed before the client's first message".into());
        }
    }
    Ok(seconds)
}

/// Seconds from the end of a killed receiver of a copy to that of the sender.
pub(super) fn killed_receiver(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let copy = Copy::start(stage, &[])?;
    copy.receiver.kill();
    let killed = Instant::now();
    let mut sender = copy.sender;
    sender.exit(stage.within(END_WITHIN))?;
    Ok(vec![killed.elapsed().as_secs_f64()])
}

/// Seconds from the failure of the link to the end of both ends of a copy.
pub(super) fn failed_link(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let copy = Copy::start(stage, &["--once"])?;
    Netlink::open_in(&copy.bed.ns("b")?)?.set_down("sw0")?;
    let failed = Instant::now();
    for mut end in [copy.sender, copy.receiver] {
        end.exit(stage.within(END_WITHIN))?;
    }
    Ok(vec![failed.elapsed().as_secs_f64()])
}

/// A copy of which a megabyte has arrived. It takes several seconds.
struct Copy {
    sender: Running,
    receiver: Running,
    bed: Bed,
    _folder: Folder,
}

impl Copy {
    fn start(stage: &Stage<'_>, more: &[&str]) -> Result<Self, Error> {
        let bed = stage.cable()?;
        let folder = Folder::new(&name())?;
        let mut bytes = vec![0; FILE_BYTES];
        Rng::new(4).fill(&mut bytes);
        std::fs::write(folder.join("big"), &bytes)?;
        std::fs::create_dir(folder.join("into"))?;
        let (from, into) = (folder.join("big"), folder.join("into"));
        let receive = ["copy", "receive", "--dev", "sw0", "--into", &into];
        let receiver = stage.start_until(&bed, "a", &[&receive[..], more].concat())?;
        let to = bed.address("a")?.to_string();
        // So slow that the copy is not complete before the failure, on any machine.
        let slow = ["--cc", "fixed", "--cc-set", "rate_mbps=100"];
        let sender = bed.spanwire("b", &[&["copy", "send", &from, &to][..], &slow].concat())?;
        wait_for_bytes(stage, &folder.join("into/.big.spanwire-partial"))?;
        Ok(Self { sender, receiver, bed, _folder: folder })
    }
}

/// Waits until a megabyte of the partial file has arrived.
fn wait_for_bytes(stage: &Stage<'_>, partial: &str) -> Result<(), Error> {
    let deadline = Instant::now() + stage.within(ARRIVE_WITHIN);
    while std::fs::metadata(partial).map_or(0, |file| file.len()) < 1 << 20 {
        if Instant::now() > deadline {
            return Err("nothing arrives".into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// More than 5 s at the copy's rate.
const FILE_BYTES: usize = 64 << 20;
const ARRIVE_WITHIN: Duration = Duration::from_secs(30);
/// Far beyond the bars, so that a value above them is reported.
const END_WITHIN: Duration = Duration::from_secs(60);
