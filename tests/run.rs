//! `spanwire run` as a command: the environment and the exit code of a program, and the programs
//! that it refuses. The library is an empty one, made by the C compiler that links Rust programs.
//! Needs no privileges; the refusals of file capabilities are tested where `setcap` may be used.
#![expect(non_snake_case, reason = "tests are named function__case")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory with a library, removed at the end of the test.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("spanwire-run-{}-{n}", std::process::id()));
        fs::create_dir(&path).expect("the name is this test's own");
        let dir = Self(path);
        let soname = "-Wl,-soname,libibverbs.so.1";
        dir.compile("libibverbs.so.1", "int spanwire_empty;", &["-shared", "-fPIC", soname]);
        dir
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn compile(&self, name: &str, source: &str, options: &[&str]) -> PathBuf {
        let (from, to) = (self.join(&format!("{name}.c")), self.join(name));
        fs::write(&from, source).expect("it can be written");
        let mut cc = Command::new("cc");
        let done = cc.args(options).arg("-o").arg(&to).arg(&from).status().expect("cc runs");
        assert!(done.success(), "cc {options:?}");
        to
    }

    /// A program that ends with code 7.
    fn program(&self, name: &str, options: &[&str]) -> PathBuf {
        self.compile(name, "int main(void) { return 7; }", options)
    }

    /// A copy of `from`. Another process makes it: a file that this one has open for writing while
    /// another thread forks cannot be executed.
    fn install(&self, name: &str, from: &Path, mode: &str) -> PathBuf {
        let to = self.join(name);
        let done = Command::new("install").args(["-m", mode]).arg(from).arg(&to).status();
        assert!(done.expect("install runs").success());
        to
    }

    fn script(&self, name: &str, text: &str, mode: &str) -> PathBuf {
        let from = self.join(&format!("{name}.text"));
        fs::write(&from, text).expect("it can be written");
        self.install(name, &from, mode)
    }

    /// `spanwire run` with the library, in an environment without settings.
    fn run(&self) -> Command {
        let mut command = spanwire();
        command.env("SPANWIRE_LIBRARY", self.join("libibverbs.so.1"));
        command
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn spanwire() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spanwire"));
    command.arg("run").env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.stdin(Stdio::null());
    command
}

/// Exit code, stdout, stderr.
fn ended(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal ended it"), text(stdout), text(stderr))
}

/// The lines of `env` that are settings or the loader's, sorted.
fn settings(env: &str) -> Vec<String> {
    let ours = |line: &&str| line.starts_with("SPANWIRE_") || line.starts_with("LD_");
    let mut lines: Vec<String> = env.lines().filter(ours).map(str::to_owned).collect();
    lines.retain(|line| !line.starts_with("SPANWIRE_LIBRARY="));
    lines.sort();
    lines
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own file");
}

#[test]
fn run__the_program_has_the_library_and_the_options() {
    let dir = Dir::new();
    let library = dir.join("libibverbs.so.1");
    let (library, folder) = (library.display(), dir.0.display());
    let (code, env, errors) = ended(dir.run().args(["--", "env"]));
    assert_eq!((code, &*errors), (0, ""));
    assert_eq!(
        settings(&env),
        [format!("LD_LIBRARY_PATH={folder}"), format!("LD_PRELOAD={library}")]
    );

    let options = ["--dev", "lo", "--addr", "127.0.0.2", "--cc", "none", "--loss", "0.5", "-v"];
    let mut command = dir.run();
    command.env("LD_LIBRARY_PATH", "/x:/y").env("SPANWIRE_MODE", "sr").env("SPANWIRE_CC", "swift");
    let (code, env, errors) = ended(command.args(options).args(["--", "env"]));
    assert_eq!(code, 0, "{errors}");
    let expected = [
        format!("LD_LIBRARY_PATH={folder}:/x:/y"),
        format!("LD_PRELOAD={library}"),
        "SPANWIRE_ADDR=127.0.0.2".to_owned(),
        "SPANWIRE_CC=none".to_owned(),
        "SPANWIRE_DEV=lo".to_owned(),
        "SPANWIRE_LOSS=0.5".to_owned(),
        "SPANWIRE_MODE=sr".to_owned(),
        "SPANWIRE_VERBOSE=1".to_owned(),
    ];
    assert_eq!(settings(&env), expected);
    assert!(errors.starts_with("spanwire run: /"), "{errors}");
    assert!(expected.iter().all(|line| errors.contains(&format!("\n  {line}\n"))), "{errors}");

    // An option also replaces a variable by its default.
    let mut command = dir.run();
    command.env("SPANWIRE_FABRIC", "xdp").env("SPANWIRE_LOSS", "1").env("SPANWIRE_DUP", "2");
    let (_, env, _) = ended(command.args(["--fabric", "udp", "--loss", "0", "env"]));
    assert_eq!(settings(&env)[2..], ["SPANWIRE_DUP=2"]);
}

#[test]
fn run__the_library_is_in_the_program_and_in_what_it_starts() {
    let dir = Dir::new();
    let maps = "grep -c libibverbs.so.1 /proc/self/maps >/dev/null && echo loaded";
    let script = dir.script("script", &format!("#!/bin/sh\n{maps}\n"), "755");
    let program = [script.as_os_str()];
    assert_eq!(ended(dir.run().args(program)), (0, "loaded\n".to_owned(), String::new()));
    let by_shell = ["sh", "-c", maps];
    assert_eq!(ended(dir.run().args(by_shell)), (0, "loaded\n".to_owned(), String::new()));
}

#[test]
fn run__process_number_and_exit_code_are_the_programs() {
    let dir = Dir::new();
    let mut command = dir.run();
    command.args(["--", "sh", "-c", "echo $$; exit 9"]).stdout(Stdio::piped());
    let child = command.spawn().expect("it runs");
    let pid = format!("{}\n", child.id());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stdout), (Some(9), pid.into_bytes()));
    let seven = dir.program("seven", &[]);
    assert_eq!(ended(dir.run().arg(seven)).0, 7);
}

#[test]
fn run__127_and_126_are_a_shells_codes() {
    let dir = Dir::new();
    let plain = dir.script("plain", "#!/bin/sh\n", "644");
    let lost = dir.script("lost", "#!/nonexistent/sh\n", "755");
    // The compiler makes a library executable, too.
    let library = dir.join("libibverbs.so.1");
    for (program, expected, words) in [
        (Path::new("sw-none"), 127, "there is no program sw-none"),
        (Path::new("/nonexistent/x"), 127, "there is no program /nonexistent/x"),
        (&plain, 126, "plain: Permission denied"),
        (&dir.0, 126, "no regular file"),
        (&lost, 126, "lost: No such file"),
        (&library, 126, "linked statically"),
    ] {
        let (code, out, errors) = ended(dir.run().arg("--").arg(program));
        assert_eq!((code, &*out), (expected, ""), "{errors}");
        assert!(errors.contains(words), "{errors}");
    }
}

#[test]
fn run__programs_that_the_loader_does_not_preload_are_not_started() {
    let dir = Dir::new();
    let refused = |path: &Path, words: &str| {
        let (code, out, errors) = ended(dir.run().arg(path));
        assert_eq!((code, &*out), (126, ""), "{errors}");
        assert!(errors.contains(words), "{errors}");
    };
    refused(&dir.program("static", &["-static"]), "linked statically");
    let program = dir.program("program", &[]);
    for mode in [0o4755, 0o2755] {
        set_mode(&program, mode);
        refused(&program, "set-user-ID or set-group-ID bit");
    }
    set_mode(&program, 0o755);
    assert_eq!(ended(dir.run().arg(&program)).0, 7);
    let setcap = Command::new("setcap").arg("cap_net_raw=ep").arg(&program).output();
    match setcap {
        Ok(Output { status, .. }) if status.success() => refused(&program, "file capabilities"),
        _ => eprintln!("setcap is not permitted here: file capabilities are not tested"),
    }
}

#[test]
fn run__print_env_is_for_a_shell() {
    let dir = Dir::new();
    let mut command = dir.run();
    command.env("LD_PRELOAD", "").env("LD_LIBRARY_PATH", "/it's $HOME").env("SPANWIRE_DUP", "1");
    let options = ["--addr", "127.0.0.3", "--dup", "0", "--cc", "swift, beta=0.5", "--print-env"];
    let (code, text, errors) = ended(command.args(options));
    assert_eq!((code, &*errors), (0, ""));
    let script = format!("SPANWIRE_DUP=1; {text}\nenv");
    let (code, env, errors) = ended(Command::new("sh").env_clear().args(["-c", &script]));
    assert_eq!((code, &*errors), (0, ""), "{text}");
    let expected = [
        format!("LD_LIBRARY_PATH={}:/it's $HOME", dir.0.display()),
        format!("LD_PRELOAD={}", dir.join("libibverbs.so.1").display()),
        "SPANWIRE_ADDR=127.0.0.3".to_owned(),
        "SPANWIRE_CC=swift, beta=0.5".to_owned(),
    ];
    assert_eq!(settings(&env), expected, "{text}");
}

#[test]
fn run__bad_options_are_wrong_usage() {
    let dir = Dir::new();
    for (options, words) in [
        (&["--dev", "sw-none"][..], "interfaces here: "),
        (&["--addr", "192.0.2.1"], "192.0.2.1 is not an IPv4 address of this host, which has 127"),
        (&["--dev", "lo", "--addr", "192.0.2.1"], "is not an IPv4 address of lo, which has 127"),
        (&["--addr", "::1"], "IPv4"),
        (&["--fabric", "pipe"], "udp, xdp, auto"),
        (&["--cc", "cubic"], "swift"),
        (&["--mode", "uc"], "rc, sr"),
        (&["--loss", "101"], "0 to 100"),
    ] {
        let (code, out, errors) = ended(dir.run().args(options).args(["--", "echo", "started"]));
        assert_eq!((code, &*out), (2, ""), "{options:?}: {errors}");
        assert!(errors.contains(words), "{errors}");
    }
    let (code, _, errors) = ended(dir.run().env("SPANWIRE_MODE", "uc").args(["--", "true"]));
    assert!(code == 2 && errors.contains("SPANWIRE_MODE=uc: "), "{errors}");
    assert_eq!(ended(&mut dir.run()).0, 2, "no program");
}

#[test]
fn run__without_a_library_it_says_where_it_looked() {
    let dir = Dir::new();
    let (code, _, errors) = ended(spanwire().env("SPANWIRE_LIBRARY", "/dev/null").arg("true"));
    assert!(code == 1 && errors.contains("/dev/null is no shared library"), "{errors}");
    // A copy of the program, with nothing beside it.
    let own = dir.install("spanwire", Path::new(env!("CARGO_BIN_EXE_spanwire")), "755");
    fs::rename(dir.join("libibverbs.so.1"), dir.join("away")).expect("our own file");
    let (code, _, errors) = ended(Command::new(&own).env_clear().args(["run", "/bin/true"]));
    assert!(code == 1 && errors.contains("cargo build --release"), "{errors}");
    assert!(errors.contains(&format!("in {}, ", dir.0.display())), "{errors}");
    fs::rename(dir.join("away"), dir.join("libibverbs.so.1")).expect("our own file");
    let (code, _, errors) = ended(Command::new(&own).env_clear().args(["run", "/bin/true"]));
    assert_eq!((code, &*errors), (0, ""));
}
