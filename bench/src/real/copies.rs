//! Copies under loss.

use super::stage::{Fault, Stage, name, number};
use crate::bed::{Bed, Folder};
use crate::sample::Error;
use spanwire_base::Rng;

/// The rate of a copy in SR over that in RC, with 1 % loss at both ends.
pub(super) fn modes(stage: &Stage<'_>) -> Result<Vec<f64>, Error> {
    let bed = stage.cable()?;
    let folder = Folder::new(&name())?;
    let mut bytes = vec![0; if stage.is_quick() { 32 << 20 } else { 64 << 20 }];
    Rng::new(11).fill(&mut bytes);
    std::fs::write(folder.join("big"), &bytes)?;
    std::fs::create_dir(folder.join("into"))?;
    let into = folder.join("into");
    let receive = ["copy", "receive", "--dev", "sw0", "--into", &into, "--overwrite"];
    let lossy = ["--loss", "1", "--seed", "7"];
    let _receiver = stage.start_until(&bed, "a", &[&receive[..], &lossy].concat())?;
    let rc = copy(stage, &bed, &folder, "rc", &bytes)?;
    let sr = copy(stage, &bed, &folder, "sr", &bytes)?;
    Ok(vec![sr / rc])
}

/// The rate of one copy.
fn copy(
    stage: &Stage<'_>,
    bed: &Bed,
    folder: &Folder,
    mode: &str,
    bytes: &[u8],
) -> Result<f64, Error> {
    let (from, to) = (folder.join("big"), bed.address("a")?.to_string());
    let send = ["copy", "send", &from, &to, "--json", "--mode", mode, "--loss", "1", "--seed", "8"];
    let report = stage.report(bed.spanwire("b", &send)?)?;
    let copied = folder.join("into/big");
    if std::fs::read(&copied)? != bytes {
        return Err(Fault::WrongData(format!("the copy in {mode} differs")).into());
    }
    std::fs::remove_file(copied)?;
    number(&report, "/gbps")
}
