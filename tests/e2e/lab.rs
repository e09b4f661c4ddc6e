//! Two hosts for one test, and spanwire processes on them.

use serde_json::Value;
use spanwire_io::net::{LabConfig, NetNs, TwoHosts};
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Two anonymous namespaces connected by a veth. Tests run one at a time, because two polling
/// processes occupy two cores.
pub(crate) struct Lab {
    pub(crate) hosts: TwoHosts,
    _turn: MutexGuard<'static, ()>,
}

/// A process that ended.
pub(crate) struct Outcome {
    pub(crate) success: bool,
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A running process. Dropping it kills it.
pub(crate) struct Running {
    child: Option<Child>,
    /// Keeps a server's standard output open, because it continues to print.
    _stdout: Option<BufReader<ChildStdout>>,
}

impl Lab {
    /// A lab of that MTU, or `None` without the privilege (reported on stderr).
    pub(crate) fn new(mtu: u32) -> Option<Self> {
        Self::with(&LabConfig { mtu, ..LabConfig::default() })
    }

    /// As [`Lab::new`], with other interfaces.
    pub(crate) fn with(config: &LabConfig) -> Option<Self> {
        if skip() {
            return None;
        }
        let turn = take_turn();
        let hosts =
            TwoHosts::anonymous(config).unwrap_or_else(|e| panic!("cannot make two hosts: {e}"));
        Some(Self { hosts, _turn: turn })
    }

    /// The server's IPv4 address.
    pub(crate) fn v4(&self) -> IpAddr {
        self.hosts.a.v4.into()
    }

    /// The server's IPv6 address.
    pub(crate) fn v6(&self) -> IpAddr {
        self.hosts.a.v6.into()
    }

    /// Starts a server on host a and waits until it serves.
    pub(crate) fn server(&self, more: &[&str]) -> Running {
        let args = [&["perf", "server", "--dev", "sw0", "--core", "1"], more].concat();
        self.start_until(&self.hosts.a.ns, &args, "serving on sw0")
    }

    /// Starts a spanwire command on a host and waits until its first line begins with `says`.
    pub(crate) fn start_until(&self, ns: &NetNs, args: &[&str], says: &str) -> Running {
        Running::start_until(ns, args, says)
    }

    /// Runs a client on host b to its end.
    pub(crate) fn client(&self, to: IpAddr, more: &[&str]) -> Outcome {
        self.start_client(to, more).wait()
    }

    pub(crate) fn start_client(&self, to: IpAddr, more: &[&str]) -> Running {
        let to = to.to_string();
        let args = [&["perf", "client", "--dev", "sw0", "--core", "0", &to], more].concat();
        Running::start(&self.hosts.b.ns, &args)
    }

    /// Runs a spanwire command on a host to its end.
    pub(crate) fn run(&self, ns: &NetNs, args: &[&str]) -> Outcome {
        self.start(ns, args).wait()
    }

    /// Starts a spanwire command on a host.
    pub(crate) fn start(&self, ns: &NetNs, args: &[&str]) -> Running {
        Running::start(ns, args)
    }
}

impl Running {
    /// Starts `command`, whose output is [`piped`].
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self { child: Some(command.spawn().expect("it starts")), _stdout: None }
    }

    /// Starts a spanwire command in a namespace.
    pub(crate) fn start(ns: &NetNs, args: &[&str]) -> Self {
        Self::spawn(&mut command(ns, args))
    }

    /// Starts a spanwire command in a namespace and waits until its first line begins with `says`.
    pub(crate) fn start_until(ns: &NetNs, args: &[&str], says: &str) -> Self {
        Self::spawn_until(&mut command(ns, args), says)
    }

    /// Starts `command`, whose output is [`piped`], and waits until its first line begins with
    /// `says`.
    pub(crate) fn spawn_until(command: &mut Command, says: &str) -> Self {
        let mut child = command.spawn().expect("the server starts");
        let stdout = child.stdout.take().expect("piped");
        let (mut stdout, mut line) = (BufReader::new(stdout), String::new());
        stdout.read_line(&mut line).expect("the server prints a line");
        if !line.starts_with(says) {
            let failed = Self { child: Some(child), _stdout: None }.wait();
            panic!("the server did not come up: {line:?}, {}", failed.stderr);
        }
        Self { child: Some(child), _stdout: Some(stdout) }
    }

    /// Its peak memory in KiB.
    pub(crate) fn peak_kib(&self) -> u64 {
        self.status_kib("VmHWM:")
    }

    /// Its present memory in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        self.status_kib("VmRSS:")
    }

    fn status_kib(&self, field: &str) -> u64 {
        let pid = self.child.as_ref().expect("not waited for yet").id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|text| text.split_whitespace().next());
        kib.and_then(|text| text.parse().ok()).expect("procfs reports it in kB")
    }

    /// True while it is running.
    pub(crate) fn is_running(&mut self) -> bool {
        let child = self.child.as_mut().expect("not waited for yet");
        child.try_wait().expect("a child of this process").is_none()
    }

    /// Waits for its end; a process that hangs is killed and fails the test.
    pub(crate) fn wait(mut self) -> Outcome {
        let mut child = self.child.take().expect("taken once");
        let deadline = Instant::now() + HANG;
        while child.try_wait().expect("our child").is_none() {
            if Instant::now() > deadline {
                let _ = child.kill();
                let out = child.wait_with_output().expect("our child");
                panic!("hangs: {}", String::from_utf8_lossy(&out.stderr));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let out = child.wait_with_output().expect("our child");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (success, code) = (out.status.success(), out.status.code());
        Outcome { success, code, stdout: text(out.stdout), stderr: text(out.stderr) }
    }

    /// Sends SIGTERM and expects success.
    pub(crate) fn terminate(self) {
        let outcome = self.end_with(libc::SIGTERM);
        assert!(outcome.success, "the server failed: {}", outcome.stderr);
    }

    /// SIGKILL.
    pub(crate) fn kill(self) {
        self.end_with(libc::SIGKILL);
    }

    pub(crate) fn end_with(self, signal: i32) -> Outcome {
        self.signal(signal);
        self.wait()
    }

    pub(crate) fn signal(&self, signal: i32) {
        let pid = self.child.as_ref().expect("not waited for yet").id();
        let pid = pid.to_string();
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(&pid).status();
        assert!(sent.is_ok_and(|s| s.success()), "cannot signal {pid}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Outcome {
    /// Its standard output as one JSON value.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| {
            panic!("no JSON ({e}) in {:?}; standard error: {}", self.stdout, self.stderr)
        })
    }
}

/// Runs spanwire in this process's namespace.
pub(crate) fn run_here(args: &[&str]) -> Outcome {
    start_here(args).wait()
}

pub(crate) fn start_here(args: &[&str]) -> Running {
    let mut command = Command::new(SPANWIRE);
    Running::spawn(piped(&mut command, args))
}

/// The named namespaces and the interfaces of this one, to detect leftovers.
pub(crate) fn namespaces() -> (Vec<String>, Vec<String>) {
    let mut links: Vec<String> = std::fs::read_dir("/sys/class/net")
        .expect("every Linux has it")
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .collect();
    links.sort();
    (NetNs::list().expect("readable"), links)
}

/// True, with the reason on stderr, if the tests cannot run.
pub(crate) fn skip() -> bool {
    let Err(why) = NetNs::new_anonymous() else {
        return false;
    };
    let required = std::env::var_os("SPANWIRE_REQUIRE_E2E").is_some_and(|v| v == "1");
    assert!(!required, "an end-to-end test cannot run: {why}");
    eprintln!("SKIPPED: {why}");
    true
}

fn command(ns: &NetNs, args: &[&str]) -> Command {
    let mut command = ns.command(SPANWIRE).expect("the namespace is there");
    piped(&mut command, args);
    command
}

pub(crate) fn piped<'a>(command: &'a mut Command, args: &[&str]) -> &'a mut Command {
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())
}

pub(crate) fn take_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Repeats the attempt until it succeeds. A machine may preempt both cores for as long as round
/// trips last; that may happen twice, whereas a bug occurs always.
pub(crate) fn until_right(mut attempt: impl FnMut() -> Option<String>) {
    let mut complaints = Vec::new();
    for _ in 0..ATTEMPTS {
        match attempt() {
            None => return,
            Some(complaint) => complaints.push(complaint),
        }
    }
    panic!("failed {ATTEMPTS} times: {complaints:#?}");
}

pub(crate) const SPANWIRE: &str = env!("CARGO_BIN_EXE_spanwire");

const ATTEMPTS: usize = 3;

/// Time limit of a single command, on a busy machine.
const HANG: Duration = Duration::from_secs(120);
