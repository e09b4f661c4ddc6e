//! Output that could not be written: the process reports it, and does not exit with 0.
//!
//! Printing and capturing do not return errors, because a full disk should not end a transfer.
//! Their errors are kept here until the command ends.

use crate::exit::{Exit, Failed};
use spanwire_host::fabric::Error;
use spanwire_host::text::printable_lines;
use spanwire_io::pcap::CaptureError;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The first error of stdout.
static STDOUT: OnceLock<io::Error> = OnceLock::new();

/// The errors of other output.
static ERRORS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The captures of this process.
static CAPTURES: Mutex<Vec<(PathBuf, CaptureError)>> = Mutex::new(Vec::new());

/// Prints an error or a warning on stderr. It may quote names of files and interfaces, and words of
/// peers, so control characters are escaped. There is no place to report its own error, so unlike
/// `eprintln!` it does not panic.
pub fn print_error(text: &str) {
    let _ = writeln!(io::stderr(), "{}", printable_lines(text, LINE_CHARS_MAX));
}

/// Notes whether stdout could be written, for [`finish`].
pub fn note_stdout(written: io::Result<()>) {
    if let Err(error) = written {
        // Later errors follow from the first.
        let _ = STDOUT.set(error);
    }
}

/// True if stdout is full or closed: a command whose only purpose is to print may end.
pub(crate) fn is_stdout_lost() -> bool {
    STDOUT.get().is_some()
}

/// Has [`finish`] report the error of another output than the command's report.
pub(crate) fn note_error(error: String) {
    ERRORS.lock().unwrap_or_else(PoisonError::into_inner).push(error);
}

/// Has [`finish`] report the error of a capture in `path`.
pub(crate) fn watch_capture(path: PathBuf, error: CaptureError) {
    CAPTURES.lock().unwrap_or_else(PoisonError::into_inner).push((path, error));
}

/// The exit code of a command that ended with `exit`. Its captures must be closed.
///
/// # Errors
/// Output could not be written. A closed pipe (`| head`) is no error: there is no reader.
pub fn finish(exit: Exit) -> Result<Exit, Error> {
    let stdout = STDOUT.get().filter(|e| e.kind() != io::ErrorKind::BrokenPipe);
    let stdout = stdout.map(|e| format!("cannot write to stdout: {e}"));
    let captures = CAPTURES.lock().unwrap_or_else(PoisonError::into_inner);
    let of_capture = |(path, error): &(PathBuf, CaptureError)| {
        let error = error.get()?;
        Some(format!("{}: the capture is incomplete: {error}", path.display()))
    };
    let errors = std::mem::take(&mut *ERRORS.lock().unwrap_or_else(PoisonError::into_inner));
    let captures = captures.iter().filter_map(of_capture);
    let all: Vec<String> = stdout.into_iter().chain(captures).chain(errors).collect();
    if all.is_empty() {
        return Ok(exit);
    }
    Err(Failed::new(failed(exit), all.join("; ")).into())
}

/// The exit code of a command whose output could not be written.
fn failed(exit: Exit) -> Exit {
    match exit {
        Exit::Success | Exit::ThresholdMissed => Exit::Failure,
        other => other,
    }
}

/// The longest line of an error.
const LINE_CHARS_MAX: usize = 8000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed__precedes_a_missed_threshold_only() {
        let codes = [Exit::Success, Exit::ThresholdMissed, Exit::Usage, Exit::TransferWrong];
        let expected = [Exit::Failure, Exit::Failure, Exit::Usage, Exit::TransferWrong];
        assert_eq!(codes.map(failed), expected);
    }
}
