//! A process on a host of the lab.

use crate::sample::Error;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A process that is killed when dropped. Threads read its output, so that no pipe fills.
pub(crate) struct Running {
    child: Child,
    /// The host and the command line, for errors.
    line: String,
    stdout: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    /// Starts `command`, which runs the program `path` on `host`, with these arguments.
    pub(crate) fn start(
        mut command: Command,
        host: &str,
        path: &Path,
        args: &[&str],
    ) -> Result<Self, Error> {
        let line = format!("{host}# {} {}", path.display(), args.join(" "));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("{line}: {e}"))?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let (lines, stdout) = channel();
        thread::spawn(move || {
            let lines_of = out.map(|out| BufReader::new(out).lines().map_while(Result::ok));
            // The receiver is gone once the process has been dropped.
            lines_of.into_iter().flatten().try_for_each(|line| lines.send(line))
        });
        let stderr = thread::spawn(move || {
            let mut text = String::new();
            // Text that is not UTF-8 ends the message early, which is no reason to fail.
            let _ = err.map(|mut err| err.read_to_string(&mut text));
            text
        });
        Ok(Self { child, line, stdout, stderr: Some(stderr) })
    }

    /// The host and the command line.
    pub(crate) fn command(&self) -> &str {
        &self.line
    }

    /// The number of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// True until it ends.
    pub(crate) fn is_running(&mut self) -> Result<bool, Error> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits for the first line of its output, at most `time`.
    pub(crate) fn first_line(&mut self, time: Duration) -> Result<String, Error> {
        match self.stdout.recv_timeout(time) {
            Ok(line) => Ok(line),
            Err(_) => Err(self.failed(&format!("no line of output within {time:?}"))),
        }
    }

    /// Waits for its exit, at most `time`; returns its output if it succeeded.
    pub(crate) fn output(mut self, time: Duration) -> Result<String, Error> {
        let status = self.exit(time)?;
        let out: Vec<String> = self.stdout.iter().collect();
        match status.success() || !out.is_empty() {
            true => Ok(out.join("\n")),
            false => Err(self.failed(&status.to_string())),
        }
    }

    /// Waits for its exit, at most `time`.
    pub(crate) fn exit(&mut self, time: Duration) -> Result<ExitStatus, Error> {
        let deadline = Instant::now() + time;
        loop {
            match self.child.try_wait()? {
                Some(status) => return Ok(status),
                None if Instant::now() >= deadline => {
                    return Err(self.failed(&format!("no exit after {time:?}")));
                }
                None => thread::sleep(POLL),
            }
        }
    }

    /// Kills it; returns the complete lines of its output so far.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.end();
        self.stdout.iter().collect()
    }

    /// The error `why` of this process, with its command and its last words.
    fn failed(&mut self, why: &str) -> Error {
        self.end();
        let stderr = self.stderr.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        format!("{}: {why}: {}", self.line, stderr.trim()).into()
    }

    fn end(&mut self) {
        // A process that has ended cannot be killed, which is no error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Granularity of the time of an exit.
const POLL: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a hang takes so long.
    const LATE: Duration = Duration::from_secs(120);

    fn shell(script: &str) -> Running {
        let path = Path::new("sh");
        Running::start(Command::new(path), "a", path, &["-c", script]).expect("a shell")
    }

    #[test]
    fn output__exceeds_a_pipe() {
        let mut running = shell("echo first; seq 100000");
        assert_eq!(running.first_line(LATE).unwrap(), "first");
        let out = running.output(LATE).unwrap();
        assert_eq!((out.lines().count(), out.lines().next_back()), (100_000, Some("100000")));
    }

    #[test]
    fn output__of_a_failure_names_host_command_and_reason() {
        let why = shell("echo no such device >&2; exit 3").output(LATE).unwrap_err();
        let why = why.to_string();
        for part in ["a# sh -c", "exit status: 3", "no such device"] {
            assert!(why.contains(part), "{part} is missing: {why}");
        }
    }

    #[test]
    fn exit__within_its_time_or_an_error() {
        let mut running = shell("exec sleep 600");
        let why = running.exit(Duration::from_millis(50)).unwrap_err().to_string();
        assert!(why.contains("no exit after 50ms"), "{why}");
    }

    #[test]
    fn kill__leaves_the_lines_so_far() {
        let mut running = shell("echo one; echo two; echo three; exec sleep 600");
        assert_eq!(running.first_line(LATE).unwrap(), "one");
        // All lines are in the pipe once the shell has become another program.
        let name = format!("/proc/{}/comm", running.child.id());
        let deadline = Instant::now() + LATE;
        while std::fs::read_to_string(&name).expect("it runs") != "sleep\n" {
            assert!(Instant::now() < deadline, "the shell goes on");
            thread::sleep(POLL);
        }
        assert_eq!(running.kill(), ["two", "three"]);
    }
}
