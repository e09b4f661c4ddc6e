//! ISA-L, in a program of its own, because it is C and this crate has no `unsafe`.

use crate::sample::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The running program, which ends when this is dropped.
pub struct Isal {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Isal {
    /// Compiles the program, whose source is `bench/isal/isal.c`, and starts it.
    ///
    /// # Errors
    /// There is no gcc, or no ISA-L to link.
    pub fn start() -> Result<Self, Error> {
        let program = Program::compile()?;
        let mut child = Command::new(&program.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{}: {e}", program.0.display()))?;
        let requests = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().ok_or("a pipe")?);
        Ok(Self { child, requests, answers })
    }

    /// Nanoseconds of `code` on blocks of `x` and `y` packets of `bytes` each: the median of
    /// several runs that take `ms` together. The program defines the code names.
    ///
    /// # Errors
    /// The program rejects the request.
    pub fn ns(
        &mut self,
        code: &str,
        [x, y]: [usize; 2],
        bytes: usize,
        ms: u64,
    ) -> Result<f64, Error> {
        let requests = self.requests.as_mut().ok_or("a pipe")?;
        writeln!(requests, "{code} {x} {y} {bytes} {ms}")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        let ns = answer.trim().parse();
        Ok(ns.map_err(|_| format!("ISA-L's program rejects {code} ({x}, {y}) of {bytes} bytes"))?)
    }
}

impl Drop for Isal {
    fn drop(&mut self) {
        // It exits at the end of its input; this does not wait for a program that does not.
        self.requests = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The executable file, deleted once it runs.
struct Program(PathBuf);

impl Program {
    fn compile() -> Result<Self, Error> {
        let name = format!("spanwire-bench-isal-{}", std::process::id());
        let program = Self(std::env::temp_dir().join(name));
        let mut gcc = Command::new("gcc")
            .args(["-O2", "-x", "c", "-", "-o"])
            .arg::<&Path>(&program.0)
            .arg("-lisal")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("gcc: {e} ({INSTALL})"))?;
        // Ignored: if gcc fails on the first line, its own message is the relevant one.
        let _ = gcc.stdin.take().ok_or("a pipe")?.write_all(SOURCE.as_bytes());
        let output = gcc.wait_with_output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said.lines().find(|line| line.contains("error")).unwrap_or(said.trim());
            return Err(format!("{first} ({INSTALL})").into());
        }
        Ok(program)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const SOURCE: &str = include_str!("../../isal/isal.c");
const INSTALL: &str = "apt-get install gcc libisal-dev";
