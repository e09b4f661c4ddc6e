//! Programs over the library under test: on two hosts, or between two addresses of the loopback
//! without privileges.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// `spanwire` and the library in a directory that any user can read.
pub(crate) struct Installed {
    pub(crate) spanwire: PathBuf,
    preload: PathBuf,
}

/// Two hosts, removed at the end.
pub(crate) struct Lab {
    name: String,
}

/// Two addresses of the loopback, for an unprivileged user.
pub(crate) struct Loopback;

/// The two ends of a run.
pub(crate) struct Pair {
    ends: [Child; 2],
    began: Instant,
}

/// False, with a line on stderr, if this machine cannot run the programs.
///
/// # Panics
/// If it cannot, and `SPANWIRE_REQUIRE_E2E` is set.
pub(crate) fn is_ready() -> bool {
    // SAFETY: no argument.
    let is_root = unsafe { libc::geteuid() } == 0;
    let has = |program: &str| Path::new("/usr/bin").join(program).exists();
    let missing = match (is_root, has("ibv_devinfo"), has("ib_write_bw")) {
        (true, true, true) => return true,
        (false, ..) => "no root, which network namespaces and AF_XDP need",
        (_, false, _) => "ibverbs-utils is not installed (apt-get install ibverbs-utils)",
        _ => "perftest is not installed (apt-get install perftest)",
    };
    assert!(std::env::var_os("SPANWIRE_REQUIRE_E2E").is_none(), "not run: {missing}");
    eprintln!("SKIPPED: {missing}");
    false
}

/// Builds `spanwire` as this test is built, and copies it and the library.
pub(crate) fn installed() -> &'static Installed {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let deps = std::env::current_exe().expect("the system knows");
        let profile = deps.ancestors().nth(2).expect("PROFILE/deps/TEST");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--locked", "-p", "spanwire-bins", "--bin", "spanwire"]);
        if profile.ends_with("release") {
            build.arg("--release");
        }
        build.arg("--target-dir").arg(profile.parent().expect("TARGET/PROFILE"));
        assert!(build.status().expect("cargo runs").success(), "spanwire does not build");
        let to = folder();
        fs::create_dir_all(&to).expect("temporary files can be made");
        // SAFETY: a function of this program.
        unsafe { libc::atexit(remove_folder) };
        let copy = |from: PathBuf, name: &str| {
            let to = to.join(name);
            fs::copy(&from, &to).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
            to
        };
        let preload = copy(deps.with_file_name("libibverbs.so"), "libibverbs.so.1");
        Installed { spanwire: copy(profile.join("spanwire"), "spanwire"), preload }
    })
}

/// The directory of [`Installed`].
fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("spanwire-programs-{}", std::process::id()))
}

extern "C" fn remove_folder() {
    let _ = fs::remove_dir_all(folder());
}

impl Installed {
    /// `spanwire`, which runs programs over the library under test.
    fn command(&self, prefix: &[&str], arguments: &[&str]) -> Command {
        let mut words = prefix.iter();
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).args(arguments);
        command.env("SPANWIRE_LIBRARY", &self.preload).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn path(&self) -> &str {
        self.spanwire.to_str().expect("a directory with a plain name")
    }
}

/// One run at a time: each spins on two cores, and on the loopback all servers have one TCP port.
static TURN: Mutex<()> = Mutex::new(());

fn take_turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends whatever it runs after two minutes, its children included.
const TIMEOUT: [&str; 4] = ["timeout", "--kill-after=5", "120", "env"];

impl Lab {
    /// Two hosts, joined by a cable or by a switch with this configuration.
    pub(crate) fn up(number: u32, switch: Option<&str>) -> Self {
        let name = format!("verbs{}-{number}", std::process::id());
        let spanwire = installed().path();
        let mut up = vec![spanwire, "lab", "up", "--name", &name];
        let file = std::env::temp_dir().join(format!("{name}.toml"));
        if let Some(switch) = switch {
            fs::write(&file, switch).expect("temporary files can be made");
            up.extend(["--switch", file.to_str().expect("a plain name")]);
        }
        let lab = Self { name: name.clone() };
        let made = Command::new(up[0]).args(&up[1..]).output().expect("spanwire runs");
        let _ = fs::remove_file(&file);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        lab
    }

    /// Runs `line` on both hosts; returns its figure.
    pub(crate) fn run(&self, options: &[&str], line: &str) -> String {
        let _turn = take_turn();
        let spanwire = installed().path();
        let start = |host: &str, line: &str| {
            let exec = [spanwire, "lab", "exec", "--name", &self.name, host, "--", spanwire, "run"];
            let words: Vec<&str> = line.split(' ').collect();
            let command = [&exec[..], options, &["--"], &words].concat();
            installed().command(&TIMEOUT, &command).spawn().expect("it starts")
        };
        let peer = format!("{line} 10.77.0.1");
        Pair::of(start("a", line), || start("b", &peer)).end(line, options)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let down = ["lab", "down", "--name", &self.name];
        let _ = Command::new(installed().path()).args(down).output();
    }
}

impl Loopback {
    pub(crate) fn new() -> Self {
        Self
    }

    /// Runs `line` at both addresses; returns its figure.
    pub(crate) fn run(&self, options: &[&str], line: &str) -> String {
        let _turn = take_turn();
        let peer = format!("{line} 127.83.1.1");
        let start = |address: &str, line: &str| self.start(address, options, line);
        Pair::of(start("127.83.1.1", line), || start("127.83.1.2", &peer)).end(line, options)
    }

    /// Runs `line` at one address; returns its output.
    pub(crate) fn alone(&self, line: &str) -> String {
        let ended = self.start("127.83.1.1", &[], line).wait_with_output().expect("it ends");
        let output = String::from_utf8_lossy(&ended.stdout).into_owned();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && errors.is_empty(), "{line}: {output}{errors}");
        output
    }

    fn start(&self, address: &str, options: &[&str], line: &str) -> Child {
        let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        let no_capabilities = ["--inh-caps=-all", "--bounding-set=-all"];
        let run = [installed().path(), "run", "--addr", address];
        let words: Vec<&str> = line.split(' ').collect();
        let command = [&user[..], &no_capabilities, &run, options, &["--"], &words].concat();
        installed().command(&TIMEOUT, &command).spawn().expect("it starts")
    }
}

impl Pair {
    /// Starts the second end once the first one listens.
    fn of(first: Child, second: impl FnOnce() -> Child) -> Self {
        let began = Instant::now();
        let late = began + Duration::from_secs(60);
        // perftest's and the pingpong's port for the exchange of addresses.
        while !(listens(first.id(), 18515)) && Instant::now() < late {
            thread::sleep(Duration::from_millis(20));
        }
        Self { ends: [first, second()], began }
    }

    /// Waits for both ends, which must succeed; returns the figure of the second one.
    fn end(self, line: &str, options: &[&str]) -> String {
        let outputs = self.ends.map(|end| {
            thread::spawn(move || {
                let ended = end.wait_with_output().expect("it ends");
                let text =
                    [&ended.stdout, &ended.stderr].map(|b| String::from_utf8_lossy(b).into_owned());
                (ended.status, text)
            })
        });
        let ends = outputs.map(|output| output.join().expect("it waits"));
        let seconds = self.began.elapsed().as_secs_f64();
        println!("{line} [{}]: {seconds:.1} s", options.join(" "));
        for ((status, [out, errors]), end) in ends.iter().zip(["first", "second"]) {
            let options = options.join(" ");
            assert!(status.success(), "{line} [{options}], {end} end: {status}\n{out}{errors}");
            assert!(!errors.contains("spanwire:"), "{line} [{options}], {end} end: {errors}");
        }
        Self::figure(line, &ends[1].1[0])
    }

    /// The average bandwidth, or the typical latency, of the last row of an output.
    pub(crate) fn figure(line: &str, output: &str) -> String {
        let number = |text: Option<&&str>| -> f64 {
            let number = text.and_then(|text| text.parse().ok());
            number.unwrap_or_else(|| panic!("{line}: no figure in {output}"))
        };
        let is_row = |row: &Vec<&str>| row.first().is_some_and(|word| word.parse::<u64>().is_ok());
        let mut rows = output.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        let last = rows.rfind(is_row).unwrap_or_default();
        match line.split(' ').next() {
            Some(name) if name.ends_with("_bw") => format!("{:.0} MB/s", number(last.get(3))),
            Some(name) if name.ends_with("_lat") => format!("{:.1} us", number(last.get(4))),
            _ => format!("{:.1} us", number(last.iter().rev().nth(1))),
        }
    }
}

/// True if a socket in the network namespace of process `pid`, or of its children, listens at a
/// TCP port.
fn listens(pid: u32, port: u16) -> bool {
    let mut of_tree = vec![pid.to_string()];
    let mut next = 0;
    while let Some(pid) = of_tree.get(next).cloned() {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        of_tree.extend(children.unwrap_or_default().split_whitespace().map(str::to_owned));
        next += 1;
    }
    let wanted = format!(":{port:04X}");
    let is_listening = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() > 3 && words[1].ends_with(&wanted) && words[3] == "0A"
    };
    let last = of_tree.last().expect("the process itself");
    ["tcp", "tcp6"].into_iter().any(|table| {
        let mut text = String::new();
        let file = fs::File::open(format!("/proc/{last}/net/{table}"));
        file.is_ok_and(|mut file| file.read_to_string(&mut text).is_ok())
            && text.lines().any(is_listening)
    })
}
