//! `spanwire perf --oob perftest` against itself; tests/interop has the stock tools.

use super::lab::Lab;
use serde_json::Value;

/// Arguments of both ends, for one run each.
const RUNS: &[&[&str]] = &[
    &["--op", "write", "--size", "5001", "--qps", "3"],
    &["--op", "read", "--size", "64K"],
    &["--op", "send", "--size", "5001", "--qps", "3"],
    &["--op", "atomic"],
    &["--op", "CMP_AND_SWAP", "--qps", "2"],
    &["--op", "write", "--size", "3000", "--bidirectional", "--tclass", "104"],
    &["--op", "send", "--size", "3000", "--bidirectional"],
    &["--op", "write", "--lat"],
    &["--op", "read", "--lat", "--size", "64"],
    &["--op", "send", "--lat"],
    &["--op", "atomic", "--lat"],
];

#[test]
fn perftest__every_tool_against_ourselves_over_both_ip_versions() {
    let Some(lab) = Lab::new(1500) else { return };
    for (run, to) in RUNS.iter().zip([lab.v4(), lab.v6()].into_iter().cycle()) {
        let test = [&["--oob", "perftest", "-n", "500"], *run].concat();
        let server = lab.server(&[&test[..], &["--one-off"]].concat());
        let client = lab.client(to, &[&test[..], &["--json"]].concat());
        let report = client.json();
        assert!(client.success && report["ok"] == true, "{run:?}: {report}");
        let qps = report["perf"][0]["qps"].as_u64().expect("a number");
        assert_eq!(report["perf"][0]["messages"], 500 * qps, "{run:?}");
        assert_eq!(report["perftest"]["peer"]["version"], "6.06");
        assert_eq!(report["perftest"]["peer"]["ip"], to.to_string());
        let bidirectional = run.contains(&"--bidirectional");
        let iterations = &report["perftest"]["peer"]["report"]["iterations"];
        assert_eq!(*iterations, if bidirectional { Value::from(500) } else { Value::Null });
        assert!(server.wait().success, "{run:?}");
    }
}

#[test]
fn atomics__in_spanwires_own_exchange() {
    let Some(lab) = Lab::new(1500) else { return };
    let server = lab.server(&[]);
    for (op, more) in [("atomic", ""), ("cmp-swap", "--lat")] {
        let args = ["--op", op, "--seconds", "0.3", "--json", more];
        let args: Vec<&str> = args.into_iter().filter(|a| !a.is_empty()).collect();
        let report = lab.client(lab.v4(), &args).json();
        assert_eq!((&report["ok"], &report["perf"][0]["size"]), (&true.into(), &8.into()));
        assert!(report["perf"][0]["messages"].as_u64() > Some(0), "{report}");
    }
    let transfer = lab.client(lab.v4(), &["--op", "atomic", "--transfer", "1M"]);
    assert!(!transfer.success && transfer.stderr.contains("no bytes"), "{}", transfer.stderr);
    server.terminate();
}

#[test]
fn perftest__a_broken_client_does_not_block_the_next_one() {
    use std::io::Write;
    let Some(lab) = Lab::new(1500) else { return };
    let test = ["--oob", "perftest", "-n", "100"];
    let server = lab.server(&test);
    let address = (lab.v4(), 18_515);
    let lost = lab.hosts.b.ns.run(|| {
        let mut garbage = std::net::TcpStream::connect(address)?;
        garbage.write_all(&[0xff; 4096])?;
        // It sends nothing and stays connected.
        std::net::TcpStream::connect(address)
    });
    let _silent = lost.expect("the namespace is there").expect("the server listens");
    let client = lab.client(lab.v4(), &[&test[..], &["--json"]].concat());
    assert_eq!(client.json()["ok"], true, "{}", client.stderr);
    server.terminate();
}

#[test]
fn perftest__errors_have_advice() {
    let Some(lab) = Lab::new(1500) else { return };
    let failing = |args: &[&str], words: &[&str]| {
        let outcome = lab.run(&lab.hosts.b.ns, &[&["perf"], args].concat());
        assert!(!outcome.success);
        for word in words {
            let said = &outcome.stderr;
            assert!(said.contains(word), "{args:?}: no {word:?} in {said:?}");
        }
    };
    let client = ["client", "--dev", "sw0", "10.77.0.1"];
    let with = |more: &[&'static str]| [&client[..], more].concat();
    failing(&with(&["--oob", "perftest"]), &["18515", "is ib_write_bw running there?"]);
    failing(&with(&["--iters", "5"]), &["--iters needs --oob perftest"]);
    failing(&with(&["--oob", "perftest", "--transfer", "1M"]), &["--iters instead"]);
    failing(&with(&["--oob", "perftest", "--lat", "--qps", "2"]), &["one queue pair"]);
    let server = ["server", "--dev", "sw0", "--op", "read"];
    failing(&server, &["--op", "--oob perftest"]);
}
