//! Help texts of the command, and its use by an unprivileged user.

use crate::copy::{TempDir, noise};
use crate::lab::{Lab, Outcome, Running, SPANWIRE, piped, run_here};
use spanwire_host::diagnosis::CAPABILITIES;
use spanwire_io::net::NetNs;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const COMMANDS: [&str; 10] =
    ["demo", "perf", "run", "copy", "lab", "switch", "doctor", "pcap", "plot", "sim"];

#[test]
fn help__describes_every_command_in_a_line() {
    let help = run_here(&["--help"]).stdout;
    let about = help.lines().next().expect("a first line");
    // The first line describes all commands, so it names none or all of them.
    let named = COMMANDS.iter().filter(|command| about.contains(**command)).count();
    assert!(!about.is_empty() && (named == 0 || named == COMMANDS.len()), "{about}");
    let (_, rest) = help.split_once("\nCommands:\n").expect("a list of commands");
    let (list, _) = rest.split_once("\n\n").expect("it ends");
    let rows: Vec<(&str, &str)> =
        list.lines().map(|row| row.trim().split_once(' ').unwrap_or((row.trim(), ""))).collect();
    let names: Vec<&str> = rows.iter().map(|(name, _)| *name).filter(|n| *n != "help").collect();
    assert_eq!(names, COMMANDS);
    for (name, description) in rows {
        assert!(description.trim().len() > 20, "{name}: {description:?}");
    }
    for command in COMMANDS {
        let Outcome { code, stdout, .. } = run_here(&[command, "--help"]);
        assert!(code == Some(0) && stdout.contains("Usage:"), "{command}: {stdout}");
    }
}

/// A copy of the command with exactly the capabilities of that list, as `setcap` would set them.
fn with_capabilities(dir: &TempDir, names: &str) -> String {
    let program = dir.join("spanwire");
    fs::copy(SPANWIRE, &program).unwrap();
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o755)).unwrap();
    let bits = names.split(',').map(|name| match name {
        "cap_net_admin" => 1 << 12,
        "cap_net_raw" => 1 << 13,
        "cap_ipc_lock" => 1 << 14,
        "cap_bpf" => 1 << 39,
        other => panic!("{other} has no number in this test"),
    });
    let permitted: u64 = bits.sum();
    // struct vfs_cap_data of linux/capability.h: magic, then permitted and inheritable, low and
    // high words, in little endian.
    const REVISION_2_EFFECTIVE: u32 = 0x0200_0001;
    let permitted = permitted.to_le_bytes();
    let (low, high) = permitted.split_at(4);
    let (magic, zero) = (REVISION_2_EFFECTIVE.to_le_bytes(), [0; 4]);
    let data = [&magic[..], low, &zero, high, &zero].concat();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&program, "security.capability", &data, flags).unwrap();
    program
}

fn as_nobody(ns: &NetNs, program: &str, args: &[&str]) -> Command {
    let mut command = ns.command("setpriv").unwrap();
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups", program];
    piped(&mut command, &[&user, args].concat());
    command
}

#[test]
fn rights__the_capabilities_that_doctor_advises_are_enough() {
    let Some(lab) = Lab::new(1500) else { return };
    let (bin, from, into) = (TempDir::new(), TempDir::new(), TempDir::new());
    let program = with_capabilities(&bin, CAPABILITIES);
    for dir in [&from, &into] {
        fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let (file, bytes) = (from.join("f"), noise(3 << 20, 11));
    fs::write(&file, &bytes).unwrap();
    let to = lab.v4().to_string();
    let doctor = ["doctor", "--dev", "sw0", "--json"];
    let doctor = Running::spawn(&mut as_nobody(&lab.hosts.a.ns, &program, &doctor)).wait();
    let report = doctor.json();
    let rights = report["host"].as_array().unwrap().iter().find(|c| c["name"] == "rights");
    assert_eq!(rights.unwrap()["status"], "ok", "{report}");
    let serve = ["copy", "receive", "--dev", "sw0", "--once", "--into", &into.join("")];
    let mut serve = as_nobody(&lab.hosts.a.ns, &program, &serve);
    let receiver = Running::spawn_until(&mut serve, "receiving on sw0");
    let send = as_nobody(&lab.hosts.b.ns, &program, &["copy", "send", &file, &to, "--json"]);
    let sent = Running::spawn(&mut { send }).wait();
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    assert_eq!(receiver.wait().code, Some(0));
    assert!(fs::read(into.join("f")).unwrap() == bytes, "bytes differ");
}

/// The kernel counts locked memory by user, over all processes of the machine: each end has a user
/// that no other process has.
fn with_memlock(ns: &NetNs, bytes: u32, end: u32, program: &str, args: &[&str]) -> Command {
    let mut command = ns.command("prlimit").unwrap();
    let limit = format!("--memlock={bytes}:{bytes}");
    let user = format!("--reuid={}", (1 << 20) + 2 * std::process::id() + end);
    let start = [&limit, "setpriv", &user, "--regid=65534", "--clear-groups", program];
    piped(&mut command, &[&start, args].concat());
    command
}

#[test]
fn rights__the_receive_ring_fits_the_limit_of_locked_memory() {
    let Some(lab) = Lab::new(1500) else { return };
    let bin = TempDir::new();
    let program = with_capabilities(&bin, "cap_net_raw,cap_net_admin,cap_bpf");
    let (a, b) = (&lab.hosts.a.ns, &lab.hosts.b.ns);
    let to = lab.v4().to_string();
    for (mib, cc, packets) in [(8, "auto", Some(1024)), (4, "auto", Some(256)), (4, "none", None)] {
        let serve = ["perf", "server", "--dev", "sw0", "--cc", cc];
        let server =
            Running::spawn_until(&mut with_memlock(a, mib << 20, 0, &program, &serve), "serving");
        // The memory of the client before is still counted when the next one starts.
        for client in 0..3 {
            let run = ["perf", "client", "--dev", "sw0", &to, "--cc", cc, "--transfer", "1M"];
            let run = [&run[..], &["--json"]].concat();
            let ended = Running::spawn(&mut with_memlock(b, mib << 20, 1, &program, &run)).wait();
            let report = ended.json();
            let is_xdp = (&report["ok"], &report["fabric"]) == (&true.into(), &"af_xdp".into());
            assert!(is_xdp, "{mib} MiB, {cc}: {report}, {}", ended.stderr);
            let line =
                packets.map(|n| format!("the receive ring holds {n} packets instead of 4096"));
            if client == 0 {
                assert_eq!(ended.stderr.is_empty(), line.is_none(), "{}", ended.stderr);
                assert!(ended.stderr.contains(&line.unwrap_or_default()), "{}", ended.stderr);
            }
        }
        server.terminate();
    }
    // Too little for any port.
    let run = ["perf", "server", "--dev", "sw0", "--fabric", "xdp"];
    let refused = Running::spawn(&mut with_memlock(b, 1 << 20, 1, &program, &run)).wait();
    assert!(!refused.success && refused.stderr.contains("RLIMIT_MEMLOCK"), "{}", refused.stderr);
    let doctor = ["doctor", "--dev", "sw0", "--json"];
    let report = Running::spawn(&mut with_memlock(b, 8 << 20, 1, &program, &doctor)).wait().json();
    let memlock = report["host"].as_array().unwrap().iter().find(|c| c["name"] == "memlock");
    let found = memlock.unwrap()["found"].as_str().unwrap_or_default();
    assert!(found.contains("receives 1024 packets at once, not 4096"), "{report}");
}
