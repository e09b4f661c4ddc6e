//! Stored results, and shards of work: `reproduce`, `compare` and `swarm`.

use super::{json, scratch, sim, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The arguments of a row of 24 short runs, and more.
fn reproduce<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["reproduce", "--paper", "uno", "--row", "U-11", "--quick"][..], more].concat()
}

/// Runs such a row: its rows, and how many of its 24 runs were stored.
fn stored(more: &[&str]) -> (Vec<u8>, u64) {
    let output = sim(&[&reproduce(more)[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let line = stderr(&output);
    let words: Vec<&str> = line.split_whitespace().collect();
    let [run, n] = [0, 3].map(|i| words[i].parse::<u64>().expect("a number"));
    assert_eq!((run + n, words[1]), (24, "runs"), "{line}");
    (output.stdout, n)
}

#[test]
fn reproduce__stores_its_runs_and_writes_a_page() {
    let dir = std::env::temp_dir().join(format!("spanwire-reproduce-{}", std::process::id()));
    let path = |name: &str| dir.join(name).to_str().expect("it is UTF-8").to_owned();
    let (store, out) = (path("store"), path("out"));
    let args = reproduce(&["--store", &store, "--out", &out]);
    let (first, code) = json(&args);
    assert_eq!((code, first["rows"][0]["verdict"].as_str()), (Some(0), Some("scaled")));
    assert_eq!(first["runs"].as_u64(), Some(24));
    let (second, _) = json(&args);
    assert_eq!(second, first);
    let page = fs::read_to_string(dir.join("out/uno.md")).expect("it was written");
    assert!(page.contains("| U-11 |") && page.contains("| scaled |"), "{page}");
    let output = sim(&["reproduce", "--paper", "no-such"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let output = sim(&reproduce(&["--store", "/proc/no-such"]));
    let said = stderr(&output);
    assert!(!output.status.success() && said.contains("cannot write /proc/no-such"), "{said}");
    fs::remove_dir_all(&dir).expect("it was created");
}

/// Shards, one of them twice and one killed, all at once: then nothing is left to run, and the rows
/// are those of a call without a store.
#[test]
fn reproduce__shards_fill_one_store() {
    let dir = std::env::temp_dir().join(format!("spanwire-shards-{}", std::process::id()));
    let store = dir.to_str().expect("it is UTF-8").to_owned();
    let files = || fs::read_dir(&dir).map_or(0, Iterator::count);
    let of = |shard: &str| {
        let args = reproduce(&["--store", &store, "--shard", shard]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_spanwire"));
        command.arg("sim").args(args).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("it can be started")
    };
    let mut killed = of("0/1");
    while files() == 0 && killed.try_wait().expect("it is a child").is_none() {
        std::thread::yield_now();
    }
    killed.kill().expect("it is a child");
    killed.wait().expect("it is a child");
    let shards = ["0/3", "1/3", "2/3", "1/3"].map(of);
    for mut shard in shards {
        assert!(shard.wait().expect("it is a child").success());
    }
    let whole = ["--store", &store];
    let (rows, n) = stored(&whole);
    assert_eq!(n, 24);
    assert_eq!(rows, stored(&["--no-store"]).0, "the same without shards");

    let plan = sim(&reproduce(&["--plan", "--json"]));
    let plan: Value = serde_json::from_slice(&plan.stdout).expect("it is JSON");
    let keys: Vec<&str> =
        plan.as_array().expect("a list").iter().filter_map(|unit| unit["key"].as_str()).collect();
    assert_eq!(keys.len(), 24);
    let part = sim(&reproduce(&["--plan", "--shard", "1/3"]));
    let part: Vec<&str> = stdout(&part).lines().collect();
    assert_eq!(part.len(), 8, "{part:?}");
    assert!(part.iter().all(|line| keys.contains(&&line[..64])), "{part:?}");
    let file = |i: usize| dir.join(format!("{}.json", keys[i]));
    let whole_file = fs::read(file(0)).expect("it is stored");
    fs::write(file(0), &whole_file[..whole_file.len() / 2]).expect("it can be written");
    // As of other parameters, or another version of results.
    fs::rename(file(1), dir.join("0000.json")).expect("it is stored");
    assert_eq!(stored(&whole), (rows, 22), "a damaged result, and one under another key");

    let verified = json(&reproduce(&["--store", &store, "--verify", "3"])).0;
    assert_eq!((verified["verified"].as_u64(), verified["stored"].as_u64()), (Some(3), Some(24)));
    for i in 0..24 {
        let text = fs::read_to_string(file(i)).expect("it is stored");
        let at = text.find("\"mean_us\":").expect("it has one") + 10;
        fs::write(file(i), [&text[..at], "1", &text[at..]].concat()).expect("it can be written");
    }
    let output = sim(&reproduce(&["--store", &store, "--verify", "2"]));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("differs: spanwire sim run uno-fig13a"), "{said}");
    fs::remove_dir_all(&dir).expect("it was created");
}

/// No room for all results: a message, exit code 1, and those that there was room for are whole.
#[test]
fn reproduce__a_full_disk_damages_nothing() {
    let isolated = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--map-root-user"]).args(args).output()
    };
    if !isolated(&["true"]).is_ok_and(|output| output.status.success()) {
        let required = std::env::var_os("SPANWIRE_REQUIRE_E2E").is_some_and(|v| v == "1");
        assert!(!required, "no mount namespace for a disk that gets full");
        eprintln!("SKIPPED: no mount namespace for a disk that gets full");
        return;
    }
    let dir = scratch("full-disk");
    let disk = dir.join("disk");
    fs::create_dir_all(&disk).expect("it can be created");
    let spanwire = env!("CARGO_BIN_EXE_spanwire");
    // Files of less than a page take one.
    let script = "mount -t tmpfs -o size=32k none disk && code=0 && \
        { \"$@\" --store disk || code=$?; } && cp -r disk/. kept && exit $code";
    let script = format!("cd {} && mkdir kept && {script}", dir.display());
    let args = [&["sh", "-c", &script, "sh", spanwire, "sim"], &reproduce(&[])[..]].concat();
    let output = isolated(&args).expect("it ran before");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let parts = ["cannot store a result: disk/", "No space left"];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    let kept = dir.join("kept");
    let names =
        fs::read_dir(&kept).expect("it was copied").map(|entry| entry.expect("it is").path());
    let names: Vec<PathBuf> = names.collect();
    assert!((1..24).contains(&names.len()), "{names:?}");
    for path in &names {
        let text = fs::read(path).expect("it can be read");
        let result: Value = serde_json::from_slice(&text).expect("it is whole");
        assert_eq!(path.file_stem().and_then(|name| name.to_str()), result["key"].as_str());
    }
    let (_, n) = stored(&["--store", kept.to_str().expect("it is UTF-8")]);
    assert_eq!(usize::try_from(n), Ok(names.len()), "they are used");
}

/// JSON without the time that it took.
fn untimed(args: &[&str]) -> Value {
    fn without_time(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.remove("wall_s");
                members.values_mut().for_each(without_time);
            }
            Value::Array(all) => all.iter_mut().for_each(without_time),
            _ => (),
        }
    }
    let (mut report, code) = json(args);
    assert_eq!(code, Some(0), "{report}");
    without_time(&mut report);
    report
}

/// Two shards at once fill a store; then a call without one runs nothing and reports what a call
/// without a store does. Returns the number of files.
fn shards_are_merged(name: &str, args: &[&str]) -> usize {
    let dir = scratch(name);
    let store = dir.to_str().expect("it is UTF-8").to_owned();
    let shards = ["0/2", "1/2"].map(|shard| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spanwire"));
        command.arg("sim").args(args).args(["--store", &store, "--shard", shard]);
        command.stdout(Stdio::null()).spawn().expect("it can be started")
    });
    for mut shard in shards {
        assert!(shard.wait().expect("it is a child").success());
    }
    let files = || {
        let all = fs::read_dir(&dir).expect("it exists").map(|entry| entry.expect("it is"));
        let mut all: Vec<_> =
            all.map(|e| (e.path(), e.metadata().expect("it is").modified().ok())).collect();
        all.sort();
        all
    };
    let before = files();
    assert_eq!(untimed(&[args, &["--store", &store]].concat()), untimed(args));
    assert_eq!(files(), before, "nothing was run again");
    before.len()
}

#[test]
fn compare__shards_are_merged() {
    let schemes = ["--key", "mode", "--schemes", "sr,rc", "--seeds", "3", "--set", "bytes=64KiB"];
    let args = [&["compare", "incast-32"][..], &schemes].concat();
    assert_eq!(shards_are_merged("compare-shards", &args), 6);
    let output = sim(&[&args[..], &["--shard", "0/2"]].concat());
    assert_eq!(output.status.code(), Some(2), "a shard needs a store: {}", stderr(&output));
}

#[test]
fn swarm__shards_are_merged() {
    assert_eq!(shards_are_merged("swarm-shards", &["swarm", "--seeds", "300"]), 2);
}
