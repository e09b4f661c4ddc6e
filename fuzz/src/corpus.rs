//! The seed corpora of the fuzz targets.
//!
//! The parser gets every distinct kind of frame in the captures of Linux rxe (`tests/golden/rxe`),
//! whole and without its outer headers, and SR frames of our own. The others get scenarios whose
//! coverage the tests of their target check. A target writes its own corpus, since another program
//! would need a build of the workspace of its own.

use crate::{agents, parse, port, sequence, side, stream};
use spanwire_tests::pcap::Pcap;
use spanwire_wire::Packet;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// Inputs by name.
type Inputs = Vec<(String, Vec<u8>)>;

/// Writes the corpus of `target` into the folder that the variable `SPANWIRE_CORPUS` names,
/// and ends the process. Without the variable it returns.
///
/// # Panics
/// If the folder cannot be written, or the captures cannot be read.
pub fn write_if_requested(target: &str) {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let written = write(target, Path::new(&folder));
    written.unwrap_or_else(|e| panic!("cannot write the corpus of {target}: {e}"));
    std::process::exit(0);
}

fn write(target: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let inputs = match target {
        "parse" => [parse_inputs()?, parse::sr_seeds()].concat(),
        "sequence" => sequence::seeds(),
        "stream" => stream::seeds(),
        "side" => side::seeds(),
        "agents" => agents::seeds(),
        "port" => port::seeds(),
        other => panic!("no target {other}"),
    };
    fs::create_dir_all(folder)?;
    for (name, bytes) in inputs {
        fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}

/// One frame for each opcode, IP version and pad length, and one of each kind of NAK.
fn parse_inputs() -> Result<Inputs, Box<dyn Error>> {
    let captures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/rxe");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(captures)?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    paths.retain(|p| p.extension().is_some_and(|e| e == "pcap"));
    paths.sort();
    let mut kinds = BTreeMap::new();
    for path in paths {
        let file = fs::read(&path)?;
        for frame in Pcap::new(&file)?.frames() {
            let frame = frame?.bytes;
            let kind = match Packet::parse(frame) {
                Ok(p) => format!(
                    "{}-v{}-pad{}",
                    p.bth.opcode.props().name,
                    if p.ip.src().is_ipv4() { 4 } else { 6 },
                    p.bth.pad
                ),
                Err(reason) => reason.name().to_owned(),
            };
            kinds.entry(kind).or_insert_with(|| frame.to_vec());
        }
    }
    let mut inputs = Vec::new();
    for (kind, frame) in kinds {
        if let Ok(p) = Packet::parse(&frame) {
            let outside = 14 + p.ip.header_len() + 8;
            let inside = frame[outside..frame.len() - 4].to_vec();
            inputs.push((format!("inside-{kind}"), inside));
        }
        inputs.push((kind, frame));
    }
    Ok(inputs)
}

/// The folder that receives the corpus (fuzz/run).
const FOLDER: &str = "SPANWIRE_CORPUS";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write__each_target_has_a_corpus() {
        let name = format!("spanwire-corpus-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        for target in ["parse", "sequence", "stream", "side", "agents", "port"] {
            let folder = folder.join(target);
            write(target, &folder).expect("writable");
            let files = fs::read_dir(&folder).expect("made").count();
            assert!(files >= 3, "{target}: {files}");
        }
        fs::remove_dir_all(&folder).expect("ours");
    }
}
