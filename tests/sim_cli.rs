//! `spanwire sim` as a command: its output, files and exit codes. Needs no privileges.
#![expect(non_snake_case, reason = "tests are named function__case")]

#[path = "sim_cli/stores.rs"]
mod stores;

use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The directed scenarios, by name.
const DIRECTED: [&str; 11] = [
    "pair",
    "dumbbell-2",
    "dumbbell-16",
    "incast-32",
    "loss-1",
    "reorder-5",
    "dup",
    "corrupt",
    "blackhole",
    "pfc-storm",
    "flap",
];

fn sim(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spanwire"));
    command.arg("sim").args(args).output().expect("it runs")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("it prints UTF-8")
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("it prints UTF-8")
}

/// The output of `sim ARGS --json`, and the exit code.
fn json(args: &[&str]) -> (Value, Option<i32>) {
    let output = sim(&[args, &["--json"]].concat());
    let text = stdout(&output);
    assert_eq!(text.trim_end().lines().count(), 1, "one object: {text}{}", stderr(&output));
    (serde_json::from_str(text).expect("it is JSON"), output.status.code())
}

/// An empty directory for one test.
fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a directory");
    dir
}

fn text_of(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

#[test]
fn run__every_directed_scenario_twice() {
    for name in DIRECTED {
        let [(a, code), (b, _)] = [0; 2].map(|_| json(&["run", name, "--seed", "3"]));
        assert_eq!(code, Some(0), "{name}: {}", a["violations"]);
        assert_eq!((&a["scenario"], &a["seed"]), (&name.into(), &3.into()));
        assert_eq!(a["checkers_ok"], true, "{name}");
        assert_eq!(a["event_hash"].as_str().map(str::len), Some(16), "{name}");
        assert_eq!(a["event_hash"], b["event_hash"], "{name}");
        for member in ["events", "packet_hops"] {
            assert!(a[member].as_u64().is_some_and(|n| n > 100), "{name}: {member}");
            assert_eq!(a[member], b[member], "{name}: {member}");
        }
        assert!(a["wall_s"].as_f64().is_some_and(|s| s > 0.0), "{name}");
        assert!(a["queues"].is_array() && a["drops"].is_object(), "{name}");
        let flows = a["flows"].as_array().expect("flows");
        assert!(!flows.is_empty(), "{name}");
        for flow in flows {
            for member in ["src", "dst", "bytes"] {
                assert!(flow[member].is_u64(), "{name}: flows[].{member}");
            }
            for member in ["fct_us", "goodput_gbps"] {
                assert!(flow[member].as_f64().is_some_and(|n| n > 0.0), "{name}: {member}");
            }
        }
        assert_eq!(a["flows"], b["flows"], "{name}");
    }
}

#[test]
fn run__faults_are_counted_where_they_occur() {
    for (name, cause) in [
        ("loss-1", "line_loss"),
        ("corrupt", "host_bad_icrc"),
        ("blackhole", "line_blackhole"),
        ("flap", "line_link_down"),
    ] {
        let (report, _) = json(&["run", name]);
        assert!(report["drops"][cause].as_u64() > Some(0), "{name}: {}", report["drops"]);
    }
    let (report, _) = json(&["run", "pfc-storm"]);
    assert_eq!(report["drops"], serde_json::json!({}), "a lossless network");
}

#[test]
fn run__seeds_and_parameters_change_the_result() {
    let hash = |args: &[&str]| json(args).0["event_hash"].clone();
    let plain = hash(&["run", "loss-1", "--seed", "1"]);
    assert_ne!(plain, hash(&["run", "loss-1", "--seed", "2"]));
    assert_ne!(plain, hash(&["run", "loss-1", "--seed", "1", "--set", "chance=2%"]));
    let (report, _) = json(&["run", "pair", "--set", "bytes=10000", "--set", "mtu=1024"]);
    assert_eq!(report["flows"][0]["bytes"], 10_000);
    assert_eq!(report["parameters"]["mtu"], "1024");
}

#[test]
fn run__watching_changes_nothing() {
    let dir = scratch("sim-watched");
    let (plot, pcap, csv) = (dir.join("p"), dir.join("x.pcap"), dir.join("s.csv"));
    let (plain, _) = json(&["run", "flap"]);
    let watched = ["run", "flap", "--plot", text_of(&plot), "--pcap", text_of(&pcap)];
    let (watched, _) = json(&[&watched[..], &["--samples", text_of(&csv)]].concat());
    assert_eq!(plain["event_hash"], watched["event_hash"]);
    assert!(watched.get("series").is_none(), "series go to files");
}

#[test]
fn run__a_failed_check_is_exit_code_1() {
    let lost = ["run", "loss-1", "--set", "chance=100%", "--set", "bytes=4KiB"];
    let (report, code) = json(&lost);
    assert_eq!((code, &report["checkers_ok"]), (Some(1), &Value::Bool(false)));
    assert!(!report["violations"].as_array().expect("a list").is_empty());
    let output = sim(&lost);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("checkers: FAILED"), "{}", stdout(&output));
}

#[test]
fn run__unknown_names_are_reported_with_alternatives() {
    for (args, parts) in [
        (
            &["run", "incast32"][..],
            &["no scenario `incast32`", "did you mean `incast-32`", "flap"][..],
        ),
        (&["run", "pair", "--set", "byte=1"], &["no parameter `byte`", "did you mean `bytes`"]),
        (&["run", "pair", "--set", "rate=fast"], &["rate", "fast", "Gbit"]),
        (&["run", "pair", "--set", "rate"], &["KEY=VALUE"]),
        (&["run", "pair", "--pcap", "x", "--pcap-link", "h0-h9"], &["no link `h0-h9`", "h0-h1"]),
        (&["run", "pair", "--samples", "/nowhere/x.csv"], &["cannot write /nowhere/x.csv"]),
    ] {
        let output = sim(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        for part in parts {
            assert!(stderr(&output).contains(part), "{args:?}: {}", stderr(&output));
        }
    }
}

#[test]
fn run__a_file_is_equivalent_to_the_command_line() {
    let dir = scratch("file");
    let path = dir.join("scenario.toml");
    let text = "scenario = \"dumbbell-2\"\nseed = 7\n\n[set]\nbytes = \"64KiB\"\nmtu = 1024\n\
                pfc = true\ncc = \"swift\"\n\"cc.beta\" = 0.5\n";
    fs::write(&path, text).expect("it can be written");
    let file = ["run", "--file", text_of(&path)];
    let (of_file, code) = json(&file);
    assert_eq!(code, Some(0));
    assert_eq!(of_file["parameters"]["cc"], "swift,beta=0.5");
    let set = ["bytes=64KiB", "mtu=1024", "pfc=true", "cc.beta=0.5", "cc=swift"];
    let args = [&["run", "dumbbell-2", "--seed", "7"][..], &set.map(|s| ["--set", s]).concat()];
    let (of_line, _) = json(&args.concat());
    assert_eq!(of_file["event_hash"], of_line["event_hash"]);
    // The command line takes precedence.
    let (other, _) = json(&[&file[..], &["--seed", "8", "--set", "cc.beta=0.25"]].concat());
    let cc = &other["parameters"]["cc"];
    assert_eq!((&other["seed"], cc), (&8.into(), &"swift,beta=0.25".into()));
    for (text, says) in [
        ("scenario = \"dumbbell\"", "did you mean `dumbbell-2`"),
        ("scenario = \"pair\"\nsets = 1", "unknown field `sets`"),
        ("scenario = \"pair\"\n[set]\ncc = \"cubic\"", "unocc"),
        ("seed = 1", "missing field `scenario`"),
    ] {
        fs::write(&path, text).expect("it can be written");
        let output = sim(&file);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(stderr(&output).contains(says), "{text}: {}", stderr(&output));
    }
    assert_eq!(sim(&[&file[..], &["pair"]].concat()).status.code(), Some(2), "both");
    assert_eq!(sim(&["run"]).status.code(), Some(2), "neither");
}

#[test]
fn run__errors_have_no_control_characters_of_a_file_or_its_name() {
    let dir = scratch("control-characters");
    let evil = r"x\u001b[2J\r\nerror: forged";
    let (no_toml, file) = (dir.join("no\x1b[2J.toml"), dir.join("scenario.toml"));
    fs::write(&no_toml, "scenario = 'pair'\n\x1b[2J = 1\r\x1b[2J\n").expect("writable");
    let mut errors = vec![sim(&["run", "--file", text_of(&no_toml)])];
    for text in [
        format!("scenario = \"{evil}\""),
        format!("scenario = 'pair'\n\"{evil}\" = 1"),
        format!("scenario = 'pair'\nset.\"{evil}\" = 1"),
        format!("scenario = 'pair'\nset.mtu = \"{evil}\""),
        format!("scenario = 'laecn-burst'\nset.\"agent.model\" = \"{evil}\""),
    ] {
        fs::write(&file, text).expect("writable");
        errors.push(sim(&["run", "--file", text_of(&file)]));
    }
    for output in errors {
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text:?}");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert!(text.starts_with("error: ") && !text.contains("\nerror: "), "{text:?}");
    }
}

#[test]
fn run__a_device_without_an_end_is_a_usage_error() {
    for args in [
        &["run", "--file", "/dev/zero"][..],
        &["run", "laecn-burst", "--set", "agent.model=/dev/zero"],
    ] {
        let output = sim(args);
        let text = stderr(&output);
        assert!(text.contains("/dev/zero") && text.contains("at most 1 MiB"), "{text:?}");
        assert_eq!(output.status.code(), Some(2), "{text:?}");
    }
}

#[test]
fn run__sharing_has_its_members_and_a_figure_of_fairness() {
    let dir = scratch("sharing");
    let set = ["cc=swift", "flows=2", "stagger=1ms", "time=5ms", "smooth=500us"];
    let args =
        [&["run", "cc-fairness", "--plot", text_of(&dir)][..], &set.map(|s| ["--set", s]).concat()];
    let (report, code) = json(&args.concat());
    assert_eq!(code, Some(0));
    for member in ["utilisation", "jain", "jain_time_us", "queue_bytes_mean", "queue_bytes_p99"] {
        assert!(report[member].is_number(), "{member}: {}", report[member]);
    }
    assert!(report.get("inter_intra_ratio").is_some_and(Value::is_null));
    assert!(report["utilisation"].as_f64().is_some_and(|u| u > 0.9 && u <= 1.0));
    let figure = fs::read_to_string(dir.join("jain.svg")).expect("it was drawn");
    assert!(figure.contains("Jain"), "{figure}");
    let page = fs::read_to_string(dir.join("index.html")).expect("it was written");
    assert!(page.contains("jain.svg") && page.contains("rates.svg"));
    let (report, _) = json(&["run", "cc-solo", "--set", "cc=dctcp", "--set", "time=1ms"]);
    assert!(report["jain"].is_null() && report["jain_time_us"].is_null());
    let (report, _) = json(&["run", "pair"]);
    assert!(report.get("utilisation").is_none(), "only in scenarios that measure sharing");
}

#[test]
fn run__the_table_has_the_essentials() {
    let output = sim(&["run", "incast-32"]);
    let text = stdout(&output);
    for part in ["incast-32, seed 1", "32 of 32 flows done", "hub:32", "checkers: ok", "a second"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    assert!(text.lines().count() < 40, "it is compact");
}

#[test]
fn run__plots_are_reproducible_and_on_the_page() {
    let [a, b] = ["sim-plot-a", "sim-plot-b"].map(scratch);
    for dir in [&a, &b] {
        let output = sim(&["run", "incast-32", "--plot", text_of(dir)]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    let page = fs::read_to_string(a.join("index.html")).expect("index.html");
    for name in ["rates.svg", "windows.svg", "queues.svg", "fct_cdf.svg", "fct_violin.svg"] {
        let [svg, again] = [&a, &b].map(|dir| fs::read_to_string(dir.join(name)).expect(name));
        assert_eq!(svg, again, "{name}");
        let document = roxmltree::Document::parse(&svg).expect(name);
        assert_eq!(document.root_element().attribute("width"), Some("900"), "{name}");
        assert!(!svg.contains("no data"), "{name}");
        assert!(page.contains(&format!("src=\"{name}\"")), "{name}");
    }
    assert!(page.contains("512KiB"), "its parameters");
}

#[test]
fn run__csv_rows_have_equal_numbers_of_fields() {
    let dir = scratch("sim-csv");
    let [samples, flows] = ["samples.csv", "flows.csv"].map(|name| dir.join(name));
    let args = ["run", "dumbbell-2", "--samples", text_of(&samples), "--flows", text_of(&flows)];
    assert_eq!(sim(&args).status.code(), Some(0));
    for (path, lines_min) in [(&samples, 20), (&flows, 3)] {
        let text = fs::read_to_string(path).expect("it was written");
        let fields: Vec<usize> = text.lines().map(|l| l.split(',').count()).collect();
        assert!(fields.len() >= lines_min, "{path:?}: {} lines", fields.len());
        assert!(fields.iter().all(|n| *n == fields[0] && *n > 4), "{path:?}: {fields:?}");
    }
    let text = fs::read_to_string(&samples).expect("it was written");
    assert!(text.starts_with("time_us,flow 0 gbps,"), "{text}");
}

#[test]
fn run__a_capture_of_whole_frames_has_good_icrcs() {
    for mode in ["mode=rc", "mode=sr"] {
        let file = scratch("sim-pcap").join("pair.pcap");
        let args = ["run", "pair", "--set", "bytes=100000", "--set", mode];
        let (report, _) = json(&[&args[..], &["--pcap", text_of(&file)]].concat());
        let capture = capture(&file);
        // A single cable: the frames sent and received at this end are all frames.
        assert_eq!(capture["frames"], report["packet_hops"], "{mode}");
        assert_eq!(capture["icrc_good"], capture["frames"], "{mode}");
        let speaks_sr = capture["opcodes"]["SR Data"].as_u64() > Some(100);
        assert_eq!(speaks_sr, mode == "mode=sr", "{capture}");
    }
}

#[test]
fn run__a_capture_of_elided_frames_has_the_lengths_of_the_wire() {
    for mode in ["mode=rc", "mode=sr"] {
        let file = scratch("sim-pcap-elided").join("left.pcap");
        let args = ["run", "dumbbell-2", "--set", "payload=elided", "--set", mode];
        let only = ["--pcap-link", "left-right", "--pcap", text_of(&file)];
        let (report, _) = json(&[&args[..], &only].concat());
        let capture = capture(&file);
        assert!(capture["truncated"].as_u64() > Some(1_000), "{capture}");
        assert_eq!(capture["parse_errors"], 0);
        let Ok(dump) = Command::new("tshark")
            .args(["-r", text_of(&file), "-T", "fields", "-e", "frame.len", "-e", "ip.len"])
            .output()
        else {
            eprintln!("SKIPPED: no tshark to read the capture with");
            return;
        };
        assert!(dump.status.success(), "{}", stderr(&dump));
        let mut data_frames = 0;
        for line in stdout(&dump).lines() {
            let mut fields = line.split('\t').map(|n| n.parse::<u64>().expect("a number"));
            let (frame, ip) = (fields.next().expect("frame.len"), fields.next().expect("ip.len"));
            assert_eq!(frame, 14 + ip, "the frame is as long as its IP packet says");
            data_frames += u64::from(ip > 4096);
        }
        let bytes: u64 = (report["flows"].as_array().into_iter().flatten())
            .filter_map(|flow| flow["bytes"].as_u64())
            .sum();
        assert!(data_frames >= bytes / 4096, "{data_frames} frames of data");
    }
}

/// The report of `spanwire pcap` on a file without a broken frame.
#[track_caller]
fn capture(file: &Path) -> Value {
    let read = Command::new(env!("CARGO_BIN_EXE_spanwire"))
        .args(["pcap", "--json", text_of(file)])
        .output()
        .expect("it runs");
    let capture: Value = serde_json::from_str(stdout(&read)).expect("JSON");
    assert_eq!(read.status.code(), Some(0), "{capture}");
    capture
}

/// A few short runs of `sim run loss-sweep`.
const SHORT_SWEEP: [&str; 12] = [
    "run",
    "loss-sweep",
    "--set",
    "rtt=20us,2ms",
    "--set",
    "loss=0,1%,5%",
    "--set",
    "late=10us,1ms",
    "--set",
    "time=50ms",
    "--set",
    "trips=20",
];

#[test]
fn loss_sweep__has_a_row_for_each_path_and_mode_and_sr_meets_its_bars() {
    let (report, code) = json(&SHORT_SWEEP);
    assert_eq!(code, Some(0), "{report}");
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2 * (3 + 2) * 2);
    let number = |row: &Value, member: &str| row[member].as_f64().expect("a number");
    for pair in rows.chunks(2) {
        assert_eq!((&pair[0]["mode"], &pair[1]["mode"]), (&"rc".into(), &"sr".into()));
        for member in ["loss", "rtt_us", "reorder_us"] {
            assert_eq!(pair[0][member], pair[1][member], "the same path");
        }
        let (loss, late) = (number(&pair[1], "loss"), number(&pair[1], "reorder_us"));
        let [rc, sr] = [0, 1].map(|i| number(&pair[i], "goodput_fraction"));
        assert!(sr >= 0.9 * (1.0 - loss) && sr < 1.0 && sr >= rc, "{pair:?}");
        let vain = number(&pair[1], "spurious_retx_fraction");
        assert!(late == 0.0 || vain <= 0.01, "{pair:?}");
    }
    let mut seen: Vec<f64> = rows.iter().map(|r| number(r, "loss")).collect();
    seen.sort_by(f64::total_cmp);
    seen.dedup();
    assert_eq!(seen, [0.0, 0.01, 0.05]);
    assert_eq!(report["bars"].as_array().map(Vec::len), Some(3));
    assert_eq!(report["checkers_ok"], true);
    let (again, _) = json(&SHORT_SWEEP);
    assert_eq!(report["rows"], again["rows"], "one seed gave two results");
}

#[test]
fn loss_sweep__has_a_table_figures_and_errors() {
    let dir = scratch("sim-sweep");
    let output = sim(&[&SHORT_SWEEP[..], &["--plot", text_of(&dir)]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in
        ["loss-sweep, seed 1, a link of 25Gbit", "ok: SR has at least the goodput", "checkers: ok"]
    {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    let page = fs::read_to_string(dir.join("index.html")).expect("index.html");
    for name in ["loss_20us.svg", "late_20us.svg", "loss_2ms.svg", "late_2ms.svg"] {
        let svg = fs::read_to_string(dir.join(name)).expect(name);
        roxmltree::Document::parse(&svg).expect(name);
        assert!(!svg.contains("no data") && page.contains(&format!("src=\"{name}\"")), "{name}");
    }
    for (args, part) in [
        (&["run", "loss-sweep", "--set", "losses=1%"][..], "did you mean `loss`"),
        (&["run", "loss-sweep", "--set", "rtt=soon"], "rtt"),
        (&["run", "loss-sweep", "--pcap", "x"], "--pcap"),
        (&["run", "loss-swep"], "did you mean `loss-sweep`"),
    ] {
        let output = sim(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(part), "{args:?}: {}", stderr(&output));
    }
}

#[test]
fn list__has_every_directed_scenario_and_their_parameters() {
    let short = sim(&["list"]);
    let long = sim(&["list", "--verbose"]);
    for name in DIRECTED {
        let named = |text: &str| text.lines().any(|l| l.split_whitespace().next() == Some(name));
        assert!(named(stdout(&short)) && named(stdout(&long)), "{name}");
    }
    assert!(!stdout(&short).contains("rate=") && stdout(&long).contains("rate=100Gbit"));
    let json = sim(&["list", "--json"]);
    let entries: Vec<Value> = serde_json::from_str(stdout(&json)).expect("JSON");
    assert_eq!(entries.len(), stdout(&short).lines().count());
    for entry in entries {
        assert!(entry["parameters"][0]["value"].is_string(), "{entry}");
    }
}

#[test]
fn swarm__is_independent_of_the_number_of_threads() {
    let run = |threads: &str| {
        let (report, code) =
            json(&["swarm", "--seeds", "20", "--start", "7", "--threads", threads]);
        assert_eq!(code, Some(0), "{report}");
        assert_eq!((&report["ok"], &report["done"]), (&Value::Bool(true), &20.into()));
        assert_eq!(report["failed"], serde_json::json!([]));
        ["event_hash", "events", "packet_hops", "flows"].map(|member| report[member].clone())
    };
    assert_eq!(run("1"), run("4"));
}

#[test]
fn swarm__prints_a_summary() {
    let output = sim(&["swarm", "--seeds", "3"]);
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    assert!(text.starts_with("3 seeds from 0: 3 passed, 0 failed\n"), "{text}");
    assert!(stderr(&output).is_empty(), "no progress without a terminal");
}

/// True if process `pid` handles interrupts, which would else end it without a report, and has used
/// its cores for two seconds, in which many seeds end.
fn has_worked(pid: &str) -> bool {
    let read =
        |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).expect("it runs");
    let status = read("status");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask");
    let caught = u64::from_str_radix(caught.trim(), 16).expect("hexadecimal");
    // Signal 2 is bit 1. Ticks of 10 ms are the 14th field, and the 12th after the name.
    let stat = read("stat");
    let fields = stat.rsplit_once(") ").expect("a name").1;
    let ticks: u64 = fields.split(' ').nth(11).and_then(|n| n.parse().ok()).expect("a number");
    caught & 2 != 0 && ticks >= 200
}

#[test]
fn swarm__with_agents_runs_only_the_seeds_that_draw_them() {
    let describe = ["swarm", "--seeds", "12", "--describe"];
    let (all, code) = json(&describe);
    assert_eq!((code, &all["skipped"]), (Some(0), &0.into()));
    let seeds = |report: &Value| -> Vec<(u64, bool)> {
        let drawn = report["drawn"].as_array().expect("a list").iter();
        let has_agents = |d: &Value| d["drawn"].to_string().contains("[\"agent\"");
        drawn.map(|d| (d["seed"].as_u64().expect("a number"), has_agents(d))).collect()
    };
    let with: Vec<_> = seeds(&all).into_iter().filter(|(_, has)| *has).collect();
    assert!((1..12).contains(&with.len()), "{with:?}");
    let (some, code) = json(&[&describe[..], &["--with", "agents"]].concat());
    assert_eq!((code, seeds(&some)), (Some(0), with.clone()));
    assert_eq!(some["done"], 12);
    assert_eq!(some["skipped"], 12 - with.len());
    let unknown = sim(&["swarm", "--seeds", "1", "--with", "wings"]);
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn swarm__an_interrupt_ends_it_with_a_report() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_spanwire"))
        .args(["sim", "swarm", "--seeds", "1000000000", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let pid = child.id().to_string();
    let deadline = Instant::now() + Duration::from_secs(300);
    while !has_worked(&pid) {
        assert!(Instant::now() < deadline, "it does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    let killed = Command::new("kill").args(["-INT", &pid]).status().expect("kill runs");
    assert!(killed.success());
    let mut text = String::new();
    let mut out = child.stdout.take().expect("it is a pipe");
    out.read_to_string(&mut text).expect("it prints UTF-8");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&report["ok"], &report["failed"]), (&Value::Bool(false), &serde_json::json!([])));
    let done = report["done"].as_u64().expect("a number");
    assert!((1..1_000_000_000).contains(&done), "{done}");
}

#[test]
fn swarm__too_many_seeds_are_a_usage_error() {
    let output = sim(&["swarm", "--seeds", "2", "--start", "18446744073709551615"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("not as many seeds"), "{}", stderr(&output));
}

#[test]
fn compare__has_each_scheme_as_a_run_of_many_seeds() {
    let args = ["compare", "pair", "--key", "mode", "--schemes", "rc,sr", "--seeds", "2"];
    let (report, code) = json(&args);
    assert_eq!((code, report["key"].as_str()), (Some(0), Some("mode")));
    let schemes = report["schemes"].as_array().expect("a list");
    let names: Vec<_> = schemes.iter().map(|s| s["scheme"].as_str()).collect();
    assert_eq!(names, [Some("rc"), Some("sr")]);
    for scheme in schemes {
        assert_eq!(scheme["seeds"].as_array().map(Vec::len), Some(2));
        assert!(scheme["summary"]["mean_us"]["median"].is_number(), "{scheme}");
    }
    // Without `--key` the schemes of `pair` are its congestion controls.
    let output = sim(&["compare", "pair", "--schemes", "a"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("cc is \"a\""), "{}", stderr(&output));
}

#[test]
fn compare__flows_without_an_end_have_not_failed() {
    let small = ["--set", "time=300us"];
    for (name, schemes, own) in
        [("cc-fairness", "swift,dcqcn", &small), ("pacc-steady", "pacc,dcqcn", &small)]
    {
        let args = [&["compare", name, "--schemes", schemes][..], own].concat();
        let (report, code) = json(&args);
        assert_eq!(code, Some(0), "{name}");
        for scheme in report["schemes"].as_array().expect("a list") {
            assert_eq!(scheme["summary"]["failed"], 0, "{name}");
            assert_eq!(scheme["seeds"][0]["failed"], 0, "{name}");
        }
    }
}

#[test]
fn compare__without_a_key_the_scenario_declares_what_schemes_are() {
    let small = ["--set", "time=60us", "--set", "sizes=fb_hadoop"];
    let line = "compare reflex-fct --set cc=swift --set load=70 --schemes off,nsf --seeds 2";
    let line: Vec<&str> = line.split(' ').chain(small).collect();
    let (report, code) = json(&line);
    assert_eq!((code, report["key"].as_str()), (Some(0), Some("reflex")));
    for (at, reflex) in [(0, "off"), (1, "nsf")] {
        let scheme = &report["schemes"][at];
        assert_eq!(scheme["scheme"], reflex);
        assert_eq!(scheme["parameters"]["reflex"], reflex);
        assert_eq!(scheme["parameters"]["cc"], "swift");
        let groups = scheme["seeds"][1]["groups"].as_array().expect("a list");
        let names: Vec<_> = groups.iter().map(|group| group["name"].as_str()).collect();
        assert_eq!(names, [Some("all"), Some("intra"), Some("inter")]);
    }
}
