//! Several workers in one process: a queue, an engine and a thread each.

use super::lab::{Lab, Outcome};
use serde_json::Value;
use spanwire_io::net::LabConfig;

/// Two hosts whose interfaces have so many queues.
fn lab(queues: u32) -> Option<Lab> {
    Lab::with(&LabConfig { queues, ..LabConfig::default() })
}

/// A machine with one core can run two workers, too.
const TWO: [&str; 3] = ["--workers", "2", "--oversubscribe"];

fn of_workers<'a>(report: &'a Value, name: &str) -> Vec<&'a Value> {
    report["workers"].as_array().expect("an array").iter().map(|worker| &worker[name]).collect()
}

fn is_refused(outcome: &Outcome, words: &[&str]) {
    assert!(!outcome.success, "{}", outcome.stdout);
    for word in words {
        assert!(outcome.stderr.contains(word), "{word} in {}", outcome.stderr);
    }
}

#[test]
fn perf__every_worker_has_a_queue_and_the_report_is_their_sum() {
    let Some(lab) = lab(2) else { return };
    let server = lab.json_server(&TWO);
    for mode in ["rc", "sr"] {
        let run = ["--mode", mode, "-t", "0.5", "-i", "0.2", "--json"];
        let report = lab.client(lab.v4(), &[&TWO[..], &run].concat()).json();
        assert_eq!((&report["ok"], &report["error"]), (&true.into(), &Value::Null), "{report}");
        let messages = of_workers(&report, "messages");
        let counts: Vec<u64> = messages.iter().map(|n| n.as_u64().expect("a count")).collect();
        assert_eq!(counts.len(), 2, "{report}");
        assert!(counts.iter().all(|n| *n > 0), "{report}");
        let sum: u64 = counts.iter().sum();
        assert_eq!(report["perf"][0]["messages"], sum, "{report}");
        assert_eq!(report["perf"][0]["qps"], 2);
        let intervals = report["intervals"].as_array().expect("an array");
        let bytes = intervals.iter().map(|part| part["bytes"].as_u64().expect("a count"));
        assert_eq!(bytes.sum::<u64>(), sum * 65_536, "{report}");
    }
    // Parts of a transfer differ, and each is compared.
    for op in ["write", "read", "send"] {
        let transfer = ["--op", op, "--transfer", "8M", "--json"];
        let report = lab.client(lab.v4(), &[&TWO[..], &transfer].concat()).json();
        assert_eq!(report["transfer"]["sha256_match"], true, "{report}");
        assert_eq!(report["transfer"]["bytes"], 8 << 20, "{report}");
    }
    // A client with one worker meets the first one of the server, beside another client.
    let alone = ["-t", "0.3", "--json"];
    let report = lab.client(lab.v4(), &alone).json();
    assert_eq!((&report["ok"], of_workers(&report, "worker")), (&true.into(), vec![&0.into()]));
    let served = server.end_with(libc::SIGTERM);
    for worker in ["\"worker\":0", "\"worker\":1"] {
        assert!(served.stdout.contains(worker), "{}", served.stdout);
    }
}

#[test]
fn perf__one_off_ends_after_all_workers_of_a_client() {
    let Some(lab) = lab(2) else { return };
    let server = lab.server(&[&TWO[..], &["--one-off"]].concat());
    let report = lab.client(lab.v4(), &[&TWO[..], &["-t", "0.2", "--json"]].concat()).json();
    assert_eq!(report["ok"], true, "{report}");
    let outcome = server.wait();
    assert!(outcome.success, "{}", outcome.stderr);
}

#[test]
fn perf__errors_name_what_is_missing_for_several_workers() {
    let Some(lab) = lab(1) else { return };
    let server = |args: &[&str]| {
        let args = [&["perf", "server", "--dev", "sw0"], args].concat();
        lab.run(&lab.hosts.a.ns, &args)
    };
    is_refused(&server(&TWO), &["2 workers need a queue each (0 to 1)", "sw0 has 1"]);
    let cores = server(&["--workers", "2", "--cores", "0"]);
    is_refused(&cores, &["2 workers need a core each", "--cores names 1 core (0)"]);
    is_refused(&server(&["--workers", "16", "--cores", "0-1,1"]), &["core 1 twice"]);
    let udp = server(&[&TWO[..], &["--fabric", "udp"]].concat());
    is_refused(&udp, &["UDP sockets", "one worker"]);
    drop(lab);
    let Some(lab) = self::lab(2) else { return };
    let one = lab.server(&[]);
    let client = lab.client(lab.v4(), &TWO);
    is_refused(&client, &["worker 1 here would meet worker 0 of 1", "--workers 2"]);
    one.terminate();
}

#[test]
fn demo__workers_have_both_ends_of_a_pipe_each() {
    let args = ["demo", "--fabric", "pipe", "--mib", "4", "--ms", "20", "--json"];
    let outcome = super::lab::run_here(&[&args[..], &TWO].concat());
    let report = outcome.json();
    assert_eq!(report["ok"], true, "{report}");
    assert_eq!(report["transfer"]["bytes"], 4 << 20);
    assert_eq!(of_workers(&report, "worker").len(), 2 * 6, "{report}");
}
