//! ISA-L, in a program of its own: it is C, and this crate is without `unsafe`.

use crate::sample::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The program, waiting for requests. It ends with this.
pub struct Isal {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Isal {
    /// Compiles the program and starts it; what it is compiled from is `bench/isal/isal.c`.
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

    /// Nanoseconds of `code` on blocks of `x` and `y` packets of `bytes` each: the median of some
    /// runs that take `ms` together. The program says what codes there are.
    ///
    /// # Errors
    /// The program refuses.
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
        Ok(ns.map_err(|_| format!("ISA-L's program refuses {code} ({x}, {y}) of {bytes} bytes"))?)
    }
}

impl Drop for Isal {
    fn drop(&mut self) {
        // It ends at the end of its input; a program that does not is no reason to wait.
        self.requests = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The file, which is gone when it runs.
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
        // Left alone when it fails on the first line: what it says is what matters.
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
