//! `spanwire pcap` as a command: its output and exit codes, on the captures of another
//! implementation. Needs no privileges.
#![expect(non_snake_case, reason = "tests are named function__case")]

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The one capture with deliberately wrong packets.
const PROBE: &str = "82_probe_req.pcap";

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/rxe")
}

fn spanwire() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spanwire"));
    command.arg("pcap").current_dir(golden());
    command
}

fn run(args: &[&str]) -> (i32, String, String) {
    ended(spanwire().args(args).stdin(Stdio::null()).output().expect("it runs"))
}

fn run_on(input: &[u8], args: &[&str]) -> (i32, String, String) {
    let mut command = spanwire();
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // It may have rejected the input before reading all of it.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("the writer ends with it");
    ended(output)
}

fn ended(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("it prints UTF-8");
    let code = output.status.code().expect("no signal ended it");
    (code, text(output.stdout), text(output.stderr))
}

/// `captures.md`: (file, frames, good, bad), written by another decoder.
fn oracle() -> Vec<(String, u64, u64, u64)> {
    let text = fs::read_to_string(golden().join("captures.md")).expect("captures.md is there");
    let entry = |section: &str| {
        let mut lines = section.lines();
        let name = lines.next().expect("a heading").to_owned();
        let counts = lines.find(|l| l.contains(" good ICRC, ")).expect("a line of counts");
        let n: Vec<u64> =
            counts.split(|c: char| !c.is_ascii_digit()).filter_map(|w| w.parse().ok()).collect();
        (name, n[1], n[2], n[3])
    };
    text.split("\n## ").skip(1).map(entry).collect()
}

#[test]
fn pcap_json__counts_what_the_oracle_counts() {
    let oracle = oracle();
    let mut args = vec!["--json"];
    args.extend(oracle.iter().map(|(name, ..)| name.as_str()));
    let (code, out, err) = run(&args);
    assert_eq!((code, err.as_str()), (1, ""), "the probe has bad packets");
    let lines: Vec<Value> =
        out.lines().map(|l| serde_json::from_str(l).expect("a line of JSON")).collect();
    assert_eq!(lines.len(), oracle.len());
    for ((name, frames, good, bad), got) in oracle.iter().zip(&lines) {
        let on_purpose = u64::from(name == PROBE);
        assert_eq!(got["file"], name.as_str());
        assert_eq!(got["frames"], *frames, "{name}");
        assert_eq!(got["icrc_good"], *good, "{name}");
        assert_eq!(got["icrc_bad"], *bad, "{name}");
        assert_eq!(got["roce_packets"], good + bad, "{name}");
        assert_eq!(got["parse_errors"], on_purpose, "{name}");
        assert_eq!(got["icrc_unchecked"], 0, "{name}");
        assert_eq!(got["other_frames"], frames - good - bad, "{name}");
    }
    assert_eq!(lines.iter().map(|l| l["icrc_good"].as_u64().unwrap()).sum::<u64>(), 1478);
    let probe = lines.iter().find(|l| l["file"] == PROBE).expect("it is listed");
    assert_eq!(probe["parse_error_reasons"]["bad_tver"], 1);
}

#[test]
fn pcap__exit_codes() {
    assert_eq!(run(&["01_send_small.pcap"]).0, 0);
    let (code, out, _) = run(&[PROBE]);
    assert_eq!(code, 1);
    assert_eq!(out.lines().filter(|l| l.contains("icrc BAD (sent 0x")).count(), 1);
    let tver: Vec<_> = out.lines().filter(|l| l.contains("PARSE ERROR bad_tver")).collect();
    assert!(tver.len() == 1 && tver[0].contains(" tver 1 ") && tver[0].contains("icrc good"));
    let (code, out, err) = run(&["--json", "no_such_file", "01_send_small.pcap"]);
    assert_eq!(code, 2);
    assert!(err.starts_with("error: no_such_file: "), "{err}");
    let first: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert!(first["error"].as_str().is_some_and(|e| !e.is_empty()), "{first}");
    assert_eq!(out.lines().count(), 2, "the other file is read nevertheless");
    let (code, _, err) = run(&["captures.md", PROBE]);
    assert_eq!(code, 2, "unreadable takes precedence over bad");
    assert!(err.contains("captures.md: neither pcap nor pcapng"), "{err}");
    assert_eq!(run(&[]).0, 2);
}

#[test]
fn pcap__a_line_for_each_packet() {
    let (code, out, _) = run(&["04_write_mtu1024.pcap"]);
    assert_eq!(code, 0);
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 36 + 1);
    let first = lines[0];
    for part in [
        " 10.77.0.1:",
        " -> 10.77.0.2 ",
        " qp 0x",
        " RC WRITE First ",
        " psn 0x",
        " va 0x",
        " rkey 0x",
        " len 5002 ",
        " payload 1024 ",
        " icrc good",
    ] {
        assert!(first.contains(part), "{part} in {first}");
    }
    let ack = lines.iter().find(|l| l.contains("RC Acknowledge")).expect("an ACK");
    assert!(ack.contains("  ACK msn 1  icrc good"), "{ack}");
    assert!(lines[36].starts_with("77 frames, 36 RoCE packets: ICRC good 36, bad 0;"));

    let all = run(&["--all", "04_write_mtu1024.pcap"]).1;
    assert_eq!(all.lines().count(), 77 + 1);
    assert!(all.contains("not RoCE: TCP, "), "{all}");
}

#[test]
fn pcap__decodes_each_kind_of_packet() {
    for (file, parts) in [
        ("14_send_ud.pcap", &["UD SEND Only ", "  from qp 0x000020 qkey 0x11111111"][..]),
        ("15_send_uc.pcap", &["UC SEND Middle "]),
        ("40_imm.pcap", &[" with Immediate ", "  imm 0x"]),
        ("41_cas_faa.pcap", &["RC CmpSwap ", " compare 0x", " swap 0x", " original 0x"]),
        ("43_solicited_pads.pcap", &[" AckReq SE pad 3 "]),
        ("50_rnr_then_recv.pcap", &["  RNR NAK timer "]),
        ("60_bad_rkey_write.pcap", &["  NAK remote access error msn "]),
        ("70_loss_write_middle.pcap", &["  NAK PSN sequence error msn "]),
        ("30_v6_send.pcap", &[" [fd77::1]:", " -> fd77::2 "]),
    ] {
        let (code, out, err) = run(&[file]);
        assert_eq!((code, err.as_str()), (0, ""), "{file}");
        for part in parts {
            assert!(out.contains(part), "{part} in {file}:\n{out}");
        }
    }
}

#[test]
fn pcap__filters_affect_output_but_not_the_verdict() {
    let (_, out, _) = run(&["18_write_2qp.pcap"]);
    let qp = out.split(" qp ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a qp");
    let (_, some, _) = run(&["--qp", qp, "18_write_2qp.pcap"]);
    let packets = |text: &str| text.lines().filter(|l| l.contains(" psn ")).count();
    assert!(packets(&some) > 0 && packets(&some) < packets(&out), "{some}");
    assert_eq!(some.lines().last(), out.lines().last(), "the same counts");
    assert_eq!(run(&["--qp", "0xffffff", PROBE]).0, 1);

    let (_, table, _) = run(&["--summary", "70_loss_write_middle.pcap"]);
    assert_eq!(packets(&table), 0, "{table}");
    let (_, json, _) = run(&["--summary", "--json", "70_loss_write_middle.pcap"]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let flows = report["flows"].as_array().expect("flows");
    let sum = |name: &str| flows.iter().map(|f| f[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!(flows.len(), 2, "{report}");
    assert!(sum("retransmissions") > 0 && sum("naks") == 1, "{report}");
    assert_eq!(sum("packets"), report["roce_packets"].as_u64().unwrap());
}

#[test]
fn pcap__reads_standard_input() {
    let file = fs::read(golden().join("02_send_multi_mtu1024.pcap")).unwrap();
    let (code, out, _) = run_on(&file, &["--json", "-"]);
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &report["icrc_good"]), (0, &Value::from(36)));
}

#[test]
fn pcap__a_live_capture_is_printed_as_it_arrives() {
    let file = fs::read(golden().join("02_send_multi_mtu1024.pcap")).unwrap();
    let mut child =
        spanwire().arg("-").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    stdin.write_all(&file[..file.len() - 1]).expect("it takes all but a byte");
    // During the capture: standard input stays open.
    let mut out = BufReader::new(child.stdout.take().expect("it is a pipe"));
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    assert!(line.contains("RC SEND First"), "{line}");
    stdin.write_all(&file[file.len() - 1..]).expect("it takes the last byte");
    drop(stdin);
    let last = out.lines().map_while(Result::ok).last().expect("more lines");
    assert!(last.contains("ICRC good 36, bad 0"), "{last}");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn pcap__a_truncated_file_is_reported_after_its_packets() {
    let file = fs::read(golden().join("02_send_multi_mtu1024.pcap")).unwrap();
    let (code, out, err) = run_on(&file[..file.len() - 400], &["-"]);
    assert_eq!(code, 2);
    assert!(err.contains("it ends in the middle of a record"), "{err}");
    assert!(out.lines().last().is_some_and(|l| l.starts_with("6")), "{out}");
    assert!(out.contains("RC SEND First"));
    let (code, out, err) = run_on(&[0x1f, 0x8b, 8, 0], &["-"]);
    assert!(code == 2 && err.contains("zcat") && out.is_empty(), "{err}{out}");
}

#[test]
fn pcap__packets_truncated_by_a_snap_length_are_no_error() {
    let whole = fs::read(golden().join("02_send_multi_mtu1024.pcap")).unwrap();
    let (code, out, _) = run_on(&snapped(&whole, 96), &["--json", "-"]);
    let report: Value = serde_json::from_str(&out).expect("JSON");
    // 30 packets with data, 6 ACKs that fit.
    assert_eq!((code, &report["truncated"]), (0, &Value::from(30)), "{report}");
    assert_eq!((&report["icrc_good"], &report["icrc_unchecked"]), (&6.into(), &30.into()));
    assert_eq!(report["parse_errors"], 0);
    let (_, out, _) = run_on(&snapped(&whole, 96), &["-"]);
    assert!(out.contains("payload 1024  icrc not checked  truncated: 96 of 1082 bytes"), "{out}");
}

/// The classic little-endian capture as a tool with that snap length would have written it.
fn snapped(file: &[u8], snap: usize) -> Vec<u8> {
    let (header, mut rest) = file.split_at(24);
    let mut out = header.to_vec();
    while let Some((record, behind)) = rest.split_first_chunk::<16>() {
        let captured = u32::from_le_bytes(record[8..12].try_into().unwrap());
        let (bytes, behind) = behind.split_at(usize::try_from(captured).unwrap());
        let kept = bytes.len().min(snap);
        out.extend(&record[..8]);
        out.extend(u32::try_from(kept).unwrap().to_le_bytes());
        out.extend(&record[12..]);
        out.extend(&bytes[..kept]);
        rest = behind;
    }
    out
}

#[test]
fn pcap__an_unsupported_link_type_is_an_error() {
    let mut file = fs::read(golden().join("01_send_small.pcap")).unwrap();
    file[20] = 147;
    let (code, _, err) = run_on(&file, &["-"]);
    assert!(code == 2 && err.contains("link type 147"), "{err}");
}

#[test]
fn pcap__an_endless_device_and_a_name_with_control_characters_are_errors() {
    let (code, _, stderr) = run(&["/dev/zero", "no\x1b[2J\nerror: forged"]);
    assert_eq!(code, 2);
    assert_eq!(stderr.lines().count(), 2, "{stderr:?}");
    assert!(!stderr.contains('\x1b') && stderr.contains("no\\u{1b}[2J\\nerror"), "{stderr:?}");
}

#[test]
fn pcap__a_closed_output_pipe_ends_it_quietly() {
    let mut command = spanwire();
    for _ in 0..50 {
        command.arg("82_probe_req.pcap");
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut line = String::new();
    // More than a pipe's capacity is left when the pipe is closed.
    let mut out = BufReader::new(child.stdout.take().expect("it is a pipe"));
    out.read_line(&mut line).expect("a line");
    drop(out);
    let (code, _, err) = ended(child.wait_with_output().expect("it ends"));
    assert_eq!(line, "==> 82_probe_req.pcap <==\n");
    assert!(code <= 1 && err.is_empty(), "{code} {err}");
}

#[test]
fn run__sr_is_read_to_the_end_of_its_headers() {
    let file = "../spanwire/sr.pcap";
    let (code, lines, errors) = run(&[file]);
    assert_eq!((code, &*errors), (1, ""), "nineteen packets are deliberately wrong");
    for part in [
        "SR Data  psn 0xffff00  SEND First psn 0xffffff00 message 0 offset 0 sent",
        "block 0xffffff00 data 0 of 4+2",
        "WRITE Last psn",
        "READ Response First psn",
        "Atomic Response Only psn",
        "FetchAdd Only psn",
        "(gap) 0x",
        "REFUSES 0x",
        "  credit 1 at 100000000 kbit/s suggests ",
        "PARSE ERROR sr_version",
        "PARSE ERROR sr_feature",
        "PARSE ERROR sr_kind",
    ] {
        assert!(lines.contains(part), "no line has {part:?}");
    }
    let (_, json, _) = run(&["--json", "--summary", file]);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(report["parse_errors"], 19, "{report}");
    assert_eq!(report["icrc_bad"], 0);
    let flows = report["flows"].as_array().expect("they were asked for");
    assert_eq!(flows.len(), 4);
    for flow in flows {
        assert!(flow["acks"].as_u64() > Some(0), "{flow}");
        assert!(flow["retransmissions"].as_u64() > Some(0), "{flow}");
    }
    assert!(flows.iter().any(|flow| flow["naks"].as_u64() > Some(0)));
}

/// tcpdump shows these as UDP payloads of 2096, 8320 and 3120 bytes in RC, whose full packets have
/// 1040 bytes and 1056 with a RETH, and of 10800, 4320, 3240 and 2160 in SR with 1080.
#[test]
fn pcap__segments_of_offloaded_sends_are_packets() {
    for (file, frames, segments, of_runs) in
        [("rc_v4.pcap", 6, 16, [2, 8, 3]), ("sr_v6.pcap", 5, 20, [10, 4, 3])]
    {
        let path = format!("../offload/{file}");
        let (code, out, err) = run(&["--json", &path]);
        let report: Value = serde_json::from_str(&out).expect("a line of JSON");
        assert_eq!((code, err.as_str()), (0, ""), "{report}");
        assert_eq!((&report["frames"], &report["icrc_bad"]), (&frames.into(), &0.into()));
        assert_eq!(report["icrc_good"], segments, "{report}");
        assert_eq!(
            (&report["roce_packets"], &report["parse_errors"]),
            (&segments.into(), &0.into())
        );
        let (code, out, _) = run(&[&path]);
        assert_eq!(code, 0);
        for of in of_runs {
            for n in 1..=of {
                let end = format!("icrc good  segment {n} of {of}");
                assert_eq!(out.lines().filter(|l| l.ends_with(&end)).count(), 1, "{end}: {out}");
            }
        }
        assert_eq!(out.lines().count(), segments + 1, "a line for each, and the counts");
    }
}
