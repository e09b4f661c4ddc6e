//! The Wireshark dissector of SR (`docs/wireshark/spanwire_sr.lua`), run by tshark on a capture of
//! our engine. Every field must equal our own parser's, every drop must have an expert info, and
//! there must be no Lua error.
//!
//! `SPANWIRE_BLESS=1 cargo test -p spanwire-tests --test dissector` regenerates the capture.
#![cfg_attr(test, expect(non_snake_case, reason = "tests are named function__case"))]

mod fields;
mod scene;

use fields::{Columns, expected};
use spanwire_tests::pcap::Pcap;
use spanwire_wire::IntFormat;
use std::path::{Path, PathBuf};
use std::process::Command;

fn path(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(of)
}

/// Runs the script on a capture and compares every packet of it. Returns false without tshark.
fn check(capture: &Path) -> bool {
    let columns = Columns::all();
    let mut command = Command::new("tshark");
    let script = format!("lua_script:{}", path("docs/wireshark/spanwire_sr.lua").display());
    command.args(["-n", "-X", &script, "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,"]);
    for name in columns.names() {
        command.args(["-e", name]);
    }
    let Ok(run) = command.arg("-r").arg(capture).output() else {
        eprintln!("SKIPPED: no tshark to run the dissector in");
        return false;
    };
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    assert!(!said.to_lowercase().contains("lua"), "{said}");
    let file = std::fs::read(capture).expect("it was just written, or is part of the tree");
    let frames = Pcap::new(&file).expect("a capture").frames().map(|f| f.expect("whole").bytes);
    let frames: Vec<&[u8]> = frames.collect();
    let lines = String::from_utf8(run.stdout).expect("numbers and our own text");
    assert_eq!(lines.lines().count(), frames.len());
    for derived in fields::DERIVED {
        let count = lines.lines().filter(|line| !columns.read(line)[derived].is_empty()).count();
        assert!(count > 5, "{derived} occurs {count} times");
    }
    for (i, (line, frame)) in lines.lines().zip(frames).enumerate() {
        let got = columns.read(line);
        for (name, want) in expected(frame) {
            let got = got.get(name).map(String::as_str).unwrap_or_default();
            assert_eq!(got, want, "{name} of frame {} in {}", i + 1, capture.display());
        }
    }
    true
}

#[test]
fn script__agrees_with_the_parser_on_the_golden_capture() {
    let golden = path("tests/golden/spanwire/sr.pcap");
    if std::env::var_os("SPANWIRE_BLESS").is_some() {
        std::fs::write(&golden, scene::capture(IntFormat::Full)).expect("the tree can be written");
    }
    check(&golden);
}

/// Refactoring must not change a byte on the wire, in either mode.
#[test]
fn capture__equals_the_golden_one() {
    let rc = path("tests/golden/spanwire/rc.pcap");
    if std::env::var_os("SPANWIRE_BLESS").is_some() {
        std::fs::write(&rc, scene::capture_rc()).expect("the tree can be written");
    }
    let sr = path("tests/golden/spanwire/sr.pcap");
    for (file, sent) in [(sr, scene::capture(IntFormat::Full)), (rc, scene::capture_rc())] {
        let golden = std::fs::read(&file).expect("part of the tree");
        let differs = "bless it if what the engine sends was meant to change";
        assert!(sent == golden, "{}: not what the engine sends: {differs}", file.display());
    }
}

/// The script must also dissect the engine's present packets.
#[test]
fn script__agrees_with_the_parser_on_present_packets() {
    for format in IntFormat::ALL {
        let name = format!("spanwire-dissector-{}-{format:?}.pcap", std::process::id());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, scene::capture(format)).expect("a temporary file");
        check(&file);
        std::fs::remove_file(&file).expect("it was just written");
    }
}

#[test]
fn capture__has_every_field_of_the_dissector() {
    let golden = std::fs::read(path("tests/golden/spanwire/sr.pcap")).expect("part of the tree");
    for (bytes, present) in [
        (golden, fields::PRESENT),
        (scene::capture(IntFormat::Full), fields::PRESENT),
        (scene::capture(IntFormat::Compact), fields::PRESENT_COMPACT),
    ] {
        let pcap = Pcap::new(&bytes).expect("a capture");
        let frames: Vec<Vec<u8>> =
            pcap.frames().map(|f| f.expect("whole").bytes.to_vec()).collect();
        let mut seen = std::collections::BTreeMap::<&str, u32>::new();
        for frame in &frames {
            for (name, value) in expected(frame) {
                *seen.entry(name).or_default() += u32::from(!value.is_empty() && value != "0");
            }
        }
        for name in present {
            assert!(seen.get(name).is_some_and(|n| *n > 0), "no packet has {name}");
        }
    }
}
