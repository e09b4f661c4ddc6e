//! End to end: two processes in two network namespaces, AF_XDP on a veth pair between them, real
//! bytes, verified.
//!
//! Needs root (namespaces, BPF). Without it every test prints `SKIPPED: ...`; with
//! `SPANWIRE_REQUIRE_E2E=1` that is a failure.
#![expect(non_snake_case, reason = "tests are named function__case")]

mod addresses;
mod agents;
mod bystanders;
mod cc;
mod copy;
mod ecn;
mod exit;
mod hostile;
mod lab;
mod modes;
mod output;
mod path_mtu;
mod paths;
mod perf;
mod perftest;
mod removed;
mod strangers;
mod switch;
mod udp;
mod usage;
mod workers;

use lab::{Alone, Lab, Outcome};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;

/// Bytes of a large transfer, which both ends hash within the time for which the other waits.
const LARGE: u64 = 256 << 20;

/// A transfer whose every byte is compared by hash at both ends.
fn transfer(lab: &Lab, to: IpAddr, bytes: u64, more: &[&str]) -> Value {
    let server = lab.server(&[]);
    let bytes_text = bytes.to_string();
    let mut args = vec!["--transfer", &bytes_text, "--json"];
    args.extend_from_slice(more);
    let outcome = lab.client(to, &args);
    let report = outcome.json();
    assert_eq!(report["ok"], true, "{report}");
    assert_eq!(report["fabric"], "af_xdp");
    assert_eq!(report["transfer"]["bytes"], bytes);
    assert_eq!(report["transfer"]["sha256_match"], true);
    assert!(outcome.success);
    server.terminate();
    report
}

#[test]
fn transfer__256_mib_at_mtu_1500_over_ipv4_and_ipv6() {
    let Some(lab) = Lab::new(1500) else { return };
    for (to, mode, packet) in [(lab.v4(), "rc", 1024), (lab.v6(), "sr", 1388)] {
        let report = transfer(&lab, to, LARGE, &["--size", "1M", "--mode", mode]);
        assert_eq!((&report["mode"], &report["segment_bytes"]), (&mode.into(), &packet.into()));
    }
}

#[test]
fn transfer__256_mib_in_the_largest_single_buffer_frames_over_ipv4_and_ipv6() {
    // 3506 is the largest MTU at which veth keeps every frame in one buffer.
    let Some(lab) = Lab::new(3506) else { return };
    for (to, mode, packet) in [(lab.v4(), "sr", 3412), (lab.v6(), "rc", 2048)] {
        let report = transfer(&lab, to, LARGE, &["--size", "1M", "--mode", mode]);
        assert_eq!((&report["mode"], &report["segment_bytes"]), (&mode.into(), &packet.into()));
    }
}

#[test]
fn transfer__sr_packets_that_fill_a_chunk_on_a_jumbo_interface() {
    // A chunk has room for 3840 bytes of frame: 14 of Ethernet and 92 or 112 of other headers.
    let Some(lab) = Lab::new(9000) else { return };
    for (to, packet) in [(lab.v4(), 3732), (lab.v6(), 3712)] {
        let report = transfer(&lab, to, LARGE, &["--size", "1M", "--mode", "sr"]);
        assert_eq!(report["segment_bytes"], packet);
    }
}

#[test]
fn transfer__by_every_operation_with_an_odd_length() {
    let Some(lab) = Lab::new(1500) else { return };
    for mode in ["rc", "sr"] {
        for op in ["send", "write", "read"] {
            let args = ["--op", op, "--size", "77777", "--mode", mode];
            transfer(&lab, lab.v4(), 33_333_333, &args);
        }
    }
}

#[test]
fn transfer__64_queue_pairs_at_once() {
    let Some(lab) = Lab::new(1500) else { return };
    for mode in ["rc", "sr"] {
        for op in ["send", "write", "read"] {
            let args = ["--op", op, "--qps", "64", "--size", "128K", "--depth", "4"];
            let args = [&args[..], &["--mode", mode]].concat();
            let report = transfer(&lab, lab.v4(), 128 << 20, &args);
            assert_eq!(report["transfer"]["qps"], 64);
        }
    }
}

#[test]
fn transfer__every_byte_is_right_under_loss_duplication_and_reordering() {
    let Some(lab) = Lab::new(1500) else { return };
    let faults = ["--loss", "1", "--dup", "1", "--reorder", "1"];
    let ops = [("send", "3"), ("write", "4"), ("read", "5")];
    for ((op, seed), mode) in ops.into_iter().flat_map(|op| [(op, "rc"), (op, "sr")]) {
        let server = lab.server(&[&faults[..], &["--seed", seed]].concat());
        let more = ["--transfer", "64M", "--op", op, "--seed", seed, "--json"];
        let more = [&more[..], &["--mode", mode]].concat();
        let outcome = lab.client(lab.v4(), &[&more[..], &faults[..]].concat());
        let report = outcome.json();
        assert_eq!(report["ok"], true, "{report}");
        assert_eq!(report["transfer"]["sha256_match"], true);
        let counters = &report["counters"];
        for fault in ["fault_lost", "fault_duplicated", "fault_reordered"] {
            assert!(counters[fault].as_u64() > Some(0), "no {fault} in {counters}");
        }
        assert!(counters["retransmitted_packets"].as_u64() > Some(0), "{counters}");
        server.terminate();
    }
}

/// `sim::soak` has a minute of it, in virtual time.
#[test]
fn sr__transfers_at_30_percent_loss_are_correct_in_bounded_memory() {
    const ROUNDS: u32 = 4;
    let Some(lab) = Lab::new(1500) else { return };
    // Retries for half a minute: besides the losses, a process may get no processor for a while.
    let loss = ["--loss", "30", "--mode", "sr"];
    let patient = [&loss[..], &["--timeout", "18", "--json"]].concat();
    let server = lab.server(&loss);
    let mut peak_kib = 0;
    for round in 0..ROUNDS {
        for op in ["write", "read", "send"] {
            let seed = round.to_string();
            let args = ["--transfer", "16M", "--op", op, "--seed", &seed];
            let report = lab.client(lab.v4(), &[&args[..], &patient].concat()).json();
            assert_eq!((&report["ok"], &report["mode"]), (&true.into(), &"sr".into()), "{report}");
            assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
            assert!(report["counters"]["fault_lost"].as_u64() > Some(100), "{report}");
        }
        let args = ["--op", "fetch-add", "--qps", "4", "--seconds", "1"];
        let report = lab.client(lab.v4(), &[&args[..], &patient].concat()).json();
        assert_eq!(report["ok"], true, "{report}");
        let count = |name: &str| report["perf"][0][name].as_u64().expect("a count");
        let done = count("messages");
        // Those outstanding at the end may have been carried out.
        let carried_out = report["atomics_carried_out"].as_u64().expect("a count");
        assert!(done > 0, "{report}");
        assert!((done..=done + count("unfinished")).contains(&carried_out), "{report}");
        match round {
            0 => peak_kib = server.peak_kib(),
            // Each round needs the memory of the first; the rest is the allocator's.
            _ => assert!(server.peak_kib() < peak_kib + (8 << 10), "from {peak_kib} KiB"),
        }
    }
    server.terminate();
}

#[test]
fn client__ends_when_the_receiver_is_killed_and_a_new_one_works() {
    let Some(lab) = Lab::new(1500) else { return };
    for mode in ["rc", "sr"] {
        let server = lab.server(&[]);
        let client = lab.start_client(lab.v4(), &[&ENDLESS[..], &["--mode", mode]].concat());
        lab.await_traffic(OUTSTANDING);
        server.kill();
        // After its retries, long before its time.
        let outcome = client.wait();
        let report = outcome.json();
        assert_eq!(outcome.code, Some(4), "{report}");
        let error = report["error"].as_str().unwrap_or_default();
        assert!(error.starts_with("RETRY_EXC_ERR"), "{report}");
        let done = report["perf"][0]["messages"].as_u64();
        assert!(done > Some(0), "{report}");
    }
    // SIGKILL leaves nothing attached: the next process binds the same queue at once.
    transfer(&lab, lab.v4(), 8 << 20, &[]);
}

/// Arguments of a client that runs for a day.
pub(crate) const ENDLESS: [&str; 3] = ["--seconds", "86400", "--json"];

/// Many times the bytes that a client has outstanding by default, so many that they are not all
/// retransmissions: once they have arrived, messages have completed.
pub(crate) const OUTSTANDING: u64 = 16 << 20;

#[test]
fn server__serves_one_client_after_another_and_survives_one_that_is_killed() {
    let Some(lab) = Lab::new(1500) else { return };
    let server = lab.server(&[]);
    let doomed = lab.start_client(lab.v4(), &ENDLESS);
    lab.await_traffic(OUTSTANDING);
    doomed.kill();
    for op in ["write", "send"] {
        let outcome = lab.client(lab.v4(), &["--op", op, "--transfer", "4M", "--json"]);
        assert_eq!(outcome.json()["ok"], true);
    }
    server.terminate();
}

#[test]
fn client__latency_and_thresholds_set_the_exit_code() {
    let Some(lab) = Lab::new(1500) else { return };
    let server = lab.server(&[]);
    for (op, mode) in ["send", "write", "read"].into_iter().flat_map(|op| [(op, "rc"), (op, "sr")])
    {
        let args = ["--op", op, "--lat", "--seconds", "0.3", "--max-p99-us", "1e9", "--json"];
        let args = [&args[..], &["--mode", mode]].concat();
        let outcome = lab.client(lab.v4(), &args);
        let report = outcome.json();
        let row = &report["perf"][0];
        assert!(outcome.success, "{report}");
        assert!(
            row["p50_us"].as_f64() > Some(0.0) && row["p99_us"].as_f64() >= row["p50_us"].as_f64()
        );
        assert_eq!(row["latency"], if op == "send" { "half_rtt" } else { "completion" });
    }
    let args = ["--seconds", "0.2", "--min-gbps", "100000", "--json"];
    let outcome = lab.client(lab.v4(), &args);
    assert!(!outcome.success);
    assert_eq!(outcome.json()["thresholds"][0]["ok"], false);
    server.terminate();
}

#[test]
fn client__errors_have_advice() {
    let Some(lab) = Lab::new(1500) else { return };
    let failing = |args: &[&str], words: &[&str]| {
        let Outcome { success, stderr, .. } = lab.run(&lab.hosts.b.ns, args);
        assert!(!success);
        for word in words {
            assert!(stderr.contains(word), "{args:?}: no {word:?} in {stderr:?}");
        }
    };
    let refused = ["perf", "client", "--dev", "sw0", "10.77.0.1"];
    failing(&refused, &["10.77.0.1", "18516", "is `spanwire perf server` running there?"]);
    let nowhere = ["perf", "client", "--dev", "sw0", "192.0.2.1"];
    failing(&nowhere, &["192.0.2.1"]);
    let server = lab.server(&["--max-transfer", "1M"]);
    let no_dev = ["perf", "client", "--dev", "nope", "10.77.0.1"];
    failing(&no_dev, &["nope", "sw0"]);
    let no_queue = ["perf", "client", "--dev", "sw0", "--queue", "7", "10.77.0.1"];
    failing(&no_queue, &["sw0", "queue 7"]);
    let too_long = ["perf", "client", "--dev", "sw0", "--transfer", "2M", "10.77.0.1"];
    failing(&too_long, &["2097152", "--max-transfer"]);
    let bad_mtu = ["perf", "client", "--dev", "sw0", "--mtu", "1000", "10.77.0.1"];
    failing(&bad_mtu, &["1000", "256, 512, 1024"]);
    server.terminate();
}

#[test]
fn demo__prints_its_json_and_leaves_nothing_behind() {
    let Some(alone) = Alone::new() else { return };
    let before = alone.left();
    assert!(before.0.is_empty() && before.1.len() == 1, "{before:?}");
    let args = ["demo", "--json", "--mib", "64", "--ms", "300", "--fabric", "xdp"];
    let report = alone.start(&args).wait().json();
    assert_eq!(report["ok"], true, "{report}");
    assert_eq!(report["fabric"], "af_xdp");
    assert!(report["xdp_mode"].is_string());
    assert_eq!(report["mode"], "sr");
    assert_eq!(report["transfer"]["bytes"], 64 << 20);
    assert_eq!(report["transfer"]["sha256_match"], true);
    assert!(report["transfer"]["gbps"].as_f64() > Some(0.0));
    let perf = report["perf"].as_array().expect("perf is a list");
    assert_eq!(perf.len(), 6);
    for row in perf {
        // One message at least: a run that begins ends after its messages.
        assert!(row["messages"].as_u64() > Some(0), "{row}");
        for field in ["gbps", "msgs_per_s", "p50_us", "p99_us"] {
            assert!(row[field].as_f64() > Some(0.0), "{field} in {row}");
        }
        assert!(row["op"].is_string() && row["size"].is_u64());
    }
    assert_eq!(alone.left(), before);
    // Ended during the run by a signal that it can catch and by one that it cannot.
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let mut running = alone.start(&["demo", "--fabric", "xdp", "--ms", "60000"]);
        running.await_output(|text| text.contains("RoCEv2 over AF_XDP"));
        let ended = running.end_with(signal);
        assert!(!ended.success);
        if signal == libc::SIGINT {
            assert_eq!((ended.code, ended.stderr.trim()), (Some(130), "error: interrupted"));
        }
        assert_eq!(alone.left(), before);
    }
}

#[test]
fn demo__over_the_pipe_needs_no_privilege() {
    let args = ["demo", "--json", "--fabric", "pipe", "--mib", "16", "--ms", "300"];
    let report = lab::run_here(&args).json();
    assert_eq!(report["ok"], true, "{report}");
    assert_eq!(report["fabric"], "pipe");
    assert_eq!(report["xdp_mode"], Value::Null);
}

#[test]
fn server__a_client_that_says_nothing_does_not_block_others() {
    let Some(lab) = Lab::new(1500) else { return };
    let server = lab.server(&[]);
    let address = (lab.v4(), 18_516);
    let connect = || {
        let stream = lab.hosts.b.ns.run(|| std::net::TcpStream::connect(address));
        stream.expect("the namespace is there").expect("the server listens")
    };
    let _silent: Vec<_> = (0..40).map(|_| connect()).collect();
    // Nor does one that sends a hello and no request.
    let mut idle = connect();
    let hello = r#"{"type":"hello","version":1,"ip":"10.77.0.2","path_mtu":1024}"#;
    writeln!(idle, "{hello}").expect("the server is there");
    let mut answer = String::new();
    BufReader::new(&idle).read_line(&mut answer).expect("it replies");
    assert!(answer.contains("hello"), "{answer}");
    // A silent client times out after 5 s: one after another, they would block this one for longer
    // than the half minute for which it waits. That it is served first is asserted by
    // `runner::acceptor::tests`.
    let outcome = lab.client(lab.v4(), &["--transfer", "4M", "--json"]);
    assert_eq!(outcome.json()["ok"], true, "{}", outcome.stderr);
    server.terminate();
}

#[test]
fn server__sends_packets_only_to_validated_addresses() {
    let Some(lab) = Lab::new(1500) else { return };
    let server = lab.server(&[]);
    let stream = lab.hosts.b.ns.run(|| std::net::TcpStream::connect((lab.v4(), 18_516)));
    let mut stream = stream.expect("the namespace is there").expect("the server listens");
    let hello = r#"{"type":"hello","version":1,"ip":"10.77.0.9","path_mtu":1024}"#;
    writeln!(stream, "{hello}").expect("the server is there");
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).expect("it replies");
    for words in ["reject", "10.77.0.2", "10.77.0.9", "--any-address"] {
        assert!(answer.contains(words), "no {words:?} in {answer}");
    }
    server.terminate();
}

#[test]
fn server__no_memory_is_in_use_before_a_client_is_ready() {
    let Some(lab) = Lab::new(1500) else { return };
    let server = lab.server(&[]);
    let before = server.resident_kib();
    let stream = lab.hosts.b.ns.run(|| std::net::TcpStream::connect((lab.v4(), 18_516)));
    let mut stream = stream.expect("the namespace is there").expect("the server listens");
    let hello = r#"{"type":"hello","version":1,"ip":"10.77.0.2","path_mtu":1024}"#;
    let request = serde_json::json!({
        "type": "request", "qps": [{"qpn": 7, "psn": 7}],
        "job": {"kind": "transfer", "bytes": 1 << 30, "seed": 1, "op": "read", "size": 1 << 20,
                "qps": 1, "depth": 8, "path_mtu": 1024, "timeout": 14, "retry_cnt": 7},
    });
    writeln!(stream, "{hello}\n{request}").expect("the server is there");
    let mut lines = BufReader::new(&stream).lines();
    let mut answer = || lines.next().expect("a line").expect("the server replies");
    assert!(answer().contains("hello"));
    assert!(answer().contains("accept"));
    let grown = server.resident_kib().saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KiB for a READ of 1 GiB of a client that is not ready");
    server.kill();
}

#[test]
fn client__an_interrupted_run_reports_it_without_results() {
    let Some(lab) = Lab::new(1500) else { return };
    let server = lab.server(&[]);
    let client = lab.start_client(lab.v4(), &ENDLESS);
    lab.await_traffic(OUTSTANDING);
    let outcome = client.end_with(libc::SIGINT);
    let report = outcome.json();
    assert_eq!(outcome.code, Some(130));
    assert_eq!((&report["ok"], &report["error"]), (&Value::from(false), &"interrupted".into()));
    assert!(report["perf"][0]["gbps"].as_f64() > Some(0.0), "{report}");
    server.terminate();
}
