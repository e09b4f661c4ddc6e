//! Help texts of the command, and its use by an unprivileged user.

use crate::copy::{TempDir, noise};
use crate::lab::{Lab, Outcome, Running, SPANWIRE, piped, run_here};
use spanwire_io::net::NetNs;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const COMMANDS: [&str; 9] =
    ["demo", "perf", "copy", "lab", "switch", "doctor", "pcap", "plot", "sim"];

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

/// A copy of the command with exactly the capabilities that `doctor` advises, as `setcap` would set
/// them.
fn with_capabilities(dir: &TempDir) -> String {
    let program = dir.join("spanwire");
    fs::copy(SPANWIRE, &program).unwrap();
    fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o755)).unwrap();
    let bits = spanwire_host::diagnosis::CAPABILITIES.split(',').map(|name| match name {
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
    let program = with_capabilities(&bin);
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
