//! The UDP port: processes without privilege, over sockets of the kernel.

use crate::lab::{self, Running};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The user `nobody`: without capabilities, and without access to the directory of the binary.
const NOBODY: u32 = 65_534;

/// A spanwire command without privilege. As root it runs as [`NOBODY`]; any other user runs it
/// itself.
struct Unprivileged {
    /// Keeps the binary reachable by number, whatever directory it is in.
    _binary: File,
    command: Command,
}

impl Unprivileged {
    fn new(args: &[&str]) -> Self {
        let binary = File::open(lab::SPANWIRE).expect("built for this test");
        let mut command = Command::new(format!("/proc/self/fd/{}", binary.as_raw_fd()));
        lab::piped(&mut command, args);
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY).current_dir("/");
        }
        Self { _binary: binary, command }
    }

    fn start(mut self) -> Running {
        Running::spawn(&mut self.command)
    }
}

#[test]
fn demo__as_nobody_runs_over_udp_sockets() {
    let args = ["demo", "--json", "--mib", "64", "--ms", "100"];
    let outcome = Unprivileged::new(&args).start().wait();
    let report = outcome.json();
    assert_eq!((&report["ok"], &report["fabric"]), (&true.into(), &"udp".into()), "{report}");
    assert_eq!(report["transfer"]["bytes"], 64 << 20);
    assert_eq!(report["transfer"]["sha256_match"], true);
    assert_eq!(report["perf"].as_array().map(Vec::len), Some(6));
    let why = report["fallback"].as_str().expect("AF_XDP needs privileges");
    assert!(why.contains("not permitted"), "{why}");
    assert!(outcome.stderr.contains("using UDP sockets instead"), "{}", outcome.stderr);
}

#[test]
fn demo__over_udp_ends_by_a_signal_as_over_af_xdp() {
    let args = ["demo", "--fabric", "udp", "--ms", "60000"];
    let mut demo = Unprivileged::new(&args).start();
    demo.await_output(|text| text.contains("RoCEv2 over UDP sockets"));
    let ended = demo.end_with(libc::SIGINT);
    assert_eq!((ended.code, ended.stderr.trim()), (Some(130), "interrupted"));
}
