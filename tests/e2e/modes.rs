//! Negotiation of the wire mode.

use crate::lab::{HANG, Lab, Outcome, PERF_PORT, Running};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

#[test]
fn mode__is_sr_if_both_support_it_and_rc_if_one_end_requires_it() {
    let Some(lab) = Lab::new(1500) else { return };
    // Server, client, negotiated mode.
    let rows = [
        ("auto", "auto", "sr"),
        ("auto", "sr", "sr"),
        ("sr", "auto", "sr"),
        ("auto", "rc", "rc"),
        ("rc", "auto", "rc"),
        ("rc", "rc", "rc"),
    ];
    for (server_mode, client_mode, agreed) in rows {
        let server = lab.server(&["--mode", server_mode]);
        for (to, sr_bytes) in [(lab.v4(), 1408), (lab.v6(), 1388)] {
            let args = ["--mode", client_mode, "--transfer", "4M", "--json"];
            let report = lab.client(to, &args).json();
            let context = format!("{server_mode} and {client_mode} over {to}: {report}");
            assert_eq!(report["ok"], true, "{context}");
            assert_eq!(report["mode"], agreed, "{context}");
            let bytes = if agreed == "sr" { sr_bytes } else { 1024 };
            assert_eq!(report["segment_bytes"], bytes, "{context}");
        }
        server.terminate();
    }
}

#[test]
fn mode__an_incompatible_client_is_rejected_and_others_are_served() {
    let Some(lab) = Lab::new(1500) else { return };
    for (server_mode, client_mode) in [("rc", "sr"), ("sr", "rc")] {
        let server = lab.server(&["--mode", server_mode]);
        let args = ["--mode", client_mode, "--transfer", "1M"];
        let Outcome { success, stderr, .. } = lab.client(lab.v4(), &args);
        assert!(!success);
        for words in ["no wire mode in common", "RC only", "SR (version 1", "--mode auto"] {
            assert!(stderr.contains(words), "{client_mode}: no {words:?} in {stderr:?}");
        }
        let report = lab.client(lab.v4(), &["--transfer", "1M", "--json"]).json();
        assert_eq!((&report["ok"], &report["mode"]), (&json!(true), &json!(server_mode)));
        server.terminate();
    }
    let args = ["perf", "client", "--dev", "sw0", "10.77.0.1", "--oob", "perftest", "--mode", "sr"];
    let Outcome { success, stderr, .. } = lab.run(&lab.hosts.b.ns, &args);
    assert!(!success && stderr.contains("perftest speaks RC"), "{stderr}");
}

#[test]
fn mode__the_requested_path_mtu_limits_sr_packets_too() {
    let Some(lab) = Lab::new(1500) else { return };
    let server = lab.server(&[]);
    let args = ["--mtu", "512", "--transfer", "1M", "--json"];
    let report = lab.client(lab.v4(), &args).json();
    assert_eq!(report["ok"], true, "{report}");
    assert_eq!((&report["mode"], &report["segment_bytes"]), (&json!("sr"), &json!(512)));
    server.terminate();
}

/// Hellos of an older or newer version.
#[test]
fn mode__is_rc_with_a_peer_without_modes_and_the_newest_common_one_with_a_later_peer() {
    let Some(lab) = Lab::new(1500) else { return };
    let rc = json!({"mode": "rc"});
    let named = |name: &str, versions: &[u32]| {
        json!({"mode": name, "versions": versions, "features": ["later"],
               "segment_bytes": 8192, "reorder_pkts": 1 << 20, "paths": 9})
    };
    let sr = |versions: &[u32]| named("src", versions);
    let later = json!({"mode": "later", "versions": "all"});
    let rows = [
        (None, "rc"),
        (Some(json!([])), "rc"),
        (Some(json!([later, sr(&[3, 2, 1]), rc])), "sr"),
        (Some(json!([later, sr(&[3, 2]), rc])), "rc"),
        (Some(json!([named("sr", &[1]), rc])), "sr"),
        (Some(json!([{"mode": "src"}, rc])), "rc"),
    ];
    for (modes, agreed) in rows {
        let server = Server::start(&lab);
        let mut client = Client::connect(&lab);
        let mut hello = json!({"type": "hello", "version": 1, "ip": "10.77.0.2",
                               "path_mtu": 1024, "side_poll_port": null, "later": {}});
        if let Some(modes) = &modes {
            hello["modes"] = modes.clone();
        }
        let answer = client.ask(&hello);
        assert_eq!(answer["type"], "hello", "{answer}");
        assert_eq!(answer["modes"][0]["segment_bytes"], 1408, "{answer}");
        let job = json!({"kind": "bandwidth", "duration_ms": 10, "op": "send", "size": 64,
                         "qps": 1, "depth": 1, "path_mtu": 1024, "timeout": 14, "retry_cnt": 7});
        let request = json!({"type": "request", "job": job, "qps": [{"qpn": 77, "psn": 5}]});
        let answer = client.ask(&request);
        assert_eq!(answer["type"], "accept", "{answer}");
        assert_eq!(client.ask(&json!({"type": "ready"}))["type"], "ready");
        assert_eq!(client.ask(&json!({"type": "done"}))["type"], "result");
        drop(client);
        let served = server.end();
        assert_eq!(served["complete"], true, "{served}");
        assert_eq!(served["mode"], agreed, "{modes:?}: {served}");
    }
}

/// A hello with invalid or unknown modes ends with an error message.
#[test]
fn mode__an_invalid_hello_is_rejected() {
    let Some(lab) = Lab::new(1500) else { return };
    let server = Server::start(&lab);
    let hello = |modes: Value| {
        json!({"type": "hello", "version": 1, "ip": "10.77.0.2", "path_mtu": 1024,
               "side_poll_port": null, "modes": modes})
    };
    for (modes, words) in [
        (json!([{"mode": "later"}]), "no wire mode in common"),
        (json!(7), "does not speak this protocol"),
        (json!([{"mode": "src", "versions": [-1]}]), "does not speak this protocol"),
    ] {
        let answer = Client::connect(&lab).ask(&hello(modes.clone()));
        assert_eq!(answer["type"], "reject", "{modes}: {answer}");
        let reason = answer["reason"].as_str().unwrap_or_default();
        assert!(reason.contains(words), "{modes}: {reason}");
    }
    let report = lab.client(lab.v4(), &["--transfer", "1M", "--json"]).json();
    assert_eq!(report["ok"], true, "{report}");
    drop(server);
}

/// A server that reports in JSON.
struct Server {
    running: Running,
}

impl Server {
    fn start(lab: &Lab) -> Self {
        Self { running: lab.json_server(&[]) }
    }

    /// The report of its only job.
    fn end(self) -> Value {
        let served = self.running.end_with(libc::SIGTERM);
        assert!(served.success, "{}", served.stderr);
        served.json()
    }
}

/// A side connection by hand.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn connect(lab: &Lab) -> Self {
        let connect = || TcpStream::connect((lab.v4(), PERF_PORT));
        let stream = lab.hosts.b.ns.run(connect).expect("the namespace is there");
        let stream = stream.expect("the server listens");
        stream.set_read_timeout(Some(HANG)).expect("not zero");
        Self { stream: BufReader::new(stream) }
    }

    fn ask(&mut self, message: &Value) -> Value {
        let line = format!("{message}\n");
        self.stream.get_mut().write_all(line.as_bytes()).expect("the server is there");
        let mut answer = String::new();
        self.stream.read_line(&mut answer).expect("the server answers");
        serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{e} in {answer:?}"))
    }
}
