//! The command line of `untuned`, without measurements: those are in `.ci/run`.
#![expect(non_snake_case, reason = "tests are named function__case")]

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

fn bench(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spanwire-bench"));
    command.args(args);
    command
}

#[test]
fn untuned__errors_name_the_option_and_the_remedy() {
    let cases: [(&[&str], &str); 4] = [
        (&["--spanwire", "/nonexistent/spanwire"], "--spanwire sets its path"),
        (&["--only", "no such path"], "--only and --algorithms exclude all"),
        (&["--algorithms", "auto,reno"], "there are auto, none, tcp-cubic"),
        (&["--seconds", "1000"], "'1000' for '--seconds <SECONDS>': 1000 is no time from 0.1"),
    ];
    for (args, expected) in cases {
        let done = bench(&[&["untuned"], args].concat()).output().expect("the command starts");
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
}

#[test]
fn spin__ends_with_its_parents_pipe() {
    let core = spanwire_io::affinity::usable_cores()[0].to_string();
    let mut child =
        bench(&["spin", &core]).stdin(Stdio::piped()).spawn().expect("the command starts");
    thread::sleep(Duration::from_millis(200));
    assert!(child.try_wait().expect("ours").is_none(), "it spins while the pipe is open");
    drop(child.stdin.take());
    let deadline = Instant::now() + Duration::from_secs(120);
    let status = loop {
        match child.try_wait().expect("ours") {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                child.kill().expect("ours");
                panic!("it spins although its parent has closed the pipe");
            }
            None => thread::sleep(Duration::from_millis(10)),
        }
    };
    assert!(status.success(), "{status}");
}

#[test]
fn stdout__full_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("it is there");
    let args = ["agents", "--rounds", "1", "--packets", "1000", "--flows", "8"];
    let ended = bench(&args).stdout(full).output().expect("it runs");
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("cannot write to stdout"), "{stderr}");
}
