//! `spanwire perf` as a new user meets it.

use super::lab::Lab;
use serde_json::Value;

/// The rows of README's table of things to try on a client: its first column.
fn table_of_things_to_try() -> Vec<String> {
    let readme = include_str!("../../README.md");
    let rest = readme.split_once("Try on the client:").expect("README has the table").1;
    let rows = rest.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.split('|').nth(1).expect("a column").trim().to_owned()).collect()
}

/// What stands between backticks.
fn commands(column: &str) -> Vec<Vec<String>> {
    let spans = column.split('`').skip(1).step_by(2);
    spans.map(|span| span.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn client__runs_readmes_table_in_its_order_against_one_server() {
    let Some(lab) = Lab::new(1500) else { return };
    let capture = std::env::temp_dir().join(format!("spanwire-e2e-{}.pcap", std::process::id()));
    let server = lab.server(&[]);
    let mut tried = 0;
    for column in table_of_things_to_try() {
        for mut args in commands(&column) {
            let mut to = lab.v4();
            if column.ends_with("as the address") {
                to = args.remove(0).parse().expect("README names an address");
            }
            let is_transfer = args.iter().any(|arg| arg == "--transfer");
            match args.iter().position(|arg| arg == "-t") {
                Some(at) => args[at + 1] = "1".into(),
                None if is_transfer => {}
                None => args.extend(["-t".into(), "0.5".into()]),
            }
            if let Some(at) = args.iter().position(|arg| arg == "--pcap") {
                args[at + 1] = capture.display().to_string();
            }
            if !args.iter().any(|arg| arg == "--json") {
                args.push("--json".into());
            }
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let outcome = lab.client(to, &args);
            let report = outcome.json();
            assert_eq!(report["error"], Value::Null, "{args:?}: {report}");
            // A busy machine may miss a threshold, which is no fault.
            let is_met = report["thresholds"].as_array().is_some_and(Vec::is_empty);
            assert!(report["ok"] == true || !is_met, "{args:?}: {report}");
            tried += 1;
        }
    }
    std::fs::remove_file(&capture).expect("README captures once");
    assert!(tried >= 11, "{tried} of README's rows were understood");
    server.terminate();
}
