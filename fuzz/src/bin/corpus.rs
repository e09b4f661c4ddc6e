//! Writes the seed corpus of a fuzz target: `corpus parse|sequence|stream|side|agents FOLDER`.
//!
//! The parser gets every distinct kind of frame in the captures of Linux rxe (`tests/golden/rxe`),
//! whole and without its outer headers, and SR frames of our own. The queue pair gets scenarios
//! whose coverage the tests of its target check.

use spanwire_fuzz::{agents, parse, sequence, side, stream};
use spanwire_tests::pcap::Pcap;
use spanwire_wire::Packet;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// Inputs by name.
type Inputs = Vec<(String, Vec<u8>)>;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [target, folder] = &args[..] else {
        return Err("usage: corpus parse|sequence|stream|side|agents FOLDER".into());
    };
    let inputs = match &**target {
        "parse" => [parse_inputs()?, parse::sr_seeds()].concat(),
        "sequence" => sequence::seeds(),
        "stream" => stream::seeds(),
        "side" => side::seeds(),
        "agents" => agents::seeds(),
        other => {
            return Err(
                format!("no target {other}: parse, sequence, stream, side or agents").into()
            );
        }
    };
    fs::create_dir_all(folder)?;
    for (name, bytes) in inputs {
        fs::write(Path::new(folder).join(name), bytes)?;
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
