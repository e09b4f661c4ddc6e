//! Two hosts for one test, and spanwire processes on them.

use serde_json::Value;
use spanwire_host::fabric::FabricChoice;
use spanwire_io::net::{Host, LabConfig, NetNs, TwoHosts};
use std::collections::BTreeMap;
use std::io::Read;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Two anonymous namespaces connected by a veth. Tests run one at a time, because two polling
/// processes occupy two cores.
pub(crate) struct Lab {
    pub(crate) hosts: TwoHosts,
    /// The fabric of the commands of this lab.
    pub(crate) fabric: FabricChoice,
    _turn: MutexGuard<'static, ()>,
}

/// Commands with interfaces and names of namespaces that no other process sees or makes: a network
/// namespace, and a directory in place of `/run/netns`.
pub(crate) struct Alone {
    ns: NetNs,
    names: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

/// A process that ended.
pub(crate) struct Outcome {
    pub(crate) success: bool,
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A running process. Dropping it kills it. Threads read its output, so that no pipe fills.
pub(crate) struct Running {
    child: Option<Child>,
    stdout: Output,
    stderr: Output,
}

/// The output of a process so far, and the thread that reads it.
struct Output {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
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
        Some(Self { hosts, fabric: FabricChoice::Auto, _turn: turn })
    }

    /// A lab of MTU 1500 whose commands use that fabric.
    pub(crate) fn over(fabric: FabricChoice) -> Option<Self> {
        Some(Self { fabric, ..Self::new(1500)? })
    }

    /// The arguments that choose the fabric.
    pub(crate) fn fabric_args(&self) -> [&'static str; 2] {
        ["--fabric", self.fabric.as_str()]
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
        let args = [&["perf", "server", "--dev", "sw0"], &self.fabric_args()[..], more].concat();
        self.start_until(&self.hosts.a.ns, &args, "serving on sw0")
    }

    /// Starts a server on host a that reports in JSON, and waits until it listens: it prints
    /// nothing before its first report.
    pub(crate) fn json_server(&self, more: &[&str]) -> Running {
        let args = ["perf", "server", "--dev", "sw0", "--json"];
        let args = [&args[..], &self.fabric_args(), more].concat();
        let mut server = self.start(&self.hosts.a.ns, &args);
        await_listener(&self.hosts.a.ns, PERF_PORT, &mut server);
        server
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
        let args = ["perf", "client", "--dev", "sw0", &to];
        let args = [&args[..], &self.fabric_args(), more].concat();
        Running::start(&self.hosts.b.ns, &args)
    }

    /// Waits until host a has received `bytes` more. A sender that has sent more than its window
    /// has seen completions.
    pub(crate) fn await_traffic(&self, bytes: u64) {
        let before = received_bytes(&self.hosts.a);
        until("host a receives data", || received_bytes(&self.hosts.a) >= before + bytes);
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

impl Alone {
    /// `None` without the privilege (reported on stderr).
    pub(crate) fn new() -> Option<Self> {
        if skip() {
            return None;
        }
        let turn = take_turn();
        let ns = NetNs::new_anonymous().expect("privileged");
        let names = std::env::temp_dir().join(format!("spanwire-e2e-{}-names", std::process::id()));
        std::fs::create_dir(&names).expect("the name is this process's own");
        Some(Self { ns, names, _turn: turn })
    }

    /// Starts a spanwire command.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        let script = "mkdir -p /run/netns && mount --bind \"$0\" /run/netns && exec \"$@\"";
        let names = self.names.to_str().expect("a plain path");
        // The shell has a mount namespace of its own.
        let mut command = self.ns.command("sh").expect("the namespace is there");
        Running::spawn(piped(&mut command, &[&["-c", script, names, SPANWIRE], args].concat()))
    }

    /// The named network namespaces that the commands have made, and their interfaces.
    pub(crate) fn left(&self) -> (Vec<String>, Vec<String>) {
        let named = std::fs::read_dir(&self.names).expect("it is there");
        let named = named.map(|e| e.expect("readable").file_name().to_string_lossy().into_owned());
        let mut links = self.ns.command("ip").expect("the namespace is there");
        let links = Running::spawn(piped(&mut links, &["-o", "link"])).wait().stdout;
        (named.collect(), links.lines().map(str::to_owned).collect())
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.names);
    }
}

impl Running {
    /// Starts `command`, whose output is [`piped`].
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("it starts");
        let stdout = Output::read(child.stdout.take().expect("piped"));
        let stderr = Output::read(child.stderr.take().expect("piped"));
        Self { child: Some(child), stdout, stderr }
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
        let mut running = Self::spawn(command);
        running.await_output(|text| text.contains('\n'));
        let text = running.stdout.text();
        if !text.starts_with(says) {
            let failed = running.wait();
            panic!("the server did not come up: {text:?}, {}", failed.stderr);
        }
        running
    }

    /// Waits until its standard output so far fulfils `is_so`, or is complete.
    pub(crate) fn await_output(&mut self, is_so: impl Fn(&str) -> bool) {
        until("the process prints the expected line", || {
            let is_complete = self.stdout.is_complete();
            is_so(&self.stdout.text()) || is_complete
        });
    }

    /// Waits until it has more than one thread. Handlers of signals are installed before.
    pub(crate) fn await_threads(&self) {
        until("the process starts threads", || self.status("Threads:") != "1");
    }

    /// Stops it by SIGSTOP; SIGCONT continues it.
    pub(crate) fn stop(&self) {
        self.signal(libc::SIGSTOP);
        until("the process stops", || self.status("State:") == "T");
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
        self.status(field).parse().expect("procfs reports it in kB")
    }

    /// The first word of a field of `/proc/PID/status`.
    fn status(&self, field: &str) -> String {
        let pid = self.child.as_ref().expect("not waited for yet").id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let word = line.and_then(|text| text.split_whitespace().next());
        word.expect("procfs reports the field").to_owned()
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
        let status = loop {
            if let Some(status) = child.try_wait().expect("our child") {
                break status;
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                panic!("hangs: {}{}", self.stdout.complete(), self.stderr.complete());
            }
            thread::sleep(POLL);
        };
        let (stdout, stderr) = (self.stdout.complete(), self.stderr.complete());
        Outcome { success: status.success(), code: status.code(), stdout, stderr }
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

impl Output {
    /// Reads `pipe` to its end.
    fn read(mut pipe: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&bytes);
        let reader = thread::spawn(move || {
            let mut piece = [0; 1 << 12];
            // An error ends the output as its end does.
            while let Ok(len @ 1..) = pipe.read(&mut piece) {
                lock(&shared).extend_from_slice(&piece[..len]);
            }
        });
        Self { bytes, reader: Some(reader) }
    }

    /// The text so far.
    fn text(&self) -> String {
        String::from_utf8_lossy(&lock(&self.bytes)).into_owned()
    }

    /// True at the end of the pipe.
    fn is_complete(&self) -> bool {
        self.reader.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// The whole text, at its end.
    fn complete(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("no panic");
        }
        self.text()
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

/// Waits until `is_so`. Only what never happens reaches the limit, on however busy a machine.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + HANG;
    while !is_so() {
        assert!(Instant::now() < deadline, "it never happens: {what}");
        thread::sleep(POLL);
    }
}

/// Waits until `server`, in that namespace, listens on a TCP port.
pub(crate) fn await_listener(ns: &NetNs, port: u16, server: &mut Running) {
    // Local address and state, as in Documentation/networking/proc_net_tcp.rst.
    let (port, listen) = (format!(":{port:04X}"), "0A");
    let is_listening = || {
        let read = |version| std::fs::read_to_string(format!("/proc/thread-self/net/{version}"));
        let table = [read("tcp"), read("tcp6")].map(Result::unwrap_or_default).concat();
        table.lines().any(|row| {
            let fields: Vec<&str> = row.split_whitespace().collect();
            fields.len() > 3 && fields[1].ends_with(&port) && fields[3] == listen
        })
    };
    until("the server listens", || {
        assert!(server.is_running(), "the server has ended");
        ns.run(is_listening).expect("the namespace is there")
    });
}

/// Waits until a process that serves on a TCP port of that namespace has something to read, because
/// it is stopped.
pub(crate) fn await_unread(ns: &NetNs, port: u16) {
    let (port, established) = (format!(":{port:04X}"), "01");
    let is_unread = || {
        let read = |version| std::fs::read_to_string(format!("/proc/thread-self/net/{version}"));
        let table = [read("tcp"), read("tcp6")].map(Result::unwrap_or_default).concat();
        table.lines().any(|row| {
            let fields: Vec<&str> = row.split_whitespace().collect();
            fields.len() > 4
                && fields[1].ends_with(&port)
                && fields[3] == established
                && !fields[4].ends_with(":00000000")
        })
    };
    until("the client sends something", || ns.run(is_unread).expect("the namespace is there"));
}

/// Bytes that the interface of a host has received, including by AF_XDP.
fn received_bytes(host: &Host) -> u64 {
    interface_counters(&host.ns, &host.ifname)[0]
}

/// As [`received_bytes`], of `sw0` in a namespace.
pub(crate) fn received_bytes_in(ns: &NetNs) -> u64 {
    interface_counters(ns, "sw0")[0]
}

/// Bytes that the interface of a host has sent, with preambles, FCSs and gaps. The kernel counts a
/// run of UDP segments as one frame, so over sockets these are a few too few.
pub(crate) fn sent_bytes(host: &Host) -> u64 {
    let counters = interface_counters(&host.ns, &host.ifname);
    counters[8] + 24 * counters[9]
}

/// Frames that the interface of a host has dropped, in both directions.
pub(crate) fn dropped_frames(host: &Host) -> u64 {
    let counters = interface_counters(&host.ns, &host.ifname);
    counters[3] + counters[11]
}

/// Bytes in the receive buffer of the UDP socket at a port of a host, the kernel's overhead
/// included, and the datagrams that the socket has dropped.
pub(crate) fn udp_socket(host: &Host, port: u16) -> (u64, u64) {
    let read = |file| std::fs::read_to_string(format!("/proc/thread-self/net/{file}"));
    let tables = host.ns.run(|| ["udp", "udp6"].map(read)).expect("the namespace is there");
    let text = tables.map(Result::unwrap_or_default).concat();
    let mut rows = text.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    let port = format!(":{port:04X}");
    let row = rows.find(|row| row.get(1).is_some_and(|local| local.ends_with(&port)));
    let row = row.expect("the socket is there");
    let (_, queue) = row[4].split_once(':').expect("sent and received");
    let drops = row.last().expect("the last column").parse().expect("a count");
    (u64::from_str_radix(queue, 16).expect("bytes"), drops)
}

/// A host's counters of the kernel's protocols, as in `/proc/net/snmp` and `/proc/net/netstat`:
/// "Udp InErrors".
pub(crate) fn kernel_counters(host: &Host) -> BTreeMap<String, u64> {
    let read = |file| std::fs::read_to_string(format!("/proc/thread-self/net/{file}"));
    let tables = host.ns.run(|| ["snmp", "netstat"].map(read)).expect("the namespace is there");
    let text = tables.map(|table| table.expect("procfs has it")).concat();
    let rows: Vec<&str> = text.lines().collect();
    // A row of names, then one of values, both after the protocol.
    let pairs = rows.chunks_exact(2).flat_map(|pair| {
        let [mut names, mut values] = [pair[0], pair[1]].map(str::split_whitespace);
        let protocol = names.next().expect("a protocol").trim_end_matches(':');
        values.next();
        // Those that are signed are no counts.
        names.zip(values).filter_map(move |(name, value)| {
            value.parse().ok().map(|value| (format!("{protocol} {name}"), value))
        })
    });
    pairs.collect()
}

/// An interface in `/proc/net/dev`: eight counters of receiving, then those of sending.
fn interface_counters(ns: &NetNs, ifname: &str) -> Vec<u64> {
    let read = || std::fs::read_to_string("/proc/thread-self/net/dev");
    let table = ns.run(read).expect("the namespace is there").expect("procfs has it");
    let mut rows = table.lines().filter_map(|row| row.trim().split_once(':'));
    let row = rows.find(|(name, _)| *name == ifname).expect("its interface").1;
    row.split_whitespace().map(|n| n.parse().expect("a count")).collect()
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
    lock(&TURN)
}

/// Locks, also after a panic of another test.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) const SPANWIRE: &str = env!("CARGO_BIN_EXE_spanwire");

/// The TCP port of `perf server`.
pub(crate) const PERF_PORT: u16 = 18_516;

/// Limit of every wait, which only a hang reaches.
pub(crate) const HANG: Duration = Duration::from_secs(600);

/// Time between two looks at a condition.
const POLL: Duration = Duration::from_millis(5);

#[test]
fn wait__returns_output_that_exceeds_a_pipe() {
    let mut command = Command::new("sh");
    let running = Running::spawn(piped(&mut command, &["-c", "seq 100000; seq 100000 >&2"]));
    let outcome = running.wait();
    for text in [outcome.stdout, outcome.stderr] {
        assert_eq!((text.lines().count(), text.lines().next_back()), (100_000, Some("100000")));
    }
}
