//! The stock perftest tools in the guest against `spanwire perf --oob perftest`, in both roles.

use crate::guest::{DEVICE, GUEST_V4, GUEST_V6, Guest, OUR_V4, OUR_V6, Ran};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// One tool with its arguments, and our equivalent ones.
struct Run {
    tool: &'static str,
    theirs: &'static str,
    ours: &'static [&'static str],
    size: u64,
    qps: u64,
    is_v6: bool,
}

const fn run(tool: &'static str, theirs: &'static str, ours: &'static [&'static str]) -> Run {
    Run { tool, theirs, ours, size: 5001, qps: 1, is_v6: false }
}

const RUNS: &[Run] = &[
    run("ib_write_bw", "-s 5001 -m 1024", &["--op", "write", "--size", "5001", "--mtu", "1024"]),
    run("ib_read_bw", "-s 5001", &["--op", "read", "--size", "5001"]),
    run("ib_send_bw", "-s 5001", &["--op", "send", "--size", "5001"]),
    Run { size: 8, ..run("ib_atomic_bw", "-A FETCH_AND_ADD", &["--op", "atomic"]) },
    Run { size: 8, ..run("ib_atomic_bw", "-A CMP_AND_SWAP", &["--op", "CMP_AND_SWAP"]) },
    Run { size: 2, ..run("ib_write_lat", "-s 2", &["--op", "write", "--lat"]) },
    run("ib_write_lat", "-s 5001", &["--op", "write", "--lat", "--size", "5001"]),
    Run { size: 64, ..run("ib_read_lat", "-s 64", &["--op", "read", "--lat", "--size", "64"]) },
    Run { size: 2, ..run("ib_send_lat", "-s 2", &["--op", "send", "--lat"]) },
    Run { size: 8, ..run("ib_atomic_lat", "", &["--op", "atomic", "--lat"]) },
    run("ib_write_bw", "-s 5001 -b", &["--op", "write", "--size", "5001", "-b"]),
    run("ib_send_bw", "-s 5001 -b", &["--op", "send", "--size", "5001", "-b"]),
    Run { qps: 3, ..run("ib_write_bw", "-s 5001 -q 3", &["--size", "5001", "--qps", "3"]) },
    Run {
        is_v6: true,
        qps: 2,
        ..run("ib_send_bw", "-s 5001 -q 2", &["--op", "send", "--size", "5001", "--qps", "2"])
    },
];

#[test]
fn perftest__the_stock_tools_in_both_roles() {
    let Some(guest) = Guest::boot() else { return };
    for run in RUNS {
        for we_serve in [true, false] {
            let begun = Instant::now();
            let (report, ran) = if we_serve { serve(&guest, run) } else { ask(&guest, run) };
            check(run, we_serve, &report, &ran);
            let role = if we_serve { "serve" } else { "connect" };
            let took = begun.elapsed().as_secs_f64();
            println!("{} {}, we {role}: {took:.1} s", run.tool, run.theirs);
        }
    }
}

fn check(run: &Run, we_serve: bool, report: &Value, ran: &Ran) {
    let Run { tool, theirs, size, qps, .. } = run;
    let context = format!("{tool} {theirs}, we serve: {we_serve}: {report}\n{}", ran.output);
    assert_eq!(ran.code, Some(0), "{context}");
    let messages = ITERATIONS * qps;
    let bidirectional = theirs.contains("-b");
    let write_lat = *tool == "ib_write_lat";
    let peer = if we_serve { &report["peer"] } else { &report["perftest"]["peer"] };
    // The version of Debian 12.
    assert_eq!(peer["version"], "6.06", "{context}");
    if !we_serve || bidirectional || write_lat {
        assert_eq!(report["perf"][0]["messages"], messages, "{context}");
        assert_eq!(report["perf"][0]["error"], Value::Null, "{context}");
    }
    if *tool == "ib_send_bw" && we_serve {
        assert_eq!(report["messages"], messages, "{context}");
    }
    let reports = tool.ends_with("_bw") && (*tool != "ib_send_bw" || bidirectional);
    let has_report = reports && (we_serve || bidirectional);
    let expected = if has_report { Value::from(messages) } else { Value::Null };
    assert_eq!(peer["report"]["iterations"], expected, "{context}");
    // The stock tool's result line: size, iterations, figures. A passive _lat server prints none.
    if we_serve || write_lat || !["ib_read_lat", "ib_atomic_lat"].contains(tool) {
        let row = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().take(2).collect();
            words == [size.to_string(), messages.to_string()]
        };
        assert!(ran.output.lines().any(row), "no result: {context}");
    }
}

/// Runs our server and the stock tool as client.
fn serve(guest: &Guest, run: &Run) -> (Value, Ran) {
    let mut server = spanwire(guest, run, &["server", "--one-off", "--poll", "adaptive"]);
    let mut stdout = BufReader::new(server.stdout.take().expect("piped"));
    wait_for_port(guest);
    let command = format!("{} {OUR_V4}", stock(guest, run));
    let ran = guest.exec(TIME_LIMIT_S, &command);
    let mut line = String::new();
    stdout.read_line(&mut line).expect("readable");
    let end = finish(server);
    assert!(end.0, "{}: {}; the guest: {}", run.tool, end.1, ran.output);
    (serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}")), ran)
}

/// Runs the stock tool as server and our client.
fn ask(guest: &Guest, run: &Run) -> (Value, Ran) {
    let tool = guest.spawn(1, TIME_LIMIT_S, &stock(guest, run));
    let begun = Instant::now();
    loop {
        let mut client = spanwire(guest, run, &["client", &GUEST_V4.to_string()]);
        let mut out = String::new();
        client.stdout.take().expect("piped").read_to_string(&mut out).expect("text");
        let (ok, said) = finish(client);
        let too_early = said.contains("running there?");
        if too_early && begun.elapsed() < Duration::from_secs(u64::from(TIME_LIMIT_S)) {
            std::thread::sleep(Duration::from_millis(200));
            continue;
        }
        let ran = tool.wait();
        assert!(ok, "{}: {said}; the guest: {}", run.tool, ran.output);
        return (serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out:?}")), ran);
    }
}

/// The stock tool's command line. The guest is emulated: a timeout of a second, and no check of its
/// clock frequency.
fn stock(guest: &Guest, run: &Run) -> String {
    let Run { tool, theirs, is_v6, .. } = run;
    let gid = guest.gid_index(if *is_v6 { GUEST_V6 } else { GUEST_V4 });
    format!("{tool} -d rxe0 -x {gid} -F -u 18 -n {ITERATIONS} {theirs}")
}

fn spanwire(guest: &Guest, run: &Run, role: &[&str]) -> Child {
    let mut command = guest.ours.command(SPANWIRE).expect("the namespace is there");
    let iterations = ITERATIONS.to_string();
    command.arg("perf").args(role).args(["--dev", DEVICE, "--oob", "perftest", "--json"]);
    command.args(["--timeout", "18", "-n", &iterations]).args(run.ours);
    if run.is_v6 {
        command.args(["--address", &OUR_V6.to_string()]);
    }
    piped(&mut command).spawn().expect("it starts")
}

fn piped(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())
}

/// Its success and standard error.
fn finish(child: Child) -> (bool, String) {
    let out = child.wait_with_output().expect("our child");
    (out.status.success(), String::from_utf8_lossy(&out.stderr).into_owned())
}

/// Waits until our server listens. With `--json` it prints nothing before its first client, and a
/// probing connection would be that client.
fn wait_for_port(guest: &Guest) {
    let listens = || {
        let tables = ["/proc/thread-self/net/tcp6", "/proc/thread-self/net/tcp"];
        let text: String =
            tables.iter().filter_map(|table| std::fs::read_to_string(table).ok()).collect();
        // Port 18515 in state 0A, LISTEN.
        text.lines().any(|line| line.contains(":4853 ") && line.contains(" 0A "))
    };
    let begun = Instant::now();
    while !guest.ours.run(listens).expect("the namespace is there") {
        assert!(begun.elapsed() < Duration::from_secs(300), "our server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const SPANWIRE: &str = env!("CARGO_BIN_EXE_spanwire");
const ITERATIONS: u64 = 10;
/// Time limit of one run, which only a hang reaches.
const TIME_LIMIT_S: u32 = 600;
