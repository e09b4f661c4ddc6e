//! Congestion control by name, over real ports.

use crate::lab::{Lab, Outcome};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Every end's line of JSON after a run: the client's report, the server's.
fn run(lab: &Lab, server: &[&str], client: &[&str]) -> (Value, Value) {
    let args = [&["perf", "server", "--dev", "sw0", "--json", "--one-off"], server].concat();
    let server = lab.start(&lab.hosts.a.ns, &args);
    let client = [&["--json"], client].concat();
    // It says nothing before it has served somebody.
    let deadline = Instant::now() + Duration::from_secs(20);
    let report = loop {
        let outcome = lab.client(lab.v4(), &client);
        let is_early = outcome.stderr.contains("server` running there?");
        if !is_early || Instant::now() > deadline {
            break outcome.json();
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    (report, server.wait().json())
}

#[test]
fn cc__moves_every_byte_with_each_algorithm_in_both_modes() {
    let Some(lab) = Lab::new(1500) else { return };
    // A path without a delay of its own, on a machine that has other work: the delay that Swift
    // aims at must be the machine's.
    let swift = &["--cc-set", "base_target_us=5000"][..];
    let all = [("unocc", &[][..]), ("swift", swift), ("dcqcn", &[]), ("timely", &[]), ("bbr", &[])];
    for (n, (name, set)) in all.into_iter().enumerate() {
        let (mode, op) = if n % 2 == 0 { ("src", "write") } else { ("rc", "send") };
        let args = ["--transfer", "8M", "--cc", name, "--mode", mode, "--op", op];
        let (report, _) = run(&lab, &[], &[&args[..], set].concat());
        assert_eq!(report["ok"], true, "{name}: {report}");
        assert_eq!(report["transfer"]["sha256_match"], true, "{name}: {report}");
        assert_eq!(report["congestion"]["name"], name, "{report}");
    }
}

#[test]
fn cc__the_server_follows_its_clients_wish_where_it_has_none_of_its_own() {
    let Some(lab) = Lab::new(1500) else { return };
    let wish = ["--cc", "swift", "--cc-set", "beta=0.4", "--cc-rtt", "200us"];
    // Both send: a ping-pong, and the answers of READ.
    for how in [&["--op", "send", "--lat"][..], &["--op", "read", "--mode", "src"]] {
        let args = [&wish[..], &["--seconds", "0.3"], how].concat();
        let (report, served) = run(&lab, &[], &args);
        assert_eq!(report["ok"], true, "{report}");
        let swift = json!({"name": "swift", "set": {"beta": "0.4"}, "base_rtt_ns": 200_000});
        assert_eq!((&report["congestion"], &served["congestion"]), (&swift, &swift));
        let (report, served) = run(&lab, &["--cc", "unocc"], &args);
        assert_eq!(report["ok"], true, "{report}");
        let unocc = json!({"name": "unocc"});
        assert_eq!((&report["congestion"], &served["congestion"]), (&swift, &unocc));
    }
}

#[test]
fn cc__what_is_not_known_is_refused_with_what_there_is() {
    let Some(lab) = Lab::new(1500) else { return };
    for (args, words) in [
        (&["--cc", "unoc"][..], &["did you mean `unocc`?", "dcqcn-rnic", "timely-classic"][..]),
        (&["--cc", "swift", "--cc-set", "beta=2"], &["swift: beta is 2", "0.001 and 1"]),
        (&["--cc", "swift", "--cc-set", "gamma=2"], &["no parameter of swift `gamma`", "hop_us"]),
        (&["--cc-set", "beta=2"], &["--cc"]),
        (&["--line-rate", "1G"], &["25Gbit"]),
    ] {
        let Outcome { success, stderr, .. } = lab.client(lab.v4(), args);
        assert!(!success, "{args:?}");
        for word in words {
            assert!(stderr.contains(word), "{args:?}: no {word:?} in {stderr:?}");
        }
    }
}
