//! Instruction counts of the packet path: exact enough to fail a build.
//!
//! Time on a shared machine is noisy; instruction counts show the cost of a change. Each
//! workload runs under valgrind twice, with different numbers of operations, so that the difference
//! excludes setup. Counts are reproducible to the instruction, so a few percent more is a change
//! of the code (or of the compiler: the baseline has its version).

pub mod engine;
pub mod workload;

use crate::sample::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use workload::Workload;

/// The accepted instructions of one operation of each workload.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// `rustc --version` of the counted build.
    pub rustc: String,
    /// By the name of the workload.
    pub instructions_per_op: BTreeMap<String, f64>,
}

/// A count compared with its baseline.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// The workload.
    pub name: String,
    /// The operation.
    pub op: &'static str,
    /// The current count.
    pub instructions_per_op: f64,
    /// The accepted count; none for a new workload.
    pub baseline: Option<f64>,
}

impl Baseline {
    /// Reads a baseline; a missing file is an empty one.
    ///
    /// # Errors
    /// The file exists but is not a baseline.
    pub fn read(path: &Path) -> Result<Self, Error> {
        match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|e| format!("{}: {e}", path.display()).into()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(format!("{}: {e}", path.display()).into()),
        }
    }

    /// Writes it, one workload a line.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()).into())
    }
}

impl Verdict {
    /// More instructions than the baseline, as a fraction of it; negative for fewer.
    #[must_use]
    pub fn growth(&self) -> Option<f64> {
        self.baseline.filter(|b| *b > 0.0).map(|b| self.instructions_per_op / b - 1.0)
    }

    /// It grew beyond [`GROWTH_MAX`], or has no baseline.
    #[must_use]
    pub fn fails(&self) -> bool {
        self.growth().is_none_or(|g| g > GROWTH_MAX)
    }
}

/// Counts the instructions of one operation of `workload`, by running this program under valgrind.
///
/// # Errors
/// There is no valgrind, or the workload fails under it.
pub fn count(workload: &Workload) -> Result<f64, Error> {
    let few = count_run(workload.name, workload.ops)?;
    let many = count_run(workload.name, workload.ops * 3)?;
    let more = many.checked_sub(few).ok_or("more operations took fewer instructions")?;
    Ok(approximately(more) / approximately(workload.ops * 2))
}

/// The compiler's version string.
///
/// # Errors
/// There is no rustc.
pub fn rustc_version() -> Result<String, Error> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn count_run(name: &str, ops: u64) -> Result<u64, Error> {
    let valgrind = ["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"];
    let output = Command::new("valgrind")
        .args(valgrind)
        .arg(std::env::current_exe()?)
        .args(["icount-run", name, &ops.to_string()])
        .output()
        .map_err(|e| format!("valgrind: {e} (apt-get install valgrind)"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{name} fails under valgrind:\n{stderr}").into());
    }
    instructions(&stderr)
        .ok_or_else(|| format!("no \"I refs\" in the output of valgrind:\n{stderr}").into())
}

/// The number after `I refs:` (`I   refs:` in older versions).
fn instructions(output: &str) -> Option<u64> {
    let line = output.lines().find(|line| line.contains("refs:") && line.contains("I "))?;
    let digits: String = line.rsplit(':').next()?.chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Counts far below 2^53 are exact as floats.
#[expect(clippy::cast_precision_loss, reason = "a count of instructions stays below 2^53")]
fn approximately(n: u64) -> f64 {
    n as f64
}

/// The growth that fails a build. Counts of one compiler differ by less than a tenth of a percent
/// from run to run.
pub const GROWTH_MAX: f64 = 0.03;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions__reads_both_spellings() {
        assert_eq!(
            instructions("==7== Cachegrind\n==7== I   refs:      1,234,567\n"),
            Some(1_234_567)
        );
        assert_eq!(instructions("==7== I refs:        89"), Some(89));
        assert_eq!(instructions("==7== Command: x"), None);
    }

    #[test]
    fn fails__on_growth_and_without_a_baseline() {
        let verdict = |now, baseline| Verdict {
            name: "x".to_owned(),
            op: "packet",
            instructions_per_op: now,
            baseline,
        };
        assert!(verdict(10.0, None).fails());
        assert!(verdict(103.1, Some(100.0)).fails());
        assert!(!verdict(102.9, Some(100.0)).fails());
        assert!(!verdict(50.0, Some(100.0)).fails());
    }

    #[test]
    fn baseline__covers_every_workload() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("icount.json");
        let blessed = Baseline::read(&path).unwrap().instructions_per_op;
        let known: Vec<&str> = workload::ALL.iter().map(|w| w.name).collect();
        let mut sorted = known.clone();
        sorted.sort_unstable();
        assert_eq!(blessed.keys().map(String::as_str).collect::<Vec<_>>(), sorted);
    }
}
