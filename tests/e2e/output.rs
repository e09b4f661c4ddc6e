//! Output that cannot be written: `/dev/full` fails each write as a full disk does.

use crate::copy::{TempDir, receiver};
use crate::lab::{
    Lab, Outcome, PERF_PORT, Running, SPANWIRE, await_listener, piped, run_here, until,
};
use crate::switch::SwitchLab;
use spanwire_io::net::NetNs;
use std::fs;
use std::process::Command;

/// Runs spanwire with its stdout at `/dev/full`, in a namespace or in this one.
fn start_full(ns: Option<&NetNs>, args: &[&str]) -> Running {
    let shell = || Command::new("sh");
    let mut shell = ns.map_or_else(shell, |ns| ns.command("sh").expect("the namespace is there"));
    let redirect = ["-c", "exec \"$0\" \"$@\" > /dev/full", SPANWIRE];
    Running::spawn(piped(&mut shell, &[&redirect, args].concat()))
}

/// It says once why it failed, and exits with `code`.
fn check(args: &[&str], ended: &Outcome, code: i32, place: &str) {
    let Outcome { code: ended, stderr, .. } = ended;
    assert_eq!(*ended, Some(code), "{args:?}: {stderr}");
    let errors: Vec<_> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(
        errors.len() == 1 && errors[0].contains(place) && errors[0].contains("No space left"),
        "{args:?}: {stderr}"
    );
}

/// A finished run that `spanwire plot` can draw.
fn seeds(dir: &TempDir) -> String {
    let path = dir.join("seeds.json");
    let run = run_here(&["sim", "run", "pair", "--seeds", "2", "--json"]);
    fs::write(&path, run.stdout).expect("writable");
    path
}

#[test]
fn stdout__full_is_an_error_of_every_command() {
    let dir = TempDir::new();
    let (seeds, svg) = (seeds(&dir), dir.join("x.svg"));
    let plot = ["plot", "--violin", &seeds, "--out", &svg];
    let capture = format!("{}/../tests/golden/rxe/01_send_small.pcap", env!("CARGO_MANIFEST_DIR"));
    for args in [
        &["--help"][..],
        &["--version"],
        &["perf", "client", "--help"],
        &["sim", "list"],
        &["sim", "list", "--json"],
        &["sim", "run", "pair"],
        &["sim", "run", "pair", "--json"],
        &["sim", "run", "pair", "--seeds", "2"],
        &["sim", "run", "untuned", "--set", "quick=true", "--set", "only=100G/5us"],
        &["sim", "compare", "cc-solo", "--schemes", "swift,dcqcn"],
        &["sim", "swarm", "--seeds", "1"],
        &["sim", "swarm", "--seeds", "1", "--json"],
        &["pcap", &capture],
        &["pcap", &capture, "--json"],
        &["pcap", &capture, "--summary"],
        &["demo", "--fabric", "pipe", "--mib", "1", "--ms", "10"],
        &["demo", "--fabric", "pipe", "--mib", "1", "--ms", "10", "--json"],
        &plot,
    ] {
        check(args, &start_full(None, args).wait(), 1, "stdout");
    }
    // Its own exit code is 1 on a machine on which no interface works.
    check(&["doctor"], &start_full(None, &["doctor"]).wait(), 1, "stdout");
}

#[test]
fn stdout__a_closed_pipe_is_silent() {
    for args in [&["sim", "list"][..], &["sim", "run", "pair", "--json"], &["--help"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = Command::new(SPANWIRE).args(args).stdout(writer).output().expect("it runs");
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), &*stderr), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn stderr__full_does_not_change_the_exit_code() {
    for (args, code) in [
        (&["pcap", "/nonexistent"][..], 2),
        (&["sim", "run", "nothing"], 2),
        (&["plot"], 2),
        (&["sim", "run", "pair"], 0),
    ] {
        let redirect = ["-c", "exec \"$0\" \"$@\" 2> /dev/full", SPANWIRE];
        let mut shell = Command::new("sh");
        let ended = Running::spawn(piped(&mut shell, &[&redirect, args].concat())).wait();
        assert_eq!(ended.code, Some(code), "{args:?}");
    }
}

#[test]
fn plot__that_cannot_be_written_leaves_the_report() {
    let Some(lab) = Lab::new(1500) else { return };
    let server = lab.server(&[]);
    let args = ["--seconds", "1", "--interval", "0.1", "--plot", "/dev/full", "--json"];
    let ended = lab.client(lab.v4(), &args);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert_eq!(ended.json()["ok"], true, "{}", ended.stdout);
    assert!(ended.stderr.contains("error: --plot /dev/full: No space left"), "{}", ended.stderr);
    server.terminate();
}

#[test]
fn files__full_are_an_error() {
    let dir = TempDir::new();
    let seeds = seeds(&dir);
    let full = "/dev/full";
    for (args, code) in [
        (&["sim", "run", "pair", "--samples", full][..], 2),
        (&["sim", "run", "pair", "--flows", full], 2),
        (&["sim", "run", "pair", "--pcap", full], 2),
        (&["plot", "--violin", &seeds, "--out", full], 2),
    ] {
        check(args, &run_here(args), code, full);
    }
}

#[test]
fn stdout__full_is_an_error_of_perf_and_copy() {
    let Some(lab) = Lab::new(1500) else { return };
    let [a, b] = [&lab.hosts.a.ns, &lab.hosts.b.ns];
    let to = lab.v4().to_string();
    let serve = ["perf", "server", "--dev", "sw0", "--one-off"];
    let measure = ["perf", "client", &to, "--seconds", "0.2"];
    for json in [&[][..], &["--json"]] {
        let mut server = start_full(Some(a), &[&serve[..], json].concat());
        await_listener(a, PERF_PORT, &mut server);
        let client = start_full(Some(b), &[&measure[..], json].concat()).wait();
        check(&measure, &client, 1, "stdout");
        check(&serve, &server.wait(), 1, "stdout");
    }
    let (from, into) = (TempDir::new(), TempDir::new());
    let file = from.join("f");
    fs::write(&file, "x").expect("writable");
    let send = ["copy", "send", &file, &to];
    let receiver = receiver(&lab, &into, &["--once"]);
    check(&send, &start_full(Some(b), &send).wait(), 1, "stdout");
    receiver.terminate();
    assert_eq!(fs::read_to_string(into.join("f")).expect("it is there"), "x");
}

#[test]
fn captures__full_are_an_error_and_disturb_nothing() {
    let Some(lab) = Lab::new(1500) else { return };
    let to = lab.v4().to_string();
    let server = lab.server(&[]);
    // The second capture fits into the buffer, so only its end is written.
    for amount in [&["--transfer", "1M"][..], &["--transfer", "64"]] {
        let args = [&["perf", "client", &to, "--json", "--pcap", "/dev/full"], amount].concat();
        let client = lab.run(&lab.hosts.b.ns, &args);
        assert_eq!(client.json()["ok"], true, "{}", client.stderr);
        check(&args, &client, 1, "/dev/full");
    }
    server.terminate();
    let (from, into) = (TempDir::new(), TempDir::new());
    let file = from.join("f");
    fs::write(&file, "x").expect("writable");
    let receiver = receiver(&lab, &into, &["--once"]);
    let args = ["copy", "send", &file, &to, "--json", "--pcap", "/dev/full"];
    let sender = lab.run(&lab.hosts.b.ns, &args);
    assert_eq!(sender.json()["ok"], true, "{}", sender.stderr);
    check(&args, &sender, 1, "/dev/full");
    receiver.terminate();
}

#[test]
fn stdout__full_is_an_error_of_lab_and_switch_ctl() {
    let config = "[port.a]\nrate = '1Gbit'\n[port.b]\nrate = '1Gbit'\n";
    let Some(lab) = SwitchLab::new(config) else { return };
    for args in [
        &["lab", "status", "--name", &lab.name][..],
        &["lab", "status", "--name", &lab.name, "--json"],
        &["switch", "ctl", "--lab", &lab.name, "show"],
        &["switch", "ctl", "--lab", &lab.name, "show", "--json"],
        // It would repeat until a signal.
        &["switch", "ctl", "--lab", &lab.name, "show", "--interval", "0.01"],
        &["switch", "ctl", "--lab", &lab.name, "set", "port.a.loss=1%"],
    ] {
        check(args, &start_full(None, args).wait(), 1, "stdout");
    }
}

#[test]
fn stdout__full_is_an_error_of_a_switch_at_its_end() {
    let Some(lab) = Lab::new(1500) else { return };
    let (ns, dir) = (&lab.hosts.a.ns, TempDir::new());
    let mut netlink = spanwire_io::net::Netlink::open_in(ns).expect("privileged");
    for [port, end] in [["p0", "e0"], ["p1", "e1"]] {
        let mut ip = ns.command("ip").expect("the namespace is there");
        let args = ["link", "add", port, "type", "veth", "peer", "name", end];
        assert!(Running::spawn(piped(&mut ip, &args)).wait().success);
        for link in [port, end] {
            netlink.set_up(link).expect("privileged");
        }
    }
    let (config, socket) = (dir.join("switch.toml"), dir.join("socket"));
    let ports = ["p0", "p1"].map(|dev| format!("[port.{dev}]\ndevice = '{dev}'\nrate = '1Gbit'\n"));
    fs::write(&config, ports.concat()).expect("writable");
    for more in [&["--json"][..], &["--interval", "0.05"]] {
        let args = [&["switch", "--config", &config, "--socket", &socket], more].concat();
        let switch = start_full(Some(ns), &args);
        let show = ["switch", "ctl", "--socket", &socket, "show"];
        until("the switch answers", || lab.run(ns, &show).success);
        check(&args, &switch.end_with(libc::SIGTERM), 1, "stdout");
    }
}
