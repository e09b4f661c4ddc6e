//! A process that outlives the command that started it.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use spanwire_host::file;
use std::io;
use std::time::{Duration, Instant};

/// A process, identified by PID and start time, because the kernel reuses PIDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    /// Its PID.
    pub(crate) pid: u32,
    /// Its start time in clock ticks since boot (proc(5), `starttime`).
    started: u64,
}

impl Process {
    /// The running process with that PID.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let (state, started) = parse(&file::read_kernel(format!("/proc/{pid}/stat")).ok()?)?;
        // A zombie has ended, although its parent has not waited for it.
        (!matches!(state, 'Z' | 'X')).then_some(Self { pid, started })
    }

    /// True while it runs.
    pub(crate) fn is_running(&self) -> bool {
        Self::of(self.pid) == Some(*self)
    }

    /// Ends the process by SIGTERM, and by SIGKILL if it still runs after `timeout`. Returns true
    /// if it was running.
    ///
    /// # Errors
    /// Permission denied, or it still runs `timeout` after SIGKILL.
    pub(crate) fn end(&self, timeout: Duration) -> io::Result<bool> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(false);
        };
        // The descriptor is opened before the check of the start time. If the check passes, the
        // descriptor refers to this process, even if the PID is reused later.
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(rustix::io::Errno::SRCH) => return Ok(false),
            other => other?,
        };
        if !self.is_running() {
            return Ok(false);
        }
        for signal in [Signal::TERM, Signal::KILL] {
            match pidfd_send_signal(&handle, signal) {
                Err(rustix::io::Errno::SRCH) => return Ok(true),
                other => other?,
            }
            let deadline = Instant::now() + timeout;
            while Instant::now() < deadline {
                if !self.is_running() {
                    return Ok(true);
                }
                std::thread::sleep(POLL);
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("process {} does not end", self.pid)))
    }
}

/// State and start time from `/proc/PID/stat`: fields 3 and 22. Field 2, the name, is in
/// parentheses and may contain any character.
fn parse(stat: &str) -> Option<(char, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

const POLL: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, Stdio};

    /// Only a hang takes so long.
    const LATE: Duration = Duration::from_secs(120);

    fn sleeper() -> (Child, Process) {
        let child = Command::new("sleep").arg("600").spawn().expect("sleep exists");
        let process = Process::of(child.id()).expect("it runs");
        (child, process)
    }

    #[test]
    fn parse__names_hold_anything() {
        let tail = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        for name in ["spanwire", "a) R (b", "x y"] {
            assert_eq!(parse(&format!("77 ({name}) {tail}")), Some(('S', 4242)), "{name}");
        }
        assert_eq!(parse("77 (x) S 1 2"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn end__ignores_a_reused_pid() {
        let (mut child, process) = sleeper();
        let other = Process { started: process.started + 1, ..process };
        assert!(process.is_running() && !other.is_running());
        assert!(!other.end(LATE).expect("nothing to do"));
        assert!(process.is_running(), "a reused PID is another process");
        assert!(process.end(LATE).expect("ours"));
        assert!(!process.is_running(), "a zombie counts as ended");
        child.wait().expect("our child");
        assert!(!process.end(LATE).expect("nothing to do"));
    }

    #[test]
    fn end__kills_after_an_ignored_sigterm() {
        let mut child = Command::new("sh")
            .args(["-c", "trap '' TERM; echo trapped; while :; do sleep 0.05; done"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh exists");
        let process = Process::of(child.id()).expect("it runs");
        let mut said = [0; 8];
        child.stdout.take().expect("piped").read_exact(&mut said).expect("it has set its trap");
        match process.end(Duration::from_millis(300)) {
            Ok(was_running) => assert!(was_running),
            // A killed process has not ended yet, if it has no core to do so.
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::TimedOut, "{e}"),
        }
        let deadline = Instant::now() + LATE;
        let status = loop {
            match child.try_wait().expect("our child") {
                Some(status) => break status,
                None => assert!(Instant::now() < deadline, "it is not killed"),
            }
            std::thread::sleep(POLL);
        };
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
    }
}
